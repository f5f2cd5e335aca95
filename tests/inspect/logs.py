"""A log on the rows of :mod:`tests.scan.tables`, and its queries."""

from __future__ import annotations

from layoutopt.model.query import Query
from layoutopt.workload.analyze import analyze
from layoutopt.workload.log import LogEntry
from tests.scan.tables import SCHEMA

LOG = [
    "SELECT id, price FROM t WHERE kind IN ('air', 'rail') AND year = 1995",
    "SELECT id FROM t WHERE kind = 'air' AND price > 60",
    "SELECT x.price FROM t AS x WHERE x.kind = 'air' OR x.id = 12",
    "SELECT count(*) FROM t",
    "SELECT id FROM t WHERE score < 0.25",
    "SELECT id FROM t WHERE day >= date '1995-06-01' AND kind LIKE '%p'",
    "SELECT a.id FROM t a JOIN t b ON a.id = b.id WHERE a.kind = 'air' AND b.price > 90",
    "SELECT id FROM t WHERE kind = 5",
    "SELECT id FROM t WHERE kind = 'air' AND price > 60",
    "SELECT id FROM t WHERE kind = 'air' AND upper(kind) = 'AIR'",
    "SELECT id FROM t WHERE seen IS NULL AND kind IS NOT NULL",
]


def logged(texts: list[str] = LOG) -> tuple[Query, ...]:
    return analyze([LogEntry(id=i, sql=text) for i, text in enumerate(texts)], SCHEMA, "t").queries
