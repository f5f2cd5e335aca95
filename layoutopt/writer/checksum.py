"""Spark's ``hash()`` (Murmur3_x86_32, seed 42) over Arrow arrays, as whole-array numpy, and checksums made of it.

A column's checksum is the sum over rows of the unsigned 32-bit hash of its value: no order, and a duplicate counts.
NULL hashes to the seed. As in ``org.apache.spark.unsafe.hash.Murmur3_x86_32.hashUnsafeBytes``, the bytes after the last
whole word of a text are mixed one by one, sign-extended, unlike in the reference implementation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.model.arrays import Bytes, Hashes, Ints
from layoutopt.model.types import decimal_digits

SEED = 42
# Rows mixed together: all arrays of one round stay in the second-level cache.
_CHUNK = 16_384
# A text column is hashed by its distinct values where a probe of so many rows has at most half as many of them.
_PROBE = 2_000
_LONG_DECIMAL = 18  # Spark hashes decimals of at most so many digits as a long

_FOUR_BYTES = frozenset({"boolean", "tinyint", "smallint", "int", "date"})
_EIGHT_BYTES = frozenset({"bigint", "timestamp", "timestamp_ntz"})
_TEXTS = frozenset({"string", "binary"})


def is_hashable(type: str) -> bool:
    """Whether :func:`hash_array` knows values of this Spark type (``simpleString``)."""
    return (
        type in _FOUR_BYTES | _EIGHT_BYTES | _TEXTS | {"float", "double"}
        or decimal_digits(type) is not None
        or type.startswith(("varchar(", "char("))
    )


def hash_array(array: pa.Array, type: str) -> Hashes:
    """Spark's ``hash()`` of every value, ``uint32[n]`` (the bit pattern of Spark's int).

    Args:
        array: the values, as Spark hands that type to Arrow.
        type: the Spark type.

    Raises:
        ValueError: a type that is not :func:`is_hashable`.

    >>> hash_array(pa.array(["Spark", None]), "string").view(np.int32).tolist()
    [228093765, 42]
    """
    if not is_hashable(type):
        raise ValueError(f"no hash for the type {type}; sum Spark's own hash() instead")
    if _is_text(array.type) and _repeats(array):
        coded = array.dictionary_encode()
        hashes = np.append(_hash_values(coded.dictionary, type), np.uint32(SEED))
        codes = coded.indices.fill_null(len(hashes) - 1) if coded.null_count else coded.indices
        of_rows: Hashes = hashes[codes.to_numpy()]
        return of_rows
    hashes = _hash_values(array, type)
    if array.null_count:
        hashes[np.asarray(array.is_null())] = SEED
    return hashes


def block_sums(array: pa.Array | pa.ChunkedArray, offsets: Ints, type: str) -> Ints:
    """The checksum of each block, ``int64[n_blocks]``; block i has the rows ``offsets[i] .. offsets[i + 1] - 1``.

    Sums of hashes fit in an int64 below 2**31 rows.
    """
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    hashes = [hash_array(chunk, type) for chunk in chunks if len(chunk)]
    return sums_by_block(np.concatenate([np.zeros(0, np.uint32), *hashes]), offsets)


def sums_by_block(hashes: Hashes, offsets: Ints) -> Ints:
    """The sum of the hashes of each block, ``int64[n_blocks]``; blocks as in :func:`block_sums`."""
    running = np.zeros(int(offsets[-1]) + 1, dtype=np.int64)
    np.cumsum(hashes, dtype=np.int64, out=running[1:])
    return np.diff(running[offsets])


def _is_text(type: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(type)
        or pa.types.is_large_string(type)
        or pa.types.is_binary(type)
        or pa.types.is_large_binary(type)
    )


def _repeats(array: pa.Array) -> bool:
    return len(array) > _PROBE and 2 * pc.count_distinct(array.slice(0, _PROBE)).as_py() <= _PROBE


def _hash_values(array: pa.Array, type: str) -> Hashes:
    """The hashes, with any value where the array is null."""
    if _is_text(array.type):
        return _hash_texts(*_text_buffers(array))
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    if array.null_count:  # the bits below a null are anything
        array = pc.fill_null(array, pa.scalar(0).cast(array.type)) if pa.types.is_integer(array.type) else array
    digits = decimal_digits(type)
    if digits:
        return _hash_decimals(array, digits[0])
    if type in ("float", "double"):
        return hash_words(_float_words(_values(array, np.dtype(array.type.to_pandas_dtype()))))
    if type in _EIGHT_BYTES:
        return hash_words(_long_words(_values(array, np.dtype(np.int64))))
    width = np.dtype(np.int32) if pa.types.is_date32(array.type) else np.dtype(array.type.to_pandas_dtype())
    return hash_words([_values(array, width).astype(np.int32).view(np.uint32)])


def _values(array: pa.Array, dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    """The values of a fixed-width array without copying."""
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array), dtype)
    return np.frombuffer(buffer, dtype, count=len(array), offset=array.offset * dtype.itemsize)


def _long_words(values: npt.NDArray[np.generic]) -> list[Hashes]:
    """The low and the high word of longs, in the order in which ``hashLong`` mixes them."""
    words = np.ascontiguousarray(values).astype("<i8", copy=False).view("<u4")
    return [words[0::2], words[1::2]]


def _float_words(values: npt.NDArray[np.generic]) -> list[Hashes]:
    """The words of ``floatToIntBits``/``doubleToLongBits``: one bit pattern for all NaN, and 0.0 for -0.0."""
    normal = np.where(values == 0, values.dtype.type(0), values)
    normal[np.isnan(normal)] = np.nan
    if normal.dtype == np.float32:
        return [normal.view(np.uint32)]
    return _long_words(normal.view(np.int64))


def _hash_decimals(array: pa.Array, precision: int) -> Hashes:
    """Unscaled values: as longs where they fit by their type, else as the bytes of a ``BigInteger``."""
    halves = np.frombuffer(array.buffers()[1], "<i8", count=2 * len(array), offset=array.offset * 16)
    if precision <= _LONG_DECIMAL:
        return hash_words(_long_words(halves[0::2]))
    return _hash_texts(*_big_integer_bytes(halves))


def _big_integer_bytes(halves: Ints) -> tuple[Bytes, Ints]:
    """``BigInteger.toByteArray`` of 128-bit numbers, ``int64[2 n]``: big-endian, as few bytes as keep the sign."""
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
    """The bytes of a text array and its offsets ``int64[n + 1]``."""
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    width = np.dtype(np.int64 if large else np.int32)
    _, offsets, data = array.buffers()
    if len(array) == 0 or offsets is None:
        return np.zeros(0, np.uint8), np.zeros(len(array) + 1, np.int64)
    starts = np.frombuffer(offsets, width, count=len(array) + 1, offset=array.offset * width.itemsize)
    return np.frombuffer(data or b"", np.uint8), starts.astype(np.int64)


def hash_words(words: Sequence[Hashes]) -> Hashes:
    """The hashes of rows of whole words; ``words[k]`` has each row's k-th, ``uint32[n]``."""
    hashes = np.full(len(words[0]), SEED, np.uint32)
    for start in range(0, len(hashes), _CHUNK):
        part = hashes[start : start + _CHUNK]
        scratch = np.empty_like(part)
        for word in words:
            _mix(part, word[start : start + _CHUNK].copy(), scratch)
        _finish(part, np.uint32(4 * len(words)), scratch)
    return hashes


