"""What a change concerns: its rows by a user's texts, each misunderstanding in a sentence, and what the rows hold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from layoutopt.catalog.checks import Content
from layoutopt.catalog.deletion_vectors import packed, united
from layoutopt.catalog.partition_names import PartitionNames, PlainValue
from layoutopt.catalog.publications import publications
from layoutopt.catalog.snapshot import PartitionEntry
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.config.settings import DeleteSettings, MergeSettings, UpdateSettings
from layoutopt.errors import NotATableError, SettingError
from layoutopt.inspect.status import current_plan
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import FALSE, Filter, Node
from layoutopt.model.schema import PLACE, TID, Column, schema_ddl
from layoutopt.model.types import quoted
from layoutopt.scan import check_switch as switch
from layoutopt.scan.prune import PlanBlocks, PrunedPlan
from layoutopt.scan.read import read_segments
from layoutopt.scan.segments import SegmentRead, segments_to_read
from layoutopt.scan.table import Table, open_own_table, table_read
from layoutopt.scan.table_read import TableRead
from layoutopt.spark.catalyst.rule import analyzed
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.functions import check_plan, declared
from layoutopt.spark.core.partition_values import partition_column
from layoutopt.spark.core.source import hash_column, measure_content
from layoutopt.spark.core.workers import Batches, Task, map_in_workers
from layoutopt.spark.loading.verify import rows_of_entries
from layoutopt.spark.session.enabling import marked_rows, planned_reads, with_functions
from layoutopt.spark.session.readers import segment_numbers
from layoutopt.sql.scans import TableScan

# ----------------------------------------------------------------------------------------------------
# The rows that a change concerns, by their places in the segments of a table, and what they hold: in one pass.
#
# Spark chooses them of what skipping leaves, as in any query. A row's place is its tid where the plan has
# several layouts, else its place among the rows of the segment's row groups that are read.

SEGMENT_NUMBER: Final = "_w_segment"
"""Of a row with its place: the number of its segment among those that are read."""
_FOUND: Final = "segment int, rows bigint, places binary, sums array<bigint>"


@dataclass(frozen=True, eq=False)
class FoundIn:
    """The rows found in one segment.

    Attributes:
        source: the blocks of its plan.
        entry: what the snapshot has of its partition.
        read: what was read of it.
        rows: how many were found.
        places: where, a bitmap.
        sums: the checksums of their columns.
    """

    source: PlanBlocks
    entry: PartitionEntry
    read: SegmentRead
    rows: int
    places: bytes
    sums: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class _Place:
    """A segment to look through, and where it is from."""

    source: PlanBlocks
    entry: PartitionEntry
    read: SegmentRead


@dataclass(frozen=True, eq=False)
class Placed:
    """Rows of a table with their places.

    Attributes:
        read: what was read of the table.
        places: the segments that were.
        numbered: the rows' columns, the number of each row's segment and its place there.
    """

    read: TableRead
    places: Sequence[_Place]
    numbered: DataFrame

    @property
    def rows(self) -> DataFrame:
        """The rows without their places."""
        return self.numbered.select(*map(quoted, self.read.table.schema.names))

    def narrowed(self, by: Callable[[DataFrame], DataFrame]) -> Placed:
        """Some of the rows: what a function leaves of them, their places among the columns."""
        return replace(self, numbered=by(self.numbered).select(*map(quoted, self.numbered.columns)))

    def kept(self) -> Placed:
        """The same rows, computed now, and the same ones however often they are read.

        Raises:
            DataFileError: a data file is missing or damaged.
        """
        with translate_spark_errors(repr(self.read.table.catalog.files.root)):
            return replace(self, numbered=self.numbered.localCheckpoint())

    def found(self) -> list[FoundIn]:
        """Where the rows are, one item for each segment that has any.

        Raises:
            DataFileError: a data file is missing or damaged.
        """
        names = self.read.table.schema.names
        fields = [of for of in self.numbered.schema.fields if of.name in names]
        hashes = [hash_column(of.name, of.dataType).alias(f"_w_hash_{n}") for n, of in enumerate(fields)]
        collected = map_in_workers(self.numbered.select(SEGMENT_NUMBER, PLACE, *hashes), _collect, _FOUND)
        with translate_spark_errors(repr(self.read.table.catalog.files.root)):
            found = collected.toArrow()
        numbers = sorted(set(found["segment"].to_pylist()))
        return [_found_in(self.places[number], found, number, names) for number in numbers]


def rows_with_places(spark: SparkSession, read: TableRead) -> Placed:
    """The rows of a read of all columns, and others that share their blocks, each with its place."""
    places = [place for pruned in read.pruned for place in _places(pruned)]
    return Placed(read, places, _numbered(spark, read, places))


def _places(pruned: PrunedPlan) -> Iterator[_Place]:
    blocks, source = pruned.source.blocks, pruned.source
    entry_of = dict(zip(blocks.file.tolist(), source.entry_of.tolist(), strict=True))
    number = {path: i for i, path in enumerate(blocks.files)}
    for read in segments_to_read(pruned):
        path = read.layouts[0].files[0].path
        yield _Place(source, source.entries[entry_of[number[path]]], read)


def _found_in(place: _Place, found: pa.Table, number: int, names: Sequence[str]) -> FoundIn:
    """What all tasks found in a segment."""
    mine = found.filter(pa.compute.equal(found["segment"], number))
    sums = np.array(mine["sums"].to_pylist(), dtype=np.int64).reshape(mine.num_rows, -1).sum(axis=0)
    return FoundIn(
        place.source,
        place.entry,
        place.read,
        int(pa.compute.sum(mine["rows"]).as_py()),
        united(mine["places"].to_pylist()),
        dict(zip(names, sums.tolist(), strict=True)),
    )


def _numbered(spark: SparkSession, read: TableRead, places: Sequence[_Place]) -> DataFrame:
    """The rows of some segments, each with the number of its segment and its place there."""
    segments = [place.read for place in places]
    of_tids = [place.source.plan.scheme.has_tids for place in places]
    columns = list(read.columns)
    files = read.table.catalog.files.for_tasks()
    schema = schema_ddl([*columns, Column(PLACE, "bigint"), Column(SEGMENT_NUMBER, "int")])
    if not places:
        return spark.createDataFrame([], schema)
    reader = _reader(files, segments, of_tids, columns, read.scan.filter.root)
    return map_in_workers(segment_numbers(spark, segments), reader, schema)


def _reader(
    files: TableFiles, segments: list[SegmentRead], of_tids: list[bool], columns: list[Column], condition: Node
) -> Task:
    checked = switch.is_on()  # executors have an environment of their own

    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        names = [*(column.name for column in columns), PLACE, SEGMENT_NUMBER]
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            wanted = [*columns, Column(TID if of_tids[number] else PLACE, "bigint")]
            for rows in read_segments(files, [segments[number]], wanted, condition=condition, checked=checked):
                of_segment = pa.array(np.full(rows.num_rows, number, dtype=np.int32))
                yield pa.RecordBatch.from_arrays([*rows.columns, of_segment], names=names)

    return read


def _collect(batches: Batches) -> Iterator[pa.RecordBatch]:
    """The task: of each segment how many rows came, their places, and the sums of their hashes."""
    rows: dict[int, int] = {}
    places: dict[int, bytes] = {}
    sums: dict[int, np.ndarray] = {}
    for batch in batches:
        segments = batch.column(0).to_numpy()
        hashes = np.array([column.to_numpy() for column in batch.columns[2:]], dtype=np.int64)
        for number in np.unique(segments).tolist():
            here = segments == number
            rows[number] = rows.get(number, 0) + int(here.sum())
            new = packed(batch.column(1).to_numpy()[here])
            places[number] = united([places[number], new]) if number in places else new
            sums[number] = sums.get(number, 0) + hashes[:, here].sum(axis=1)
    if rows:
        yield pa.RecordBatch.from_pydict(
            {
                "segment": pa.array(list(rows), pa.int32()),
                "rows": pa.array(list(rows.values()), pa.int64()),
                "places": pa.array([places[number] for number in rows], pa.binary()),
                "sums": pa.array([sums[number].tolist() for number in rows], pa.list_(pa.int64())),
            }
        )


# ----------------------------------------------------------------------------------------------------
# A table that is to be changed, and the plan by which it goes on.

_VALUE = "_w_value"


@dataclass(frozen=True)
class Place:
    """A table that is being changed, at one snapshot."""

    spark: SparkSession
    path: str
    table: Table
    plan: Plan

    @property
    def names(self) -> PartitionNames:
        """Of the table's partitions."""
        return PartitionNames.of(self.plan.schema, self.plan.partition_by, self.table.catalog.snapshot)

    def known_values(self, entries: Sequence[PartitionEntry]) -> tuple[PlainValue, ...] | None:
        """The values of some partitions by what the catalog knows of their rows; None where it doesn't tell one."""
        names = self.names
        by_key: dict[str, PlainValue] = {}
        for entry in entries:
            for value in names.value_of(entry):
                by_key[entry.key] = value
        return tuple(by_key.values()) if len(by_key) == len({entry.key for entry in entries}) else None

    def values_in(self, rows: DataFrame) -> tuple[PlainValue, ...]:
        """The values of the partition column that some rows have; one None where there are no partitions."""
        if self.plan.partition_by is None:
            return (None,)
        column = partition_column(rows, self.plan.partition_by).alias(_VALUE)
        return tuple(row[_VALUE] for row in rows.select(column).distinct().collect())

    def values_of(self, keys: Collection[str]) -> tuple[PlainValue, ...]:
        """The values of some partitions, by what their files hold: deleted rows tell it where no other is left."""
        catalog = self.table.catalog
        stored = tuple(replace(entry, deletes=None) for entry in catalog.partitions)
        whole = replace(self.table, catalog=replace(catalog, snapshot=replace(catalog.snapshot, partitions=stored)))
        chosen = [entry for entry in stored if entry.key in keys]
        return self.values_in(rows_of_entries(self.spark, whole, chosen)) if chosen else ()

    def entries(self, values: Sequence[PlainValue]) -> tuple[PartitionEntry, ...]:
        """What the table has of some partitions."""
        names = self.names
        by_key = self.table.catalog.snapshot.by_key
        return tuple(entry for value in values for entry in by_key.get(names.key(value), ()))


