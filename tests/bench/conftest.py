"""TPC-H at the smallest scale factor, made once for all tests of the experiments."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from layoutopt.bench.tpch import experiment
from layoutopt.bench.tpch.data import MIN_SCALE, TpchData, prepare
from layoutopt.bench.tpch.experiment import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def tpch(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> TpchData:
    """The eight tables and the denormalised one: 60,175 line items."""
    if shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("tpchgen-cli is not installed")
    made = TpchData(MIN_SCALE, tmp_path_factory.mktemp("tpch"))
    prepare(spark, made, lambda said: None)
    return made


@pytest.fixture
def bench(spark: SparkSession, tpch: TpchData, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The experiments on that table, with training streams of a tenth and few features."""
    monkeypatch.setattr(experiment, "TRAINING_QUERIES", 10)
    monkeypatch.setattr(experiment, "NUM_FEATURES", 8)
    return Bench(tpch, lambda: spark)


@pytest.fixture
def case(request: pytest.FixtureRequest, made: Callable[[str], Any]) -> Any:
    """The table that the test names, made as its module says in ``made``."""
    return made(request.param)
