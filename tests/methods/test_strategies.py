"""Methods that make several layouts: planned, loaded, and read back as the source has it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import jobs.bench  # its methods to compare with  # noqa: F401
from layoutopt.catalog.table import Catalog
from layoutopt.errors import ContentMismatchError, PlanError
from layoutopt.inspect.evaluate import evaluate
from layoutopt.inspect.verify import verify
from layoutopt.methods.interface import PlanRequest
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.layout import CUT_BY, ByCuts, ByOrder, ByVectors, Layout, Plan, Scheme
from layoutopt.model.predicates import TRUE, Filter, Node
from layoutopt.model.query import Query
from layoutopt.scan.table import Table, open_table
from layoutopt.spark.core.source import schema_of
from layoutopt.spark.loading.load import load
from layoutopt.writer import task as write_task
from layoutopt.writer.task import WriteJob
from layoutopt.writer.task_result import TaskResult
from tests.effort import examples, long_too
from tests.methods.random_queries import answers, as_text, listed, random_queries, rows_of
from tests.spark.plans import make_plan
from tests.spark.rewriting import found, rewrite
from tests.spark.session.answers import spark_sql
from tests.spark.tables import document, every_type, is_value, plan_of, simple_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

METHODS = ["gsop", "gsop-single"]


def families(df: DataFrame) -> FeaturesDocument:
    """Queries of two families that want other rows and read other columns; ``wide`` is read by nobody."""
    schema = schema_of(df)
    conditions: list[tuple[Node, tuple[str, ...]]] = [
        (is_value(schema, "flag", "=", True), ("flag", "tiny", "small", "list")),
        (is_value(schema, "n", "<", 0), ("tiny", "small", "n")),
        (is_value(schema, "text", "=", "a"), ("text", "bin", "tags", "price")),
        (is_value(schema, "d", ">", 1), ("d", "text", "deep")),
    ]
    doc = document(schema, [node for node, _ in conditions])
    queries = (replace(q, columns=columns) for q, (_, columns) in zip(doc.queries, conditions, strict=True))
    return replace(doc, queries=tuple(queries))


@pytest.fixture(scope="module")
def plan_by(spark: SparkSession, source: DataFrame) -> Callable[[str], Plan]:
    """The plan by each method, made when a test first asks for it."""
    return cache(partial(planned, spark, source))


def planned(spark: SparkSession, source: DataFrame, method: str = "gsop", **settings: Any) -> Plan:
    return make_plan(
        spark, source, families(source), PlanRequest(method=method, partition_by="year", block_rows=25, **settings)
    )


@pytest.fixture(scope="module")
def source(spark: SparkSession) -> DataFrame:
    return every_type(spark, 300).cache()


@pytest.fixture(scope="module")
def table(spark: SparkSession, source: DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Table:
    root = tmp_path_factory.mktemp("gsop") / "t"
    # Partitions of 100 rows in segments of 60: several segments a partition too.
    load(spark, source, root, planned(spark, source, segment_rows=60))
    return open_table(str(root))


@pytest.mark.parametrize("method", [*METHODS, *long_too("gsop-hillclimb", "gsop-hyrise")])
def test_each_method_has_disjoint_layouts_that_hold_every_column(
    plan_by: Callable[[str], Plan], source: DataFrame, method: str
) -> None:
    plan = plan_by(method)
    held = [name for layout in plan.scheme.layouts for name in layout.columns]
    assert sorted(held) == sorted(source.columns)
    assert all(layout.master == layout.columns for layout in plan.scheme.layouts)
    # What nobody reads has layouts in the source's order, or lies with others where that costs no query anything.
    unread = {"wide", "at", "local", "day"}
    for layout in plan.scheme.layouts:
        assert (layout.blocking == ByOrder("input")) == (set(layout.columns) <= unread | {"year", "f", "inner"})
    assert 0 < plan.predicted["cells_and_tids_fraction"] <= 2
    assert Plan.loads(plan.dumps()) == plan


def test_groups_are_cut_by_a_column_that_ranges_are_asked_of(plan_by: Callable[[str], Plan]) -> None:
    plan = plan_by("gsop-single")
    cut_by = {
        layout.columns: dict(layout.blocking.params).get(CUT_BY)
        for layout in plan.scheme.layouts
        if isinstance(layout.blocking, ByVectors)
    }
    assert cut_by[("n",)] == "n"
    assert cut_by[("d",)] == "d"
    assert {columns for columns, name in cut_by.items() if name is not None} == {("n",), ("d",)}


def test_gsop_predicts_no_more_than_its_baselines(plan_by: Callable[[str], Plan], source: DataFrame) -> None:
    fractions = {m: plan_by(m).predicted["cells_and_tids_fraction"] for m in METHODS}
    assert fractions["gsop"] <= fractions["gsop-single"]
    assert fractions["gsop"] < 1
    assert len(plan_by("gsop-single").scheme.layouts) == len(source.columns)


@pytest.mark.long
def test_the_same_rows_in_another_order_make_the_same_scheme(spark: SparkSession, source: DataFrame) -> None:
    """But for the order of rows within blocks, chosen by what it saves beside the source's, and the bytes."""
    first = planned(spark, source, row_order=("none",))
    assert first.scheme.has_tids
    other = planned(spark, source.repartition(3), row_order=("none",))
    assert replace(other, predicted={}, reads=()) == replace(first, predicted={}, reads=())