def open_to_change(spark: SparkSession, path: str) -> tuple[Table, Plan]:
    """A table at its newest snapshot, and its newest plan.

    Raises:
        NotATableError: there is no table, or none that names a plan.
        SettingError: the session's settings or functions are not those of the table's plans.
    """
    table = open_own_table(path, udfs=tuple(declared(spark).values()))
    if not table.catalog.plans:
        raise NotATableError(f"the table at {path!r} names no plan yet; run `layoutopt load` first")
    for plan in table.catalog.plans.values():
        check_plan(spark, plan, "the table")
    return table, current_plan(table.catalog)


_OF_VALUES: Final = "22"  # the class of SQL's states


def matching_rows(place: Place, where: str) -> DataFrame:
    """Return the table's rows that meet a condition, read as a query reads them.

    Raises:
        SettingError: Spark can't understand it, or it is not the same each time it is asked of a row.
    """
    with understood("--where", where):
        kept = marked_rows(place.spark, with_functions(place.spark, place.table)).where(F.expr(f"({where})"))
        plan = analyzed(kept)
    if not plan.deterministic():
        raise SettingError(
            f"--where {where!r} is not the same each time it is asked of a row; name the rows by what they hold"
        )
    return kept


@contextmanager
def understood(flag: str, text: str) -> Iterator[None]:
    """Turn what Spark says of a text that it can't read, or can't compute for a row, into a sentence.

    Raises:
        SettingError: it can't.
    """
    try:
        yield
    except PySparkException as error:
        said = str(error).strip().splitlines()[0]
        raise SettingError(f"{flag} {text!r} is of no use here: {said}") from error


