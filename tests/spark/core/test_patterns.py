"""Folders whose names are patterns to Spark are read as themselves, beside others that these patterns match."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.scan.table import open_table
from layoutopt.spark import disable, enable, register
from layoutopt.spark.core.source import escape_pattern, is_pattern, open_source, schema_of
from layoutopt.spark.loading.load import load
from layoutopt.spark.loading.source_files import read_partition, source_partitions
from tests.effort import long_too
from tests.scan.builder import build, building
from tests.scan.layouts import GROUPS
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows
from tests.spark.settings import new_session
from tests.spark.tables import document, every_type, is_value, plan_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The first matches the second, and so on.
NAMES = ["ev?", "ev1", "ev[12]", "ev2", "e*", "ev{1,2}", "ev\\?"]


def test_what_is_a_pattern() -> None:
    assert [is_pattern(name) for name in NAMES] == [True, False, True, False, True, True, True]
    assert escape_pattern("ev{1,2}\\?") == "ev\\{1,2\\}\\\\\\?"


@pytest.mark.spark
@pytest.mark.parametrize("groups", [False, *long_too(True)])
def test_a_table_is_not_read_from_beside_it(spark: SparkSession, tmp_path: Path, groups: bool) -> None:
    build(tmp_path / NAMES[0], some_rows(), building(SCHEMA, CONDITIONS, layouts=GROUPS if groups else None))
    for name in NAMES[1:]:
        shutil.copytree(tmp_path / NAMES[0], tmp_path / name)
    session = new_session(spark)
    for number, name in enumerate(NAMES):
        register(session, f"t{number}", str(tmp_path / name))
    enable(session)
    try:
        for number, name in enumerate(NAMES):
            assert session.sql(f"SELECT id, price FROM t{number} WHERE id >= 0").count() == 300, name
            assert session.table(f"t{number}").count() == 300, name
            scan = open_table(str(tmp_path / name)).scan(columns=["id"], where="id < 100")
            assert scan.to_spark(session).count() == 100, name
    finally:
        disable(session)


@pytest.mark.spark
@pytest.mark.parametrize("name", ["ev[1]", *long_too("ev?", "ev\\", "ev{a,b}")])
def test_a_table_is_written_there(spark: SparkSession, tmp_path: Path, name: str) -> None:
    rows = every_type(spark)
    schema = schema_of(rows)
    load(spark, rows, str(tmp_path / name), plan_of(document(schema, [is_value(schema, "year", "=", 1994)])))
    register(spark, "in_brackets", str(tmp_path / name))
    assert spark.table("in_brackets").count() == rows.count()


@pytest.mark.spark
def test_a_partition_of_a_source_is_read_from_its_own_files(spark: SparkSession, tmp_path: Path) -> None:
    for name, first in (("p[x]", 0), ("px", 100), ("p?", 200), ("pq", 300)):
        rows = pa.table({"id": range(first, first + 10), "day": [first // 200] * 10})
        pq.write_table(rows, tmp_path / f"{name}.parquet")
    source = open_source(spark, tmp_path)
    for partition in source_partitions(source, str(tmp_path), "day"):
        found = read_partition(spark, str(tmp_path), source, "day", partition, schema_of(source))
        assert found.count() == partition.rows == 20
