"""Loading end to end: what lies in the files, what is refused, and what is left behind."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.api.execution import use_session
from layoutopt.catalog.load_check import Content
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.catalog.vacuum import vacuum
from layoutopt.errors import (
    BoundError,
    CommitConflictError,
    ContentMismatchError,
    NotATableError,
    SchemaError,
    SettingError,
    SourceError,
    TableError,
)
from layoutopt.inspect.verify import verify
from layoutopt.model.feature import FeatureSet, SessionSettings
from layoutopt.model.layout import ByOrder, ByVectors, Layout, Scheme
from layoutopt.model.requests import AppendRequest
from layoutopt.model.vectors import pack
from layoutopt.scan.table import open_table
from layoutopt.spark.core.featurize import with_feature_words
from layoutopt.spark.core.source import content_of, schema_of
from layoutopt.spark.loading.load import load
from layoutopt.writer.task import WriteJob, gather_and_write
from layoutopt.writer.task_result import TaskResult
from tests.spark.tables import document, every_type, is_value, plan_of, simple_document, simple_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("compiled")]


def data_files(table: Path) -> set[str]:
    return {str(path.relative_to(table)) for path in (table / "data").rglob("*.parquet")} if table.exists() else set()


def read_back(spark: SparkSession, table: Path, columns: list[str]) -> DataFrame:
    return spark.read.parquet(*(str(table / file) for file in sorted(data_files(table)))).select(columns)


@pytest.fixture(scope="module")
def by_day(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of simple rows in four partitions; tests that change it take a copy."""
    table = tmp_path_factory.mktemp("days") / "t"
    source = simple_rows(spark)
    load(spark, source, table, plan_of(simple_document(source), partition_by="day"))
    return table


