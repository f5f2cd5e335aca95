"""The rows that a change affects, their positions in their segments, and their content.

A row's position is its tid if the plan has several layouts, otherwise its index among the rows of the segment's row
groups that are read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from layoutopt.catalog.load_check import Content
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.partition_names import PartitionNames, PlainValue
from layoutopt.catalog.publications import publications
from layoutopt.errors import SourceError
from layoutopt.model.layout import Plan
from layoutopt.model.requests import DeleteRequest, MergeRequest, UpdateRequest
from layoutopt.model.schema import PLACE, TID, Column
from layoutopt.scan.prune import PlanBlocks
from layoutopt.scan.segments import SegmentRead, segments_to_read
from layoutopt.scan.table import Table
from layoutopt.scan.table_read import TableRead
from layoutopt.sources.executor import Executor
from layoutopt.sources.source import Source

# The rows of one engine: a DataFrame, or a table of Arrow.
Rows = TypeVar("Rows")


@dataclass(frozen=True, eq=False)
class SegmentRows:
    """A segment that was read, and its affected rows once these are found.

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

    @property
    def position(self) -> Column:
        """Return the column with the rows' positions, as readers of segments know it."""
        return Column(TID if self.source.plan.scheme.has_tids else PLACE, "bigint")


def list_segments(read: TableRead) -> list[SegmentRows]:
    """Return the segments of a read, in its order."""
    return [
        segment for pruned in read.pruned for segment in _list_plan_segments(pruned.source, segments_to_read(pruned))
    ]


def _list_plan_segments(source: PlanBlocks, reads: Sequence[SegmentRead]) -> Iterator[SegmentRows]:
    entry_of = dict(zip(source.blocks.file.tolist(), source.entry_of.tolist(), strict=True))
    for read in reads:
        path = read.layouts[0].files[0].path
        yield SegmentRows(source, source.entries[entry_of[source.file_numbers[path]]], read)


@dataclass(frozen=True, eq=False)
class AffectedRows(Generic[Rows]):
    """Rows of a table that a change affects.

    Attributes:
        rows: the rows.
        content: their number and checksums.
        segments: their positions, by segment; None if they are not known, or the partitions are to be rewritten.
    """

    rows: Rows
    content: Content
    segments: Sequence[SegmentRows] | None = None


