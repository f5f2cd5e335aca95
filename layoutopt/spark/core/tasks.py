"""One Python task for each segment, whatever the columns are called.

PySpark's ``mapInArrow`` looks every column up by its name, as if that were SQL: ``a.b`` would be a field of ``a``. So
columns travel by their places. The new names are part of the projection below the shuffle, and cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame

from layoutopt.errors import carrying
from layoutopt.model.columns import SEGMENT
from layoutopt.spark.core.workers import Batches, Task, map_in_workers


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
