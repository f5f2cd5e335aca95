"""Checksums of where values stand: sums of hash(tid, value), which notice two rows that swapped their tids.

A column's plain checksum is the same whatever tids its values have, so it says nothing of rows put together from
several layouts. Here each value is hashed with its row's position in the segment: Spark's ``hash()`` of the
long whose low half is the tid and whose high half is the value's hash. A value's hash is Spark's own where
:func:`~layoutopt.writer.checksum.is_hashable`; nested values, which Spark hashes without their lengths and not at all
where they hold maps, have one of ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from layoutopt.indexes.murmur3 import SEED, hash_joined, hash_words, joined, scrambled
from layoutopt.model.arrays import Hashes, Ints
from layoutopt.writer.checksum import hash_array, is_hashable, sums_by_block

__all__ = ["Positions", "at_positions", "position_sums", "scrambled", "value_hashes"]

_LEAVES = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
}


def value_hashes(column: pa.ChunkedArray, type: str) -> Hashes | None:
    """A hash of every value, ``uint32[n]``; None for a type that has none (an interval, say).

    Args:
        column: the values.
        type: their Spark type.
    """
    found = [hash_array(c, type) if is_hashable(type) else _hash_any(c) for c in column.chunks if len(c)]
    known = [hashes for hashes in found if hashes is not None]
    return np.concatenate([np.zeros(0, np.uint32), *known]) if len(known) == len(found) else None


def at_positions(hashes: Hashes, tids: npt.NDArray[np.integer]) -> Hashes:
    """hash(tid, value) from the hashes of values and the tids of their rows, ``uint32[n]``.

    >>> at_positions(np.array([7, 7], np.uint32), np.array([0, 1])).tolist()
    [3609916043, 3314335178]
    """
    return hash_words([tids.astype(np.uint32), hashes])


class Positions:
    """The tids of rows, mixed once for all the columns that are hashed with them.

    Args:
        tids: of each row.
    """

    def __init__(self, tids: npt.NDArray[np.integer]) -> None:
        self._states = joined(tids.astype(np.uint32))

    def hashes(self, scrambled_hashes: Hashes) -> Hashes:
        """:func:`at_positions` of values of which :func:`~layoutopt.indexes.murmur3.scrambled` hashes are given.

        >>> Positions(np.array([0, 1])).hashes(scrambled(np.array([7, 7], np.uint32))).tolist()
        [3609916043, 3314335178]
        """
        return hash_joined(self._states, scrambled_hashes)


def position_sums(hashes: Hashes, positions: Positions, offsets: Ints) -> Ints:
    """The sum of hash(tid, value) of each block, ``int64[n_blocks]``; block i has rows ``offsets[i]`` and after."""
    return sums_by_block(positions.hashes(scrambled(hashes)), offsets)


def _hash_any(array: pa.Array) -> Hashes | None:
    """A hash of values of any Arrow type; None where there is none."""
    type = array.type
    if pa.types.is_struct(type):
        hashes = _hash_struct([array.field(i) for i in range(type.num_fields)], len(array))
    elif pa.types.is_list(type) or pa.types.is_large_list(type) or pa.types.is_map(type):
        hashes = _hash_lists(array)
    else:
        leaf = _leaf(type)
        return None if leaf is None else hash_array(array, leaf)
    if hashes is not None and array.null_count:
        hashes[np.asarray(array.is_null())] = SEED
    return hashes


def _leaf(type: pa.DataType) -> str | None:
    """The Spark type as which values of an Arrow type are hashed."""
    if pa.types.is_timestamp(type):
        return "timestamp"
    if pa.types.is_decimal128(type):
        return f"decimal({type.precision},{type.scale})"
    return _LEAVES.get(type)


def _hash_struct(fields: Sequence[pa.Array], n: int) -> Hashes | None:
    words = [np.ones(n, np.uint32)]  # a struct of NULLs is none itself
    for field in fields:
        hashes = _hash_any(field)
        if hashes is None:
            return None
        words.append(hashes)
    return hash_words(words)


def _hash_lists(array: pa.Array) -> Hashes | None:
    """Each list by its length and the sum of its values' hashes at their places."""
    offsets = np.asarray(array.offsets, dtype=np.int64)
    values = array.values.slice(offsets[0], offsets[-1] - offsets[0])
    hashes = _hash_any(values)
    if hashes is None:
        return None
    offsets, lengths = offsets - offsets[0], np.diff(offsets)
    places = np.arange(len(hashes)) - np.repeat(offsets[:-1], lengths)
    sums = sums_by_block(at_positions(hashes, places), offsets)
    return hash_words([lengths.astype(np.uint32), sums.astype(np.uint32)])
