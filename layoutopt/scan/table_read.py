"""The read of one mention of a table in a text, after pruning."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa

from layoutopt.evaluation.arrow_types import CODED, arrow_type, empty_table, nested_type
from layoutopt.evaluation.predicates import may_match
from layoutopt.model.arrays import Bits
from layoutopt.model.feature import SessionSettings
from layoutopt.model.predicates import TRUE, Filter, Node, conjuncts, disjunction
from layoutopt.model.schema import Column, Schema
from layoutopt.model.udf import Udf
from layoutopt.scan import check_switch as switch
from layoutopt.scan.files import BATCH_ROWS, find_coded_columns, open_parquet
from layoutopt.scan.opened_table import OpenedTable
from layoutopt.scan.prune import PrunedPlan
from layoutopt.scan.read import ROWS_ONLY, check_late, read_segments
from layoutopt.scan.segments import SegmentRead, segments_to_read, split_by_file
from layoutopt.sql.scans import TableScan, find_scans
from layoutopt.sql.text_cache import cache_by_text

if TYPE_CHECKING:
    from layoutopt.evaluation.engine import EngineView

_MOST_THREADS: Final = 8
# Rows of a batch while the total size is limited: the bytes of a batch are known only once it is decoded.
_SMALL_BATCH_ROWS: Final = 4_096
# Such batches are filtered together up to these bytes.
_FILTERED_BYTES: Final = 4 << 20


@dataclass(frozen=True, eq=False)
class TableRead:
    """One mention of a table in a text: its columns, its filter, and the blocks that remain after pruning."""

    table: OpenedTable
    scan: TableScan
    pruned: tuple[PrunedPlan, ...]

    @property
    def start(self) -> int:
        """The position of the mention in the text, -1 if unknown."""
        return self.scan.span[0] if self.scan.span is not None else -1

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns read, in schema order."""
        names = set(self.scan.columns)
        return tuple(column for column in self.table.schema.columns if column.name in names)

    @property
    def layouts(self) -> tuple[int, ...]:
        """The layouts that the segments are read from, ascending."""
        return tuple(sorted({choice.layout for pruned in self.pruned for choice in pruned.choice}))

    @property
    def rows(self) -> int:
        """The rows to be read of one layout, without deleted ones."""
        return sum(int(plan.source.blocks.live_rows[plan.read].sum()) for plan in self.pruned)

    @property
    def is_joined(self) -> bool:
        """Whether rows are combined from several layouts."""
        return any(len(plan.choice) > 1 and plan.read.any() for plan in self.pruned)

    @cached_property
    def with_deletes(self) -> list[Bits]:
        """The blocks to be read that have deleted rows, bool[n] for each plan."""
        return [plan.read & (plan.source.blocks.deleted_rows > 0) for plan in self.pruned]

    @cached_property
    def segments(self) -> list[SegmentRead]:
        """The segments to be read, in the table's order."""
        return [segment for pruned in self.pruned for segment in segments_to_read(pruned)]

    @property
    def coded(self) -> frozenset[str]:
        """The text columns that are dictionary-encoded in all files to read, if each segment has one layout."""
        if self.is_joined:
            return frozenset()
        layouts = [segment.layouts[0] for segment in self.segments]
        texts = {column.name for column in self.columns if arrow_type(column.type) == pa.string()}
        texts = texts.intersection(*(layout.columns for layout in layouts))
        return find_coded_columns(self.table.catalog.data, (file for layout in layouts for file in layout.files), texts)

    def batches(self, batch_rows: int = BATCH_ROWS, coded: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """Return the surviving rows: all that match the filter, and others of the same blocks.

        If rows are combined from several layouts, rows that the columns of one layout exclude are left out.

        Args:
            batch_rows: the most rows of a batch.
            coded: columns of :attr:`coded` to be returned as dictionaries.

        Raises:
            DataFileError: a data file is missing or damaged.
        """
        condition = self.scan.filter.root
        return read_segments(self.table.catalog.data, self.segments, self.columns, batch_rows, condition, coded=coded)

    def as_view(self, name: str) -> EngineView:
        """Return the rows as a view of the engine, with texts as dictionaries if all files have them."""
        from layoutopt.evaluation.engine import EngineView  # reads that need no engine don't import DuckDB

        coded = self.coded
        return EngineView(name, self.arrow_schema(coded), partial(self.batches, coded=coded))

    def arrow_schema(self, coded: Collection[str] = ()) -> pa.Schema:
        """Return the schema of the batches; nested types are looked up in a data file."""
        if not self.columns:
            return pa.schema([pa.field(ROWS_ONLY, pa.int8())])
        unknown = [column for column in self.columns if arrow_type(column.type) is None]
        schema = empty_table(self.columns).schema
        for name in coded:
            schema = _set_field(schema, pa.field(name, CODED))
        data, layouts = self.table.catalog.data, {}
        if unknown and not data.is_external:  # external files are read in the source's types
            layouts = {name: layout for s in self.segments for layout in s.layouts for name in layout.columns}
        for column in unknown:
            if column.name not in layouts:  # no rows remain, or the column was added after their plans
                schema = _set_field(schema, pa.field(column.name, nested_type(column.type)))
                continue
            file = layouts[column.name].files[0]
            with open_parquet(data, file.path, file.footer) as parquet:
                schema = _set_field(schema, parquet.schema_arrow.field(column.name))
        return schema


def read_rows(read: TableRead, most_bytes: int) -> pa.Table | None:
    """Read all rows that no part of the filter is known to exclude, in the table's order, with several threads.

    Args:
        read: its columns each have an Arrow type of their own (:func:`~layoutopt.evaluation.arrow_types.arrow_type`).
        most_bytes: the most bytes of rows in memory.

    Returns:
        The rows; None if they have more bytes, which is detected before many more are in memory.

    Raises:
        DataFileError: a data file is missing or damaged.
        SkippingError: skipping is checked, and a matching row is missing.
    """
    segments, total_bytes = split_by_file(read.segments), [0]

    def read_segment(segment: SegmentRead) -> list[pa.Table]:
        condition, kept = read.scan.filter.root, []
        batches = read_segments(read.table.catalog.data, [segment], read.columns, _SMALL_BATCH_ROWS, condition)
        for rows in map(partial(_filter_rows, condition), _group_batches(batches)):
            total_bytes[0] += rows.nbytes
            if total_bytes[0] > most_bytes:
                break
            kept.append(rows)
        return kept

    if len(segments) < 2:
        tables = [read_segment(segment) for segment in segments]
    else:
        with ThreadPoolExecutor(min(len(segments), os.cpu_count() or 1, _MOST_THREADS)) as threads:
            tables = list(threads.map(read_segment, segments))
    if total_bytes[0] > most_bytes:
        return None
    return pa.concat_tables([read.arrow_schema().empty_table(), *chain.from_iterable(tables)])


def _group_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield batches as tables of several, since a filter of few rows takes longer than they do."""
    group: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        group.append(batch)
        size += batch.nbytes
        if size > _FILTERED_BYTES:
            yield pa.Table.from_batches(group)
            group, size = [], 0
    if group:
        yield pa.Table.from_batches(group)


def _filter_rows(condition: Node, rows: pa.Table) -> pa.Table:
    if condition == TRUE:
        return rows
    filtered = rows.filter(pa.array(may_match(conjuncts(condition), rows)))
    if switch.is_on():
        check_late(filtered, rows, condition)
    return filtered


def split_blocks(read: TableRead, masks: Sequence[Bits]) -> tuple[TableRead, TableRead | None]:
    """Split a read into the blocks outside some masks, bool[n] for each plan, and those in them (None for none).

    Valid only if each row is read from one layout: then blocks are independent of each other.
    """
    if not any(mask.any() for mask in masks):
        return read, None
    pairs = list(zip(read.pruned, masks, strict=True))
    others = tuple(exclude_blocks(plan, mask) for plan, mask in pairs)
    masked = tuple(exclude_blocks(plan, ~mask) for plan, mask in pairs)
    return replace(read, pruned=others), replace(read, pruned=masked)


def exclude_blocks(plan: PrunedPlan, excluded: Bits) -> PrunedPlan:
    """Return a plan's part of a read without some blocks, bool[n]: they are neither read nor skipped."""
    return replace(plan, read=plan.read & ~excluded)


# Finds the mentions of tables (names and schemas) in a text, for a session's settings and functions.
Mentions: TypeAlias = Callable[
    [str, tuple[tuple[str, Schema], ...], SessionSettings, tuple[tuple[str, Udf], ...]], tuple[TableScan, ...]
]


def cached_mentions() -> Mentions:
    """Return a function that finds mentions of tables and caches the result for each text."""

    @cache_by_text
    def find_mentions(
        sql: str, schemas: tuple[tuple[str, Schema], ...], settings: SessionSettings, udfs: tuple[tuple[str, Udf], ...]
    ) -> tuple[TableScan, ...]:
        return tuple(merge_mentions(find_scans(sql, dict(schemas), settings=settings, udfs=dict(udfs))))

    return find_mentions


def merge_mentions(scans: Sequence[TableScan]) -> list[TableScan]:
    """Return the scans with one item for each mention of a table, in the order of the text.

    A mention inside a CTE that is used several times is scanned several times, possibly under different filters. One
    read then serves all, with the columns of all and the rows of any.
    """
    merged: dict[tuple[int, int] | None, TableScan] = {}
    for scan in sorted(scans, key=lambda scan: scan.span or (-1, -1)):
        first = merged.get(scan.span)
        if first is not None:
            scan = replace(
                first,
                columns=tuple(dict.fromkeys((*first.columns, *scan.columns))),
                filter=Filter.of(disjunction([first.filter.root, scan.filter.root])),
                unusable=tuple(dict.fromkeys((*first.unusable, *scan.unusable))),
            )
        merged[scan.span] = scan
    return list(merged.values())


def _set_field(schema: pa.Schema, field: pa.Field) -> pa.Schema:
    return schema.set(schema.get_field_index(field.name), pa.field(field.name, field.type))
