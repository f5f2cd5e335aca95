"""What Spark says when a source can't be read, in one sentence that names what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.errors import LayoutoptError, SchemaError, SourceError, StoreError
from layoutopt.spark.core.failures import translate_message, translate_spark_errors
from layoutopt.spark.core.source import open_source, schema_of
from layoutopt.sql.schema import schema_from
from tests.external.odd_files import write_enums, write_without_repetition

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


@pytest.mark.spark
def test_the_cause_of_a_file_that_spark_alone_can_not_read_is_told(spark: SparkSession, tmp_path: Path) -> None:
    assert pq.read_table(write_without_repetition(tmp_path / "a.parquet")).num_rows == 2
    refused = refusal(spark, tmp_path)
    assert isinstance(refused, SourceError)
    assert f"Spark can't read the file {tmp_path}/a.parquet (NullPointerException" in str(refused)
    assert "give --executor local" in str(refused)
    assert "damaged" not in str(refused)


@pytest.mark.spark
def test_enums_are_texts_to_spark_too(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"s": ["a"], "n": [{"e": "x"}], "l": [["p"]], "b": [b"1"]})
    file = write_enums(tmp_path / "a.parquet", rows)
    assert schema_of(open_source(spark, str(file))) == schema_from(file)


FAILED = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file s3a://b/t/a.parquet. SQLSTATE: KD001\n"


@pytest.mark.parametrize(
    ("text", "file", "status"),
    [
        (
            FAILED + "Caused by: java.nio.file.AccessDeniedException: s3a://b/t/a.parquet: open: "
            "AmazonS3Exception: Access Denied (Service: Amazon S3; Status Code: 403; Error Code: AccessDenied)",
            "s3a://b/t/a.parquet",
            403,
        ),
        (FAILED + "Caused by: java.net.SocketTimeoutException: Read timed out", "s3a://b/t/a.parquet", None),
        ("java.net.UnknownHostException: getFileStatus on s3a://b/t: no such host", "s3a://b/t", None),
        ("Caused by: java.io.FileNotFoundException: /t/a.parquet (Permission denied)", "/t/a.parquet", None),
    ],
)
def test_what_a_store_refused_is_no_damage(text: str, file: str, status: int | None) -> None:
    error = translate_message(text, "/s")
    assert isinstance(error, StoreError)
    assert (error.path, error.status) == (file, status)
    assert str(error).count("\n") == 0
    assert "damaged" not in str(error)
    missing = FAILED + "Caused by: java.io.FileNotFoundException: No such file: (Service: Amazon S3; Status Code: 404)"
    assert "does not exist or lost a file" in str(translate_message(missing, "/s"))


def test_what_is_not_understood_is_told_in_general() -> None:
    assert "have a column in different types;" in str(translate_message("[CANNOT_MERGE_SCHEMAS] Failed merging", "/s"))
    assert "the file /s is truncated, damaged" in str(translate_message("expected magic number at tail", "/s"))
    lost = "Caused by: java.net.SocketException: Connection reset\n\tat BasePythonRunner.read(PythonRunner.scala:1305)"
    for text in ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", lost):
        assert "a Python worker of Spark ended before its work was done" in str(translate_message(text, "/s"))
    unknown = 'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "s3"'
    assert "has no connector for s3://, and only Spark can read the source /s;" in str(translate_message(unknown, "/s"))
    assert translate_message("something else", "/s") is None
