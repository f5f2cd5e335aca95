"""Compute Spark's ``hash()`` (Murmur3_x86_32, seed 42) over Arrow arrays, and checksums from it.

A column's checksum is the sum over rows of the unsigned 32-bit hash of its value. It does not depend on the order of
rows, and it counts duplicates. NULL hashes to the seed.

Such a checksum does not notice rows that swapped their tids. So a second one sums ``hash(tid, value)``: Spark's hash
of the long with the tid in the low half and the value's hash in the high half. Spark hashes nested values without
their lengths, and no maps; their hashes are defined here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.evaluation.arrow_types import any_arrow_type
from layoutopt.evaluation.murmur3 import SEED, hash_joined, hash_texts, hash_words, scramble_words, start_states
from layoutopt.model.arrays import Bits, Bytes, Hashes, Ints, Places, reduce_blocks
from layoutopt.model.types import VARIANT, decimal_digits

# A text column is hashed by its distinct values if at most half of this many first values are distinct.
_PROBED_VALUES = 2_000
# Spark hashes decimals of at most this many digits as a long.
_LONG_DECIMAL = 18

_FOUR_BYTES = frozenset({"boolean", "tinyint", "smallint", "int", "date"})
_EIGHT_BYTES = frozenset({"bigint", "timestamp", "timestamp_ntz"})
_TEXTS = frozenset({"string", "binary"})

__all__ = [
    "Positions",
    "hash_array",
    "hash_with_positions",
    "is_hashable",
    "is_summable",
    "scramble_words",
    "sum_with_positions",
    "sums_by_block",
    "value_hashes",
]
_LEAF_TYPES = {
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


def is_hashable(type: str) -> bool:
    """Return whether :func:`hash_array` supports this Spark type (``simpleString``)."""
    return (
        type in _FOUR_BYTES | _EIGHT_BYTES | _TEXTS | {"float", "double"}
        or decimal_digits(type) is not None
        or type.startswith(("varchar(", "char("))
    )


def is_summable(type: str) -> bool:
    """Return whether :func:`value_hashes` supports this Spark type: hashable ones, and lists, maps and structs of them.

    >>> is_summable("array<struct<a:int,b:decimal(4,1)>>"), is_summable("variant"), is_summable("interval month")
    (True, False, False)
    """
    if is_hashable(type):
        return True
    if VARIANT in type or "collate" in type or "interval" in type:
        return False
    return _hash_nested(pa.array([None], any_arrow_type(type))) is not None


def hash_array(array: pa.Array, type: str) -> Hashes:
    """Return Spark's ``hash()`` of every value, ``uint32[n]`` (the bit pattern of Spark's int).

    The array may be a dictionary.

    Raises:
        ValueError: the type is not :func:`is_hashable`.

    >>> hash_array(pa.array(["Spark", None]), "string").view(np.int32).tolist()
    [228093765, 42]
    """
    if not is_hashable(type):
        raise ValueError(f"type {type} has no hash: use Spark's hash() instead")
    is_long_text = _is_text(array.type) and len(array) > _PROBED_VALUES
    if is_long_text and 2 * pc.count_distinct(array.slice(0, _PROBED_VALUES)).as_py() <= _PROBED_VALUES:
        array = array.dictionary_encode()
    if pa.types.is_dictionary(array.type):
        hashes = np.append(hash_array(array.dictionary, type), np.uint32(SEED))
        codes = array.indices.fill_null(len(hashes) - 1) if array.null_count else array.indices
        places: Places = codes.to_numpy().astype(np.intp)
        return hashes[places]
    hashes = _hash_values(array, type)
    if array.null_count:
        hashes[np.asarray(array.is_null())] = SEED
    return hashes


def block_sums(array: pa.Array | pa.ChunkedArray, offsets: Ints, type: str) -> Ints:
    """Return the checksum of each block, ``int64[n_blocks]``; block i has rows ``offsets[i] .. offsets[i + 1] - 1``.

    Sums of hashes fit in an int64 below 2**31 rows.
    """
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    hashes = [hash_array(chunk, type) for chunk in chunks if len(chunk)]
    return sums_by_block(np.concatenate([np.zeros(0, np.uint32), *hashes]), offsets)


def sums_by_block(hashes: npt.NDArray[np.integer] | Bits, offsets: Ints) -> Ints:
    """Return the sum of hashes or other numbers of each block, ``int64[n_blocks]``; see :func:`block_sums`."""
    return reduce_blocks(np.add, hashes, offsets)


def _is_text(type: pa.DataType) -> bool:
    return type in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def _hash_values(array: pa.Array, type: str) -> Hashes:
    """Return the hashes, undefined where the array is null."""
    if _is_text(array.type):
        return hash_texts(*_text_buffers(array))
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    if array.null_count:  # the bits under a null are undefined
        array = pc.fill_null(array, pa.scalar(0).cast(array.type)) if pa.types.is_integer(array.type) else array
    digits = decimal_digits(type)
    if digits:
        return _hash_decimals(array, digits[0])
    if type in ("float", "double"):
        return hash_words(_float_words(_values_of(array, np.dtype(array.type.to_pandas_dtype()))))
    if type in _EIGHT_BYTES:
        return _hash_integers(_values_of(array, np.dtype(np.int64)))
    width = np.dtype(np.int32) if pa.types.is_date32(array.type) else np.dtype(array.type.to_pandas_dtype())
    return _hash_integers(_values_of(array, width).astype(np.int32, copy=False))


def _hash_integers(values: npt.NDArray[Any]) -> Hashes:
    """Return the hashes of int32[n] or int64[n]; a narrow range of values is hashed once and looked up."""
    if len(values) > _PROBED_VALUES:
        lowest, highest = int(values.min()), int(values.max())
        if highest - lowest < len(values) // 4:
            hashes = _hash_integers(np.arange(lowest, highest + 1, dtype=values.dtype))
            places: Places = np.subtract(values, lowest, dtype=np.intp)
            return hashes[places]
    if values.dtype == np.int64:
        return hash_words(_long_words(values))
    return hash_words([values.view(np.uint32)])


def _values_of(array: pa.Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array), dtype)
    return np.frombuffer(buffer, dtype, count=len(array), offset=array.offset * dtype.itemsize)


def _long_words(values: npt.NDArray[Any]) -> list[Hashes]:
    """Return the low and the high word of longs, in the order in which ``hashLong`` mixes them."""
    words = np.ascontiguousarray(values).astype("<i8", copy=False).view("<u4")
    return [words[0::2], words[1::2]]


def _float_words(values: npt.NDArray[Any]) -> list[Hashes]:
    """Return the words of ``floatToIntBits``/``doubleToLongBits``: one bit pattern for all NaN, and 0.0 for -0.0."""
    normal = values + values.dtype.type(0)  # which of -0.0 and 0.0 makes 0.0
    nan = np.isnan(normal)
    if nan.any():
        normal[nan] = np.nan
    if normal.dtype == np.float32:
        return [normal.view(np.uint32)]
    return _long_words(normal.view(np.int64))


def _hash_decimals(array: pa.Array, precision: int) -> Hashes:
    """Hash unscaled values: as longs where the type fits, else as the bytes of a ``BigInteger``."""
    halves = np.frombuffer(array.buffers()[1], "<i8", count=2 * len(array), offset=array.offset * 16)
    if precision <= _LONG_DECIMAL:
        return _hash_integers(halves[0::2].astype(np.int64))
    return hash_texts(*_big_integer_bytes(halves))


def _big_integer_bytes(halves: Ints) -> tuple[Bytes, Ints]:
    """Return ``BigInteger.toByteArray`` of 128-bit numbers, ``int64[2 n]``: big-endian, with the sign kept."""
    big_endian = halves.view(np.uint8).reshape(-1, 16)[:, ::-1]
    fill = np.where(big_endian[:, :1] >= 128, 255, 0).astype(np.uint8)
    differs = big_endian != fill
    first = np.where(differs.any(axis=1), differs.argmax(axis=1), 15)
    leading = np.take_along_axis(big_endian, first[:, None], axis=1)[:, 0]
    needs_sign = ((leading ^ fill[:, 0]) >= 128) & differs.any(axis=1)
    first = first - needs_sign
    kept = np.arange(16) >= first[:, None]
    return big_endian[kept], np.concatenate(([0], np.cumsum(16 - first)))


def _text_buffers(array: pa.Array) -> tuple[Bytes, Ints]:
    """Return the bytes of a text array and its offsets ``int64[n + 1]``."""
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    width = np.dtype(np.int64 if large else np.int32)
    _, offsets, data = array.buffers()
    if len(array) == 0 or offsets is None:
        return np.zeros(0, np.uint8), np.zeros(len(array) + 1, np.int64)
    starts = np.frombuffer(offsets, width, count=len(array) + 1, offset=array.offset * width.itemsize)
    return np.frombuffer(data or b"", np.uint8), starts.astype(np.int64)


def value_hashes(column: pa.ChunkedArray, type: str) -> Hashes | None:
    """Return a hash of every value, ``uint32[n]``; None for a type without one, such as an interval."""
    hashes = [np.zeros(0, np.uint32)]
    for chunk in column.chunks:
        if len(chunk):
            chunk_hashes = hash_array(chunk, type) if is_hashable(type) else _hash_nested(chunk)
            if chunk_hashes is None:
                return None
            hashes.append(chunk_hashes)
    return np.concatenate(hashes)


def hash_with_positions(hashes: Hashes, tids: npt.NDArray[np.integer]) -> Hashes:
    """Return hash(tid, value) from the hashes of values and their rows' tids, ``uint32[n]``.

    >>> hash_with_positions(np.array([7, 7], np.uint32), np.array([0, 1])).tolist()
    [3609916043, 3314335178]
    """
    return hash_words([tids.astype(np.uint32), hashes])


class Positions:
    """The tids of rows, mixed once for all columns that are hashed with them."""

    def __init__(self, tids: npt.NDArray[np.integer]) -> None:
        self._states = start_states(tids.astype(np.uint32))

    def hashes(self, scrambled_hashes: Hashes) -> Hashes:
        """Return :func:`hash_with_positions` from :func:`~layoutopt.evaluation.murmur3.scramble_words` hashes.

        >>> Positions(np.array([0, 1])).hashes(scramble_words(np.array([7, 7], np.uint32))).tolist()
        [3609916043, 3314335178]
        """
        return hash_joined(self._states, scrambled_hashes)


def sum_with_positions(hashes: Hashes, positions: Positions, offsets: Ints) -> Ints:
    """Return the sum of hash(tid, value) of each block, ``int64[n_blocks]``."""
    return sums_by_block(positions.hashes(scramble_words(hashes)), offsets)


def _hash_nested(array: pa.Array) -> Hashes | None:
    type = array.type
    if pa.types.is_struct(type):
        hashes = _hash_struct([array.field(i) for i in range(type.num_fields)], len(array))
    elif pa.types.is_list(type) or pa.types.is_large_list(type) or pa.types.is_map(type):
        hashes = _hash_lists(array)
    else:
        leaf = _leaf_type(type)
        return None if leaf is None else hash_array(array, leaf)
    if hashes is not None and array.null_count:
        hashes[np.asarray(array.is_null())] = SEED
    return hashes


def _leaf_type(type: pa.DataType) -> str | None:
    if pa.types.is_timestamp(type):
        return "timestamp"
    if pa.types.is_decimal128(type):
        return f"decimal({type.precision},{type.scale})"
    return _LEAF_TYPES.get(type)


def _hash_struct(fields: Sequence[pa.Array], n: int) -> Hashes | None:
    words = [np.ones(n, np.uint32)]  # a struct of NULLs is not NULL
    for field in fields:
        hashes = _hash_nested(field)
        if hashes is None:
            return None
        words.append(hashes)
    return hash_words(words)


def _hash_lists(array: pa.Array) -> Hashes | None:
    """Hash each list by its length and the sum of its values' hashes with their positions."""
    offsets = np.asarray(array.offsets, dtype=np.int64)
    values = array.values.slice(offsets[0], offsets[-1] - offsets[0])
    hashes = _hash_nested(values)
    if hashes is None:
        return None
    offsets, lengths = offsets - offsets[0], np.diff(offsets)
    places = np.arange(len(hashes)) - np.repeat(offsets[:-1], lengths)
    sums = sums_by_block(hash_with_positions(hashes, places), offsets)
    return hash_words([lengths.astype(np.uint32), sums.astype(np.uint32)])
