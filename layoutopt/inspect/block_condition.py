"""The condition on ``_block`` with which any Parquet engine skips the blocks that layoutopt would skip.

``_block`` is a column of every data file and constant within a row group. An engine that uses the row groups' min/max
skips exactly the blocks that the condition excludes. The condition is valid for the files of one layout at one snapshot
(``layoutopt files``). It is added to the query's own filter, since the remaining blocks have other rows too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from layoutopt.errors import QueryError
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.schema import BLOCK
from layoutopt.scan.prune import PrunedPlan

if TYPE_CHECKING:
    from layoutopt.scan.table import Scan


@dataclass(frozen=True)
class BlockCondition:
    """The blocks of one layout's files that a mention of the table needs; mentions are numbered from 0."""

    mention: int
    layout: int
    columns: tuple[str, ...]
    blocks_read: int
    blocks_total: int
    sql: str


@dataclass(frozen=True)
class BlockConditions:
    """The conditions of a whole text, one for each mention of the table and layout that it reads."""

    table: str
    snapshot: int
    conditions: tuple[BlockCondition, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the conditions as JSON."""
        return {
            "table": self.table,
            "snapshot": self.snapshot,
            "conditions": [{**asdict(condition), "columns": list(condition.columns)} for condition in self.conditions],
        }

    def __str__(self) -> str:
        """Return the conditions in SQL, each under a title; a single condition has no title."""
        if len(self.conditions) == 1:
            return self.conditions[0].sql
        lines = []
        for condition in self.conditions:
            columns = ", ".join(condition.columns) or "no column"
            lines += [f"-- mention {condition.mention}, layout {condition.layout}: {columns}", condition.sql]
        return "\n".join(lines)


def block_conditions(scan: Scan) -> BlockConditions:
    """Return the conditions with which other engines skip what a scan skips.

    Raises:
        QueryError: the table's files still have deleted rows, or are external and have no ``_block``.
    """
    if scan.table.catalog.others is not None:
        raise QueryError(
            f"the files of {scan.table.name!r} are external and have no column {BLOCK} for a condition; "
            "remove --predicate"
        )
    scan.table.check_plain()
    conditions: list[BlockCondition] = []
    for mention, read in enumerate(scan.reads):
        columns: dict[int, dict[str, None]] = {}
        for plan in read.pruned:
            for choice in plan.choice:
                columns.setdefault(choice.layout, {}).update(dict.fromkeys(choice.columns))
        for layout, names in sorted(columns.items()):
            conditions.append(_make_condition(mention, layout, tuple(names), read.pruned))
    return BlockConditions(scan.table.name, scan.table.catalog.snapshot.number, tuple(conditions))


def _make_condition(
    mention: int, layout: int, columns: tuple[str, ...], pruned: Sequence[PrunedPlan]
) -> BlockCondition:
    """Return the condition on all blocks of a layout, including those of plans that don't read columns from it."""
    masks = [plan.source.blocks.layout == layout for plan in pruned]
    ids = np.concatenate([plan.source.blocks.block_id[mask] for plan, mask in zip(pruned, masks, strict=True)])
    read = np.concatenate([plan.read[mask] for plan, mask in zip(pruned, masks, strict=True)])
    order = np.argsort(ids)
    sql = condition_sql(ids[order], read[order])
    return BlockCondition(mention, layout, columns, int(read.sum()), len(ids), sql)


def condition_sql(ids: Ints, read: Bits) -> str:
    """Return the shortest condition on ``_block`` that keeps some of a layout's blocks.

    Args:
        ids: the numbers of all the blocks, ascending, int64[n].
        read: the blocks to keep, bool[n].

    >>> condition_sql(np.array([3, 4, 9, 12]), np.array([True, False, True, False]))
    '_block IN (3, 9)'
    >>> condition_sql(np.arange(9), np.arange(9) > 2)
    '_block BETWEEN 3 AND 8'
    """
    if read.all():
        return "TRUE"
    if not read.any():
        return "FALSE"
    return min(f"{BLOCK} IN ({', '.join(map(str, ids[read].tolist()))})", _render_runs(ids, read), key=len)


def _render_runs(ids: Ints, read: Bits) -> str:
    """Return a condition with a BETWEEN for each run of kept blocks; numbers of no block may be included."""
    edges = np.flatnonzero(np.diff(np.r_[False, read, False].astype(np.int8)))
    starts, ends = ids[edges[::2]], ids[edges[1::2] - 1]
    short = edges[1::2] - edges[::2] < 3  # two numbers in a list are shorter than a BETWEEN
    parts = [f"{BLOCK} BETWEEN {a} AND {b}" for a, b in zip(starts[~short], ends[~short], strict=True)]
    singles = np.unique(np.r_[starts[short], ends[short]]).tolist()
    if singles:
        parts.append(f"{BLOCK} IN ({', '.join(map(str, singles))})")
    return parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"