def _hash_texts(data: Bytes, offsets: Ints) -> Hashes:
    """The hashes of byte strings; the i-th is ``data[offsets[i] : offsets[i + 1]]``."""
    hashes = np.empty(len(offsets) - 1, np.uint32)
    for start in range(0, len(hashes), _CHUNK):
        stop = min(start + _CHUNK, len(hashes))
        hashes[start:stop] = _hash_some_texts(data, offsets[start : stop + 1])
    return hashes


def _hash_some_texts(data: Bytes, offsets: Ints) -> Hashes:
    lengths = np.diff(offsets)
    longest_first = np.argsort(-lengths, kind="stable")
    lengths = lengths[longest_first]
    starts = offsets[:-1][longest_first] - offsets[0]
    # Three more bytes, so that a word can be read at any byte.
    padded = np.concatenate([data[offsets[0] : offsets[-1]], np.zeros(4, np.uint8)])
    hashes = np.full(len(lengths), SEED, np.uint32)
    scratch = np.empty_like(hashes)
    _mix_whole_words(hashes, padded, starts, lengths // 4, scratch)
    _mix_tails(hashes, padded, starts + lengths // 4 * 4, lengths % 4, scratch)
    _finish(hashes, lengths.astype(np.uint32), scratch)
    in_order = np.empty_like(hashes)
    in_order[longest_first] = hashes
    return in_order


def _mix_whole_words(hashes: Hashes, data: Bytes, starts: Ints, n_words: Ints, scratch: Hashes) -> None:
    """Mix each text's whole words into its hash; texts come longest first, so those with a k-th word are a prefix."""
    words = np.ndarray(len(data) - 3, dtype="<u4", buffer=data, strides=(1,))
    most = int(n_words[0]) if len(n_words) else 0
    having = np.searchsorted(-n_words, -np.arange(1, most + 1), side="right")
    for k, n in enumerate(having.tolist()):
        _mix(hashes[:n], words[starts[:n] + 4 * k], scratch[:n])


def _mix_tails(hashes: Hashes, data: Bytes, starts: Ints, sizes: Ints, scratch: Hashes) -> None:
    """Mix the up to three bytes after the whole words, each alone and with its sign."""
    for k in range(3):
        having = np.flatnonzero(sizes > k)
        part = hashes[having]
        signed = data[starts[having] + k].view(np.int8).astype(np.int32).view(np.uint32)
        _mix(part, signed, scratch[: len(part)])
        hashes[having] = part


def _mix(hashes: Hashes, words: Hashes, scratch: Hashes) -> None:
    """``mixK1`` and ``mixH1`` in place; ``words`` is spoilt."""
    np.multiply(words, np.uint32(0xCC9E2D51), out=words)
    _rotate(words, 15, scratch)
    np.multiply(words, np.uint32(0x1B873593), out=words)
    np.bitwise_xor(hashes, words, out=hashes)
    _rotate(hashes, 13, scratch)
    np.multiply(hashes, np.uint32(5), out=hashes)
    np.add(hashes, np.uint32(0xE6546B64), out=hashes)


def _rotate(values: Hashes, bits: int, scratch: Hashes) -> None:
    np.left_shift(values, np.uint32(bits), out=scratch)
    np.right_shift(values, np.uint32(32 - bits), out=values)
    np.bitwise_or(values, scratch, out=values)


def _finish(hashes: Hashes, lengths: np.uint32 | Hashes, scratch: Hashes) -> None:
    """``fmix`` in place; ``lengths`` in bytes."""
    np.bitwise_xor(hashes, lengths, out=hashes)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        np.right_shift(hashes, np.uint32(shift), out=scratch)
        np.bitwise_xor(hashes, scratch, out=hashes)
        np.multiply(hashes, np.uint32(factor), out=hashes)
    np.right_shift(hashes, np.uint32(16), out=scratch)
    np.bitwise_xor(hashes, scratch, out=hashes)
