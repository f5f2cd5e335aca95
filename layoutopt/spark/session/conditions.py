"""The condition by which Spark leaves out row groups: the one under which a query is predicted to take the least time.

Spark skips a row group where the condition can't hold between the minima and maxima in its footer, and then asks the
condition of every row that it reads. Ranges stand in the code that it makes for that, so each query has code of its
own, whose first million rows are slow; Java compiles none of more than 8,000 bytes, which some fifty ranges in a row or
twenty-five in a tree make: each row then takes many times as long, though less in a tree, of which it sees a branch.
A list's values are no part of the code. So blocks are listed where the session takes lists to Parquet
(`spark/session/listing`); of more of them than that, those between two that are needed are read along where that is
cheaper. Where the query's own filter skips nearly as much by minima and maxima, nothing is asked at all. Rows that are
read in vain are left out by the query's own filter.

Seconds were measured on two cores of 2026 with 10,000-row blocks; only their ratios count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.columns import BLOCK
from layoutopt.scan import check_switch as switch
from layoutopt.scan.prune import PrunedPlan
from layoutopt.scan.reads import TableRead
from layoutopt.spark.session.own_skipping import skipped_by_spark

_ROW: Final = 60e-9
"""Seconds to read a row of no columns, and to give it to the query."""
_VALUE: Final = 25e-9
"""Seconds to read one value of it."""
_TEST: Final = 70e-9
"""Seconds to read a row's block, and to find that a condition holds."""
_RANGE: Final = 0.5e-9
"""Seconds more for each range in a row of them."""
_TREE: Final = 150e-9
"""Seconds more in a tree of ranges."""
_LARGE_TREE: Final = 3e-6
"""Seconds more in a tree of more than a hundred ranges."""
_LISTED: Final = 40e-6
"""Seconds for each block of a list, which is parsed, and asked for in the footers of files."""
_LEAST_LISTED: Final = 11
"""Of shorter lists Spark makes comparisons with each value, in the code."""
_NAME: Final = 150e-9
"""Seconds to put what is known of its file beside a row, and to compare the file's name with a list."""
_FILE: Final = 3e-3
"""Seconds to open a file, and to read its footer."""
_MOST_IN_A_ROW: Final = 24
"""How many ranges in a row are surely compiled, whatever else the query asks of a row."""
_MOST_IN_A_TREE: Final = 100
_RANGES: Final = (1, 2, 4, 8, 16, _MOST_IN_A_ROW, _MOST_IN_A_TREE, 1000)
"""How many ranges are tried."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """The blocks of a layout, in the order of their numbers.

    Attributes:
        ids: their ``_block`` values, ascending, int64[n].
        file: the number of each block's file, int64[n].
        rows: the rows of each that Spark gives to the condition if it reads the block; none where the query's own
            filter makes Spark skip the block, int64[n].
        bytes: those of each in its file, int64[n].
        needed: those that hold rows for the query, bool[n].
        spare: those that may be read in vain, bool[n]. All others must be left out: their rows come from elsewhere.
    """

    ids: Ints
    file: Ints
    rows: Ints
    bytes: Ints
    needed: Bits
    spare: Bits

    @property
    def needed_files(self) -> Ints:
        """The files that have a needed block, ascending, int64[k]."""
        return np.unique(self.file[self.needed])

    def in_needed_files(self) -> Candidates:
        """Those in files that have to be opened anyway."""
        return self.taken(np.isin(self.file, self.needed_files))

    def taken(self, places: Ints | Bits) -> Candidates:
        """Some of them, or all in another order."""
        return Candidates(
            self.ids[places],
            self.file[places],
            self.rows[places],
            self.bytes[places],
            self.needed[places],
            self.spare[places],
        )


def blocks_of(read: TableRead, layout: int | None = None) -> tuple[Candidates, tuple[str, ...]]:
    """The blocks of a layout of a table, and the paths of their files by number.

    Args:
        read: what is left of the table; each of its segments is read from one layout.
        layout: which layout; by default that which each segment is read from.
    """
    paths: dict[str, int] = {}
    parts = [_of_plan(read, pruned, layout, paths) for pruned in read.pruned]
    ids, file, rows, sizes, needed, spare = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Candidates(ids, file, rows, sizes, needed, spare).taken(np.argsort(ids)), tuple(paths)


def _of_plan(
    read: TableRead, pruned: PrunedPlan, layout: int | None, paths: dict[str, int]
) -> tuple[Ints, Ints, Ints, Ints, Bits, Bits]:
    """One plan's part of the candidates; files are numbered as they occur."""
    blocks = pruned.source.blocks
    chosen = pruned.choice[0].layout if pruned.choice else -1
    here = blocks.layout == (chosen if layout is None else layout)
    number = np.array([paths.setdefault(path, len(paths)) for path in blocks.files], dtype=np.int64)
    rows = blocks.rows * ~skipped_by_spark(read, pruned)
    # Rows that are whole elsewhere lack columns here: the query's filter would say of them what it likes. Rows that
    # are deleted would come back.
    spare = ~pruned.read & (blocks.layout == chosen) & (blocks.part == 0) & (blocks.deleted_rows == 0)
    file = number[blocks.file[here]]
    return blocks.block_id[here], file, rows[here], blocks.bytes[here], pruned.read[here], spare[here]


