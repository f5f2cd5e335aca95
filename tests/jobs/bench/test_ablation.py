"""The ablation: each row adds one deviation, and the last plans by default."""

from __future__ import annotations

import pytest

from jobs.bench.ablation import CHAPTERS, Deviation, ablation_report, list_steps, run_ablation
from jobs.bench.steps import run
from jobs.bench.tpch import Tpch
from layoutopt.errors import SettingError
from layoutopt.methods.interface import PlanRequest
from layoutopt.methods.registry import check_request


@pytest.mark.parametrize("rows", CHAPTERS.values(), ids=CHAPTERS.keys())
def test_rows_are_valid_settings_from_the_text_to_the_default(rows: tuple[Deviation, ...]) -> None:
    for row in rows:
        check_request(PlanRequest(row.method, **row.settings))
    assert (rows[0].text_features, rows[0].subsumed) == (True, True)
    assert not rows[-1].settings
    assert len({(row.method, str(row.settings), row.text_features, row.subsumed) for row in rows}) == len(rows)


def test_an_unknown_chapter_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(SettingError, match="unknown chapter 'chapter6'"):
        run_ablation(0.01, root=tmp_path_factory.mktemp("root"), chapters=["chapter6"])


@pytest.mark.spark
@pytest.mark.long
def test_the_default_reads_less_than_the_text(bench: Tpch) -> None:
    stream, rows = bench.stream("chapter3"), CHAPTERS["chapter3"]
    first, last = (run(step, print) for step in list_steps(stream, (rows[0], rows[-1]), 700))
    assert 0 < last["bytes"] < first["bytes"]
    report = ablation_report({"chapter3": [first, last]})
    assert report.renderables