@dataclass(frozen=True, eq=False)
class TableChange(ABC, Generic[Rows]):
    """A table that is being changed, at one snapshot, the plan for new rows, and the engine that computes rows.

    Methods raise NeedsSparkError where only Spark surely knows the rows.
    """

    path: str
    table: Table
    plan: Plan

    @property
    def names(self) -> PartitionNames:
        """Return the names of the table's partitions."""
        return PartitionNames.of(self.plan.schema, self.plan.partition_by, self.table.catalog.snapshot)

    def read_stored_values(self, keys: Collection[str]) -> tuple[PlainValue, ...]:
        """Return the values of some partitions, read from their files, deleted rows included."""
        catalog = self.table.catalog
        stored = tuple(replace(entry, deletes=None) for entry in catalog.partitions)
        whole = replace(self.table, catalog=replace(catalog, snapshot=replace(catalog.snapshot, partitions=stored)))
        chosen = [entry for entry in stored if entry.key in keys]
        return self.list_values(replace(self, table=whole).read(chosen)) if chosen else ()

    def entries(self, values: Sequence[PlainValue]) -> tuple[PartitionEntry, ...]:
        """Return the table's entries of some partitions."""
        names = self.names
        by_key = self.table.catalog.snapshot.by_key
        return tuple(entry for value in values for entry in by_key.get(names.key(value), ()))

    @property
    @abstractmethod
    def executor(self) -> Executor:
        """Return the executor of tasks over the table's files."""

    @abstractmethod
    def read(self, entries: Sequence[PartitionEntry]) -> Rows:
        """Return the live rows of some entries."""

    @abstractmethod
    def list_values(self, rows: Rows) -> tuple[PlainValue, ...]:
        """Return the distinct values of the partition column in some rows; (None,) without partitions."""

    @abstractmethod
    def measure(self, rows: Rows, name: str) -> Content:
        """Return the content of rows, which ``name`` names in messages."""

    @abstractmethod
    def compute(self, rows: Rows) -> Rows:
        """Return the rows computed once, so that each read returns the same."""

    @abstractmethod
    def find(self, where: str, *, locate: bool) -> AffectedRows[Rows]:
        """Return the rows for which a condition is TRUE, with their positions if ``locate`` and the engine finds them.

        Raises:
            SettingError: the condition can't be parsed or computed, or is not deterministic.
        """

    @abstractmethod
    def exclude(self, rows: Rows, where: str) -> Rows:
        """Return the rows for which a condition is not TRUE."""

    @abstractmethod
    def parse_assignments(self, assignments: Mapping[str, str]) -> Callable[[Rows, str | None], Rows]:
        """Return a function of rows and a condition, which assigns new values where it is TRUE; None is everywhere.

        Args:
            assignments: expressions by column; their values are cast to the column's type.

        Raises:
            SettingError: an expression is invalid.
        """

    @abstractmethod
    def read_source(self, request: MergeRequest) -> tuple[Rows, Rows]:
        """Return the rows of a merge's source, and those of them that the table is to have afterwards."""

    @abstractmethod
    def find_repeated_key(self, rows: Rows, keys: Sequence[str], source: str) -> tuple[object, ...] | None:
        """Return a key that several rows of a source have, followed by their number; None if there is none.

        Raises:
            SourceError: a row has a NULL in its key.
        """

    @abstractmethod
    def find_keys(self, source: Rows, keys: Sequence[str]) -> AffectedRows[Rows]:
        """Return the table's rows with a key of a source, and their positions."""

    @abstractmethod
    def select_keys(self, rows: Rows, others: Rows, keys: Sequence[str], *, present: bool) -> Rows:
        """Return the rows with a key that other rows have, or (not ``present``) that these lack."""

    @abstractmethod
    def unite(self, rows: Rows, others: Rows) -> Rows:
        """Return the rows of both."""

    @abstractmethod
    def open_rows(self, rows: Rows, name: str) -> Source:
        """Open rows, which ``name`` names in messages, for a load by the plan."""

    @abstractmethod
    def translate_errors(self, assignments: Sequence[str]) -> AbstractContextManager[object]:
        """Return a context in which the engine's errors about assignments are raised as SettingError."""


def null_key_error(source: str, keys: Sequence[str]) -> SourceError:
    """Return the error for a merge's source that has a NULL in a key column."""
    return SourceError(f"{source!r} has rows with a NULL in {', '.join(keys)}, which match nothing; remove these rows")


def mark_limit(table: Table, request: DeleteRequest | UpdateRequest | MergeRequest) -> float:
    """Return the largest share of deleted rows, afterwards, of the affected partitions with which rows are marked.

    It is 0 if the request forbids vectors or the table is published, since readers of other formats don't know them.
    """
    return 0.0 if request.publish or publications(table.catalog.files) else request.rewrite_share


def choose_marks(table: Table, affected: AffectedRows[Rows], limit: float) -> AffectedRows[Rows]:
    """Return rows to remove, with their positions only if they are to be marked; see :func:`mark_limit`."""
    if affected.segments is None:
        return affected
    keys = {segment.entry.key for segment in affected.segments}
    entries = [entry for entry in table.catalog.partitions if entry.key in keys]
    deleted = affected.content.rows + sum(entry.rows - entry.live_rows for entry in entries)
    is_marked = limit > 0 and deleted / max(1, sum(entry.rows for entry in entries)) <= limit
    return affected if is_marked else replace(affected, segments=None)


def unite_content(segments: Sequence[SegmentRows], names: Sequence[str]) -> Content:
    """Return the content of the affected rows of segments, in some columns."""
    sums = {name: sum(segment.sums[name] for segment in segments) for name in names}
    return Content(sum(segment.rows for segment in segments), sums)
