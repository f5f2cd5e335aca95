"""Choose a reader for the blocks that a query needs, and build its plan.

* ``native``: Spark's own Parquet reader, which skips row groups by a condition on ``_block`` that is pushed to Parquet.
* ``tasks``: Spark's tasks with Arrow, for what Spark's reader can't read: rows of several layouts, encrypted files,
  blocks with deleted rows, and some external files. They are also faster for a few of very many row groups, which the
  catalog locates without decoding footers.
* ``driver``: this process, for small reads that end before tasks would start. It holds at most :data:`_MOST_HELD`
  bytes.

Times were measured on two cores of 2026; only their ratios matter.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.evaluation.arrow_types import arrow_type
from layoutopt.evaluation.keys import FLOATS
from layoutopt.external.listing import to_arrow_constant
from layoutopt.inspect.cost import QueryWork, count_work
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.predicates import TRUE, Node
from layoutopt.model.schema import BLOCK, Column, schema_ddl
from layoutopt.model.types import INTEGER_BITS, decimal_digits, quote_name, type_sql
from layoutopt.model.values.keys import Key, text_sql, to_key
from layoutopt.scan import check_switch as switch
from layoutopt.scan.opened_table import OpenedTable, sum_read
from layoutopt.scan.read import read_segments
from layoutopt.scan.segments import SegmentRead, split_by_file
from layoutopt.scan.table_read import TableRead, read_rows, split_blocks
from layoutopt.spark.catalyst.rule import get_analyzed_plan, to_java_map, to_java_schema
from layoutopt.spark.core.sessions import use_v1_parquet_reader
from layoutopt.spark.core.source import WHOLE_FILES, escape_pattern
from layoutopt.spark.core.versions import is_spark_3, to_arrow_rdd
from layoutopt.spark.core.workers import map_items
from layoutopt.writer.segment import to_arrow_stream

# The options for Spark's Parquet reader. Pages have checksums; `verify` checks footers by layoutopt's own digests.
# Dates before 1582 must not be rebased, whatever the session's mode for files of unknown writers.
PARQUET_OPTIONS: Final = {**WHOLE_FILES, "datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"}
# Parquet's dictionary filter distinguishes 0.0 from -0.0, which are equal in Spark.
_NO_DICTIONARIES: Final = {"parquet.filter.dictionary.enabled": "false"}
_PARTITION_TYPES: Final = frozenset({"boolean", "date", "timestamp", "timestamp_ntz", "string", *INTEGER_BITS})


def parquet_options(columns: Iterable[Column]) -> dict[str, str]:
    """Return the options by which Spark's own reader loses no row of data files with these columns."""
    return PARQUET_OPTIONS | (_NO_DICTIONARIES if any(column.type in FLOATS for column in columns) else {})


@dataclass(frozen=True, eq=False)
class SnapshotFiles:
    """The data files of one snapshot.

    Attributes:
        java: the optimiser rule's object for them.
        numbers: for each plan, the numbers of its files in ``java``, in the order of ``blocks.files``.
        native: for each plan, which of its files Spark's own reader can read, ``bool[files]``, in the same order.
    """

    java: Any
    numbers: tuple[Ints, ...]
    native: tuple[Bits, ...]


def list_files(spark: SparkSession, scan: Any, table: OpenedTable) -> SnapshotFiles:
    """Return the files of a table's snapshot, with their partition values, for a scan of the rule.

    Raises:
        CatalogError: a blocks file is damaged.
    """
    data = table.catalog.data
    paths: list[str] = []
    numbers: list[Ints] = []
    entries: list[Ints] = []
    for source in table.sources:
        blocks = source.blocks
        numbers.append(np.arange(len(paths), len(paths) + len(blocks.files), dtype=np.int64))
        paths += [data.full_path(path) for path in blocks.files]
        entry_of_file = np.zeros(len(blocks.files), dtype=np.int64)
        entry_of_file[blocks.file] = source.entry_of
        entries.append(entry_of_file)
    column = partition_column(table)
    in_folders = set() if column is None else {column.name}
    native = tuple(
        np.array(
            [data.is_native(path) and data.constants(path).keys() <= in_folders for path in source.blocks.files],
            np.bool_,
        )
        for source in table.sources
    )
    version = data.state or str(table.catalog.snapshot.number)
    if data.is_external:
        keys = [key for source in table.sources for key in source.blocks.files]
        partition_of_file, known = _number_folder_values(data, keys, column)
    else:
        partition_of_file = [number for part in entries for number in part.tolist()]
        values = [] if column is None else [_encode_value(entry, column) for entry in table.catalog.partitions]
        known = [value for value in values if value is not None]
        if column is None or len(known) != len(values):
            column, known = None, ["n"] * len(table.catalog.partitions)
    java = scan.snapshot(
        f"{data.full_path('')}@{version}",
        BLOCK,
        to_java_schema(spark, table.schema.columns),
        "\n".join(paths),
        None if column is None else column.name,
        ",".join(map(str, partition_of_file)),
        "\n".join(known),
        to_java_map(spark, parquet_options(table.schema.columns)),
    )
    return SnapshotFiles(java, tuple(numbers), native)


