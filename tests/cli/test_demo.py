"""The demo: every verb on generated tables, and where the report is."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from layoutopt.cli.app import main
from layoutopt.cli.demo import draw_queries, generate
from layoutopt.errors import SettingError

needs_generator = pytest.mark.skipif(
    shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent)) is None, reason="tpchgen-cli is not installed"
)


@needs_generator
@pytest.mark.long
def test_it_ends_with_a_table_and_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "demo", "--sf", "0.01", "--folder", str(tmp_path), "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)
    assert list(steps) == ["analyze", "plan", "load", "evaluate", "written"]
    rows = pq.read_metadata(tmp_path / "sf0.01" / "raw" / "lineitem.parquet").num_rows
    assert steps["load"]["rows"] == rows
    totals = steps["evaluate"]["totals"]
    assert 0 < totals["rows_matching"] <= totals["rows_scanned"] < totals["rows_total"] / 4
    assert "<svg" in Path(steps["written"]["report"]).read_text(encoding="utf-8")


def test_the_logs_have_the_same_templates_and_other_queries() -> None:
    train, test = ([*draw_queries(name)] for name in ("train", "test"))
    assert [text.partition(" WHERE ")[0] for text in train[: len(test)]] == [t.partition(" WHERE ")[0] for t in test]
    assert train[: len(test)] != test
    assert test == [*draw_queries("test")]


def test_a_scale_factor_out_of_range_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="scale factor"):
        generate(0.001, tmp_path / "raw")
    assert list(tmp_path.iterdir()) == []
