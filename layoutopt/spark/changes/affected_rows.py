"""Find the rows that a change affects, their positions in their segments, and their content.

Spark selects the rows from what skipping leaves, as in any query. A row's position is its tid if the plan has several
layouts, otherwise its index among the rows of the segment's row groups that are read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from layoutopt.catalog.deletion_vectors import pack_positions, unite_vectors
from layoutopt.catalog.load_check import Content
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.partition_names import PartitionNames, PlainValue
from layoutopt.catalog.publications import publications
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.errors import NotATableError, SettingError
from layoutopt.inspect.status import current_plan
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import FALSE, Filter, Node
from layoutopt.model.requests import DeleteRequest, MergeRequest, UpdateRequest
from layoutopt.model.schema import PLACE, TID, Column, schema_ddl
from layoutopt.model.types import quote_name
from layoutopt.scan import check_switch as switch
from layoutopt.scan.prune import PlanBlocks, PrunedPlan
from layoutopt.scan.read import read_segments
from layoutopt.scan.segments import SegmentRead, segments_to_read
from layoutopt.scan.table import Table, open_own_table, plan_read
from layoutopt.scan.table_read import TableRead
from layoutopt.sources.executor import Batches, Task
from layoutopt.spark.catalyst.rule import get_analyzed_plan
from layoutopt.spark.core.failures import plain_message, translate_spark_errors
from layoutopt.spark.core.functions import check_plan, find_declared_udfs
from layoutopt.spark.core.partition_values import partition_column
from layoutopt.spark.core.sessions import AnySession
from layoutopt.spark.core.source import hash_column, measure_content
from layoutopt.spark.core.versions import to_arrow
from layoutopt.spark.core.workers import map_in_workers
from layoutopt.spark.loading.verify import rows_of_entries
from layoutopt.spark.session.enabling import plan_reads, table_to_dataframe, with_functions
from layoutopt.spark.session.readers import segment_numbers
from layoutopt.sql.scans import TableScan

# The column with the index of a row's segment among those that are read.
SEGMENT_NUMBER: Final = "_w_segment"
_MATCHES: Final = "segment int, rows bigint, places binary, sums array<bigint>"
_VALUE: Final = "_w_value"
_DATA_EXCEPTION: Final = "22"  # the class of SQL states


@dataclass(frozen=True, eq=False)
class SegmentRows:
    """A segment that was read, and its affected rows once these are collected.

    Attributes:
        source: the blocks of the segment's plan.
        entry: the segment's partition entry.
        read: the part of the segment that was read.
        rows: the number of affected rows.
        places: their positions, a bitmap.
        sums: the checksums of their columns.
    """

    source: PlanBlocks
    entry: PartitionEntry
    read: SegmentRead
    rows: int = 0
    places: bytes = b""
    sums: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class LocatedRows:
    """Rows of a table with their positions.

    Attributes:
        read: the read that returned them.
        segments: the segments of the read.
        numbered: the rows' columns, the index of each row's segment, and its position there.
    """

    read: TableRead
    segments: Sequence[SegmentRows]
    numbered: DataFrame

    @property
    def rows(self) -> DataFrame:
        """Return the rows without their positions."""
        return self.numbered.select(*map(quote_name, self.read.table.schema.names))

    def transform(self, function: Callable[[DataFrame], DataFrame]) -> LocatedRows:
        """Return the rows that a function selects."""
        return replace(self, numbered=function(self.numbered).select(*map(quote_name, self.numbered.columns)))

    def checkpoint(self) -> LocatedRows:
        """Compute the rows now, so that each read returns the same ones.

        Raises:
            DataFileError: a data file is missing or damaged.
        """
        with translate_spark_errors(repr(self.read.table.catalog.files.root)):
            return replace(self, numbered=self.numbered.localCheckpoint())

    def collect(self) -> list[SegmentRows]:
        """Return the rows' positions and checksums, an item for each segment that has any.

        Raises:
            DataFileError: a data file is missing or damaged.
        """
        names = self.read.table.schema.names
        fields = [field for field in self.numbered.schema.fields if field.name in names]
        hashes = [hash_column(field.name, field.dataType).alias(f"_w_hash_{i}") for i, field in enumerate(fields)]
        results = map_in_workers(self.numbered.select(SEGMENT_NUMBER, PLACE, *hashes), _sum_by_segment, _MATCHES)
        with translate_spark_errors(repr(self.read.table.catalog.files.root)):
            parts = to_arrow(results).to_pylist()
        by_segment: dict[int, list[dict[str, Any]]] = {}
        for part in parts:
            by_segment.setdefault(part["segment"], []).append(part)
        return [
            replace(
                self.segments[number],
                rows=sum(part["rows"] for part in segment_parts),
                places=unite_vectors([part["places"] for part in segment_parts]),
                sums={name: sum(part["sums"][i] for part in segment_parts) for i, name in enumerate(names)},
            )
            for number, segment_parts in sorted(by_segment.items())
        ]


def locate_rows(spark: SparkSession, read: TableRead) -> LocatedRows:
    """Return all rows in the blocks of a read of all columns, with their positions."""
    segments = [segment for pruned in read.pruned for segment in _list_segments(pruned)]
    return LocatedRows(read, segments, _number_rows(spark, read, segments))


def _list_segments(pruned: PrunedPlan) -> Iterator[SegmentRows]:
    blocks, source = pruned.source.blocks, pruned.source
    entry_of = dict(zip(blocks.file.tolist(), source.entry_of.tolist(), strict=True))
    for read in segments_to_read(pruned):
        path = read.layouts[0].files[0].path
        yield SegmentRows(source, source.entries[entry_of[source.file_numbers[path]]], read)


def _number_rows(spark: SparkSession, read: TableRead, segments: Sequence[SegmentRows]) -> DataFrame:
    """Return the rows of some segments with the segment's index and the position."""
    columns = list(read.columns)
    schema = schema_ddl([*columns, Column(PLACE, "bigint"), Column(SEGMENT_NUMBER, "int")])
    if not segments:
        return spark.createDataFrame([], schema)
    reads = [segment.read for segment in segments]
    has_tids = [segment.source.plan.scheme.has_tids for segment in segments]
    reader = _make_reader(read.table.catalog.files.for_tasks(), reads, has_tids, columns, read.scan.filter.root)
    return map_in_workers(segment_numbers(spark, reads), reader, schema)


