"""Lists of keys, one a block: how they are stored, and which blocks have a key that matters."""

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

# ----------------------------------------------------------------------------------------------------
# Which keys, as whole arrays, lie in a set of values or match a pattern.


def texts_in(texts: pa.Array, values: ValueSet) -> Bits:
    """Which texts, as their bytes, lie in a set of values, bool[n]; where one is NULL, anything."""
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
    """A key of texts or binary as the bytes by which texts are stored; None for None."""
    return end.encode("utf-8", "surrogatepass") if isinstance(end, str) else end  # type: ignore[return-value]


def flags(booleans: pa.BooleanArray) -> Bits:
    """Arrow's booleans as bool[n], FALSE where null."""
    return np.asarray(booleans.fill_null(False) if booleans.null_count else booleans)


def in_values(keys: npt.NDArray[np.generic], values: ValueSet) -> Bits:
    """Which keys lie in a set of values, bool[n].

    >>> in_values(np.array([1, 2, 3]), ValueSet.interval(2, 3)).tolist()
    [False, True, False]
    """
    if len(values.intervals) == 1 and keys.dtype == np.int64:
        return _between(keys, *values.intervals[0])
    # An odd number of the set's bounds lies at or below each of its keys.
    starts_open = bool(values.intervals) and values.intervals[0][0] is None
    ends = [end for interval in values.intervals for end in interval if end is not None]
    if keys.dtype != object and any(isinstance(end, int) and not -(2**63) <= end < 2**63 for end in ends):
        keys = keys.astype(object)
    bounds = np.array(ends, dtype=object if keys.dtype == object else np.int64)
    below = np.searchsorted(bounds, keys, side="right")
    inside: Bits = (below + starts_open) % 2 == 1
    return inside


def _between(keys: npt.NDArray[np.generic], low: Key | None, high: Key | None) -> Bits:
    """Which of int64 keys lie in ``[low, high)``; None is unbounded."""
    if isinstance(high, int) and keys.dtype == np.int64 and isinstance(low, int) and high == low + 1:
        point: Bits = np.equal(keys, low)
        return point
    inside: Bits = np.greater_equal(keys, low) if low is not None else np.ones(len(keys), np.bool_)
    if high is not None:
        inside &= np.less(keys, high)
    return inside


def like_regex(pattern: Pattern) -> str:
    """A pattern as Arrow's (RE2's) regular expressions have it: of the whole text, and a point takes any character."""
    parts = {ANY_CHAR: ".", ANY_STRING: ".*"}
    body = "".join(re.escape(token) if isinstance(token, str) else parts[token] for token in pattern)
    return f"(?s)\\A(?:{body})\\z"


def element_storage(type: str) -> pa.DataType | None:
    """How the keys of a Spark type stand in lists: texts as the bytes by which Spark orders them."""
    return pa.large_binary() if key_kind(type) in ("str", "bytes") else key_storage(type)


def list_storage(type: str) -> pa.DataType | None:
    """The Arrow type of a list of keys of a Spark type; None where it has no order."""
    element = element_storage(type)
    return None if element is None else pa.large_list(element)


def list_array(lists: Sequence[pa.Array | None], element: pa.DataType) -> pa.Array:
    """One list a block, NULL for None."""
    held = [each for each in lists if each is not None]
    sizes = [0 if each is None else len(each) for each in lists]
    offsets = pa.array(np.concatenate(([0], np.cumsum(np.array(sizes, np.int64)))))
    values = pa.concat_arrays([pa.array([], element), *(each.cast(element) for each in held)])
    missing = pa.array([each is None for each in lists], pa.bool_())
    return pa.LargeListArray.from_arrays(offsets, values, mask=missing)


def of_each(keys: pa.Array, matching: Callable[[pa.Array], Bits]) -> Bits:
    """What is true of keys, asked once of each text of a dictionary that they are places in."""
    if not pa.types.is_dictionary(keys.type):
        return matching(keys)
    found: Bits = matching(keys.dictionary)[np.asarray(keys.indices)]
    return found


def contents(stored: pa.Array) -> tuple[pa.Array, Ints]:
    """The elements of lists and their offsets, ``int64[n + 1]``, whatever the lists were cut from."""
    offsets = np.asarray(stored.offsets)
    return stored.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0])), offsets - offsets[0]


def without_any(matching: Bits, offsets: Ints, stored: pa.Array) -> Bits:
    """The blocks whose list is known and has none of the matching elements, ``bool[n]``."""
    none: Bits = reduce_blocks(np.add, matching, offsets) == 0
    return none & np.asarray(stored.is_valid(), dtype=np.bool_)


def _like(literal: Like, keys: pa.Array) -> Bits:
    try:
        found = flags(pc.match_substring_regex(keys.cast(pa.large_string()), like_regex(literal.pattern)))
    except pa.ArrowInvalid:  # no UTF-8: nothing that a load lists
        return np.ones(len(keys), np.bool_)
    except UnicodeEncodeError:  # half of a surrogate pair: no text has it
        found = np.zeros(len(keys), np.bool_)
    matching: Bits = np.not_equal(found, literal.negated)
    return matching


def matching_keys(literal: InSet | Like, keys: pa.Array) -> Bits:
    """Which keys, stored as :func:`element_storage` says and none of them NULL, make a literal TRUE, ``bool[m]``."""
    return of_each(keys, partial(_matching, literal))


def _matching(literal: InSet | Like, keys: pa.Array) -> Bits:
    if isinstance(literal, Like):
        return _like(literal, keys)
    if literal.values.is_all or literal.values.is_empty:
        return np.full(len(keys), literal.values.is_all)
    if pa.types.is_large_binary(keys.type):
        return texts_in(keys, literal.values)
    if pa.types.is_decimal(keys.type):
        return in_values(np.array([int(key) for key in keys.to_pylist()], dtype=np.object_), literal.values)
    return in_values(np.asarray(keys), literal.values)
