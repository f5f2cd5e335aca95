"""What cells cost in bytes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from layoutopt.methods.interface import PlanRequest
from layoutopt.planning.sample_evaluation import measure_unit
from tests.effort import long_too
from tests.spark.plans import make_plan
from tests.spark.tables import simple_document, simple_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def sample(rows: int = 5000) -> pa.Table:
    draw = random.Random(1)
    return pa.table(
        {
            "flag": [draw.random() < 0.5 for _ in range(rows)],
            "number": pa.array([draw.randrange(2**31) for _ in range(rows)], pa.int64()),
            "text": [f"{draw.randrange(10**30):030d}" for _ in range(rows)],
        }
    )


def test_wide_cells_cost_more_than_narrow_ones() -> None:
    unit = measure_unit(sample(), ["flag", "number", "text"], 1000, 100_000, "zstd", 0)
    flag, number, text = unit.cell.tolist()
    assert 1 / 8 < flag < 0.5
    assert 3.5 < number < 6
    assert 12 < text < 20
    assert 0.5 < unit.tid < 3


def test_small_blocks_make_cells_dearer_by_the_footer() -> None:
    small, large = (measure_unit(sample(), ["flag"], size, 100_000, "zstd", 0).cell[0] for size in (100, 2000))
    assert small > large + 0.5


def test_no_rows_count_cells() -> None:
    unit = measure_unit(sample(0), ["flag", "text"], 1000, 100, "zstd", 0)
    assert unit.tid == 1
    assert np.array_equal(unit.cell, [1, 1])


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize(
    ("cost", "predicted"), [("bytes", "bytes_fraction"), *long_too(("cells", "cells_and_tids_fraction"))]
)
def test_plans_say_what_they_count(spark: SparkSession, cost: str, predicted: str) -> None:
    source = simple_rows(spark)
    plan = make_plan(spark, source, simple_document(source), PlanRequest(method="gsop", cost=cost))
    assert 0 < plan.predicted[predicted] <= 1
