"""Sources of rows that no files of their own hold: rows in memory, or live rows of a table's own entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from layoutopt.catalog.load_check import Content
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.partition_names import PartitionNames, PlainValue
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import NeedsSparkError
from layoutopt.evaluation.arrow_types import any_arrow_type
from layoutopt.loading.local_source import check_plan, check_settings
from layoutopt.model.arrays import Ints
from layoutopt.model.layout import Plan
from layoutopt.model.schema import TID, Column, Schema
from layoutopt.scan.read import read_segments
from layoutopt.scan.segments import SegmentRead
from layoutopt.scan.table import Table, plan_entries_read
from layoutopt.scan.table_read import TableRead
from layoutopt.sources.executor import Executor, Processes
from layoutopt.sources.second_reader import sum_rows
from layoutopt.sources.segments import Segment
from layoutopt.sources.source import Source, count_partition_rows
from layoutopt.sources.split import POSITION_BITS, ReadSplit, Split, encode_partitions


@dataclass(eq=False)
class PartitionRows(Source):
    """Rows of :class:`~layoutopt.sources.split.ReadSplit`; the catalog's sums prove those of a table's own rows."""

    def sum(self) -> Content:
        """Sum the rows, read once more."""
        splits = [split for split, _ in self.splits]
        parts = self.executor.map(splits, partial(_sum_split, self.schema))
        sums = {name: sum(part.sums[name] for part in parts) for name in self.schema.names}
        return Content(sum(part.rows for part in parts), sums)

    def check_unchanged(self) -> None:
        """Do nothing: neither memory nor files of a table change."""


def _sum_split(schema: Schema, split: Split) -> Content:
    return sum_rows((rows for rows, _ in split.read_rows(schema, schema.names)), schema)


def rows_in_memory(rows: pa.Table, plan: Plan) -> PartitionRows:
    """Return rows in memory, under the plan's columns, as a source of this process."""
    places: dict[PlainValue, Ints] = {None: np.arange(rows.num_rows)}
    if plan.partition_by is not None:
        coded = encode_partitions(rows, plan.partition_by)
        codes = np.asarray(coded.indices)
        places = {value: np.flatnonzero(codes == code) for code, value in enumerate(coded.dictionary.to_pylist())}
    splits = [(value, ReadSplit(partial(_take_rows, rows, some), 0, 0, len(some))) for value, some in places.items()]
    return _make_source("the new rows", plan, splits, Processes(1))


def _take_rows(rows: pa.Table, places: Ints, names: Sequence[str]) -> pa.Table:
    return rows.select(list(names)).take(pa.array(places))


def live_rows(table: Table, plan: Plan, entries: Sequence[PartitionEntry], executor: Executor) -> PartitionRows:
    """Return the live rows of some entries of a table as a source, by a plan.

    Raises:
        NeedsSparkError: the catalog does not tell a partition's value.
    """
    values = PartitionNames.of(plan.schema, plan.partition_by, table.catalog.snapshot).values_of(entries)
    if values is None:
        raise NeedsSparkError("the catalog does not tell the value of a partition")
    splits = []
    files = table.catalog.files.for_tasks()
    for entry in entries:
        for segment in plan_entries_read(table, [entry]).segments:
            rows = segment.live_rows
            read = partial(_read_live_rows, files, segment, plan.schema)
            size = entry.bytes * rows // max(1, entry.rows)
            splits.append((values[entry.key], ReadSplit(read, 0, size, rows)))
    return _make_source(f"the table {table.catalog.files.root!r}", plan, splits, executor)


def _read_live_rows(files: TableFiles, segment: SegmentRead, schema: Schema, names: Sequence[str]) -> pa.Table:
    types = pa.schema([(column.name, any_arrow_type(column.type)) for column in schema.select(names).columns])
    batches = read_segments(files, [segment], schema.select(names).columns)
    return pa.Table.from_batches([batch.cast(types) for batch in batches], types)


def open_segments(
    table: Table, plan: Plan, read: TableRead, executor: Executor
) -> tuple[PartitionRows, tuple[Segment, ...]]:
    """Return the segments that are read of a table without deleted rows, as a source and its segments.

    The rows of each are in the order of their tids, and the segments have their numbers in the table.

    Args:
        table: has only plans with tids.
        plan: by which they are written; it has the columns of the read.
        read: the segments, and columns.

    Raises:
        NeedsSparkError: the plan needs Spark.
    """
    check_plan(plan)
    check_settings(plan)
    files, schema = table.catalog.files.for_tasks(), plan.schema.select([column.name for column in read.columns])
    splits = [
        (None, ReadSplit(partial(_read_by_tid, files, segment, schema), 0, 0, segment.live_rows))
        for segment in read.segments
    ]
    source = _make_source(f"the table {table.catalog.files.root!r}", plan, splits, executor)
    lows = [split.low for split, _ in source.splits]
    segments = (
        Segment(i, None, segment.segment, low, low + segment.live_rows, segment.live_rows)
        for i, (low, segment) in enumerate(zip(lows, read.segments, strict=True))
    )
    return replace(source, schema=schema, partition_by=None), tuple(segments)


def _read_by_tid(files: TableFiles, segment: SegmentRead, schema: Schema, names: Sequence[str]) -> pa.Table:
    rows = _read_live_rows(files, segment, Schema((*schema.columns, Column(TID, "bigint"))), [*names, TID])
    in_order = pa.array(np.argsort(np.asarray(rows[TID]), kind="stable"))
    return rows.drop_columns([TID]).take(in_order)


def _make_source(
    name: str, plan: Plan, splits: Sequence[tuple[PlainValue, ReadSplit]], executor: Executor
) -> PartitionRows:
    """Return splits with rows of one partition each as a source, in their order."""
    numbered: list[tuple[Split, Mapping[PlainValue, int]]] = []
    for value, split in splits:
        if split.rows:
            numbered.append((replace(split, low=len(numbered) << POSITION_BITS), {value: split.rows}))
    counts = count_partition_rows(tuple(numbered))
    return PartitionRows(name, plan.schema, plan.partition_by, (), tuple(numbered), executor, counts)
