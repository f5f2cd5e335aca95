"""Reading through Spark: the same answers as on the source, surviving row groups alone, no NaN lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from layoutopt.model.feature import SessionSettings
from layoutopt.model.schema import Column, Schema
from layoutopt.scan.table import Table, open_source, open_table
from layoutopt.spark import read_table
from layoutopt.spark.core.source import schema_of
from layoutopt.spark.loading.load import load
from layoutopt.spark.session.readers import read_to_dataframe
from tests.effort import long_too, one_in
from tests.external.folders import write
from tests.scan.builder import build, building, by_position
from tests.scan.layouts import GROUPS, OVERLAPPING
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows
from tests.spark.session.answers import answer, planned, spark_sql
from tests.spark.settings import UNCOMPILED, compared_here, under
from tests.spark.tables import document, every_type, is_value, plan_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

QUERIES = [
    "SELECT * FROM t",
    "SELECT count(*) AS n FROM t",
    "SELECT t.id, score FROM t WHERE kind IN ('air', 'rail') AND price > 60",
    "SELECT id FROM t WHERE score > 0.25",
    "SELECT id FROM t WHERE score = double('NaN') OR score >= double('Infinity')",
    "SELECT id FROM t WHERE NOT score <= 0.5",
    "SELECT kind, avg(price) AS mean, upper(kind) AS big FROM T WHERE year = 1994 GROUP BY kind",
    "SELECT a.id, t.id AS other FROM t AS a JOIN t ON a.price = t.price WHERE a.kind = 'air' AND t.kind = 'rail'",
    "WITH c AS (SELECT id, kind FROM t WHERE price > 50) SELECT x.id FROM c x JOIN c y ON x.id = y.id AND y.id > 9",
    "SELECT id FROM t WHERE kind LIKE '%p' AND id IN (SELECT id FROM t WHERE year = 1995)",
    "SELECT id FROM t WHERE kind = 'no such kind'",
    "WITH c AS (SELECT * FROM t WHERE kind = 'air' UNION ALL SELECT * FROM t WHERE id = 7) SELECT price FROM c",
]  # fmt: skip


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return some_rows()


@pytest.fixture(scope="module", params=["sop", "gsop-r", *long_too("gsop")])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, rows: pa.Table) -> Table:
    layouts = {"sop": None, "gsop": GROUPS, "gsop-r": OVERLAPPING}[request.param]
    plan = building(SCHEMA, CONDITIONS, layouts=layouts, partition_by="year", segment_rows=60)
    return build(tmp_path_factory.mktemp(request.param), rows, plan)


def on_the_source(spark: SparkSession, sql: str, rows: pa.Table) -> list[str]:
    """The answer over the source rows, which lie in no file: nothing is pushed anywhere."""
    spark.createDataFrame(rows).coalesce(1).createOrReplaceTempView("t")
    try:
        with under(spark, UNCOMPILED):
            return answer(spark.sql(sql))
    finally:
        spark.catalog.dropTempView("t")


@pytest.fixture(scope="module")
def wanted(spark: SparkSession, rows: pa.Table) -> Callable[[str], list[str]]:
    """The answers over the source rows, each found when a test first asks for it."""
    return cache(lambda sql: on_the_source(spark, sql, rows))


@pytest.mark.usefixtures("each_reader")
@pytest.mark.parametrize("sql", one_in(2, QUERIES))
def test_answers_equal_those_over_the_source(
    sql: str, spark: SparkSession, table: Table, wanted: Callable[[str], list[str]]
) -> None:
    with compared_here():
        assert answer(spark_sql(spark, table, sql)) == wanted(sql)


@pytest.mark.usefixtures("each_reader")
def test_rows_that_are_whole_elsewhere_are_never_read(spark: SparkSession, tmp_path: Path, rows: pa.Table) -> None:
    """Layout 1 has the other rows too, for their prices, but not their kinds: those would read as NULL."""
    names = ("kind IS NULL", *CONDITIONS[1:])
    table = build(tmp_path, rows, building(SCHEMA, names, layouts=OVERLAPPING, partition_by="year", segment_rows=60))
    sql = "SELECT id, price FROM t WHERE kind IS NULL"
    (read,) = table.scan(sql).reads
    assert all([choice.layout for choice in pruned.choice] == [1] for pruned in read.pruned)
    elsewhere = sum(int((pruned.source.blocks.part == 1).sum()) for pruned in read.pruned)
    assert elsewhere > 0
    assert not any((pruned.read & (pruned.source.blocks.part == 1)).any() for pruned in read.pruned)
    assert answer(spark_sql(spark, table, sql)) == on_the_source(spark, sql, rows)


@pytest.mark.usefixtures("each_reader")
def test_spark_and_duckdb_agree(spark: SparkSession, table: Table) -> None:
    scan = table.scan("SELECT id, day, kind, price, seen, year FROM t WHERE kind = 'air' AND price > 60")
    by_spark, by_duckdb = scan.to_spark(spark).toArrow(), scan.to_arrow()
    assert sorted(map(repr, by_spark.to_pylist())) == sorted(map(repr, by_duckdb.to_pylist()))
    assert by_spark.schema.names == by_duckdb.schema.names


@pytest.mark.usefixtures("each_reader")
def test_spark_and_duckdb_agree_on_joins(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    kinds = {"kind": ["air", "rail", "ship", "mail", None], "speed": [900, 120, 30, 60, 5]}
    write(tmp_path / "kinds" / "a.parquet", pa.table(kinds))
    for further in (open_source(str(tmp_path / "kinds"), "k"), table):
        sql = "SELECT t.id, count(*) AS n FROM t LEFT JOIN k ON t.kind = k.kind WHERE t.price > 60 GROUP BY t.id"
        scan = table.scan(sql, tables={"k": further})
        by_spark, by_duckdb = scan.to_spark(spark).toArrow(), scan.to_arrow()
        assert sorted(map(repr, by_spark.to_pylist())) == sorted(map(repr, by_duckdb.to_pylist()))
        assert by_duckdb.num_rows > 10


def test_views_of_the_reader_are_gone_afterwards(spark: SparkSession, table: Table) -> None:
    before = spark.sql("SHOW TABLES").collect()  # those of tables that others registered stay
    frame = spark_sql(spark, table, "SELECT count(*) AS n FROM t")
    assert spark.sql("SHOW TABLES").collect() == before
    assert frame.collect()[0].n == 300


def test_the_rows_of_a_read_are_those_of_surviving_blocks(spark: SparkSession, tmp_path: Path, rows: pa.Table) -> None:
    table = build(tmp_path, rows.sort_by("id"), building(SCHEMA, CONDITIONS, blocking=by_position(30)))
    (read,) = table.scan("SELECT id, score FROM t WHERE id BETWEEN 95 AND 100").reads
    frame = read_to_dataframe(spark, read).select("id", "score")
    assert [row.id for row in frame.sort("id").collect()] == list(range(90, 120))
    assert "EqualTo(_block,3)" in plan_text(frame)


@pytest.mark.usefixtures("by_tasks")
def test_the_native_reader_reads_only_surviving_blocks(spark: SparkSession, tmp_path: Path, rows: pa.Table) -> None:
    table = build(tmp_path, rows.sort_by("id"), building(SCHEMA, CONDITIONS, blocking=by_position(30)))
    session = spark.newSession()
    frames = (
        spark_sql(session, table, "SELECT id, score FROM t WHERE id BETWEEN 95 AND 100"),
        read_table(session, str(tmp_path)).where("id BETWEEN 95 AND 100").select("id", "score"),
    )
    for frame in frames:
        assert [row.id for row in frame.sort("id").collect()] == list(range(95, 101))
        (scan,) = planned(frame)
        assert (scan.read.blocks, scan.total.blocks) == (1, 10)
        assert "_block" in pushed_filters(frame)
        assert scanned_rows(frame) == 30


def scanned_rows(frame: DataFrame) -> int:
    """How many rows Spark's scan of a DataFrame hands on, before any filter."""
    frame.collect()
    node: Any = frame._jdf.queryExecution().executedPlan()
    while node.children().size():
        node = node.children().apply(0)
    return int(node.metrics().apply("numOutputRows").value())


