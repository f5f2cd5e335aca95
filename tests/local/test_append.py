"""Appends without Spark: every answer, every proof, every crash."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from layoutopt.catalog.commit import APPEND, CRASH_POINTS, commit_load
from layoutopt.catalog.table import Catalog
from layoutopt.config.settings import AppendSettings
from layoutopt.errors import ContentMismatchError, NeedsSparkError, TableError
from layoutopt.events import Stages
from layoutopt.local import append as joining
from layoutopt.local import append as verb
from layoutopt.local import append as writing
from layoutopt.local.append import append_few_rows
from layoutopt.model.feature import SessionSettings
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import Call, Col
from layoutopt.scan.table import open_table
from layoutopt.writer.task import write_and_measure
from layoutopt.writer.task_result import LoadReport, TaskResult
from tests.local.tables import Table
from tests.scan.builder import building
from tests.scan.layouts import GROUPS, OVERLAPPING
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows


def no_spark(path: str, keys: Collection[str], watch: Stages) -> LoadReport | None:
    raise AssertionError("these are few rows")


def append(table: Table, source: str, **how: Any) -> verb.AppendReport:
    return append_few_rows(AppendSettings(table_path=table.path, source=source, **how), no_spark)


@pytest.mark.parametrize(
    ("layouts", "by"), [(None, None), (GROUPS, "year"), (OVERLAPPING, None)], ids=["one", "groups", "copies"]
)
def test_rows_come_to_their_partitions_once_and_are_joined(layouts: Any, by: str | None, tmp_path: Path) -> None:
    table = Table(tmp_path, layouts, by)
    for number in range(4):
        source = table.source(30)
        done = append(table, source)
        table.rows += 30
        assert done.load is not None
        assert done.load.rows == 30
        assert append(table, source).load is None  # a retry
        assert (done.joined is not None) == (number == 3)
        assert done.not_joined is None
    table.check()
    entries = Catalog.open(table.path).snapshot.by_key
    assert {len(of_key) for of_key in entries.values()} == {2}


def test_what_is_joined_is_what_the_entries_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(tmp_path, GROUPS, None)
    for _ in range(3):
        append(table, table.source(30))
        table.rows += 30
    honest = joining._read_entries

    def losing(*arguments: Any) -> pa.Table:
        return honest(*arguments).slice(1)

    monkeypatch.setattr(joining, "_read_entries", losing)
    done = append(table, table.source(30))
    table.rows += 30
    assert done.load is not None
    assert "nothing was committed" in str(done.not_joined)
    table.check()


@pytest.mark.parametrize("damage", ["rows", "values", "places"])
def test_rows_that_are_not_the_sources_are_not_committed(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(tmp_path, GROUPS, None)
    before, honest = table.files, write_and_measure

    def wrong(job: Any, segment: Any) -> TaskResult:
        rows = segment.table
        if damage == "rows":
            return honest(job, replace(segment, table=rows.slice(1), words=segment.words[1:]))
        if damage == "values":
            return honest(job, replace(segment, table=rows.set_column(0, "id", pa.array([7] * len(rows), pa.int32()))))
        answer = honest(job, segment)
        return replace(answer, tid_sums=[[None if s is None else s + 1 for s in sums] for sums in answer.tid_sums])

    monkeypatch.setattr(writing, "write_and_measure", wrong)
    with pytest.raises(ContentMismatchError, match="nothing was committed"):
        append(table, table.source(30))
    assert table.files == before


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_a_crash_leaves_the_table_as_it_was_or_with_all_rows(
    point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(tmp_path, None, None)
    honest = commit_load

    class KilledError(BaseException):
        """Stands for kill -9."""

    def dying(*arguments: Any, **named: Any) -> Any:
        def at(reached: str) -> None:
            if reached == point:
                raise KilledError

        return honest(*arguments, **named | {"at": at})

    source = table.source(30)
    monkeypatch.setattr(writing, "commit_load", dying)
    with pytest.raises(KilledError):
        append(table, source)
    monkeypatch.setattr(writing, "commit_load", honest)
    table.rows += 30 if point == "snapshot-created" else 0
    assert open_table(table.path).rows == table.rows
    assert (append(table, source).load is None) == (point == "snapshot-created")
    table.rows = 230
    table.check()


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(tmp_path, None, None)
    before = table.files

    def full(*arguments: Any) -> TaskResult:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing, "write_and_measure", full)
    with pytest.raises(TableError, match="No space left on device"):
        append(table, table.source(30))
    assert table.files == before


def test_many_rows_are_joined_by_who_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(tmp_path, None, None)
    asked: list[tuple[str, ...]] = []

    def join_many(path: str, keys: Collection[str], watch: Stages) -> LoadReport | None:
        asked.append(tuple(keys))
        return None

    monkeypatch.setattr(joining, "MOST_ROWS", 40)
    for _ in range(4):
        append_few_rows(AppendSettings(table_path=table.path, source=table.source(30)), join_many)
        table.rows += 30
    assert asked == [("all",)]
    table.check()
    append(table, table.source(30), keep_apart=True)
    assert len(asked) == 1


def test_tables_that_need_spark_are_left_to_it(tmp_path: Path) -> None:
    plan = building(SCHEMA, CONDITIONS, partition_by="year").plan
    reversed_kind = IndexSpec(Call("reverse", (Col("kind", "string"),), "string"), "value-list")
    with pytest.raises(NeedsSparkError, match="an index of an expression"):
        writing._check_plan(replace(plan, indexes=(reversed_kind,)))
    there = SessionSettings(time_zone="Europe/Berlin")
    with pytest.raises(NeedsSparkError, match="Europe/Berlin"):
        writing._check_plan(replace(plan, settings=there, features=replace(plan.features, settings=there)))
    table, rows = Table(tmp_path, None, None), some_rows(12)
    few = writing.RowsToWrite("rows", rows, {1994: np.arange(12)}, APPEND)
    with pytest.raises(NeedsSparkError, match="more rows than a segment"):
        writing.write_few_rows(Catalog.open(table.path), replace(plan, segment_rows=3), few, Stages())