def partition_column(table: OpenedTable) -> Column | None:
    """Return the column by which Spark may prune partitions itself, or None if its type is not supported."""
    name = table.catalog.data.folder_column or table.catalog.snapshot.partition_by
    column = None if name is None else table.schema.get(name)
    if column is None or not (column.type in _PARTITION_TYPES or decimal_digits(column.type)):
        return None
    return column


def _encode_value(entry: PartitionEntry, column: Column) -> str | None:
    """Return the partition value of an entry for Java: ``n`` for NULL, ``v`` and the value, or None if unknown."""
    bounds = entry.bounds.get(column.name)
    if bounds is None or bounds.nulls is None:
        return None
    if bounds.nulls == entry.rows:
        return "n"
    if bounds.nulls or bounds.low is None or bounds.low != bounds.high:
        return None
    return _encode_key(bounds.low)


def _encode_key(key: Key) -> str:
    return "v" + (base64.b64encode(key.encode()).decode("ascii") if isinstance(key, str) else str(key))


def _number_folder_values(data: TableFiles, keys: Sequence[str], column: Column | None) -> tuple[list[int], list[str]]:
    """Return the number of each file's value of the partition column, and the distinct values for Java."""
    values = ["n" if column is None else _encode_constant(data.constants(key), column) for key in keys]
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return [numbers[value] for value in values], list(numbers)


def _encode_constant(constants: Mapping[str, object], column: Column) -> str:
    value = to_arrow_constant(constants.get(column.name), column).as_py()
    return "n" if value is None else _encode_key(to_key(value, column.type))


# Starting a task takes as long as reading 100,000 rows, so more than one task a core is used only above these rows.
_ROWS_A_TASK: Final = 1_000_000
# The same for rows that the driver hands over.
_HANDED_ROWS_A_TASK: Final = 20_000
# Spark warns of tasks above 1,000 KiB.
_BYTES_A_TASK: Final = 800 << 10
# Types whose name in a schema's JSON differs from their SQL name.
_IN_JSON: Final = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}


def read_to_dataframe(spark: SparkSession, read: TableRead) -> DataFrame:
    """Return the rows of a read's blocks, with all columns of the table's schema.

    Using a column that was not read fails, unless Spark's own reader has it anyway.
    """
    if not read.columns:
        return _with_all_columns(spark, read, spark.range(read.rows))
    if not read.rows:
        return spark.createDataFrame([], schema_ddl(read.table.schema.columns))
    if not read.table.catalog.data.is_plain or read.is_joined:
        return _with_all_columns(spark, read, read_by_tasks(spark, read, read.segments))
    clean, rest = split_blocks(read, read.with_deletes)
    if rest is None:
        return _read_natively(spark, read)
    rows = _with_all_columns(spark, rest, read_by_tasks(spark, rest, rest.segments))
    return rows.unionAll(_read_natively(spark, clean)) if clean.rows else rows


def _with_all_columns(spark: SparkSession, read: TableRead, rows: DataFrame) -> DataFrame:
    present = {column.name for column in read.columns}
    return _project(spark, rows, [_select_column(column, present) for column in read.table.schema.columns])


def _select_column(column: Column, present: Collection[str]) -> str:
    """Return the SQL of a column, or of an expression that fails in every row if it was not read."""
    if column.name in present:
        return quote_name(column.name)
    message = text_sql(f"layoutopt has not read the column {column.name!r}; name it in the query")
    return f"CAST(raise_error({message}) AS {type_sql(column.type)}) AS {quote_name(column.name)}"


def _project(spark: SparkSession, rows: DataFrame, texts: Sequence[str], where: str = "") -> DataFrame:
    """Return expressions over rows by one SQL text, which is 0.1 s faster than building many columns one by one."""
    view = f"_layoutopt_{uuid.uuid4().hex}"
    rows.createTempView(view)
    try:
        condition = f" WHERE {where}" if where else ""
        return spark.sql(f"SELECT {', '.join(texts)} FROM {view}{condition}")
    finally:
        spark.catalog.dropTempView(view)


