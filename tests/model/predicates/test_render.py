"""Texts of filters: readable descriptions, and SQL that keeps types, quotes and NULLs."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pytest

from layoutopt.model.predicates import (
    FALSE,
    Call,
    Col,
    Comparison,
    Const,
    Filter,
    InSet,
    Node,
    conjunction,
    describe,
    disjunction,
    like,
    parse_like,
    to_sql,
)
from layoutopt.model.values import ValueSet, compare, to_key
from tests.model.conditions import TYPES, col


def _of(name: str, op: str, value: object) -> InSet:
    return InSet(col(name), compare(op, value, TYPES[name]))


TWO = disjunction([_of("i", "<", 1), _of("s", "=", "a")])
OPEN = InSet(col("s"), compare(">", "a", "string").intersect(compare("<", "b", "string")))
CASES: list[tuple[Node, str, str]] = [
    (_of("i", ">=", 1), "i >= 1", "`i` >= 1"),
    (_of("i", "<", 1), "i <= 0", "`i` <= 0"),
    (_of("i", "<>", 1), "i <> 1", "`i` <> 1"),
    (InSet(col("i"), ValueSet.of([1, 5]).complement()), "i NOT IN (1, 5)", "`i` NOT IN (1, 5)"),
    (InSet(col("i"), ValueSet.of([1, 2, 9])), "i = 9 OR i BETWEEN 1 AND 2", "`i` = 9 OR `i` BETWEEN 1 AND 2"),
    (InSet(col("i"), ValueSet.empty(), True), "i IS NULL", "`i` IS NULL"),
    (InSet(col("i"), ValueSet.all()), "i IS NOT NULL", "`i` IS NOT NULL"),
    (InSet(col("i"), ValueSet.point(1), True), "i = 1 OR i IS NULL", "`i` = 1 OR `i` IS NULL"),
    (_of("o", "=", False), "NOT o", "NOT `o`"),
    (_of("b", "=", 2**63 - 1), "b = 9223372036854775807", "`b` = 9223372036854775807L"),
    (_of("t", "=", -128), "t = -128", "`t` = -128Y"),
    (_of("m", "<=", Decimal("1.5")), "m <= 1.5", "`m` <= CAST('1.5' AS DECIMAL(4,1))"),
    (_of("d", ">", 5.5), "d > 5.5", "`d` > CAST('5.5' AS DOUBLE)"),
    (_of("d", "<=", 0.1), "d <= 0.1", "`d` <= CAST('0.1' AS DOUBLE)"),
    (_of("d", "=", math.nan), "d = nan", "`d` = CAST('nan' AS DOUBLE)"),
    (_of("d", "<", math.inf), "d < inf", "`d` < CAST('inf' AS DOUBLE)"),
    (_of("f", "<=", 2.5), "f <= 2.5", "`f` <= CAST('2.5' AS FLOAT)"),
    (_of("s", "<>", ""), "s <> ''", "`s` <> ''"),
    (_of("s", ">", "a"), "s > 'a'", "`s` > 'a'"),
    (_of("s", "<=", "a"), "s <= 'a'", "`s` <= 'a'"),
    (_of("s", "=", "it's\\${x}\n"), "s = 'it''s\\${x}\n'", "`s` = 'it\\u0027s\\\\\\u0024{x}\\u000a'"),
    (like(col("s"), parse_like("a\\%b%")), "s LIKE 'a\\%b%'", "`s` LIKE 'a\\\\%b%'"),
    (like(col("s"), parse_like("%b_"), True), "s NOT LIKE '%b_'", "`s` NOT LIKE '%b_'"),
    (_of("x", "=", b"\xff"), "x = X'FF'", "`x` = X'FF'"),
    (_of("y", ">=", dt.date(1994, 1, 1)), "y >= 1994-01-01", "`y` >= DATE'1994-01-01'"),
    (Comparison(col("i"), "<", col("j")), "i < j", "`i` < `j`"),
    (conjunction([TWO, _of("i", "<>", 5)]), "i <> 5 AND (i <= 0 OR s = 'a')", "`i` <> 5 AND (`i` <= 0 OR `s` = 'a')"),
    (
        disjunction([conjunction([_of("i", "<", 1), _of("s", "=", "a")]), _of("j", "=", 2)]),
        "(i <= 0 AND s = 'a') OR j = 2",
        "(`i` <= 0 AND `s` = 'a') OR `j` = 2",
    ),
    (disjunction([OPEN, _of("i", "<", 1)]), "i <= 0 OR (s > 'a' AND s < 'b')", "`i` <= 0 OR (`s` > 'a' AND `s` < 'b')"),
    (conjunction([OPEN, _of("i", "<", 1)]), "i <= 0 AND s > 'a' AND s < 'b'", "`i` <= 0 AND `s` > 'a' AND `s` < 'b'"),
    (
        InSet(OPEN.subject, OPEN.values, True),
        "(s > 'a' AND s < 'b') OR s IS NULL",
        "(`s` > 'a' AND `s` < 'b') OR `s` IS NULL",
    ),
    (FALSE, "FALSE", "FALSE"),
]


@pytest.mark.parametrize(("node", "description", "sql"), CASES, ids=lambda x: x if isinstance(x, str) else "")
def test_texts(node: Node, description: str, sql: str) -> None:
    assert describe(node) == describe(Filter.of(node)) == description
    assert to_sql(node) == sql


def test_functions_and_casts() -> None:
    cast = Call("try_cast", (Call("substring", (col("s"), Const(1, "int"), Const(2, "int")), "string"),), "bigint")
    assert to_sql(InSet(cast, ValueSet.point(7))) == "try_cast(substring(`s`, 1, 2) AS bigint) = 7L"
    assert to_sql(InSet(Call("likes", (Col("odd `x`", "int"),), "boolean"), ValueSet.point(1))) == "likes(`odd ``x```)"
    assert to_sql(Const(None, "int")) == "CAST(NULL AS INT)"
    cast = Call("try_cast", (col("s"),), "timestamp")  # whose name is another type's in some sessions
    assert (describe(cast), to_sql(cast)) == ("try_cast(s AS timestamp)", "try_cast(`s` AS timestamp_ltz)")


def test_long_lists_are_cut_for_people_only() -> None:
    literal = InSet(col("s"), ValueSet.of("abcdefg"))
    assert describe(literal) == "s IN ('a', 'b', 'c', 'd', 'e', ... 2 more)"
    assert to_sql(literal) == "`s` IN ('a', 'b', 'c', 'd', 'e', 'f', 'g')"


def test_floats_are_never_looked_up_in_lists() -> None:
    literal = InSet(col("d"), ValueSet.of([to_key(0.0, "double"), to_key(1.0, "double")]))
    assert to_sql(literal) == "`d` = CAST('0.0' AS DOUBLE) OR `d` = CAST('1.0' AS DOUBLE)"
    assert "IN" not in to_sql(InSet(col("d"), literal.values.complement()))


@pytest.mark.parametrize(
    ("key", "type", "sql"),
    [
        (0, "timestamp", "timestamp_micros(0L)"),
        (1, "timestamp_ntz", "TIMESTAMP_NTZ'1970-01-01 00:00:00.000001'"),
        (-(2**31), "date", "date_from_unix_date(-2147483648)"),
        (2**62, "timestamp_ntz", "timestampadd(MICROSECOND, 4611686018427387904L, TIMESTAMP_NTZ'1970-01-01 00:00:00')"),
        (1, "boolean", "TRUE"),
    ],
)
def test_constants_of_times_do_not_depend_on_the_session(key: int, type: str, sql: str) -> None:
    assert to_sql(Const(key, type)) == sql
