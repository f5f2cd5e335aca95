"""Blocking by order: rows sorted by columns, or by a curve over them, and cut into equal blocks.

Every function takes the rows' keys as dense ranks, one ``int64[n]`` array a column (see :func:`dense_ranks`), so that
columns of every type are alike. Rows with equal keys stay in the order they came in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from layoutopt.errors import SettingError
from layoutopt.model.arrays import Bits, Floats, Ints, Places

# Bits of a curve's position, in int64: the sign bit stays free.
_POSITION_BITS = 62
# A column is cut at most so finely; a curve over 64 k ranges a column tells blocks apart in any segment.
_MOST_BITS_A_COLUMN = 16
# A column with no more values than this many times its fair share of ranges is cut into its values.
_WHOLE_VALUES_WITHIN = 2.0


@dataclass(frozen=True, eq=False)
class Ordering:
    """Where rows go in a layout by order.

    Attributes:
        rank: each row's place in the order, ``int64[n]``, a permutation of 0 to n - 1.
        block: each row's block, ``int64[n]``; does not fall along the order.
        n_blocks: how many blocks there are; none is empty.
    """

    rank: Ints
    block: Ints
    n_blocks: int


def dense_ranks(values: npt.ArrayLike, nulls: Bits | None = None) -> Ints:
    """The rank of each value among the distinct ones, ``int64[n]``; NULLs come first, as Spark sorts them.

    Args:
        values: integers, or keys (str or bytes) as an object array.
        nulls: ``bool[n]``, TRUE where a value is NULL; what stands there in ``values`` is ignored.

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
    """The order and blocks of a segment's rows.

    Args:
        kind: ``input``, ``sort``, ``range``, ``zorder`` or ``hilbert``.
        keys: dense ranks of each column to order by, ``int64[rows]`` each; none for ``input``.
        rows: how many rows there are.
        block_rows: the mean block.
        ranges: for ``range`` only, into how many ranges each column is cut; empty: chosen by :func:`choose_ranges`.

    Raises:
        SettingError: the kind is unknown, has no columns to order by, or ``ranges`` don't fit the columns.
    """
    if kind not in ORDER_KINDS:
        raise SettingError(f"there is no order {kind!r}; choose one of {', '.join(ORDER_KINDS)}")
    if kind != "input" and not keys:
        raise SettingError(f"order {kind!r} needs columns to order by; name them with --by")
    if kind == "range":
        return range_blocks(keys, block_rows, ranges or choose_ranges(keys, block_rows))
    if ranges:
        raise SettingError(f"order {kind!r} takes no numbers of ranges, but got {list(ranges)}; leave them out")
    return equal_blocks(_RANKINGS[kind](keys, rows), block_rows)


