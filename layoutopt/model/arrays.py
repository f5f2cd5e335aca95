"""The types of arrays, one name for each kind of element; shapes stand where a function documents its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.bool_]
"""TRUE and FALSE: bits of vectors, or a mask of whatever a function says."""
Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.intp]
"""What numpy gives and takes to index other arrays."""
Counters = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Words = npt.NDArray[np.uint64]
"""Packed feature vectors, see :mod:`layoutopt.model.vectors`."""
Hashes = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]
Packed = Bytes
"""Bits, eight a byte."""
Keys = npt.NDArray[Any]
"""Keys of one kind: int64, or objects that are all int, all str or all bytes (anything where they are not known)."""


# ----------------------------------------------------------------------------------------------------
# Choosing among the values of a sequence, and putting numbers in order.

T = TypeVar("T")


def spread(values: Sequence[T], count: int) -> list[T]:
    """At most ``count`` of the values, spread evenly.

    >>> spread([1992, 1993, 1994, 1995, 1996, 1997, 1998], 3)
    [1993, 1995, 1997]
    """
    count = min(len(values), count)
    return [values[(2 * i + 1) * len(values) // (2 * count)] for i in range(count)]


def stable_order(numbers: Ints, below: int) -> Places:
    """The places of numbers in ``[0, below)``, the least number first, and equal ones as they stand.

    What fits 16 bits numpy sorts digit by digit, in a quarter of the time. That they are in that range is not checked.

    >>> stable_order(np.array([2, 0, 2, 1]), 3).tolist()
    [1, 3, 0, 2]
    >>> stable_order(np.array([65536, 1, 65537]), 65538).tolist()
    [1, 0, 2]
    """
    return np.argsort(numbers.astype(np.uint16) if below <= 1 << 16 else numbers, kind="stable")
