"""Spark's reader of a source's Parquet files, and the proof that it read whole files."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.types import StructType

from layoutopt.sources.folders import path_of
from layoutopt.sources.snapshot import ending
from layoutopt.sources.whole_files import check_row_counts
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.patterns import as_no_pattern

_WHOLE_FILES: Final = {
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
    return spark.read.options(**_WHOLE_FILES, mergeSchema=merged)


def check_all_rows_read(rows: DataFrame, source: str) -> None:
    """Prove that Spark reads as many rows of each file as its footer says.

    Spark leaves out a row group whose damaged size puts its middle behind the end of the file.

    Args:
        rows: of files; folders that a condition of theirs leaves out are not read.
        source: names it in messages.

    Raises:
        SourceError: a file has other rows by its footer, or its footer can't be read.
    """
    uris = rows.inputFiles()
    if not uris:
        return
    with translate_spark_errors(source):
        paths = [as_no_pattern(unquote(uri)) for uri in uris]
        whole = parquet_reader(rows.sparkSession).schema(StructType([])).parquet(*paths)
        counted = whole.groupBy(whole.metadataColumn("_metadata")["file_path"].alias("uri")).count().collect()
    counts = {ending(unquote(row["uri"])): row["count"] for row in counted}
    check_row_counts({path_of(uri): counts.get(ending(unquote(uri)), 0) for uri in uris})