@dataclass(frozen=True, eq=False)
class Choice:
    """Which blocks are read, and what has to be asked for it.

    Attributes:
        files: the files to open by number, int64[k]; None for all.
        starts, ends: the ranges of blocks to read, int64[r], both ends included; None where no ranges are asked.
        rows: how many rows Spark reads.
        seconds: what that is predicted to take, in seconds of one core.
        listed: the blocks to read, ascending, int64[n], where they are listed.
    """

    files: Ints | None
    starts: Ints | None
    ends: Ints | None
    rows: int
    seconds: float
    listed: Ints | None = None

    @property
    def condition(self) -> str:
        """That a row is of one of these blocks, as a text; empty where nothing is asked."""
        if self.listed is not None:
            return one_of(self.listed.tolist())
        if self.starts is None or self.ends is None:
            return ""
        starts, ends = self.starts.tolist(), self.ends.tolist()
        return range_tree(starts, ends) if len(starts) > _MOST_IN_A_ROW else ranges_in_a_row(starts, ends)

    def in_parts(self, rows: Ints, parts: int) -> list[Choice]:
        """Listed blocks in up to so many parts of about as many rows; ``rows`` are those of each, int64[n].

        What lists none is one part.
        """
        if self.listed is None or parts == 1:
            return [self]
        before = np.cumsum(rows) - rows
        part = np.minimum(before * parts // max(1, int(rows.sum())), parts - 1)
        ends = np.flatnonzero(np.diff(part)) + 1
        return [replace(self, listed=listed) for listed in np.split(self.listed, ends)]


def choose(blocks: Candidates, columns: int, can_name_files: bool = True, most_listed: int = 0) -> Choice:
    """What to ask of the blocks of a layout so that a query takes the least time.

    Where skipping is checked, nothing is read in vain: the check is of the answer from what is not skipped.

    Args:
        blocks: all blocks of the layout; at least one is needed.
        columns: how many columns the query reads.
        can_name_files: whether files may be chosen by their names; they may not be unique, or too many.
        most_listed: how many blocks may be listed.
    """
    if switch.is_on():
        blocks = replace(blocks, spare=np.zeros_like(blocks.spare))
    opened = blocks.needed_files
    of_opened = np.isin(blocks.file, opened)
    can_list = int(np.count_nonzero(blocks.needed)) <= most_listed
    choices = [_choice(blocks, np.ones_like(of_opened), columns, None, can_list)]
    if can_name_files and not of_opened.all():
        choices.append(_choice(blocks, of_opened, columns, opened, can_list))
    return min(choices, key=lambda choice: choice.seconds)


def _choice(blocks: Candidates, here: Bits, columns: int, files: Ints | None, can_list: bool) -> Choice:
    """What to ask of the blocks of some files: nothing, or that a block is listed, or in some ranges."""
    opening = len(np.unique(blocks.file[here])) * _FILE
    a_row = _ROW + _VALUE * columns + (_NAME if files is not None else 0)
    chosen = _listed(blocks, a_row) if can_list else _ranges(blocks, here, a_row)
    asked = replace(chosen, files=files, seconds=opening + chosen.seconds)
    if (blocks.needed | blocks.spare | ~here).all():
        rows = int(blocks.rows[here].sum())
        if opening + rows * a_row <= asked.seconds:
            return Choice(files, None, None, rows, opening + rows * a_row)
    return asked


def _listed(blocks: Candidates, a_row: float) -> Choice:
    """Just the blocks that are needed."""
    ids, rows = blocks.ids[blocks.needed], int(blocks.rows[blocks.needed].sum())
    return Choice(None, None, None, rows, rows * (a_row + _TEST) + len(ids) * _LISTED, listed=ids)


def _ranges(blocks: Candidates, here: Bits, a_row: float) -> Choice:
    """The ranges of blocks by which the rows between them are left out that are worth it.

    Blocks that must not be read are always cut out; of the other gaps between needed blocks, the widest.
    """
    needed = np.flatnonzero(blocks.needed)
    vain = np.r_[0, np.cumsum(np.where(here & ~blocks.needed, blocks.rows, 0))]
    forbidden = np.r_[0, np.cumsum(here & ~blocks.needed & ~blocks.spare)]
    gaps, must = np.diff(vain[needed]), np.diff(forbidden[needed]) > 0
    free = np.flatnonzero(~must & (gaps > 0))
    widest = free[np.argsort(-gaps[free], kind="stable")]
    left = int(gaps[free].sum()) - np.r_[0, np.cumsum(gaps[widest])]
    ever, least = int(must.sum()), int(blocks.rows[needed].sum())

    def seconds(cuts: int) -> float:
        return float(least + left[cuts]) * (a_row + _test_seconds(1 + ever + cuts))

    tried = sorted({min(max(most - 1 - ever, 0), len(widest)) for most in _RANGES})
    best = min(tried, key=seconds)
    cuts = np.sort(np.r_[np.flatnonzero(must), widest[:best]])
    starts, ends = needed[np.r_[0, cuts + 1]], needed[np.r_[cuts, len(needed) - 1]]
    return Choice(None, blocks.ids[starts], blocks.ids[ends], int(least + left[best]), seconds(best))


def _test_seconds(ranges: int) -> float:
    """How long a condition of so many ranges takes for a row."""
    if ranges <= _MOST_IN_A_ROW:
        return _TEST + _RANGE * ranges
    return _TEST + (_TREE if ranges <= _MOST_IN_A_TREE else _LARGE_TREE)


def one_of(ids: Sequence[int]) -> str:
    """That a row's block is one of these (ascending); a short list is filled up with numbers that no block has.

    >>> one_of([3, 9])
    '_block IN (-9, -8, -7, -6, -5, -4, -3, -2, -1, 3, 9)'
    """
    none = range(len(ids) - _LEAST_LISTED, 0)
    return f"{BLOCK} IN ({', '.join(map(str, [*none, *ids]))})"


def ranges_in_a_row(starts: Sequence[int], ends: Sequence[int]) -> str:
    """That a row's block is in one of these ranges (both ends included).

    >>> ranges_in_a_row([3, 9], [5, 9])
    '_block BETWEEN 3 AND 5 OR _block = 9'
    """
    return " OR ".join(map(_range, starts, ends))


def _range(low: int, high: int) -> str:
    return f"{BLOCK} = {low}" if low == high else f"{BLOCK} BETWEEN {low} AND {high}"


def range_tree(starts: Sequence[int], ends: Sequence[int]) -> str:
    """That a row's block is in one of these ranges (ascending, both ends included).

    The ranges stand in a tree by whose bounds most row groups, and most rows, are decided after a few comparisons.

    >>> range_tree([3, 9], [5, 9])
    '(_block BETWEEN 3 AND 9 AND (_block BETWEEN 3 AND 5 OR _block = 9))'
    """
    low, high = starts[0], ends[-1]
    if len(starts) == 1:
        return _range(low, high)
    half = len(starts) // 2
    first, second = range_tree(starts[:half], ends[:half]), range_tree(starts[half:], ends[half:])
    return f"({_range(low, high)} AND ({first} OR {second}))"
