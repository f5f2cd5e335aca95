"""Time zones: what no database is sure of is not computed, and a name that Spark alone knows stops no query."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any
from zoneinfo import available_timezones

import pytest
from pyspark.sql import SparkSession

from layoutopt.model.feature import SessionSettings
from layoutopt.model.predicates import TRUE
from layoutopt.model.schema import Column, Schema
from layoutopt.sql.bind_log import bind_text
from layoutopt.sql.problems import Unusable
from layoutopt.sql.scans import find_scans
from layoutopt.sql.types import TypedConstant, cast_constant, zone_of

SCHEMA = Schema((Column("ts", "timestamp"), Column("s", "string")))


def instant(text: str, zone: str) -> Any:
    return cast_constant(TypedConstant(text, "string"), "timestamp", zone).value


def unusable(condition: str, zone: str) -> Sequence[str]:
    (found,) = find_scans(
        f"SELECT ts FROM t WHERE {condition}", {"t": SCHEMA}, settings=SessionSettings(time_zone=zone)
    )
    assert (found.filter.root == TRUE) == bool(found.unusable)
    return [each.code for each in found.unusable]


@pytest.mark.parametrize("zone", ["+08:00", "+8", "GMT+8", "UTC+08:00", "UT+8"])
def test_offsets_are_read_as_spark_reads_them(zone: str) -> None:
    assert instant("1965-06-15 12:00:00", zone) == dt.datetime(1965, 6, 15, 4, tzinfo=dt.UTC)
    assert unusable("ts > TIMESTAMP '1965-06-15 12:00:00'", zone) == []


@pytest.mark.parametrize("zone", ["PST", "CST", "IST", "Mars/Olympus", "+25:00", "../UTC"])
def test_zones_that_are_not_known_here_leave_conditions_out(zone: str) -> None:
    for condition in ("ts > '2020-01-01'", "ts > TIMESTAMP '1965-06-15 12:00:00'", "ts > DATE '2020-01-01'"):
        assert unusable(condition, zone) == ["inexact"]
    assert unusable("s = 'a'", zone) == []


@pytest.mark.parametrize("zone", ["Europe/Oslo", "WET", "CST6CDT"])
def test_clocks_of_which_databases_disagree_are_not_used(zone: str) -> None:
    assert unusable("ts = TIMESTAMP '1999-12-31 23:59:59'", zone) == ["inexact"]
    assert unusable("ts BETWEEN '1965-06-15 12:00:00' AND '1965-06-15 13:00:00'", zone)
    assert unusable("ts = TIMESTAMP '2000-01-01 00:00:00'", zone) == []
    assert unusable("ts = TIMESTAMP '1965-06-15 12:00:00+01:00'", zone) in ([], ["inexact"])


def test_texts_of_a_time_alone_are_of_the_day_they_are_read_on() -> None:
    assert unusable("s >= TIMESTAMP '2026-11-28 00:00:00'", "UTC") == ["non-deterministic"]
    assert unusable("cast(s AS timestamp) IS NULL", "UTC") == ["non-deterministic"]


@pytest.mark.spark
def test_clocks_are_javas_where_they_are_used(spark: SparkSession) -> None:
    """Every zone that both know, of the years from which they are believed to those before the newest decrees."""
    java: Any = spark._jvm
    names = sorted(set(java.java.time.ZoneId.getAvailableZoneIds()) & available_timezones())
    times = [dt.datetime(2000, 1, 1) + dt.timedelta(days=61, hours=7) * n for n in range(126)]
    assert len(names) > 500
    rows = spark.createDataFrame([(name,) for name in names], "zone string").crossJoin(
        spark.createDataFrame([(time.isoformat(" "),) for time in times], "time string")
    )
    found = rows.selectExpr("zone", "time", "unix_seconds(to_utc_timestamp(time, zone)) AS at").collect()
    wrong = {row.zone for row in found if instant(row.time, row.zone).timestamp() != row.at}
    assert wrong == set()


def test_unknown_zones_are_said_so() -> None:
    with pytest.raises(Unusable, match="'PST'"):
        zone_of("PST")


def test_statements_of_such_zones_are_not_bound_to_a_time() -> None:
    sql = "SELECT ts FROM t WHERE ts > current_date"
    assert bind_text(sql, "spark", "2026-11-27T10:00:00+00:00", (), "PST") == (sql, "spark")
    assert bind_text(sql, "spark", "2026-11-27T10:00:00+00:00", (), "UTC") != (sql, "spark")