@contextmanager
def computed(flag: str, text: str) -> Iterator[None]:
    """Turn Spark's errors about values, as it computes a text for each row, into a sentence; others pass.

    Raises:
        SettingError: a value has no result: a text that is no number, a division by zero.
    """
    try:
        yield
    except PySparkException as error:
        if (error.getSqlState() or "").startswith(_OF_VALUES):
            said = str(error).strip().splitlines()[0]
            raise SettingError(f"{flag} {text!r} fails on a row: {said}") from error
        raise


def holds(condition: str) -> SparkColumn:
    """Whether a condition is TRUE; never NULL."""
    return F.coalesce(F.expr(f"({condition})"), F.lit(False))


def measured(rows: DataFrame, named: str) -> Content:
    """What some rows hold, counted now."""
    return measure_content(rows, repr(named))


def nothing(like: Content) -> Content:
    """What no row holds, of the same columns."""
    return Content(0, dict.fromkeys(like.sums, 0))


def may_mark(place: Place, settings: DeleteSettings | UpdateSettings | MergeSettings) -> bool:
    """Whether rows may be only marked: not where all is to be written anew, nor where others read the table."""
    return bool(settings.rewrite_share) and not settings.publish and not publications(place.table.catalog.files)


def placed_rows(place: Place, where: str) -> Placed | None:
    """The rows that meet a condition, with their places; None where these can't be told by one scan of the table."""
    read = read_of(place, matching_rows(place, where))
    if read is None:
        return None
    return rows_with_places(place.spark, read).narrowed(lambda rows: rows.where(holds(where)))


def read_of(place: Place, rows: DataFrame) -> TableRead | None:
    """Return what some rows of the table need of its blocks; None where that is not one scan of all columns."""
    reads = planned_reads(rows)
    table, names = place.table, place.table.schema.names
    if not reads:  # no row can match
        scan = TableScan(table.name, table.name, names, Filter.of(FALSE))
        return table_read(table, scan, table.settings)
    return reads[0] if len(reads) == 1 and reads[0].scan.columns == names else None
