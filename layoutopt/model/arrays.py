"""Array types, one name for each kind of element; shapes are documented with each function's arguments."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

# Bits of vectors, or masks.
Bits = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
# Indices into other arrays.
Places = npt.NDArray[np.intp]
Counters = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
# Packed feature vectors, see :mod:`layoutopt.model.vectors`.
Words = npt.NDArray[np.uint64]
Hashes = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]
# Bits, eight a byte.
Packed = Bytes
# Keys of one kind: int64, or objects that are all int, all str or all bytes (arbitrary where unknown).
Keys = npt.NDArray[Any]


T = TypeVar("T")


def spread(values: Sequence[T], count: int) -> list[T]:
    """Return at most ``count`` of the values, spread evenly.

    >>> spread([1992, 1993, 1994, 1995, 1996, 1997, 1998], 3)
    [1993, 1995, 1997]
    """
    count = min(len(values), count)
    return [values[(2 * i + 1) * len(values) // (2 * count)] for i in range(count)]


def number_equal(items: Iterable[Hashable]) -> Ints:
    """Return a number for each item, from 0 in the order of the first ones; equal items have the same.

    >>> number_equal("abca").tolist()
    [0, 1, 2, 0]
    """
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(item, len(numbers)) for item in items], dtype=np.int64)


def unpack_bits(packed: Packed, count: int) -> Bits:
    """Return the first bits of each packed row, bool[..., count].

    >>> unpack_bits(np.array([[0b10100000]], dtype=np.uint8), 3)
    array([[ True, False,  True]])
    """
    bits: Bits = np.unpackbits(packed, axis=-1, count=count).view(np.bool_)
    return bits


def draw_share(values: Sequence[T], share: float, seed: int) -> list[T]:
    """Draw a share of the values at random, at least one of some; they stay in their order.

    >>> draw_share("abcdef", 0.5, 0), draw_share("ab", 0.01, 0), draw_share("", 0.5, 0)
    (['a', 'd', 'f'], ['b'], [])
    """
    count = min(len(values), max(1, round(len(values) * share)))
    return [values[place] for place in sorted(random.Random(seed).sample(range(len(values)), count))]


def stable_order(numbers: Ints, below: int) -> Places:
    """Return the indices that sort numbers in ``[0, below)``, stably.

    numpy sorts 16-bit numbers by radix sort, four times as fast. The range is not checked.

    >>> stable_order(np.array([2, 0, 2, 1]), 3).tolist()
    [1, 3, 0, 2]
    >>> stable_order(np.array([65536, 1, 65537]), 65538).tolist()
    [1, 0, 2]
    """
    return np.argsort(numbers.astype(np.uint16) if below <= 1 << 16 else numbers, kind="stable")


def reduce_blocks(function: np.ufunc, values: npt.NDArray[np.integer] | Bits, offsets: Ints) -> Ints:
    """Return the function over each block's rows, int64[n]; 0 for an empty block.

    ``function`` is such as ``np.add``, whose sums are int64; block i has the rows ``offsets[i] .. offsets[i+1]-1``.
    """
    has_rows = np.diff(offsets) > 0
    reduced = np.zeros(len(has_rows), dtype=np.int64)
    if has_rows.any():
        # Blocks with rows tile the array without a gap, so each one's end is the next one's start.
        reduced[has_rows] = function.reduceat(values[: offsets[-1]], offsets[:-1][has_rows], dtype=np.int64)
    return reduced
