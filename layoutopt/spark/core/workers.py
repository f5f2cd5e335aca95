"""The Python that Spark's workers run, which need not be the driver's, and what they say where it lacks layoutopt.

Spark starts workers by the name that ``PYSPARK_PYTHON`` gives, else ``python3``. In a notebook or an IDE, where no
virtual environment is activated, that is another Python than the driver's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

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


def map_in_workers(rows: DataFrame, task: Task, schema: str) -> DataFrame:
    """What a task makes of each partition's rows; a worker that lacks layoutopt says so in one sentence.

    Args:
        rows: the rows.
        task: gets the batches of a partition.
        schema: of what it gives.
    """
    with own_python(rows.sparkSession):
        return rows.mapInArrow(_said_clearly(task), schema)


def _said_clearly(task: Task) -> Task:
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

    run.__module__ = "__main__"  # so that it travels as it is: by its name it would be looked for in layoutopt
    return run
