"""The condition on ``_block`` that makes any Parquet engine skip what layoutopt would skip.

``_block`` is a column of every data file, constant within a row group, so an engine that looks at the row groups'
minima and maxima skips exactly the blocks that the condition leaves out. It holds for the files of one layout at one
snapshot (``layoutopt files``), and goes beside the query's own filter: blocks that stay have other rows too.
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
    """What one mention of the table needs of one layout's files.

    Attributes:
        mention: which mention of the table in the text, from 0.
        layout: the layout whose files it is about.
        columns: the columns to read from these files.
        blocks_read: how many blocks the condition keeps.
        blocks_total: how many blocks the files have.
        sql: the condition, in SQL that every engine reads.
    """

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
        """The conditions as JSON."""
        return {
            "table": self.table,
            "snapshot": self.snapshot,
            "conditions": [{**asdict(each), "columns": list(each.columns)} for each in self.conditions],
        }

    def __str__(self) -> str:
        """The conditions in SQL, each under its title; a single one alone, to be put into another command."""
        if len(self.conditions) == 1:
            return self.conditions[0].sql
        return "\n".join(f"-- {_title(each)}\n{each.sql}" for each in self.conditions)


def _title(each: BlockCondition) -> str:
    return f"mention {each.mention}, layout {each.layout}: {', '.join(each.columns) or 'no column'}"


def block_conditions(scan: Scan) -> BlockConditions:
    """The conditions under which engines that know nothing of layoutopt skip what a scan skips.

    Raises:
        QueryError: rows are deleted that the table's files still have; or the files are others', without that column.
    """
    if scan.table.catalog.others is not None:
        raise QueryError(
            f"the files of {scan.table.name!r} are others', which have no column {BLOCK} that a condition could be "
            "about; leave --predicate out"
        )
    scan.table.check_plain()
    found = tuple(
        condition for mention, read in enumerate(scan.reads) for condition in _of_mention(mention, read.pruned)
    )
    return BlockConditions(scan.table.name, scan.table.catalog.snapshot.number, found)


def _of_mention(mention: int, pruned: Sequence[PrunedPlan]) -> list[BlockCondition]:
    columns: dict[int, dict[str, None]] = {}
    for plan in pruned:
        for choice in plan.choice:
            columns.setdefault(choice.layout, {}).update(dict.fromkeys(choice.columns))
    return [_of_layout(mention, layout, tuple(names), pruned) for layout, names in sorted(columns.items())]


def _of_layout(mention: int, layout: int, columns: tuple[str, ...], pruned: Sequence[PrunedPlan]) -> BlockCondition:
    """All blocks of the layout count, also those of plans that give it no column here."""
    here = [plan.source.blocks.layout == layout for plan in pruned]
    ids = np.concatenate([plan.source.blocks.block_id[mask] for plan, mask in zip(pruned, here, strict=True)])
    read = np.concatenate([plan.read[mask] for plan, mask in zip(pruned, here, strict=True)])
    order = np.argsort(ids)
    sql = condition_sql(ids[order], read[order])
    return BlockCondition(mention, layout, columns, int(read.sum()), len(ids), sql)


def condition_sql(ids: Ints, read: Bits) -> str:
    """The shortest condition on ``_block`` that keeps these of a layout's blocks.

    Args:
        ids: all the blocks' numbers, ascending, int64[n].
        read: which to keep, bool[n].

    >>> condition_sql(np.array([3, 4, 9, 12]), np.array([True, False, True, False]))
    '_block IN (3, 9)'
    >>> condition_sql(np.arange(9), np.arange(9) > 2)
    '_block BETWEEN 3 AND 8'
    """
    if read.all():
        return "TRUE"
    if not read.any():
        return "FALSE"
    by_runs = _runs_sql(ids, read)
    by_list = f"{BLOCK} IN ({_listed(ids[read])})"
    return by_runs if len(by_runs) < len(by_list) else by_list


def _runs_sql(ids: Ints, read: Bits) -> str:
    """Kept blocks between which no other block stands are one BETWEEN; numbers that no block has don't matter."""
    edges = np.flatnonzero(np.diff(np.r_[False, read, False].astype(np.int8)))
    starts, ends = ids[edges[::2]], ids[edges[1::2] - 1]
    alone = edges[1::2] - edges[::2] < 3  # two numbers in a list are shorter than a BETWEEN of their own
    parts = [f"{BLOCK} BETWEEN {a} AND {b}" for a, b in zip(starts[~alone], ends[~alone], strict=True)]
    single = np.unique(np.r_[starts[alone], ends[alone]])
    if len(single):
        parts.append(f"{BLOCK} IN ({_listed(single)})")
    return parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"


def _listed(ids: Ints) -> str:
    return ", ".join(map(str, ids.tolist()))
