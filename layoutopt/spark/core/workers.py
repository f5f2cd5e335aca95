"""The Python that Spark's workers run, which need not be the driver's, and what they say where it lacks layoutopt.

Spark starts workers by the name that ``PYSPARK_PYTHON`` gives, else ``python3``. In a notebook or an IDE, where no
virtual environment is activated, that is another Python than the driver's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from layoutopt.errors import carrying, recovered
from layoutopt.model.schema import SEGMENT

Value = TypeVar("Value")
Batches = Iterable[pa.RecordBatch]
Task = Callable[[Batches], Iterator[pa.RecordBatch]]

WITHOUT_US: Final = "Spark's workers run a Python without layoutopt"
"""How the sentence begins that a worker says."""


@contextmanager
def own_python(spark: SparkSession) -> Iterator[None]:
    """Let what is made inside run by the driver's Python, where workers are on its machine and nobody named another."""
    context = spark.sparkContext
    before = context.pythonExec
    if str(context.master).startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec = before


def map_in_workers(rows: DataFrame, task: Task, schema: str, label: str = "") -> DataFrame:
    """What a task makes of each partition's rows; a worker that lacks layoutopt says so in one sentence.

    Args:
        rows: the rows.
        task: gets the batches of a partition.
        schema: of what it gives.
        label: what Spark's plans call it.
    """
    with own_python(rows.sparkSession):
        return rows.mapInArrow(_said_clearly(task, label), schema)


def each_in_workers(spark: SparkSession, count: int, function: Callable[[int], Value]) -> list[Value]:
    """What a function gives for 0 .. ``count`` - 1, each in a task of its own; it and the values travel pickled.

    Raises:
        LayoutoptError: the function raised it in a task.
        pyspark.errors.PySparkException: anything else failed there.
    """
    numbers = spark.range(0, count, 1, max(1, count))
    try:
        found = map_in_workers(numbers, partial(_each, function), "number bigint, value binary").toArrow()
    except (PySparkException, Py4JJavaError) as error:
        ours = recovered(str(error))
        if ours is None:
            raise
        raise ours from error
    values = dict(zip(found["number"].to_pylist(), found["value"].to_pylist(), strict=True))
    return [cloudpickle.loads(values[number]) for number in range(count)]


class SparkTasks:
    """Tasks of Spark's, as :class:`~layoutopt.local.processes.Tasks` says."""

    def __init__(self, spark: SparkSession) -> None:
        """Tasks of a session."""
        self._spark = spark

    @property
    def cores(self) -> int:
        """As many as Spark has by default."""
        return int(self._spark.sparkContext.defaultParallelism)

    def each(self, count: int, function: Callable[[int], Value]) -> list[Value]:
        """As :func:`each_in_workers`."""
        return each_in_workers(self._spark, count, function)


def _each(function: Callable[[int], object], batches: Batches) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            with carrying():
                value = cloudpickle.dumps(function(number))  # type: ignore[no-untyped-call]
            yield pa.RecordBatch.from_pydict({"number": pa.array([number], pa.int64()), "value": pa.array([value])})


def _said_clearly(task: Task, label: str) -> Task:
    pickled: bytes = cloudpickle.dumps(task)  # type: ignore[no-untyped-call]
    sentence = WITHOUT_US

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        import sys

        from pyspark import cloudpickle

        try:
            import layoutopt  # noqa: F401
        except ImportError:
            raise RuntimeError(
                f"{sentence} ({sys.executable}); install it there, or name one that has it by PYSPARK_PYTHON"
            ) from None
        made: Task = cloudpickle.loads(pickled)
        return made(batches)

    run.__name__ = label or run.__name__
    run.__module__ = "__main__"  # so that it travels as it is: by its name it would be looked for in layoutopt
    return run


# ----------------------------------------------------------------------------------------------------
# One Python task for each segment, whatever the columns are called.
#
# PySpark's ``mapInArrow`` looks every column up by its name, as if that were SQL: ``a.b`` would be a field of ``a``. So
# columns travel by their places. The new names are part of the projection below the shuffle, and cost nothing.


def map_segments(rows: DataFrame, segments: int, task: Task, schema: str) -> DataFrame:
    """What a task makes of each segment's rows, all of them in one call.

    Args:
        rows: with ``_segment``.
        segments: how many there are.
        task: gets the batches of one segment under the names that the columns have here. Layoutopt's own errors reach
            the driver carried by Spark's.
        schema: of what it gives.
    """
    names = rows.columns
    places = [f"c{place}" for place in range(len(names))]
    by_segment = rows.toDF(*places).repartitionById(max(1, segments), places[names.index(SEGMENT)])
    return map_in_workers(by_segment, partial(_named, task, names), schema)


def _named(task: Task, names: Sequence[str], batches: Batches) -> Iterator[pa.RecordBatch]:
    with carrying():
        yield from task(batch.rename_columns(names) for batch in batches)
