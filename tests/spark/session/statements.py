"""Statements and chains over an optimised table t (and u), each construct of Spark 4.3's grammar at least once.

``{c}`` stands for a condition on columns of t. In each, t is scanned at least once under it or what implies it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CONDITIONS: Final = (
    "kind = 'air'",
    "price > 50 AND id < 200",
    "id BETWEEN 40 AND 90 OR kind LIKE 'r%'",
    "year = 1995 AND NOT (kind <=> 'air')",
)

# Spark's versions that first run a statement, where 3.5 or 4.0 do not.
NEWER: Final = {"recursive common table": "4.1", "script": "4.1"}

SQL: Final = {
    "where": "SELECT id, kind FROM t WHERE {c}",
    "star": "SELECT * FROM t WHERE {c}",
    "star except": "SELECT * EXCEPT (score, seen) FROM t WHERE {c}",
    "alias of columns": "SELECT a.i, a.k FROM (SELECT id AS i, kind AS k, price, year, id, kind FROM t WHERE {c}) a",
    "alias of a table": "SELECT x.i FROM (SELECT * FROM t WHERE {c}) AS x(i, d, k, p, s, w, y)",
    "distinct": "SELECT DISTINCT kind, year FROM t WHERE {c}",
    "count": "SELECT count(*) FROM t WHERE {c}",
    "aggregates": "SELECT count(DISTINCT kind), sum(price), max(day), min(id), avg(id) FROM t WHERE {c}",
    "filtered aggregate": "SELECT count(*) FILTER (WHERE price > 60), sum(id) FROM t WHERE {c}",
    "group by": "SELECT kind, count(*) FROM t WHERE {c} GROUP BY kind",
    "group by all": "SELECT year, kind, sum(id) FROM t WHERE {c} GROUP BY ALL",
    "having": "SELECT kind, sum(id) AS s FROM t WHERE {c} GROUP BY kind HAVING sum(id) > 20",
    "having of groups": "SELECT kind, count(*) FROM (SELECT * FROM t WHERE {c}) GROUP BY kind HAVING kind > 'b'",
    "rollup": "SELECT kind, year, count(*) FROM t WHERE {c} GROUP BY ROLLUP (kind, year)",
    "cube": "SELECT kind, year, count(*) FROM t WHERE {c} GROUP BY CUBE (kind, year)",
    "grouping sets": "SELECT kind, year, count(*) FROM t WHERE {c} GROUP BY GROUPING SETS ((kind), (year), ())",
    "order": "SELECT id, price FROM t WHERE {c} ORDER BY price DESC NULLS LAST, id LIMIT 7 OFFSET 2",
    "sort": "SELECT id FROM t WHERE {c} SORT BY id",
    "distribute": "SELECT id FROM t WHERE {c} DISTRIBUTE BY kind SORT BY id",
    "cluster": "SELECT id FROM t WHERE {c} CLUSTER BY id",
    "window": "SELECT id, rank() OVER (PARTITION BY kind ORDER BY id) AS r FROM t WHERE {c}",
    "named window": "SELECT id, sum(id) OVER w AS s FROM t WHERE {c} WINDOW w AS (PARTITION BY year ORDER BY id)",
    "window frame": "SELECT id, sum(id) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM t WHERE {c}",
    "first of each": "SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY kind ORDER BY id) n FROM t WHERE {c}) "
    "WHERE n = 1",
    "inner join": "SELECT t.id, d.n FROM t JOIN dim d ON t.kind = d.kind WHERE {c:t}",
    "join using": "SELECT id, n FROM (SELECT * FROM t WHERE {c}) JOIN dim USING (kind)",
    "natural join": "SELECT id, n FROM (SELECT id, kind FROM t WHERE {c}) NATURAL JOIN dim",
    "left join": "SELECT d.kind, t.id FROM dim d LEFT JOIN t ON d.kind = t.kind AND {c:t}",
    "right join": "SELECT d.kind, t.id FROM t RIGHT JOIN dim d ON d.kind = t.kind AND {c:t}",
    "full join": "SELECT d.kind, t.id FROM dim d FULL JOIN (SELECT * FROM t WHERE {c}) t ON d.kind = t.kind",
    "cross join": "SELECT t.id, d.n FROM t CROSS JOIN dim d WHERE {c:t} AND d.n < 2",
    "comma join": "SELECT t.id, d.n FROM t, dim d WHERE t.kind = d.kind AND {c:t}",
    "semi join": "SELECT d.kind FROM dim d LEFT SEMI JOIN t ON d.kind = t.kind AND {c:t}",
    "anti join": "SELECT d.kind FROM dim d LEFT ANTI JOIN t ON d.kind = t.kind AND {c:t}",
    "self-join": "SELECT a.id, b.id AS o FROM t a JOIN t b ON a.price = b.price AND a.id < b.id WHERE {c:a} AND {c:b}",
    "two tables": "SELECT t.id, u.price FROM t JOIN u ON t.id = u.id WHERE {c:t} AND u.id BETWEEN 5 AND 60",
    "hint": "SELECT /*+ BROADCAST(t) */ t.id FROM t JOIN dim d ON d.kind = t.kind WHERE {c:t}",
    "merge hint": "SELECT /*+ MERGE(t) */ t.id FROM t JOIN dim d ON d.kind = t.kind WHERE {c:t}",
    "exists": "SELECT kind FROM dim d WHERE EXISTS (SELECT 1 FROM t WHERE t.kind = d.kind AND {c:t})",
    "not exists": "SELECT kind FROM dim d WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.kind = d.kind AND {c:t})",
    "in": "SELECT kind FROM dim WHERE kind IN (SELECT kind FROM t WHERE {c})",
    "not in": "SELECT kind FROM dim WHERE kind NOT IN (SELECT kind FROM t WHERE {c} AND kind IS NOT NULL)",
    "scalar subquery": "SELECT kind, (SELECT max(id) FROM t WHERE {c}) AS m FROM dim",
    "correlated scalar": "SELECT kind, (SELECT count(*) FROM t WHERE t.kind = d.kind AND {c:t}) AS m FROM dim d",
    "subquery in a filter": "SELECT id FROM t WHERE {c} AND price >= (SELECT avg(price) FROM t WHERE {c})",
    "lateral": "SELECT d.kind, m FROM dim d, LATERAL (SELECT count(*) AS m FROM t WHERE t.kind = d.kind AND {c:t})",
    "lateral view": "SELECT id, e FROM t LATERAL VIEW explode(array(id, year)) x AS e WHERE {c}",
    "outer lateral view": "SELECT id, e FROM t LATERAL VIEW OUTER explode(array()) x AS e WHERE {c}",
    "generator": "SELECT id, explode(array(1, 2)) AS e FROM t WHERE {c}",
    "inline": "SELECT id, a, b FROM t, LATERAL inline(array(struct(1 AS a, 2 AS b))) WHERE {c}",
    "union": "SELECT id FROM t WHERE {c} UNION SELECT id FROM u WHERE id < 9",
    "union all": "SELECT id FROM t WHERE {c} UNION ALL SELECT n FROM dim",
    "intersect": "SELECT id FROM t WHERE {c} INTERSECT SELECT id FROM u",
    "intersect all": "SELECT kind FROM t WHERE {c} INTERSECT ALL SELECT kind FROM u",
    "except": "SELECT id FROM u EXCEPT SELECT id FROM t WHERE {c}",
    "minus all": "SELECT kind FROM u MINUS ALL SELECT kind FROM t WHERE {c}",
    "common table": "WITH c AS (SELECT * FROM t WHERE {c}) SELECT x.id FROM c x JOIN c y ON x.id = y.id",
    "common table of the name": "WITH t AS (SELECT * FROM t WHERE {c}) SELECT count(*) FROM t",
    "nested common tables": "WITH a AS (WITH b AS (SELECT * FROM t) SELECT * FROM b WHERE {c}) SELECT id FROM a",
    "recursive common table": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) "
    "SELECT t.id FROM r JOIN (SELECT * FROM t WHERE {c}) t ON t.id = r.n",
    "pivot": "SELECT * FROM (SELECT kind, year, id FROM t WHERE {c}) PIVOT (count(id) FOR year IN (1994, 1995))",
    "unpivot": "SELECT * FROM (SELECT id, year FROM t WHERE {c}) UNPIVOT (v FOR name IN (id, year))",
    "values": "SELECT t.id FROM VALUES (17), (18), (19) AS v(n) JOIN t ON t.id = v.n WHERE {c:t}",
    "table functions": "SELECT t.id FROM range(300) r JOIN t ON t.id = r.id WHERE {c:t}",
    "sample": "SELECT count(*) > 0 FROM t TABLESAMPLE (100 PERCENT) WHERE {c}",
    "case": "SELECT CASE WHEN price > 60 THEN 'dear' ELSE kind END AS x FROM t WHERE {c}",
    "if": "SELECT id FROM t WHERE if(year = 1994, {c}, false)",
    "case in a filter": "SELECT id FROM t WHERE CASE WHEN id < 250 THEN {c} ELSE id > 280 END",
    "coalesced": "SELECT id FROM t WHERE coalesce({c}, false)",
    "is true": "SELECT id FROM t WHERE ({c}) IS TRUE",
    "double negation": "SELECT id FROM t WHERE NOT NOT ({c})",
    "higher-order": "SELECT id FROM t WHERE {c} AND exists(array(id, year), x -> x > 1990)",
    "struct": "SELECT s.id FROM (SELECT struct(id, kind) AS s FROM t WHERE {c})",
    "parameters": "SELECT id FROM t WHERE {c} AND id > :least",
    "session variable": "SELECT id FROM t WHERE {c} AND id > least_id",
    "identifier": "SELECT id FROM IDENTIFIER('t') WHERE {c}",
    "dynamic": "EXECUTE IMMEDIATE \"SELECT id FROM t WHERE {c}\"",
    "pipe": "FROM t |> WHERE {c} |> SELECT id, kind |> ORDER BY id",
    "pipe aggregate": "FROM t |> WHERE {c} |> AGGREGATE count(*) AS n GROUP BY kind |> WHERE n > 1",
    "pipe extend": "FROM t |> EXTEND id + 1 AS more |> WHERE {c} |> SET more = more * 2 |> DROP score |> SELECT more",
    "pipe join": "FROM t |> WHERE {c} |> AS x |> JOIN dim d ON x.kind = d.kind |> SELECT id, n",
    "script": "BEGIN DECLARE least INT = 5; SELECT id FROM t WHERE {c} AND id > least; END",
    "function": "SELECT id FROM t WHERE is_wanted(({c}))",
    "table function": "SELECT id FROM of_table() WHERE {c}",
    "view": "SELECT id FROM all_of_t WHERE {c}",
    "global view": "SELECT id FROM global_temp.global_t WHERE {c}",
    "table statement": "SELECT id FROM (TABLE t) WHERE {c}",
    "constant": "SELECT id FROM t WHERE {c} AND 1 + 1 = 2",
    "false": "SELECT id FROM t WHERE {c} AND 1 = 2",
    "twice": "SELECT id FROM t WHERE ({c}) AND ({c})",
    "either": "SELECT id FROM t WHERE ({c}) OR id = 299",
    "transitive": "SELECT a.id FROM t a JOIN t b ON a.id = b.id WHERE b.id < 20 AND {c:b}",
    "json": "SELECT to_json(struct(id, kind)) AS j FROM t WHERE {c}",
    "collated": "SELECT id FROM t WHERE {c} AND kind COLLATE UTF8_LCASE = 'AIR' OR id = 3",
    "intervals": "SELECT id FROM t WHERE {c} AND day + INTERVAL 1 DAY > DATE'1970-01-01'",
    "random": "SELECT id FROM t WHERE {c} AND rand() < 2",
}  # fmt: skip
"""``{c:a}`` is the condition with the columns of ``a``."""

CHAINS: Final[dict[str, Callable[[DataFrame, DataFrame, str], DataFrame]]] = {
    "where": lambda t, d, c: t.where(c).select("id", "kind"),
    "filter twice": lambda t, d, c: t.filter(c).filter("id >= 0").select("id"),
    "select first": lambda t, d, c: t.select("id", "kind", "price", "year").where(c).select("id"),
    "with column": lambda t, d, c: t.withColumn("more", F.col("id") + 1).where(c).select("more"),
    "renamed": lambda t, d, c: t.where(c).withColumnRenamed("kind", "k").groupBy("k").count(),
    "dropped": lambda t, d, c: t.drop("score").where(c).select("id"),
    "join": lambda t, d, c: t.where(c).join(d, "kind").select("id", "n"),
    "left join": lambda t, d, c: d.join(t.where(c), "kind", "left").select("kind", "id"),
    "semi join": lambda t, d, c: d.join(t.where(c), "kind", "left_semi"),
    "anti join": lambda t, d, c: d.join(t.where(c), "kind", "left_anti"),
    "filter after a join": lambda t, d, c: (
        t.join(d.select(F.col("kind").alias("k2"), "n"), F.col("kind") == F.col("k2")).where(c).select("id", "n")
    ),
    "union by name": lambda t, d, c: (
        t.where(c).select("id", "kind").unionByName(d.select("kind", F.col("n").alias("id")))
    ),
    "union": lambda t, d, c: t.where(c).select("id").union(d.select("n")),
    "intersect": lambda t, d, c: t.where(c).select("id").intersect(t.select("id")),
    "subtract": lambda t, d, c: t.select("id").subtract(t.where(c).select("id")),
    "aggregated": lambda t, d, c: t.where(c).agg(F.count("*"), F.sum("id"), F.max("price")),
    "grouped": lambda t, d, c: t.where(c).groupBy("kind", "year").agg(F.sum("id").alias("s")),
    "pivoted": lambda t, d, c: t.where(c).groupBy("kind").pivot("year", [1994, 1995]).count(),
    "distinct": lambda t, d, c: t.where(c).select("kind").distinct(),
    "deduplicated": lambda t, d, c: t.where(c).dropDuplicates(["kind"]).select("kind"),
    "window": lambda t, d, c: t.where(c).select("id", F.row_number().over(Window.partitionBy("kind").orderBy("id"))),
    "ordered": lambda t, d, c: t.where(c).orderBy("id").limit(5).select("id"),
    "exploded": lambda t, d, c: t.where(c).select("id", F.explode(F.array("id", "year"))),
    "melted": lambda t, d, c: t.where(c).select("id", "year").unpivot([], ["id", "year"], "name", "v"),
    "text and filter": lambda t, d, c: t.sparkSession.sql("SELECT * FROM t").filter(c).select("id"),
    "filter and text": lambda t, d, c: t.sparkSession.sql("SELECT id FROM {rows} WHERE id < 250", rows=t.where(c)),
    "self-join": lambda t, d, c: t.where(c).alias("a").join(t.alias("b"), F.expr("a.id = b.id")).select("a.id"),
    "nulls": lambda t, d, c: t.where(c).na.drop(subset=["kind"]).na.fill({"price": 0}).select("id", "price"),
    "repartitioned": lambda t, d, c: t.repartition(3).where(c).select("id"),
    "transformed": lambda t, d, c: t.transform(lambda rows: rows.where(c)).selectExpr("id * 2 AS twice"),
    "in pandas": lambda t, d, c: t.where(c).select("id").mapInArrow(lambda batches: batches, "id int"),
    "hinted": lambda t, d, c: d.join(t.where(c).hint("broadcast"), "kind").select("id"),
    "named anew": lambda t, d, c: t.toDF(*(f"{name}_" for name in t.columns)).toDF(*t.columns).where(c)[["id"]],
}


def filled(sql: str, condition: str) -> str:
    """A statement with a condition in it."""
    for place in ("a", "b", "t"):
        columns = condition
        for name in ("kind", "price", "id", "year"):
            columns = columns.replace(name, f"{place}.{name}")
        sql = sql.replace(f"{{c:{place}}}", f"({columns})")
    return sql.replace("{c}", f"({condition})")
