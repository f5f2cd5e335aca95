"""``gap-list``: the widest gaps between a block's values, for ranges and equality within a gap."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from layoutopt.indexes.lists import find_blocks_without, flatten_lists, list_array
from layoutopt.indexes.protocol import BlockColumn, Parameter
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.predicates import InSet, Like
from layoutopt.model.values import key_kind
from layoutopt.skipping.zone_maps import overlaps


class GapList:
    """The ranges of a block's values between its widest gaps (Ta-Shma 2020, IV-C)."""

    parameter = Parameter(16, 1, 1024, "how many gaps of a block are stored")

    def storage(self, type: str) -> pa.DataType | None:
        """Return the type of the ranges' ends, for types with integer keys."""
        return pa.large_list(pa.int64()) if key_kind(type) == "int" else None

    def measure(self, column: BlockColumn, parameter: float) -> pa.Array:
        """Return each block's sorted ranges, one more than its gaps; NULL if a decimal key exceeds 64 bits."""
        narrow = (_narrow(keys) for keys in column.keys.sorted_by_block())
        ranges = [None if keys is None else pa.array(find_ranges(keys, int(parameter))) for keys in narrow]
        return list_array(ranges, pa.int64())

    def serves(self, literal: InSet | Like) -> bool:
        """Return whether the literal is a set of values with an end."""
        return isinstance(literal, InSet) and not literal.values.is_all

    def cannot_match(self, literal: InSet | Like, stored: pa.Array, parameter: float) -> Bits:
        """Return the blocks whose ranges hold none of the literal's values."""
        if isinstance(literal, Like):
            return np.zeros(len(stored), np.bool_)
        ends, offsets = flatten_lists(stored)
        low, high = np.asarray(ends)[0::2], np.asarray(ends)[1::2]
        return find_blocks_without(overlaps(low, high, literal.values.intervals), offsets // 2, stored)


def _narrow(keys: pa.Array) -> Ints | None:
    """Return ascending keys as int64; None if one does not fit."""
    if keys.type == pa.int64():
        return np.asarray(keys)
    if not len(keys):
        return np.zeros(0, np.int64)
    halves = np.frombuffer(keys.buffers()[1], "<i8", count=2 * len(keys), offset=16 * keys.offset).reshape(-1, 2)
    low, high = halves[:, 0], halves[:, 1]
    return np.sort(low) if np.array_equal(high, low >> 63) else None


def find_ranges(keys: Ints, gaps: int) -> Ints:
    """Return the ends of the ranges that hold all keys (ascending, distinct) without their widest gaps.

    >>> find_ranges(np.array([1, 2, 10, 20]), 1).tolist()
    [1, 10, 20, 20]
    """
    if not len(keys):
        return keys
    widths = np.diff(keys.view(np.uint64))  # a gap may exceed int64
    # A stable sort, so that the same values give the same ranges.
    widest = np.argsort(np.iinfo(np.uint64).max - widths, kind="stable")[:gaps]
    before = np.sort(widest[widths[widest] > 1])
    inner = np.stack([keys[before], keys[before + 1]], axis=1).ravel()
    return np.concatenate((keys[:1], inner, keys[-1:]))
