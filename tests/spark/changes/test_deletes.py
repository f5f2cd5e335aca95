"""Deletes by vectors: what they write and cost, who reads them, who may meet, and when partitions are written anew."""

from __future__ import annotations

import datetime as dt
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from layoutopt.catalog.deletion_vectors import DELETE_POINTS, commit_deletes
from layoutopt.catalog.publications import Publication
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.catalog.vacuum import vacuum
from layoutopt.cli.app import main
from layoutopt.cli.console import BAD_USAGE, DONE
from layoutopt.config.settings import DeleteSettings, LoadSettings, OptimizeSettings
from layoutopt.errors import CommitConflictError, PublicationError
from layoutopt.inspect.status import status
from layoutopt.inspect.verify import verify
from layoutopt.publish.publishing import publish
from layoutopt.scan.table import Table, open_table
from layoutopt.serve.tables import ServedTable
from layoutopt.spark import disable, enable, read_table, register
from layoutopt.spark.changes import pipeline
from layoutopt.spark.changes.dml import delete_rows
from layoutopt.spark.changes.optimize import optimize_table
from layoutopt.spark.changes.pipeline import ChangeReport
from layoutopt.spark.loading.load import run_load
from tests.spark.changes.living import COLUMNS, NAMES, SCHEMES, Living, before_next_call, begun, comparable, typed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def gone(living: Living, where: str, **given: Any) -> ChangeReport:
    return delete_rows(living.spark, DeleteSettings(table_path=living.path, where=where, **given))


def rows_of(frame: DataFrame) -> list[tuple[object, ...]]:
    return comparable([tuple(row) for row in frame.select(*NAMES).collect()])


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["sop", pytest.param("gsop-r", marks=pytest.mark.long)])
def test_every_reader_of_spark_leaves_deleted_rows_out(spark: SparkSession, tmp_path: Path, scheme: str) -> None:
    living = begun(spark, tmp_path, scheme)
    living.delete("id BETWEEN 10 AND 30")
    session = spark.newSession()
    enable(session)
    register(session, "t", living.path)
    try:
        living.delete("kind = 2")  # whole blocks, beside those that have lost some rows
        left = list(living.model.values())
        few = [row for row in left if row[2] == 1]
        texts = {
            "SELECT * FROM t": left,
            f"SELECT * FROM layoutopt('{living.path}') WHERE kind = 1 AND id >= 0": few,
        }
        for text, expected in texts.items():
            assert rows_of(session.sql(text)) == comparable(expected), text
        assert session.sql("SELECT count(*) FROM t").collect()[0][0] == len(left)
        assert rows_of(session.table("t")) == comparable(left)
        assert rows_of(read_table(session, living.path)) == comparable(left)
        scan = open_table(living.path).scan("SELECT * FROM t WHERE kind = 1")
        assert rows_of(scan.to_spark(session)) == comparable(few)
    finally:
        disable(session)


def test_a_table_with_vectors_from_its_first_delete_to_its_last_file(spark: SparkSession, tmp_path: Path) -> None:
    living = begun(spark, tmp_path, "sop")
    before = {str(path) for path in Path(living.path).rglob("*.parquet")}
    report = gone(living, "id IN (3, 9, 15)", rewrite_share=0.15)
    living.model = {key: row for key, row in living.model.items() if key not in (3, 9, 15)}
    assert report.marked is not None
    assert (report.deleted, report.load, len(report.marked.partitions)) == (3, None, 1)
    new = {str(path) for path in Path(living.path).rglob("*.parquet")} - before
    assert [Path(path).stat().st_size for path in new] == [report.marked.bytes]
    living.check()
    (of_first, *_) = status(Catalog.open(living.path)).partitions
    assert (of_first.rows, of_first.deleted) == (17, 3)
    assert "1 partitions have up to 15% deleted rows" in str(status(Catalog.open(living.path)).advice)
    with pytest.raises(PublicationError, match="optimize --deleted-share 0"):
        publish(living.path, Publication("delta", str(tmp_path / "published")))
    with pytest.raises(PublicationError, match="optimize --deleted-share 0"):
        ServedTable(living.path).views()
    assert main(["files", living.path]) == BAD_USAGE

    assert gone(living, "id IN (3, 9, 15)").deleted == 0  # nothing is found twice
    settings = OptimizeSettings(table_path=living.path, deleted_share=0.2)
    assert optimize_table(spark, settings).chosen == ()
    done = optimize_table(spark, settings.model_copy(update={"deleted_share": 0.1}))
    assert done.chosen == (of_first.key,)
    assert done.candidates[0].deleted == pytest.approx(0.15)
    assert [entry.deletes for entry in Catalog.open(living.path).partitions] == [None] * 3
    living.check()
    vacuum(TableFiles(living.path), 1, dt.timedelta(0))
    assert TableFiles(living.path).list("_layoutopt/deletes") == ()
    publish(living.path, Publication("delta", str(tmp_path / "published")))
    again = gone(living, "id = 21")  # now that others read it, nothing is only marked
    assert again.marked is None
    assert again.load is not None


