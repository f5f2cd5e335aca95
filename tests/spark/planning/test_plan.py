"""Making plans from pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

import jobs.bench  # its methods to compare with  # noqa: F401
from layoutopt.errors import PlanError, SchemaError, SettingError
from layoutopt.methods.interface import PlanRequest
from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.layout import ByCuts, ByOrder, ByVectors, Plan
from layoutopt.model.query import Query
from layoutopt.model.schema import Column, Schema
from layoutopt.model.vectors import VectorCounts, pack
from layoutopt.partitioning.ordered_blocks import ORDER_KINDS
from layoutopt.planning.segment_evaluation import Trial, TrialResult
from layoutopt.planning.source_profile import features_within, select_heaviest
from layoutopt.spark.core.featurize import count_vectors
from layoutopt.spark.core.source import schema_of
from tests.effort import long_too
from tests.spark.plans import make_plan
from tests.spark.tables import document, is_value, simple_document, simple_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


BY_DAY = PlanRequest(partition_by="day", block_rows=20)


@pytest.fixture(scope="module")
def plan(spark: SparkSession) -> Plan:
    """One layout for queries by kind."""
    source = simple_rows(spark)
    return make_plan(spark, source, simple_document(source), BY_DAY)


@pytest.mark.spark
class TestMakePlan:
    def test_sop_has_one_layout_of_all_columns_and_predicts_what_is_scanned(self, plan: Plan) -> None:
        (layout,) = plan.scheme.layouts
        assert layout.columns == layout.master == ("id", "day", "kind", "text")
        assert layout.features == (0, 1, 2, 3)
        assert isinstance(layout.blocking, ByVectors)
        # Every query's fifth of the rows fills blocks of its own: nothing else is scanned.
        expected = {"block_rows": 20.0, "rows_scanned_fraction": 0.2, "lower_bound_fraction": 0.2, "gap": 0.0}
        predicted = dict(plan.predicted)
        # Of each block its smaller parts: pages of few values are mostly headers.
        assert 0.1 < predicted.pop("bytes_fraction") < 0.4
        assert predicted == expected
        assert len(plan.reads) == len(plan.queries)
        assert all(0.1 < share < 0.4 for share in plan.reads)

    def test_the_same_input_makes_the_same_bytes(self, spark: SparkSession, plan: Plan) -> None:
        source = simple_rows(spark)
        assert make_plan(spark, source, simple_document(source), BY_DAY).dumps() == plan.dumps()

    @pytest.mark.long
    def test_the_same_rows_in_another_order_make_the_same_scheme(self, spark: SparkSession) -> None:
        """But for the order of rows within blocks, chosen by what it saves beside the source's, and the bytes."""
        source = simple_rows(spark)
        request = PlanRequest(partition_by="day", block_rows=20, row_order=("none",))
        first, other = (
            make_plan(spark, rows, simple_document(source), request) for rows in (source, source.repartition(3))
        )
        assert replace(first, predicted={}, reads=()) == replace(other, predicted={}, reads=())

    @pytest.mark.long
    def test_queries_that_a_partition_excludes_weigh_nothing_there(self, spark: SparkSession) -> None:
        source = simple_rows(spark)
        schema = schema_of(source)
        outside = document(schema, [is_value(schema, "id", ">", 399)])
        plan = make_plan(spark, source, outside, PlanRequest(partition_by="day", block_rows=20))
        assert plan.predicted["rows_scanned_fraction"] == 0

    @pytest.mark.long
    def test_features_beyond_max_vectors_guide_no_blocking_lightest_first_and_named(self, spark: SparkSession) -> None:
        source = simple_rows(spark)
        said: list[str] = []
        plan = make_plan(
            spark, source, simple_document(source), PlanRequest(max_vectors=3, block_rows=20), progress=said.append
        )
        assert plan.scheme.layouts[0].features == (2, 3)
        assert [feature.weight for feature in plan.features] == [1.0, 2.0, 3.0, 4.0]
        assert [line for line in said if "gave up" in line] == [
            "gave up blocking by feature 0 (weight 1) for max_vectors=3",
            "gave up blocking by feature 1 (weight 2) for max_vectors=3",
        ]

    def test_features_beyond_num_features_are_measured_only(self, spark: SparkSession) -> None:
        source = simple_rows(spark)
        plan = make_plan(spark, source, simple_document(source), PlanRequest(num_features=1, block_rows=20))
        assert plan.scheme.layouts[0].features == (3,)
        assert [feature.weight for feature in plan.features] == [1.0, 2.0, 3.0, 4.0]

    @pytest.mark.long
    def test_one_layout_is_not_guided_by_ranges_of_excluded_columns(self, spark: SparkSession) -> None:
        source = simple_rows(spark)
        schema = schema_of(source)
        both = document(schema, [is_value(schema, "kind", "=", 1), is_value(schema, "id", "<", 90)])
        excluding = replace(both, exclude_columns=("id",))
        plan = make_plan(spark, source, excluding, PlanRequest(block_rows=20))
        assert plan.scheme.layouts[0].features == (0,)
        assert [feature.columns for feature in plan.features] == [{"kind"}, {"id"}]
        groups = make_plan(spark, source, excluding, PlanRequest(method="gsop-single", block_rows=20))
        assert (0, 1) in [layout.features for layout in groups.scheme.layouts]
        assert make_plan(spark, source, both, PlanRequest(block_rows=20)).scheme.layouts[0].features == (0, 1)

    @pytest.mark.long
    @pytest.mark.parametrize(("least", "guides"), [(0, (0, 1)), (1, (0,))])
    def test_columns_that_do_not_go_apart_are_blocked_as_they_are_read_least(
        self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, least: int, guides: tuple[int, ...]
    ) -> None:
        source = simple_rows(spark)
        schema = schema_of(source)
        both = document(schema, [is_value(schema, "kind", "=", 1), is_value(schema, "id", "<", 90)])

        def rehearsed(rows: DataFrame, trials: Sequence[Trial], queries: Sequence[Query]) -> list[TrialResult]:
            reads = [1.0 if number == least else 2.0 for number in range(len(trials))]
            alike = (4.0,) * len(queries)
            return [
                TrialResult(trial.plan, (read,) * len(queries), alike, alike)
                for trial, read in zip(trials, reads, strict=True)
            ]

        monkeypatch.setattr("layoutopt.planning.plan.try_on_segments", rehearsed)
        request = PlanRequest(method="gsop", block_rows=20)
        plan = make_plan(spark, source, replace(both, exclude_columns=("id",)), request)
        assert (plan.method, plan.scheme.layouts[0].features) == ("gsop", guides)

    def test_too_few_features_make_no_plan(self, spark: SparkSession) -> None:
        source = simple_rows(spark)
        with pytest.raises(PlanError, match="max_vectors=1"):
            make_plan(spark, source, simple_document(source), PlanRequest(max_vectors=1))

    @pytest.mark.parametrize(
        "method", ["sort", *long_too(*(kind for kind in ORDER_KINDS if kind not in ("input", "sort")))]
    )
    def test_orders_take_columns_from_the_user_or_the_workload(self, spark: SparkSession, method: str) -> None:
        source = simple_rows(spark)
        blocking = (
            make_plan(spark, source, simple_document(source), PlanRequest(method=method)).scheme.layouts[0].blocking
        )
        assert blocking == ByOrder(method, ("kind",))
        given = make_plan(spark, source, simple_document(source), PlanRequest(method=method, by=("ID", "day")))
        assert given.scheme.layouts[0].blocking == ByOrder(method, ("id", "day"))

    @pytest.mark.parametrize("method", ["gsop-single", *long_too("sop")])
    def test_a_plan_names_the_partitioner_of_its_loads_and_how_far_it_is_from_the_bound(
        self, spark: SparkSession, method: str
    ) -> None:
        source = simple_rows(spark)
        plan = make_plan(
            spark,
            source,
            simple_document(source),
            PlanRequest(method=method, partitioner="portfolio-low", block_rows=20),
        )
        named = {one.blocking.algorithm for one in plan.scheme.layouts if isinstance(one.blocking, ByVectors)}
        assert named == {"portfolio-low"}
        assert plan.predicted["gap"] >= 0
        assert plan.predicted["lower_bound_fraction"] > 0

    @pytest.mark.parametrize(("method", "params"), [("cuts", ()), ("qdtree", (("quantiles", 0),))])
    def test_trees_of_cuts_name_the_columns_that_filters_use(
        self, spark: SparkSession, method: str, params: tuple[tuple[str, int], ...]
    ) -> None:
        source = simple_rows(spark)
        (layout,) = make_plan(spark, source, simple_document(source), PlanRequest(method=method)).scheme.layouts
        assert layout.blocking == ByCuts(("kind",), params)
        assert layout.features == tuple(range(len(simple_document(source).features)))

    def test_predicate_sort_needs_no_columns(self, spark: SparkSession) -> None:
        source = simple_rows(spark)
        (layout,) = make_plan(
            spark, source, simple_document(source), PlanRequest(method="predicate-sort")
        ).scheme.layouts
        assert layout.blocking == ByOrder("predicate-sort")
        assert layout.features == (0, 1, 2, 3)

    def test_input_order_needs_nothing(self, spark: SparkSession) -> None:
        source = simple_rows(spark)
        bare = replace(simple_document(source), features=FeatureSet(()), queries=())
        assert make_plan(spark, source, bare, PlanRequest(method="input-order")).scheme.layouts[0].blocking == ByOrder(
            "input"
        )

    def test_bad_settings_are_named(self, spark: SparkSession) -> None:
        source = simple_rows(spark)
        doc = simple_document(source)
        with pytest.raises(SettingError, match="'magic'"):
            make_plan(spark, source, doc, PlanRequest(method="magic"))
        with pytest.raises(SettingError, match="'wart'"):
            make_plan(spark, source, doc, PlanRequest(partitioner="wart"))
        with pytest.raises(SettingError, match="--block-rows is 0"):
            make_plan(spark, source, doc, PlanRequest(block_rows=0))
        with pytest.raises(SettingError, match="leave --by out"):
            make_plan(spark, source, doc, PlanRequest(by=("id",)))
        with pytest.raises(SchemaError, match="'nope'"):
            make_plan(spark, source, doc, PlanRequest(partition_by="nope"))
        with pytest.raises(SchemaError, match="lacks the column 'text'"):
            make_plan(spark, source.drop("text"), doc)
        with pytest.raises(PlanError, match="name columns with --by"):
            make_plan(spark, source, replace(doc, queries=()), PlanRequest(method="sort"))

    def test_bounds_count_null_partitions(self, spark: SparkSession) -> None:
        source = simple_rows(spark).selectExpr("id", "if(day = 3, NULL, day) AS day", "kind", "text")
        doc = simple_document(source)
        assert set(count_vectors(source, doc.features.features, "day")) == {0, 1, 2, None}
        assert (
            make_plan(spark, source, doc, PlanRequest(partition_by="day", block_rows=20)).predicted[
                "rows_scanned_fraction"
            ]
            == 0.2
        )


def feature_set(*weights: float) -> FeatureSet:
    predicate = document(Schema((Column("n", "int"),)), [is_value(Schema((Column("n", "int"),)), "n", "=", 1)])
    return FeatureSet(tuple(Feature(predicate.features[0].predicates, weight) for weight in weights))


def test_the_most_of_the_heaviest_features_are_kept() -> None:
    random = np.random.default_rng(3)
    bits = random.random((3000, 9)) < 0.5
    counts = VectorCounts.of_rows(pack(bits), 9)
    features = feature_set(*(float(w) for w in (5, 9, 1, 7, 3, 8, 2, 6, 4)))
    for allowed in (1, 2, 3, 40, 511, 512):
        kept = features_within(features, [counts], allowed)
        assert len(counts.project(kept)) <= allowed
        assert kept == sorted(kept)
        weights = [features[i].weight for i in kept]
        assert sorted(weights, reverse=True) == [float(w) for w in range(9, 9 - len(kept), -1)]
        assert 2 ** len(kept) <= allowed < 2 ** (len(kept) + 1)


def test_heaviest_keeps_the_order_of_bits() -> None:
    assert [f.weight for f in select_heaviest(feature_set(2.0, 9.0, 1.0, 5.0), 2)] == [9.0, 5.0]
