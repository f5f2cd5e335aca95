"""Sessions that read texts, or evaluate them, in other ways: Spark's own answer, and features only where they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt import spark as ls
from layoutopt.errors import SchemaError, SettingError
from layoutopt.model.feature import Settings
from layoutopt.scan.table import Table, open_table
from layoutopt.spark.core.sessions import check_settings
from layoutopt.spark.core.source import open_source, schema_of
from layoutopt.spark.loading.load import load
from layoutopt.spark.session.metrics import ScanMetrics
from layoutopt.sql.schema import schema_from
from tests.spark.settings import UNCOMPILED, compared_here, under
from tests.spark.tables import document, is_value, plan_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = 600
CONDITIONS = ("k = 3", "s = '5'", "day >= DATE'1500-01-10'", "name LIKE 'it''s 1%'", "p < 4")


def source(spark: SparkSession) -> DataFrame:
    return spark.range(ROWS, numPartitions=2).selectExpr(
        "cast(id as int) id",
        "cast(id div 20 as int) k",
        "cast(id div 20 as string) s",
        "cast(id div 20 - 20 as tinyint) b",
        "date_add(DATE'1500-01-01', cast(id div 20 as int)) day",
        "cast(id div 20 as decimal(10,2)) p",
        "concat('it''s ', id div 50) name",
        "timestamp_micros(id * 3600000000L) at",
        "encode(cast(id div 20 as string), 'utf-8') bin",
    )


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    """The table as ``t``, enabled, and its source as ``src``."""
    place = tmp_path_factory.mktemp("sessions")
    source(spark).write.parquet(str(place / "source"))
    rows = spark.read.parquet(str(place / "source"))
    schema = schema_of(rows)
    nodes = [
        is_value(schema, *each) for each in (("k", "=", 3), ("s", "=", "5"), ("p", "<", 4), ("name", "=", "it's 1"))
    ]
    load(spark, rows, place / "t", plan_of(document(schema, nodes), block_rows=20))
    rows.createOrReplaceTempView("src")
    ls.register(spark, "t", str(place / "t"))
    ls.enable(spark)
    with compared_here():
        yield open_table(str(place / "t"))
    ls.disable(spark)
    ls.unregister(spark, "t")
    spark.catalog.dropTempView("src")


def both(spark: SparkSession, conditions: Sequence[str]) -> dict[str, tuple[ScanMetrics, int]]:
    """What each condition's scan skips, and its rows; the same as Spark's own on the source, which pushes nothing."""
    arms = " UNION ALL ".join(f"SELECT {i} AS of, id FROM {{0}} WHERE {c}" for i, c in enumerate(conditions))
    with under(spark, UNCOMPILED):
        with under(spark, {"spark.sql.parquet.filterPushdown": "false"}):
            wanted = ids(spark.sql(arms.replace("{0}", "src")))
        found = ids(spark.sql(arms.replace("{0}", "t")))
    assert found == wanted
    rows = Counter(of for of, _ in found)
    return {c: (scan, rows[i]) for i, (c, scan) in enumerate(zip(conditions, ls.last_scans(spark), strict=True))}


def ids(answer: DataFrame) -> list[tuple[int, int]]:
    """The rows that each condition keeps, by its number and their ids."""
    return sorted((row["of"], row["id"]) for row in answer.collect())


NOT_ANSI = (
    "s = 5", "s > 5", "s = 5.0", "s IN (1, 2)", "s <> 5", "NOT (s = 5)", "s BETWEEN 1 AND 3", "s = true", "name > 5",
    "day > '1500'", "day > '1500-1-9'", "day IN ('1500-01-05', 'x')", "k = '3x'", "k = 'x'", "k <> 'x'", "k < '3.7'",
    "k = 3.0", "k = true", "k <=> '5'", "k = 1e10", "b = 300", "b > 200", "b < 128", "b = '300'", "p = '3.00'",
    "p < '4e0'", "p = 99999999999.999", "cast(k AS tinyint) = 3", "cast(s AS int) = 5", "k + 2147483640 > 0",
    "b + b = 20", "id / 0 IS NULL", "k % 0 IS NULL AND k = 3", "cast('x' AS int) = k", "cast(999 AS tinyint) < k",
    "at > '1970-01-05'", "at = '1970-01-01'", "coalesce(k, '5') = '5'", "nullif(k, '5') IS NULL", "bin = '5'",
    "k = 2147483648", "k < 9223372036854775808", "s = 5 AND k = 5", "k IN ('3', 'x')", "NOT (k = 'x')",
)  # fmt: skip


@pytest.mark.long
def test_without_ansi_answers_are_sparks_and_features_measured_with_it_are_not_used(
    spark: SparkSession, table: Table
) -> None:
    with under(spark, {"spark.sql.ansi.enabled": "false"}):
        found = both(spark, NOT_ANSI + CONDITIONS)
    assert all(not scan.skipped_by["features"].blocks for scan, _ in found.values())
    assert found["k = 3"][0].skipped_by["statistics"].blocks
    assert found["s = 5 AND k = 5"][0].skipped_by["statistics"].blocks
    assert both(spark, CONDITIONS)["k = 3"][0].skipped_by["features"].blocks


PLAY_NO_PART = {
    "spark.sql.storeAssignmentPolicy": "LEGACY",
    "spark.sql.charAsVarchar": "true",
    "spark.sql.ansi.enforceReservedKeywords": "true",
    "spark.sql.groupByOrdinal": "false",
    "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.enableVectorizedReader": "false",
    "spark.sql.parquet.filterPushdown": "false",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
    "spark.sql.parquet.recordLevelFilter.enabled": "true",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.sources.useV1SourceList": "",
}


def test_settings_that_play_no_part(spark: SparkSession, table: Table) -> None:
    with under(spark, PLAY_NO_PART):
        ls.register(spark, "t", table.catalog.files.root)  # a session's readers are made under its settings
        found = both(spark, (*CONDITIONS, "bin = encode('5', 'utf-8')", "day = DATE'1500-01-05' AND name = 'it''s 1'"))
    ls.register(spark, "t", table.catalog.files.root)
    assert all(scan.skipped.blocks for scan, _ in list(found.values())[:5])
    assert not any(scan.note for scan, _ in found.values())


READ_WHOLE = {
    "spark.sql.ansi.doubleQuotedIdentifiers": ("true", "s = '5' AND \"k\" = 5"),
    "spark.sql.ansi.relationPrecedence": ("true", "k = 3"),
    "spark.sql.caseSensitive": ("true", "k = 3"),
    "spark.sql.decimalOperations.allowPrecisionLoss": ("false", "p * 1.000000000000000000001 < 4"),
    "spark.sql.functionResolution.sessionOrder": ("first", "lower(name) = 'it''s 1'"),
    "spark.sql.icu.caseMappings.enabled": ("false", "lower(name) = 'it''s 1'"),
    "spark.sql.legacy.timeParserPolicy": ("LEGACY", "day > '1500-1-9'"),
    "spark.sql.legacy.typeCoercion.datetimeToString.enabled": ("true", "day > '1500-1-9'"),
    "spark.sql.parser.escapedStringLiterals": ("true", r"s = '\u0035'"),
    "spark.sql.parser.quotedRegexColumnNames": ("true", "`k` = 3"),
    "spark.sql.path.enabled": ("true", "k = 3"),
    "spark.sql.timestampType": ("TIMESTAMP_NTZ", "at = TIMESTAMP'1970-01-01'"),
}


@pytest.mark.parametrize("key", READ_WHOLE)
def test_texts_that_may_mean_something_else_read_whole_tables(spark: SparkSession, table: Table, key: str) -> None:
    value, condition = READ_WHOLE[key]
    with under(spark, {key: value}):
        ((scan, _),) = both(spark, [condition]).values()
    assert key in scan.note
    assert scan.read.blocks == scan.total.blocks


@pytest.mark.parametrize(("zone", "skips"), [("+09:00", True), ("Asia/Tokyo", False)])  # its clocks then: who knows
def test_another_time_zone(spark: SparkSession, table: Table, zone: str, skips: bool) -> None:
    with under(spark, {"spark.sql.session.timeZone": zone}):
        found = both(
            spark, ("at = '1970-01-02'", "at < DATE'1970-01-03'", "day = '1500-01-05'", "hour(at) = 3", *CONDITIONS)
        )
    assert bool(found["at = '1970-01-02'"][0].skipped_by["statistics"].blocks) == skips
    assert all(not scan.skipped_by["features"].blocks for scan, _ in found.values())


MEASURED_ELSEWHERE = {
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.functionResolution.sessionOrder": "first",
    "spark.sql.icu.caseMappings.enabled": "false",
    "spark.sql.legacy.noCharPaddingInPredicate": "true",
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "spark.sql.path.enabled": "true",
    "spark.sql.readSideCharPadding": "false",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "Asia/Tokyo",
}


@pytest.mark.parametrize("key", MEASURED_ELSEWHERE)
def test_plans_and_loads_refuse_sessions_that_evaluate_otherwise(spark: SparkSession, key: str) -> None:
    with under(spark, {key: MEASURED_ELSEWHERE[key]}), pytest.raises(SettingError, match=key.replace(".", r"\.")):
        check_settings(spark, Settings(), "the plan")


def test_features_of_texts_would_be_wrong_under_escaped_literals(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    (plan,) = table.catalog.plans.values()
    with (
        under(spark, {"spark.sql.parser.escapedStringLiterals": "true"}),
        pytest.raises(SettingError, match="escapedStringLiterals=true; set it to false"),
    ):
        load(spark, spark.table("src"), tmp_path / "t", plan)
    assert not (tmp_path / "t").exists()


def test_functions_of_users(spark: SparkSession, table: Table) -> None:
    spark.udf.register("lower", lambda text: "it's 1", "string")  # Spark's own goes before it
    spark.udf.register("beyond", lambda k: k is None or k > 10, "boolean")
    spark.sql("CREATE TEMPORARY FUNCTION next_k(x INT) RETURNS INT RETURN x + 1")
    spark.sql("CREATE TEMPORARY VIEW of_users AS SELECT *, beyond(k) AS far, next_k(k) AS following FROM src")
    try:
        conditions = ["lower(name) = 'it''s 1'", "beyond(k) AND k < 12", "NOT beyond(k)", "next_k(k) = 4",
                      "next_k(k) = 4 AND k < 6", "next_k(k) + k = 7 OR k = 3", "beyond(next_k(k))"]  # fmt: skip
        found = both(spark, conditions)
        assert found["beyond(k) AND k < 12"][0].skipped.blocks
        assert found["next_k(k) = 4 AND k < 6"][0].skipped.blocks
        wanted = spark.sql("SELECT id FROM of_users WHERE far AND following < 14").count()
        spark.sql("CREATE TEMPORARY VIEW ours AS SELECT *, beyond(k) AS far, next_k(k) AS following FROM t")
        assert spark.sql("SELECT id FROM ours WHERE far AND following < 14").count() == wanted
        assert spark.sql("SELECT id FROM ours WHERE far AND k < 13").count() == 40
        assert ls.last_scans(spark)[0].skipped.blocks
    finally:
        for view in ("of_users", "ours"):
            spark.catalog.dropTempView(view)
        for name in ("lower", "beyond", "next_k"):
            spark.sql(f"DROP TEMPORARY FUNCTION IF EXISTS {name}")


NO_COLUMNS = {
    "INTERVAL '1' DAY": "interval day",
    "INTERVAL '1' MONTH": "interval month",
    "make_interval(1)": "interval",
    "TIME'01:02:03'": "time",
    "array(parse_json('1'))": "array<variant>",
    "NULL": "void",
    "ST_GeomFromWKB(X'0101000000000000000000F03F0000000000000040')": "geometry",
}


@pytest.mark.parametrize("value", NO_COLUMNS)
def test_types_that_no_table_stores_are_refused_by_plan(spark: SparkSession, value: str) -> None:
    if value.startswith("ST_"):
        spark.conf.set("spark.sql.geospatial.enabled", "true")
    rows = spark.range(2).selectExpr("id", f"{value} AS odd")
    with pytest.raises(SchemaError, match=f"column 'odd' is of type {NO_COLUMNS[value]}.*cast it"):
        open_source(spark, rows)


@pytest.mark.parametrize("value", ["array(parse_json('1'))", "INTERVAL '1' DAY"])
def test_their_files_are_refused_by_plan(spark: SparkSession, tmp_path: Path, value: str) -> None:
    spark.range(2).selectExpr("id", f"{value} AS odd").write.parquet(str(tmp_path / "odd"))
    with pytest.raises(SchemaError, match=r"column 'odd' is of type .*cast it"):
        open_source(spark, str(tmp_path / "odd"))


def test_times_of_day_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"odd": pa.array([1], pa.time64("us"))}), tmp_path / "odd.parquet")
    with pytest.raises(SchemaError, match="column 'odd'"):
        schema_from(tmp_path / "odd.parquet")
    with pytest.raises(SchemaError, match="cast it"):
        open_source(spark, str(tmp_path / "odd.parquet"))


def test_files_with_names_that_are_one_to_spark_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"ß": [1], "ẞ": [2]}), tmp_path / "two.parquet")
    for refuse in (lambda: schema_from(tmp_path / "two.parquet"), lambda: open_source(spark, str(tmp_path))):
        with pytest.raises(SchemaError, match="rename one"):
            refuse()
