"""What an optimize regains is measured on tables really written, between the table as it was and a fresh one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from layoutopt.bench import reorganise
from layoutopt.bench.reorganise import (
    RegainedFigure,
    figures_of_half,
    plot_reorganised,
    reorganised_figures,
    reorganised_report,
)
from layoutopt.bench.tpch import Tpch, TpchData
from layoutopt.errors import SettingError

FIGURE = RegainedFigure("first", 0.0, 0, 1000, 500, 60, 0.0, 0.0)
FIGURES = [
    FIGURE,
    replace(FIGURE, share=0.15, written=140, read=140, unseen=20, regained=0.9, regained_unseen=0.8),
    replace(FIGURE, share=1.0, written=1000, read=100, unseen=10, regained=1.0, regained_unseen=1.0),
]


@pytest.mark.long
def test_more_bytes_regain_more_between_the_old_table_and_a_fresh_one(bench: Tpch) -> None:
    said: list[str] = []
    old, some, most, fresh = figures_of_half(bench, "second", (0.3, 0.9), said.append)
    assert [one.share for one in (old, some, most, fresh)] == [0, 0.3, 0.9, 1]
    assert (old.regained, fresh.regained, old.written) == (0, 1, 0)
    assert old.read > some.read >= most.read
    assert 0 < some.written <= 0.31 * old.stored  # what is written is estimated before
    assert some.regained is not None
    assert most.regained is not None
    assert 0 < some.regained <= most.regained
    assert old.stored <= some.stored <= old.stored + some.written
    before = len(said)
    assert figures_of_half(bench, "second", (0.3, 0.9), said.append)[1] == some
    assert len(said) == before  # finished steps are used again


def test_nothing_is_regained_of_a_fresh_plan_that_saves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = {"written": 0, "stored": 1000, "read": 500, "unseen": 60}
    monkeypatch.setattr(reorganise, "run", lambda step, say: read)
    (old, fresh) = figures_of_half(Tpch(TpchData(0.1, tmp_path), pytest.fail), "first", (), print)
    assert (old.regained, fresh.regained_unseen) == (None, None)
    console = Console(width=160, record=True)
    console.print(reorganised_report([old, fresh], 0.1))
    assert console.export_text().count(" - ") == 4
    plot_reorganised([old, fresh], tmp_path / "regained.png")


def test_the_table_and_the_picture_say_what_was_regained(tmp_path: Path) -> None:
    console = Console(width=160, record=True)
    console.print(reorganised_report(FIGURES, 0.1))
    said = console.export_text()
    assert "q5, q11, q16, q20, q22" in said
    for text in ("as it was", "15%", "14.0%", "90.0%", "80.0%", "planned and loaded anew"):
        assert text in said
    plot_reorganised(FIGURES, tmp_path / "some" / "regained.png")
    assert (tmp_path / "some" / "regained.png").stat().st_size > 1000


@pytest.mark.parametrize(("given", "named"), [({"halves": ["third"]}, "'third'"), ({"shares": [1.5]}, "1.5")])
def test_what_is_no_half_and_no_share_is_refused(given: dict[str, list[str]], named: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=named):
        reorganised_figures(0.01, root=tmp_path, say=print, **given)  # type: ignore[arg-type]
