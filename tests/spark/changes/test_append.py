"""Appends: with Spark and without, each knows what the other has done, and what earlier ones left is compacted."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from layoutopt.api.execution import use_session
from layoutopt.catalog.history import history
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.cli.app import main
from layoutopt.cli.console import DONE
from layoutopt.errors import AlreadyLoadedError, TableError
from layoutopt.inspect.status import current_plan
from layoutopt.inspect.verify import verify
from layoutopt.loading import append as compaction
from layoutopt.loading.append import append_few_rows
from layoutopt.loading.local_source import open_local
from layoutopt.model.requests import AppendRequest, LoadRequest
from layoutopt.report.changes import print_append
from layoutopt.scan.table import open_table
from layoutopt.spark.core.source import conform_columns, open_source
from layoutopt.spark.loading.load import run_load
from layoutopt.spark.loading.source_files import source_partitions
from tests.spark.changes.living import COLUMNS, SCHEMES, Begin, Living, before_next_call

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def no_join(*_: object) -> None:
    raise AssertionError("these are few rows")


def test_both_read_the_same_of_a_source_and_write_the_same(spark: SparkSession, begin: Begin) -> None:
    living = begin("gsop-r")
    other, source = str(living.root / "other"), str(living.root / "source")
    shutil.copytree(living.path, other)
    rows = living.new_rows(50)
    spark.createDataFrame(rows, COLUMNS).coalesce(1).write.parquet(source)
    schema = open_table(living.path).schema
    seen = source_partitions(conform_columns(open_source(spark, source), schema), source, "day")
    assert open_local(source, current_plan(Catalog.open(living.path))).partitions == seen

    by_spark = living.appended(source)
    without = append_few_rows(AppendRequest(table_path=other, source=source), no_join)
    assert without.batch == by_spark.batch
    assert by_spark.load is not None
    assert without.load is not None
    told = ("partitions", "rows", "segments", "blocks", "files", "notes")
    assert [getattr(by_spark.load, name) for name in told] == [getattr(without.load, name) for name in told]
    tables = [Catalog.open(path) for path in (living.path, other)]
    for entry, same in zip(*(table.partitions for table in tables), strict=True):
        for name in ("key", "value", "rows", "source", "checksums", "bounds"):
            assert getattr(entry, name) == getattr(same, name), name
        blocks, others = tables[0].blocks(entry), tables[1].blocks(same)
        for name in ("words", "rows", "layout", "segment", "part"):
            assert np.array_equal(getattr(blocks, name), getattr(others, name)), name
        for number in range(blocks.n):
            groups = [
                pq.ParquetFile(f"{root}/{of.files[of.file[number]]}").read_row_group(int(of.row_group[number]))
                for root, of in ((living.path, blocks), (other, others))
            ]
            assert str(groups[0].drop_columns("_block")) == str(groups[1].drop_columns("_block"))
    # each finds the other's batch
    assert append_few_rows(AppendRequest(table_path=living.path, source=source), no_join).load is None
    assert use_session(spark).append(AppendRequest(table_path=other, source=source)).load is None
    living.model |= {row[0]: row for row in rows}
    living.check()
    assert verify(open_table(other)).ok


def test_the_command_line_starts_spark_only_where_it_has_to(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    living = Living(spark, tmp_path)
    living.begin(None)
    started: list[str] = []

    def start(*arguments: object, **named: object) -> SparkSession:
        started.append("spark")
        return spark

    monkeypatch.setattr("layoutopt.cli.inputs.start_spark", start)
    spaced = str(tmp_path / "by Spark")
    for starts in (0, 1):
        rows = living.new_rows(10)
        source = living.source(rows)
        assert main(["append", living.path, shutil.copytree(source, spaced) if starts else source]) == DONE
        assert len(started) == starts
        living.model |= {row[0]: row for row in rows}
    capsys.readouterr()
    living.check()


@pytest.mark.long
def test_what_appends_left_is_joined(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    living = begin("gsop-r")
    monkeypatch.setattr("layoutopt.sources.source.Source.chunks", None)  # rows that are known are not counted

    def entries() -> list[int]:
        return [len(each) for each in Catalog.open(living.path).snapshot.by_key.values()]

    living.append(3)
    living.delete("kind = 2")  # what is marked is not written again
    living.append(9)
    assert entries() == [2, 2, 2]
    living.check()
    told = [entry.operation for entry in history(TableFiles(living.path))]
    assert told == ["load", "append", "delete", "append", "join"]
    assert all(of[-1].deletes is None for of in Catalog.open(living.path).snapshot.by_key.values())

    rows = living.new_rows(48)

    def late() -> None:
        living.model |= {row[0]: row for row in rows}
        living.delete("price > 2.5")

    before_next_call(monkeypatch, compaction, "mark_replaced", late)
    assert living.appended(living.source(rows)).joined is None  # somebody deleted rows of what was to be joined
    assert entries() == [3, 3, 3]
    living.check()
    rows = living.new_rows(6)
    assert living.appended(living.source(rows), keep_apart=True).joined is None
    living.model |= {row[0]: row for row in rows}
    assert entries() == [4, 4, 4]

    def full() -> None:
        raise TableError("no room is left")

    rows = living.new_rows(6)
    before_next_call(monkeypatch, compaction, "mark_replaced", full)
    report = living.appended(living.source(rows))
    living.model |= {row[0]: row for row in rows}
    assert report.load is not None
    assert report.not_joined == "no room is left"
    told_of = Console(record=True, file=io.StringIO())
    print_append(told_of, report)
    assert "The batch is in the table" in told_of.export_text()
    living.check()
    assert verify(open_table(living.path)).ok


@pytest.mark.long
def test_loads_and_changes_know_of_each_other(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = Living(spark, tmp_path)
    living.begin_anew(SCHEMES["gsop-r"])
    settings = LoadRequest(source=str(living.root / "source-1"), table_path=living.path)
    living.append(2)
    assert run_load(spark, settings).loads == ()  # its rows are there; others beside them are no reason to load
    with monkeypatch.context() as patch:
        for name in ("loading.load.count_chunks", "changes.spark_change.SparkChange.list_values"):
            patch.setattr(f"layoutopt.spark.{name}", None)  # the catalog knows the rows and values of what is joined
        assert living.optimize() == 2
    assert run_load(spark, settings).loads == ()
    living.delete("kind = 2")
    with pytest.raises(AlreadyLoadedError, match="from other content"):
        run_load(spark, settings)
