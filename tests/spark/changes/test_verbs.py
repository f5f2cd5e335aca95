"""Append, delete, update, merge and optimize: what they refuse, what they prove, and what the command line says."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from layoutopt.catalog.publications import Publication
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.catalog.vacuum import vacuum
from layoutopt.cli.app import main
from layoutopt.cli.console import BAD_USAGE, DONE
from layoutopt.config.settings import (
    AppendSettings,
    DeleteSettings,
    LoadSettings,
    MergeSettings,
    OptimizeSettings,
    UpdateSettings,
)
from layoutopt.errors import (
    AlreadyLoadedError,
    CommitConflictError,
    ContentMismatchError,
    LayoutoptError,
    MissingPartitionError,
    PublicationError,
    SettingError,
    SourceError,
)
from layoutopt.inspect.status import status
from layoutopt.inspect.verify import verify
from layoutopt.model.layout import Plan
from layoutopt.publish.publishing import publish
from layoutopt.scan.table import open_table
from layoutopt.spark.changes import affected_rows as concerned
from layoutopt.spark.changes.append import append_rows
from layoutopt.spark.changes.dml import delete_rows, merge_rows, update_rows
from layoutopt.spark.changes.optimize import optimize_table
from layoutopt.spark.loading.load import load, run_load
from layoutopt.writer.task_result import LoadReport
from tests.spark.changes.living import COLUMNS, SCHEMES, Living

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def living(spark: SparkSession, tmp_path: Path) -> Living:
    """A table of sixty rows in three partitions, in two layouts that share columns."""
    living = Living(spark, tmp_path)
    living.begin(SCHEMES["gsop-r"])
    return living


def snapshot(living: Living) -> int:
    return Catalog.open(living.path).snapshot.number


def test_what_can_not_be_understood_is_said_in_a_sentence_and_changes_nothing(living: Living) -> None:
    spark, path = living.spark, living.path
    twice = living.source([*living.new_rows(1), *[(1, 1, None, None, None)] * 2])
    null = living.source([(None, 1, None, None, None)])
    none = living.source([])

    def updating(*texts: str) -> UpdateSettings:
        return UpdateSettings(table_path=path, assignments=texts, where="id = 1")

    refused: list[tuple[Any, type[LayoutoptError], str]] = [
        (lambda: delete_rows(spark, DeleteSettings(table_path=path, where="id =")), SettingError, "--where 'id ='"),
        (lambda: delete_rows(spark, DeleteSettings(table_path=path, where="nope = 1")), SettingError, "nope"),
        (lambda: update_rows(spark, updating("day = 2")), SettingError, "the partition column"),
        (lambda: update_rows(spark, updating("kind")), SettingError, "is not an assignment"),
        (lambda: update_rows(spark, updating("kind = nope")), SettingError, "--set 'kind = nope' is invalid"),
        (lambda: update_rows(spark, updating("kind = cast('a' AS int)")), SettingError, "is invalid"),
        (lambda: delete_rows(spark, DeleteSettings(table_path=path, where="id + 1")), SettingError, "--where"),
        (lambda: update_rows(spark, updating("kind = 1", "KIND = 2")), SettingError, "twice"),
        (
            lambda: merge_rows(spark, MergeSettings(table_path=path, source=twice, on=("id",))),
            SourceError,
            "2 rows with id=1",
        ),
        (lambda: merge_rows(spark, MergeSettings(table_path=path, source=null, on=("id",))), SourceError, "NULL in id"),
        (lambda: append_rows(spark, AppendSettings(table_path=path, source=none)), MissingPartitionError, "no rows"),
        (
            lambda: optimize_table(spark, OptimizeSettings(table_path=path, partition=("3",))),
            SettingError,
            "no partition '3'",
        ),
        (
            lambda: optimize_table(spark, OptimizeSettings(table_path=path, budget_bytes=1, budget_share=0.5)),
            SettingError,
            "are both set",
        ),
    ]
    for ask, kind, said in refused:
        with pytest.raises(kind, match=said):
            ask()
    assert snapshot(living) == 0
    assert main(["delete", f"{path}-2", "--where", "id = 1"]) == BAD_USAGE


@pytest.mark.long
def test_rows_that_do_not_add_up_are_not_committed(living: Living, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that skipped a row too many would find too few rows to delete, or to update."""
    honest = concerned.matching_rows

    def losing(*arguments: Any) -> DataFrame:
        return honest(*arguments).where("id > 12")

    monkeypatch.setattr(concerned, "matching_rows", losing)
    anew = DeleteSettings(table_path=living.path, where="id BETWEEN 10 AND 30", rewrite_share=0)
    with pytest.raises(ContentMismatchError):
        delete_rows(living.spark, anew)
    where = "id BETWEEN 10 AND 30"
    settings = UpdateSettings(table_path=living.path, assignments=("kind = -1",), where=where, rewrite_share=0)
    with pytest.raises(ContentMismatchError):
        update_rows(living.spark, settings)
    living.check()


