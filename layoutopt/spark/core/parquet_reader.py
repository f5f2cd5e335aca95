"""Spark's reader of a source's Parquet files."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrameReader, SparkSession

# A file that is gone or damaged must never read as empty, whatever the session says.
WHOLE_FILES: Final = {
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",
}


def parquet_reader(spark: SparkSession, *, merged: bool = False) -> DataFrameReader:
    """Return a reader of Parquet that fails where a file is missing or damaged, whatever the session says.

    Args:
        spark: the session.
        merged: whether a column that only some files have is a column.
    """
    return spark.read.options(**WHOLE_FILES, mergeSchema=merged)
