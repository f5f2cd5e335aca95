"""Queries that tests of evaluations replay."""

from __future__ import annotations

from layoutopt.model.query import Query
from layoutopt.sql.scans import find_scans
from tests.scan.tables import SCHEMA


def query(number: int, sql: str) -> Query:
    (scan,) = find_scans(sql, {"t": SCHEMA})
    return Query(number, "t", scan.columns, scan.filter, sql=sql, exact=scan.exact)


LOG = [
    query(0, "SELECT id, price FROM t WHERE kind IN ('air', 'rail') AND year = 1995"),
    query(1, "SELECT count(*) FROM t"),
    query(4, "SELECT kind FROM t WHERE id > 295"),
    query(5, "SELECT id FROM t WHERE cast(score AS string) = '0.5'"),
]