def test_rows_that_come_meanwhile_are_not_lost(living: Living, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*arguments: Any, **named: Any) -> LoadReport:
        living.append(9)
        return load(*arguments, **named)

    monkeypatch.setattr("layoutopt.spark.changes.pipeline.load", late)
    with pytest.raises(CommitConflictError, match="by another commit"):
        delete_rows(living.spark, DeleteSettings(table_path=living.path, where="kind = 2", rewrite_share=0))
    monkeypatch.undo()
    living.check()
    living.delete("kind = 2")
    living.check()


def test_a_deleted_row_is_gone_from_every_file_once_vacuumed(living: Living) -> None:
    source = living.source([(4711, 1, 0, 0.5, "needle")])
    append_rows(living.spark, AppendSettings(table_path=living.path, source=source, batch_id="one row"))
    assert files_with(living.path, "needle")
    delete_rows(living.spark, DeleteSettings(table_path=living.path, where="id = 4711", rewrite_share=0))
    assert files_with(living.path, "needle")
    vacuum(TableFiles(living.path), 1, dt.timedelta(0))
    assert files_with(living.path, "needle") == []
    assert verify(open_table(living.path)).ok


def test_a_hard_delete_leaves_no_copy_of_a_row(living: Living) -> None:
    source = living.source([(4711, 1, 0, 0.5, "needle"), (4712, 2, 0, 0.5, "nail")])
    append_rows(living.spark, AppendSettings(table_path=living.path, source=source, batch_id="two rows"))
    marking = DeleteSettings(table_path=living.path, where="id = 4711", rewrite_share=1)
    assert delete_rows(living.spark, marking).marked is not None
    assert files_with(living.path, "needle")
    for number in (4711, 4712):  # the first is only marked, in the newest snapshot's files
        report = delete_rows(living.spark, DeleteSettings(table_path=living.path, where=f"id = {number}", hard=True))
        assert report.vacuum is not None
        assert report.vacuum.files
    assert files_with(living.path, "needle") == files_with(living.path, "nail") == []
    assert TableFiles(living.path).exists("_layoutopt/snapshots/0.json") is False
    assert verify(open_table(living.path)).ok
    living.check()


@pytest.mark.long
def test_a_hard_delete_leaves_no_copy_in_what_is_published(living: Living) -> None:
    source = living.source([(4711, 1, 0, 0.5, "needle")])
    append_rows(living.spark, AppendSettings(table_path=living.path, source=source, batch_id="one row"))
    place = str(living.root / "published")
    publish(living.path, Publication("delta", place))
    hard = DeleteSettings(table_path=living.path, where="id = 4711", hard=True)
    with pytest.raises(PublicationError, match="copies are left: snapshots 1 are published"):
        delete_rows(living.spark, hard)
    assert files_with(living.path, "needle")
    delete_rows(living.spark, hard.model_copy(update={"publish": (f"delta={place}",)}))
    assert files_with(living.path, "needle") == []
    living.check()


def files_with(root: str, text: str) -> list[str]:
    """The files of a table in which a text stands, Parquet's decoded."""
    found = []
    for path in Path(root).rglob("*"):
        if path.is_file():
            content = str(pq.read_table(path).to_pydict()) if path.suffix == ".parquet" else path.read_text()
            found += [str(path)] if text in content else []
    return found