def plan_text(frame: DataFrame) -> str:
    query: Any = frame._jdf.queryExecution()
    return str(query.toString())


def pushed_filters(frame: DataFrame) -> str:
    lines = [line for line in plan_text(frame).splitlines() if "PushedFilters" in line]
    assert lines
    return " ".join(line.split("PushedFilters:")[1].split("ReadSchema")[0] for line in lines)


@pytest.mark.usefixtures("by_tasks")
def test_filters_on_floats_with_nans_are_not_pushed_to_files(
    spark: SparkSession, tmp_path: Path, rows: pa.Table
) -> None:
    table = build(tmp_path, rows, building(SCHEMA, CONDITIONS, blocking=by_position(30)))
    pushed = pushed_filters(spark_sql(spark, table, "SELECT id FROM t WHERE score > 0.25 AND id > 10"))
    assert "score" not in pushed
    assert "id" in pushed


@pytest.mark.usefixtures("by_tasks")
def test_filters_on_floats_without_nans_are_pushed_and_zeros_have_no_sign(spark: SparkSession, tmp_path: Path) -> None:
    """Parquet's reader finds 0.0 and -0.0 different, in dictionaries alone; a block each has the one or the other."""
    numbers = np.repeat([0.0, -0.0, 1.5, -1.5, float("inf")], 30)
    rows = pa.table({"id": np.arange(150), "d": numbers, "f": pa.array(numbers, pa.float32())})
    schema = Schema((Column("id", "bigint"), Column("d", "double"), Column("f", "float")))
    table = build(tmp_path, rows, building(schema, ["id < 9"], blocking=by_position(30)))
    conditions = [
        f"{'df'[number % 2]} {test}"
        for number, test in enumerate((
            "= 0.0", ">= 0.0", "= -0.0D", "<= -0.0D", "IN (0.0, 3)", "IN (-0.0D, 3)", "> -0.0D", "<> 0.0",
            "BETWEEN 0.0 AND 1", "BETWEEN 0.0 AND 1", "> 1",
        ))
    ]  # fmt: skip
    arms = " UNION ALL ".join(f"SELECT '{each}' AS of, id FROM t WHERE {each}" for each in conditions)
    with compared_here():
        for each in conditions:
            assert each[0] in pushed_filters(spark_sql(spark, table, f"SELECT id FROM t WHERE {each}")), each
        assert answer(spark_sql(spark, table, arms)) == on_the_source(spark, arms, rows)


