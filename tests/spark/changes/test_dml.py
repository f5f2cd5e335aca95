"""Deletes, updates and merges: what they refuse, what they write and prove, and who may meet."""

from __future__ import annotations

import datetime as dt
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from layoutopt.catalog import manifest_writing
from layoutopt.catalog.deletion_vectors import DELETE_POINTS, commit_deletes
from layoutopt.catalog.history import history
from layoutopt.catalog.manifest_writing import MOST_BOUNDS
from layoutopt.catalog.publications import Publication
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.catalog.vacuum import vacuum
from layoutopt.changes import commit
from layoutopt.cli.app import main
from layoutopt.cli.console import BAD_USAGE, DONE
from layoutopt.errors import (
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
from layoutopt.model.requests import LoadRequest
from layoutopt.publish.publishing import publish
from layoutopt.scan.table import Table, open_table
from layoutopt.serve.tables import ServedTable
from layoutopt.spark import disable, enable, read_table, register
from layoutopt.spark.changes import spark_change
from layoutopt.spark.loading.load import run_load
from tests.effort import long_too
from tests.spark.changes.living import COLUMNS, NAMES, SCHEMES, Begin, Living, before_next_call, comparable, made, typed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

DELETES = "_layoutopt/deletes"
SOME = "id BETWEEN 10 AND 30"


def files(living: Living) -> set[Path]:
    return set(Path(living.path).rglob("*.parquet"))


def files_with(living: Living, text: str) -> list[Path]:
    """The files of a table in which a text stands, Parquet's decoded."""

    def content(path: Path) -> str:
        return str(pq.read_table(path).to_pydict()) if path.suffix == ".parquet" else path.read_text()

    return [path for path in Path(living.path).rglob("*") if path.is_file() and text in content(path)]


def test_what_can_not_be_understood_is_said_in_a_sentence_and_changes_nothing(begin: Begin) -> None:
    living = begin("gsop-r")
    twice = living.source([*living.new_rows(1), *[(1, 1, None, None, None)] * 2])
    null, none = living.source([(None, 1, None, None, None)]), living.source([])
    refused: list[tuple[Any, type[LayoutoptError], str]] = [
        (lambda: living.deleted("id ="), SettingError, "--where 'id ='"),
        (lambda: living.deleted("nope = 1"), SettingError, "nope"),
        (lambda: living.deleted("id + 1"), SettingError, "--where"),
        (lambda: living.updated("id = 1", "day = 2"), SettingError, "the partition column"),
        (lambda: living.updated("id = 1", "kind"), SettingError, "is not an assignment"),
        (lambda: living.updated("id = 1", "kind = nope"), SettingError, "--set 'kind = nope' is invalid"),
        (lambda: living.updated("id = 1", "kind = cast('a' AS int)"), SettingError, "is invalid"),
        (lambda: living.updated("id = 1", "kind = 1", "KIND = 2"), SettingError, "twice"),
        (lambda: living.merged(twice), SourceError, "2 rows with id=1"),
        (lambda: living.merged(null), SourceError, "NULL in id"),
        (lambda: living.appended(none), MissingPartitionError, "no rows"),
        (lambda: living.optimized(partition=("3",)), SettingError, "no partition '3'"),
        (lambda: living.optimized(budget_bytes=1, budget_share=0.5), SettingError, "are both set"),
    ]
    for ask, kind, said in refused:
        with pytest.raises(kind, match=said):
            ask()
    assert Catalog.open(living.path).snapshot.number == 0
    assert main(["delete", f"{living.path}-2", "--where", "id = 1"]) == BAD_USAGE


@pytest.mark.long
def test_texts_that_mean_something_else_change_nothing(begin: Begin) -> None:
    living = begin("sop")
    bad = {
        ("id = 3", "text = 'Z', kind = 9"): "is invalid",
        ("id = 3", "text = struct(id, kind)"): "a value of type struct<",
        ("id = 3", "text = *"): "is invalid",
        ("id = 3", "text = stack(1, 'a', 'b')"): "is invalid",
        ("id = 3", "text = array('a')"): "cast it to",
        ("rand() < 0.5", "kind = 7"): "is not deterministic",
        ("input_file_name() = ''", "kind = 7"): "is not deterministic",
        ("id = 1 / (id - id)", "kind = 7"): "fails on a row",
        ("cast(concat(text, 'x') AS int) = 1", "kind = 7"): "fails on a row",
    }
    for share in (0.1, 0):
        for (where, text), why in bad.items():
            with pytest.raises(SettingError, match=why):
                living.updated(where, text, rewrite_share=share)
        for where in ("rand() < 0.5", "id = 1 / (id - id)"):
            with pytest.raises(SettingError, match="--where"):
                living.deleted(where, rewrite_share=share)
    living.check()
    assert len(history(TableFiles(living.path))) == 1


def test_few_rows_are_written_and_nothing_else(begin: Begin) -> None:
    living = begin("gsop-r")
    before = files(living)
    report = living.updated("id IN (3, 9)")
    assert report.load is not None
    assert report.marked is not None
    assert (report.updated, report.load.rows, len(report.marked.partitions)) == (2, 2, 1)
    living.model |= {key: (*living.model[key][:2], 7, *living.model[key][3:]) for key in (3, 9)}
    living.check()
    assert before <= files(living)

    # As many go as come, of which one is in another partition then; the rest of the feed is new, or gone already.
    feed = [made(4, generation=1), made(5, generation=1), *living.new_rows(2)]
    report = living.merged(living.source(feed), rewrite_share=1)
    assert (report.deleted, report.updated, report.inserted, report.load and report.load.rows) == (0, 2, 2, 4)
    living.model |= {row[0]: row for row in feed}
    living.check()
    assert [entry.operation for entry in history(TableFiles(living.path))] == ["load", "update", "merge"]
    assert verify(open_table(living.path)).ok


@pytest.mark.long
def test_what_is_rewritten_all_the_same(begin: Begin) -> None:
    living = begin("gsop-r")
    random = living.updated("id IN (3, 9)", "text = string(rand())", rewrite_share=1)
    assert random.updated == 2  # no partition could be proved so
    for where in ("kind = 99", "id = 6 AND false"):
        assert living.updated(where, rewrite_share=1).load is None
    many = living.updated(SOME)  # more than a tenth
    assert (many.updated, many.marked) == (21, None)
    living.optimized(deleted_share=0)
    publish(living.path, Publication("delta", str(living.root / "published")))
    assert living.updated("id = 3").marked is None  # others read it, who know no vectors
    assert living.merged(living.source([made(3)])).marked is None


@pytest.mark.parametrize("by_day", [*long_too(True), False])
def test_a_delete_of_nothing_writes_nothing(spark: SparkSession, tmp_path: Path, by_day: bool) -> None:
    living = Living(spark, tmp_path)
    living.begin_anew(None, partition_by="day" if by_day else None)
    for how in ({"rewrite_share": 0}, {"rewrite_share": 1}, {"hard": True}):
        report = living.deleted("kind = 99", **how)
        assert (report.deleted, report.load, report.marked) == (0, None, None)
    assert Catalog.open(living.path).snapshot.number == 0


@pytest.mark.long
def test_rows_that_do_not_add_up_are_not_committed(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    living = begin("gsop-r")
    honest, assign = spark_change.SparkChange.match, spark_change._assign

    def refused(match: str = "", share: float = 1) -> None:
        with pytest.raises(ContentMismatchError, match=match):
            living.updated(SOME, rewrite_share=share)

    with monkeypatch.context() as patch:  # a query that skipped a row too many would find too few rows
        patch.setattr(spark_change.SparkChange, "match", lambda *of: honest(*of).where("id > 12"))
        refused(share=0)
        with pytest.raises(ContentMismatchError):
            living.deleted(SOME, rewrite_share=0)
    monkeypatch.setattr(spark_change, "_assign", lambda *of: assign(*of).where("id > 12"))
    refused()
    changed = "id", "day", "kind", "id + 0.5D AS price", "text"
    monkeypatch.setattr(spark_change, "_assign", lambda *of: assign(*of).selectExpr(*changed))
    refused("differs from the source in price")
    living.check()
    assert TableFiles(living.path).list(DELETES) == ()


def test_rows_that_come_meanwhile_are_not_lost(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    living = begin("gsop-r")
    before_next_call(monkeypatch, commit, "load", lambda: living.append(9))
    with pytest.raises(CommitConflictError, match="by another commit"):
        living.deleted("kind = 2", rewrite_share=0)
    living.check()
    living.delete("kind = 2")
    living.check()


@pytest.mark.long
def test_a_delete_that_meets_others(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are appended meanwhile stay; of two deletes of one partition the later one tries again."""
    living = begin("sop", 30)
    meanwhile = partial(before_next_call, monkeypatch, commit, "commit_deletes")
    meanwhile(lambda: living.append(6))
    there = len(living.model)
    deleted = living.deleted("kind = 2", rewrite_share=1).deleted
    table = open_table(living.path)
    assert table.rows == there + 6 - deleted
    assert table.sql("SELECT count(*) AS n FROM t WHERE id >= 30").to_pylist() == [{"n": 6}]
    for where, share in (("id = 4", 1), ("id = 5", 0)):
        meanwhile(partial(living.deleted, where, rewrite_share=share))
        with pytest.raises(CommitConflictError, match="changed by another commit"):
            living.deleted("id IN (0, 1, 8)", rewrite_share=1)
    snapshots = [Catalog.open(living.path, n) for n in range(Catalog.open(living.path).snapshot.number + 1)]
    named = {entry.deletes.file for catalog in snapshots for entry in catalog.partitions if entry.deletes is not None}
    assert {f"{DELETES}/{name}" for name in TableFiles(living.path).list(DELETES)} == named


@pytest.mark.long
def test_updates_and_merges_that_meet_others(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update lets others append; a merge does not, since they may bring the keys that it found to be new."""
    living = begin("sop")
    meanwhile = partial(before_next_call, monkeypatch, commit, "load")
    meanwhile(lambda: living.append(6))
    assert living.updated("id IN (3, 9)", rewrite_share=1).updated == 2
    living.model |= {key: (*living.model[key][:2], 7, *living.model[key][3:]) for key in (3, 9)}
    living.check()
    new = made(living.next_id)
    source, other = living.source([new]), living.source([made(new[0] + 3)])
    meanwhile(lambda: living.merged(source))
    with pytest.raises(CommitConflictError, match="by another commit"):
        living.merged(source)
    assert living.merged(source).updated == 1
    meanwhile(lambda: living.appended(source))
    with pytest.raises(CommitConflictError, match="by another commit"):
        living.merged(other)
    meanwhile(lambda: living.updated("id = 9", rewrite_share=1))
    with pytest.raises(CommitConflictError, match="changed by another commit"):
        living.updated("id IN (3, 9)", rewrite_share=1)
    named = {entry.deletes.file for entry in Catalog.open(living.path).partitions if entry.deletes is not None}
    assert named <= {f"{DELETES}/{name}" for name in TableFiles(living.path).list(DELETES)}


class KilledError(BaseException):
    """Stands for kill -9."""


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["sop", "gsop"])
def test_a_delete_that_dies_is_made_or_not(begin: Begin, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    living = begin(scheme, 30)
    for number, point in enumerate(DELETE_POINTS):

        def die(reached: str, point: str = point) -> None:
            if reached == point:
                raise KilledError

        monkeypatch.setattr(commit, "commit_deletes", partial(commit_deletes, at=die))
        with pytest.raises(KilledError):
            living.deleted(f"id = {number}", rewrite_share=1)
        monkeypatch.undo()
        is_done = point == "snapshot-created"
        assert open_table(living.path).rows == 30 - number - is_done
        assert living.deleted(f"id = {number}", rewrite_share=1).deleted == 1 - is_done
        del living.model[number]
    living.check()


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["sop", "gsop-r"])
def test_every_reader_of_spark_leaves_deleted_rows_out(spark: SparkSession, begin: Begin, scheme: str) -> None:
    def rows_of(frame: DataFrame) -> list[tuple[object, ...]]:
        return comparable([tuple(row) for row in frame.select(*NAMES).collect()])

    living = begin(scheme)
    living.delete(SOME)
    session = spark.newSession()
    enable(session)
    register(session, "t", living.path)
    try:
        living.delete("kind = 2")  # whole blocks, beside those that have lost some rows
        left = list(living.model.values())
        few = comparable([row for row in left if row[2] == 1])
        everything = session.sql("SELECT * FROM t"), session.table("t"), read_table(session, living.path)
        assert [rows_of(frame) for frame in everything] == [comparable(left)] * 3
        assert rows_of(session.sql(f"SELECT * FROM layoutopt('{living.path}') WHERE kind = 1 AND id >= 0")) == few
        assert session.sql("SELECT count(*) FROM t").collect()[0][0] == len(left)
        assert rows_of(open_table(living.path).scan("SELECT * FROM t WHERE kind = 1").to_spark(session)) == few
    finally:
        disable(session)


def test_a_table_with_vectors_from_its_first_delete_to_its_last_file(begin: Begin) -> None:
    living = begin("sop")
    before, published = files(living), Publication("delta", str(living.root / "published"))
    report = living.deleted("id IN (3, 9, 15)", rewrite_share=0.15)
    living.model = {key: row for key, row in living.model.items() if key not in (3, 9, 15)}
    assert report.marked is not None
    assert (report.deleted, report.load, len(report.marked.partitions)) == (3, None, 1)
    assert [path.stat().st_size for path in files(living) - before] == [report.marked.bytes]
    living.check()
    told = status(Catalog.open(living.path))
    (of_first, *_) = told.partitions
    assert (of_first.rows, of_first.deleted) == (17, 3)
    assert "1 partitions have up to 15% deleted rows" in str(told.advice)
    for share in (lambda: publish(living.path, published), lambda: ServedTable(living.path).views()):
        with pytest.raises(PublicationError, match="optimize --deleted-share 0"):
            share()
    assert main(["files", living.path]) == BAD_USAGE

    assert living.deleted("id IN (3, 9, 15)").deleted == 0  # nothing is found twice
    assert living.optimized(deleted_share=0.2).chosen == ()
    done = living.optimized(deleted_share=0.1)
    assert done.chosen == (of_first.key,)
    assert done.candidates[0].deleted == pytest.approx(0.15)
    assert [entry.deletes for entry in Catalog.open(living.path).partitions] == [None] * 3
    living.check()
    vacuum(TableFiles(living.path), 1, dt.timedelta(0))
    assert TableFiles(living.path).list(DELETES) == ()
    publish(living.path, published)
    again = living.deleted("id = 21")  # now that others read it, nothing is only marked
    assert again.marked is None
    assert again.load is not None


@pytest.mark.long
def test_snapshots_with_and_without_vectors_are_all_kept_and_restored(begin: Begin) -> None:
    living = begin("gsop-r")
    living.check()
    living.delete(SOME)
    living.check()
    vacuum(TableFiles(living.path), 9, dt.timedelta(0))  # no file that a kept snapshot needs
    for number in (0, 1):
        living.restore(number)
        living.check()
    vacuum(TableFiles(living.path), 1, dt.timedelta(0))
    assert len(TableFiles(living.path).list(DELETES)) == 1
    assert living.answer(Catalog.open(living.path).snapshot.number, None) == comparable(list(living.model.values()))
    # Of a partition without a row that lives nothing tells the value but what is deleted.
    living.delete("text IS NULL OR day = 1")
    assert living.optimize() == 3
    living.check()
    assert verify(open_table(living.path)).ok


@pytest.mark.parametrize("most", [MOST_BOUNDS, *long_too(-1)], ids=["one-file", "manifests"])
def test_a_deleted_row_is_gone_from_every_file_once_vacuumed_or_deleted_hard(
    begin: Begin, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_writing, "MOST_BOUNDS", most)
    living = begin("gsop-r")
    living.appended(living.source([(4710, 1, 0, 0.5, "thimble")]), batch_id="one row")
    living.deleted("id = 4710", rewrite_share=0)
    assert files_with(living, "thimble")
    vacuum(TableFiles(living.path), 1, dt.timedelta(0))
    assert {path.parent.name for path in files_with(living, "thimble")} == ({"manifests"} if most < 0 else set())
    rows = [(4711, 1, 0, 0.5, "needle"), (4712, 2, 0, 0.5, "nail")]
    living.appended(living.source(rows), batch_id="two rows")
    assert living.deleted("id = 4711", rewrite_share=1).marked is not None
    assert files_with(living, "needle")
    for number in (4711, 4712):  # the first is only marked, in the newest snapshot's files
        report = living.deleted(f"id = {number}", hard=True)
        assert report.vacuum is not None
        assert report.vacuum.files
    assert not [path for text in ("thimble", "needle", "nail") for path in files_with(living, text)]
    assert not TableFiles(living.path).exists("_layoutopt/snapshots/0.json")
    assert verify(open_table(living.path)).ok
    living.check()


@pytest.mark.long
def test_a_hard_delete_leaves_no_copy_in_what_is_published(begin: Begin) -> None:
    living = begin("gsop-r")
    living.appended(living.source([(4711, 1, 0, 0.5, "needle")]), batch_id="one row")
    place = str(living.root / "published")
    publish(living.path, Publication("delta", place))
    with pytest.raises(PublicationError, match="copies are left: snapshots 1 are published"):
        living.deleted("id = 4711", hard=True)
    assert files_with(living, "needle")
    living.deleted("id = 4711", hard=True, publish=(f"delta={place}",))
    assert files_with(living, "needle") == []
    living.check()


def bytes_read(table: Table, texts: list[str]) -> int:
    """What queries read of data files, and the vectors, which each reads whole."""
    scans = [read for text in texts for read in table.scan(text).reads]
    of_files = sum(int(plan.bytes[plan.read].sum()) for read in scans for plan in read.pruned)
    deletes = {entry.deletes.file for entry in table.catalog.partitions if entry.deletes is not None}
    return of_files + len(texts) * sum(table.catalog.snapshot.files[path].size for path in deletes)


@pytest.mark.long
@pytest.mark.parametrize("scheme", SCHEMES)
def test_deleting_one_row_in_a_hundred_costs_little(
    spark: SparkSession, begin: Begin, scheme: str, capsys: pytest.CaptureFixture[str]
) -> None:
    living = begin(scheme, 30, 1_000)
    texts = ["id", "id % 3 AS day", "pmod(hash(id), 5) AS kind", "rand(1) AS price", "sha(string(id)) AS text"]
    casts = [f"cast({name} AS {type}) AS {name}" for name, type in typed(COLUMNS)]
    source = str(living.root / "source")
    spark.range(30_000).selectExpr(*texts).selectExpr(*casts).coalesce(1).write.parquet(source)
    plan = living.root / "plan.json"
    run_load(spark, LoadRequest(source=source, table_path=living.path, plan=plan, replace=True))
    queries = ["SELECT * FROM t", "SELECT * FROM t WHERE kind = 1", "SELECT id, price FROM t WHERE kind IN (1, 2)"]
    fresh = open_table(living.path)
    stored = sum(entry.bytes for entry in fresh.catalog.partitions)
    assert main(["delete", living.path, "--where", "pmod(xxhash64(id), 100) = 3"]) == DONE
    assert "of deletion vectors" in capsys.readouterr().out.replace("\n", " ")
    table = open_table(living.path)
    assert 0.005 < 1 - table.rows / fresh.rows < 0.015
    assert sum(file.size for file in table.catalog.files.walk(DELETES)) < 0.01 * stored
    assert bytes_read(table, queries) <= 1.05 * bytes_read(fresh, queries)
    assert verify(table).ok


def test_a_merge_reads_only_where_its_keys_may_be(spark: SparkSession) -> None:
    def among(rows: DataFrame, *keys: str) -> str:
        return str(spark_change.key_condition(rows, keys))

    feed, none = (spark.createDataFrame(rows, COLUMNS) for rows in ([made(4, generation=1)], []))
    assert among(feed, "id") == among(feed, "id", "price") == "Column<'and(true, in(id, 4))'>"
    assert among(none, "id") == "Column<'and(true, false)'>"
    texts = spark.createDataFrame([(1, 1, 1, 0.5, "it's"), (2, 1, 1, 0.5, "a\\b")], COLUMNS)
    assert texts.where(spark_change.key_condition(texts, ["text"])).count() == 2
    assert among(spark.range(5, 3000), "id") == "Column<'and(true, and(>=(id, 5), <=(id, 2999)))'>"


@pytest.mark.long
def test_the_command_line_says_what_was_done(begin: Begin, capsys: pytest.CaptureFixture[str]) -> None:
    living = begin("gsop-r")
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
