"""Queries whose answers are compared with those over the source."""

from __future__ import annotations

QUERIES = [
    "SELECT * FROM t",
    "SELECT count(*) FROM t",
    "SELECT id, price FROM t WHERE kind = 'air'",
    "SELECT id FROM t WHERE kind IN ('air', 'rail') AND price > 60",
    "SELECT id FROM t WHERE kind LIKE 'sh%p' OR id = 15",
    "SELECT id, score FROM t WHERE score > 0.25",
    "SELECT id FROM t WHERE score <= 0",
    "SELECT id FROM t WHERE NOT score < 0.5",
    "SELECT id FROM t WHERE kind IS NULL AND year = 1995",
    "SELECT id FROM t WHERE seen >= '2020-03-01 00:00:00' AND day < date '1995-01-01'",
    "SELECT kind, count(*) AS n, sum(price) AS total FROM t WHERE year = 1994 GROUP BY kind ORDER BY kind",
    "SELECT a.id, b.id AS other FROM t a JOIN t b ON a.price = b.price WHERE a.kind = 'air' AND b.kind = 'rail'",
    "WITH c AS (SELECT id, kind FROM t WHERE price > 50) SELECT x.id FROM c x JOIN c y ON x.id = y.id AND y.id > 9",
    "SELECT id FROM t WHERE id IN (SELECT id FROM t WHERE kind = 'ship') AND year = 1996",
    "SELECT a.id FROM t a LEFT JOIN t b ON a.id = b.id AND b.kind = 'air' WHERE b.id IS NULL",
    "SELECT id FROM t WHERE kind = 'no such kind'",
    "WITH c AS (SELECT * FROM t WHERE kind = 'air' UNION ALL SELECT * FROM t WHERE id = 7) SELECT price FROM c",
    "WITH c AS (SELECT * FROM t) SELECT count(*) AS n FROM c",
    "SELECT x.price FROM (SELECT DISTINCT kind, price, year FROM t) x WHERE x.year = 1995",
    "SELECT id FROM t WHERE kind = 'air' UNION ALL SELECT id FROM t WHERE price > 90",
]

FEW_QUERIES = (
    "SELECT id, kind FROM t WHERE kind IN ('air', 'rail')",
    "SELECT price, seen, id FROM t WHERE price > 50 OR kind LIKE '%p'",
    "SELECT count(*) AS n FROM t WHERE score < 0.5",
    "SELECT id, score, day FROM t WHERE year = 1995 AND id > 20",
    "SELECT year FROM t WHERE kind IS NULL",
)
"""Those that are asked after each change of a table."""
