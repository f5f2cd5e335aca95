"""What a Spark session answered, and what it skipped for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from layoutopt.spark import last_scans

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from layoutopt.scan.table import Table


def answer(df: DataFrame) -> list[str]:
    return sorted(json.dumps(row.asDict(), default=repr, sort_keys=True) for row in df.collect())


def spark_sql(spark: SparkSession, table: Table, sql: str) -> DataFrame:
    """The answer to a text over a table."""
    return table.scan(sql).to_spark(spark)


def skipped(session: SparkSession) -> int:
    return sum(scan.skipped.blocks for scan in last_scans(session))
