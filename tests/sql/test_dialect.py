"""SQL texts in and out."""

from __future__ import annotations

import logging

import pytest
import sqlglot

from layoutopt.sql.dialect import is_readable, parse_statement, split_statements
from layoutopt.sql.problems import StatementError

COMMAND = "CALL system.rewrite('t')"
"""What sqlglot knows no grammar for: it takes it for a command, and says so in its log."""


def test_what_is_no_query_is_not_told_to_the_hosts_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for dialect in ("spark", "postgres", "tsql"):
            assert is_readable(COMMAND, dialect)
    assert not caplog.records


def test_the_hosts_own_reading_of_sql_keeps_its_log(caplog: pytest.LogCaptureFixture) -> None:
    parse_statement(COMMAND)
    with caplog.at_level(logging.WARNING):
        sqlglot.parse_one(COMMAND, read="spark")
    assert "unsupported syntax" in caplog.text


def test_doubled_quotes_are_one() -> None:
    assert parse_statement("SELECT 'it''s'").expressions[0].this == "it's"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("exists(xs, X -> x = 5)", "exists(xs, X -> X = 5)"),
        ("exists(xs, x -> X.a.b > ID)", "exists(xs, x -> x.a.b > ID)"),
        (
            "exists(xs, `\N{LATIN SMALL LETTER SHARP S}` -> ss > 5)",
            "exists(xs, `\N{LATIN SMALL LETTER SHARP S}` -> ss > 5)",
        ),
        ("filter(xs, (e, I) -> i > E[0] AND t.i)", "filter(xs, (e, I) -> I > e[0] AND t.i)"),
        (
            "transform(xs, X -> aggregate(x, 0, (acc, y) -> Acc + Y))",
            "transform(xs, X -> aggregate(X, 0, (acc, y) -> acc + y))",
        ),
    ],
)
def test_variables_of_lambdas_are_found_in_any_case_and_before_columns(text: str, meant: str) -> None:
    found = parse_statement(f"SELECT {text}")
    assert found == sqlglot.parse_one(f"SELECT {meant}", read="spark")
    assert {column.name for column in found.find_all(sqlglot.exp.Column)} <= {"xs", "ID", "i", "ss"}


@pytest.mark.parametrize(
    "condition",
    ["x = +5", "x / +1024 = 1", "x BETWEEN +1 AND 2", "trunc(d, 'Q') IS NULL", "trunc(d, month) = d", "x + +1 = 2",
     "date_trunc('D', ts) = ts", "DATE_TRUNC(year, ts) = ts", "trunc(coalesce(d, e), concat('mo', 'nth')) = d"],
)  # fmt: skip
def test_what_a_tree_no_longer_says_is_refused(condition: str) -> None:
    with pytest.raises(StatementError, match=r"plus sign|unit"):
        parse_statement(f"SELECT 1 FROM t WHERE {condition}")


@pytest.mark.parametrize(
    "condition",
    ["x + 5 = 2", "date + 1 > d", "f(x) + 1 = a[0] + 2", "'1' + 1 = `a b` + 1", "trunc(coalesce(d, e), 'mon') = d",
     "date_trunc('QUARTER', ts) = ts", "trunc = 1 AND date_trunc > 2", "x = 1e+5", "end + 1 = 2"],
)  # fmt: skip
def test_what_it_says_is_read(condition: str) -> None:
    assert parse_statement(f"SELECT 1 FROM t WHERE {condition}")


@pytest.mark.parametrize(
    ("dialect", "text", "statements"),
    [
        ("spark", """SELECT a WHERE n = "O'Brien" AND s = 'a;b' AND c = "it's"; SELECT 2""", 2),
        ("spark", "SELECT 'it''s; one' ;SELECT 2 ; ", 2),
        ("mysql", "SELECT `it's` , ';x', `it's` ", 1),
        ("postgres", "SELECT $q$ a;b $q$ ; SELECT 2", 2),
        ("tsql", "SELECT [a;b] FROM t; SELECT 2", 2),
        ("mysql", "SELECT 1 # it's; one\n; SELECT 2", 2),
    ],
)
def test_statements_are_split_outside_quotes_of_every_kind(dialect: str, text: str, statements: int) -> None:
    assert len(split_statements(text, dialect)) == statements
