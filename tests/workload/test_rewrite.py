"""Statements moved onto other relations."""

from __future__ import annotations

import duckdb
import pytest

from layoutopt.errors import QueryError
from layoutopt.workload.rewrite import to_engine_sql


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT t.a FROM t WHERE t.a = 1", 'SELECT t.a FROM "v" AS t WHERE t.a = 1'),
        ("SELECT x.a FROM T AS x", 'SELECT x.a FROM "v" AS x'),
        ("SELECT a FROM other", "SELECT a FROM other"),
        ("SELECT a FROM db.t", "SELECT a FROM db.t"),
        ("WITH t AS (SELECT 1 AS a) SELECT a FROM t", "WITH t AS (SELECT 1 AS a) SELECT a FROM t"),
        ("WITH t AS (SELECT a FROM t) SELECT a FROM t", 'WITH t AS (SELECT a FROM "v" AS t) SELECT a FROM t'),
        ("SELECT 1 FROM u WHERE EXISTS (SELECT 1 FROM t)", 'SELECT 1 FROM u WHERE EXISTS(SELECT 1 FROM "v" AS t)'),
    ],
)
def test_tables_are_replaced_and_names_kept(sql: str, expected: str) -> None:
    assert to_engine_sql(sql, {"t": "v"}) == expected


def test_qualified_columns_follow_their_table() -> None:
    assert to_engine_sql("SELECT db.t.a FROM db.t", {"db.t": "v"}) == 'SELECT t.a FROM "v" AS t'


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (r"'50%' LIKE '50\%'", True),
        (r"'50x' LIKE '50\%'", False),
        ("isnan(CAST(NULL AS DOUBLE))", False),
        ("'it''s' = \"it's\"", True),
    ],
)
def test_duckdb_answers_as_spark_does(condition: str, expected: bool) -> None:
    text = to_engine_sql(f"SELECT {condition}", {})
    assert duckdb.connect().execute(text).fetchall() == [(expected,)]


def test_spark_text_stays_spark_text() -> None:
    assert to_engine_sql("SELECT a FROM t WHERE s RLIKE 'x'", {"t": "v"}, write="spark") == (
        "SELECT a FROM `v` AS t WHERE s RLIKE 'x'"
    )


def test_broken_texts_are_named() -> None:
    with pytest.raises(QueryError, match="can't be parsed"):
        to_engine_sql("SELECT (", {})
