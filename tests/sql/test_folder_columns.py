"""Columns of folders' names have the types that Spark guesses, so that `analyze` and `plan` speak of one table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.errors import SourceError
from layoutopt.external.listing import list_source
from layoutopt.model.schema import Column
from layoutopt.sql.schema import schema_from

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES = [
    ["7", "08"], ["7", "3000000000"], ["1.5", "2"], ["2026-11-24", "2026-02-28"], ["2026-02-30", "2026-02-28"],
    ["2026-11-24", "7"], ["2026-11-24 10%3A00%3A00", "2026-11-24"], ["a", "__HIVE_DEFAULT_PARTITION__"], ["1e3", "x"],
    ["7", "__HIVE_DEFAULT_PARTITION__"], ["3000000000", "1.5"], ["7", "-.5"], ["-0.0", "1.50"],
    ["2026-11-24T10%3A00%3A00", "x"], ["2026-11-24T10%3A00%3A00"], ["2026-2-3"],
    ["2026-11-24 10%3A00%3A00", "7"], ["10.0.0.1", "1.5"], ["2026-11", "2026-W01"], ["9223372036854775808", "x"],
    ["1f", "x"], ["NaN", "nan"], ["1e", "e5", "inf"], ["5 ", "x"], ["1,5"], ["00%3A00", "1a"], ["--5", "."],
    ["9223372036854775807", "-9223372036854775808"], ["1", "1000000000000000000"], ["0" * 20 + "5", "6"], ["a\u0663"],
]  # fmt: skip


def in_folders(root: Path, *folders: str) -> Path:
    for folder in folders:
        (root / folder).mkdir(parents=True)
        pq.write_table(pa.table({"id": [1]}), root / folder / "a.parquet")
    return root


def test_columns_of_folders_follow_those_of_files(tmp_path: Path) -> None:
    found = schema_from(in_folders(tmp_path, "day=2026-11-24/hour=7", "day=2026-11-25/hour=8"))
    assert found.columns == (Column("id", "bigint"), Column("day", "date"), Column("hour", "int"))


def test_a_column_of_files_is_one_column(tmp_path: Path) -> None:
    assert schema_from(in_folders(tmp_path, "ID=1")).columns == (Column("id", "bigint"),)


def test_folders_of_other_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="the folders 'day=1' and 'plain' of the source have different depths"):
        schema_from(in_folders(tmp_path, "day=1", "plain"))


DOUBTFUL = [
    "9223372036854775808", "1e3", "5.", "Infinity", "NaN", "1d", "0x1p3", "0000-01-01", "-2026-11-24", "10%3A00%3A00",
    "1E400", "2026-11-24 10%3A00%3A00.1234567", "2026-11-24 25%3A00%3A00", "%2B5", " 5", "5 ", "9" * 120 + ".5",
    "-9223372036854775809", "\u0663", "1\u0663",
]  # fmt: skip


@pytest.mark.parametrize("value", DOUBTFUL)
def test_values_that_spark_takes_otherwise_are_refused(tmp_path: Path, value: str) -> None:
    root = in_folders(tmp_path, f"v={value}", "v=7")
    with pytest.raises(SourceError, match="store the column in the files"):
        schema_from(root)
    with pytest.raises(SourceError, match="store the column in the files"):
        list_source(str(root))


def test_values_that_are_one_to_a_double_are_not_one_column(tmp_path: Path) -> None:
    root = in_folders(tmp_path, "v=9007199254740993", "v=9007199254740992.5")
    assert list_source(str(root)).schema.find("v").type == "string"


@pytest.mark.spark
@pytest.mark.parametrize("values", VALUES, ids=" ".join)
def test_types_are_those_that_spark_guesses(spark: SparkSession, tmp_path: Path, values: list[str]) -> None:
    root = in_folders(tmp_path, *(f"v={value}" for value in values))
    assert schema_from(root).find("v").type == spark.read.parquet(str(root)).schema["v"].dataType.simpleString()
