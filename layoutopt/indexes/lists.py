"""Lists of keys, one a block: their storage, and which blocks have a key that matches a literal."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.keys import key_storage
from layoutopt.catalog.statistics import reduce_blocks
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.predicates import ANY_CHAR, ANY_STRING, InSet, Like, Pattern
from layoutopt.model.values import Key, ValueSet, key_kind


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


def element_storage(type: str) -> pa.DataType | None:
    """Return the list element type for keys of a Spark type; strings are the bytes that Spark orders them by."""
    return pa.large_binary() if key_kind(type) in ("str", "bytes") else key_storage(type)


def list_storage(type: str) -> pa.DataType | None:
    """Return the Arrow type of a list of keys of a Spark type; None if it has no order."""
    element = element_storage(type)
    return None if element is None else pa.large_list(element)


def list_array(lists: Sequence[pa.Array | None], element: pa.DataType) -> pa.Array:
    """Return one list a block, NULL for None."""
    sizes = [0 if keys is None else len(keys) for keys in lists]
    offsets = pa.array(np.concatenate(([0], np.cumsum(np.array(sizes, np.int64)))))
    values = pa.concat_arrays([pa.array([], element), *(keys.cast(element) for keys in lists if keys is not None)])
    missing = pa.array([keys is None for keys in lists], pa.bool_())
    return pa.LargeListArray.from_arrays(offsets, values, mask=missing)


def map_dictionary(keys: pa.Array, matching: Callable[[pa.Array], Bits]) -> Bits:
    """Return ``matching`` of keys, evaluated once for each string of a dictionary."""
    if not pa.types.is_dictionary(keys.type):
        return matching(keys)
    result: Bits = matching(keys.dictionary)[np.asarray(keys.indices)]
    return result


def flatten_lists(stored: pa.Array) -> tuple[pa.Array, Ints]:
    """Return the elements of lists and their offsets from 0, ``int64[n + 1]``, for slices too."""
    offsets = np.asarray(stored.offsets)
    return stored.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0])), offsets - offsets[0]


def find_blocks_without(matching: Bits, offsets: Ints, stored: pa.Array) -> Bits:
    """Return the blocks whose list is known and has no matching element, ``bool[n]``."""
    none: Bits = reduce_blocks(np.add, matching, offsets) == 0
    return none & np.asarray(stored.is_valid(), dtype=np.bool_)


def _match_like(literal: Like, keys: pa.Array) -> Bits:
    try:
        matches = flags(pc.match_substring_regex(keys.cast(pa.large_string()), like_regex(literal.pattern)))
    except pa.ArrowInvalid:  # not UTF-8: foreign bytes
        return np.ones(len(keys), np.bool_)
    except UnicodeEncodeError:  # no string has half of a surrogate pair
        matches = np.zeros(len(keys), np.bool_)
    result: Bits = np.not_equal(matches, literal.negated)
    return result


def matching_keys(literal: InSet | Like, keys: pa.Array) -> Bits:
    """Return which keys, stored as :func:`element_storage` and not NULL, make a literal TRUE, ``bool[m]``."""
    return map_dictionary(keys, partial(_match_keys, literal))


def _match_keys(literal: InSet | Like, keys: pa.Array) -> Bits:
    if isinstance(literal, Like):
        return _match_like(literal, keys)
    if literal.values.is_all or literal.values.is_empty:
        return np.full(len(keys), literal.values.is_all)
    if pa.types.is_large_binary(keys.type):
        return texts_in_values(keys, literal.values)
    if pa.types.is_decimal(keys.type):
        return in_values(np.array([int(key) for key in keys.to_pylist()], dtype=np.object_), literal.values)
    return in_values(np.asarray(keys), literal.values)
