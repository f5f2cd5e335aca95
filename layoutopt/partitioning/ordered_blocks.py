"""Order the rows of a segment by columns or by a curve over them, cut them into blocks, and order blocks.

Functions take each column to order by as dense ranks, ``int64[n]`` (:func:`dense_ranks`), so columns of all types are
treated the same. Rows with equal keys keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from layoutopt.errors import SettingError, expected_names
from layoutopt.model.arrays import Bits, Floats, Ints, Places

# Bits of a curve's position, in int64 without the sign bit.
_POSITION_BITS = 62
# Bits of a column at most; a curve over 64 k ranges of each column tells blocks apart in any segment.
_MAX_COLUMN_BITS = 16
# A column with no more values than this many times its share of ranges is cut into its values.
_FEW_VALUES_FACTOR = 2.0

# More blocks keep their order, since their distances would fill 128 MB.
_MAX_BLOCKS: Final = 4096
_MAX_ROUNDS: Final = 20


@dataclass(frozen=True, eq=False)
class Ordering:
    """The order and the blocks of rows.

    Attributes:
        rank: each row's place in the order, ``int64[n]``, a permutation of 0 to n - 1.
        block: each row's block, ``int64[n]``, ascending along the order.
        n_blocks: how many blocks there are; none is empty.
    """

    rank: Ints
    block: Ints
    n_blocks: int


def dense_ranks(values: npt.ArrayLike, nulls: Bits | None = None) -> Ints:
    """Return the rank of each value among the distinct ones, ``int64[n]``; NULLs come first, as in Spark.

    ``values`` are integers, or keys (str or bytes) as an object array; where ``nulls`` is True they are ignored.

    >>> dense_ranks(np.array([30, 10, 10, 0]), np.array([False, False, False, True])).tolist()
    [2, 1, 1, 0]
    """
    array = np.asarray(values)
    ranks = np.zeros(len(array), dtype=np.int64)
    present = np.ones(len(array), dtype=np.bool_) if nulls is None else ~nulls
    first = 0 if bool(present.all()) else 1
    ranks[present] = np.unique(array[present], return_inverse=True)[1] + first
    return ranks


def order_rows(kind: str, keys: Sequence[Ints], rows: int, block_rows: int, ranges: Sequence[int] = ()) -> Ordering:
    """Return the order and the blocks of a segment's rows.

    Args:
        kind: ``input``, ``sort``, ``range``, ``zorder`` or ``hilbert``.
        keys: dense ranks of each column to order by, ``int64[rows]`` each; none for ``input``.
        block_rows: the mean block.
        ranges: for ``range`` only, the number of ranges of each column; chosen by :func:`choose_ranges` if empty.

    Raises:
        SettingError: the kind is unknown, has no columns to order by, or ``ranges`` don't fit the columns.
    """
    if kind not in ORDER_KINDS:
        raise SettingError(f"unknown order {kind!r}: {expected_names(kind, ORDER_KINDS)}")
    if kind != "input" and not keys:
        raise SettingError(f"order {kind!r} needs columns to order by; name them with --by")
    if kind == "range":
        return range_blocks(keys, block_rows, ranges or choose_ranges(keys, block_rows))
    if ranges:
        raise SettingError(f"order {kind!r} takes no numbers of ranges, but got {list(ranges)}: leave them out")
    return equal_blocks(_RANKINGS[kind](keys, rows), block_rows)


def equal_blocks(rank: Ints, block_rows: int) -> Ordering:
    """Cut an order into blocks of about ``block_rows`` rows whose sizes differ by at most one."""
    n_blocks = max(1, round(len(rank) / block_rows)) if len(rank) else 0
    return Ordering(rank, rank * n_blocks // max(len(rank), 1), n_blocks)


def input_order(keys: Sequence[Ints], rows: int) -> Ints:
    """Return the order in which the rows came, ``int64[rows]``."""
    return np.arange(rows, dtype=np.int64)


def sort_order(keys: Sequence[Ints], rows: int) -> Ints:
    """Return the ranks of the rows sorted by the first column, then the second, and so on."""
    return _invert_permutation(np.lexsort(tuple(reversed(keys))))


def zorder(keys: Sequence[Ints], rows: int) -> Ints:
    """Return the ranks of the rows along the Z curve over the columns, each cut at its quantiles."""
    bits = _column_bits(len(keys))
    return _invert_permutation(
        np.argsort(_interleave([_rank_quantiles(key, bits) for key in keys], bits), kind="stable")
    )


def hilbert(keys: Sequence[Ints], rows: int) -> Ints:
    """Return the ranks of the rows along the Hilbert curve over the columns, each cut at its quantiles.

    Skilling, "Programming the Hilbert curve" (AIP 2004), AxestoTranspose, over all rows at once.
    """
    bits = _column_bits(len(keys))
    axes = [_rank_quantiles(key, bits) for key in keys]
    for level in range(bits - 1, 0, -1):
        bit, below = np.int64(1 << level), np.int64((1 << level) - 1)
        for axis in axes:
            has_bit = (axis & bit) != 0
            exchanged = np.where(has_bit, 0, (axes[0] ^ axis) & below)
            axes[0] ^= np.where(has_bit, below, exchanged)
            if axis is not axes[0]:
                axis ^= exchanged
    for previous, axis in pairwise(axes):
        axis ^= previous
    flips = np.zeros(len(axes[0]), dtype=np.int64)
    for level in range(bits - 1, 0, -1):
        flips ^= np.where((axes[-1] >> level) & 1 != 0, np.int64((1 << level) - 1), 0)
    return _invert_permutation(np.argsort(_interleave([axis ^ flips for axis in axes], bits), kind="stable"))


def choose_ranges(keys: Sequence[Ints], block_rows: int) -> tuple[int, ...]:
    """Return the number of ranges of each column with which a composite range has about ``block_rows`` rows.

    All columns get equal shares, but a column with few values gets a range for each value, as region and segment in
    range2 (Sun 2017, 3.7.3).

    >>> month, region, quantity = np.arange(9000) % 70, np.arange(9000) % 5, np.arange(9000) % 50
    >>> choose_ranges([month, region, quantity], block_rows=20)
    (10, 5, 9)
    """
    if not len(keys[0]):
        return (1,) * len(keys)
    values = [int(key.max()) + 1 for key in keys]
    remaining = max(1.0, len(keys[0]) / block_rows)
    chosen = [1] * len(keys)
    by_values = sorted(range(len(keys)), key=lambda column: (values[column], -column))
    for position, column in enumerate(by_values):
        share = remaining ** (1 / (len(keys) - position))
        few_values = values[column] <= share * _FEW_VALUES_FACTOR and position + 1 < len(keys)
        chosen[column] = values[column] if few_values else min(values[column], max(1, round(share)))
        remaining = max(1.0, remaining / chosen[column])
    return tuple(chosen)


def range_blocks(keys: Sequence[Ints], block_rows: int, ranges: Sequence[int]) -> Ordering:
    """Partition by composite ranges: cut each column into ranges of equal rows, within each range of those before it.

    A range never separates rows with equal values. A leaf is a block, but leaves of more than ``1.5 * block_rows`` are
    cut equally, and neighbours are joined until they hold half of ``block_rows``.

    Raises:
        SettingError: ``ranges`` are not one for each column, or one is below 1.
    """
    if len(ranges) != len(keys) or min(ranges) < 1:
        raise SettingError(f"ranges {list(ranges)} don't fit {len(keys)} columns: expected one number from 1 for each")
    leaf = np.zeros(len(keys[0]), dtype=np.int64)
    for key, n_ranges in zip(keys, ranges, strict=True):
        leaf = _cut_groups(leaf, key, n_ranges)
    rank = _invert_permutation(np.lexsort((*reversed(keys), leaf)))
    block_in_order = _blocks_from_leaves(np.bincount(leaf), block_rows)
    n_blocks = int(block_in_order[-1]) + 1 if len(block_in_order) else 0
    return Ordering(rank, block_in_order[rank], n_blocks)


def _cut_groups(group: Ints, key: Ints, n_ranges: int) -> Ints:
    """Cut each group into ranges of about equal rows of a key; return the new groups, numbered densely in order.

    Rows of a group are sorted by the key. Row ``p`` of ``n`` would go to range ``p * n_ranges // n``; it goes where
    the first row of its value goes, so equal values stay together.

    >>> _cut_groups(np.array([0, 0, 0, 0, 1, 1]), np.array([7, 5, 7, 9, 3, 3]), 2).tolist()  # 5 7 7 | 9, and 3 3
    [0, 0, 0, 1, 2, 2]
    """
    in_order = np.lexsort((key, group))
    group, key = group[in_order], key[in_order]
    places = np.arange(len(group))
    starts_group = _find_starts(group)
    starts_value = starts_group | _find_starts(key)
    group_start = np.maximum.accumulate(np.where(starts_group, places, 0))
    value_start = np.maximum.accumulate(np.where(starts_value, places, 0))
    ranges = ((places - group_start) * n_ranges // np.bincount(group)[group])[value_start]
    result = np.empty(len(group), dtype=np.int64)
    result[in_order] = np.cumsum(starts_group | _find_starts(ranges)) - 1
    return result


def _find_starts(values: Ints) -> Bits:
    """Return where a value differs from the one before it, ``bool[n]``; the first does."""
    return np.asarray(np.r_[True, values[1:] != values[:-1]][: len(values)])


def _blocks_from_leaves(leaf_rows: Ints, block_rows: int) -> Ints:
    """Return the block of each place of the order, ``int64[n]``, from the sizes of the leaves in that order."""
    sizes: list[int] = []
    open_rows = 0  # of leaves that are too small for a block
    for rows in leaf_rows.tolist():
        open_rows += rows
        if open_rows * 2 < block_rows:
            continue
        parts = max(1, round(open_rows / block_rows))
        sizes += [open_rows // parts + (part < open_rows % parts) for part in range(parts)]
        open_rows = 0
    if open_rows and sizes:
        sizes[-1] += open_rows
    elif open_rows:
        sizes.append(open_rows)
    return np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)


def _column_bits(n_columns: int) -> int:
    return max(1, min(_MAX_COLUMN_BITS, _POSITION_BITS // n_columns))


def _rank_quantiles(key: Ints, bits: int) -> Ints:
    """Return where each value begins among the rows, as a number of ``bits`` bits; this evens out skew."""
    if not len(key):
        return key.copy()
    counts = np.bincount(key)
    begins = np.cumsum(counts) - counts
    return np.asarray((begins * (1 << bits) // len(key))[key])


def _interleave(axes: Sequence[Ints], bits: int) -> Ints:
    position = np.zeros(len(axes[0]), dtype=np.int64)
    for level in range(bits - 1, -1, -1):
        for axis in axes:
            position = (position << 1) | ((axis >> level) & 1)
    return position


def _invert_permutation(permutation: Places) -> Ints:
    rank = np.empty(len(permutation), dtype=np.int64)
    rank[permutation] = np.arange(len(permutation))
    return rank


_RANKINGS: Mapping[str, Callable[[Sequence[Ints], int], Ints]] = MappingProxyType(
    {"input": input_order, "sort": sort_order, "zorder": zorder, "hilbert": hilbert}
)
ORDER_KINDS = (*_RANKINGS, "range")


def order_blocks(unions: Bits, weights: Floats) -> Ints:
    """Return an order of blocks in which neighbours differ little in what skips them (seriation), ``int64[n_blocks]``.

    A query then reads few runs of neighbours: fewer and longer requests, and fewer ranges in conditions for engines.
    The distance of two blocks is the weight of the features that skip just one of them. The path is found by nearest
    neighbours, then 2-opt (Croes 1958), for a bounded number of rounds. ``unions`` are the blocks' union vectors,
    ``bool[n_blocks, f]``.

    >>> order_blocks(np.array([[1, 0], [0, 1], [1, 1], [0, 0]], dtype=bool), np.ones(2)).tolist()
    [3, 0, 2, 1]
    """
    n = len(unions)
    if n < 3 or n > _MAX_BLOCKS:
        return np.arange(n)
    # A virtual block at distance 0 from all stands at both ends, so ends cost nothing.
    distances = np.pad(_block_distances(unions, weights), (0, 1))
    path: Ints = np.r_[n, _nearest_neighbours(distances[:n, :n], int(np.argmin(unions @ weights))), n]
    for _ in range(_MAX_ROUNDS):
        if not _shorten_path(path, distances):
            break
    return path[1:-1]


def _block_distances(unions: Bits, weights: Floats) -> Floats:
    bits = unions.astype(np.float64)
    weighted = bits * weights
    totals = weighted.sum(axis=1)
    distances: Floats = np.maximum(totals[:, None] + totals - 2 * (weighted @ bits.T), 0.0)
    return distances


def _nearest_neighbours(distances: Floats, first: int) -> Ints:
    """Return a path that always goes on to the nearest block not yet on it; of equals the first."""
    n = len(distances)
    path = np.empty(n, dtype=np.int64)
    visited = np.zeros(n)  # infinite for blocks on the path
    path[0] = first
    for i in range(1, n):
        visited[path[i - 1]] = np.inf
        path[i] = np.argmin(distances[path[i - 1]] + visited)
    return path


def _shorten_path(path: Ints, distances: Floats) -> bool:
    """Do one round of 2-opt in place: reverse the part that gains most at each place; return whether any gained."""
    improved = False
    least = 1e-9 * float(distances.max(initial=0.0))
    for i in range(len(path) - 3):
        # Reverse the part from `start` to one of `ends`.
        before, start, ends, after = path[i], path[i + 1], path[i + 2 : -1], path[i + 3 :]
        gains = distances[before, start] + distances[ends, after] - distances[before, ends] - distances[start, after]
        j = int(np.argmax(gains))
        if gains[j] > least:
            path[i + 1 : i + 3 + j] = path[i + 1 : i + 3 + j][::-1].copy()
            improved = True
    return improved
