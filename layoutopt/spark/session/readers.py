"""Choose what reads the blocks that a query needs, and build its plan: one function decides for all queries.

* ``native``: Spark's own Parquet reader, which skips row groups by a condition on ``_block`` that is pushed to Parquet.
* ``tasks``: Spark's tasks, which read by Arrow what Spark's reader cannot: rows put together from several layouts,
  encrypted files and external ones, blocks with deleted rows. They also read few of very many row groups sooner, since
  the catalog says where these are and no footer has to be decoded.
* ``driver``: this process, which reads what little is left while tasks would still begin. It holds at most
  :data:`_MOST_HELD` bytes, on any cluster.

Seconds were measured on two cores of 2026; only their ratios count.
"""

from __future__ import annotations

import base64
import threading
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from layoutopt.catalog.keys import FLOATS
from layoutopt.catalog.snapshot import PartitionEntry
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.external.source_files import SourceFiles
from layoutopt.inspect.cost import work_of
from layoutopt.model.arrays import Ints
from layoutopt.model.engine_costs import Work
from layoutopt.model.predicates import TRUE, Node
from layoutopt.model.schema import BLOCK, Column, schema_ddl
from layoutopt.model.types import INTEGER_BITS, decimal_digits, quoted, type_sql
from layoutopt.model.values import Key
from layoutopt.model.values.keys import text_sql
from layoutopt.scan import check_switch as switch
from layoutopt.scan.arrow_types import arrow_type
from layoutopt.scan.files import footer_of, live_rows
from layoutopt.scan.opened_table import OpenedTable
from layoutopt.scan.read import read_segments
from layoutopt.scan.segments import SegmentRead, by_file
from layoutopt.scan.table_read import TableRead, has_deleted_rows, rows_at_once, split_by_deletes
from layoutopt.spark.catalyst.rule import analyzed, java_map, java_schema
from layoutopt.spark.core.sessions import own_parquet_reader, settings_within
from layoutopt.spark.core.source import WHOLE_FILES, as_no_pattern
from layoutopt.spark.core.workers import Batches, Task, map_in_workers

# ----------------------------------------------------------------------------------------------------
# The data files of a snapshot as Spark's own Parquet reader gets them: their paths and partition values, made once.

# Pages have checksums; footers, whose digests only layoutopt knows, are checked by `verify`.
# Dates are written as they are: no session's mode for files of unknown writers may move those before 1582.
STRICT: Final = {**WHOLE_FILES, "datetimeRebaseMode": "CORRECTED"}
# Parquet's reader finds 0.0 and -0.0 different in a dictionary, where Spark finds them equal.
_NO_DICTIONARIES: Final = {"parquet.filter.dictionary.enabled": "false"}
_PARTITION_TYPES: Final = frozenset({"boolean", "date", "timestamp", "timestamp_ntz", "string", *INTEGER_BITS})


def parquet_options(columns: Iterable[Column]) -> dict[str, str]:
    """Return the options under which Spark's own reader loses no row of data files with these columns."""
    return STRICT | (_NO_DICTIONARIES if any(column.type in FLOATS for column in columns) else {})


@dataclass(frozen=True, eq=False)
class SnapshotFiles:
    """The files of one snapshot.

    Attributes:
        java: the same for the optimiser rule.
        numbers: of each plan's files, in the order of its blocks' files, the numbers that ``java`` has for them.
    """

    java: Any
    numbers: tuple[Ints, ...]


def list_files(spark: SparkSession, scan: Any, table: OpenedTable) -> SnapshotFiles:
    """Return the files of a table's snapshot for a scan of the rule.

    Raises:
        CatalogError: a blocks file is damaged.
    """
    data = table.catalog.data
    paths: list[str] = []
    numbers: list[Ints] = []
    entry_of: list[Ints] = []
    for source in table.sources:
        blocks = source.blocks
        numbers.append(np.arange(len(paths), len(paths) + len(blocks.files), dtype=np.int64))
        paths += [data.full_path(path) for path in blocks.files]
        entries = np.zeros(len(blocks.files), dtype=np.int64)
        entries[blocks.file] = source.entry_of
        entry_of.append(entries)
    column = partition_column(table)
    values = [] if column is None else [_value(entry, column) for entry in table.catalog.partitions]
    known = [value for value in values if value is not None]
    if column is None or len(known) != len(values):
        column, known = None, ["n"] * len(table.catalog.partitions)
    java = scan.snapshot(
        f"{data.full_path('')}@{table.catalog.snapshot.number}",
        BLOCK,
        java_schema(spark, table.schema.columns),
        "\n".join(paths),
        None if column is None else column.name,
        ",".join(map(str, np.concatenate([np.zeros(0, dtype=np.int64), *entry_of]).tolist())),
        "\n".join(known),
        java_map(spark, parquet_options(table.schema.columns)),
    )
    return SnapshotFiles(java, tuple(numbers))


def partition_column(table: OpenedTable) -> Column | None:
    """Return the column by which Spark may prune partitions itself; None where there is none of a fitting type."""
    name = table.catalog.snapshot.partition_by
    column = None if name is None else table.schema.get(name)
    if column is None or not (column.type in _PARTITION_TYPES or decimal_digits(column.type)):
        return None
    return column


