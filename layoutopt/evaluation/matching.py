"""Which values of arrays lie in a set of values, or match a pattern."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.model.arrays import Bits
from layoutopt.model.predicates import ANY_CHAR, ANY_STRING, Pattern
from layoutopt.model.values import Key, ValueSet


def texts_in_values(texts: pa.Array, values: ValueSet) -> Bits:
    """Return which strings, as bytes, lie in a set of values, bool[n]; anything for NULLs."""
    inside = np.zeros(len(texts), np.bool_)
    points = []
    for low, high in values.intervals:
        start, end = key_bytes(low), key_bytes(high)
        if start is not None and end == start + b"\0":
            points.append(start)
            continue
        above = True if start is None else flags(pc.greater_equal(texts, pa.scalar(start, texts.type)))
        inside |= above & (True if end is None else flags(pc.less(texts, pa.scalar(end, texts.type))))
    if len(points) == 1:
        inside |= flags(pc.equal(texts, pa.scalar(points[0], texts.type)))
    elif points:
        inside |= flags(pc.is_in(texts, pa.array(points, texts.type)))
    return inside


def key_bytes(end: Key | None) -> bytes | None:
    """Return the stored bytes of a string or binary key; None for None."""
    return end.encode("utf-8", "surrogatepass") if isinstance(end, str) else end  # type: ignore[return-value]


def flags(booleans: pa.BooleanArray) -> Bits:
    """Return Arrow's booleans as bool[n], FALSE where null."""
    return np.asarray(booleans.fill_null(False) if booleans.null_count else booleans)


def in_values(keys: npt.NDArray[np.generic], values: ValueSet) -> Bits:
    """Return which keys lie in a set of values, bool[n].

    >>> in_values(np.array([1, 2, 3]), ValueSet.interval(2, 3)).tolist()
    [False, True, False]
    """
    if len(values.intervals) == 1 and keys.dtype == np.int64:
        return _between(keys, *values.intervals[0])
    # A key is in the set if an odd number of bounds lies at or below it.
    starts_open = bool(values.intervals) and values.intervals[0][0] is None
    ends = [end for interval in values.intervals for end in interval if end is not None]
    if keys.dtype != object and any(isinstance(end, int) and not -(2**63) <= end < 2**63 for end in ends):
        keys = keys.astype(object)
    bounds = np.array(ends, dtype=object if keys.dtype == object else np.int64)
    below = np.searchsorted(bounds, keys, side="right")
    inside: Bits = (below + starts_open) % 2 == 1
    return inside


def _between(keys: npt.NDArray[np.generic], low: Key | None, high: Key | None) -> Bits:
    if isinstance(high, int) and keys.dtype == np.int64 and isinstance(low, int) and high == low + 1:
        point: Bits = np.equal(keys, low)
        return point
    inside: Bits = np.greater_equal(keys, low) if low is not None else np.ones(len(keys), np.bool_)
    if high is not None:
        inside &= np.less(keys, high)
    return inside


def like_regex(pattern: Pattern) -> str:
    """Return a pattern as a regular expression of Arrow (RE2) for the whole string."""
    parts = {ANY_CHAR: ".", ANY_STRING: ".*"}
    body = "".join(re.escape(token) if isinstance(token, str) else parts[token] for token in pattern)
    return f"(?s)\\A(?:{body})\\z"