def _read_natively(spark: SparkSession, read: TableRead) -> DataFrame:
    """Read the files of the needed blocks by Spark's own reader, and filter their rows by block."""
    plan_files, ids = needed_blocks(read)
    paths = [
        read.table.catalog.data.full_path(plan.source.blocks.files[file])
        for plan, files in zip(read.pruned, plan_files, strict=True)
        for file in files
    ]
    schema = schema_ddl((*read.columns, Column(BLOCK, "bigint")))
    with use_v1_parquet_reader(spark):
        reader = spark.read.schema(schema).options(**parquet_options(read.columns))
        rows = reader.parquet(*map(escape_pattern, paths))
    present = {column.name for column in read.columns}
    texts = [
        _hide_from_pushdown(column)
        if column.name in present and not is_pushable(read, column)
        else _select_column(column, present)
        for column in read.table.schema.columns
    ]
    where = "" if ids is None else f"{BLOCK} IN ({', '.join(map(str, ids.tolist()))})"
    return _project(spark, rows, texts, where)


def needed_blocks(read: TableRead) -> tuple[list[Ints], Ints | None]:
    """Return the files of each plan with a needed block, and the ids of these blocks, ascending.

    The ids are None if the files have no other blocks.
    """
    plan_files, ids, whole = [], [np.zeros(0, dtype=np.int64)], True
    for plan in read.pruned:
        blocks, needed = plan.source.blocks, plan.read
        files = np.unique(blocks.file[needed])
        plan_files.append(files)
        ids.append(blocks.block_id[needed])
        whole &= bool(needed[np.isin(blocks.file, files)].all())
    return plan_files, None if whole else np.sort(np.concatenate(ids))


def is_pushable(read: TableRead, column: Column) -> bool:
    """Return whether Spark may push a filter on a column to Parquet without losing rows.

    Parquet's minima and maxima ignore NaN, which Spark orders last.
    """
    if column.type in FLOATS:
        return not any(read.table.may_hold_nans(column, layout) for layout in read.layouts)
    return not ("struct<" in column.type and any(type in column.type for type in FLOATS))


def _hide_from_pushdown(column: Column) -> str:
    """Return the SQL of a column's value in a form that Spark does not push to Parquet."""
    name = quote_name(column.name)
    if column.type in FLOATS:
        return f"nanvl({name}, {name}) AS {name}"
    return f"CASE WHEN {name} IS NOT NULL THEN {name} END AS {name}"


def read_by_tasks(spark: SparkSession, read: TableRead, segments: Sequence[SegmentRead], label: str = "") -> DataFrame:
    """Return some segments as tasks read them by Arrow, with the columns and the filter of a read.

    Args:
        read: gives the columns and the filter.
        label: the name of the scan in the plan.
    """
    data = read.table.catalog.data
    return read_in_workers(spark, data, split_by_file(segments), read.columns, read.scan.filter.root, label)


def read_in_workers(
    spark: SparkSession,
    files: TableFiles,
    segments: Sequence[SegmentRead],
    columns: Sequence[Column],
    condition: Node = TRUE,
    label: str = "",
) -> DataFrame:
    """Return some columns of segments, which tasks read; a task gets only the paths and row groups that it reads."""
    items = []
    for _, group in group_segments(spark, segments):
        paths = (file.path for segment in group for layout in segment.layouts for file in layout.files)
        items.append((files.for_tasks(paths), group))
    # executors have an environment of their own
    task = partial(_read_segments, list(columns), condition, switch.is_on())
    return map_items(spark, items, task, schema_ddl(columns), label)


