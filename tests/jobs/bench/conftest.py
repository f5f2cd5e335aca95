"""TPC-H at the smallest scale factor, made once for all tests of the experiments."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.bench.tpch import Tpch, TpchData
from layoutopt.cli.demo import MIN_SCALE, denormalise, generate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def tpch(tmp_path_factory: pytest.TempPathFactory) -> TpchData:
    """The eight tables and the denormalised one: 60,175 line items.

    DuckDB runs the statement of Spark's, in less time; `test_data` compares with what Spark makes of it.
    """
    if shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("tpchgen-cli is not installed")
    made = TpchData(MIN_SCALE, tmp_path_factory.mktemp("tpch"))
    generate(made.scale, made.raw)
    denormalise(made.raw, made.denormalised)
    return made


@pytest.fixture
def bench(spark: SparkSession, tpch: TpchData) -> Tpch:
    """The experiments on that table, with training streams of a tenth and few features."""
    return Tpch(tpch, lambda: spark, training=10, num_features=8)


@pytest.fixture
def case(request: pytest.FixtureRequest, made: Callable[[str], Any]) -> Any:
    """The table that the test names, made as its module says in ``made``."""
    return made(request.param)