@pytest.mark.long
def test_snapshots_with_and_without_vectors_are_all_kept_and_restored(spark: SparkSession, tmp_path: Path) -> None:
    living = begun(spark, tmp_path, "gsop-r")
    living.check()
    living.delete("id BETWEEN 10 AND 30")
    living.check()
    vacuum(TableFiles(living.path), 9, dt.timedelta(0))  # no file that a kept snapshot needs
    living.restore(0)
    living.check()
    living.restore(1)
    living.check()
    vacuum(TableFiles(living.path), 1, dt.timedelta(0))
    assert len(TableFiles(living.path).list("_layoutopt/deletes")) == 1
    assert living.answer(Catalog.open(living.path).snapshot.number, None) == comparable(list(living.model.values()))
    # Of a partition without a row that lives nothing tells the value but what is deleted.
    living.delete("text IS NULL OR day = 1")
    assert living.optimize() == 3
    living.check()
    assert verify(open_table(living.path)).ok


@pytest.mark.long
def test_a_delete_that_meets_others(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are appended meanwhile stay; of two deletes of one partition the later one tries again."""
    living = begun(spark, tmp_path, "sop", 30)
    meanwhile = partial(before_next_call, monkeypatch, pipeline, "commit_deletes")
    meanwhile(lambda: living.append(6))
    there = len(living.model)
    deleted = gone(living, "kind = 2", rewrite_share=1).deleted
    table = open_table(living.path)
    assert table.rows == there + 6 - deleted
    assert table.sql("SELECT count(*) AS n FROM t WHERE id >= 30").to_pylist() == [{"n": 6}]
    for other in (lambda: gone(living, "id = 4", rewrite_share=1), lambda: gone(living, "id = 5", rewrite_share=0)):
        meanwhile(other)
        with pytest.raises(CommitConflictError, match="changed by another commit"):
            gone(living, "id IN (0, 1, 8)", rewrite_share=1)
    files = TableFiles(living.path)
    named = {entry.deletes.file for n in range(9) for entry in _entries(living.path, n) if entry.deletes is not None}
    assert {f"_layoutopt/deletes/{name}" for name in files.list("_layoutopt/deletes")} == named


def _entries(path: str, number: int) -> Any:
    newest = Catalog.open(path).snapshot.number
    return Catalog.open(path, number).partitions if number <= newest else ()


class KilledError(BaseException):
    """Stands for kill -9."""


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["sop", "gsop"])
def test_a_delete_that_dies_is_made_or_not(
    spark: SparkSession, tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = begun(spark, tmp_path, scheme, 30)
    for number, point in enumerate(DELETE_POINTS):

        def die(reached: str, point: str = point) -> None:
            if reached == point:
                raise KilledError

        with monkeypatch.context() as patch:
            patch.setattr(pipeline, "commit_deletes", lambda *a, die=die, **k: commit_deletes(*a, **k, at=die))
            with pytest.raises(KilledError):
                gone(living, f"id = {number}", rewrite_share=1)
        is_done = point == "snapshot-created"
        assert open_table(living.path).rows == 30 - number - is_done
        assert gone(living, f"id = {number}", rewrite_share=1).deleted == 1 - is_done
        del living.model[number]
    living.check()


def bytes_read(table: Table, texts: list[str]) -> int:
    """What queries read of data files, and the vectors, which each reads whole."""
    scans = [read for text in texts for read in table.scan(text).reads]
    of_files = sum(int(plan.bytes[plan.read].sum()) for read in scans for plan in read.pruned)
    files = {entry.deletes.file for entry in table.catalog.partitions if entry.deletes is not None}
    return of_files + len(texts) * sum(table.catalog.snapshot.files[path].size for path in files)


@pytest.mark.long
@pytest.mark.parametrize("scheme", SCHEMES)
def test_deleting_one_row_in_a_hundred_costs_little(
    spark: SparkSession, tmp_path: Path, scheme: str, capsys: pytest.CaptureFixture[str]
) -> None:
    living = begun(spark, tmp_path, scheme, 30, 1_000)
    texts = ["id", "id % 3 AS day", "pmod(hash(id), 5) AS kind", "rand(1) AS price", "sha(string(id)) AS text"]
    source = str(tmp_path / "source")
    spark.range(30_000).selectExpr(*texts).selectExpr(*_casts()).coalesce(1).write.parquet(source)
    plan = living.root / "plan.json"
    run_load(spark, LoadSettings(source=source, table_path=living.path, plan=plan, replace=True))
    queries = ["SELECT * FROM t", "SELECT * FROM t WHERE kind = 1", "SELECT id, price FROM t WHERE kind IN (1, 2)"]
    fresh = open_table(living.path)
    stored = sum(entry.bytes for entry in fresh.catalog.partitions)
    assert main(["delete", living.path, "--where", "pmod(xxhash64(id), 100) = 3"]) == DONE
    assert "of deletion vectors" in capsys.readouterr().out.replace("\n", " ")
    table = open_table(living.path)
    assert 0.005 < 1 - table.rows / fresh.rows < 0.015
    assert sum(file.size for file in table.catalog.files.walk("_layoutopt/deletes")) < 0.01 * stored
    assert bytes_read(table, queries) <= 1.05 * bytes_read(fresh, queries)
    assert verify(table).ok


def _casts() -> list[str]:
    return [f"cast({name} AS {type}) AS {name}" for name, type in typed(COLUMNS)]
