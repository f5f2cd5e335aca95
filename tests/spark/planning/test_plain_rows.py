"""Planning from files that tasks read by Arrow: what Spark says of the same rows, and Spark where that is not sure."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.errors import NeedsSparkError, SettingError
from layoutopt.events import Progress
from layoutopt.external.snapshot import SnapshotFile
from layoutopt.methods.interface import PlanRequest
from layoutopt.model.feature import FeatureSet, SessionSettings
from layoutopt.model.layout import Layout, Plan, Scheme
from layoutopt.model.predicates import And
from layoutopt.model.schema import Schema
from layoutopt.planning import automatic, plain_rows, sample_evaluation
from layoutopt.planning import plan as planning
from layoutopt.planning.plain_rows import PlainRows
from layoutopt.planning.rows import SourceRows
from layoutopt.planning.sample_evaluation import SampleRequest, draw_sample, evaluate_on_sample, unit_in_bytes
from layoutopt.planning.segment_evaluation import ChosenSegments, Trial, try_on_segments
from layoutopt.planning.source_profile import CountRequest, count_histograms, sample_histograms
from layoutopt.scan.segments import FileRead
from layoutopt.sources import source as sources
from layoutopt.sources.executor import Item, Processes, Value
from layoutopt.sources.segments import cut_segments
from layoutopt.sources.shuffle import CutJob, group_splits, read_split
from layoutopt.sources.split import FileSplit, Split
from layoutopt.spark.core.segments import count_chunks, with_positions
from layoutopt.spark.core.source import open_source, schema_of
from layoutopt.spark.planning.frame_rows import FrameRows
from layoutopt.spark.planning.source_rows import open_source_rows
from tests.effort import long_too
from tests.scan.builder import feature_of
from tests.spark.plans import make_plan, plan_best
from tests.spark.settings import counting_jobs
from tests.spark.tables import document, every_type, is_value, kinds_and_shops, plan_of, simple_document, source_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

NESTED = ("list", "inner", "tags", "deep")
CONDITIONS = (
    "tiny < 0", "f > 0", "d <= 1", "text IN ('a', '')", "day >= date'1994-01-10'", "price > 0 AND flag",
    "at < timestamp'1994-01-08 00:00:00Z'", "wide > 0", "substring(text, 1, 2) = 'va'", "text LIKE 'x%' OR n IS NULL",
    "hour(at) BETWEEN 3 AND 19", "length(text) > 1",
)  # fmt: skip


SourceOf = Callable[[int, int], str]
BY_DAY = PlanRequest(partition_by="day", block_rows=20)


def never(sentence: str) -> None:
    """Fail where Spark reads rows that Arrow was to read."""
    assert not sentence.startswith("reading by Spark"), sentence


def written(rows: DataFrame, path: Path, *by: str) -> str:
    """The rows as files of Parquet with several row groups."""
    kept = rows.repartitionByRange(3, rows.columns[-1] if by else rows.columns[0])
    kept.write.partitionBy(*by).option("parquet.block.size", "4096").parquet(str(path))
    return str(path)


@pytest.fixture(scope="module")
def source_of(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SourceOf:
    """Files of so many rows of so many days, written when a test first asks for them; none changes them."""
    return cache(
        lambda rows, days: written(kinds_and_shops(spark, rows, days), tmp_path_factory.mktemp("source") / "rows")
    )


@pytest.fixture(scope="module")
def plan_of_600(spark: SparkSession, source_of: SourceOf) -> Callable[[], Plan]:
    """The plan of 600 rows of 3 days, made by Arrow in the first test that asks for it."""
    of = simple_document(kinds_and_shops(spark, 600, 3))
    return cache(lambda: make_plan(lambda: spark, source_of(600, 3), of, BY_DAY, never))


def both(
    spark: SparkSession, source: str, partition_by: str | None, conditions: Sequence[str] = ()
) -> tuple[SourceRows, SourceRows]:
    """The rows as tasks read them by Arrow, and as Spark has them."""
    frame = open_source(spark, source)
    rows = asked(frame, source, partition_by, conditions)
    assert isinstance(rows.source, PlainRows)
    return rows, source_rows(frame, partition_by)


def plain_of(rows: SourceRows) -> PlainRows:
    assert isinstance(rows.source, PlainRows)
    return rows.source


def frame_of(rows: SourceRows) -> DataFrame:
    assert isinstance(rows.source, FrameRows)
    return rows.source.frame


def asked(
    frame: DataFrame, source: str, partition_by: str | None, conditions: Sequence[str] = (), say: Progress = never
) -> SourceRows:
    """The rows as planning takes them that asks of some features."""
    schema = schema_of(frame)
    of = replace(document(schema, []), features=features_of(conditions, schema))
    request = PlanRequest(partition_by=partition_by)
    return open_source_rows(lambda: frame.sparkSession, source, of, request, say)


def make_sparks_own(path: Path) -> None:
    """Write a file anew with the same rows, in a form that only Spark reads rightly."""
    said = {**(pq.read_schema(path).metadata or {}), b"org.apache.spark.legacyDateTime": b""}
    pq.write_table(pq.read_table(path).replace_schema_metadata(said), path)
    path.with_name(f".{path.name}.crc").unlink()


def features_of(conditions: Sequence[str], schema: Schema) -> FeatureSet:
    return FeatureSet(tuple(feature_of(condition, schema) for condition in conditions))


@pytest.mark.long
@pytest.mark.parametrize(
    ("partition_by", "folders"), [("day", ("day",)), *long_too((None, ()), ("year", ()), ("year", ("year",)))]
)
def test_what_is_counted_is_what_spark_counts(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    partition_by: str | None,
    folders: tuple[str, ...],
) -> None:
    monkeypatch.setattr(plain_rows, "COUNTED_PARTITIONS", 400)
    rows = every_type(spark, 400).drop(*NESTED)
    plain, frame = both(spark, written(rows, tmp_path / "source", *folders), partition_by, CONDITIONS)
    schema = plain_of(plain).source.schema
    features = features_of(CONDITIONS, schema)
    conditions = [is_value(schema, "n", "<", 0), is_value(schema, "d", ">", 3.0), is_value(schema, "text", "=", "a")]
    queries = document(schema, conditions).queries
    assert dict(plain.source.partition_rows) == frame.source.partition_rows
    assert list(plain.source.partition_rows) == list(frame.source.partition_rows)
    of = [CountRequest(each, queries, schema, 10_000, print) for each in (plain, frame)]
    (some, by_arrow), (same, by_spark) = (count_histograms(one, features) for one in of)
    assert some == same == features
    for one, other in zip(by_arrow, by_spark, strict=True):
        assert (one.value, one.rows) == (other.value, other.rows)
        assert one.vectors.words.tolist() == other.vectors.words.tolist()
        assert one.vectors.counts.tolist() == other.vectors.counts.tolist()
        assert one.query_weights.tolist() == other.query_weights.tolist()
    assert any(0.0 in one.query_weights.tolist() for one in by_spark) or partition_by != "day"


def test_drawn_partitions_are_counted_and_bounded(spark: SparkSession, tmp_path: Path) -> None:
    rows = every_type(spark, 400).drop(*NESTED)
    plain, frame = both(spark, written(rows, tmp_path / "source"), "year")
    features = features_of(CONDITIONS, plain_of(plain).source.schema)
    queries = document(plain_of(plain).source.schema, [is_value(plain_of(plain).source.schema, "n", "<", 0)]).queries
    of = [CountRequest(each, queries, plain_of(plain).source.schema, 100, print) for each in (plain, frame)]
    (by_arrow, by_spark) = (sample_histograms(one, features) for one in of)
    for one, other in zip(by_arrow, by_spark, strict=True):  # there are fewer rows than are wanted, so all are drawn
        assert (one.value, one.rows, one.vectors.counts.tolist()) == (
            other.value,
            other.rows,
            other.vectors.counts.tolist(),
        )
        assert one.vectors.words.tolist() == other.vectors.words.tolist()
        assert one.query_weights.tolist() == other.query_weights.tolist()


@pytest.mark.long
@pytest.mark.parametrize(
    ("partition_by", "folders", "segment_rows"),
    [("day", ("day",), 60), *long_too((None, (), 90), ("day", ("day",), 1000), ("day", (), 1000), ("day", (), 40))],
)
def test_what_is_rehearsed_is_what_spark_rehearses(
    spark: SparkSession, tmp_path: Path, partition_by: str | None, folders: tuple[str, ...], segment_rows: int
) -> None:
    rows = kinds_and_shops(spark, 400, 4)
    plain, frame = both(spark, written(rows, tmp_path / "source", *folders), partition_by)
    of = document(
        plain_of(plain).source.schema, [is_value(plain_of(plain).source.schema, "kind", "=", kind) for kind in range(4)]
    )
    plan = plan_of(of, partition_by=partition_by, segment_rows=segment_rows)
    trials = [Trial(plan, search=True), Trial(replace(plan, block_rows=35), search=False)]
    assert try_on_segments(plain, trials, of.queries) == try_on_segments(
        source_rows(in_order(spark, frame_of(frame)), partition_by), trials, of.queries
    )


def in_order(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """The rows of plain files in the order of the files' names, which is not Spark's own."""
    root = os.path.commonpath(frame.inputFiles())
    one_by_one = [spark.read.option("basePath", root).parquet(uri) for uri in sorted(frame.inputFiles())]
    return reduce(type(frame).unionAll, one_by_one)


@pytest.mark.parametrize("method", ["gsop", *long_too("sop")])
def test_plans_are_the_same_where_all_rows_are_looked_at(
    spark: SparkSession, source_of: SourceOf, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    rows = kinds_and_shops(spark, 600, 3)
    source = source_of(600, 3)
    of, request = simple_document(rows), PlanRequest(method=method, partition_by="day", block_rows=20)
    by_arrow = make_plan(lambda: spark, source, of, request, never)
    assert by_arrow == make_plan(spark, open_source(spark, source), of, request)


@pytest.mark.parametrize("method", ["gsop", "sop", *long_too("auto", "zorder")])
def test_tasks_of_spark_make_the_plan_of_processes(
    spark: SparkSession, source_of: SourceOf, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr("layoutopt.features.cross_validation.FOLDS", 2)
    monkeypatch.setattr(automatic, "CANDIDATES", ("range", "sop", "gsop"))
    rows, source = kinds_and_shops(spark, 600, 3), source_of(600, 3)
    of, request = simple_document(rows), PlanRequest(method=method, partition_by="day", block_rows=20, segment_rows=90)
    assert plain_of(open_source_rows(spark, source, of, request, never)).tasks.shuffles_openly is False
    expected = plan_best(lambda: spark, source, of, request, never)
    with counting_jobs(spark) as jobs:
        assert plan_best(spark, source, of, request, never).dumps() == expected.dumps()
    # Tasks count the files' rows, draw samples, and try segments; what else runs in them is no pass over rows.
    assert len(jobs) >= 3


@pytest.mark.long
@pytest.mark.parametrize(
    "candidates", [("range", "predicate-sort", "sop", "cuts", "gsop"), *long_too((automatic.CANDIDATES,))]
)
def test_auto_tries_methods_on_plain_files(
    spark: SparkSession, source_of: SourceOf, monkeypatch: pytest.MonkeyPatch, candidates: tuple[str, ...]
) -> None:
    monkeypatch.setattr(automatic, "CANDIDATES", candidates)
    monkeypatch.setattr("layoutopt.features.cross_validation.FOLDS", 2)  # each needs plans of its own
    rows, source = kinds_and_shops(spark, 600, 3), source_of(600, 3)
    of = document(schema_of(rows), [is_value(schema_of(rows), "shop", "=", shop) for shop in range(10)])
    plan = plan_best(lambda: spark, source, of, PlanRequest(partition_by="day", block_rows=20), never)
    assert plan.predicted["bytes_fraction"] < 1


def test_a_file_that_only_spark_reads_rightly_leaves_the_rest_to_spark(
    spark: SparkSession, source_of: SourceOf, plan_of_600: Callable[[], Plan], tmp_path: Path
) -> None:
    source = tmp_path / "source"
    shutil.copytree(source_of(600, 3), source)
    of, expected = simple_document(kinds_and_shops(spark, 600, 3)), plan_of_600()
    smallest = min(source.glob("*.parquet"), key=lambda path: path.stat().st_size)
    make_sparks_own(smallest)
    frame = open_source(spark, str(source))
    told: list[str] = []
    assert not isinstance(asked(frame, str(source), "day", say=told.append).source, PlainRows)
    assert [smallest.name in sentence for sentence in told if "rules of its own" in sentence] == [True]
    told.clear()
    assert make_plan(spark, str(source), of, BY_DAY, told.append) == expected
    assert [smallest.name in sentence for sentence in told if sentence.startswith("reading by Spark")] == [True]


@pytest.mark.long
def test_a_file_that_another_takes_the_place_of_leaves_the_rest_to_spark(
    spark: SparkSession, source_of: SourceOf, plan_of_600: Callable[[], Plan], tmp_path: Path
) -> None:
    source = shutil.copytree(source_of(600, 3), str(tmp_path / "source"))
    of, expected = simple_document(kinds_and_shops(spark, 600, 3)), plan_of_600()
    told: list[str] = []
    rows = asked(open_source(spark, source), source, "day", say=told.append)
    plain = plain_of(rows)
    for path in (tmp_path / "source").glob("*.parquet"):
        make_sparks_own(path)
    with pytest.raises(NeedsSparkError, match="rules of its own"):
        plain.count(of.features, (), lambda bounds, columns: columns)
    open_rows = partial(open_source_rows, spark, source)
    assert planning.make_plan(open_rows, of, BY_DAY, told.append, rows=rows) == expected
    assert ["rules of its own" in sentence for sentence in told if sentence.startswith("reading by Spark")] == [True]


def test_nothing_to_count_and_to_bound_is_no_error(spark: SparkSession, source_of: SourceOf) -> None:
    plain, frame = both(spark, source_of(100, 2), "day")
    for rows in (plain, frame):
        none = CountRequest(rows, (), plain_of(plain).source.schema, 100, print)
        _, found = count_histograms(none, FeatureSet(()))
        assert [(one.value, one.rows, len(one.vectors)) for one in found] == [(0, 50, 1), (1, 50, 1)]


def test_samples_of_many_rows_are_blocked_side_by_side(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = kinds_and_shops(spark, 900, 9)
    plain, _ = both(spark, written(rows, tmp_path / "source"), "day")
    of = simple_document(rows)
    trial = Trial(plan_of(of, partition_by="day"), search=False)
    alone = try_on_segments(plain, [trial], of.queries)
    asked_for: list[int] = []

    class Counted(Processes):
        def map(self, items: Sequence[Item], function: Callable[[Item], Value]) -> list[Value]:
            asked_for.append(len(items))
            return super().map(items, function)

    monkeypatch.setattr(sample_evaluation, "_MANY_ROWS", 1)
    plain_of(plain).source.executor = Counted()
    assert try_on_segments(plain, [trial], of.queries) == alone
    assert asked_for[-1] == plain.source.tasks.cores


def test_features_that_only_spark_can_tell_are_asked_of_spark(spark: SparkSession, source_of: SourceOf) -> None:
    source = source_of(100, 2)
    frame = open_source(spark, source)
    assert isinstance(asked(frame, source, None, ["substring(text, 1, 1) = 'a'"]).source, PlainRows)
    told: list[str] = []
    assert not isinstance(
        asked(frame, source, None, ["cast(cast(id AS double) AS string) = '1.0'"], told.append).source, PlainRows
    )
    assert len(told) == 1
    assert told[0].startswith("reading by Spark: ")


def test_only_files_with_rows_of_the_segments_are_read(
    spark: SparkSession, source_of: SourceOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, frame = both(spark, source_of(400, 4), "day")
    read: list[int] = []

    def counting(splits: Sequence[Split], most: int) -> tuple[tuple[Split, ...], ...]:
        read.append(len(splits))
        return group_splits(splits, most)

    monkeypatch.setattr(sources, "group_splits", counting)
    plan = plan_of(simple_document(frame_of(frame)), partition_by="day")
    (first, *_, last) = cut_segments(count_chunks(with_positions(frame_of(frame)), "day", 1000), 1000)
    for segment in (first, last):
        chosen = ChosenSegments((replace(segment, id=0),), {}, 2)
        request = SampleRequest(FeatureSet(()), "day", 1000, {}, 0, ("id",))
        counted, sample = plain_of(plain).map_segments(plan, chosen, request, rows_counted)
        assert counted == [segment.rows, segment.rows]
        assert sample.segments == ()
    assert len(read) == 2
    assert all(number < len(plain_of(plain).source.splits) for number in read)


def test_rows_are_drawn_on_the_way_to_segments_as_by_themselves(spark: SparkSession, tmp_path: Path) -> None:
    plain, frame = both(spark, written(kinds_and_shops(spark, 4_000, 4), tmp_path / "source"), "day")
    (first, *_) = cut_segments(count_chunks(with_positions(frame_of(frame)), "day", 1000), 1000)
    of_two = dict(list(plain.source.partition_rows.items())[1:3])
    plan = plan_of(simple_document(frame_of(frame)), partition_by="day")
    request = SampleRequest(FeatureSet(()), "day", 1000, of_two, 30, ("id", "day"))
    for shares in (1, 2):
        chosen = ChosenSegments((replace(first, id=0),), {}, shares)
        counted, sample = plain_of(plain).map_segments(plan, chosen, request, rows_counted)
        assert counted == [first.rows] * shares
        alone = plain_of(plain).draw(request)
        assert [segment.table for segment in sample.segments] == [segment.table for segment in alone.segments]
        assert 30 < sum(segment.table.num_rows for segment in sample.segments) < 90
        assert {segment.value for segment in sample.segments} == set(of_two)


def test_cells_are_measured_on_rows_of_a_few_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds_and_shops(spark, 40_000, 1).repartition(12).write.parquet(str(tmp_path / "source"))
    plain, frame = both(spark, str(tmp_path / "source"), "day")
    tasks: list[list[Split]] = []

    def watched(splits: Sequence[Split], most: int) -> tuple[tuple[Split, ...], ...]:
        tasks.append(list(splits))
        return group_splits(splits, most)

    monkeypatch.setattr(sources, "group_splits", watched)
    ((value, rows),) = plain.source.partition_rows.items()
    request = PlanRequest(partition_by="day", block_rows=500)
    features = features_of(["shop = 1"], plain_of(plain).source.schema)
    by_arrow, by_spark = (unit_in_bytes(each, features, (value, rows), request) for each in (plain, frame))
    assert [len(splits) for splits in tasks] == [4]
    assert (np.abs(by_arrow.cell - by_spark.cell) <= 0.2 + 0.1 * by_spark.cell).all()
    assert len(plain_of(plain).draw_all_columns(features, (value, rows), rows)) == rows
    assert len(tasks[1]) == len(plain_of(plain).source.splits)


def test_so_many_tasks_at_most_read_all_splits() -> None:
    splits = [
        FileSplit(SnapshotFile(f"/{number}", ()), FileRead(f"/{number}", (0,), (1,)), number, 1 << 24)
        for number in range(40)
    ]
    assert [len(task) for task in group_splits(splits)] == [2] * 20
    few = group_splits(splits, 4)
    assert [len(task) for task in few] == [10] * 4
    assert [split for task in few for split in task] == splits


def rows_counted(batches: Iterable[pa.RecordBatch], evaluate_rest: object) -> list[int]:
    """How many rows there are."""
    return [sum(map(len, batches))]


def test_a_sample_of_few_columns_says_what_one_of_all_says(
    spark: SparkSession, source_of: SourceOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = kinds_and_shops(spark, 600, 3)
    plain, frame = both(spark, source_of(600, 3), "day")
    of = simple_document(rows)
    names, few = of.schema.names, ("day", "kind", "shop")
    queries = [replace(query, columns=("kind", "shop")) for query in of.queries]
    kinds, others = ("id", "kind"), ("day", "shop", "text")
    apart = Scheme((Layout(kinds, (0, 1), kinds), Layout(others, (0, 1, 2, 3), others)))
    read: list[tuple[str, ...] | None] = []

    def watched(job: CutJob, split: Split) -> Iterator[tuple[pa.Table, int]]:
        read.append(job.columns)
        return read_split(job, split)

    monkeypatch.setattr("layoutopt.sources.shuffle.read_split", watched)
    narrow, whole = (draw_sample(plain, of.features, "day", 1000, columns=columns) for columns in (set(few), None))
    assert [set(columns or ()) for columns in dict.fromkeys(read)] == [set(few), set(names)]
    assert (whole.columns, narrow.columns) == (names, few)
    for plan in (plan_of(of, partition_by="day"), plan_of(of, partition_by="day", scheme=apart)):
        assert evaluate_on_sample(narrow, plan, queries) == evaluate_on_sample(whole, plan, queries)
    measured = [sample.unit(names, 20, "zstd", 0) for sample in (whole, narrow)]
    assert measured[0].cell.tolist() == measured[1].cell.tolist()
    alone = narrow.for_workers()
    assert alone.measured is None
    assert alone.unit(names, 20, "zstd", 0) is measured[1]
    by_spark = draw_sample(frame, of.features, "day", 1000, columns=set(few))
    assert by_spark.columns == few
    assert np.allclose(by_spark.unit(names, 20, "zstd", 0).cell, measured[0].cell)


@pytest.mark.parametrize("missing", [False, True])
def test_bounds_exclude_the_same_queries_by_arrow_as_by_spark(
    spark: SparkSession, tmp_path: Path, missing: bool
) -> None:
    rows = kinds_and_shops(spark, 400, 4)
    source = str(tmp_path / "source")
    if missing:  # each file has rows of one day
        rows.repartitionByRange(4, "day").write.parquet(source)
    else:
        rows.coalesce(1).write.parquet(source)
    plain, frame = both(spark, source, "day")
    schema = plain_of(plain).source.schema
    by_id = And((is_value(schema, "id", "<", 100), is_value(schema, "shop", "=", 3)))
    queries = document(schema, [by_id, is_value(schema, "text", ">", "0"), is_value(schema, "kind", "=", 2)]).queries
    of = [CountRequest(each, queries, schema, 100, print) for each in (plain, frame)]
    by_arrow, by_spark = (count_histograms(one, features_of(["kind = 1"], schema))[1] for one in of)
    assert [one.query_weights.tolist() for one in by_arrow] == [one.query_weights.tolist() for one in by_spark]
    assert [one.query_weights.tolist() for one in by_arrow] == [[1, 1, 1], *[[0, 1, 1]] * 3]


def test_a_session_has_its_say_before_files_are_read_without_it(
    spark: SparkSession, source_of: SourceOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, source = kinds_and_shops(spark, 100, 2), source_of(100, 2)
    of, request = simple_document(rows), PlanRequest(partition_by="day")
    assert isinstance(open_source_rows(spark, source, of, request, never).source, PlainRows)
    elsewhere = replace(of, features=replace(of.features, settings=SessionSettings(time_zone="Asia/Tokyo")))
    with pytest.raises(SettingError, match="Asia/Tokyo"):
        make_plan(spark, source, elsewhere, request)
    monkeypatch.setattr("layoutopt.spark.core.sessions.has_local_paths", lambda session: False)
    assert not isinstance(open_source_rows(spark, source, of, request, never).source, PlainRows)


def test_where_a_value_is_not_read_cells_are_measured_by_spark(
    spark: SparkSession, source_of: SourceOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    plain = asked(open_source(spark, source_of(100, 2)), source_of(100, 2), "day", say=told.append)
    sample = draw_sample(
        plain, features_of(["kind = 1"], plain_of(plain).source.schema), "day", 1000, columns={"day", "kind"}
    )

    def refuse(split: FileSplit, *given: object, **more: object) -> NoReturn:
        raise NeedsSparkError(f"{split.file.path!r} has values that Spark reads by rules of its own")

    monkeypatch.setattr(FileSplit, "read_rows", refuse)
    assert (sample.unit(plain_of(plain).source.schema.names, 20, "zstd", 0).cell > 0).all()
    assert ["rules of its own" in sentence for sentence in told] == [True]
