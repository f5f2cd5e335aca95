"""The Arrow types of answers, by Spark's type names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from layoutopt.errors import SchemaError
from layoutopt.model.schema import Column
from layoutopt.model.types import VARIANT, decimal_digits, nested_parts, struct_fields

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
    """Return the Arrow type of a Spark type; None for nested and rare types, which keep the type of the file.

    >>> arrow_type("decimal(15,2)"), arrow_type("date"), arrow_type("array<int>")
    (Decimal128Type(decimal128(15, 2)), DataType(date32[day]), None)
    """
    digits = decimal_digits(type_name)
    if digits:
        return pa.decimal128(*digits)
    if re.fullmatch(r"(var)?char\(\d+\)", type_name):
        return pa.string()
    return _SIMPLE.get(type_name)


# The Arrow type of a text column that is read as dictionaries.
CODED: Final = pa.dictionary(pa.int32(), pa.string())


def nested_type(type_name: str) -> pa.DataType:
    """Return the Arrow type of a Spark type of arrays, maps and structs, as Spark writes it to Parquet.

    >>> nested_type("array<struct<a:int,b:map<string,decimal(4,1)>>>")
    ListType(list<element: struct<a: int32, b: map<string, decimal128(4, 1)>>>)

    Raises:
        SchemaError: the type is unknown.
    """
    kind, parts = nested_parts(type_name)
    if kind == "array":
        return pa.list_(pa.field("element", nested_type(parts[0])))
    if kind == "map":
        return pa.map_(nested_type(parts[0]), nested_type(parts[1]))
    if kind == "struct":
        return pa.struct([(name, nested_type(type)) for name, type in struct_fields(type_name)])
    if type_name == VARIANT:
        return pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
    type = pa.string() if type_name.startswith("string collate ") else arrow_type(type_name)
    if type is None:
        raise SchemaError(f"there is no Arrow type for {type_name!r}; remove the column from the query")
    return type


def any_arrow_type(type_name: str) -> pa.DataType:
    """Return the Arrow type of any Spark type; raises as :func:`nested_type`."""
    return arrow_type(type_name) or nested_type(type_name)


def conform(
    columns: Sequence[pa.Array | pa.ChunkedArray], wanted: Sequence[Column]
) -> list[pa.Array | pa.ChunkedArray]:
    """Cast arrays to the Arrow types of their columns; raise ``pyarrow.ArrowInvalid`` instead of rounding."""
    return [conform_one(array, column) for array, column in zip(columns, wanted, strict=True)]


def conform_one(array: pa.Array | pa.ChunkedArray, wanted: Column) -> pa.Array | pa.ChunkedArray:
    """Cast one array as :func:`conform` does."""
    target = arrow_type(wanted.type)
    return array if target is None or array.type == target else array.cast(target)


def empty_table(columns: Sequence[Column]) -> pa.Table:
    """Return a table without rows that has these columns."""
    arrays = [pa.array([], arrow_type(column.type) or pa.null()) for column in columns]
    return pa.Table.from_arrays(arrays, names=[column.name for column in columns])
