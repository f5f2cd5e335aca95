"""Lists of keys, one a block: their storage, and which blocks have a key that matches a literal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.evaluation.keys import key_storage
from layoutopt.evaluation.matching import flags, in_values, like_regex, texts_in_values
from layoutopt.model.arrays import Bits, Ints, reduce_blocks
from layoutopt.model.predicates import InSet, Like
from layoutopt.model.values import key_kind


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
