"""Few of many small row groups are read by tasks of ours, in a session and as a DataFrame, with the same answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from layoutopt.scan import segments
from layoutopt.scan.reads import TableRead
from layoutopt.scan.table import Table
from layoutopt.spark import disable, enable, register
from layoutopt.spark.session import small_row_groups
from layoutopt.spark.session.small_row_groups import are_read_by_tasks
from layoutopt.spark.session.tables import unregister
from tests.scan.builder import build, building
from tests.scan.deleting import delete_ids, kept
from tests.scan.tables import CONDITIONS, SCHEMA, expected, same, some_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SQL = "SELECT id, price FROM t WHERE kind = 'air' AND price > 20"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return build(tmp_path / "t", some_rows(), building(SCHEMA, CONDITIONS, partition_by="year", footers=True))


@pytest.fixture
def dear_footers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_row_groups, "_FOOTER_CHUNK", 1.0)
    monkeypatch.setattr(segments, "_MANY_CHUNKS", 0)
    monkeypatch.setattr(segments, "_MANY_ROW_GROUPS", 0)
    monkeypatch.setattr(segments, "_FEW", 0)


def read_of(table: Table) -> TableRead:
    (read,) = table.scan(SQL).reads
    return read


def test_tasks_of_a_small_table_are_not_worth_it(table: Table) -> None:
    assert not are_read_by_tasks(read_of(table))


@pytest.mark.usefixtures("dear_footers")
def test_tasks_read_where_footers_take_longer(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    assert are_read_by_tasks(read_of(table))
    monkeypatch.setattr(small_row_groups, "_VALUE", 10.0)
    assert not are_read_by_tasks(read_of(table))


@pytest.mark.usefixtures("dear_footers")
def test_files_whose_chunks_are_not_known_are_left_to_spark(tmp_path: Path) -> None:
    older = build(tmp_path / "t", some_rows(), building(SCHEMA, CONDITIONS, partition_by="year"))
    assert not are_read_by_tasks(read_of(older))


@pytest.mark.left_to_spark
@pytest.mark.spark
@pytest.mark.usefixtures("dear_footers")
@pytest.mark.parametrize("gone", [(), range(0, 300, 5)])
def test_the_answers_are_the_same(spark: SparkSession, table: Table, gone: Sequence[int]) -> None:
    rows = kept(some_rows(), set(gone))
    changed = delete_ids(table.catalog.files.root, gone) if gone else table
    assert same(changed.scan(SQL).to_spark(spark).toArrow().to_pylist(), expected(SQL, rows))
    register(spark, "t", changed.catalog.files.root)
    enable(spark)
    try:
        asked = spark.sql(SQL)
        assert "MapInArrow" in asked._jdf.queryExecution().executedPlan().toString()
        assert same(asked.toArrow().to_pylist(), expected(SQL, rows))
    finally:
        disable(spark)
        unregister(spark, "t")
