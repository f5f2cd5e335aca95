"""Texts in which a column is taken that no name in the parsed text shows: they are refused, or the column is found."""

from __future__ import annotations

import pytest

from layoutopt.model.schema import Column, Schema
from layoutopt.sql.problems import StatementError
from layoutopt.sql.scans import find_scans

NAMES = ("id", "price", "current_date", "current_user", "session_user", "current_timestamp")
SCHEMA = Schema(tuple(Column(name, "int") for name in NAMES))
OTHER = Schema((Column("id", "int"), Column("price", "int")))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id, current_user FROM t", "SELECT id FROM t WHERE current_user = 3", "SELECT id, CURRENT_DATE FROM t",
        "SELECT current_date, count(*) FROM t GROUP BY current_date", "SELECT session_user FROM t",
        "SELECT id FROM t WHERE current_timestamp = 5", "INSERT INTO x SELECT current_date FROM t",
        "SELECT id AS price, IDENTIFIER('price') FROM t", "SELECT id FROM t WHERE identifier('price') > 2",
        "SELECT count(*, price) FROM t",
        "WITH t AS (SELECT 77 AS id) SELECT id FROM (SELECT count(*, price) FROM t)",
    ],
)  # fmt: skip
def test_what_may_be_another_column_is_refused(sql: str) -> None:
    with pytest.raises(StatementError) as caught:
        find_scans(sql, {"t": SCHEMA})
    assert caught.value.code == "unsupported"


def test_functions_of_these_names_are_functions_where_no_column_has_one() -> None:
    (found,) = find_scans("SELECT id, current_date FROM t WHERE price = 3", {"t": OTHER})
    assert found.columns == ("id", "price")
    assert not found.unusable


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id FROM (SELECT * FROM t) q, LATERAL explode(array(price)) AS e(p) WHERE p > 20",
        "SELECT id FROM (SELECT * FROM t) q JOIN LATERAL (SELECT price AS p) WHERE p > 20",
        "SELECT sum(e.col) + max(id) FROM (SELECT * FROM t) q, LATERAL explode(sequence(1, price)) e",
    ],
)
def test_what_is_lateral_reads_columns_of_what_stands_before_it(sql: str) -> None:
    (found,) = find_scans(sql, {"t": OTHER})
    assert found.columns == ("id", "price")
