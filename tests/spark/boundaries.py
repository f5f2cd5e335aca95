"""Rows at the ends of every type, and comparisons of them with literals at, just within and just beyond those ends."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from layoutopt.model.schema import Column, Schema

_NAN, _INF = float("nan"), float("inf")
_NINES = "9" * 38
_TINIEST = f"0.{'0' * 37}1"
_MOMENTS = [
    dt.datetime(1, 1, 1), dt.datetime(1582, 10, 4, 23, 59, 59, 999999), dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
    dt.datetime(1970, 1, 1), dt.datetime(1994, 1, 1), dt.datetime(1994, 1, 1, 0, 0, 0, 1), dt.datetime(1994, 1, 2),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
]  # fmt: skip


def _decimals(*texts: str) -> list[Decimal]:
    return [Decimal(text) for text in texts]


def _whole(bits: int) -> list[int]:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    return [low, low + 1, -1, 0, 1, 5, high - 1, high]


COLUMNS: dict[str, tuple[str, pa.DataType, Sequence[Any]]] = {
    "y": ("tinyint", pa.int8(), _whole(8)),
    "h": ("smallint", pa.int16(), [*_whole(16), 127, 128]),
    "i": ("int", pa.int32(), [*_whole(32), 127, 32768]),
    "b": ("bigint", pa.int64(), [*_whole(64), 2**31, 2**53 + 1]),
    "f": ("float", pa.float32(), [_NAN, _INF, -_INF, -0.0, 0.0, 0.1, 5.0, 16777216.0, 3.4028234663852886e38, 1e-45]),
    "g": ("double", pa.float64(), [_NAN, _INF, -_INF, -0.0, 0.1, 5.0, 5e-324, 2.0**53, 2.0**63, 1.79769313486231e308]),
    "p": ("decimal(5,2)", pa.decimal128(5, 2), _decimals("-999.99", "-0.01", "0", "0.1", "5", "127", "999.99")),
    "m": ("decimal(18,0)", pa.decimal128(18, 0), _decimals("-" + "9" * 18, "-1", "0", "5", "128", "9" * 18)),
    "k": ("decimal(20,0)", pa.decimal128(20, 0),
          _decimals("-" + "9" * 20, "-9223372036854775809", "0", "5", "9223372036854775808", "9" * 20)),
    "q": ("decimal(38,18)", pa.decimal128(38, 18),
          _decimals("0", "0.1", "5", "-0.5", "0.000000000000000001", "9" * 20)),
    "r": ("decimal(38,0)", pa.decimal128(38, 0), _decimals("-" + _NINES, "0", "5", "9223372036854775808", _NINES)),
    "e": ("decimal(38,38)", pa.decimal128(38, 38), _decimals("0", "0.1", _TINIEST, "-0.5", f"0.{_NINES}")),
    "s": ("string", pa.string(), ["", "5", "05", "a", "A", "a ", "é", "1994-01-01", "true", "NaN"]),
    "num": ("string", pa.string(), ["5", " 5 ", "05", "-1", "0", "+5", "127", "2147483648", "9223372036854775807"]),
    "d": ("date", pa.date32(), [moment.date() for moment in _MOMENTS]),
    "t": ("timestamp", pa.timestamp("us", tz="UTC"), [moment.replace(tzinfo=dt.UTC) for moment in _MOMENTS]),
    "n": ("timestamp_ntz", pa.timestamp("us"), _MOMENTS),
    "o": ("boolean", pa.bool_(), [True, False]),
}  # fmt: skip
SCHEMA = Schema((Column("id", "int"), *(Column(name, kind) for name, (kind, _, _) in COLUMNS.items())))

_ENDS = [limit for bits in (8, 16, 32, 64) for limit in ((1 << bits - 1) - 1, 1 << bits - 1)]
_NUMBERS = [
    "0", "5", "-1", *(str(sign * end) for end in _ENDS for sign in (1, -1)),
    *(f"-{end + 1}" for end in _ENDS[1::2]), _NINES, f"-{_NINES}",
    "0.5", "-0.5", "5.0", "127.5", "-128.5", "2147483647.5", "9223372036854775807.5", "-9223372036854775808.5",
    "9223372036854775808.5", "99.995", "999.99", "999.995", "1000", _TINIEST, f"0.{_NINES}",
    "5Y", "127Y", "-128Y", "5S", "128S", "-32768S", "5L", "128L", "9223372036854775807L", "-9223372036854775808L",
    "16777217",
    "5BD", "5.5BD", "127.5BD", "9223372036854775807BD", "9223372036854775808BD", "-9223372036854775809BD", "1e30BD",
    "5F", "0.1F", "0.1D", "5D", "-0.0D", "0D", "128D", "1e0", "1e30", "1e39D", "1e300D", "-1e300", "3.4028235e38D",
    "3.4028235677973366e38D", "1e-46D", "16777217D", "9007199254740993D", "9223372036854775807D",
    "9223372036854775808D", "9223372036854775808F", "1.7976931348623157e308D",
    "double('NaN')", "double('Infinity')", "double('-Infinity')", "float('NaN')", "float('Infinity')", "float('0.1')",
    "cast('9223372036854775808' AS DECIMAL(20,0))", "cast(9223372036854775808 AS DECIMAL(38,0))",
    "cast(9223372036854775808 AS DOUBLE)", "cast(128 AS BIGINT)", "cast(128 AS SMALLINT)", "cast(5.5 AS INT)",
    "cast(128 AS DECIMAL(38,10))", "cast(0.1 AS FLOAT)", "cast('128' AS INT)", "cast(NULL AS DECIMAL(20,0))",
    "9223372036854775807 + 1BD", "9223372036854775808 - 1", "2147483647 + 1L", "-(9223372036854775808)",
    "+9223372036854775808", "- 9223372036854775809", "-(-9223372036854775809)", "(9223372036854775808)",
    "'5'", "'127'", "'128'", "'-1'", "'9223372036854775807'", "' 5 '", "'-0'", "NULL",
]  # fmt: skip
_TEXTS = ["''", "'5'", "'a'", "'a '", "'é'", "'1994-01-01'", "'true'", "'NaN'", "cast(5 AS STRING)", "NULL"]
_TIMES = [
    "date '0001-01-01'", "date '1582-10-04'", "date '1970-01-01'", "date '1994-01-01'", "date '9999-12-31'",
    "date_add(date '9999-12-31', 1)", "date '9999-12-31' + interval '1' day", "date '1994-01-01' - interval '1' day",
    "timestamp '0001-01-01 00:00:00'", "timestamp '1994-01-01 00:00:00'", "timestamp '1994-01-01 00:00:00.000001'",
    "timestamp '1994-01-01 12:00:00'", "timestamp '9999-12-31 23:59:59.999999'",
    "timestamp '1994-01-01 01:00:00+01:00'",
    "timestamp_ntz '1994-01-01 00:00:00'", "timestamp_ntz '1994-01-01 00:00:00.000001'",
    "timestamp_ntz '9999-12-31 23:59:59.999999'", "timestamp_ltz '1970-01-01 00:00:00'",
    "cast('1994-01-01' AS DATE)", "cast('1994-01-01 12:00:00' AS TIMESTAMP)", "to_date('1994-01-01')",
    "cast(timestamp '1994-01-01 12:00:00' AS DATE)", "cast(date '1994-01-01' AS TIMESTAMP_NTZ)",
    "'0001-01-01'", "'1994-01-01'", "'1994-1-1'", "'1994'", "'1994-01-01 00:00:00.000001'", "'1994-01-01T00:00:00Z'",
    "'9999-12-31'", "'1970-01-01 00:00:00'", "NULL",
]  # fmt: skip
_FLAGS = ["true", "false", "'true'", "'f'", "'1'", "cast(1 AS BOOLEAN)", "(1 = 1)", "NULL"]


def literals(name: str) -> Sequence[str]:
    """What a column is compared with."""
    kind = COLUMNS[name][0]
    if kind == "string":
        return [*_NUMBERS, *_TEXTS] if name == "num" else _TEXTS
    if kind in ("date", "timestamp", "timestamp_ntz"):
        return _TIMES
    return _FLAGS if kind == "boolean" else _NUMBERS


@dataclass(frozen=True)
class Boundary:
    """A condition about one column and one literal, and what that is an instance of."""

    column: str
    literal: str
    condition: str


_OPERATORS = ["=", "<>", "<", "<=", ">", ">=", "<=>"]
_SHAPES = [
    *(f"{{c}} {op} {{l}}" for op in _OPERATORS),
    *(f"{{l}} {op} {{c}}" for op in _OPERATORS),
    *(f"NOT ({{c}} {op} {{l}})" for op in _OPERATORS),
    *(f"NOT ({{l}} {op} {{c}})" for op in _OPERATORS),
    "{c} IS NOT DISTINCT FROM {l}", "{c} IS DISTINCT FROM {l}",
    "{c} BETWEEN {l} AND {m}", "{c} BETWEEN {m} AND {l}", "{c} NOT BETWEEN {l} AND {m}", "{c} NOT BETWEEN {m} AND {l}",
    "NOT ({c} BETWEEN {l} AND {m})", "{l} BETWEEN {m} AND {c}", "{m} NOT BETWEEN {c} AND {l}",
    "{c} IN ({l})", "{c} IN ({l}, {m})", "{c} NOT IN ({l})", "{c} NOT IN ({l}, {m})", "NOT ({c} IN ({l}, {m}))",
    "{c} IN ({m}, {l}, NULL)", "{c} NOT IN ({l}, NULL)",
]  # fmt: skip
_NESTED = [
    *(f"({{c}} {op} {{l}}) IS NULL" for op in ("<", ">=", "=")),
    *(f"({{c}} {op} {{l}}) IS NOT NULL" for op in ("<=", ">", "=")),
    *(f"({{c}} {op} {{l}}) IS TRUE" for op in ("<", ">=", "=")),
    *(f"({{c}} {op} {{l}}) IS NOT TRUE" for op in ("<", ">=")),
    *(f"({{c}} {op} {{l}}) IS FALSE" for op in ("<", ">=")),
    "({c} < {l}) = true", "({c} >= {l}) <=> false", "({c} < {l}) IN (true)", "NOT (NOT ({c} < {l}))",
    "({c} < {l} AND id >= 0) OR ({c} > {m} AND id < 0)", "NOT ({c} < {l} OR {c} > {m})", "({c} <= {l} OR NULL)",
    "NOT ({c} >= {l} AND id >= 0)", "NOT (({c} < {l}) AND NULL)", "if({c} < {l}, true, false)",
    "CASE WHEN {c} > {l} THEN false ELSE true END", "coalesce({c} < {l}, false)", "coalesce({c}, {c}) < {l}",
    "coalesce({c}, NULL) >= {l}", "coalesce({c}, {m}) <= {l}", "nullif({c}, {m}) < {l}",
]  # fmt: skip
_CASTS = {
    "tinyint": ["SMALLINT", "INT", "BIGINT", "DECIMAL(3,0)", "DECIMAL(20,0)", "DOUBLE", "FLOAT"],
    "smallint": ["INT", "BIGINT", "DECIMAL(38,5)", "DOUBLE"],
    "int": ["BIGINT", "DECIMAL(10,0)", "DECIMAL(38,5)", "DOUBLE", "FLOAT"],
    "bigint": ["DECIMAL(20,0)", "DECIMAL(38,5)", "DOUBLE", "FLOAT"],
    "float": ["DOUBLE"], "double": ["FLOAT"],
    "decimal(5,2)": ["DECIMAL(10,2)", "DECIMAL(38,5)", "INT", "BIGINT", "DOUBLE", "DECIMAL(5,0)"],
    "decimal(18,0)": ["BIGINT", "DECIMAL(38,0)", "DOUBLE"], "decimal(20,0)": ["DECIMAL(38,0)", "DOUBLE", "FLOAT"],
    "string": [], "date": ["TIMESTAMP", "TIMESTAMP_NTZ"], "timestamp": ["DATE", "TIMESTAMP_NTZ"],
    "timestamp_ntz": ["DATE", "TIMESTAMP"], "boolean": ["STRING"],
}  # fmt: skip
_CAST_SHAPES = [
    *(f"try_cast({{c}} AS {{t}}) {op} {{l}}" for op in _OPERATORS),
    *(f"NOT ({{l}} {op} try_cast({{c}} AS {{t}}))" for op in ("<", ">=", "=")),
    "cast({c} AS {t}) < {l}", "NOT (cast({c} AS {t}) >= {l})", "cast({c} AS {t}) BETWEEN {m} AND {l}",
    "cast({c} AS {t}) NOT IN ({m}, {l})", "({l} > cast({c} AS {t})) IS NOT NULL",
]  # fmt: skip
_WHOLE_SHAPES = [
    "{c} + 0 < {l}", "{c} - 0 >= {l}", "NOT ({c} * 1 > {l})", "({c} + 0 <= {l}) IS NULL", "abs({c} % 100) < {l}",
    "-({c} % 100) <= {l}", "{c} % 100 < {l}", "{l} > {c} + 0",
]  # fmt: skip


def boundaries() -> Iterator[Boundary]:
    """All conditions: each column, literal and shape, with a second literal that goes round the column's others.

    A literal meets every second of the nested shapes, its neighbour the others, and one type to cast the column to.
    """
    for name, (kind, _, _) in COLUMNS.items():
        whole = _WHOLE_SHAPES if kind in ("tinyint", "smallint", "int", "bigint") else []
        casts, others = itertools.cycle(_CASTS.get(kind) or [None]), itertools.cycle(literals(name))
        for number, (literal, to) in enumerate(zip(literals(name), casts, strict=False)):
            cast = [shape.replace("{t}", to) for shape in _CAST_SHAPES] if to else []
            for shape in (*_SHAPES, *_NESTED[number % 2 :: 2], *cast, *whole):
                yield Boundary(name, literal, shape.format(c=name, l=literal, m=next(others)))
            next(others)  # so that the pairs differ from literal to literal


def rows() -> pa.Table:
    """The rows, by ``id``: each column's values again and again with a NULL after each round."""
    count = 1 + max(len(values) for _, _, values in COLUMNS.values())
    columns: dict[str, pa.Array] = {"id": pa.array(range(count), pa.int32())}
    for name, (_, arrow, values) in COLUMNS.items():
        around = [None, *values]
        columns[name] = pa.array([around[place % len(around)] for place in range(count)], arrow)
    return pa.table(columns)
