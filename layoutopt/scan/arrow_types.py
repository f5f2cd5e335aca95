"""The Arrow types in which answers come back, by Spark's type names."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from layoutopt.model.schema import Column

_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}


def arrow_type(type_name: str) -> pa.DataType | None:
    """The Arrow type of a Spark type; None for nested and rare ones, which are handed on as the file has them.

    >>> arrow_type("decimal(15,2)"), arrow_type("date"), arrow_type("array<int>")
    (Decimal128Type(decimal128(15, 2)), DataType(date32[day]), None)
    """
    decimal = re.fullmatch(r"decimal\((\d+),(\d+)\)", type_name)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if re.fullmatch(r"(var)?char\(\d+\)", type_name):
        return pa.string()
    return _SIMPLE.get(type_name)


def conform(
    columns: Sequence[pa.Array | pa.ChunkedArray], wanted: Sequence[Column]
) -> list[pa.Array | pa.ChunkedArray]:
    """Arrays cast to the Arrow types of the columns that they stand for; exact, never rounding.

    Raises:
        pyarrow.ArrowInvalid: a value does not fit its type.
    """
    return [_cast(array, arrow_type(column.type)) for array, column in zip(columns, wanted, strict=True)]


def _cast(array: pa.Array | pa.ChunkedArray, target: pa.DataType | None) -> pa.Array | pa.ChunkedArray:
    return array if target is None or array.type == target else array.cast(target)


def empty_table(columns: Sequence[Column]) -> pa.Table:
    """A table without rows that has these columns."""
    arrays = [pa.array([], arrow_type(column.type) or pa.null()) for column in columns]
    return pa.Table.from_arrays(arrays, names=[column.name for column in columns])
