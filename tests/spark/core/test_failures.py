"""What Spark says when a source can't be read, in one sentence that names what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.errors import LayoutoptError, SchemaError, SourceError
from layoutopt.spark.core.failures import translate_message, translate_spark_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def refusal(spark: SparkSession, source: Path, schema: str | None = None) -> LayoutoptError:
    reader = spark.read.option("mergeSchema", "true") if schema is None else spark.read.schema(schema)
    with pytest.raises(LayoutoptError) as caught, translate_spark_errors(str(source)):
        reader.parquet(str(source)).collect()
    assert str(caught.value).count("\n") == 0
    return caught.value


@pytest.mark.spark
def test_a_stray_file_is_named(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    (tmp_path / "notes.txt").write_text("no Parquet " * 9)
    refused = refusal(spark, tmp_path)
    assert isinstance(refused, SourceError)
    assert f"the file {tmp_path}/notes.txt is" in str(refused)


@pytest.mark.spark
def test_a_column_of_two_types_is_named(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "a, b": [1.5], "v": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": [1], "a, b": [1.5], "v": ["x"]}), tmp_path / "b.parquet")
    refused = refusal(spark, tmp_path)
    assert isinstance(refused, SchemaError)
    assert "have the column v as BIGINT and as STRING;" in str(refused)
    refused = refusal(spark, tmp_path, "id bigint, v bigint")
    assert f"the file {tmp_path}/b.parquet has the column 'v' as BINARY where others have bigint;" in str(refused)


def test_what_is_not_understood_is_told_in_general() -> None:
    assert "have a column in different types;" in str(translate_message("[CANNOT_MERGE_SCHEMAS] Failed merging", "/s"))
    assert "the file /s is truncated, damaged" in str(translate_message("expected magic number at tail", "/s"))
    lost = "Caused by: java.net.SocketException: Connection reset\n\tat BasePythonRunner.read(PythonRunner.scala:1305)"
    for text in ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", lost):
        assert "a Python worker of Spark ended before its work was done" in str(translate_message(text, "/s"))
    assert translate_message("something else", "/s") is None
