"""`layoutopt bench brushing`, small: every figure is of a table that was written."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from layoutopt.bench.brushing import experiment
from layoutopt.bench.brushing.experiment import run_brushing, workload
from layoutopt.bench.brushing.logs import texts_of
from layoutopt.bench.compared.report import brushing_report
from layoutopt.bench.compared.workload import BOUND, compare
from layoutopt.errors import SettingError


@pytest.mark.spark
@pytest.mark.long  # `bench mine` compares in the same way, and is tested always
def test_methods_are_compared_on_written_tables_and_with_a_lower_bound(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "texts_of", lambda name, role: texts_of(name, role)[::60])
    of = workload("trips", 20_000, tmp_path, lambda: spark)
    said: list[str] = []
    found = compare(of, ("sort", "input-order"), said.append)
    assert (found["sort"]["method"], found["input-order"]["storage_bytes"] > 0) == ("sort", True)
    for method in ("sort", "input-order"):
        assert 0 < found[BOUND]["rows"] <= found[method]["rows"]
        assert 0 < found[BOUND]["bytes"] <= found[method]["bytes"]
    assert said.count("trips: making 20,000 rows") == 1
    compare(of, ("sort",), pytest.fail)
    printed = io.StringIO()
    Console(width=140, file=printed).print(brushing_report({"trips": found}))
    assert "trips: unseen users' queries" in printed.getvalue()
    assert printed.getvalue().index(BOUND) < printed.getvalue().index("input-order")


def test_unknown_workloads_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no brushing workload 'cars'; give one of weather, movies, trips"):
        run_brushing(root=tmp_path, names=["cars"])
