"""The table that the tests of conditions ask."""

from __future__ import annotations

from layoutopt.model.schema import Column, Schema

TYPES = {
    "i": "int",
    "b": "bigint",
    "d": "date",
    "ts": "timestamp",
    "n": "timestamp_ntz",
    "s": "string",
    "x": "double",
    "f": "float",
    "p": "decimal(15,2)",
    "flag": "boolean",
    "arr": "array<int>",
    "c": "char(3)",
    "l": "string collate UTF8_LCASE",
    "st": "struct<f:int>",
}

SCHEMA = Schema(tuple(Column(name, kind) for name, kind in TYPES.items()))