def equal_blocks(rank: Ints, block_rows: int) -> Ordering:
    """Cut an order into blocks whose sizes differ by at most one row and are ``block_rows`` on average, or nearly."""
    n_blocks = max(1, round(len(rank) / block_rows)) if len(rank) else 0
    return Ordering(rank, rank * n_blocks // max(len(rank), 1), n_blocks)


def input_order(keys: Sequence[Ints], rows: int) -> Ints:
    """The order in which the rows came, ``int64[rows]``."""
    return np.arange(rows, dtype=np.int64)


def sort_order(keys: Sequence[Ints], rows: int) -> Ints:
    """The ranks of the rows sorted by the first column, then the second, and so on."""
    return _ranks_of(np.lexsort(tuple(reversed(keys))))


def zorder(keys: Sequence[Ints], rows: int) -> Ints:
    """The ranks of the rows along the Z curve over the columns, each cut at its quantiles."""
    bits = _bits_a_column(len(keys))
    return _along(_interleave([_quantiles(key, bits) for key in keys], bits))


def hilbert(keys: Sequence[Ints], rows: int) -> Ints:
    """The ranks of the rows along the Hilbert curve over the columns, each cut at its quantiles.

    Skilling, "Programming the Hilbert curve" (AIP 2004), AxestoTranspose, over all rows at once.
    """
    bits = _bits_a_column(len(keys))
    axes = [_quantiles(key, bits) for key in keys]
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
    return _along(_interleave([axis ^ flips for axis in axes], bits))


def choose_ranges(keys: Sequence[Ints], block_rows: int) -> tuple[int, ...]:
    """Into how many ranges to cut each column so that a leaf of the composite ranges has about ``block_rows`` rows.

    Every column gets the same share, but one with few values gets a range for each, like region and segment in range2
    (Sun 2017, 3.7.3), and the others share what is left.

    >>> month, region, quantity = np.arange(9000) % 70, np.arange(9000) % 5, np.arange(9000) % 50
    >>> choose_ranges([month, region, quantity], block_rows=20)
    (10, 5, 9)
    """
    if not len(keys[0]):
        return (1,) * len(keys)
    values = [int(key.max()) + 1 for key in keys]
    left = max(1.0, len(keys[0]) / block_rows)
    chosen = [1] * len(keys)
    by_values = sorted(range(len(keys)), key=lambda column: (values[column], -column))
    for position, column in enumerate(by_values):
        share = left ** (1 / (len(keys) - position))
        few_values = values[column] <= share * _WHOLE_VALUES_WITHIN and position + 1 < len(keys)
        chosen[column] = values[column] if few_values else min(values[column], max(1, round(share)))
        left = max(1.0, left / chosen[column])
    return tuple(chosen)


def range_blocks(keys: Sequence[Ints], block_rows: int, ranges: Sequence[int]) -> Ordering:
    """Composite range partitioning: each column cut into ranges of equal rows within each range of those before it.

    Rows with equal values are never parted by a range. A leaf is a block, but leaves of more than ``1.5 * block_rows``
    are cut equally, in the order of the columns, and neighbours are joined until they hold half of ``block_rows``.

    Args:
        keys: dense ranks of each column.
        block_rows: the mean block wanted.
        ranges: into how many ranges each column is cut, at least 1 each.

    Raises:
        SettingError: ``ranges`` are not one for each column, or one is below 1.
    """
    if len(ranges) != len(keys) or min(ranges) < 1:
        raise SettingError(f"ranges {list(ranges)} don't fit {len(keys)} columns; give one number from 1 for each")
    leaf = np.zeros(len(keys[0]), dtype=np.int64)
    for key, n_ranges in zip(keys, ranges, strict=True):
        leaf = _cut(leaf, key, n_ranges)
    rank = _ranks_of(np.lexsort((*reversed(keys), leaf)))
    block_in_order = _blocks_of_leaves(np.bincount(leaf), block_rows)
    n_blocks = int(block_in_order[-1]) + 1 if len(block_in_order) else 0
    return Ordering(rank, block_in_order[rank], n_blocks)


def _cut(group: Ints, key: Ints, n_ranges: int) -> Ints:
    """Cut each group into ranges of about equal rows of a key; the groups that result, numbered densely in order.

    The rows of a group stand in the order of the key. The row at place ``p`` of ``n`` would go to range
    ``p * n_ranges // n``; it goes where the first row of its value goes, so that equal values stay together.

    >>> _cut(np.array([0, 0, 0, 0, 1, 1]), np.array([7, 5, 7, 9, 3, 3]), 2).tolist()  # 5 7 7 | 9, and 3 3
    [0, 0, 0, 1, 2, 2]
    """
    in_order = np.lexsort((key, group))
    group, key = group[in_order], key[in_order]
    places = np.arange(len(group))
    starts_group = _starts(group)
    starts_value = starts_group | _starts(key)
    group_start = np.maximum.accumulate(np.where(starts_group, places, 0))
    value_start = np.maximum.accumulate(np.where(starts_value, places, 0))
    ranges = ((places - group_start) * n_ranges // np.bincount(group)[group])[value_start]
    result = np.empty(len(group), dtype=np.int64)
    result[in_order] = np.cumsum(starts_group | _starts(ranges)) - 1
    return result


def _starts(values: Ints) -> Bits:
    """Where a value differs from the one before it, ``bool[n]``; the first does."""
    return np.asarray(np.r_[True, values[1:] != values[:-1]][: len(values)])


def _blocks_of_leaves(leaf_rows: Ints, block_rows: int) -> Ints:
    """The block of each place of the order, ``int64[n]``, from the sizes of the leaves in that order."""
    sizes: list[int] = []
    open_rows = 0  # of leaves too small for a block of their own
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


def _bits_a_column(n_columns: int) -> int:
    return max(1, min(_MOST_BITS_A_COLUMN, _POSITION_BITS // n_columns))


def _quantiles(key: Ints, bits: int) -> Ints:
    """Where each value begins among the rows, as a number of so many bits: equal values alike, skew evened out."""
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


def _along(position: Ints) -> Ints:
    return _ranks_of(np.argsort(position, kind="stable"))


def _ranks_of(permutation: Places) -> Ints:
    """The place of each row, from the rows in their order."""
    rank = np.empty(len(permutation), dtype=np.int64)
    rank[permutation] = np.arange(len(permutation))
    return rank


_RANKINGS: Mapping[str, Callable[[Sequence[Ints], int], Ints]] = MappingProxyType(
    {"input": input_order, "sort": sort_order, "zorder": zorder, "hilbert": hilbert}
)
ORDER_KINDS = (*_RANKINGS, "range")


# ----------------------------------------------------------------------------------------------------
# In which order blocks are written: those that the same queries read stand side by side (seriation).
#
# A query then reads few runs of neighbours: fewer and longer requests for readers, and fewer ranges of blocks in the
# condition that an engine is given.

_MOST_BLOCKS: Final = 4096
"""Of more blocks, whose distances would fill 128 MB, the order stays as it is."""
_ROUNDS: Final = 20


def in_reading_order(unions: Bits, weights: Floats) -> Ints:
    """An order of blocks in which neighbours differ little in what skips them.

    The distance of two blocks is the weight of the features that skip just one of them (a weighted Hamming distance);
    the sum over neighbours is the weighted number of ends of runs. It is a path of a travelling salesman: nearest
    neighbour first, then 2-opt (Croes 1958) until nothing improves, or for 20 rounds.

    Args:
        unions: the blocks' union vectors, ``bool[n_blocks, f]``.
        weights: of the features, ``float64[f]``.

    Returns:
        the blocks in their new order, ``int64[n_blocks]``; the same for the same input.

    >>> in_reading_order(np.array([[1, 0], [0, 1], [1, 1], [0, 0]], dtype=bool), np.ones(2)).tolist()
    [3, 0, 2, 1]
    """
    n = len(unions)
    if n < 3 or n > _MOST_BLOCKS:
        return np.arange(n)
    # A block that is like every other stands before the first and after the last: ends cost nothing.
    distances = np.pad(_distances(unions, weights), (0, 1))
    path: Ints = np.r_[n, _nearest_neighbours(distances[:n, :n], int(np.argmin(unions @ weights))), n]
    for _ in range(_ROUNDS):
        if not _reverse_what_shortens(path, distances):
            break
    return path[1:-1]


def _distances(unions: Bits, weights: Floats) -> Floats:
    """What every two blocks differ by, ``float64[n, n]``."""
    bits = unions.astype(np.float64)
    weighted = bits * weights
    totals = weighted.sum(axis=1)
    distances: Floats = np.maximum(totals[:, None] + totals - 2 * (weighted @ bits.T), 0.0)
    return distances


def _nearest_neighbours(distances: Floats, first: int) -> Ints:
    """A path that always goes on to the nearest block that it has not yet; of equals to the first."""
    n = len(distances)
    path = np.empty(n, dtype=np.int64)
    left = np.zeros(n)  # infinite where the path has been
    path[0] = first
    for i in range(1, n):
        left[path[i - 1]] = np.inf
        path[i] = np.argmin(distances[path[i - 1]] + left)
    return path


def _reverse_what_shortens(path: Ints, distances: Floats) -> bool:
    """One round of 2-opt in place: wherever turning a part round shortens the path, the part that gains most."""
    improved = False
    least = 1e-9 * float(distances.max(initial=0.0))
    for i in range(len(path) - 3):
        # The part from `after` to `ends` is turned, so that both get another neighbour.
        here, after, ends, beyond = path[i], path[i + 1], path[i + 2 : -1], path[i + 3 :]
        gains = distances[here, after] + distances[ends, beyond] - distances[here, ends] - distances[after, beyond]
        j = int(np.argmax(gains))
        if gains[j] > least:
            path[i + 1 : i + 3 + j] = path[i + 1 : i + 3 + j][::-1].copy()
            improved = True
    return improved
