"""Rows of every type that other formats have, with the values that make statistics wrong."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa

from layoutopt.model.schema import Column, Schema

NAN, INF = math.nan, math.inf
_MICROSECONDS = (0, 1, 999, 1000, 1001, -1, 86_399_999_999)
_T = dt.datetime(2020, 1, 1)

POOLS: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "id": ("int", pa.int32(), list(range(40))),
    "big": ("bigint", pa.int64(), [2**62 + 1, 2**62, -(2**63), 2**63 - 1, 0, 2**53 + 1]),
    "tiny": ("tinyint", pa.int8(), [-128, 0, 7, 127]),
    "x": ("double", pa.float64(), [NAN, INF, -INF, -0.0, 0.0, 1.5, -1.5, 5e-324, 1e300, 0.1]),
    "f": ("float", pa.float32(), [NAN, INF, -0.0, 0.0, 0.5, 0.10000000149011612, -3.25]),
    "s": ("string", pa.string(), ["", "a", "b", "é", "\U0010ffff", "\ud7ff", 'q"\\', "z" * 80, "z" * 79 + "y", "0"]),
    "day": (
        "date",
        pa.date32(),
        [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(9999, 12, 31)],
    ),
    "at": (
        "timestamp",
        pa.timestamp("us", "UTC"),
        [
            (_T + dt.timedelta(microseconds=us)).replace(tzinfo=dt.UTC)
            for us in (0, 1, 999, 1000, 1001, -1, 86_399_999_999)
        ],
    ),
    "local": (
        "timestamp_ntz",
        pa.timestamp("us"),
        [_T + dt.timedelta(microseconds=us) for us in _MICROSECONDS],
    ),
    "price": ("decimal(9,2)", pa.decimal128(9, 2), [Decimal(v) for v in ("0.00", "-0.01", "9999999.99", "12.34")]),
    "wide": (
        "decimal(20,3)",
        pa.decimal128(20, 3),
        [Decimal(v) for v in ("99999999999999999.999", "12345678901234567.123", "12345678901234567.124", "-0.001")],
    ),
    "flag": ("boolean", pa.bool_(), [True, False]),
    "raw": ("binary", pa.binary(), [b"", b"\xff" * 70, b"a", b"\x00"]),
    "p": ("string", pa.string(), ["a/b=c d", "é%41", "z", "y" * 70]),
}

NESTED = {
    "list": ("array<struct<a:int,b:string>>", pa.list_(pa.struct([("a", pa.int32()), ("b", pa.string())]))),
    "map": ("map<string,int>", pa.map_(pa.string(), pa.int32())),
    "pair": ("struct<u:int,v:double>", pa.struct([("u", pa.int32()), ("v", pa.float64())])),
}

SCHEMA = Schema(
    tuple(Column(name, kind) for name, (kind, *_) in POOLS.items())
    + tuple(Column(name, kind) for name, (kind, _) in NESTED.items())
)


def typed_rows(n: int, seed: int) -> pa.Table:
    """Rows of :data:`SCHEMA`, an eighth of the values NULL; ``id`` is the row's number."""
    chance = random.Random(seed)
    columns: dict[str, pa.Array] = {}
    for name, (_, type, pool) in POOLS.items():
        # A few values a run of rows, so that files differ and can be skipped.
        values = [None if chance.random() < 0.125 else chance.choice(pool[(i // 5) % 3 :: 3] or pool) for i in range(n)]
        columns[name] = pa.array(range(n) if name == "id" else values, type)
    # No NULL list of structs: pyiceberg reads an empty one, of its own files too.
    nested: dict[str, list[Any]] = {
        "list": [[{"a": 1, "b": None}], []],
        "map": [[("k", 1)], None],
        "pair": [{"u": 1, "v": NAN}, None],
    }
    for name, (_, type) in NESTED.items():
        columns[name] = pa.array([nested[name][i % 2] for i in range(n)], type)
    return pa.table(columns)
