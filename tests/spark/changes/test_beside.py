"""Updates and merges of few rows: the old ones marked, the new ones beside, in one commit; and who may meet."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from layoutopt.catalog.publications import Publication
from layoutopt.catalog.snapshot import history
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.config.settings import AppendSettings, DeleteSettings, MergeSettings, OptimizeSettings, UpdateSettings
from layoutopt.errors import CommitConflictError, ContentMismatchError, SettingError, TableError
from layoutopt.inspect.verify import verify
from layoutopt.publish.publishing import publish
from layoutopt.report.inspections import print_append
from layoutopt.scan.table import open_table
from layoutopt.spark.changes import dml, pipeline
from layoutopt.spark.changes.append import append_rows
from layoutopt.spark.changes.dml import delete_rows, merge_rows, update_rows
from layoutopt.spark.changes.optimize import optimize_table
from layoutopt.spark.changes.pipeline import ChangeReport
from tests.spark.changes.living import COLUMNS, Living, Row, before_next_call, begun, made

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def updated(living: Living, where: str, share: float = 0.1, *texts: str) -> ChangeReport:
    settings = UpdateSettings(
        table_path=living.path, assignments=texts or ("kind = 7",), where=where, rewrite_share=share
    )
    return update_rows(living.spark, settings)


def merged(living: Living, feed: list[Row], **given: Any) -> ChangeReport:
    source = living.source(feed)
    return merge_rows(living.spark, MergeSettings(table_path=living.path, source=source, on=("id",), **given))


def test_few_rows_are_written_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    living = begun(spark, tmp_path, "gsop-r")
    before = {str(path) for path in Path(living.path).rglob("*.parquet")}
    report = updated(living, "id IN (3, 9)")
    assert (report.updated, report.load and report.load.rows, report.marked and len(report.marked.partitions)) == (
        2,
        2,
        1,
    )
    living.model |= {key: (*living.model[key][:2], 7, *living.model[key][3:]) for key in (3, 9)}
    living.check()
    assert before <= {str(path) for path in Path(living.path).rglob("*.parquet")}

    # As many go as come, of which one is in another partition then; the rest of the feed is new, or gone already.
    feed = [made(4, generation=1), made(5, generation=1), *living.new_rows(2)]
    report = merged(living, feed, rewrite_share=1)
    assert (report.deleted, report.updated, report.inserted, report.load and report.load.rows) == (0, 2, 2, 4)
    living.model |= {row[0]: row for row in feed}
    living.check()
    assert [entry.operation for entry in history(TableFiles(living.path))] == ["load", "update", "merge"]
    assert verify(open_table(living.path)).ok


@pytest.mark.long
@pytest.mark.parametrize("share", [0.1, 0])
def test_texts_that_mean_something_else_change_nothing(spark: SparkSession, tmp_path: Path, share: float) -> None:
    living = begun(spark, tmp_path, "sop")
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
    for (where, text), why in bad.items():
        with pytest.raises(SettingError, match=why):
            updated(living, where, share, text)
    for where in ("rand() < 0.5", "id = 1 / (id - id)"):
        with pytest.raises(SettingError, match="--where"):
            delete_rows(spark, DeleteSettings(table_path=living.path, where=where, rewrite_share=share))
    living.check()
    assert len(history(TableFiles(living.path))) == 1


@pytest.mark.long
def test_what_is_written_anew_all_the_same(spark: SparkSession, tmp_path: Path) -> None:
    living = begun(spark, tmp_path, "gsop-r")
    assert updated(living, "id IN (3, 9)", 1, "text = string(rand())").updated == 2  # no partition could be proved so
    assert updated(living, "kind = 99").load is None
    assert updated(living, "id = 6 AND false").load is None
    many = updated(living, "id BETWEEN 10 AND 30")  # more than a tenth
    assert (many.updated, many.marked) == (21, None)
    publish_to = Publication("delta", str(tmp_path / "published"))
    optimize_table(spark, OptimizeSettings(table_path=living.path, deleted_share=0))
    publish(living.path, publish_to)
    assert updated(living, "id = 3").marked is None  # others read it, who know no vectors
    assert merged(living, [made(3)]).marked is None


@pytest.mark.long
def test_rows_that_the_second_reading_loses_are_no_commit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = begun(spark, tmp_path, "sop")
    honest = dml._assign

    def losing(*arguments: Any) -> DataFrame:
        return honest(*arguments).where("id > 12")

    monkeypatch.setattr(dml, "_assign", losing)
    with pytest.raises(ContentMismatchError):
        updated(living, "id BETWEEN 10 AND 30", 1)

    def swapping(*arguments: Any) -> DataFrame:
        return honest(*arguments).selectExpr("id", "day", "kind", "id + 0.5D AS price", "text")

    monkeypatch.setattr(dml, "_assign", swapping)
    with pytest.raises(ContentMismatchError, match="differs from the source in price"):
        updated(living, "id BETWEEN 10 AND 30", 1)
    living.check()
    assert TableFiles(living.path).list("_layoutopt/deletes") == ()


@pytest.mark.long
def test_what_appends_left_is_joined(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    living = begun(spark, tmp_path, "gsop-r")
    monkeypatch.setattr("layoutopt.spark.loading.load.count_chunks", None)  # nobody counts rows that are known

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

    before_next_call(monkeypatch, pipeline, "load", late)
    report = append_rows(spark, AppendSettings(table_path=living.path, source=living.source(rows)))
    assert report.joined is None  # somebody deleted rows of what was to be joined
    assert entries() == [3, 3, 3]
    living.check()
    rows = living.new_rows(6)
    apart = AppendSettings(table_path=living.path, source=living.source(rows), keep_apart=True)
    assert append_rows(spark, apart).joined is None
    living.model |= {row[0]: row for row in rows}
    assert entries() == [4, 4, 4]

    def full() -> None:
        raise TableError("no room is left")

    rows = living.new_rows(6)
    before_next_call(monkeypatch, pipeline, "load", full)
    report = append_rows(spark, AppendSettings(table_path=living.path, source=living.source(rows)))
    living.model |= {row[0]: row for row in rows}
    assert report.load is not None
    assert report.not_joined == "no room is left"
    told_of = Console(record=True, file=io.StringIO())
    print_append(told_of, report)
    assert "The batch is in the table" in told_of.export_text()
    living.check()
    assert verify(open_table(living.path)).ok


@pytest.mark.long
def test_changes_that_meet(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update lets others append; a merge does not, since they may bring the keys that it found to be new."""
    living = begun(spark, tmp_path, "sop")
    meanwhile = partial(before_next_call, monkeypatch, pipeline, "load")
    meanwhile(lambda: living.append(6))
    assert updated(living, "id IN (3, 9)", 1).updated == 2
    living.model |= {key: (*living.model[key][:2], 7, *living.model[key][3:]) for key in (3, 9)}
    living.check()
    new = made(living.next_id)
    source = living.source([new])
    meanwhile(lambda: merged(living, [new]))
    with pytest.raises(CommitConflictError, match="by another commit"):
        merged(living, [new])
    assert merged(living, [new]).updated == 1
    meanwhile(lambda: append_rows(spark, AppendSettings(table_path=living.path, source=source)))
    with pytest.raises(CommitConflictError, match="by another commit"):
        merged(living, [made(new[0] + 3)])
    meanwhile(lambda: updated(living, "id = 9", 1))
    with pytest.raises(CommitConflictError, match="changed by another commit"):
        updated(living, "id IN (3, 9)", 1)
    named = {entry.deletes.file for entry in Catalog.open(living.path).partitions if entry.deletes is not None}
    assert named <= {f"_layoutopt/deletes/{name}" for name in TableFiles(living.path).list("_layoutopt/deletes")}


def test_a_merge_reads_only_where_its_keys_may_be(spark: SparkSession) -> None:
    def frame(rows: list[Row]) -> DataFrame:
        return spark.createDataFrame(rows, COLUMNS)

    feed = [made(4, generation=1)]
    from layoutopt.spark.changes.dml import _key_condition

    def among(rows: DataFrame, keys: list[str]) -> str:
        return str(_key_condition(rows, keys))

    assert among(frame(feed), ["id"]) == among(frame(feed), ["id", "price"]) == "Column<'and(true, in(id, 4))'>"
    assert among(frame([]), ["id"]) == "Column<'and(true, false)'>"
    texts = frame([(1, 1, 1, 0.5, "it's"), (2, 1, 1, 0.5, "a\\b")])
    assert texts.where(_key_condition(texts, ["text"])).count() == 2
    assert among(spark.range(5, 3000), ["id"]) == "Column<'and(true, and(>=(id, 5), <=(id, 2999)))'>"
