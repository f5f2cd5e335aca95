"""What a Spark session answered, and what it skipped for it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from layoutopt.spark import last_scans
from layoutopt.spark.session.enabling import plan_reads
from layoutopt.spark.session.metrics import ScanMetrics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from layoutopt.scan.table import Table


def answer(df: DataFrame) -> list[str]:
    return sorted(json.dumps(row.asDict(), default=repr, sort_keys=True) for row in df.collect())


def spark_sql(spark: SparkSession, table: Table, sql: str) -> DataFrame:
    """The answer to a text over a table."""
    return table.scan(sql).to_spark(spark)


def skipped(session: SparkSession) -> int:
    """How many blocks the newest planned query of the session skips."""
    return sum(scan.skipped.blocks for scan in last_scans(session))


def planned(frame: DataFrame) -> tuple[ScanMetrics, ...]:
    """What a DataFrame's query would read and skip, one item a scan that Spark's optimiser leaves."""
    return tuple(ScanMetrics.of(read.table.name, read) for read in plan_reads(frame))


def scans_under(session: SparkSession, conditions: Iterable[str], table: str = "t") -> dict[str, ScanMetrics]:
    """The scan of a query under each condition; a condition that Spark knows to be FALSE has none."""
    frames = {each: session.sql(f"SELECT * FROM {table} WHERE {each}") for each in conditions}
    return {each: scans[0] for each, frame in frames.items() if (scans := planned(frame))}
