"""``gap-list``: the widest gaps between a block's values, for ranges and equality that fall into one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from layoutopt.indexes.lists import contents, list_array, without_any
from layoutopt.indexes.protocol import BlockColumn, Parameter
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.predicates import InSet, Like
from layoutopt.model.values import key_kind
from layoutopt.skipping.zone_maps import overlaps


class GapList:
    """The ranges that are left of a block's values when its widest gaps are taken out (Ta-Shma 2020, IV-C)."""

    parameter = Parameter(16, 1, 1024, "how many gaps of a block are stored")

    def storage(self, type: str) -> pa.DataType | None:
        """The first and the last key of each range, one after the other; of types whose keys are numbers."""
        return pa.large_list(pa.int64()) if key_kind(type) == "int" else None

    def measure(self, column: BlockColumn, parameter: float) -> pa.Array:
        """Each block's ranges, ascending: one more than there are gaps, none where a block has no value.

        NULL where a key of a long decimal takes more than 64 bits.
        """
        found = [_narrow(keys) for keys in column.keys.sorted_by_block()]
        ranges = [None if keys is None else pa.array(ranges_of(keys, int(parameter))) for keys in found]
        return list_array(ranges, pa.int64())

    def serves(self, literal: InSet | Like) -> bool:
        """Sets of values with an end."""
        return isinstance(literal, InSet) and not literal.values.is_all

    def cannot_match(self, literal: InSet | Like, stored: pa.Array, parameter: float) -> Bits:
        """The blocks whose ranges hold none of the literal's values."""
        if isinstance(literal, Like):
            return np.zeros(len(stored), np.bool_)
        ends, offsets = contents(stored)
        low, high = np.asarray(ends)[0::2], np.asarray(ends)[1::2]
        return without_any(overlaps(low, high, literal.values.intervals), offsets // 2, stored)


def _narrow(keys: pa.Array) -> Ints | None:
    """Keys, ascending, as int64; None where one does not fit."""
    if keys.type == pa.int64():
        return np.asarray(keys)
    if not len(keys):
        return np.zeros(0, np.int64)
    halves = np.frombuffer(keys.buffers()[1], "<i8", count=2 * len(keys), offset=16 * keys.offset).reshape(-1, 2)
    low, high = halves[:, 0], halves[:, 1]
    return np.sort(low) if np.array_equal(high, low >> 63) else None


def ranges_of(keys: Ints, gaps: int) -> Ints:
    """The ends of the ranges that hold all keys (ascending, distinct) but none of their widest gaps.

    >>> ranges_of(np.array([1, 2, 10, 20]), 1).tolist()
    [1, 10, 20, 20]
    """
    if not len(keys):
        return keys
    widths = np.diff(keys.view(np.uint64))  # a gap may be wider than int64 has numbers
    # Equal ones by their place, so that the same values give the same ranges.
    widest = np.argsort(np.iinfo(np.uint64).max - widths, kind="stable")[:gaps]
    before = np.sort(widest[widths[widest] > 1])
    inner = np.stack([keys[before], keys[before + 1]], axis=1).ravel()
    return np.concatenate((keys[:1], inner, keys[-1:]))