def group_segments(spark: SparkSession, segments: Sequence[SegmentRead]) -> Iterator[tuple[int, Sequence[SegmentRead]]]:
    """Yield the segments that each task reads, one to four tasks a core, and the index of the first of them."""
    rows = sum(sum(file.rows) for segment in segments for layout in segment.layouts for file in layout.files)
    cores = spark.sparkContext.defaultParallelism
    tasks = min(len(segments), max(cores, min(4 * cores, rows // _ROWS_A_TASK)))
    for first, stop in pairwise(number * len(segments) // max(1, tasks) for number in range(tasks + 1)):
        yield first, segments[first:stop]


def _read_segments(
    columns: Sequence[Column], condition: Node, checked: bool, item: tuple[TableFiles, Sequence[SegmentRead]]
) -> Iterator[pa.RecordBatch]:
    files, segments = item
    # External files may be rewritten under their names, so their footers are decoded by each task.
    cached = files if files.is_external else _cache_files(files)
    yield from read_segments(cached, segments, columns, condition=condition, checked=checked)


@lru_cache(maxsize=1)
def _cache_files(files: TableFiles) -> TableFiles:
    """Return an equal object from an earlier task of the worker, which has decoded the footers: they take long."""
    return files


def rows_to_dataframe(spark: SparkSession, rows: pa.Table, columns: Sequence[Column]) -> DataFrame:
    """Return rows that the driver has read as a DataFrame."""
    rows = rows.combine_chunks()
    cores = spark.sparkContext.defaultParallelism
    return to_arrow_rdd(spark, rows, _choose_batch_rows(rows, cores), _to_struct_type(columns))


def _to_struct_type(columns: Sequence[Column]) -> StructType:
    """Return the columns as Spark's schema, without Java, which would take a millisecond to parse their DDL."""
    fields = [
        {"name": column.name, "type": _IN_JSON.get(column.type, column.type), "nullable": True, "metadata": {}}
        for column in columns
    ]
    return StructType.fromJson({"type": "struct", "fields": fields})


def _choose_batch_rows(rows: pa.Table, cores: int) -> int:
    """Return the rows of a batch, one for each task: all cores are used if it pays, and no task has too many bytes."""
    n, size = int(rows.num_rows), int(rows.nbytes)
    tasks = max(1, min(cores, n // _HANDED_ROWS_A_TASK), -(-size // _BYTES_A_TASK))
    return max(1, -(-n // tasks))


# The values that the driver decodes in the time that tasks take to start and return them.
_MOST_VALUES: Final = 4_000_000
# The most bytes of compressed column chunks that the driver reads.
_MOST_BYTES: Final = 16 << 20
# The most bytes of rows that the driver holds; texts may be much larger than their chunks.
_MOST_HELD: Final = 64 << 20
# The most bytes of rows that become a part of the plan; for more, tasks with Arrow batches are faster.
_MOST_LOCAL: Final = 512 << 10
# Seconds for Spark to decode a footer, per column chunk.
_FOOTER_CHUNK: Final = 2.7e-6
# Seconds for tasks to start and end.
_TASKS: Final = 0.06
# Seconds for a task to open a file.
_FILE: Final = 1e-3
# Additional seconds per value that a task reads.
_VALUE: Final = 20e-9
# If fewer files have their chunks in the catalog, tasks decode footers too. Files of older tables have none.
_KNOWN_SHARE: Final = 0.75


class Reader(Enum):
    """Spark's way to read the blocks of a scan."""

    NATIVE = "native"
    TASKS = "tasks"


def choose_reader(read: TableRead) -> tuple[Reader, bool]:
    """Return Spark's fastest reader for a read with columns, and whether the driver would be faster.

    The driver takes only what tasks would read, and is limited to few values and bytes.
    """
    data = read.table.catalog.data
    if data.is_external:
        return Reader.NATIVE if data.has_native_files else Reader.TASKS, False
    work = count_work(read.pruned)
    by_tasks = read.is_joined or not data.is_plain or are_tasks_sooner(read, work)
    few = work.bytes <= _MOST_BYTES and work.values <= _MOST_VALUES
    by_driver = few and data.is_plain and (by_tasks or any(mask.any() for mask in read.with_deletes))
    reader = Reader.TASKS if by_tasks else Reader.NATIVE
    return reader, by_driver and all(_is_same_to_both(column.type) for column in read.columns)


def are_tasks_sooner(read: TableRead, work: QueryWork) -> bool:
    """Return whether tasks are faster than Spark's reader, which must decode the footers of many small row groups."""
    if read.table.catalog.data.local_root is None:  # in object stores, tasks decode footers too
        return False
    if work.footer_chunks * _FOOTER_CHUNK < _TASKS + work.files * _FILE + work.values * _VALUE:
        return False
    known = [
        file.chunks is not None for segment in read.segments for layout in segment.layouts for file in layout.files
    ]
    return sum(known) > _KNOWN_SHARE * len(known)


def _is_same_to_both(type: str) -> bool:
    """Return whether values of a Spark type are unchanged by Arrow; nested and padded ones may not be."""
    return arrow_type(type) is not None and type != "void" and "char(" not in type


def plan_read(
    spark: SparkSession,
    read: TableRead,
    scan: Any,
    files: SnapshotFiles | None,
    label: str,
    by_driver: bool,
    add_part: Callable[[TableRead], int],
) -> Any:
    """Return the plan that replaces a scan.

    Args:
        files: the snapshot's files; None if Spark's own reader can't read them.
        label: the name of the scan in Spark's UI.
        by_driver: whether the driver may read.
        add_part: keeps a part of the read that one place of the plan reads, and returns its number.

    Raises:
        DataFileError: the driver reads, and a data file is missing or damaged.
    """
    if not read.columns:
        return scan.count(read.rows)
    reader, is_driver_faster = choose_reader(read)
    if by_driver and is_driver_faster:
        rows = read_rows(read, _MOST_HELD)
        rows = None if rows is None else rows.select(list(read.scan.columns))
        # Spark 3.5 reads only the first batch of a stream.
        if rows is not None and rows.nbytes <= _MOST_LOCAL and not is_spark_3():
            return scan.local(to_arrow_stream(rows), label)
        if rows is not None:
            return scan.held(get_analyzed_plan(rows_to_dataframe(spark, rows, read.columns)), int(rows.nbytes), label)
    if reader is Reader.TASKS or files is None:
        return scan.overTasks(_plan_tasks(spark, read, label), measure_read(read), add_part(read))
    native, rest = _split_by_reader(read, files)
    if rest is not None and not native.rows:
        return scan.overTasks(_plan_tasks(spark, rest, label), measure_read(rest), add_part(rest))
    opaque = "\n".join(column.name for column in native.columns if not is_pushable(native, column))
    located = (*_locate_blocks(native, files), add_part(native))
    return scan.read(files.java, *located, opaque, label, *_plan_rest(spark, rest, label, add_part))


def _plan_tasks(spark: SparkSession, read: TableRead, label: str) -> Any:
    return get_analyzed_plan(read_by_tasks(spark, read, read.segments, label))


def _plan_rest(
    spark: SparkSession, rest: TableRead | None, label: str, add_part: Callable[[TableRead], int]
) -> tuple[Any, int, int]:
    """Return the plan, the bytes and the number of a part that tasks read."""
    return (None, 0, 0) if rest is None else (_plan_tasks(spark, rest, label), measure_read(rest), add_part(rest))


# Spark's reader reads external files whole if at least this share of their bytes is needed: it takes half the time of
# tasks for each byte, and skips row groups by the footers' minima and maxima itself.
_WHOLE_SHARE: Final = 0.5


def _split_by_reader(read: TableRead, files: SnapshotFiles) -> tuple[TableRead, TableRead | None]:
    """Split a read of one layout into the blocks for Spark's own reader and those for tasks (None for none)."""
    if not read.table.catalog.data.is_external:
        return split_blocks(read, read.with_deletes)
    masks = []
    for plan, native in zip(read.pruned, files.native, strict=True):
        blocks, n = plan.source.blocks, len(plan.source.blocks.files)
        total, needed = (np.bincount(blocks.file, weights, n) for weights in (blocks.bytes, blocks.bytes * plan.read))
        masks.append(plan.read & ~(native & (needed >= _WHOLE_SHARE * total))[blocks.file])
    return split_blocks(read, masks)


def _locate_blocks(read: TableRead, files: SnapshotFiles) -> tuple[str, str | None, int]:
    """Return the numbers of a read's files, the ids of its blocks (None for all of these files), and its bytes."""
    plan_files, ids = needed_blocks(read)
    if read.table.catalog.data.is_external:  # the rows of external files have no block id
        ids = None
    # The numbers ascend, since plans are numbered one after the other.
    pairs = zip(files.numbers, plan_files, strict=True)
    numbers = [number for plan_numbers, needed in pairs for number in plan_numbers[needed].tolist()]
    return ",".join(map(str, numbers)), None if ids is None else ",".join(map(str, ids.tolist())), measure_read(read)


def plan_narrower_part(
    spark: SparkSession,
    part: TableRead,
    leaf: Any,
    files: SnapshotFiles | None,
    label: str,
    add_part: Callable[[TableRead], int],
) -> Any:
    """Return the plan that replaces a part of a read which is about to run, for fewer of its blocks.

    Args:
        part: the part with fewer blocks.
        leaf: the optimiser rule's object for its place in the plan.
        files, label, add_part: as for :func:`plan_read`.
    """
    if not part.rows:
        return leaf.nothing()
    native, rest = (None, part) if files is None or not leaf.isNative() else _split_by_reader(part, files)
    if native is None or not native.rows:
        return leaf.over(*_plan_rest(spark, rest, label, add_part))
    assert files is not None, "Spark's own reader knows its files"
    located = (*_locate_blocks(native, files), add_part(native))
    return leaf.read(*located, label, *_plan_rest(spark, rest, label, add_part))


def measure_read(read: TableRead) -> int:
    """Return the compressed bytes that a read needs, by which Spark decides on a broadcast."""
    return sum_read(read.pruned).bytes
