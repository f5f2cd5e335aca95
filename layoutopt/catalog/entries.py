"""From a load's blocks to the partition entries of its snapshot."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.bounds import merged
from layoutopt.catalog.checks import Content
from layoutopt.catalog.paths import blocks_path
from layoutopt.catalog.snapshot import Bounds, PartitionEntry, Scalar
from layoutopt.model.layout import Plan


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
    return tuple(_entry(_of_partition(table, key), plan, load_id, key, values[key]) for key in sorted(values))


def _of_partition(table: BlockTable, key: str) -> BlockTable:
    if key not in table.partitions:
        return table.take(np.zeros(0, dtype=np.int64))
    return table.take(table.partition == table.partitions.index(key))


def _entry(table: BlockTable, plan: Plan, load_id: str, key: str, value: Scalar) -> PartitionEntry:
    content = written_content(table)
    return PartitionEntry(
        key=key,
        value=value,
        plan=plan.digest,
        load_id=load_id,
        blocks_file=blocks_path(load_id),
        rows=content.rows,
        bounds={name: _bounds(table, name, content.rows) for name in table.schema.names},
        checksums=content.sums,
        bytes=int(table.bytes.sum()),
    )


def written_content(table: BlockTable) -> Content:
    """Rows and checksums of the blocks of one partition, or of several.

    Of a column that several layouts hold, a layout that holds it for every row is summed. A column that no layout holds
    for every row has no checksum, nor has one with a block whose checksum is unknown.
    """
    rows = rows_by_layout(table).max(initial=0)
    sums = {name: _checksum(table, name, int(rows)) for name in table.schema.names}
    return Content(int(rows), {name: value for name, value in sums.items() if value is not None})


def rows_by_layout(table: BlockTable, mask: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[np.int64]:
    """Rows of each layout's blocks (of the masked ones, bool[n]), int64[layouts]."""
    mask = np.ones(table.n, dtype=np.bool_) if mask is None else mask
    layouts = int(table.layout.max(initial=0)) + 1
    rows = np.zeros(layouts, dtype=np.int64)
    np.add.at(rows, table.layout[mask], table.rows[mask])
    return rows


def _complete_layout(table: BlockTable, name: str, rows: int) -> npt.NDArray[np.bool_] | None:
    """The blocks, bool[n], of the first layout that holds the column for every row; None where there is none."""
    present = table.has_column(name)
    complete = np.flatnonzero(rows_by_layout(table, present) == rows)
    return present & (table.layout == complete[0]) if len(complete) else None


def _checksum(table: BlockTable, name: str, rows: int) -> int | None:
    blocks = _complete_layout(table, name, rows)
    if blocks is None:
        return None
    sums = table.column_sums(name)[blocks]
    return None if (sums < 0).any() else int(sums.sum())


def _bounds(table: BlockTable, name: str, rows: int) -> Bounds:
    blocks = _complete_layout(table, name, rows)
    if blocks is None:
        return Bounds()
    held = table.take(blocks)
    return merged(held.facts().bounds[name], held.rows)
