"""Scans that leave little to read are read by the driver, as soon as a text is given.

Where a query skips nearly all of a table, what is left takes less time to read than Spark takes to begin: tasks of ours
need some 70 ms until their first row, and Spark's own reader opens each file and decodes its whole footer, for every
query anew. The driver has the table open and knows its footers. So it reads such a scan at once, by its own threads,
and Spark gets the rows that the filter leaves as it gets a user's Arrow table. Spark applies the filter again.

What the driver takes on is bounded, so it is the same on any cluster: more than that is read by tasks, when an action
runs. Types that Arrow and Spark may take for others, as nested ones, are left to tasks too.

Seconds were measured on two cores of 2026; only their ratios count.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from layoutopt.inspect.work import work_of
from layoutopt.model.schema import schema_ddl
from layoutopt.model.types import quoted
from layoutopt.scan.arrow_types import arrow_type
from layoutopt.scan.reads import TableRead, rows_at_once
from layoutopt.spark.session.absent import or_null

_MOST_VALUES: Final = 4_000_000
"""So many values the driver decodes in some tens of milliseconds."""
_MOST_BYTES: Final = 16 << 20
"""Of column chunks, compressed."""
_ROWS_A_TASK: Final = 20_000
"""Of the rows that are left: those that a task of Spark's takes as long for as to begin."""
_BYTES_A_TASK: Final = 800 << 10
"""Spark warns of tasks above 1,000 KiB."""
LOCAL_ROWS: Final = "spark.sql.execution.arrow.localRelationThreshold"
BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
"""The session's settings for an Arrow table that is made a DataFrame of."""
_SETTING: Final = threading.Lock()


def is_read_by_driver(read: TableRead) -> bool:
    """Whether the surviving rows of a read are few enough to be read by the driver at once."""
    if not read.columns or not read.table.catalog.data.is_plain:
        return False
    work = work_of(read.pruned)
    if work.bytes > _MOST_BYTES or work.values + work.joined_values > _MOST_VALUES:
        return False
    return all(is_the_same_to_both(column.type) for column in read.columns)


def is_the_same_to_both(type: str) -> bool:
    """Whether values of a Spark type arrive as they are from Arrow; not surely so where they are nested or padded."""
    return arrow_type(type) is not None and type != "void" and "char(" not in type


def driver_rows(spark: SparkSession, read: TableRead) -> DataFrame:
    """The columns that are read, of the rows that may match, read now.

    Raises:
        DataFileError: a data file is missing or damaged.
        SkippingError: skipping is checked, and a row that matches is left out.
    """
    rows = rows_at_once(read).combine_chunks()
    with _as_batches(spark, _rows_a_batch(rows, spark.sparkContext.defaultParallelism)):
        return SparkSession.createDataFrame(spark, rows, _struct(schema_ddl(read.columns)))


def driver_relation(read: TableRead, view: str, explicit: bool) -> str:
    """What to read in the table's place: a view of :func:`driver_rows`, with other columns as NULL where these count.

    Args:
        read: which is read.
        view: the view's name.
        explicit: whether the text names all columns that it takes, so that nobody sees which others there are.
    """
    schema, read_columns = read.table.schema.columns, {column.name for column in read.columns}
    if explicit or len(read_columns) == len(schema):
        return quoted(view)
    return f"(SELECT {', '.join(or_null(column, read_columns) for column in schema)} FROM {quoted(view)})"


@lru_cache(maxsize=1024)
def _struct(ddl: str) -> StructType:
    return cast(StructType, StructType.fromDDL(ddl))


def _rows_a_batch(rows: pa.Table, cores: int) -> int:
    """Of which each task gets one: for all cores where there is work for them, and none with too many bytes."""
    n, size = int(rows.num_rows), int(rows.nbytes)
    tasks = max(1, min(cores, n // _ROWS_A_TASK), -(-size // _BYTES_A_TASK))
    return max(1, -(-n // tasks))


@contextmanager
def _as_batches(spark: SparkSession, rows: int) -> Iterator[None]:
    """Let Spark keep a table as Arrow batches of so many rows, each for a task.

    By itself it turns up to 48 MB into rows of a plan, over which its optimiser then goes time and again.
    """
    java: Any = spark._jsparkSession
    with _SETTING:
        given = [key for key in (LOCAL_ROWS, BATCH_ROWS) if java.sessionState().conf().contains(key)]
        before = {key: spark.conf.get(key) for key in given}
        try:
            spark.conf.set(LOCAL_ROWS, "0b")
            spark.conf.set(BATCH_ROWS, rows)
            yield
        finally:
            for key in (LOCAL_ROWS, BATCH_ROWS):
                if key in before:
                    spark.conf.set(key, str(before[key]))
                else:
                    spark.conf.unset(key)
