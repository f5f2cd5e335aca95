"""Rows of every awkward kind, and conditions on them that a text reader follows."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

from layoutopt.model.schema import Column, Schema

TYPES = {
    "i": "int",
    "b": "bigint",
    "y": "tinyint",
    "d": "date",
    "ts": "timestamp",
    "n": "timestamp_ntz",
    "s": "string",
    "num": "string",
    "x": "double",
    "f": "float",
    "p": "decimal(15,2)",
    "q": "decimal(38,18)",
    "flag": "boolean",
    "bin": "binary",
    "arr": "array<int>",
}
SCHEMA = Schema(tuple(Column(name, kind) for name, kind in TYPES.items()))
NAN, INFINITY = float("nan"), float("inf")

COLUMNS: dict[str, list[object]] = {
    "i": [None, 0, 1, 2, -1, 5, 7, 2147483647, -2147483648, 1994],
    "b": [None, 0, 2, 1, 9007199254740993, 5, -9223372036854775808, 9223372036854775807, 3, 1994],
    "y": [None, 0, 1, 127, -127, 5, 7, 3, 2, 1],
    "d": [
        None, dt.date(1970, 1, 1), dt.date(1993, 12, 31), dt.date(1994, 1, 1), dt.date(1994, 12, 31),
        dt.date(1995, 1, 1), dt.date(1996, 2, 29), dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1994, 6, 15),
    ],
    "ts": [
        None, dt.datetime(1970, 1, 1), dt.datetime(1993, 12, 31, 23, 59, 59, 999999), dt.datetime(1994, 1, 1),
        dt.datetime(1994, 1, 1, 0, 0, 0, 1), dt.datetime(1995, 1, 1), dt.datetime(2024, 3, 31, 1, 30),
        dt.datetime(2024, 10, 27, 0, 30), dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(1994, 6, 15, 12),
    ],
    "s": [None, "", "a", "ab", "A_b", "50%", "it's", "a\\b", "é", "x\ny"],
    "num": [None, "5", " 5 ", "05", "-1", "1994", "2147483648", "7", "0", "+5"],
    "x": [None, 0.0, -0.0, 0.1, 0.5, NAN, INFINITY, -INFINITY, 5.0, 9007199254740992.0],
    "f": [None, 0.0, -0.0, 0.1, 0.5, NAN, INFINITY, -INFINITY, 5.0, 16777216.0],
    "p": [None, *map(Decimal, ["0.00", "0.05", "0.06", "0.07", "-1.50", "5.50", "9999999999999.99", "1.00", "5.00"])],
    "q": [
        None, *map(Decimal, ["0", "0.1", "0.5", "5", "5.5", "-1.5", "0.000000000000000001", "12345678901234567890"]),
        Decimal(1994),
    ],
    "flag": [None, True, False, True, False, None, True, False, True, False],
    "bin": [None, b"", b"a", b"ab", b"\x00", b"\xff", b"b", b"5", b"A", b"\x01"],
    "arr": [None, [], [1], [None], [1, 2], [5], None, [0], [7], [3]],
}  # fmt: skip
COLUMNS["n"] = COLUMNS["ts"]
ROWS = len(COLUMNS["i"])

CONDITIONS = [
    line
    for line in (Path(__file__).parent / "conditions.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
