"""Sessions with other settings: what they make of a query is what skips, and features only where they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812

from layoutopt import spark as ls
from layoutopt.errors import SchemaError, SettingError
from layoutopt.model.feature import SessionSettings
from layoutopt.scan.table import Table, open_table
from layoutopt.spark.core.sessions import check_settings
from layoutopt.spark.core.source import open_source, schema_of
from layoutopt.spark.loading.load import load
from layoutopt.spark.session.metrics import ScanMetrics
from layoutopt.sql.scans import find_scans
from layoutopt.sql.schema import schema_from
from tests.effort import one_in
from tests.spark.session.answers import scans_under
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
    nodes += [scan.filter.root for scan in find_scans("SELECT id FROM t WHERE hour(at) = 3", {"t": schema})]
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
    """What each condition's scan skips, and its rows; the same as Spark's own on the source, which pushes nothing.

    Conditions that Spark knows to be FALSE have no scan.
    """
    arms = " UNION ALL ".join(f"SELECT {i} AS of, id FROM {{0}} WHERE {c}" for i, c in enumerate(conditions))
    with under(spark, UNCOMPILED):
        with under(spark, {"spark.sql.parquet.filterPushdown": "false"}):
            wanted = ids(spark.sql(arms.replace("{0}", "src")))
        found = ids(spark.sql(arms.replace("{0}", "t")))
    assert found == wanted
    rows = Counter(of for of, _ in found)
    scans = scans_under(spark, conditions)
    assert not [c for i, c in enumerate(conditions) if rows[i] and c not in scans]
    return {c: (scans[c], rows[i]) for i, c in enumerate(conditions) if c in scans}


def ids(answer: DataFrame) -> list[tuple[int, int]]:
    """The rows that each condition keeps, by its number and their ids."""
    return sorted((row["of"], row["id"]) for row in answer.collect())


def noted(spark: SparkSession, condition: str) -> tuple[ScanMetrics, str]:
    """What the scan of a query that has run skips, and why no more."""
    rows = spark.table("t").where(condition).select("id")
    assert sorted(rows.collect()) == sorted(spark.table("src").where(condition).select("id").collect())
    (scan,) = ls.last_scans(spark)
    return scan, scan.note


NOT_ANSI = (
    "s = 5", "s > 5", "s = 5.0", "s IN (1, 2)", "s <> 5", "NOT (s = 5)", "s BETWEEN 1 AND 3", "s = true", "name > 5",
    "day > '1500'", "day > '1500-1-9'", "day IN ('1500-01-05', 'x')", "k = '3x'", "k = 'x'", "k <> 'x'", "k < '3.7'",
    "k = 3.0", "k = true", "k <=> '5'", "k = 1e10", "b = 300", "b > 200", "b < 128", "b = '300'", "p = '3.00'",
    "p < '4e0'", "p = 99999999999.999", "cast(k AS tinyint) = 3", "cast(s AS int) = 5", "k + 2147483640 > 0",
    "b + b = 20", "id / 0 IS NULL", "k % 0 IS NULL AND k = 3", "cast('x' AS int) = k", "cast(999 AS tinyint) < k",
    "at > '1970-01-05'", "at = '1970-01-01'", "coalesce(k, '5') = '5'", "nullif(k, '5') IS NULL", "bin = '5'",
    "k = 2147483648", "k < 9223372036854775808", "s = 5 AND k = 5", "k IN ('3', 'x')", "NOT (k = 'x')",
)  # fmt: skip


def test_without_ansi_conditions_that_mean_the_same_skip(spark: SparkSession, table: Table) -> None:
    with under(spark, {"spark.sql.ansi.enabled": "false"}):
        found = both(spark, NOT_ANSI + CONDITIONS)
    for condition in (*CONDITIONS, "s = 5 AND k = 5", "k = 3.0", "day > '1500-1-9'", "at = '1970-01-01'", "k <=> '5'"):
        assert found[condition][0].skipped.blocks, condition
    for condition in ("k = 3", "s = '5'", "p < 4"):
        assert found[condition][0].skipped_by["features"].blocks, condition
    # Whose NULLs and overflows without ANSI are not those with which features would be measured.
    for condition in ("k + 2147483640 > 0", "b + b = 20", "cast(k AS tinyint) = 3"):
        assert not found[condition][0].skipped_by["features"].blocks, condition
    with_ansi = both(spark, CONDITIONS)
    assert {c: scan for c, (scan, _) in with_ansi.items()} == {c: found[c][0] for c in CONDITIONS}


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
        found = both(spark, (*CONDITIONS, "bin = encode('5', 'utf-8')", "day = DATE'1500-01-05' AND name = 'it''s 1'"))
        notes = [noted(spark, condition)[1] for condition in CONDITIONS]
    assert all(scan.skipped.blocks for scan, _ in list(found.values())[:5])
    assert not any(notes)


# Settings that change how a text is read, and a condition that skips under them.
READ_OTHERWISE = {
    "spark.sql.ansi.doubleQuotedIdentifiers": ("true", "s = '5' AND \"k\" = 5"),
    "spark.sql.ansi.relationPrecedence": ("true", "k = 3"),
    "spark.sql.caseSensitive": ("true", "k = 3"),
    "spark.sql.functionResolution.sessionOrder": ("first", "lower(name) = 'it''s 1' AND k = 3"),
    "spark.sql.parser.escapedStringLiterals": ("true", r"s = '\u0035' OR k = 3"),
    "spark.sql.parser.quotedRegexColumnNames": ("true", "`k` = 3"),
    "spark.sql.path.enabled": ("true", "k = 3"),
    "spark.sql.timestampType": ("TIMESTAMP_NTZ", "at = TIMESTAMP'1970-01-01' AND k = 0"),
}


@pytest.mark.parametrize("key", READ_OTHERWISE)
def test_what_the_session_reads_in_a_text_is_what_skips(spark: SparkSession, table: Table, key: str) -> None:
    value, condition = READ_OTHERWISE[key]
    with under(spark, {key: value}):
        ((scan, _),) = both(spark, [condition]).values()
        of_frame, note = noted(spark, condition)
    assert scan.skipped.blocks == of_frame.skipped.blocks > 0
    assert note == ""


def test_escapes_are_read_as_the_session_reads_them(spark: SparkSession, table: Table) -> None:
    condition = r"s = '\u0035'"
    ((plain, rows),) = both(spark, [condition]).values()
    assert rows == 20
    with under(spark, {"spark.sql.parser.escapedStringLiterals": "true"}):
        ((escaped, none),) = both(spark, [condition]).values()
    assert none == escaped.read.blocks == 0 < plain.read.blocks


# Settings under which functions give something else, and a condition by such a function.
COMPUTED_OTHERWISE = {
    "spark.sql.decimalOperations.allowPrecisionLoss": ("false", "p * 1.000000000000000000001 < 4"),
    "spark.sql.icu.caseMappings.enabled": ("false", "lower(name) = 'it''s 1'"),
    "spark.sql.legacy.timeParserPolicy": ("LEGACY", "length(s) = 2"),
    "spark.sql.legacy.typeCoercion.datetimeToString.enabled": ("true", "length(s) = 2"),
    "spark.sql.legacy.sizeOfNull": ("false", "upper(s) = '5'"),
    "spark.sql.legacy.setopsPrecedence.enabled": ("true", "year(day) = 1500 AND lower(name) = 'it''s 1'"),
}


@pytest.mark.parametrize("key", one_in(2, COMPUTED_OTHERWISE.keys()))
def test_where_functions_may_give_something_else_only_columns_skip(spark: SparkSession, table: Table, key: str) -> None:
    value, condition = COMPUTED_OTHERWISE[key]
    both_of, either = f"{condition} AND k = 3", f"{condition} OR k = 3"
    with under(spark, {key: value}):
        found = both(spark, [condition, both_of, either, *CONDITIONS])
        scan, note = noted(spark, condition)
        of_column, of_column_note = noted(spark, "k = 3")
    assert key in note
    assert key in of_column_note
    for each in (scan, found[condition][0], found[either][0]):
        assert each.read == each.total
    for each in (of_column, found["k = 3"][0], found[both_of][0]):
        assert each.skipped.blocks == of_column.skipped.blocks > 0
    assert noted(spark, "k = 3")[1] == ""


@pytest.mark.parametrize("zone", ["+09:00", "Asia/Tokyo"])
def test_another_time_zone(spark: SparkSession, table: Table, zone: str) -> None:
    of_clock = "hour(at) = 3"
    assert both(spark, [of_clock])[of_clock][0].skipped_by["features"].blocks
    moments = (
        "at = '1970-01-02'",
        "at < DATE'1970-01-03'",
        "day = '1500-01-05'",
        "at = TIMESTAMP'1970-01-05 03:00:00'",
    )
    with under(spark, {"spark.sql.session.timeZone": zone}):
        found = both(spark, (*moments, of_clock, f"{of_clock} AND k = 3", *CONDITIONS))
    for condition in (*moments, f"{of_clock} AND k = 3", *CONDITIONS):
        assert found[condition][0].skipped.blocks, condition
    for condition in ("k = 3", "s = '5'", "p < 4"):  # which have no zone
        assert found[condition][0].skipped_by["features"].blocks, condition
    assert not found[of_clock][0].skipped_by["features"].blocks


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
        check_settings(spark, SessionSettings(), "the plan")


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
        assert spark.table("t").where(F.expr("beyond(k)") & (F.col("k") < 12)).select("id").count() == 20
        assert ls.last_scans(spark)[0].skipped.blocks
        lower = F.udf(lambda text: "it's 1", "string")
        assert spark.table("t").where(lower("name") == "it's 1").select("id").count() == ROWS
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
