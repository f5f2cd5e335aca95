"""Columns of folders' names have the types that Spark guesses, so that `analyze` and `plan` speak of one table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.model.schema import Column
from layoutopt.sql.schema import schema_from

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES = [
    ["7", "08"], ["7", "3000000000"], ["1.5", "2"], ["2026-11-24", "2026-02-28"], ["2026-02-30", "2026-02-28"],
    ["2026-11-24", "7"], ["2026-11-24 10%3A00%3A00", "2026-11-24"], ["a", "__HIVE_DEFAULT_PARTITION__"], ["1e3", "x"],
    ["7", "__HIVE_DEFAULT_PARTITION__"],
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


def test_folders_of_other_names_are_no_columns(tmp_path: Path) -> None:
    assert schema_from(in_folders(tmp_path, "day=1", "plain")).names == ("id",)


@pytest.mark.spark
@pytest.mark.parametrize("values", VALUES, ids=" ".join)
def test_types_are_those_that_spark_guesses(spark: SparkSession, tmp_path: Path, values: list[str]) -> None:
    root = in_folders(tmp_path, *(f"v={value}" for value in values))
    assert schema_from(root).find("v").type == spark.read.parquet(str(root)).schema["v"].dataType.simpleString()