def _value(entry: PartitionEntry, column: Column) -> str | None:
    """The value that the partition column has in all rows of an entry, as Java takes it; None where it is not known."""
    bounds = entry.bounds.get(column.name)
    if bounds is None or bounds.nulls is None:
        return None
    if bounds.nulls == entry.rows:
        return "n"
    if bounds.nulls or bounds.low is None or bounds.low != bounds.high:
        return None
    return f"v{_text(bounds.low)}"


def _text(key: Key) -> str:
    return base64.b64encode(key.encode()).decode("ascii") if isinstance(key, str) else str(key)


# ----------------------------------------------------------------------------------------------------
# Rows of a table as Spark's DataFrames: by its native Parquet reader, by tasks that read Arrow, or by this process.

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


# So many values the driver decodes and puts together while tasks would begin and hand them over.
_MOST_VALUES: Final = 4_000_000
# Compressed column chunks that the driver reads.
_MOST_BYTES: Final = 16 << 20
# Rows in memory: texts may be far more than their chunks.
_MOST_HELD: Final = 64 << 20
# Of these, rows that become a part of the plan: of more, Spark's tasks read Arrow sooner.
_MOST_LOCAL: Final = 512 << 10
# Seconds in which Spark decodes what a footer says of one column chunk.
_FOOTER_CHUNK: Final = 2.7e-6
# Seconds until tasks begin, and end.
_TASKS: Final = 0.06
# Seconds in which a task opens a file.
_FILE: Final = 1e-3
# Seconds more for a value that a task reads.
_VALUE: Final = 20e-9
# Where fewer of the files have their chunks in the catalog, tasks decode footers too. Older tables have none.
_KNOWN_SHARE: Final = 0.75


class Reader(Enum):
    """What reads the blocks of a scan."""

    NATIVE = "native"
    TASKS = "tasks"
    DRIVER = "driver"


def choose_reader(read: TableRead, by_driver: bool) -> Reader:
    """Return the reader that takes the least time for a read that has columns.

    Args:
        read: what is left of the table.
        by_driver: whether the driver may read.
    """
    data, work = read.table.catalog.data, work_of(read.pruned)
    joined = any(len(plan.choice) > 1 for plan in read.pruned)
    sooner = are_tasks_sooner(read, work)
    if not (joined or sooner or not data.is_plain or has_deleted_rows(read)):
        return Reader.NATIVE
    few = work.bytes <= _MOST_BYTES and work.values + work.joined_values <= _MOST_VALUES
    if by_driver and few and data.is_plain and all(_is_same_to_both(column.type) for column in read.columns):
        return Reader.DRIVER
    return Reader.TASKS if joined or sooner or not data.is_plain else Reader.NATIVE


def are_tasks_sooner(read: TableRead, work: Work) -> bool:
    """Whether tasks read few of many small row groups sooner than Spark's reader, which has to decode footers."""
    if read.table.catalog.data.local_root is None:  # in a store, tasks decode footers, too
        return False
    if work.footer_chunks * _FOOTER_CHUNK < _TASKS + work.files * _FILE + work.values * _VALUE:
        return False
    known = [file.chunks is not None for one in read.segments for layout in one.layouts for file in layout.files]
    return sum(known) > _KNOWN_SHARE * len(known)


def _is_same_to_both(type: str) -> bool:
    """Whether values of a Spark type arrive unchanged from Arrow; nested and padded ones may not."""
    return arrow_type(type) is not None and type != "void" and "char(" not in type


def plan_read(
    spark: SparkSession, read: TableRead, scan: Any, files: SnapshotFiles | None, label: str, by_driver: bool
) -> Any:
    """Return the plan that stands in a scan's place.

    Args:
        spark: the session.
        read: what is left of the table.
        scan: the rule's scan.
        files: of the read's snapshot; None where Spark's own reader cannot read them.
        label: what Spark's pages call the scan.
        by_driver: whether the driver may read.

    Raises:
        DataFileError: the driver reads, and a data file is missing or damaged.
    """
    if not read.columns:
        return scan.count(count_rows(read))
    reader = choose_reader(read, by_driver)
    if reader is Reader.DRIVER:
        rows = rows_at_once(read, _MOST_HELD)
        rows = None if rows is None else rows.select(list(read.scan.columns))
        if rows is not None and rows.nbytes <= _MOST_LOCAL:
            return scan.local(arrow_stream(rows), label)
        if rows is not None:
            return scan.held(analyzed(rows_to_dataframe(spark, rows, read.columns)), int(rows.nbytes), label)
        reader = choose_reader(read, by_driver=False)
    if reader is Reader.TASKS or files is None:
        return scan.over(analyzed(read_by_tasks(spark, read, read.segments, label)))
    clean, rest = split_by_deletes(read)
    others = None if rest is None else analyzed(read_by_tasks(spark, rest, rest.segments, label))
    return _native(clean, scan, files, label, others)


def _native(read: TableRead, scan: Any, files: SnapshotFiles, label: str, others: Any) -> Any:
    opened, ids = needed_blocks(read)
    # Plans' files are numbered one plan after the other, so these ascend.
    numbers = [number for of_plan, here in zip(files.numbers, opened, strict=True) for number in of_plan[here].tolist()]
    size = sum(int(plan.bytes[plan.read].sum()) for plan in read.pruned)
    return scan.read(
        files.java,
        ",".join(map(str, numbers)),
        None if ids is None else ",".join(map(str, ids.tolist())),
        "\n".join(column.name for column in read.columns if not is_pushable(read, column)),
        size,
        label,
        others,
    )
