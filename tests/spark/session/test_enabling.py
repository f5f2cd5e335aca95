"""Sessions that skip: the same answers as without, whatever a query is written in, and less read where it must be."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from layoutopt.errors import SettingError
from layoutopt.inspect.cost import dry_run
from layoutopt.spark import disable, enable, last_scans, register, why
from tests.effort import long_too, one_in
from tests.scan.builder import build, building, by_position
from tests.scan.layouts import GROUPS
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows
from tests.spark.session.answers import answer, skipped
from tests.spark.settings import compared_here, new_session, under

pytestmark = [pytest.mark.spark, pytest.mark.checks_texts, pytest.mark.usefixtures("each_reader")]

# What must skip reads fewer blocks than there are in at least one mention of an optimised table.
SKIPPING = {
    "filter": "SELECT id, kind FROM t WHERE kind = 'air'",
    "left join": "SELECT d.kind, t.id FROM dim d LEFT JOIN t ON d.kind = t.kind AND t.kind = 'air'",
    "right join": "SELECT d.kind, t.id FROM dim d RIGHT JOIN t ON d.kind = t.kind WHERE t.price > 50",
    "full join": "SELECT d.kind, t.id FROM dim d FULL JOIN (SELECT * FROM t WHERE price > 50) t ON d.kind = t.kind",
    "join of a join": "SELECT a.id, b.id FROM t a JOIN dim d USING (kind) JOIN u b ON a.id = b.id WHERE b.id < 20",
    "anti join": "SELECT d.kind FROM dim d LEFT ANTI JOIN t ON d.kind = t.kind AND t.price > 50",
    "semi join": "SELECT d.kind FROM dim d LEFT SEMI JOIN t ON d.kind = t.kind AND t.id < 3",
    "not exists": "SELECT kind FROM dim d WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.kind = d.kind AND t.price > 50)",
    "count": "SELECT count(*) AS n FROM t WHERE kind = 'air'",
    "count of no columns": "SELECT count(1) AS n FROM t WHERE kind = 'air' AND year = 1994",
    "limit": "SELECT count(*) AS n FROM (SELECT id FROM t WHERE kind = 'air' LIMIT 5)",
    "ordered limit": "SELECT id FROM t WHERE kind = 'air' ORDER BY id DESC LIMIT 5 OFFSET 2",
    "not in with NULL": "SELECT id FROM t WHERE kind NOT IN ('air', NULL)",
    "not in a subquery": "SELECT kind FROM dim WHERE kind NOT IN (SELECT kind FROM t WHERE price > 50)",
    "long list": f"SELECT id FROM t WHERE id IN ({', '.join(str(-n if n > 40 else n) for n in range(2_000))})",
    "self-join": "SELECT a.id, t.id AS other FROM t a JOIN t ON a.price = t.price WHERE a.kind = 'air' AND t.id < 99",
    "CTE used twice": "WITH c AS (SELECT * FROM t WHERE kind = 'air') SELECT x.id FROM c x JOIN c y ON x.id = y.id",
    "CTE of the table's name": "WITH t AS (SELECT * FROM t WHERE kind = 'air') SELECT count(*) AS n FROM t",
    "window": "SELECT id, rank() OVER (PARTITION BY kind ORDER BY id) AS r FROM t WHERE kind IN ('air', 'rail')",
    "union": "SELECT id FROM t WHERE kind = 'air' UNION SELECT id FROM u WHERE id < 9 UNION ALL SELECT n FROM dim",
    "two tables": "SELECT t.id, u.price FROM t JOIN u ON t.id = u.id WHERE t.kind = 'air' AND u.id BETWEEN 5 AND 60",
    "scalar subquery": "SELECT id FROM t WHERE price = (SELECT max(price) FROM u WHERE id < 30) AND kind LIKE '%p'",
    "lateral": "SELECT d.kind, m FROM dim d, LATERAL (SELECT count(*) AS m FROM t WHERE t.kind = d.kind AND id < 9)",
    "pivot": "SELECT * FROM (SELECT kind, year FROM t WHERE id < 9) PIVOT (count(1) FOR year IN (1994, 1995))",
    "natural join": "SELECT * FROM dim NATURAL JOIN (SELECT id, kind FROM t WHERE id < 40)",
    "characters": "SELECT '😀' AS s, /* t */ id FROM t WHERE kind = 'air' -- FROM t",
    "hint": "SELECT /*+ BROADCAST(t) */ t.id FROM t JOIN dim d ON d.kind = t.kind WHERE t.id < 7",
    "qualified star": "SELECT t.* FROM t JOIN dim USING (kind) WHERE t.kind = 'air'",
    "identifier": "SELECT count(*) AS n FROM IDENTIFIER('t') WHERE kind = 'air'",
    "random": "SELECT id FROM t WHERE kind = 'air' AND rand() >= -1e-9 AND NOT (id > 250 OR rand(3) > 0.9999999999)",
    "pipes": "FROM t |> WHERE kind = 'air' |> SELECT id, price |> WHERE price > 20",
    "lateral alias": "SELECT id + 1 AS next, next * 2 AS twice FROM t WHERE kind = 'air' AND id + 1 > 5",
    "group by cube": "SELECT kind, year, count(*) AS n FROM t WHERE id < 90 GROUP BY CUBE (kind, year)",
    "values of a VALUES list": "SELECT id FROM t JOIN (VALUES ('air'), ('rail')) v(k) ON kind = k WHERE k = 'air'",
    "condition above a window": "SELECT * FROM (SELECT id, kind, count(*) OVER (PARTITION BY kind) AS n FROM t) "
    "WHERE kind = 'air'",
    "group": "SELECT kind AS k, avg(price) AS p, count(*) AS n FROM t WHERE price > 50 GROUP BY 1 HAVING count(*) > 2",
}  # fmt: skip
# The same in DataFrames, each of a session that knows t, u and dim.
FRAMES: dict[str, Callable[[SparkSession], DataFrame]] = {
    "where": lambda s: s.table("t").where("kind = 'air'"),
    "renamed": lambda s: s.table("t").select("id", F.col("KIND").alias("k")).where("k = 'air' AND id > 3"),
    "computed": lambda s: s.table("t").withColumn("next", F.col("id") + 1).where("next > 250").drop("day"),
    "join": lambda s: s.table("t").join(s.table("dim"), "kind").where(F.col("price") > 50).select("id", "n", "kind"),
    "left join": lambda s: s.table("dim").join(s.table("t").where("kind = 'air'"), "kind", "left").select("n", "id"),
    "anti join": lambda s: s.table("dim").join(s.table("t").where("price > 50"), "kind", "anti"),
    "self-join": lambda s: s.table("t").alias("a").where("a.kind = 'air'").join(s.table("t").alias("b"), "id")
    .select("id", "a.price", F.col("b.kind").alias("other")),
    "union": lambda s: s.table("t").where("id < 9").unionByName(s.table("u").where("id > 290")).select("kind", "id"),
    "intersection": lambda s: s.table("t").where("kind = 'air'").select("id").intersect(s.table("u").select("id")),
    "difference": lambda s: s.table("t").where("id < 80").select("id").exceptAll(s.table("u").where("id < 30")[["id"]]),
    "no NULL": lambda s: s.table("t").dropna(subset=["kind"]).where("id < 9").fillna("none", ["kind"]).select("id"),
    "list": lambda s: s.table("t").where(F.col("id").isin([*range(40), 1_000, None])).select("kind", "id"),
    "window": lambda s: s.table("t").withColumn("n", F.count("*").over(Window.partitionBy("kind")))
    .where(F.col("kind") == "air").select("id", "n"),
    "groups": lambda s: s.table("t").where(F.col("price").between(10, 20)).groupBy("kind").agg(F.max("id").alias("m")),
    "groups that are left": lambda s: s.table("t").groupBy("kind", "year").count().where("kind = 'air'"),
    "ordered limit": lambda s: s.table("t").where("kind = 'air'").orderBy(F.desc("id")).limit(5).select("id"),
    "distinct": lambda s: s.table("t").where("kind <=> 'air'").select("year", "kind").distinct(),
    "column of a subquery": lambda s: s.table("t").where(F.col("id") < s.table("u").agg(F.max("id") - 270).scalar())
    .where("kind = 'air'").select("id"),
    "choice": lambda s: s.table("t").where(F.when(F.col("kind") == "air", 1).otherwise(0) == 1).select("id"),
    "view of a DataFrame": lambda s: _viewed(s.table("t").where("price > 20")).where("kind = 'air'").select("id"),
}  # fmt: skip
# Nothing can be skipped in these: right answers are all that is asked.
WHOLE = {
    "everything": "SELECT * FROM t",
    "count all": "SELECT count(*) AS n FROM t",
    "outer join": "SELECT d.kind, t.id FROM dim d LEFT JOIN t ON d.kind = t.kind WHERE t.id IS NULL",
    "anti join by NULL": "SELECT d.kind FROM dim d LEFT JOIN t ON d.kind = t.kind AND t.id > 5 WHERE t.kind IS NULL",
    "not in a list with NULL": "SELECT id FROM t WHERE id NOT IN (1, 2) OR kind IS NULL",
    "values": "SELECT * FROM VALUES (1, 't') AS v(a, t)",
    "table statement": "TABLE t",
    "exists": "SELECT kind FROM dim WHERE EXISTS (SELECT * FROM t)",
}


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return some_rows()


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory, rows: pa.Table) -> dict[str, Path]:
    """Where t (by features, partitioned), u (by id) and g (as t, in column groups) lie."""
    root = tmp_path_factory.mktemp("tables")
    build(root / "t", rows, building(SCHEMA, CONDITIONS, partition_by="year", segment_rows=60))
    build(root / "u", rows.sort_by("id"), building(SCHEMA, CONDITIONS, blocking=by_position(30)))
    build(root / "g", rows, building(SCHEMA, CONDITIONS, layouts=GROUPS, partition_by="year", segment_rows=60))
    return {name: root / name for name in "tug"}


@pytest.fixture(scope="module")
def on_the_source(spark: SparkSession, rows: pa.Table) -> SparkSession:
    """A session in which t and u are the source, which lies in no file."""
    session = new_session(spark)
    for name in ("t", "u"):
        session.createDataFrame(rows).coalesce(1).createOrReplaceTempView(name)
    _add_dim(session)
    return session


@pytest.fixture(scope="module")
def enabled(spark: SparkSession, tables: dict[str, Path]) -> Iterator[SparkSession]:
    """A session of its own in which t and u are optimised tables."""
    yield from _enabled(new_session(spark), {"t": tables["t"], "u": tables["u"]})


@pytest.fixture(scope="module")
def enabled_groups(spark: SparkSession, tables: dict[str, Path]) -> Iterator[SparkSession]:
    """The same with t in column groups."""
    yield from _enabled(new_session(spark), {"t": tables["g"], "u": tables["u"]})


def _enabled(session: SparkSession, tables: dict[str, Path]) -> Iterator[SparkSession]:
    for name, path in tables.items():
        register(session, name, str(path))
    _add_dim(session)
    enable(session)
    with compared_here():
        yield session
    disable(session)


def _add_dim(session: SparkSession) -> None:
    kinds = [("air", 1), ("ship", 2), (None, 3), ("no such kind", 4)]
    session.createDataFrame(kinds, "kind string, n int").coalesce(1).createOrReplaceTempView("dim")


@pytest.mark.parametrize("sql", one_in(2, SKIPPING))
def test_less_is_read_and_the_answer_is_the_same(sql: str, enabled: SparkSession, on_the_source: SparkSession) -> None:
    assert answer(enabled.sql(sql)) == answer(on_the_source.sql(sql))
    assert skipped(enabled) > 0
    assert not any(scan.note for scan in last_scans(enabled))


def _viewed(frame: DataFrame) -> DataFrame:
    frame.createOrReplaceTempView("viewed")
    return frame.sparkSession.table("viewed")


@pytest.mark.parametrize("name", one_in(2, FRAMES.keys()))
def test_dataframes_read_less_and_have_the_same_rows(
    name: str, enabled: SparkSession, on_the_source: SparkSession
) -> None:
    assert answer(FRAMES[name](enabled)) == answer(FRAMES[name](on_the_source)) != []
    assert skipped(enabled) > 0
    assert not any(scan.note for scan in last_scans(enabled))


@pytest.mark.parametrize("sql", one_in(2, WHOLE))
def test_where_nothing_is_skipped_the_answer_is_the_same(
    sql: str, enabled: SparkSession, on_the_source: SparkSession
) -> None:
    assert answer(enabled.sql(sql)) == answer(on_the_source.sql(sql))
    assert skipped(enabled) == 0


@pytest.mark.parametrize(
    "name", ["filter", "self-join", "CTE used twice", *long_too("left join", "count", "two tables")]
)
def test_column_groups_skip_too(name: str, enabled_groups: SparkSession, on_the_source: SparkSession) -> None:
    assert answer(enabled_groups.sql(SKIPPING[name])) == answer(on_the_source.sql(SKIPPING[name]))
    assert skipped(enabled_groups) > 0


@pytest.mark.parametrize(
    "name", ["renamed", "self-join", "groups", *long_too("computed", "window", "no NULL", "intersection")]
)
def test_column_groups_skip_in_dataframes_too(
    name: str, enabled_groups: SparkSession, on_the_source: SparkSession
) -> None:
    assert answer(FRAMES[name](enabled_groups)) == answer(FRAMES[name](on_the_source)) != []
    assert skipped(enabled_groups) > 0


NO_ROWS = {
    "both sides of a join": "SELECT a.id, b.id AS other FROM t a JOIN t b ON a.id = b.id WHERE a.kind = 'zzz'",
    "beside a group": "SELECT count(*), min(id) FROM t JOIN (SELECT DISTINCT id FROM t WHERE kind = 'zzz') USING (id)",
    "the right of a join": "SELECT count(b.id), count(a.id) FROM t b LEFT JOIN t a ON a.id = b.id AND a.kind = 'zzz'",
    "alone": "SELECT count(*) FROM t WHERE kind = 'zzz'",
    "below": "SELECT id FROM t WHERE kind = 'zzz' UNION ALL SELECT id FROM t WHERE id < 3",
    "a scalar": "SELECT id, (SELECT max(price) FROM t WHERE kind = 'zzz') AS m FROM t WHERE id < 9",
}
WITHOUT_STATISTICS = {"spark.sql.adaptive.enabled": "false", "spark.sql.autoBroadcastJoinThreshold": "-1"}


@pytest.mark.parametrize("sql", one_in(2, NO_ROWS))
def test_scans_of_no_rows_answer_for_no_others(
    sql: str, enabled: SparkSession, enabled_groups: SparkSession, on_the_source: SparkSession
) -> None:
    """Spark puts the expressions of one side of a join in the other's place, in conditions on its rows too."""
    expected = answer(on_the_source.sql(sql))
    for session in (enabled, enabled_groups):
        with under(session, WITHOUT_STATISTICS):
            assert answer(session.sql(sql)) == expected