def _make_reader(
    files: TableFiles, segments: list[SegmentRead], has_tids: list[bool], columns: list[Column], condition: Node
) -> Task:
    checked = switch.is_on()  # executors have an environment of their own

    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        names = [*(column.name for column in columns), PLACE, SEGMENT_NUMBER]
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            located = [*columns, Column(TID if has_tids[number] else PLACE, "bigint")]
            for rows in read_segments(files, [segments[number]], located, condition=condition, checked=checked):
                numbers = pa.array(np.full(rows.num_rows, number, dtype=np.int32))
                yield pa.RecordBatch.from_arrays([*rows.columns, numbers], names=names)

    return read


def _sum_by_segment(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Count rows, collect positions and sum hashes of each segment; runs in tasks."""
    rows: dict[int, int] = {}
    places: dict[int, bytes] = {}
    sums: dict[int, np.ndarray] = {}
    for batch in batches:
        segments = batch.column(0).to_numpy()
        hashes = np.array([column.to_numpy() for column in batch.columns[2:]], dtype=np.int64)
        for number in np.unique(segments).tolist():
            mask = segments == number
            rows[number] = rows.get(number, 0) + int(mask.sum())
            positions = pack_positions(batch.column(1).to_numpy()[mask])
            places[number] = unite_vectors([places[number], positions]) if number in places else positions
            sums[number] = sums.get(number, 0) + hashes[:, mask].sum(axis=1)
    if rows:
        yield pa.RecordBatch.from_pydict(
            {
                "segment": pa.array(list(rows), pa.int32()),
                "rows": pa.array(list(rows.values()), pa.int64()),
                "places": pa.array([places[number] for number in rows], pa.binary()),
                "sums": pa.array([sums[number].tolist() for number in rows], pa.list_(pa.int64())),
            }
        )


@dataclass(frozen=True)
class TableChange:
    """A table that is being changed, at one snapshot, and the plan for new rows."""

    spark: SparkSession
    path: str
    table: Table
    plan: Plan

    @property
    def names(self) -> PartitionNames:
        """Return the names of the table's partitions."""
        return PartitionNames.of(self.plan.schema, self.plan.partition_by, self.table.catalog.snapshot)

    def get_known_values(self, entries: Sequence[PartitionEntry]) -> tuple[PlainValue, ...] | None:
        """Return the partition values that the catalog knows, or None if one is unknown."""
        names = self.names
        by_key: dict[str, PlainValue] = {}
        for entry in entries:
            for value in names.value_of(entry):
                by_key[entry.key] = value
        return tuple(by_key.values()) if len(by_key) == len({entry.key for entry in entries}) else None

    def read_values(self, rows: DataFrame) -> tuple[PlainValue, ...]:
        """Return the distinct values of the partition column in some rows; (None,) without partitions."""
        if self.plan.partition_by is None:
            return (None,)
        column = partition_column(rows, self.plan.partition_by).alias(_VALUE)
        return tuple(row[_VALUE] for row in rows.select(column).distinct().collect())

    def read_stored_values(self, keys: Collection[str]) -> tuple[PlainValue, ...]:
        """Return the values of some partitions, read from their files, deleted rows included."""
        catalog = self.table.catalog
        stored = tuple(replace(entry, deletes=None) for entry in catalog.partitions)
        whole = replace(self.table, catalog=replace(catalog, snapshot=replace(catalog.snapshot, partitions=stored)))
        chosen = [entry for entry in stored if entry.key in keys]
        return self.read_values(rows_of_entries(self.spark, whole, chosen)) if chosen else ()

    def entries(self, values: Sequence[PlainValue]) -> tuple[PartitionEntry, ...]:
        """Return the table's entries of some partitions."""
        names = self.names
        by_key = self.table.catalog.snapshot.by_key
        return tuple(entry for value in values for entry in by_key.get(names.key(value), ()))


def open_for_change(spark: AnySession, path: str, check: Callable[[Table], None] | None = None) -> TableChange:
    """Open a table at its newest snapshot, with its newest plan.

    A session that does not run yet is started once ``check`` has checked the change, which then fails in no time.

    Raises:
        NotATableError: there is no table, or it has no plan.
        SettingError: the session's settings or functions differ from those of the table's plans.
    """
    if callable(spark):
        table = open_own_table(path)
        if check is not None:
            check(table)
        spark = spark()
    table = open_own_table(path, udfs=tuple(find_declared_udfs(spark).values()))
    return TableChange(spark, path, table, newest_checked_plan(spark, table.catalog))


def newest_checked_plan(spark: SparkSession, catalog: Catalog) -> Plan:
    """Return a table's newest plan, after all of its plans were compared with the session.

    Raises:
        NotATableError, SettingError: as :func:`open_for_change`.
    """
    if not catalog.plans:
        raise NotATableError(f"the table at {catalog.files.root!r} has no plan yet; run `layoutopt load` first")
    for plan in catalog.plans.values():
        check_plan(spark, plan, "the table")
    return current_plan(catalog)


@dataclass(frozen=True, eq=False)
class RemovedRows:
    """The rows that a change removes.

    Attributes:
        rows: the rows.
        content: their number and checksums.
        segments: their positions, to mark them by deletion vectors; None to rewrite their partitions.
    """

    rows: DataFrame
    content: Content
    segments: Sequence[SegmentRows] | None = None


def find_matches(change: TableChange, where: str, limit: float) -> RemovedRows:
    """Return the rows that meet a condition, as rows to remove.

    Their positions are found only if the condition is on a single scan of the table and ``limit`` is above 0.

    Args:
        limit: see :func:`locate_removed`.

    Raises:
        SettingError: Spark can't parse or compute the condition, or it is not deterministic.
    """
    rows = matching_rows(change, where)
    with translate_expression_errors("--where", where, parsed=True):
        read = plan_table_read(change, rows) if limit else None
        if read is None:
            return RemovedRows(rows, measure_content(rows, repr(change.path)))
        located = locate_rows(change.spark, read).transform(lambda rows: rows.where(is_true(where)))
        return locate_removed(change, located, limit)


def locate_removed(change: TableChange, located: LocatedRows, limit: float) -> RemovedRows:
    """Return rows to remove, with their positions if they are to be marked.

    Args:
        limit: the largest share of deleted rows, afterwards, of the affected partitions with which rows are marked;
            0 if none may be.
    """
    segments = located.collect()
    sums = {name: sum(segment.sums[name] for segment in segments) for name in change.table.schema.names}
    content = Content(sum(segment.rows for segment in segments), sums)
    keys = {segment.entry.key for segment in segments}
    entries = [entry for entry in change.table.catalog.partitions if entry.key in keys]
    deleted = content.rows + sum(entry.rows - entry.live_rows for entry in entries)
    is_marked = limit > 0 and deleted / max(1, sum(entry.rows for entry in entries)) <= limit
    return RemovedRows(located.rows, content, segments if is_marked else None)


def mark_limit(change: TableChange, request: DeleteRequest | UpdateRequest | MergeRequest) -> float:
    """Return the limit of :func:`locate_removed`: 0 if the settings forbid vectors or the table is published."""
    return 0.0 if request.publish or publications(change.table.catalog.files) else request.rewrite_share


def matching_rows(change: TableChange, where: str) -> DataFrame:
    """Return the table's rows that meet a condition, read as by a query.

    Raises:
        SettingError: Spark can't parse the condition, or it is not deterministic.
    """
    with translate_expression_errors("--where", where):
        rows = table_to_dataframe(change.spark, with_functions(change.spark, change.table)).where(F.expr(f"({where})"))
        plan = get_analyzed_plan(rows)
    if not plan.deterministic():
        raise SettingError(f"--where {where!r} is not deterministic; use a condition on the values of the rows")
    return rows


@contextmanager
def translate_expression_errors(flag: str, text: str, *, parsed: bool = False) -> Iterator[None]:
    """Raise Spark's errors about an expression as SettingError.

    Args:
        parsed: whether Spark has parsed it, so that only data exceptions, such as a failed cast, are about it.
    """
    try:
        yield
    except PySparkException as error:
        if parsed and not (error.getSqlState() or "").startswith(_DATA_EXCEPTION):
            raise
        problem, message = "fails on a row" if parsed else "is invalid", plain_message(error)
        if ")" not in text:  # Spark parses the text within brackets
            message = message.replace("at or near ')'", "at or near its end")
        raise SettingError(f"{flag} {text!r} {problem}: {message}") from error


def is_true(condition: str) -> SparkColumn:
    """Return whether a condition is TRUE, as a column that is never NULL."""
    return F.coalesce(F.expr(f"({condition})"), F.lit(False))


def plan_table_read(change: TableChange, rows: DataFrame) -> TableRead | None:
    """Return what some rows read of the table's blocks; None if that is not a single scan of all columns."""
    reads = plan_reads(rows)
    table, names = change.table, change.table.schema.names
    if not reads:  # no row can match
        scan = TableScan(table.name, table.name, names, Filter.of(FALSE))
        return plan_read(table, scan, table.settings)
    return reads[0] if len(reads) == 1 and reads[0].scan.columns == names else None