@pytest.mark.long
def test_loads_and_changes_know_of_each_other(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = Living(spark, tmp_path)
    living.begin_anew(SCHEMES["gsop-r"])
    source = str(living.root / "source-1")
    settings = LoadSettings(source=source, table_path=living.path)
    living.append(2)
    assert run_load(spark, settings).loads == ()  # its rows are there; others beside them are no reason to load
    with monkeypatch.context() as patch:
        for name in ("loading.load.count_chunks", "changes.affected_rows.TableChange.read_values"):
            patch.setattr(f"layoutopt.spark.{name}", None)  # the catalog knows the rows and values of what is joined
        assert living.optimize() == 2
    assert run_load(spark, settings).loads == ()
    living.delete("kind = 2")
    with pytest.raises(AlreadyLoadedError, match="from other content"):
        run_load(spark, settings)


@pytest.mark.long
def test_what_pays_most_for_each_byte_comes_first_and_nothing_twice(living: Living) -> None:
    assert status(Catalog.open(living.path)).advice is None
    living.append(12)
    living.append(2)
    told = status(Catalog.open(living.path))
    assert told.advice == f"3 partitions have rows of several loads; `layoutopt optimize {living.path}` compacts them"
    assert [one.entries for one in told.partitions] == [3, 3, 2]

    def ask(**given: Any) -> Any:
        return optimize_table(living.spark, OptimizeSettings(table_path=living.path, **given))

    dry = ask(dry_run=True)
    assert len(dry.candidates) == len(dry.chosen) == 3
    gains = [one.gain / one.bytes for one in dry.candidates]
    assert gains == sorted(gains, reverse=True)
    assert ask(budget_bytes=dry.candidates[0].bytes, dry_run=True).chosen == dry.chosen[:1]
    assert [one.partitions for one in ask(budget_bytes=dry.candidates[0].bytes).loads] == [dry.chosen[:1]]
    assert len(ask().loads) == 2
    done = ask()
    assert (done.candidates, done.chosen, done.loads) == ((), (), ())
    living.check()


@pytest.mark.long
def test_partitions_of_older_plans_are_written_by_the_newest(living: Living) -> None:
    plan = Plan.loads((living.root / "plan.json").read_bytes())
    (living.root / "plan.json").write_bytes(replace(plan, seed=7).dumps())
    living.load([row for row in living.new_rows(30) if row[1] == 2], replace=True)
    assert "2 partitions have older plans" in str(status(Catalog.open(living.path)).advice)
    report = optimize_table(living.spark, OptimizeSettings(table_path=living.path, partition=("1", "__null__")))
    assert all(one.older_plan for one in report.candidates)
    assert len(report.loads) == 2
    assert len(Catalog.open(living.path).plans) == 1
    living.check()


@pytest.mark.long
def test_the_command_line_says_what_was_done(living: Living, capsys: pytest.CaptureFixture[str]) -> None:
    path, source = living.path, living.source(living.new_rows(3))
    changes = [(1, 1, 4, 1.0, "x", "U"), (2, 1, 4, 1.0, "x", "D")]
    elsewhere = living.source([(99, 3, 1, 1.0, "in a new partition")])
    feed = living.source(changes, f"{COLUMNS}, op string")
    said = [
        (["append", path, source, "--batch-id", "monday"], "Batch monday appended"),
        (["append", path, source, "--batch-id", "monday"], "Batch monday was appended before"),
        (["status", path], "compacts them"),
        (["delete", path, "--where", "id = 5"], "1 rows deleted, 0 updated, 0 inserted"),
        (["delete", path, "--where", "id = 5"], "No row matches"),
        (["update", path, "--set", "text = 'a, b'", "--set", "kind = 1", "--where", "id = 6"], "1 updated"),
        (["merge", path, feed, "--on", "id", "--delete-when", "op = 'D'"], "1 rows deleted, 1 updated, 0 inserted"),
        (["merge", path, elsewhere, "--on", "id"], "0 rows deleted, 0 updated, 1 inserted"),
        (["optimize", path], "partitions that could be rewritten"),
        (["optimize", path], "Every partition follows the newest plan"),
    ]
    for arguments, expected in said:
        assert main(arguments) == DONE
        assert expected in capsys.readouterr().out.replace("\n", " ")
