"""Queries with pipes: what Spark returns for them, it returns for the nested queries that they are read as."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from layoutopt.sql.dialect import get_dialect
from layoutopt.sql.pipes import remove_pipes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPED = [
    "FROM pt |> LIMIT 0 |> WHERE a = 1",
    "FROM pt |> WHERE a > 1 -- c |> d\n |> WHERE b < 9 OR a = 3 |> SELECT b, a AS k /* |> */ |> WHERE k > 1",
    "FROM pt x |> EXTEND a + 1 AS k, b * 2 AS m |> WHERE x.a > 1 AND k < 4 |> DROP c, m",
    "FROM pt |> AGGREGATE sum(a) AS s, count(*) GROUP BY b % 2 AS even, c |> WHERE s > 1 |> SELECT even, s, c",
    "FROM pt |> AGGREGATE max(a) AS m, count(DISTINCT b)",
    "FROM pt |> AGGREGATE GROUP BY c",
    "FROM pt |> ORDER BY a DESC, b |> LIMIT 2 |> WHERE a < 9",
    "FROM pt |> JOIN pu ON pt.a = pu.a |> WHERE pt.b > 1 AND pu.y > 1 |> SELECT pt.a, pu.y, c",
    "FROM pt |> WHERE b > 1 |> LEFT JOIN pu ON pt.a = pu.a |> WHERE pu.y IS NULL OR pt.b > 2",
    "FROM pt |> WHERE b > 1 |> RIGHT JOIN pu USING (a) |> WHERE pu.y > 0",
    "FROM pt |> LEFT SEMI JOIN pu ON pt.a = pu.a |> WHERE b > 1 |> AS q |> WHERE q.a = 2",
    "FROM pt, pu |> WHERE pt.a = pu.a |> ORDER BY y |> LIMIT 100",
    "SELECT a, b FROM pt WHERE a > 1 |> LIMIT 100 |> EXTEND row_number() OVER (ORDER BY a, b) AS r |> WHERE r < 3",
    "WITH q AS (SELECT a FROM pt) SELECT * FROM q |> UNION ALL (SELECT y FROM pu) |> WHERE a > 1",
    "FROM pt |> SELECT a |> EXCEPT ALL (SELECT a FROM pu) |> INTERSECT (SELECT a FROM pt)",
    "FROM pt |> SELECT DISTINCT c |> AGGREGATE count(*) AS n |> EXTEND n + 1 AS n1",
    "FROM pt |> WHERE c IN ('x |> y', 'x') |> SELECT count(*) OVER () AS n",
]


@pytest.mark.spark
def test_nested_queries_return_what_spark_does(spark: SparkSession) -> None:
    rows = [(1, 2, "x"), (2, 3, "y"), (2, 2, None), (3, 1, "x"), (None, 5, "x |> y"), (9, 9, "y")]
    spark.createDataFrame(rows, "a int, b int, c string").createOrReplaceTempView("pt")
    spark.createDataFrame([(1, 1), (2, 2), (2, 0), (7, 3)], "a int, y int").createOrReplaceTempView("pu")
    for sql in PIPED:
        nested = remove_pipes(sql, get_dialect("spark").tokenize(sql))
        assert nested is not None
        piped, plain = spark.sql(sql), spark.sql(nested.sql)
        assert piped.columns == plain.columns, (sql, nested.sql)
        assert sorted(map(repr, piped.collect())) == sorted(map(repr, plain.collect())), (sql, nested.sql)


def test_texts_without_pipes_stay() -> None:
    assert remove_pipes("SELECT '|>'", get_dialect("spark").tokenize("SELECT '|>'")) is None