@pytest.mark.usefixtures("by_tasks")
def test_timestamps_are_what_they_are_whatever_session_is_active(spark: SparkSession, table: Table) -> None:
    sql = "SELECT id, seen FROM t WHERE kind = 'air'"
    expected = spark_sql(spark, table, sql)
    assert expected.schema["seen"].dataType.simpleString() == "timestamp"
    other = spark.newSession()
    other.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    other.createDataFrame([(1,)], "a int").count()
    assert type(spark).getActiveSession() is other
    found = spark_sql(spark, table, sql)
    assert found.schema == expected.schema
    assert answer(found) == answer(expected) != []


@pytest.mark.usefixtures("each_reader")
@pytest.mark.unshadowed  # the features are written in another zone than the plan's
def test_features_of_other_settings_skip_nothing(spark: SparkSession, tmp_path: Path, rows: pa.Table) -> None:
    """A zone in which the session's clock is not the table's."""
    plan = building(SCHEMA, [*CONDITIONS, "hour(seen) = 3"], settings=SessionSettings(time_zone="Asia/Tokyo"))
    table = build(tmp_path, rows, plan)
    sql = "SELECT id FROM t WHERE hour(seen) = 3"
    assert table.explain(sql).reads[0].skipped_by["features"].blocks > 0
    frame = spark_sql(spark, table, sql)
    assert answer(frame) == on_the_source(spark, sql, rows) != []
    (scan,) = planned(frame)
    assert scan.skipped_by["features"].blocks == 0


@pytest.mark.usefixtures("each_reader")
def test_what_the_session_makes_of_a_text_is_what_skips(spark: SparkSession, tmp_path: Path, rows: pa.Table) -> None:
    session, table = spark.newSession(), build(tmp_path, rows, building(SCHEMA, CONDITIONS))
    session.createDataFrame(rows).createOrReplaceTempView("t")
    session.conf.set("which", "rail")
    session.conf.set("spark.sql.ansi.doubleQuotedIdentifiers", "true")
    for text in ("SELECT id FROM t WHERE kind = '${which}'", "SELECT id FROM t WHERE \"kind\" = 'air'"):
        frame = spark_sql(session, table, text)
        assert answer(frame) == answer(session.sql(text)) != []
        (scan,) = planned(frame)
        assert scan.skipped_by["features"].blocks > 0


def test_every_type_comes_back_from_a_load(spark: SparkSession, tmp_path: Path) -> None:
    source = every_type(spark, 90)
    schema = schema_of(source)
    conditions = [is_value(schema, "text", "=", "a"), is_value(schema, "d", ">", 1)]
    plan = plan_of(document(schema, conditions), partition_by="year")
    load(spark, source, tmp_path / "t", plan)
    table = open_table(str(tmp_path / "t"))
    as_text = f"to_json(struct({', '.join(source.columns)}), map('ignoreNullFields', 'false')) AS j"
    by_spark = spark_sql(spark, table, f"SELECT * FROM {plan.table}")
    assert sorted(by_spark.selectExpr(as_text).collect()) == sorted(source.selectExpr(as_text).collect())
    assert by_spark.schema.simpleString() == source.schema.simpleString()
    by_duckdb = table.sql(f"SELECT * FROM {plan.table}")
    assert sorted(map(repr, by_duckdb.to_pylist())) == sorted(map(repr, source.toArrow().to_pylist()))
    texts = ("text = 'a'", "d > 1", "year IS NULL", "price < 3.5 AND flag")
    found = [table.sql(f"SELECT n FROM {plan.table} WHERE {text}").num_rows for text in texts]
    assert found == list(source.selectExpr(*(f"count_if({text})" for text in texts)).collect()[0])
    assert min(found) > 0
