"""Column statistics of blocks: nulls, NaNs, smallest and largest key, measured on whole arrays."""

from __future__ import annotations

import pyarrow as pa

from layoutopt.model.schema import Schema
from layoutopt.model.values import key_kind

_WIDE_DECIMAL = pa.decimal128(38, 0)
FLOATS = ("float", "double")


def key_storage(type: str) -> pa.DataType | None:
    """How the keys of a Spark type are stored in Arrow; None where it has no order.

    >>> key_storage("date"), key_storage("decimal(38,2)"), key_storage("array<int>")
    (DataType(int64), Decimal128Type(decimal128(38, 0)), None)
    """
    kind = key_kind(type)
    if kind == "int":
        return _WIDE_DECIMAL if _precision(type) > 18 else pa.int64()
    return {"str": pa.string(), "bytes": pa.binary()}.get(kind or "")


def _precision(type: str) -> int:
    """Digits of a decimal type; 0 for other types."""
    return int(type.removeprefix("decimal(").split(",")[0]) if type.startswith("decimal(") else 0


def statistics_type(schema: Schema) -> pa.StructType:
    """The Arrow type of ``stats``: per column a struct of nulls, nans (floats only), min and max (orderable types only), bytes, sum.

    All are nullable: null means unknown. ``min`` and ``max`` are keys, ``bytes`` the compressed column chunk, ``sum`` the
    column's checksum.
    """
    return pa.struct([pa.field(f"c{i}", column_statistics_type(column.type)) for i, column in enumerate(schema.columns)])


def column_statistics_type(type: str) -> pa.StructType:
    """The Arrow type of one column's statistics."""
    storage = key_storage(type)
    fields = [pa.field("nulls", pa.int64())]
    if type in FLOATS:
        fields.append(pa.field("nans", pa.int64()))
    if storage is not None:
        fields += [pa.field("min", storage), pa.field("max", storage)]
    return pa.struct([*fields, pa.field("bytes", pa.int64()), pa.field("sum", pa.int64())])
