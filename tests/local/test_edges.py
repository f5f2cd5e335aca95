"""Sources, plans and failures at the edges of what is appended without Spark: nothing is lost, and all is bounded."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.config.settings import AppendSettings
from layoutopt.errors import NeedsSparkError
from layoutopt.local import append as few_rows
from layoutopt.local import append as joining
from layoutopt.local.append import append_few_rows, read_few_rows
from layoutopt.local.vectors import evaluate_exact_vectors
from layoutopt.model.schema import Column, Schema
from layoutopt.scan.table import open_table
from tests.local.tables import Table
from tests.scan.builder import build, building, feature_of

OLD = Schema((Column("p", "int"), Column("id", "int")))
NEW = Schema((*OLD.columns, Column("x", "string")))


def rows(p: int, first: int, n: int, x: bool = False) -> pa.Table:
    columns = {"p": pa.array([p] * n, pa.int32()), "id": pa.array(range(first, first + n), pa.int32())}
    return pa.table(columns | ({"x": [f"x{i}" for i in range(n)]} if x else {}))


def test_appends_go_on_by_the_newest_plan_where_an_older_one_was_loaded_since(tmp_path: Path) -> None:
    old, new = (building(schema, ("id < 5",), partition_by="p") for schema in (OLD, NEW))
    root = tmp_path / "t"
    build(root, rows(1, 0, 100), old, "0-1")
    build(root, rows(2, 100, 100, x=True), new, "0-2", first=1000)
    build(root, rows(2, 200, 20, x=True), new, "0-3", "append", first=2000)
    build(root, rows(1, 0, 100), old, "0-4", first=3000)
    asked = []
    for number in range(3):
        source = tmp_path / f"{number}.parquet"
        pq.write_table(rows(2, 300 + 20 * number, 20, x=True), source)
        append_few_rows(AppendSettings(table_path=str(root), source=str(source)), lambda *of: asked.append(of))
    assert not asked  # joined without Spark, by one plan
    found = open_table(str(root)).sql("SELECT count(*) AS n, count(x) AS x FROM t").to_pylist()
    assert found == [{"n": 280, "x": 180}]


def test_an_empty_text_names_a_partition(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": ["b", "", None, "a"]}), tmp_path / "a.parquet")
    found = read_few_rows(str(tmp_path), Schema((Column("k", "string"),)), "k")
    assert [partition.value for partition in found.partitions] == [None, "", "a", "b"]


def test_all_files_together_are_few_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        pq.write_table(pa.table({"k": ["x" * 1000] * 10}), tmp_path / f"{number}.parquet")
    monkeypatch.setattr(few_rows, "MOST_BYTES", 25_000)
    with pytest.raises(NeedsSparkError, match="25000"):
        read_few_rows(str(tmp_path), Schema((Column("k", "string"),)), None)


def test_what_is_joined_is_few_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, asked = Table(tmp_path, None, None), []
    monkeypatch.setattr(joining, "MOST_BYTES", 3_000)  # of the 30 rows of a source less, of 120 more
    for _ in range(4):
        append_few_rows(AppendSettings(table_path=table.path, source=table.source(30)), lambda *of: asked.append(of))
        table.rows += 30
    assert len(asked) == 1
    table.check()


def test_a_join_that_cant_be_tried_is_no_failure_of_the_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java(*_: object) -> None:
        raise RuntimeError("Java gateway process exited")

    table = Table(tmp_path, None, None)
    monkeypatch.setattr(joining, "MOST_ROWS", 40)
    for number in range(4):
        done = append_few_rows(AppendSettings(table_path=table.path, source=table.source(30)), no_java)
        table.rows += 30
        assert ("Java" in str(done.not_joined)) == (number == 3)
    table.check()


def test_a_pattern_too_long_for_arrow_is_left_to_spark() -> None:
    schema = Schema((Column("k", "string"),))
    with pytest.raises(NeedsSparkError):
        evaluate_exact_vectors([feature_of(f"k LIKE '{'_' * 300_000}'", schema)], pa.table({"k": ["a"]}), schema)
