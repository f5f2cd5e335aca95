"""Sessions: what tasks find in their Python workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def threads_after_algebra(_: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The worker's threads before and after a product that a BLAS with several threads would share among them."""
    from pathlib import Path

    before = len(list(Path("/proc/self/task").iterdir()))
    square = np.ones((800, 800))
    square @ square
    yield before, len(list(Path("/proc/self/task").iterdir()))


def cores(_: Iterable[int]) -> Iterator[int]:
    yield pa.cpu_count()


def test_a_task_has_one_thread_for_algebra_and_one_for_arrow(spark: SparkSession) -> None:
    """Spark sets OMP_NUM_THREADS to the cores of a task, so two tasks on two cores don't fight."""
    numbers = spark.sparkContext.parallelize([0], 1)
    ((before, after),) = numbers.mapPartitions(threads_after_algebra).collect()
    assert after == before
    assert numbers.mapPartitions(cores).collect() == [1]