@pytest.fixture(scope="module")
def unpartitioned(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of simple rows that has no partitions; tests that change it take a copy."""
    table = tmp_path_factory.mktemp("rows") / "t"
    source = simple_rows(spark)
    load(spark, source, table, plan_of(simple_document(source)))
    return table


def test_every_type_arrives_whole(spark: SparkSession, tmp_path: Path) -> None:
    source = every_type(spark, 300)
    schema = schema_of(source)
    conditions = [
        is_value(schema, "flag", "=", True),
        is_value(schema, "text", "=", "a"),
        is_value(schema, "d", ">", 1),
    ]
    plan = plan_of(document(schema, conditions), partition_by="year")
    report = load(spark, source, tmp_path / "t", plan)
    assert (report.rows, report.segments, report.partitions) == (300, 3, ("1994", "1995", "__null__"))
    names = source.columns
    written = read_back(spark, tmp_path / "t", names)
    # As text, so that NaN equals NaN, -0.0 differs from 0.0 and maps compare.
    as_text = [f"to_json(struct({', '.join(names)}), map('ignoreNullFields', 'false')) AS j", "hex(bin) AS b"]
    assert sorted(written.selectExpr(*as_text).collect()) == sorted(source.selectExpr(*as_text).collect())
    assert written.schema.simpleString() == source.schema.simpleString()


def test_a_relative_path_is_of_this_process_wherever_java_began(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = simple_rows(spark)
    names = source.columns
    layouts = tuple(Layout(part, (), part, ByOrder("input")) for part in (tuple(names[:1]), tuple(names[1:])))
    monkeypatch.chdir(tmp_path)
    load(spark, source, "t", replace(plan_of(simple_document(source)), scheme=Scheme(layouts)))
    assert data_files(tmp_path / "t")
    assert sorted(open_table("t").scan(columns=names).to_spark(spark).collect()) == sorted(source.collect())


def test_blocks_are_row_groups_with_measured_unions_and_statistics(by_day: Path) -> None:
    catalog = Catalog.open(str(by_day))
    seen = 0
    for _, blocks in catalog.block_tables():
        for i in range(blocks.n):
            group = pq.ParquetFile(by_day / blocks.files[blocks.file[i]]).read_row_group(int(blocks.row_group[i]))
            kinds = group["kind"].to_numpy()
            assert set(group["_block"].to_pylist()) == {int(blocks.block_id[i])}
            assert group.num_rows == blocks.rows[i]
            union = np.array([[(kinds == kind).any() for kind in range(4)]])
            assert np.array_equal(pack(union)[0], blocks.words[i])
            bounds = blocks.block_statistics().bounds["id"]
            assert (bounds.low[i], bounds.high[i]) == (min(group["id"].to_pylist()), max(group["id"].to_pylist()))
            seen += group.num_rows
    assert seen == 400
    assert len(set(np.concatenate([blocks.block_id for _, blocks in catalog.block_tables()]).tolist())) == sum(
        blocks.n for _, blocks in catalog.block_tables()
    )


def test_blocking_by_vectors_separates_what_queries_ask_for(by_day: Path) -> None:
    bits = np.concatenate([blocks.words[:, 0] for _, blocks in Catalog.open(str(by_day)).block_tables()])
    for kind in range(4):
        assert (bits >> np.uint64(kind) & np.uint64(1)).mean() <= 0.25


def test_input_order_keeps_the_source_and_measures_unions_too(spark: SparkSession, tmp_path: Path) -> None:
    source = simple_rows(spark)
    doc = simple_document(source)
    scheme = Scheme((Layout(doc.schema.names, (), doc.schema.names, ByOrder("input")),))
    load(spark, source, tmp_path / "t", plan_of(doc, scheme=scheme, block_rows=50))
    (file,) = data_files(tmp_path / "t")
    table = pq.read_table(tmp_path / "t" / file)
    assert table["id"].to_pylist() == list(range(400))
    assert pq.ParquetFile(tmp_path / "t" / file).num_row_groups == 8
    ((_, blocks),) = Catalog.open(str(tmp_path / "t")).block_tables()
    assert blocks.words.tolist() == [[15]] * 8


@pytest.mark.long
def test_sort_order_puts_null_first(spark: SparkSession, tmp_path: Path) -> None:
    source = every_type(spark, 200)
    schema = schema_of(source)
    doc = document(schema, [is_value(schema, "flag", "=", True)])
    scheme = Scheme((Layout(schema.names, (), schema.names, ByOrder("sort", ("text", "wide"))),))
    load(spark, source, tmp_path / "t", plan_of(doc, scheme=scheme, block_rows=50))
    (file,) = data_files(tmp_path / "t")
    written = pq.read_table(tmp_path / "t" / file, columns=["text", "wide"]).to_pylist()
    expected = [row.asDict() for row in source.select("text", "wide").orderBy("text", "wide").collect()]
    assert written == expected


def test_disjoint_layouts_carry_tids_that_put_rows_together(spark: SparkSession, tmp_path: Path) -> None:
    source = simple_rows(spark)
    doc = simple_document(source)
    first, second = ("id", "kind"), ("day", "text")
    scheme = Scheme((Layout(first, (0, 1), first, ByVectors()), Layout(second, (2, 3), second, ByVectors())))
    report = load(spark, source, tmp_path / "t", plan_of(doc, partition_by="day", scheme=scheme))
    assert report.rows == 400
    for day in range(4):
        paths = {k: next((tmp_path / "t/data" / str(day)).glob(f"*/layout-{k}/*.parquet")) for k in (0, 1)}
        left, right = (pq.read_table(paths[k]).sort_by("_tid") for k in (0, 1))
        assert left["_tid"].to_pylist() == right["_tid"].to_pylist() == list(range(100))
        assert [f"row {i}" for i in left["id"].to_pylist()] == right["text"].to_pylist()
    for _, blocks in Catalog.open(str(tmp_path / "t")).block_tables():
        assert (blocks.tid_bytes > 0).all()
        # Every feature is measured in every layout, not only those that guided it.
        assert np.bitwise_or.reduce(blocks.words[blocks.layout == 0, 0]) == 15


def test_copies_hold_only_their_rows_and_masters_the_rest_apart(spark: SparkSession, tmp_path: Path) -> None:
    source = simple_rows(spark)
    doc = simple_document(source)
    copy = Layout(("id", "kind", "text"), (0,), ("kind",), ByVectors())
    rest = Layout(("id", "day", "text"), (1,), ("id", "day", "text"), ByVectors())
    plan = plan_of(doc, scheme=Scheme((copy, rest)))
    assert load(spark, source, tmp_path / "t", plan).rows == 400
    (whole,) = (path for path in (tmp_path / "t").rglob("layout-0/*.parquet") if "part1" not in path.name)
    (part,) = (tmp_path / "t").rglob("layout-0/*part1.parquet")
    assert set(pq.read_table(whole)["kind"].to_pylist()) == {0}
    assert set(pq.read_table(part)["kind"].to_pylist()) == {1, 2, 3, 4}
    assert set(pq.read_table(part).column_names) == {"kind", "_block", "_tid"}
    ((_, blocks),) = Catalog.open(str(tmp_path / "t")).block_tables()
    absent = blocks.block_statistics().bounds["text"]
    assert not absent.known[(blocks.layout == 0) & (blocks.part == 1)].any()


@pytest.mark.long
def test_files_are_closed_when_they_are_large_enough(spark: SparkSession, tmp_path: Path) -> None:
    """The blocks and their order are the same, whatever share a file."""
    source = simple_rows(spark)
    first, second = ("id", "kind"), ("day", "text")
    scheme = Scheme((Layout(first, (0, 1), first, ByVectors()), Layout(second, (2, 3), second, ByVectors())))
    plan = plan_of(simple_document(source), scheme=scheme, block_rows=20)
    loaded: dict[int | None, pa.Table] = {}
    files = {}
    for most in (None, 4_000, 1):
        path = tmp_path / str(most)
        load(spark, source, path, replace(plan, file_bytes=most))
        table = open_table(str(path))
        ((_, blocks),) = table.catalog.block_tables()
        columns = {"rows": blocks.rows, "layout": blocks.layout, "words": blocks.words[:, 0].view(np.int64)}
        loaded[most], files[most] = pa.table(columns), len(data_files(path))
        assert verify(table).ok
        found = table.sql("SELECT id, text FROM t WHERE kind = 1")["id"].to_pylist()
        assert sorted(found) == list(range(1, 400, 5))
        for file in data_files(path):
            groups = pq.read_metadata(path / file)
            last = groups.row_group(groups.num_row_groups - 1).column(0)
            start = last.dictionary_page_offset or last.data_page_offset  # what was written before the last block
            assert most is None or start <= max(most, 4)
    assert loaded[None].equals(loaded[4_000])
    assert loaded[None].equals(loaded[1])
    assert files[None] == 2 < files[4_000] < files[1] == loaded[1].num_rows


def test_partitions_above_segment_rows_are_cut(spark: SparkSession, tmp_path: Path) -> None:
    source = simple_rows(spark)
    report = load(spark, source, tmp_path / "t", plan_of(simple_document(source), segment_rows=150))
    assert (report.segments, report.rows) == (3, 400)
    sizes = [pq.read_metadata(tmp_path / "t" / file).num_rows for file in data_files(tmp_path / "t")]
    assert max(sizes) <= 150


def note_task(folder: Path, point: str) -> None:
    """Leave a file that names the task in which a segment was written."""
    from pyspark import TaskContext  # in the worker

    context = TaskContext.get()
    assert context is not None
    (folder / f"{context.partitionId()}-{os.urandom(4).hex()}").touch()


@pytest.mark.long
def test_a_partition_with_50_times_the_rows_is_many_tasks_like_any_other(spark: SparkSession, tmp_path: Path) -> None:
    """No task waits for all the rows of the large one, and none has more of them than a segment may."""
    source = spark.range(1020, numPartitions=4).selectExpr(
        "cast(id AS int) AS id", "cast(id % 5 AS int) AS kind", "if(id < 20, 'small', 'large') AS day"
    )
    (tmp_path / "tasks").mkdir()
    plan = plan_of(simple_document(source), partition_by="day", segment_rows=100)
    load(spark, source, tmp_path / "t", plan, in_task=partial(note_task, tmp_path / "tasks"))
    files: dict[str, list[int]] = {"small": [], "large": []}
    for file in data_files(tmp_path / "t"):
        files[file.split("/")[1]].append(pq.read_metadata(tmp_path / "t" / file).num_rows)
    assert len(files["small"]) == 1
    assert 10 <= len(files["large"]) <= 12  # cuts fall between chunks of rows
    assert max(files["large"]) <= 100
    tasks = [path.name.split("-")[0] for path in (tmp_path / "tasks").iterdir()]
    assert len(tasks) == len(set(tasks)) == 1 + len(files["large"])


@pytest.mark.long
def test_columns_may_have_the_names_that_a_load_might_want(spark: SparkSession, tmp_path: Path) -> None:
    names = ("_rows", "_value", "_low", "_metadata", "_key", "_count")
    source = simple_rows(spark).selectExpr("*", *(f"id AS {name}" for name in names))
    assert load(spark, source, tmp_path / "t", plan_of(simple_document(source), partition_by="day")).rows == 400
    found = read_back(spark, tmp_path / "t", list(names)).where("_rows = 7").collect()
    assert [tuple(row) for row in found] == [(7,) * len(names)]


def write_twice(
    kept: int, job: WriteJob, results_in: None, segment: int, batches: Iterable[pa.RecordBatch]
) -> TaskResult | None:
    """Two attempts of a task that both write and end well, as where Spark speculates; one's result is kept."""
    held = list(batches)
    results = [gather_and_write(job, held) for _ in range(2)]
    return [None if result is None else result.split() for result in results][kept]


@pytest.mark.parametrize("kept", [0, 1])
def test_of_two_attempts_that_both_write_only_one_is_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr("layoutopt.loading.write._write_rows", partial(write_twice, kept))
    monkeypatch.setattr("layoutopt.sources.source.reads_little_twice", lambda ranges, tasks: False)
    source = simple_rows(spark)
    assert load(spark, source, tmp_path / "t", plan_of(simple_document(source), partition_by="day")).rows == 400
    named = {file for _, blocks in Catalog.open(str(tmp_path / "t")).block_tables() for file in blocks.files}
    assert len(named) == 4
    assert named < data_files(tmp_path / "t")
    assert len(data_files(tmp_path / "t")) == 8
    ids = [i for file in named for i in pq.read_table(tmp_path / "t" / file)["id"].to_pylist()]
    assert sorted(ids) == list(range(400))
    vacuum(TableFiles(str(tmp_path / "t")), 1, timedelta(0))
    assert data_files(tmp_path / "t") == named


def test_loading_a_partition_again_replaces_it_alone(spark: SparkSession, by_day: Path, tmp_path: Path) -> None:
    source = simple_rows(spark)
    plan = plan_of(simple_document(source), partition_by="day")
    shutil.copytree(by_day, tmp_path / "t")
    changed = source.selectExpr("id + 1000 AS id", "day", "kind", "text")
    report = load(spark, changed, tmp_path / "t", plan, partitions=["day=2", "7"])
    assert (report.snapshot, report.partitions, report.rows) == (1, ("2", "7"), 100)
    catalog = Catalog.open(str(tmp_path / "t"))
    by_key = {entry.key: entry for entry in catalog.snapshot.partitions}
    assert {key: entry.rows for key, entry in by_key.items()} == {"0": 100, "1": 100, "2": 100, "3": 100, "7": 0}
    assert (by_key["2"].bounds["id"].low, by_key["1"].bounds["id"].low) == (1200, 100)


def test_an_empty_source_makes_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    source = simple_rows(spark)
    plan = plan_of(simple_document(source))
    report = load(spark, source.where("id < 0"), tmp_path / "t", plan)
    assert (report.rows, report.blocks) == (0, 0)
    table = open_table(str(tmp_path / "t"))
    assert (table.name, table.rows, table.settings) == (plan.table, 0, plan.settings)
    assert table.sql(f"SELECT count(*) AS n FROM {plan.table} WHERE id > 3").to_pylist() == [{"n": 0}]
    source.where("id < 10").coalesce(1).write.parquet(str(tmp_path / "late"))
    use_session(spark).append(AppendRequest(table_path=str(tmp_path / "t"), source=str(tmp_path / "late")))
    snapshot = Catalog.open(str(tmp_path / "t")).snapshot
    assert (snapshot.rows, snapshot.plans) == (10, ())
    assert verify(open_table(str(tmp_path / "t"))).ok


@pytest.mark.long
def test_rare_vectors_are_joined_and_the_report_says_so(spark: SparkSession, tmp_path: Path) -> None:
    source = simple_rows(spark)
    report = load(spark, source, tmp_path / "t", plan_of(simple_document(source), max_vectors=2))
    assert report.rows == 400
    assert "3 feature vectors beyond max_vectors=2" in report.notes[0]


def test_more_than_64_features(spark: SparkSession, tmp_path: Path) -> None:
    source = simple_rows(spark)
    schema = schema_of(source)
    doc = document(schema, [is_value(schema, "id", "<", i) for i in range(70)])
    load(spark, source, tmp_path / "t", plan_of(doc, block_rows=400))
    ((_, blocks),) = Catalog.open(str(tmp_path / "t")).block_tables()
    assert [int(word).bit_count() for word in np.bitwise_or.reduce(blocks.words, axis=0)] == [63, 6]


class TestRefused:
    """Each is one clear sentence, and the table as it was."""

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            ("id, day, kind", "lacks the column 'text'"),
            ("id, day, kind, text, 1 AS more", "column 'more' is not in the plan"),
            ("id, day, cast(kind AS bigint) AS kind, text", "'kind' is bigint in the source but int in the plan"),
            ("id, day, kind, text, 1 AS _tid", "'_tid' has a name that the table needs"),
            ("id, day, kind, text, 1 AS _w3", "'_w3' has a name that the table needs"),
        ],
    )
    def test_another_schema(self, spark: SparkSession, tmp_path: Path, change: str, sentence: str) -> None:
        source = simple_rows(spark)
        with pytest.raises(SchemaError, match=sentence):
            load(spark, source.selectExpr(*change.split(", ")), tmp_path / "t", plan_of(simple_document(source)))
        assert not (tmp_path / "t").exists()

    def test_types_that_cannot_be_stored(self, spark: SparkSession, tmp_path: Path) -> None:
        source = spark.sql("SELECT interval '1' day AS span")
        with pytest.raises(SchemaError, match="'span' is of type interval day"):
            load(spark, source, tmp_path / "t", plan_of(simple_document(simple_rows(spark))))

    def test_a_truncated_file_is_named(self, spark: SparkSession, tmp_path: Path) -> None:
        source = simple_rows(spark)
        source.write.parquet(str(tmp_path / "s"))
        victim = sorted((tmp_path / "s").glob("*.parquet"))[-1]
        data = victim.read_bytes()
        victim.write_bytes(data[: len(data) // 2])
        with pytest.raises(SourceError, match=rf"{victim.name}.* is truncated"):
            load(spark, str(tmp_path / "s"), tmp_path / "t", plan_of(simple_document(source)))
        assert not data_files(tmp_path / "t")

    def test_a_missing_source(self, spark: SparkSession, tmp_path: Path) -> None:
        with pytest.raises(SourceError, match="nowhere"):
            load(spark, str(tmp_path / "nowhere"), tmp_path / "t", plan_of(simple_document(simple_rows(spark))))

    def test_other_settings(self, spark: SparkSession, tmp_path: Path) -> None:
        doc = simple_document(simple_rows(spark))
        elsewhere = FeatureSet(doc.features.features, SessionSettings(time_zone="Europe/Berlin"))
        plan = plan_of(doc)
        changed = replace(plan, features=elsewhere, settings=elsewhere.settings)
        with pytest.raises(SettingError, match="timeZone=Europe/Berlin"):
            load(spark, simple_rows(spark), tmp_path / "t", changed)

    def test_a_path_that_holds_something_else(self, spark: SparkSession, tmp_path: Path) -> None:
        (tmp_path / "thesis.txt").write_text("mine")
        source = simple_rows(spark)
        with pytest.raises(NotATableError):
            load(spark, source, tmp_path, plan_of(simple_document(source)))
        assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]

    def test_a_value_that_is_none_of_the_column(self, spark: SparkSession, tmp_path: Path) -> None:
        source = simple_rows(spark)
        plan = plan_of(simple_document(source), partition_by="day")
        with pytest.raises(SettingError, match="'abc' is no int"):
            load(spark, source, tmp_path / "t", plan, partitions=["day=abc"])
        with pytest.raises(SettingError, match="partitioned by day, not 'kind'"):
            load(spark, source, tmp_path / "t", plan, partitions=["kind=1"])

    def test_a_segment_that_outgrows_its_bound(
        self, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cut = "layoutopt.sources.segments.cut_in_input_order"
        monkeypatch.setattr(cut, lambda rows, segment_rows: [0] * len(rows))
        source = simple_rows(spark)
        plan = plan_of(simple_document(source), segment_rows=150)
        with pytest.raises(BoundError, match="150 rows of segment_rows"):
            load(spark, source, tmp_path / "t", plan)
        assert not data_files(tmp_path / "t")


def copied(loaded: Path, table: Path) -> set[str]:
    """A copy of a table with one good load; its files."""
    shutil.copytree(loaded, table)
    return data_files(table)


def raise_disk_full(point: str) -> None:
    raise OSError(28, os.strerror(28))


def test_a_full_disk_is_one_sentence_and_leaves_the_table(
    spark: SparkSession, unpartitioned: Path, tmp_path: Path
) -> None:
    before = copied(unpartitioned, tmp_path / "t")
    source = simple_rows(spark)
    with pytest.raises(TableError, match="No space left on device"):
        load(spark, source, tmp_path / "t", plan_of(simple_document(source)), in_task=raise_disk_full)
    assert data_files(tmp_path / "t") == before
    assert Catalog.open(str(tmp_path / "t")).snapshot.number == 0


def test_rows_lost_on_the_way_are_noticed(
    spark: SparkSession, unpartitioned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = copied(unpartitioned, tmp_path / "t")
    source = simple_rows(spark)
    monkeypatch.setattr("layoutopt.spark.loading.spool.with_feature_words", losing(lambda df: df.where("id <> 7")))
    with pytest.raises(ContentMismatchError, match="400 rows in the source but 399"):
        load(spark, source, tmp_path / "t", plan_of(simple_document(source)))
    assert data_files(tmp_path / "t") == before


def test_a_changed_value_is_noticed_by_its_column(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = every_type(spark, 60)
    schema = schema_of(source)
    plan = plan_of(document(schema, [is_value(schema, "flag", "=", True)]))
    changed = "transform(list, x -> if(x = 17, 18, x))"
    monkeypatch.setattr(
        "layoutopt.spark.loading.spool.with_feature_words",
        losing(lambda df: df.selectExpr("* EXCEPT (list)", f"{changed} AS list")),
    )
    with pytest.raises(ContentMismatchError, match="differs from the source in list;"):
        load(spark, source, tmp_path / "t", plan)


def losing(change: Callable[[DataFrame], DataFrame]) -> Callable[..., DataFrame]:
    """A ``with_feature_words`` whose result is tampered with."""
    return lambda *arguments: change(with_feature_words(*arguments))


def test_observed_too_often_is_summed_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def doubled(values: Mapping[str, int], columns: Sequence[str]) -> Content:
        return content_of({name: 2 * n for name, n in values.items()}, columns)

    monkeypatch.setattr("layoutopt.spark.loading.spool.content_of", doubled)
    source = simple_rows(spark)
    assert load(spark, source, tmp_path / "t", plan_of(simple_document(source))).rows == 400


def test_of_two_loaders_of_one_partition_one_succeeds(spark: SparkSession, by_day: Path, tmp_path: Path) -> None:
    source = simple_rows(spark)
    plan = plan_of(simple_document(source), partition_by="day")
    shutil.copytree(by_day, tmp_path / "t")

    def somebody_else(point: str) -> None:
        if point == "blocks-written":
            load(spark, source, tmp_path / "t", plan, partitions=["1"])

    with pytest.raises(CommitConflictError):
        load(spark, source, tmp_path / "t", plan, partitions=["1"], at=somebody_else)
    assert Catalog.open(str(tmp_path / "t")).snapshot.number == 1


@pytest.mark.long
def test_hive_style_folders(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_to_dataset(simple_rows(spark).toArrow(), tmp_path / "s", partition_cols=["day"])
    found = spark.read.parquet(str(tmp_path / "s"))
    report = load(spark, str(tmp_path / "s"), tmp_path / "t", plan_of(simple_document(found), partition_by="day"))
    assert (report.partitions, report.rows) == (("0", "1", "2", "3"), 400)
