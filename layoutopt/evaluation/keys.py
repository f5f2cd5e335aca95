"""Keys of whole Arrow columns (:mod:`layoutopt.model.values`), never row by row."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.errors import SchemaError
from layoutopt.model.arrays import Bits, Ints, Keys
from layoutopt.model.records import short
from layoutopt.model.types import decimal_digits
from layoutopt.model.values import float_keys, key_kind

FLOATS = ("float", "double")
_WIDE_DECIMAL = pa.decimal128(38, 0)
INTEGERS = ("tinyint", "smallint", "int", "bigint")
# A decimal of at most 18 digits has its unscaled value in the low word of its 128 bits.
_NARROW_DIGITS = 18

ArrowValues: TypeAlias = pa.Array | pa.ChunkedArray


def key_storage(type: str) -> pa.DataType | None:
    """Return the Arrow type that stores the keys of a Spark type; None where it has no order.

    >>> key_storage("date"), key_storage("decimal(38,2)"), key_storage("array<int>")
    (DataType(int64), Decimal128Type(decimal128(38, 0)), None)
    """
    kind = key_kind(type)
    if kind == "int":
        return _WIDE_DECIMAL if is_wide_decimal(type) else pa.int64()
    return {"str": pa.string(), "bytes": pa.binary()}.get(kind or "")


def is_wide_decimal(type: str) -> bool:
    """Return whether the type is a decimal whose unscaled values may need more than 64 bits."""
    digits = decimal_digits(type)
    return digits is not None and digits[0] > _NARROW_DIGITS


def key_array(array: ArrowValues, type: str) -> Keys:
    """Return the keys of a column, shape [rows]: int64 where 64 bits hold them, else objects of int, str or bytes.

    The key of a null, or of text that is no UTF-8, is 0, "" or b"": ask :func:`has_key`. Raises as :func:`stored_keys`.
    """
    stored = stored_keys(array, type)
    if stored.type == pa.int64():
        return np.asarray(fill_nulls(stored, 0))
    keys = np.empty(len(stored), dtype=np.object_)
    if key_kind(type) == "int":
        keys[:] = [int(value or 0) for value in stored.to_pylist()]
    elif key_kind(type) == "str":
        keys[:] = [decode_text(value) or "" for value in stored.to_pylist()]
    else:
        keys[:] = [value or b"" for value in stored.to_pylist()]
    return keys


def has_key(array: ArrowValues, type: str) -> Bits:
    """Return which values of a column of an ordered type have a key, bool[rows]: no nulls, no text that is no UTF-8.

    Spark orders texts by their bytes, and no str sorts like invalid bytes: U+DCFF sorts below U+1F600, but 0xFF above
    its bytes. Such values are unknown, and unknown never skips.
    """
    if key_kind(type) == "str":
        return np.array(
            [decode_text(value) is not None for value in stored_keys(array, type).to_pylist()], dtype=np.bool_
        )
    return np.asarray(array.is_valid())


def decode_text(value: bytes | None) -> str | None:
    """Return the text of UTF-8 bytes; None for None and for bytes that are no UTF-8."""
    try:
        return None if value is None else value.decode("utf-8")
    except UnicodeDecodeError:
        return None


def stored_keys(array: ArrowValues, type: str) -> pa.Array:
    """Return the keys of a column as Arrow with its nulls: int64, decimal128(38, 0), or large_binary for texts.

    Texts become UTF-8 bytes, even invalid ones. Raises SchemaError if the type has no order, or values of another type.
    """
    if key_kind(type) is None:
        raise SchemaError(f"the type {type!r} has no order, so its values have no keys; leave the column out")
    try:
        return _stored_keys(array, type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"values of {array.type} can't be read as {type!r} ({short(str(error))}); load them under their own type"
        ) from error


def _stored_keys(array: ArrowValues, type: str) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if key_kind(type) in ("str", "bytes"):
        return one_chunk(array.cast(pa.large_binary()))
    if type == "boolean":
        return one_chunk(array.cast(pa.bool_()).cast(pa.int64()))
    if type in INTEGERS:
        return one_chunk(array.cast(pa.int64()))
    if type == "date":
        return one_chunk(array.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()))
    if type in ("timestamp", "timestamp_ntz"):
        zone = array.type.tz if pa.types.is_timestamp(array.type) else None
        return one_chunk(array.cast(pa.timestamp("us", zone)).cast(pa.int64()))
    if type in FLOATS:
        values = one_chunk(array.cast(pa.float64()))
        return _mask_like(values, float_keys(np.asarray(fill_nulls(values, 0.0))))
    digits = decimal_digits(type)
    assert digits is not None, type  # the last type with int keys
    return _unscaled(one_chunk(array.cast(pa.decimal128(*digits))), type)


def one_chunk(array: ArrowValues) -> pa.Array:
    """Return the values as one array; zero-copy for at most one chunk."""
    if not isinstance(array, pa.ChunkedArray):
        return array
    if array.num_chunks == 1:
        return array.chunk(0)
    return pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)


def dense_ranks(values: pa.Array) -> tuple[pa.Array, Ints]:
    """Return distinct stored keys in their order, and the rank of each in place, ``int64[n]``."""
    in_order = pc.sort_indices(values)
    rank = np.empty(len(values), dtype=np.int64)
    rank[np.asarray(in_order)] = np.arange(len(values))
    return values.take(in_order), rank


def fill_nulls(values: pa.Array, value: float) -> pa.Array:
    """Return the numbers with a value for each null; without nulls, the same array."""
    return pc.fill_null(values, value) if values.null_count else values


def _mask_like(values: pa.Array, keys: Ints) -> pa.Array:
    """Return keys as Arrow, null where the values are."""
    return pa.array(keys, mask=np.asarray(values.is_null()) if values.null_count else None)


def _unscaled(values: pa.Array, type: str) -> pa.Array:
    """Return decimals as their unscaled integers, as a new view of the same 128 bits."""
    if is_wide_decimal(type):
        return pa.Array.from_buffers(_WIDE_DECIMAL, len(values), values.buffers(), offset=values.offset)
    words = np.frombuffer(values.buffers()[1], dtype="<i8").reshape(-1, 2)
    unscaled = words[values.offset : values.offset + len(values), 0]
    return _mask_like(values, unscaled)