@pytest.mark.long
def test_a_workload_without_queries_makes_a_plan(spark: SparkSession) -> None:
    source = simple_rows(spark)
    schema = schema_of(source)
    silent = replace(document(schema, [is_value(schema, "kind", "=", 1)]), queries=())
    plan = make_plan(spark, source, silent, PlanRequest(method="gsop", partition_by="day", block_rows=20))
    assert [layout.blocking for layout in plan.scheme.layouts] == [ByOrder("input")]
    assert len(make_plan(spark, source, silent, PlanRequest(method="sop", partition_by="day")).scheme.layouts) == 1


def test_an_empty_source_makes_no_groups(spark: SparkSession) -> None:
    source = simple_rows(spark)
    schema = schema_of(source)
    doc = document(schema, [is_value(schema, "kind", "=", 1)])
    with pytest.raises(PlanError, match="no rows"):
        make_plan(spark, source.where("false"), doc, PlanRequest(method="gsop"))


def test_every_column_of_every_row_comes_back(spark: SparkSession, source: DataFrame, table: Table) -> None:
    assert rows_of(table.sql("SELECT * FROM t")) == rows_of(source.toArrow())
    assert as_text(spark_sql(spark, table, "SELECT * FROM t")) == as_text(source)


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, *long_too(1, 2, 3)])
def test_random_columns_and_conditions_answer_as_the_source_does(
    spark: SparkSession, source: DataFrame, table: Table, seed: int
) -> None:
    source.createOrReplaceTempView("t")
    try:
        queries = random_queries(source.columns, examples(12), seed)
        for number, (sql, expected) in enumerate(zip(queries, answers(source, queries), strict=True)):
            assert rows_of(table.sql(sql)) == rows_of(expected), sql
            if number < 2:
                assert as_text(spark_sql(spark, table, sql)) == as_text(spark.sql(sql)), sql
    finally:
        spark.catalog.dropTempView("t")


