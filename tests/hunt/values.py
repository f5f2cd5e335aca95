"""Edge values of every type, and the literals that a condition may compare a column of a type with."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

NAN, INF = float("nan"), float("inf")
PREFIX = "x" * 66
"""Longer than what statistics of strings keep."""

_MOMENTS = [
    dt.datetime(1970, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(1994, 1, 1),
    dt.datetime(1994, 1, 1, 0, 0, 0, 1), dt.datetime(2021, 10, 31, 0, 30), dt.datetime(2021, 10, 31, 1, 30),
    dt.datetime(2024, 3, 31, 1, 30), dt.datetime(1500, 2, 28, 12), dt.datetime(1582, 10, 4, 23, 59),
    dt.datetime(1582, 10, 15), dt.datetime(2, 1, 1), dt.datetime(9998, 12, 31, 23, 59, 59, 999999),
]  # fmt: skip
_DATES = [*(moment.date() for moment in _MOMENTS), dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1900, 2, 28)]
_FLOATS = [0.0, -0.0, 0.1, 0.5, 5.0, -1.5, NAN, INF, -INF, 16777216.0, 1e-45, 3.4028234663852886e38]
_TEXTS = [
    "", "a", "ab", "A_b", "50%", "é", "ünï", "😀", "Ａ", PREFIX, PREFIX + "a", PREFIX + "b", " a", "a ", "it's", "null",
    "\uffff", "a\tb", "Z", "zz",
]  # fmt: skip
_EXACT = Context(prec=60)
_BEYOND = ["9223372036854775808", "-9223372036854775809", "9223372036854775807.5", "99999999999999999999"]


@dataclass(frozen=True)
class Family:
    """A type of columns.

    Attributes:
        type: Spark's.
        arrow: pyarrow's.
        edges: values that are easily lost.
        literals: what columns are compared with, besides their own values.
        beyond: literals beyond every integer, to which comparisons of whole columns fold.
    """

    type: str
    arrow: pa.DataType
    edges: Sequence[Any]
    literals: Sequence[str]
    beyond: Sequence[str] = ()


def _integers(type: str, arrow: pa.DataType, bits: int) -> Family:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    literals = ["0", "1", "5", "-1", f"{high}", f"{low + 1}", "5.5", "0.05", "1e0", "0.5D", "'5'", "5.0", "-0.5"]
    literals += ["double('NaN')", "double('Infinity')", "1e30", "float('5')"]
    literals += [f"{high + 1}", f"{low}", f"{high}.5"] if bits < 64 else []  # else these are beyond
    return Family(type, arrow, [0, 1, 2, 5, -1, high, low, high - 1], literals, _BEYOND)


def _decimals(precision: int, scale: int) -> Family:
    most = Decimal(10**precision - 1).scaleb(-scale, _EXACT)
    edges = [
        Decimal(0),
        Decimal(1).scaleb(-scale),
        most,
        most.copy_negate(),
        Decimal(min(5, 10 ** (precision - scale) - 1)),
    ]
    edges = [value.quantize(Decimal(1).scaleb(-scale), context=_EXACT) for value in edges]
    literals = ["0", "0.05", "0.5", "5", "-1.5", "0.05D", "'0.5'", "1e2", f"{most:f}", f"-{most:f}", "float('0.5')"]
    return Family(f"decimal({precision},{scale})", pa.decimal128(precision, scale), edges, literals)


FAMILIES: dict[str, Family] = {
    "tinyint": _integers("tinyint", pa.int8(), 8),
    "smallint": _integers("smallint", pa.int16(), 16),
    "int": _integers("int", pa.int32(), 32),
    "bigint": _integers("bigint", pa.int64(), 64),
    "float": Family(
        "float", pa.float32(), _FLOATS,
        ["0.1", "0.1D", "float('0.1')", "0.0", "-0.0D", "double('NaN')", "float('Infinity')", "5", "'0.1'", "1e30",
         "float('NaN')", "16777217", "1e-50"],
    ),
    "double": Family(
        "double", pa.float64(), [*_FLOATS, 9007199254740993.0, 5e-324, 1.7976931348623157e308],
        ["0.1", "0.1D", "0", "-0.0D", "double('NaN')", "double('-Infinity')", "5", "'NaN'", "float('0.1')",
         "9007199254740993", "0.5", "1e308"],
    ),
    "decimal(5,2)": _decimals(5, 2),
    "decimal(18,0)": _decimals(18, 0),
    "decimal(20,0)": _decimals(20, 0),
    "decimal(38,18)": _decimals(38, 18),
    "decimal(38,0)": _decimals(38, 0),
    "string": Family(
        "string", pa.string(), _TEXTS,
        ["''", "'a'", "'ab'", "'é'", "'😀'", "'50%'", f"'{PREFIX}'", f"'{PREFIX}a'", "'a '", "'zz'", "'A'", "\"a\""],
    ),
    "digits": Family(
        "string", pa.string(), ["5", " 5 ", "05", "-1", "0", "+5", "1994", "7", "127"],
        ["5", "'5'", "-1", "0.5", "1994", "'05'", "5.0D", "127", "cast(5 AS tinyint)"],
    ),
    "date": Family(
        "date", pa.date32(), _DATES,
        ["date '1994-01-01'", "'1994-01-01'", "'1994-01'", "'1994'", "timestamp '1994-01-01 00:00:00'", "'2021-10-31'",
         "date '1994-01-01' + interval '1' month", "date_add(date '1994-01-01', 3)", "date '0001-01-01'",
         "timestamp_ntz '1994-01-01 00:00:01'", "date '1582-10-10'", "'1500-2-28'", "date '9999-12-31'"],
    ),
    "timestamp": Family(
        "timestamp", pa.timestamp("us", tz="UTC"), [moment.replace(tzinfo=dt.UTC) for moment in _MOMENTS],
        ["timestamp '1994-01-01 00:00:00'", "'1994-01-01'", "date '1994-01-01'", "timestamp '1970-01-01 00:00:00'",
         "timestamp '1994-01-01 01:00:00+01:00'", "timestamp '2021-10-31 02:30:00'", "date '1582-10-15'",
         "timestamp '2024-03-31 01:30:00' - interval '1' day", "timestamp '1500-02-28 12:00:00'",
         "timestamp_ntz '1994-01-01 00:00:00'"],
    ),
    "timestamp_ntz": Family(
        "timestamp_ntz", pa.timestamp("us"), _MOMENTS,
        ["timestamp_ntz '1994-01-01 00:00:00'", "'1994-01-01'", "date '1994-01-01'", "timestamp_ntz '1970-01-01'",
         "timestamp_ntz '1500-02-28 12:00:00'", "timestamp_ntz '2021-10-31 02:30:00'"],
    ),
    "boolean": Family("boolean", pa.bool_(), [True, False], ["true", "false", "'true'"]),
    "binary": Family("binary", pa.binary(), [b"", b"a", b"\xff\x00", b"\x80" * 70], ["X''", "X'61'", "X'FF00'"]),
    "array<int>": Family("array<int>", pa.list_(pa.int32()), [[], [1, None, 5], [5], [0, 0]], []),
    "map<string,int>": Family(
        "map<string,int>", pa.map_(pa.string(), pa.int32()), [{}, {"a": 1}, {"a": None, "": 5}, {"b": 5}], []
    ),
}  # fmt: skip

_FILLING: dict[str, Any] = {
    "string": lambda rng: rng.choice("abcxyz") * rng.randint(1, 4) + str(rng.randrange(30)),
    "digits": lambda rng: str(rng.randrange(200)),
    "date": lambda rng: dt.date(1990, 1, 1) + dt.timedelta(days=rng.randrange(4000)),
    "timestamp_ntz": lambda rng: dt.datetime(1990, 1, 1) + dt.timedelta(seconds=rng.randrange(10**8)),
    "timestamp": lambda rng: dt.datetime(1990, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=rng.randrange(10**8)),
    "boolean": lambda rng: rng.random() < 0.5,
    "binary": lambda rng: rng.randbytes(3),
    "array<int>": lambda rng: [rng.randrange(6) for _ in range(rng.randrange(4))],
    "map<string,int>": lambda rng: {rng.choice("abc"): rng.randrange(6)},
    "float": lambda rng: rng.randrange(-80, 80) / 8,
    "double": lambda rng: rng.randrange(-800, 800) / 80,
}


def filling(family: str, rng: random.Random) -> Any:
    """A value like any other."""
    if family in _FILLING:
        return _FILLING[family](rng)
    if family.startswith("decimal"):
        scale = FAMILIES[family].arrow.scale
        return (
            Decimal(rng.randrange(-900, 900)).scaleb(-min(scale, 2)).quantize(Decimal(1).scaleb(-scale), None, _EXACT)
        )
    return rng.randrange(-100, 100)


def literal(value: Any, family: str) -> str | None:
    """A value of a column as a literal of its own type; None where there is none."""
    if value is None or family in ("array<int>", "map<string,int>"):
        return None
    if family in ("string", "digits"):
        return "'" + str(value).replace("'", "\\'") + "'"
    if family in ("float", "double"):
        return f"{family}('{value}')" if value != value or value in (INF, -INF) else f"{family}('{value!r}')"
    if family == "binary":
        return f"X'{value.hex()}'"
    if family == "date":
        return f"date '{value.isoformat()}'"
    if isinstance(value, dt.datetime):
        return f"{family} '{value.isoformat(sep=' ')}'"
    if family.startswith("decimal"):
        return f"{value:f}"
    if family == "bigint" and value == -(2**63):
        return "-9223372036854775807 - 1"
    return str(value).lower()
