"""The order of rows within blocks: asked for or chosen while planning, applied by loads, and seen by no answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import jobs.bench  # its methods to compare with  # noqa: F401
from layoutopt.errors import SchemaError
from layoutopt.features.weights import feature_shares
from layoutopt.inspect.verify import verify
from layoutopt.methods.interface import PlanRequest
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.layout import ByVectors, Layout, Plan, Scheme
from layoutopt.model.schema import Column, Schema
from layoutopt.model.vectors import pack
from layoutopt.planning.row_order import (
    count_reads,
    dry_run_table,
    find_row_orders,
    measure_files,
    measure_reordered,
    with_orders,
)
from layoutopt.planning.segment_evaluation import measure_query_bytes, prune_queries, try_on_segment
from layoutopt.scan.prune import PruneOutcome
from layoutopt.scan.table import Table, open_table
from layoutopt.spark.core.source import schema_of
from layoutopt.spark.loading.load import load
from layoutopt.writer.dry_run import dry_run_catalog
from layoutopt.writer.row_order import RowOrder
from layoutopt.writer.segment import GatheredSegment
from layoutopt.writer.task import RoutedFile, WriteJob, route_segment, write_layouts
from tests.effort import long_too
from tests.methods.random_queries import answers, rows_of
from tests.spark.plans import make_plan
from tests.spark.session.answers import spark_sql
from tests.spark.tables import document, every_type, is_value, plan_of, simple_document, simple_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = Schema((Column("kind", "int"), Column("shop", "string"), Column("price", "int"), Column("note", "string")))


def a_segment(n: int = 4_000) -> GatheredSegment:
    """Shops at random with a price each; notes that nobody reads."""
    shops = np.random.default_rng(0).integers(0, 40, n)
    kinds = np.arange(n) % 4
    columns = {
        "kind": pa.array(kinds, pa.int32()),
        "shop": pa.array([f"shop {shop}" for shop in shops]),
        "price": pa.array(shops * 3, pa.int32()),
        "note": pa.array([f"note {i}" for i in range(n)]),
    }
    return GatheredSegment(0, pa.table(columns), pack(kinds[:, None] == np.arange(2)))


def a_job(plan: Plan) -> WriteJob:
    shares = feature_shares(plan.features, plan.queries)
    return WriteJob(plan, shares, "sampled", "load-1", 0, ("all",), (0,), rehearsal=True)


def found_in(plan: Plan) -> Mapping[int, RowOrder]:
    job, segment = a_job(plan), a_segment()
    files = list(route_segment(job, segment))
    table = dry_run_table(job, measure_files(job, segment, files))
    return find_row_orders(job, segment, files, table, prune_queries(table, plan.queries))


def test_each_layout_is_sorted_by_what_is_read_of_it() -> None:
    of = document(SCHEMA, [is_value(SCHEMA, "kind", "=", kind) for kind in range(2)])
    read = [("kind", "shop", "price"), ("kind", "price")]
    queries = tuple(replace(query, columns=columns) for query, columns in zip(of.queries, read, strict=True))
    groups = [("kind", "shop", "price"), ("note",)]
    layouts = tuple(Layout(names, (0, 1), names, ByVectors("ward")) for names in groups)
    for scheme in (None, Scheme(layouts)):
        plan = plan_of(replace(of, queries=queries), scheme=scheme, block_rows=1_000, segment_rows=10_000)
        found = found_in(plan)
        assert list(found) == [0]
        assert found[0].columns[0] in ("shop", "price")
        assert found[0].share < 0.7
        assert found == found_in(plan)


def test_nothing_is_sorted_where_nothing_is_read() -> None:
    of = document(SCHEMA, [is_value(SCHEMA, "kind", "=", 7)])
    assert found_in(plan_of(of, segment_rows=10_000)) == {}
    silent = replace(document(SCHEMA, [is_value(SCHEMA, "kind", "=", 1)]), queries=())
    assert found_in(plan_of(silent, segment_rows=10_000)) == {}


def test_blocks_hold_the_same_rows_and_know_the_same_of_them(tmp_path: Path) -> None:
    of = document(SCHEMA, [is_value(SCHEMA, "kind", "=", kind) for kind in range(2)])
    plan = plan_of(of, block_rows=1_000, segment_rows=10_000)
    ordered = _ordered(plan, [("shop", "kind")])
    found = []
    for number, each in enumerate((plan, ordered)):
        job = replace(a_job(each), root=str(tmp_path / str(number)), rehearsal=False)
        blocks, _ = write_layouts(job, a_segment())
        file = pq.ParquetFile(tmp_path / str(number) / blocks["file"][0].as_py())
        groups = [file.read_row_group(i).drop_columns(["_block"]).to_pylist() for i in range(blocks.num_rows)]
        stats = [
            {k: [v[m] for m in v if m != "bytes"] for k, v in row.items() if v} for row in blocks["stats"].to_pylist()
        ]
        found.append(([sorted(map(str, rows)) for rows in groups], stats, blocks["words"].to_pylist()))
        if number:
            assert all(rows == sorted(rows, key=lambda row: (row["shop"], row["kind"])) for rows in groups)
    assert found[0] == found[1]


def _ordered(plan: Plan, orders: list[tuple[str, ...]]) -> Plan:
    layouts = zip(plan.scheme.layouts, orders, strict=True)
    return replace(plan, scheme=Scheme(tuple(replace(layout, row_order=order) for layout, order in layouts)))


def test_bytes_of_a_rehearsal_are_those_of_the_files_written(tmp_path: Path) -> None:
    of = document(SCHEMA, [is_value(SCHEMA, "kind", "=", kind) for kind in range(2)])
    queries = tuple(replace(query, columns=("kind", "shop", "price")) for query in of.queries)
    groups = (("kind", "shop"), ("price", "note"))
    layouts = tuple(Layout(columns, (0, 1), columns, ByVectors("ward")) for columns in groups)
    for scheme in (None, Scheme(layouts)):
        plan = plan_of(replace(of, queries=queries), scheme=scheme, block_rows=1_000, segment_rows=10_000)
        job = replace(a_job(plan), bounded=frozenset({"kind"}))
        tried = try_on_segment(job, a_segment(), queries, search=True)
        sorted_plan = with_orders(plan, tried.orders)
        job = replace(a_job(sorted_plan), root=str(tmp_path), load_id=f"load-{len(tried.orders)}", rehearsal=False)
        blocks, _ = write_layouts(job, a_segment())
        found = measure_query_bytes(tried.sorted, plan, queries, tried.pruned_sorted)
        assert found == measure_query_bytes(tried.sorted, plan, queries, prune_queries(tried.sorted, queries))
        read, full, chunks, _ = found
        written = Table(dry_run_catalog(sorted_plan, job, blocks))
        assert measure_query_bytes(written, sorted_plan, queries, prune_queries(written, queries)) == found
        assert 0 < read[0] < 0.5 * full[0]
        assert chunks == [16.0, 16.0]
        before = sum(measure_query_bytes(tried.table, plan, queries, tried.pruned)[0])
        assert sum(read) < before if scheme is None else sum(read) <= before


def test_reads_are_counted_by_chunk() -> None:
    of = document(SCHEMA, [is_value(SCHEMA, "kind", "=", kind) for kind in range(2)])
    queries = tuple(replace(query, columns=("kind", "price"), weight=3.0) for query in of.queries)
    plan = plan_of(replace(of, queries=queries), block_rows=1_000, segment_rows=10_000)
    job = a_job(plan)
    blocks, _ = write_layouts(job, a_segment())
    table = Table(dry_run_catalog(plan, job, blocks))
    reads = count_reads(table, plan, prune_queries(table, plan.queries))
    # Two of four kinds are asked for, each in one block of four.
    assert reads.sum(axis=0).tolist() == [6.0, 0.0, 6.0, 0.0, 0.0]
    assert sorted(reads.max(axis=1).tolist()) == [0.0, 0.0, 3.0, 3.0]


def test_a_rehearsal_learns_bounds_of_some_columns_and_bytes_of_all() -> None:
    of = document(SCHEMA, [is_value(SCHEMA, "kind", "=", kind) for kind in range(2)])
    plan = plan_of(of, block_rows=1_000, segment_rows=10_000)
    whole, some = a_job(plan), replace(a_job(plan), bounded=frozenset({"price"}))
    tables = [dry_run_table(job, measure_files(job, a_segment(), files)) for job, files in _routed(whole, some)]
    of_whole, of_some = (table.sources[0].blocks for table in tables)
    for name in SCHEMA.names:
        assert of_some.column_bytes(name).tolist() == of_whole.column_bytes(name).tolist()
        least = [pc.struct_field(blocks.statistics(name), "min") for blocks in (of_whole, of_some)]
        assert least[0].equals(least[1]) == (name == "price")
    dear = is_value(SCHEMA, "price", ">", 1_000)
    read = [table.prune(dear, ("price",))[0].outcome.tolist() for table in tables]
    assert read[0] == read[1] == [PruneOutcome.PARTITION] * 4  # by the bounds that their blocks have together


def _routed(*jobs: WriteJob) -> list[tuple[WriteJob, Sequence[RoutedFile]]]:
    return [(job, list(route_segment(job, a_segment()))) for job in jobs]


def test_other_orders_are_measured_as_if_everything_were() -> None:
    of = document(SCHEMA, [is_value(SCHEMA, "kind", "=", kind) for kind in range(2)])
    groups = (("kind", "shop"), ("price", "note"))
    scheme = Scheme(tuple(Layout(columns, (0, 1), columns, ByVectors("ward")) for columns in groups))
    plan = plan_of(of, scheme=scheme, block_rows=1_000, segment_rows=10_000)
    sorted_plan = with_orders(plan, [("shop",), ("price",)])
    (job, files), (_, ordered) = _routed(a_job(plan), a_job(sorted_plan))
    again = measure_reordered(job, a_segment(), ordered, measure_files(job, a_segment(), files))
    anew = measure_files(job, a_segment(), ordered)
    assert len(again) == len(anew) == 2
    for one, other in zip(again, anew, strict=True):
        known = [name for name in one.column_names if name != "file"]
        assert one.select(known).equals(other.select(known))
        assert pc.sum(one["tid_bytes"]).as_py() > 0


def test_an_order_is_searched_for_where_a_layout_has_fewer_columns_of_the_other_rows() -> None:
    of = document(SCHEMA, [is_value(SCHEMA, "kind", "=", kind) for kind in range(2)])
    queries = tuple(replace(query, columns=("kind", "note")) for query in of.queries)
    others = ("shop", "price", "note")
    copy, whole = Layout(SCHEMA.names, (0,), ("kind",), ByVectors("ward")), Layout(others, (), others)
    scheme = Scheme((copy, whole))
    plan = plan_of(replace(of, queries=queries), scheme=scheme, block_rows=1_000, segment_rows=10_000)
    ((_, files),) = _routed(a_job(plan))
    assert [file.columns for file in files] == [SCHEMA.names, ("kind",), others]
    assert 0 in found_in(plan)


@pytest.mark.spark
class TestPlans:
    @pytest.mark.parametrize(
        ("method", "chosen"), [("sop", True), ("sort", False), *long_too(("gsop", True), ("qdtree", False))]
    )
    def test_methods_of_ours_choose_and_peers_keep_their_order(
        self, spark: SparkSession, method: str, chosen: bool
    ) -> None:
        assert (self.orders(spark, shops(spark), method=method) != ()) == chosen

    def test_an_order_is_chosen_or_kept_as_is_asked(self, spark: SparkSession) -> None:
        source = shops(spark)
        assert self.orders(spark, source, method="input-order", row_order=("auto",)) != ()
        assert self.orders(spark, source, row_order=("none",)) == ()

    def test_a_segment_of_several_and_a_source_without_rows(self, spark: SparkSession) -> None:
        source = shops(spark)
        assert self.orders(spark, source, partition_by=None) != ()
        assert self.orders(spark, source.where("id < 0"), method="input-order", row_order=("auto",)) == ()

    @pytest.mark.long
    def test_columns_may_be_named(self, spark: SparkSession) -> None:
        source = shops(spark)
        assert self.orders(spark, source, method="gsop-single", row_order=("SHOP", "price")) == ("shop", "price")
        with pytest.raises(SchemaError, match="there is no column 'nil'"):
            self.orders(spark, source, row_order=("nil",))
        with pytest.raises(SchemaError, match="rows can't be sorted by 'tags', whose type is 'map<string,int>'"):
            self.orders(spark, source.selectExpr("*", "map('a', id) AS tags"), row_order=("tags",))

    @staticmethod
    def orders(spark: SparkSession, source: DataFrame, **settings: Any) -> tuple[str, ...]:
        """The columns that rows are sorted by in any layout, in the order of the layouts."""
        request = PlanRequest(**{"by": (), "block_rows": 500, "segment_rows": 1_500, "partition_by": "day", **settings})
        if request.method == "sort":
            request = replace(request, by=("kind",))
        plan = make_plan(spark, source, of_prices(source), request)
        assert Plan.loads(plan.dumps()) == plan
        return tuple(name for layout in plan.scheme.layouts for name in layout.row_order)

    @pytest.mark.long
    def test_answers_over_several_layouts_sorted_otherwise(self, spark: SparkSession, tmp_path: Path) -> None:
        source = every_type(spark, 300).cache()
        schema = schema_of(source)
        of = document(schema, [is_value(schema, "flag", "=", True), is_value(schema, "text", "=", "a")])
        first = tuple(name for name in schema.names if name not in ("d", "text", "list", "price"))
        layouts = (
            Layout(first, (0,), first, ByVectors("ward"), row_order=("bin", "f", "wide", "day", "flag")),
            Layout(("d", "text", "list", "price", "n"), (1,), ("d", "text", "list", "price"), row_order=("d", "text")),
        )
        plan = plan_of(of, partition_by="year", scheme=Scheme(layouts), segment_rows=60)
        load(spark, source, tmp_path / "t", plan)
        table = open_table(str(tmp_path / "t"))
        assert verify(table).problems == ()
        conditions = ("true", "text = 'a'", "d > 1 AND flag", "n < 0 OR price > 10")
        texts = [f"SELECT * FROM t WHERE {condition}" for condition in conditions]
        for text, expected in zip(texts, answers(source, texts), strict=True):
            assert rows_of(spark_sql(spark, table, text).toArrow()) == rows_of(expected)
            assert rows_of(table.scan(text).to_arrow()) == rows_of(expected)


def of_prices(source: DataFrame) -> FeaturesDocument:
    """Queries that read shops and prices by their kind."""
    of = simple_document(source)
    return replace(of, queries=tuple(replace(query, columns=("kind", "shop", "price")) for query in of.queries))


def shops(spark: SparkSession) -> DataFrame:
    """Rows whose shops are in no order, and whose prices follow from them."""
    rows = simple_rows(spark, 4_000).selectExpr("*", "pmod(hash(id), 30) AS shop")
    return rows.selectExpr("*", "shop * 7 AS price")
