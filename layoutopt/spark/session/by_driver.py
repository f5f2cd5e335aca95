"""Scans that leave little to read are read by the driver, as soon as a text is given.

Where a query skips nearly all of a table, what is left takes less time to read than tasks of ours take to begin: some
70 ms until their first row. The driver has the table open and knows its footers. So it reads at once, by its own
threads, what such tasks would read of a scan (rows put together from several layouts, few of many small row groups,
blocks with deleted rows), and Spark gets the rows that the filter leaves as it gets a user's Arrow table. Spark applies
the filter again. What its own reader would read is left to that, which is as fast.

What the driver takes on is bounded, so it is the same on any cluster: more than that is read by tasks, when an action
runs. Types that Arrow and Spark may take for others, as nested ones, are left to tasks too.

Seconds were measured on two cores of 2026; only their ratios count.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from layoutopt.inspect.work import work_of
from layoutopt.model.schema import Column
from layoutopt.scan.arrow_types import arrow_type
from layoutopt.scan.reads import TableRead, has_deleted_rows, rows_at_once
from layoutopt.spark.core.sessions import settings_within
from layoutopt.spark.session.small_row_groups import are_read_by_tasks

_MOST_VALUES: Final = 4_000_000
"""So many values the driver decodes, and puts together, while tasks of ours would begin and hand them over."""
_MOST_BYTES: Final = 16 << 20
"""Of column chunks, compressed."""
_MOST_HELD: Final = 64 << 20
"""Bytes of rows in memory: texts may be far more than their chunks."""
_ROWS_A_TASK: Final = 20_000
"""Of the rows that are left: those that a task of Spark's takes as long for as to begin."""
_BYTES_A_TASK: Final = 800 << 10
"""Spark warns of tasks above 1,000 KiB."""
LOCAL_ROWS: Final = "spark.sql.execution.arrow.localRelationThreshold"
BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
"""The session's settings for an Arrow table that is made a DataFrame of."""
_SETTING: Final = threading.Lock()
_IN_JSON: Final = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
"""What Spark calls types in the JSON of a schema, where that is not their name."""


def is_read_by_driver(read: TableRead, explicit: bool) -> bool:
    """Whether the surviving rows of a read are few enough to be read by the driver at once.

    Args:
        read: what is left of the table.
        explicit: whether the text names all columns that it takes, so that others may be missing.
    """
    schema = read.table.schema
    if not read.columns or not read.table.catalog.data.is_plain:
        return False
    if not explicit and len(read.columns) < len(schema.columns):
        return False
    work = work_of(read.pruned)
    if work.bytes > _MOST_BYTES or work.values + work.joined_values > _MOST_VALUES:
        return False
    if not work.joined_values and not has_deleted_rows(read) and not are_read_by_tasks(read):
        return False
    return all(is_the_same_to_both(column.type) for column in read.columns)


def is_the_same_to_both(type: str) -> bool:
    """Whether values of a Spark type arrive as they are from Arrow; not surely so where they are nested or padded."""
    return arrow_type(type) is not None and type != "void" and "char(" not in type


def driver_rows(spark: SparkSession, read: TableRead) -> DataFrame | None:
    """The columns that are read, of the rows that may match, read now; None where these are too many bytes.

    Raises:
        DataFileError: a data file is missing or damaged.
        SkippingError: skipping is checked, and a row that matches is left out.
    """
    rows = rows_at_once(read, _MOST_HELD)
    if rows is None:
        return None
    rows = rows.combine_chunks()
    cores = spark.sparkContext.defaultParallelism
    with _as_batches(spark, _rows_a_batch(rows, cores)), _active_as_before(spark):
        frame = SparkSession.createDataFrame(spark, rows, _struct(read.columns))
    java: Any = spark._jsparkSession
    # Spark knows no size of such rows, by which it would see that they can be sent to all tasks of a join.
    return (
        frame.hint("broadcast") if 2 * rows.nbytes <= java.sessionState().conf().autoBroadcastJoinThreshold() else frame
    )


def _struct(columns: Sequence[Column]) -> StructType:
    """The columns as Spark's schema, without a call to Java, which would parse their DDL in a millisecond."""
    fields = [
        {"name": column.name, "type": _IN_JSON.get(column.type, column.type), "nullable": True, "metadata": {}}
        for column in columns
    ]
    return StructType.fromJson({"type": "struct", "fields": fields})


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
    with _SETTING, settings_within(spark, {LOCAL_ROWS: "0b", BATCH_ROWS: str(rows)}):
        yield


@contextmanager
def _active_as_before(spark: SparkSession) -> Iterator[None]:
    """Leave the thread's active session what it is: `createDataFrame` makes its own the active one."""
    jvm: Any = spark._jvm
    # Named at once: attribute by attribute Java would look into all of its archives for each part of the name.
    sessions = getattr(jvm, "org.apache.spark.sql.classic.SparkSession")
    active, in_java = SparkSession._activeSession, sessions.getActiveSession()
    try:
        yield
    finally:
        SparkSession._activeSession = active
        if in_java.isDefined():
            sessions.setActiveSession(in_java.get())
        else:
            sessions.clearActiveSession()
