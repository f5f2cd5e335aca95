"""Tuning is judged by unseen queries, beside every setting that it could have chosen."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from layoutopt.bench.tpch.data import TpchData
from layoutopt.bench.tpch.experiment import Bench
from layoutopt.bench.tpch.tuning import TuningFigure, print_tuning, settings_for, tuning_figure
from layoutopt.spark.planning import automatic
from tests.bench.without_spark import no_spark


@pytest.mark.long
def test_what_is_chosen_is_one_of_the_settings_swept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automatic, "THRESHOLDS", (1,))
    monkeypatch.setattr(automatic, "_FEATURES", (2, 4))
    monkeypatch.setattr(automatic, "BLOCK_ROWS", (2.0,))
    figure = tuning_figure(bench, "chapter3", lambda said: None)
    assert figure.method == "sop"
    assert {figure.default, figure.chosen, figure.best} <= set(figure.unseen)
    assert len(figure.unseen) == 5  # two numbers of features in blocks of two sizes, and all of the features
    assert all(0 < share < 1 for share in figure.unseen.values())
    assert figure.over_best >= 1


def test_streams_of_different_columns_are_tuned_for_column_groups() -> None:
    bench = Bench(TpchData(0.01), no_spark)
    assert [settings_for(bench, stream).method for stream in ("chapter3", "chapter3-skewed", "chapter4")] == [
        "sop",
        "sop",
        "gsop",
    ]
    assert settings_for(bench, "chapter3").block_rows == 100


def test_the_best_and_the_worst_are_printed_beside_what_was_chosen() -> None:
    unseen = {"a": 0.1, "b": 0.08, "c": 0.2}
    figure = TuningFigure("chapter3", "sop", default="c", chosen="a", unseen=unseen)
    assert figure.best == "b"
    assert figure.over_best == pytest.approx(1.25)
    said = io.StringIO()
    print_tuning(Console(width=120, file=said), [figure])
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in said.getvalue().splitlines()]
    assert ["tuned", "a", "10.00%", "1.250x"] in cells
    assert ["not tuned", "c", "20.00%", "2.500x"] in cells
    assert ["best", "b", "8.00%", "1.000x"] in cells
    assert "3 settings were tried." in said.getvalue()
