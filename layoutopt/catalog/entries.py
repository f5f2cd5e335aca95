"""From a load's blocks to the partition entries of its snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.bounds import merge_bounds
from layoutopt.catalog.load_check import Content, TidSums
from layoutopt.catalog.paths import blocks_path
from layoutopt.catalog.snapshot import Bounds, PartitionEntry, Scalar
from layoutopt.errors import SchemaError
from layoutopt.model.arrays import Ints
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
    indices = {key: i for i, key in enumerate(table.partitions)}
    members = {key: np.flatnonzero(table.partition == indices.get(key, -1)) for key in sorted(values)}
    return tuple(_make_entry(table, members[key], plan, load_id, key, values[key]) for key in members)


def _make_entry(table: BlockTable, blocks: Ints, plan: Plan, load_id: str, key: str, value: Scalar) -> PartitionEntry:
    rows = _count_rows(table, blocks)
    bounds, checksums = {}, {}
    for name in table.schema.names:
        complete = _find_complete_layout(table, name, blocks, rows)
        bounds[name] = (
            Bounds() if complete is None else merge_bounds(table.block_statistics().bounds[name], table.rows, complete)
        )
        checksum = _sum_checksums(table, name, complete)
        if checksum is not None:
            checksums[name] = checksum
    return PartitionEntry(
        key=key,
        value=value,
        plan=plan.digest,
        load_id=load_id,
        blocks_file=blocks_path(load_id),
        rows=rows,
        bounds=bounds,
        checksums=checksums,
        bytes=int(table.bytes[blocks].sum()),
    )


def written_content(table: BlockTable) -> Content:
    """Return rows and checksums of all the blocks.

    A column's checksum is that of the first layout that holds it for every row; without one it has none.
    """
    blocks = np.arange(table.n)
    rows = _count_rows(table, blocks)
    sums = {
        name: _sum_checksums(table, name, _find_complete_layout(table, name, blocks, rows))
        for name in table.schema.names
    }
    return Content(rows, {name: value for name, value in sums.items() if value is not None})


def content_of_entries(entries: Sequence[PartitionEntry]) -> Content:
    """Return the live rows and checksums of entries together, for the columns that all have a checksum of."""
    sums = [entry.live_checksums for entry in entries]
    common = [name for name in sums[0] if all(name in sums_of_entry for sums_of_entry in sums)]
    rows = sum(entry.live_rows for entry in entries)
    return Content(rows, {name: sum(sums_of_entry[name] for sums_of_entry in sums) for name in common})


def count_written_rows(table: BlockTable) -> int:
    """Return the number of rows of all the blocks, each counted once however many layouts hold it."""
    return _count_rows(table, np.arange(table.n))


def written_positions(table: BlockTable) -> TidSums:
    """Return the sums of hash(tid, value) by segment, layout and column, where all blocks have them."""
    groups, group_ids = np.unique(
        np.stack([table.partition, table.segment, table.layout], axis=1), axis=0, return_inverse=True
    )
    sums_by_group: dict[tuple[str, int, int], dict[str, int]] = {
        (table.partitions[p], s, layout): {} for p, s, layout in groups.tolist()
    }
    for name in table.schema.names:
        sums, present = table.column_tid_sums(name), table.has_column(name)
        for number, group_sums in enumerate(sums_by_group.values()):
            of_group = sums[present & (group_ids.reshape(-1) == number)]
            if len(of_group) and (of_group >= 0).all():
                group_sums[name] = int(of_group.sum())
    return sums_by_group


def _count_rows_by_layout(table: BlockTable, blocks: Ints) -> Ints:
    """Return the rows of some blocks (their indices), by layout, int64[layouts]."""
    layouts = int(table.layout.max(initial=0)) + 1
    rows = np.zeros(layouts, dtype=np.int64)
    np.add.at(rows, table.layout[blocks], table.rows[blocks])
    return rows


def _count_rows(table: BlockTable, blocks: Ints) -> int:
    return int(_count_rows_by_layout(table, blocks).max(initial=0))


def _find_complete_layout(table: BlockTable, name: str, blocks: Ints, rows: int) -> Ints | None:
    """Return the blocks of the first layout that holds the column for every row; None where there is none."""
    present = blocks[table.has_column(name)[blocks]]
    complete = np.flatnonzero(_count_rows_by_layout(table, present) == rows)
    return present[table.layout[present] == complete[0]] if len(complete) else None


def _sum_checksums(table: BlockTable, name: str, blocks: Ints | None) -> int | None:
    if blocks is None:
        return None
    sums = table.column_sums(name)[blocks]
    return None if (sums < 0).any() else int(sums.sum())


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
