"""From a load's blocks to the partition entries of its snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.bounds import merged
from layoutopt.catalog.checks import Content, TidSums
from layoutopt.catalog.paths import blocks_path
from layoutopt.catalog.snapshot import Bounds, PartitionEntry, Scalar
from layoutopt.errors import SchemaError
from layoutopt.model.arrays import Ints
from layoutopt.model.layout import Plan
from layoutopt.model.schema import Column, Schema


def partition_entries(
    blocks: pa.Table, plan: Plan, load_id: str, values: Mapping[str, Scalar]
) -> tuple[PartitionEntry, ...]:
    """One entry for each partition of ``values`` (its value by its key), measured from its blocks.

    A partition without blocks has no rows.

    Raises:
        CatalogError: the blocks have not the schema of :func:`~layoutopt.catalog.blocks.block_schema`.
        ValueError: a block lies in a partition that ``values`` does not name.
    """
    table = BlockTable.from_arrow(blocks, plan)
    unknown = set(table.partitions) - set(values)
    if unknown:
        raise ValueError(
            f"blocks lie in partition {min(unknown)!r}, which has no value; name every partition of the load"
        )
    places = {key: i for i, key in enumerate(table.partitions)}
    members = {key: np.flatnonzero(table.partition == places.get(key, -1)) for key in sorted(values)}
    return tuple(_entry(table, members[key], plan, load_id, key, values[key]) for key in members)


def _entry(table: BlockTable, blocks: Ints, plan: Plan, load_id: str, key: str, value: Scalar) -> PartitionEntry:
    rows = _rows(table, blocks)
    bounds, checksums = {}, {}
    for name in table.schema.names:
        complete = _complete(table, name, blocks, rows)
        bounds[name] = (
            merged(table.block_statistics().bounds[name], table.rows, complete) if complete is not None else Bounds()
        )
        checksum = _checksum(table, name, complete)
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
    """Rows and checksums of all the blocks.

    Of a column that several layouts hold, a layout that holds it for every row is summed. A column that no layout holds
    for every row has no checksum, nor has one with a block whose checksum is unknown.
    """
    blocks = np.arange(table.n)
    rows = _rows(table, blocks)
    sums = {name: _checksum(table, name, _complete(table, name, blocks, rows)) for name in table.schema.names}
    return Content(rows, {name: value for name, value in sums.items() if value is not None})


def content_of_entries(entries: Sequence[PartitionEntry]) -> Content:
    """What the entries hold together without deleted rows, of the columns that all of them have a checksum of."""
    sums = [entry.live_checksums for entry in entries]
    common = [name for name in sums[0] if all(name in of_entry for of_entry in sums)]
    rows = sum(entry.live_rows for entry in entries)
    return Content(rows, {name: sum(of_entry[name] for of_entry in sums) for name in common})


def written_rows(table: BlockTable) -> int:
    """Rows of all the blocks, each counted once however many layouts it lies in."""
    return _rows(table, np.arange(table.n))


def written_positions(table: BlockTable) -> TidSums:
    """The sums of hash(tid, value) of each segment's columns in each layout; none where a block's is unknown."""
    places, group = np.unique(
        np.stack([table.partition, table.segment, table.layout], axis=1), axis=0, return_inverse=True
    )
    found: dict[tuple[str, int, int], dict[str, int]] = {
        (table.partitions[p], s, layout): {} for p, s, layout in places.tolist()
    }
    for name in table.schema.names:
        sums, present = table.column_tid_sums(name), table.has_column(name)
        for number, sums_of_place in enumerate(found.values()):
            of_place = sums[present & (group.reshape(-1) == number)]
            if len(of_place) and (of_place >= 0).all():
                sums_of_place[name] = int(of_place.sum())
    return found


def _rows_by_layout(table: BlockTable, blocks: Ints) -> Ints:
    """Rows of some blocks (their indices), by layout, int64[layouts]."""
    layouts = int(table.layout.max(initial=0)) + 1
    rows = np.zeros(layouts, dtype=np.int64)
    np.add.at(rows, table.layout[blocks], table.rows[blocks])
    return rows


def _rows(table: BlockTable, blocks: Ints) -> int:
    return int(_rows_by_layout(table, blocks).max(initial=0))


def _complete(table: BlockTable, name: str, blocks: Ints, rows: int) -> Ints | None:
    """The blocks of the first layout that holds the column for every row; None where there is none."""
    present = blocks[table.has_column(name)[blocks]]
    complete = np.flatnonzero(_rows_by_layout(table, present) == rows)
    return present[table.layout[present] == complete[0]] if len(complete) else None


def _checksum(table: BlockTable, name: str, blocks: Ints | None) -> int | None:
    if blocks is None:
        return None
    sums = table.column_sums(name)[blocks]
    return None if (sums < 0).any() else int(sums.sum())


# ----------------------------------------------------------------------------------------------------
# How a table's schema may change from one load to the next: by new nullable columns, and in no other way.
#
# Partitions keep the plan, and so the columns, that they were loaded with. A column that came later is NULL in them.


def grown(table: Schema, plan: Schema) -> Schema:
    """The table's schema once a partition is loaded with a plan: its columns, then the plan's new ones.

    >>> table = Schema((Column("day", "date"), Column("n", "int")))
    >>> grown(table, Schema((Column("day", "date"), Column("city", "string"), Column("n", "int")))).names
    ('day', 'n', 'city')

    Raises:
        SchemaError: a column is missing, of another type, order or nullability, or new and not nullable; names it.
    """
    for column in table.columns:
        found = plan.get(column.name)
        if found is None:
            raise SchemaError(
                f"the plan lacks the table's column {column.name!r}; plan again on rows that have it (as NULL), "
                "or load the whole table"
            )
        if found != column:
            raise SchemaError(
                f"the column {column.name!r} is {_said(column)} in the table but {_said(found)} in the plan; "
                "cast it in the source and plan again, or load the whole table"
            )
    added = tuple(column for column in plan.columns if table.get(column.name) is None)
    _check_added(added)
    if [column.name for column in plan.columns if column not in added] != list(table.names):
        raise SchemaError("the plan has the table's columns in another order; plan again, or load the whole table")
    return Schema((*table.columns, *added))


def _check_added(added: tuple[Column, ...]) -> None:
    for column in added:
        if not column.nullable:
            raise SchemaError(
                f"the new column {column.name!r} is not nullable, but older partitions have no value for it; "
                "make it nullable and plan again"
            )


def _said(column: Column) -> str:
    return f"{column.name} {column.type}{'' if column.nullable else ' NOT NULL'}"


def absent_columns(table: Schema, plan: Schema) -> tuple[Column, ...]:
    """The table's columns that came after a plan, and that are NULL in every row of its partitions."""
    return tuple(column for column in table.columns if plan.get(column.name) is None)


def is_older(plan: Schema, table: Schema) -> bool:
    """Whether a table's schema is a plan's, or grew out of it."""
    kept = [column for column in table.columns if plan.get(column.name) is not None]
    return set(kept) == set(plan.columns) and all(column.nullable for column in absent_columns(table, plan))
