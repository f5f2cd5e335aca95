"""Lists of keys, one a block: how they are stored, and which blocks have a key that matters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.keys import key_storage
from layoutopt.catalog.statistics import reduce_blocks
from layoutopt.indexes.membership import flags, in_values, like_regex, texts_in
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.predicates import InSet, Like
from layoutopt.model.values import key_kind


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
