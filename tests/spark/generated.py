"""Generated rows of all types, and generated conditions over them in Spark's SQL that no row makes fail."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from layoutopt.model.schema import Column, Schema

TYPES: dict[str, tuple[str, pa.DataType]] = {
    "id": ("int", pa.int32()),
    "i": ("int", pa.int32()),
    "b": ("bigint", pa.int64()),
    "y": ("tinyint", pa.int8()),
    "f": ("float", pa.float32()),
    "g": ("double", pa.float64()),
    "p": ("decimal(12,2)", pa.decimal128(12, 2)),
    "q": ("decimal(38,18)", pa.decimal128(38, 18)),
    "s": ("string", pa.string()),
    "num": ("string", pa.string()),
    "d": ("date", pa.date32()),
    "ts": ("timestamp", pa.timestamp("us", tz="UTC")),
    "n": ("timestamp_ntz", pa.timestamp("us")),
    "flag": ("boolean", pa.bool_()),
}
SCHEMA = Schema(tuple(Column(name, spark) for name, (spark, _) in TYPES.items()))

_NAN, _INF = float("nan"), float("inf")
_MOMENTS = [
    dt.datetime(1970, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(1994, 1, 1),
    dt.datetime(1994, 1, 1, 0, 0, 0, 1), dt.datetime(1994, 6, 15, 12), dt.datetime(2024, 3, 31, 1, 30),
]  # fmt: skip
_FLOATS = [0.0, -0.0, 0.1, 0.5, 5.0, -1.5, _NAN, _INF, -_INF, 16777216.0]
_VALUES: dict[str, Sequence[Any]] = {
    "i": [0, 1, 2, 5, -1, 2**31 - 1, -(2**31), 1994],
    "b": [0, 1, 5, 2**53 + 1, -(2**63), 2**63 - 1, 2**31],
    "y": [0, 1, 5, 127, -128],
    "f": _FLOATS,
    "g": [*_FLOATS, 9007199254740993.0],
    "p": [Decimal(text) for text in ("0.00", "0.05", "0.06", "-1.50", "5.00", "9999999999.99")],
    "q": [Decimal(text) for text in ("0", "0.1", "0.5", "5", "-1.5", "0.000000000000000001", "1234567890123456789")],
    "s": ["", "a", "ab", "A_b", "50%", "é", "ünï", "😀", "Ａ", "x" * 70, "x" * 69 + "y", " a", "a "],
    "num": ["5", " 5 ", "05", "-1", "0", "+5", "1994", "7"],
    "d": [moment.date() for moment in _MOMENTS],
    "ts": [moment.replace(tzinfo=dt.UTC) for moment in _MOMENTS],
    "n": _MOMENTS,
    "flag": [True, False],
}  # fmt: skip
LITERALS: dict[str, Sequence[str]] = {
    "i": ["0", "1", "5", "-1", "2147483647", "2147483648", "5.5", "0.05", "1e0", "0.5D", "'5'", "1994L"],
    "b": ["0", "5", "9007199254740993", "9007199254740992D", "-9223372036854775807", "0.5", "'5'", "2147483648",
          "9223372036854775808", "-9223372036854775808.5"],
    "y": ["0", "1", "5", "127", "300", "-128", "'5'", "0.5"],
    "f": ["0.1", "0.1D", "float('0.1')", "0.0", "-0.0D", "double('NaN')", "float('Infinity')", "5", "'0.1'", "1e30"],
    "g": ["0.1", "0.1D", "0", "-0.0D", "double('NaN')", "double('-Infinity')", "5", "'NaN'", "float('0.1')"],
    "p": ["0.05", "0.055", "5", "-1.5", "0.05D", "'0.06'", "9999999999.99", "1e2", "0.0500"],
    "q": ["0.1", "5", "0.1D", "0.000000000000000001", "'0.5'", "-1.5", "1234567890123456789"],
    "s": ["''", "'a'", "'ab'", "'é'", "'😀'", "'Ａ'", "'50%'", f"'{'x' * 70}'", f"'{'x' * 66}'", "'a '", "'zz'"],
    "num": ["5", "'5'", "-1", "0.5", "1994", "'05'", "5.0D"],
    "d": [
        "date '1994-01-01'", "'1994-01-01'", "date '1970-01-01'", "timestamp '1994-01-01 00:00:00'",
        "date '1994-01-01' + interval '1' month", "date_add(date '1994-01-01', 3)",
        "timestamp_ntz '1994-01-01 00:00:01'",
    ],
    "ts": [
        "timestamp '1994-01-01 00:00:00'", "'1994-01-01'", "date '1994-01-01'", "timestamp '1970-01-01 00:00:00'",
        "timestamp '1994-01-01 01:00:00+01:00'", "timestamp '2024-03-31 01:30:00' - interval '1' day",
    ],
    "n": ["timestamp_ntz '1994-01-01 00:00:00'", "'1994-01-01'", "date '1994-01-01'", "timestamp_ntz '1970-01-01'"],
    "flag": ["true", "false"],  # and no text, which IN and coalesce refuse beside a boolean without ANSI
}  # fmt: skip
_LIKE = {
    "s": ["'a%'", "'%b'", "'%é%'", "'_'", "'😀'", "'A\\\\_b'", "'50\\\\%'", "'x%x'", "'%'", "''", "'ab'"],
    # Each pattern without wildcards is a number: Spark puts it in the place of the column, which other tests cast.
    "num": ["'5'", "'05'", "'5%'", "'%5'", "'%9%'", "'_'", "'1%4'", "'%'", "'a%'", "'_5'", "' 5 '"],
}
_PLAIN = (
    "flag", "NOT flag", "flag IS NOT TRUE", "isnan(g)", "NOT isnan(f)", "i < b", "d <= ts", "f = g", "p > q",
    "s < num", "y + 1 > 5", "i % 3 = 1", "-p < 1", "p * 2 >= 0.1", "year(d) = 1994", "month(ts) < 6",
    "year(n) BETWEEN 1970 AND 1994", "cast(ts AS date) = date '1994-01-01'",
    "date_trunc('month', ts) = '1994-01-01'", "trunc(d, 'year') < '1994-01-01'", "cast(i AS string) > '2'",
    "try_cast(p AS int) = 0", "cast(q AS double) > 0.1", "try_cast(s AS int) = 5", "lower(s) = 'a_b'",
    "length(s) > 2", "substring(s, 1, 1) = 'x'", "s || 'b' = 'ab'", "startswith(s, 'a')", "trim(s) = 'a'",
    "abs(f) > 0.1", "if(flag, i, y) = 5", "CASE WHEN i > 0 THEN p ELSE 0 END > 0.05", "dayofweek(d) = 5",
    "upper(s) = 'É'", "hash(id) > 0", "s RLIKE '^a'", "i IN (5)", "(i, s) IN ((5, 'a'), (1, ''))", "true",
    "i = NULL", "cast(NULL AS boolean)", "flag = 'true'",
)  # fmt: skip

_column = st.sampled_from([name for name in TYPES if name != "id"])
_op = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"])


@st.composite
def _simple(draw: st.DrawFn) -> str:
    """One test of one column."""
    name = draw(_column)
    literal = st.sampled_from([*LITERALS[name], "NULL"])
    kind = draw(st.integers(0, 9))
    if kind < 4:
        return f"{name} {draw(_op)} {draw(literal)}"
    if kind < 6:
        low, high = draw(literal), draw(literal)
        return f"{name} {draw(st.sampled_from(['BETWEEN', 'NOT BETWEEN']))} {low} AND {high}"
    if kind < 8:
        values = draw(st.lists(literal, min_size=1, max_size=4))
        return f"{name} {draw(st.sampled_from(['IN', 'NOT IN']))} ({', '.join(values)})"
    if kind == 8:
        return f"{name} IS {draw(st.sampled_from(['NULL', 'NOT NULL']))}"
    return (
        f"coalesce({name}, {draw(st.sampled_from(LITERALS[name]))}) {draw(_op)} {draw(st.sampled_from(LITERALS[name]))}"
    )


_atoms = st.one_of(
    _simple(),
    _simple(),
    st.sampled_from(_PLAIN),
    st.sampled_from([f"{name} {op} {text}" for name in _LIKE for op in ("LIKE", "NOT LIKE") for text in _LIKE[name]]),
    st.builds("id BETWEEN {0} AND {0} + {1}".format, st.integers(0, 200), st.integers(0, 40)),
)
CONDITIONS = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=4,
)


def generated_rows(count: int = 240, seed: int = 0) -> pa.Table:
    """Rows in the order of ``id``; a tenth of all other values is NULL, and neighbours are alike in some columns."""
    rng = random.Random(seed)
    columns: dict[str, list[Any]] = {"id": list(range(count))}
    for number, (name, values) in enumerate(_VALUES.items()):
        if number % 3 == 0:  # sorted, but for NULL: so that statistics have something to skip
            chosen = [values[place * len(values) // count] for place in range(count)]
        else:
            chosen = [rng.choice(values) for _ in range(count)]
        columns[name] = [None if rng.random() < 0.1 else value for value in chosen]
    return pa.table({name: pa.array(columns[name], arrow) for name, (_, arrow) in TYPES.items()})