def test_a_query_that_needs_one_layout_reads_no_tid(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    columns_read = watch_columns(monkeypatch)
    for plan in table.catalog.plans.values():
        for layout in plan.scheme.layouts:
            one = Query(0, "t", layout.columns, Filter.of(TRUE))
            (found,) = evaluate(table, [one]).queries
            assert found.tids_scanned == 0
            assert table.sql(f"SELECT {listed(layout.columns)} FROM t").num_rows == 300
    assert columns_read
    assert "_tid" not in columns_read
    first, second = (layout.columns[0] for layout in plan.scheme.layouts[:2])
    assert table.sql(f"SELECT {first}, {second} FROM t").num_rows == 300
    assert "_tid" in columns_read


def watch_columns(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the columns that data files are read for, from now on."""
    seen: set[str] = set()
    read = pq.ParquetFile.iter_batches

    def watched(self: pq.ParquetFile, *args: Any, **options: Any) -> Any:
        seen.update(options["columns"])
        return read(self, *args, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", watched)
    return seen


def test_a_loaded_table_verifies_and_swapped_tids_do_not(source: DataFrame, table: Table, tmp_path: Path) -> None:
    shutil.copytree(table.catalog.files.root, tmp_path / "t")
    table = open_table(str(tmp_path / "t"))
    assert verify(table).problems == ()
    for _, blocks in Catalog.open(str(tmp_path / "t")).block_tables():
        for name in source.columns:  # nested ones too
            assert (blocks.column_tid_sums(name)[blocks.has_column(name)] >= 0).all(), name
    rewrite(Path(table.files(layout=1)[0]), swap_two_tids)
    assert {check for check, _ in found(tmp_path / "t")} == {"tid-checksum"}


def swap_two_tids(content: pa.Table, sizes: Sequence[int]) -> pa.Table:
    """The tids of the first two rows change places."""
    tids = content["_tid"].take(pa.array([1, 0, *range(2, content.num_rows)]))
    return content.set_column(content.schema.get_field_index("_tid"), content.schema.field("_tid"), tids)


def test_one_layout_stores_no_sums_at_tids(spark: SparkSession, tmp_path: Path) -> None:
    source = simple_rows(spark)
    load(spark, source, tmp_path / "t", plan_of(families_of_simple(source)))
    ((_, blocks),) = Catalog.open(str(tmp_path / "t")).block_tables()
    assert (blocks.column_tid_sums("id") == -1).all()
    assert (blocks.column_sums("id") >= 0).all()


def families_of_simple(source: DataFrame) -> FeaturesDocument:
    schema = schema_of(source)
    return document(schema, [is_value(schema, "kind", "=", 1), is_value(schema, "id", "<", 100)])


def swapped_in_task(
    job: WriteJob, results_in: None, segment: int, batches: Iterable[pa.RecordBatch]
) -> TaskResult | None:
    """The task of a load, but two rows of its last file have each other's tid."""
    honest = write_task.take_content

    def content(*arguments: Any) -> pa.Table:
        found = honest(*arguments)
        tids = found["_tid"].to_pylist()
        if "text" in found.column_names:
            tids[0], tids[-1] = tids[-1], tids[0]
        place = found.schema.get_field_index("_tid")
        return found.set_column(place, found.schema.field("_tid"), pa.array(tids, pa.int32()))

    with patch.object(write_task, "take_content", content):  # only here: workers are used again
        result = write_task.gather_and_write(job, batches)
    return None if result is None else result.split()


@pytest.mark.long
def test_tids_swapped_in_a_task_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = simple_rows(spark)
    doc = families_of_simple(source)
    groups = [("id", "day"), ("kind", "text")]
    layouts = tuple(Layout(names, (i,), names, ByVectors("ward")) for i, names in enumerate(groups))
    plan = plan_of(doc, partition_by="day", scheme=Scheme(layouts))
    load(spark, source, tmp_path / "t", plan)
    monkeypatch.setattr("layoutopt.loading.write._write_rows", swapped_in_task)
    monkeypatch.setattr("layoutopt.sources.source.reads_little_twice", lambda ranges, tasks: False)
    with pytest.raises(ContentMismatchError, match=r"layout 1 has .*text at other row positions"):
        load(spark, source, tmp_path / "t", plan)
    assert Catalog.open(str(tmp_path / "t")).snapshot.number == 0
    assert verify(open_table(str(tmp_path / "t"))).ok


@pytest.mark.long
def test_a_table_by_cuts_of_every_type_comes_back_whole(spark: SparkSession, source: DataFrame, tmp_path: Path) -> None:
    plan = planned(spark, source, "cuts", segment_rows=60)
    (layout,) = plan.scheme.layouts
    assert layout.blocking == ByCuts(("flag", "n", "d", "text"))
    load(spark, source, tmp_path / "t", plan)
    table = open_table(str(tmp_path / "t"))
    assert verify(table).problems == ()
    assert rows_of(table.sql("SELECT * FROM t")) == rows_of(source.toArrow())
    skipped = evaluate(table, [replace(q, table="t") for q in plan.queries]).totals.skipped_by
    assert sum(size.blocks for size in skipped.values()) > 0


@pytest.mark.long
def test_cuts_without_a_query_are_equal_blocks(spark: SparkSession, source: DataFrame, tmp_path: Path) -> None:
    silent = replace(families(source), queries=())
    plan = make_plan(spark, source, silent, PlanRequest(method="cuts", block_rows=30))
    load(spark, source, tmp_path / "t", plan)
    assert [rows for held in open_table(str(tmp_path / "t")).sources for rows in held.blocks.rows.tolist()] == [30] * 10
