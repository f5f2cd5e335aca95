"""One mention of a table in a text: what is left to read of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from layoutopt.external.source_files import SourceFiles
from layoutopt.model.arrays import Bits
from layoutopt.model.feature import Settings
from layoutopt.model.predicates import TRUE, Filter, Node, conjuncts, disjunction
from layoutopt.model.schema import Column, Schema
from layoutopt.model.udf import Udf
from layoutopt.scan import check_switch as switch
from layoutopt.scan.arrow_types import CODED, arrow_type, empty_table, nested_type
from layoutopt.scan.files import BATCH_ROWS, coded_in_all, open_parquet
from layoutopt.scan.opened_table import OpenedTable
from layoutopt.scan.prune import PrunedPlan, PruneOutcome
from layoutopt.scan.read import ROWS_ONLY, check_late, read_segments
from layoutopt.scan.segments import SegmentRead, by_file, segments_to_read
from layoutopt.sql.scans import TableScan, scans_of
from layoutopt.sql.text_cache import remembered
from layoutopt.writer.evaluation import may_match

_MOST_THREADS: Final = 8
_FEW_ROWS: Final = 4_096
"""Of a batch whose bytes are not known before it is decoded."""


@dataclass(frozen=True, eq=False)
class TableRead:
    """One mention of the table in a text: its columns, its filter, and what pruning leaves of the blocks."""

    table: OpenedTable
    scan: TableScan
    pruned: tuple[PrunedPlan, ...]

    @property
    def start(self) -> int:
        """Where the text mentions the table."""
        return self.scan.span[0] if self.scan.span is not None else -1

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns read, in schema order."""
        wanted = set(self.scan.columns)
        return tuple(column for column in self.table.schema.columns if column.name in wanted)

    @property
    def layouts(self) -> tuple[int, ...]:
        """The layouts that the segments are read from, ascending."""
        return tuple(sorted({choice.layout for pruned in self.pruned for choice in pruned.choice}))

    @property
    def rows(self) -> int:
        """The rows of what is to be read of one layout, without deleted ones."""
        return sum(int(plan.source.blocks.live_rows[plan.read].sum()) for plan in self.pruned)

    @cached_property
    def segments(self) -> list[SegmentRead]:
        """What is to be read, in the table's order."""
        return [segment for pruned in self.pruned for segment in segments_to_read(pruned)]

    @property
    def coded(self) -> frozenset[str]:
        """The text columns that all files to read have as dictionaries and codes, where each segment has one layout.

        Raises:
            DataFileError: a data file is missing or damaged.
        """
        segments = self.segments
        if any(len(segment.layouts) > 1 for segment in segments):
            return frozenset()
        layouts = [segment.layouts[0] for segment in segments]
        texts = {column.name for column in self.columns if arrow_type(column.type) == pa.string()}
        texts = texts.intersection(*(layout.columns for layout in layouts))
        return coded_in_all(self.table.catalog.data, (file for layout in layouts for file in layout.files), texts)

    def batches(self, batch_rows: int = BATCH_ROWS, coded: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """The surviving rows: all that match the filter, and others of the same blocks.

        Where rows are put together from several layouts, those are left out that one layout's columns exclude.

        Args:
            batch_rows: rows of a batch, at most.
            coded: of :attr:`coded`, the columns to be given so.

        Raises:
            DataFileError: a data file is missing or damaged.
        """
        condition = self.scan.filter.root
        return read_segments(self.table.catalog.data, self.segments, self.columns, batch_rows, condition, coded=coded)

    def arrow_schema(self, coded: Collection[str] = ()) -> pa.Schema:
        """The Arrow schema of the batches, some columns coded; nested types are looked up in a data file."""
        if not self.columns:
            return pa.schema([pa.field(ROWS_ONLY, pa.int8())])
        unknown = [column for column in self.columns if arrow_type(column.type) is None]
        schema = empty_table(self.columns).schema
        for name in coded:
            schema = _with_field(schema, pa.field(name, CODED))
        layouts = (
            {name: layout for s in self.segments for layout in s.layouts for name in layout.columns} if unknown else {}
        )
        data = self.table.catalog.data
        if isinstance(data, SourceFiles):  # which are read as types of the source, whatever each file has
            layouts = {}
        for column in unknown:
            if column.name not in layouts:  # no row is left, or the column came after all plans whose rows are
                schema = _with_field(schema, pa.field(column.name, nested_type(column.type)))
                continue
            file = layouts[column.name].files[0]
            with open_parquet(data, file.path, file.footer) as parquet:
                schema = _with_field(schema, parquet.schema_arrow.field(column.name))
        return schema


def rows_at_once(read: TableRead, most_bytes: int) -> pa.Table | None:
    """All rows for which no part of the filter is known not to be TRUE, in the table's order, read by several threads.

    Args:
        read: reads columns of which each has an Arrow type of its own (:func:`~layoutopt.scan.arrow_types.arrow_type`).
        most_bytes: of rows in memory.

    Returns:
        The rows; None where they are more bytes, found before many more are held.

    Raises:
        DataFileError: a data file is missing or damaged.
        SkippingError: skipping is checked, and a row that matches is left out.
    """
    segments, held = by_file(read.segments), [0]

    def rows_of(segment: SegmentRead) -> list[pa.RecordBatch]:
        condition, found = read.scan.filter.root, []
        batches = read_segments(read.table.catalog.data, [segment], read.columns, _FEW_ROWS, condition)
        for batch in _left(batches, condition):
            held[0] += batch.nbytes
            if held[0] > most_bytes:
                break
            found.append(batch)
        return found

    if len(segments) < 2:
        found = [rows_of(segment) for segment in segments]
    else:
        with ThreadPoolExecutor(min(len(segments), os.cpu_count() or 1, _MOST_THREADS)) as threads:
            found = list(threads.map(rows_of, segments))
    if held[0] > most_bytes:
        return None
    return pa.Table.from_batches([batch for of in found for batch in of], read.arrow_schema())


def _left(batches: Iterator[pa.RecordBatch], condition: Node) -> Iterator[pa.RecordBatch]:
    parts = conjuncts(condition)
    for batch in batches:
        kept = batch.filter(pa.array(may_match(parts, batch))) if condition != TRUE else batch
        if switch.is_on():
            check_late(pa.Table.from_batches([kept]), pa.Table.from_batches([batch]), condition)
        yield kept


def has_deleted_rows(read: TableRead) -> bool:
    """Whether a block that is read has deleted rows."""
    return any(one.any() for one in _with_deletes(read))


def _with_deletes(read: TableRead) -> list[Bits]:
    """Which blocks are read and have deleted rows, of each plan's part of a read, bool[n]."""
    return [plan.read & (plan.source.blocks.deleted_rows > 0) for plan in read.pruned]


def split_by_deletes(read: TableRead) -> tuple[TableRead, TableRead | None]:
    """A read of the blocks without deleted rows, and one of those with some; None where there are none of these.

    Only where each row is read from one layout: then blocks are independent of each other.
    """
    deleted = _with_deletes(read)
    if not any(one.any() for one in deleted):
        return read, None
    both = list(zip(read.pruned, deleted, strict=True))
    clean = tuple(without(plan, gone) for plan, gone in both)
    return replace(read, pruned=clean), replace(read, pruned=tuple(without(plan, ~gone) for plan, gone in both))


def without(plan: PrunedPlan, left_out: Bits) -> PrunedPlan:
    """A plan's part of a read without some blocks, bool[n]: they are neither read nor skipped."""
    outcome = np.where(plan.read & left_out, PruneOutcome.OTHER_LAYOUT, plan.outcome).astype(np.int8)
    return replace(plan, outcome=outcome)


Mentions: TypeAlias = Callable[
    [str, tuple[tuple[str, Schema], ...], Settings, tuple[tuple[str, Udf], ...]], tuple[TableScan, ...]
]
"""Finds the mentions of tables, of names and schemas, in a text; the session has settings and functions."""


def remembered_mentions() -> Mentions:
    """What finds mentions of tables; a text that comes again, as a dashboard's does, is not read again."""

    @remembered
    def mentions(
        sql: str, schemas: tuple[tuple[str, Schema], ...], settings: Settings, udfs: tuple[tuple[str, Udf], ...]
    ) -> tuple[TableScan, ...]:
        return tuple(merge_mentions(scans_of(sql, dict(schemas), settings=settings, udfs=dict(udfs))))

    return mentions


def merge_mentions(scans: Sequence[TableScan]) -> list[TableScan]:
    """Scans with one item for each mention of a table, in the order of the text.

    A mention inside a CTE that is used several times is scanned several times, perhaps under different filters: one
    reading then serves all, with the columns of all and the rows of any.
    """
    merged: dict[tuple[int, int] | None, TableScan] = {}
    for scan in sorted(scans, key=lambda scan: scan.span or (-1, -1)):
        other = merged.get(scan.span)
        merged[scan.span] = scan if other is None else _merge(other, scan)
    return list(merged.values())


def _merge(first: TableScan, second: TableScan) -> TableScan:
    return replace(
        first,
        columns=tuple(dict.fromkeys((*first.columns, *second.columns))),
        filter=Filter.of(disjunction([first.filter.root, second.filter.root])),
        unusable=tuple(dict.fromkeys((*first.unusable, *second.unusable))),
    )


def _with_field(schema: pa.Schema, field: pa.Field) -> pa.Schema:
    return schema.set(schema.get_field_index(field.name), pa.field(field.name, field.type))
