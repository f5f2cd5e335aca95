"""From a load's blocks to the partition entries of its snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.bounds import merge_bounds_of_groups, sum_groups
from layoutopt.catalog.load_check import Content, TidSums
from layoutopt.catalog.partition_entry import Bounds, PartitionEntry, Scalar
from layoutopt.errors import SchemaError
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.layout import Plan
from layoutopt.model.schema import Column, Schema


def partition_entries(
    blocks: pa.Table, plan: Plan, load_id: str, values: Mapping[str, Scalar]
) -> tuple[PartitionEntry, ...]:
    """Return one entry for each partition of ``values`` (its value by its key), measured from its blocks.

    A partition without blocks has no rows. A block in a partition that ``values`` lacks is a ValueError.
    """
    table = BlockTable.from_arrow(blocks, plan)
    unknown = set(table.partitions) - set(values)
    if unknown:
        raise ValueError(
            f"blocks lie in partition {min(unknown)!r}, which has no value; name every partition of the load"
        )
    keys = sorted(values)
    places = {key: place for place, key in enumerate(keys)}
    group = np.array([places[key] for key in table.partitions], dtype=np.int64)[table.partition]
    grouped = GroupedBlocks(table, group, len(keys))
    bounds = {name: grouped.bounds(name) for name in table.schema.names}
    checksums = {name: grouped.checksums(name) for name in table.schema.names}
    bytes = sum_groups(table.bytes, group, len(keys)).tolist()
    return tuple(
        PartitionEntry(
            key=key,
            value=values[key],
            plan=plan.digest,
            load_id=load_id,
            blocks_file="",  # the commit names it
            rows=grouped.rows[place],
            bounds={name: of_column[place] for name, of_column in bounds.items()},
            checksums={name: total for name, sums in checksums.items() if (total := sums[place]) is not None},
            bytes=bytes[place],
        )
        for place, key in enumerate(keys)
    )


@dataclass(frozen=True, eq=False)
class GroupedBlocks:
    """Blocks in groups, such as partitions, each of which is measured as a whole.

    Attributes:
        group: the group of each block, ``int64[n]``.
        count: the number of groups.
    """

    table: BlockTable
    group: Ints
    count: int

    @cached_property
    def _layouts(self) -> int:
        return int(self.table.layout.max(initial=0)) + 1

    def _rows_by_layout(self, mask: Bits | None = None) -> Ints:
        """Return the rows of each group in each layout, ``int64[groups, layouts]``; of some blocks only with a mask."""
        rows = self.table.rows if mask is None else np.where(mask, self.table.rows, 0)
        places = self.group * self._layouts + self.table.layout
        return sum_groups(rows, places, self.count * self._layouts).reshape(-1, self._layouts)

    @cached_property
    def rows(self) -> list[int]:
        """The rows of each group, each counted once however many layouts hold it."""
        rows: list[int] = self._rows_by_layout().max(axis=1).tolist()
        return rows

    @cached_property
    def _known(self) -> dict[str, tuple[Bits, Ints]]:
        return {}  # no cache of a method, whose cycle would keep the blocks until they are collected

    def _complete(self, name: str) -> tuple[Bits, Ints]:
        if name not in self._known:
            self._known[name] = self._find_complete(name)
        return self._known[name]

    def _find_complete(self, name: str) -> tuple[Bits, Ints]:
        """Return the groups that a layout holds a column for every row of, and the blocks of the first such layout."""
        present = self.table.has_column(name)
        complete = self._rows_by_layout(present) == np.array(self.rows, dtype=np.int64)[:, None]
        known, first = complete.any(axis=1), complete.argmax(axis=1)
        return known, np.flatnonzero(present & known[self.group] & (self.table.layout == first[self.group]))

    def bounds(self, name: str) -> list[Bounds]:
        """Return the bounds of a column in each group."""
        known, blocks = self._complete(name)
        merged = merge_bounds_of_groups(
            self.table.block_statistics().bounds[name], self.table.rows, blocks, self.group[blocks], self.count
        )
        return [bounds if is_known else Bounds() for bounds, is_known in zip(merged, known.tolist(), strict=True)]

    def checksums(self, name: str) -> list[int | None]:
        """Return the checksum of a column in each group; None where it is unknown."""
        known, blocks = self._complete(name)
        sums, group = self.table.column_sums(name)[blocks], self.group[blocks]
        known = known & (sum_groups(sums < 0, group, self.count) == 0)
        totals = sum_groups(sums, group, self.count).tolist()
        return [total if is_known else None for total, is_known in zip(totals, known.tolist(), strict=True)]


def written_content(table: BlockTable) -> Content:
    """Return rows and checksums of all the blocks.

    A column's checksum is that of the first layout that holds it for every row; without one it has none.
    """
    whole = GroupedBlocks(table, np.zeros(table.n, dtype=np.int64), 1)
    sums = {name: whole.checksums(name)[0] for name in table.schema.names}
    return Content(whole.rows[0], {name: value for name, value in sums.items() if value is not None})


def content_of_entries(entries: Sequence[PartitionEntry]) -> Content:
    """Return the live rows and checksums of entries together, for the columns that all have a checksum of."""
    sums = [entry.live_checksums for entry in entries]
    common = [name for name in sums[0] if all(name in sums_of_entry for sums_of_entry in sums)]
    rows = sum(entry.live_rows for entry in entries)
    return Content(rows, {name: sum(sums_of_entry[name] for sums_of_entry in sums) for name in common})


@dataclass(frozen=True, eq=False)
class BlocksByPartition:
    """The blocks of a blocks file by partition key.

    Attributes:
        place: the number of each partition.
        order: the blocks (their indices) by partition, else as in the file, ``int64[n]``.
        starts: where the blocks of each partition begin in ``order``, ``int64[partitions + 1]``.
        written: the rows of each partition, each counted once however many layouts hold it.
    """

    place: Mapping[str, int]
    order: Ints
    starts: Ints
    written: Sequence[int]

    @classmethod
    def of(cls, table: BlockTable) -> BlocksByPartition:
        """Group the blocks of a file."""
        count = len(table.partitions)
        starts = np.append(0, np.cumsum(np.bincount(table.partition, minlength=count))).astype(np.int64)
        rows = GroupedBlocks(table, table.partition, count).rows
        return cls(
            {key: i for i, key in enumerate(table.partitions)}, np.argsort(table.partition, kind="stable"), starts, rows
        )

    def rows(self, key: str) -> int:
        """Return the rows of a partition."""
        return self.written[self.place[key]] if key in self.place else 0

    def blocks(self, key: str) -> Ints:
        """Return the blocks of a partition (their indices), ascending."""
        place = self.place.get(key)
        return self.order[:0] if place is None else self.order[self.starts[place] : self.starts[place + 1]]


def written_positions(table: BlockTable) -> TidSums:
    """Return the sums of hash(tid, value) by segment, layout and column, where all blocks have them."""
    groups, group_ids = np.unique(
        np.stack([table.partition, table.segment, table.layout], axis=1), axis=0, return_inverse=True
    )
    group_ids, count = group_ids.reshape(-1), len(groups)
    sums_by_group: list[dict[str, int]] = [{} for _ in range(count)]
    for name in table.schema.names:
        sums, present = table.column_tid_sums(name), table.has_column(name)
        held, unknown = (sum_groups(mask, group_ids, count) for mask in (present, present & (sums < 0)))
        totals = sum_groups(np.where(present, sums, 0), group_ids, count)
        for number in np.flatnonzero((held > 0) & (unknown == 0)).tolist():
            sums_by_group[number][name] = int(totals[number])
    names = [(table.partitions[partition], segment, layout) for partition, segment, layout in groups.tolist()]
    return dict(zip(names, sums_by_group, strict=True))


def grow_schema(table: Schema, plan: Schema) -> Schema:
    """Return the table's schema after a load with a plan: the table's columns, then the plan's new ones.

    A schema only grows by nullable columns, which are NULL in older partitions; other changes are SchemaErrors.

    >>> table = Schema((Column("day", "date"), Column("n", "int")))
    >>> grow_schema(table, Schema((Column("day", "date"), Column("city", "string"), Column("n", "int")))).names
    ('day', 'n', 'city')
    """
    for column in table.columns:
        planned = plan.get(column.name)
        if planned is None:
            raise SchemaError(
                f"the plan lacks the table's column {column.name!r}; plan again on rows that have it (as NULL), "
                "or load the whole table"
            )
        if planned != column:
            raise SchemaError(
                f"the column {column.name!r} is {_describe(column)} in the table but {_describe(planned)} in the plan; "
                "cast it in the source and plan again, or load the whole table"
            )
    added = tuple(column for column in plan.columns if table.get(column.name) is None)
    for column in added:
        if not column.nullable:
            raise SchemaError(
                f"the new column {column.name!r} is not nullable, but older partitions have no value for it; "
                "make it nullable and plan again"
            )
    if [column.name for column in plan.columns if column not in added] != list(table.names):
        raise SchemaError("the plan has the table's columns in another order; plan again, or load the whole table")
    return Schema((*table.columns, *added))


def _describe(column: Column) -> str:
    return f"{column.name} {column.type}{'' if column.nullable else ' NOT NULL'}"


def absent_columns(table: Schema, plan: Schema) -> tuple[Column, ...]:
    """Return the table's columns that are newer than a plan, and so NULL in its partitions."""
    return tuple(column for column in table.columns if plan.get(column.name) is None)


def is_older(plan: Schema, table: Schema) -> bool:
    """Return whether a plan's schema is the table's, or an earlier version of it."""
    common = [column for column in table.columns if plan.get(column.name) is not None]
    return set(common) == set(plan.columns) and all(column.nullable for column in absent_columns(table, plan))
