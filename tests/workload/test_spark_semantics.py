"""Filters against Spark itself: on rows of every awkward kind, the node is TRUE where Spark's condition is."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from layoutopt.model.predicate import to_sql
from layoutopt.model.schema import Column, Schema
from layoutopt.workload.scans import scans_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
        None, *map(Decimal, ["0", "0.1", "0.5", "5", "5.5", "-1.5", "0.000000000000000001", "12345678901234567890", "1994"]),
    ],
    "flag": [None, True, False, True, False, None, True, False, True, False],
    "bin": [None, b"", b"a", b"ab", b"\x00", b"\xff", b"b", b"5", b"A", b"\x01"],
    "arr": [None, [], [1], [None], [1, 2], [5], None, [0], [7], [3]],
}  # fmt: skip
COLUMNS["n"] = COLUMNS["ts"]
ROWS = len(COLUMNS["i"])

CONDITIONS = [
    # comparisons in every pair of types that Spark compares
    *(f"{name} {op} {value}" for name in ("i", "b", "y", "p", "q", "x", "f") for op, value in [
        ("=", "5"), ("<>", "1"), ("<", "5.5"), (">=", "0.05"), ("<=", "0.1D"), (">", "'1'"), ("=", "'5'"),
        (">", "-1"), ("=", "9007199254740993"), ("<", "9007199254740992D"), ("=", "1e0"), ("=", "cast(0.1D AS float)"),
    ]),
    *(f"x {op} cast('{value}' AS double)" for op in ("=", "<", ">=", "<>") for value in ("0", "5")),
    *(f"{name} {op} {value}" for name in ("d", "ts", "n") for op in ("=", "<", ">=", "<>") for value in [
        "'1994-01-01'", "date '1994-01-01'", "timestamp '1994-01-01'", "timestamp_ntz '1993-12-31 12:00:00'", "'1994'",
        "'1994-1-1 00:00:00.000001'" if name != "d" else "'1994-1-1'",
    ]),
    "num = 5", "num > 4.5", "num = -1", "num IN ('5', 1994)", "num IN ('5', ' 5 ')", "num BETWEEN 1 AND 10", "num = 5L",
    "num < i", "b = num", "p < num",
    "s = 'a'", "s > 'a'", "s <= 'é'", r"s = 'it\'s'", "s = 'it''s'", r"s = 'a\\b'", r"s = 'x\ny'", "s = 'a' 'b'",
    "bin = X'61'", "bin > X'00'", "bin = 'a'",
    "flag", "NOT flag", "flag = true", "flag <> true", "flag = 'true'", "flag IS TRUE", "flag IS NOT TRUE", "flag IS NOT FALSE",
    # NULL
    "i = NULL", "i <> NULL", "i <=> NULL", "NOT (i <=> NULL)", "i <=> 5", "NOT (i <=> 5)", "i IS DISTINCT FROM 5",
    "i IN (1, NULL)", "i NOT IN (1, NULL)", "NOT (i IN (1, 5))", "i IS NULL", "i IS NOT NULL", "isnull(arr)", "isnotnull(s)",
    "i NOT BETWEEN 1 AND 5", "NOT (i > 1 AND (s = 'a' OR x < 1))", "x NOT IN (0, 5)", "coalesce(i, 5) = 5", "coalesce(s, 'a') = 'a'",
    "isnan(x)", "NOT isnan(x)", "x = cast('5' AS double)", "x > 1e300", "f = 0.1", "f = 0.5", "f <> 0.1", "f >= 0.1", "f < 0.1",
    "i IN (1, 2.5, 5)", "p IN (0.05, 5)", "p NOT IN (0.05, 0.055)", "x IN (0.1, 5)", "q IN (0.1, 5)", "i IN ('1', 5)", "b IN (1, 0.5D)",
    # columns
    "i < b", "i = y", "p = q", "x = f", "i >= p", "d < ts", "ts = n", "d = n", "b < x", "f <= p", "s = num", "NOT (i < b)",
    # patterns
    "s LIKE 'a%'", "s LIKE '%b'", "s LIKE '_'", r"s LIKE '50\%'", r"s LIKE 'A\_b'", r"s LIKE 'a\\\\b'", "s LIKE 'A!_%' ESCAPE '!'",
    "s NOT LIKE '%a%'", "s LIKE ''", "s LIKE '%'", "s LIKE 'x%y'", "s ILIKE 'A%'", "s LIKE ANY ('a', '5%')", "s LIKE ALL ('%a%', '_')",
    "s NOT LIKE ALL ('a', '5%')", "contains(s, '%')", "startswith(s, 'a')", "endswith(s, 'b')", "locate('b', s) > 0", "instr(s, 'b') = 0",
    "s RLIKE '^a'", "NOT s RLIKE 'b$'", "i LIKE '5'",
    # functions and arithmetic
    "year(d) = 1994", "year(ts) = 1994", "year(n) <> 1994", "year(d) IN (1993, 1996)", "year(d) < 2", "year(d) > 9998", "month(d) = 1",
    "extract(YEAR FROM d) = 1994", "cast(extract(MONTH FROM ts) AS bigint) <= 3", "quarter(d) = 2", "day(d) = 31", "dayofweek(d) = 7",
    "weekofyear(d) = 52", "dayofyear(d) = 1", "hour(ts) = 23", "hour(n) = 0", "last_day(d) = '1994-12-31'", "trunc(d, 'MM') = '1994-01-01'",
    "date_trunc('month', ts) = '1994-01-01'", "datediff(d, '1994-01-01') > 3", "cast(ts AS date) = '1994-01-01'", "cast(n AS date) > d",
    "to_date(ts) >= '1994-01-01'", "cast(d AS timestamp) >= '1994-01-01 00:00:01'", "cast(d AS string) LIKE '1994%'",
    "lower(s) = 'a_b'", "upper(s) = 'AB'", "length(s) = 2", "substring(s, 1, 1) = 'a'", "substr(s, 2) = 'b'", "left(s, 1) = 'a'",
    "right(s, 1) = 'b'", "trim(num) = '5'", "ltrim(num) = '5 '", "reverse(s) = 'ba'", "concat(s, '!') = 'a!'", "s || num = 'a 5 '",
    "i % 3 = 1", "b % 2 = -1", "y + 1 = 2", "y * 2 > 9", "i / 2 = 2.5", "x / 2 > 1", "x + i > 5", "abs(y) = 127", "abs(p) = 1.5",
    "abs(x) > 1", "sqrt(y) = 1", "-y = 1",
    "cast(i AS bigint) = 5", "cast(i AS double) = 5.0", "cast(p AS double) = 0.05", "cast(y AS int) IN (1, 127)", "cast(i AS string) = '5'",
    "cast(p AS decimal(20,4)) = 0.05", "cast(y AS decimal(5,1)) = 5", "cast(i AS boolean)", "cast(num AS bigint) = 5",
    "d = date '1994-01-01' + interval 5 months", "d < add_months('1996-02-29', -26)", "d >= date_add('1993-12-30', 1)",
    "p BETWEEN 0.06 - 0.01 AND 0.06 + 0.01", "i = 10 / 2", "i = 7 % 4 + 2", "x = 0.1 + 0.4", "i = -(-5)", "p = 11 * 0.5",
    "ts >= timestamp '1994-01-01' + interval 1 day", "1 = 1", "1 > 2", "'a' = 'a'", "NULL", "true AND i = 1", "i = 1 OR NULL",
]  # fmt: skip


def _node_sql(condition: str) -> str:
    (scan,) = scans_of(f"SELECT count(*) FROM t WHERE {condition}", {"t": SCHEMA})
    assert scan.exact, (condition, scan.unusable)
    return to_sql(scan.filter.root)


def _differences(spark: SparkSession, conditions: Sequence[str]) -> list[str]:
    """Rows for which Spark and the node disagree, as texts; the conditions in a few wide queries."""
    wrong = []
    for start in range(0, len(conditions), 60):
        part = conditions[start : start + 60]
        pairs = ", ".join(f"array(coalesce(({text}), false), coalesce(({_node_sql(text)}), false))" for text in part)
        for row in spark.sql(f"SELECT array({pairs}) AS pairs FROM nasty_rows").collect():
            both = zip(part, row["pairs"], strict=True)
            wrong += [f"{text} -> {_node_sql(text)}: Spark {ours}" for text, (ours, node) in both if ours != node]
    return wrong


@pytest.fixture(scope="module")
def _nasty_rows(spark: SparkSession) -> None:
    rows = [(number, *(COLUMNS[name][number] for name in TYPES)) for number in range(ROWS)]
    fields = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
    spark.createDataFrame(rows, f"id int, {fields}").coalesce(1).createOrReplaceTempView("nasty_rows")


@pytest.mark.spark
@pytest.mark.usefixtures("_nasty_rows")
def test_nodes_are_true_where_spark_says_so(spark: SparkSession) -> None:
    assert _differences(spark, CONDITIONS) == []
