"""Rows of a table as Spark's DataFrames: by its native Parquet reader, by tasks that read Arrow, or by this process."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from layoutopt.catalog.keys import FLOATS
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.foreign.source_files import SourceFiles
from layoutopt.model.arrays import Ints
from layoutopt.model.columns import BLOCK
from layoutopt.model.predicates import TRUE, Node
from layoutopt.model.schema import Column, schema_ddl
from layoutopt.model.types import quoted, type_sql
from layoutopt.model.values.constants import text_sql
from layoutopt.scan import check_switch as switch
from layoutopt.scan.files import footer_of
from layoutopt.scan.foreign.rows import live_rows
from layoutopt.scan.read import read_segments
from layoutopt.scan.reads import TableRead, split_by_deletes
from layoutopt.scan.segments import SegmentRead, by_file
from layoutopt.spark.core.patterns import as_no_pattern
from layoutopt.spark.core.sessions import own_parquet_reader, settings_within
from layoutopt.spark.core.workers import Batches, Task, map_in_workers
from layoutopt.spark.session.files import parquet_options

# A task takes as long to begin as to read 100,000 rows: up to four tasks a core where each has more than these.
_ROWS_A_TASK: Final = 1_000_000
# Of rows that the driver hands over: those that a task takes as long for as to begin.
_HANDED_ROWS_A_TASK: Final = 20_000
# Spark warns of tasks above 1,000 KiB.
_BYTES_A_TASK: Final = 800 << 10
# The session's settings for a DataFrame that is made of an Arrow table.
LOCAL_ROWS: Final = "spark.sql.execution.arrow.localRelationThreshold"
BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_SETTING: Final = threading.Lock()
# What Spark calls types in the JSON of a schema, where that is not their name.
_IN_JSON: Final = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}


def read_to_dataframe(spark: SparkSession, read: TableRead) -> DataFrame:
    """Return the rows of the blocks that a read needs, under the table's whole schema.

    Columns that are not read fail where they are used, except where Spark's own reader has them anyway.
    """
    if not read.columns:
        return _with_all_columns(spark, read, spark.range(count_rows(read)))
    segments = read.segments
    if not segments:
        return spark.createDataFrame([], schema_ddl(read.table.schema.columns))
    if not read.table.catalog.data.is_plain or any(len(segment.layouts) > 1 for segment in segments):
        return _with_all_columns(spark, read, read_by_tasks(spark, read, segments))
    clean, rest = split_by_deletes(read)
    if rest is None:
        return _read_natively(spark, read)
    rows = _with_all_columns(spark, rest, read_by_tasks(spark, rest, rest.segments))
    return rows.unionAll(_read_natively(spark, clean)) if clean.segments else rows


def count_rows(read: TableRead) -> int:
    """Return how many rows the catalog says are left of a read without columns."""
    data = read.table.catalog.data
    files = (file for segment in read.segments for file in segment.layouts[0].files)
    return sum(live_rows(data, file, partial(footer_of, data)) for file in files)


def _with_all_columns(spark: SparkSession, read: TableRead, rows: DataFrame) -> DataFrame:
    present = {column.name for column in read.columns}
    return projected(spark, rows, [_or_absent(column, present) for column in read.table.schema.columns])


def _or_absent(column: Column, present: Collection[str]) -> str:
    """A column by its name where it is read, else an expression that fails in every row."""
    if column.name in present:
        return quoted(column.name)
    sentence = text_sql(f"layoutopt has not read the column {column.name!r}; name it in the query")
    return f"CAST(raise_error({sentence}) AS {type_sql(column.type)}) AS {quoted(column.name)}"


def projected(spark: SparkSession, rows: DataFrame, texts: Sequence[str], where: str = "") -> DataFrame:
    """Expressions over rows, by one text: building as many columns one by one takes Spark's driver some 0.1 s."""
    view = f"_layoutopt_{uuid.uuid4().hex}"
    rows.createTempView(view)
    try:
        condition = f" WHERE {where}" if where else ""
        return spark.sql(f"SELECT {', '.join(texts)} FROM {view}{condition}")
    finally:
        spark.catalog.dropTempView(view)


def _read_natively(spark: SparkSession, read: TableRead) -> DataFrame:
    """Whole files by Spark's own reader, and of their rows those in blocks that are needed."""
    opened, ids = needed_blocks(read)
    paths = [
        read.table.catalog.data.full_path(plan.source.blocks.files[file])
        for plan, files in zip(read.pruned, opened, strict=True)
        for file in files
    ]
    schema = schema_ddl((*read.columns, Column(BLOCK, "bigint")))
    with own_parquet_reader(spark):
        reader = spark.read.schema(schema).options(**parquet_options(read.columns))
        rows = reader.parquet(*map(as_no_pattern, paths))
    present = {column.name for column in read.columns}
    texts = [
        _opaque(column) if column.name in present and not is_pushable(read, column) else _or_absent(column, present)
        for column in read.table.schema.columns
    ]
    where = "" if ids is None else f"{BLOCK} IN ({', '.join(map(str, ids.tolist()))})"
    return projected(spark, rows, texts, where)


