"""Late materialisation in Spark: of several layouts, only row groups that may still match are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from layoutopt.scan.table import Table
from layoutopt.spark import disable, enable, last_scans, register
from tests.scan.builder import build, building
from tests.scan.destroyed import without_values_of_rows
from tests.scan.layouts import ONE_FEATURE_EACH
from tests.scan.tables import SCHEMA, expected, same, some_rows
from tests.spark.session.answers import spark_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Ask = Callable[["SparkSession", Table, str], pa.Table]
COLUMNS = ("id", "price", "day", "score")


def ask_enabled(spark: SparkSession, table: Table, where: str) -> pa.Table:
    return in_enabled(spark, table, lambda: spark.sql(f"SELECT {', '.join(COLUMNS)} FROM t WHERE {where}"))


def ask_frame(spark: SparkSession, table: Table, where: str) -> pa.Table:
    return in_enabled(spark, table, lambda: spark.table("t").where(where).select(*COLUMNS))


def in_enabled(spark: SparkSession, table: Table, frame: Callable[[], DataFrame]) -> pa.Table:
    register(spark, "t", table.catalog.files.root)
    enable(spark)
    try:
        found = frame().toArrow()
        assert last_scans(spark)
        return found
    finally:
        disable(spark)


def ask_scan(spark: SparkSession, table: Table, where: str) -> pa.Table:
    return spark_sql(spark, table, f"SELECT {', '.join(COLUMNS)} FROM t WHERE {where}").toArrow()


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return spark.newSession()


@pytest.fixture
def rows() -> pa.Table:
    return some_rows()


@pytest.fixture
def table(tmp_path: Path, rows: pa.Table) -> Table:
    return build(tmp_path, rows, building(SCHEMA, ["kind = 'air'", "price > 50"], layouts=ONE_FEATURE_EACH))


@pytest.mark.unshadowed("values that are skipped are destroyed")
@pytest.mark.parametrize("ask", [ask_enabled, ask_frame, ask_scan])
def test_row_groups_without_a_matching_row_are_not_read(
    session: SparkSession, table: Table, rows: pa.Table, ask: Ask
) -> None:
    scan = table.scan("SELECT id, price, day, score FROM t WHERE id = 17")
    (pruned,) = scan.reads[0].pruned
    assert (pruned.read & (pruned.source.blocks.layout == 1)).sum() > 1, "pruning leaves blocks of the other layouts"
    tid = rows["id"].to_pylist().index(17)
    assert without_values_of_rows(scan, 1, [tid]) > 0
    assert without_values_of_rows(scan, 2, [tid]) > 0
    assert same(ask(session, table, "id = 17").to_pylist(), expected(scan.sql, rows))
    with pytest.raises(PySparkException, match=r"load its partition again|damaged"):
        ask(session, table, "id IN (17, 18, 19, 20, 21, 22, 23)")
