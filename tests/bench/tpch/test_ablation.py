"""From as written to the default: each row has one deviation more, and the last is what `plan` does."""

from __future__ import annotations

import io
from itertools import pairwise

import pytest
from rich.console import Console

from layoutopt.bench.tpch.ablation import AblationFigure, deviations, print_ablation
from layoutopt.config.files import make_settings
from layoutopt.config.settings import PlanSettings


@pytest.mark.parametrize("method", ["sop", "gsop", "gsop-r"])
def test_rows_lead_from_as_written_to_the_default_one_by_one(method: str) -> None:
    rows = deviations(method)
    assert (rows[0].selection, rows[0].flags) == ("text", ())
    for before, after in pairwise(rows[1:]):
        assert after.flags[: len(before.flags)] == before.flags != after.flags
    last = make_settings(PlanSettings, {"source": "s", "method": method, "as_written": True, **dict(rows[-1].flags)})
    default = make_settings(PlanSettings, {"source": "s", "method": method})
    same = {"as_written", "row_order", *({"search", "local_features"} if method == "sop" else {"guides"})}
    for name in set(PlanSettings.model_fields) - same:
        assert getattr(last, name) == getattr(default, name), name
    assert last.row_order == ("auto",)


def test_the_table_says_what_each_deviation_takes_off() -> None:
    figures = [
        AblationFigure("chapter3", "as written", "", 0.2, 0.2, 2_000_000, 0.1),
        AblationFigure("chapter3", "better", "0024", 0.1, 0.1, 1_500_000, 0.075),
    ]
    console = Console(file=io.StringIO(), width=160)
    print_ablation(console, figures)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "+25.0%" in text
    assert "1.5 MB" in text
    assert "chapter3, sop" in text