def needed_blocks(read: TableRead) -> tuple[list[Ints], Ints | None]:
    """Return which files of each plan have a block that is needed, and the numbers of these blocks, ascending.

    The numbers are None where the files have no other blocks.
    """
    opened, ids, whole = [], [np.zeros(0, dtype=np.int64)], True
    for plan in read.pruned:
        blocks, needed = plan.source.blocks, plan.read
        files = np.unique(blocks.file[needed])
        opened.append(files)
        ids.append(blocks.block_id[needed])
        whole &= bool(needed[np.isin(blocks.file, files)].all())
    return opened, None if whole else np.sort(np.concatenate(ids))


def is_pushable(read: TableRead, column: Column) -> bool:
    """Whether Spark may push a filter on a column to Parquet without losing a row of a read.

    Spark compares it with minima and maxima, which leave NaN out, though Spark orders NaN last.
    """
    if column.type in FLOATS:
        return not any(read.table.may_hold_nans(column, layout) for layout in read.layouts)
    return not ("struct<" in column.type and any(each in column.type for each in FLOATS))


def _opaque(column: Column) -> str:
    """The same value in a form that Spark does not push to Parquet."""
    name = quoted(column.name)
    if column.type in FLOATS:
        return f"nanvl({name}, {name}) AS {name}"
    return f"CASE WHEN {name} IS NOT NULL THEN {name} END AS {name}"


def read_by_tasks(spark: SparkSession, read: TableRead, segments: Sequence[SegmentRead], label: str = "") -> DataFrame:
    """Return the columns of a read, of some segments, as tasks read them by Arrow.

    Args:
        spark: the session.
        read: whose columns and filter count.
        segments: what the tasks read.
        label: what the plan calls them.
    """
    data = read.table.catalog.data
    return in_workers(spark, data, by_file(segments), read.columns, read.scan.filter.root, label)


def in_workers(
    spark: SparkSession,
    files: TableFiles,
    segments: Sequence[SegmentRead],
    columns: Sequence[Column],
    condition: Node = TRUE,
    label: str = "",
) -> DataFrame:
    """Some columns of the rows of segments, as tasks read them by themselves; only row groups and paths travel."""
    known = files.for_tasks()
    if isinstance(known, SourceFiles):
        known = known.only({file.path for one in segments for file in one.layouts[0].files})
    reader = _segment_reader(known, list(segments), list(columns), condition)
    return map_in_workers(segment_numbers(spark, segments), reader, schema_ddl(columns), label)


def segment_numbers(spark: SparkSession, segments: Sequence[SegmentRead]) -> DataFrame:
    """The places of some segments in their order, dealt out to tasks that read them."""
    return spark.range(len(segments), numPartitions=_tasks(spark, segments))


def _tasks(spark: SparkSession, segments: Sequence[SegmentRead]) -> int:
    """One for each core, and up to four where there is work for them: each costs a worker as much as 100,000 rows."""
    rows = sum(sum(file.rows) for segment in segments for layout in segment.layouts for file in layout.files)
    cores = spark.sparkContext.defaultParallelism
    return min(len(segments), max(cores, min(4 * cores, rows // _ROWS_A_TASK)))


def _segment_reader(files: TableFiles, segments: list[SegmentRead], columns: list[Column], condition: Node) -> Task:
    checked = switch.is_on()  # executors have an environment of their own

    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        known = files if isinstance(files, SourceFiles) else _files(files)
        for batch in batches:
            chosen = [segments[number] for number in batch.column(0).to_pylist()]
            yield from read_segments(known, chosen, columns, condition=condition, checked=checked)

    return read


@lru_cache(maxsize=1)
def _files(files: TableFiles) -> TableFiles:
    """A table's files, whose footers a worker knows from one task to the next: decoding them takes longer than rows."""
    return files


def arrow_stream(rows: pa.Table) -> bytes:
    """Return rows as a stream of Arrow's IPC format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def rows_to_dataframe(spark: SparkSession, rows: pa.Table, columns: Sequence[Column]) -> DataFrame:
    """Return rows of some columns that the driver has as a DataFrame."""
    rows = rows.combine_chunks()
    cores = spark.sparkContext.defaultParallelism
    with _as_batches(spark, _rows_a_batch(rows, cores)), _active_as_before(spark):
        return SparkSession.createDataFrame(spark, rows, _struct(columns))


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
    tasks = max(1, min(cores, n // _HANDED_ROWS_A_TASK), -(-size // _BYTES_A_TASK))
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