def test_a_table_that_was_made_again_is_the_new_one(spark: SparkSession, tmp_path: Path) -> None:
    """Its newest snapshot has the same number."""
    session = spark.newSession()
    build(tmp_path / "t", some_rows(100), building(SCHEMA, CONDITIONS))
    register(session, "again", str(tmp_path / "t"))
    enable(session)
    assert session.sql("SELECT count(*) FROM again").first() == (100,)
    held = session.table("again").where("id >= 0")
    assert held.count() == 100
    shutil.rmtree(tmp_path / "t")
    build(tmp_path / "t", some_rows(200), building(SCHEMA, CONDITIONS, partition_by="year"))  # in other files
    assert session.sql("SELECT count(*), max(id) FROM again").first() == (200, 199)
    assert held.count() == 200
    disable(session)


@pytest.mark.unshadowed("counts on reading no file")
def test_queries_above_a_limit_fail_before_anything_is_read(spark: SparkSession, tmp_path: Path) -> None:
    session = new_session(spark)
    table = build(tmp_path / "t", some_rows(), building(SCHEMA, CONDITIONS, blocking=by_position(20)))
    register(session, "t", str(tmp_path / "t"))
    sql = "SELECT kind, price FROM t WHERE kind = 'air'"
    twice = f"SELECT count(*) FROM ({sql} AND id < 200) JOIN ({sql}) USING (price)"
    size = dry_run(table.scan(sql)).bytes
    enable(session, max_bytes=size)
    assert session.sql(sql).collect()
    enable(session, max_bytes=f"{2 * size + dry_run(table.scan('SELECT id FROM t')).bytes}B")
    assert session.sql(twice).collect()
    enable(session, max_bytes=size - 1)
    shutil.rmtree(tmp_path / "t" / "data")
    for refused in (session.sql(sql), session.table("t").where("kind = 'air'").select("kind", "price")):
        with pytest.raises(PySparkException, match=f"would read {size:,} bytes of 't', more than the limit"):
            refused.collect()
        (read,) = why(refused)[0].reads  # still explains it
        assert read.read.bytes == size
    enable(session, max_bytes=size)
    with pytest.raises(PySparkException, match="more than the limit"):
        session.sql(twice).collect()
    with pytest.raises(SettingError, match="write it like 500MB"):
        enable(session, max_bytes="lots")
    disable(session)
