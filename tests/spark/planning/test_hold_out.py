"""Plans tried on samples of rows, and what is chosen by that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.errors import PlanError
from layoutopt.methods.interface import PlanRequest
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.layout import ByOrder, Layout, Plan, Scheme
from layoutopt.model.predictions import Predictions
from layoutopt.model.query import Query
from layoutopt.model.schema import Column, Schema
from layoutopt.model.vectors import pack
from layoutopt.planning.automatic import CANDIDATES, choose_method, tune
from layoutopt.planning.hold_out import (
    EvaluatedPlan,
    Fold,
    HoldOutEvaluation,
    draw_evaluation,
    score_all,
)
from layoutopt.planning.sample_evaluation import (
    CATALOG_BYTES_A_CHUNK,
    RowSample,
    SampledSegment,
    evaluate_on_sample,
)
from layoutopt.planning.segment_evaluation import Trial, TrialResult, try_on_segments
from tests.effort import long_too
from tests.spark.plans import plan_best
from tests.spark.tables import document, is_value, plan_of, simple_document, simple_rows, source_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = Schema((Column("id", "int"), Column("day", "int"), Column("kind", "int")))


def rows(n: int = 400) -> pa.Table:
    ids = np.arange(n)
    columns = {"id": ids, "day": ids * 4 // n, "kind": ids * 7 % 5}
    return pa.table({name: pa.array(values, pa.int32()) for name, values in columns.items()})


def kinds(count: int = 4) -> FeaturesDocument:
    return document(SCHEMA, [is_value(SCHEMA, "kind", "=", kind) for kind in range(count)])


def sample_of(doc: FeaturesDocument, scale: int = 1) -> RowSample:
    """Two partitions of 100 rows each, drawn from so many times as many."""
    segments = []
    for day in (1, 2):
        table = rows().filter(pa.compute.equal(rows()["day"], day))
        words = pack(np.asarray(table["kind"])[:, None] == np.arange(len(doc.features)))
        segments.append(SampledSegment(day, 100 * scale, 100 * scale, table, words))
    return RowSample(doc.features, tuple(segments))


def catalog_bytes(blocks: int) -> int:
    return CATALOG_BYTES_A_CHUNK * blocks * len(SCHEMA.columns)


@pytest.mark.parametrize("scale", [1, 10])
def test_a_sample_reads_the_share_that_the_table_would_whatever_its_scale(scale: int) -> None:
    doc = kinds()
    plan = plan_of(doc, partition_by="day", block_rows=20 * scale)
    found = evaluate_on_sample(sample_of(doc, scale), plan, doc.queries)
    # Each partition has five blocks of a kind each.
    data = np.array(found.read) - catalog_bytes(10)
    np.testing.assert_allclose(data / np.array(found.full), 0.2)
    assert found.fraction == pytest.approx(sum(found.read) / sum(found.full))


def test_what_does_not_skip_reads_all_and_partitions_that_are_excluded_cost_nothing() -> None:
    doc = kinds()
    names = doc.schema.names
    in_order = Scheme((Layout(names, (), names, ByOrder("input")),))
    plan = plan_of(doc, partition_by="day", scheme=in_order, block_rows=20)
    outside = Query(9, "t", ("day",), document(SCHEMA, [is_value(SCHEMA, "day", "=", 7)]).queries[0].filter)
    found = evaluate_on_sample(sample_of(doc), plan, [*doc.queries, outside])
    np.testing.assert_allclose(np.array(found.read[:4]) - catalog_bytes(10), found.full[:4])
    assert found.read[4] == 0 < found.full[4]


def trying(**documents: FeaturesDocument) -> HoldOutEvaluation:
    doc = kinds()
    by_threshold = {int(t.removeprefix("t")): one for t, one in documents.items()} or {2: doc}
    return HoldOutEvaluation([Fold(by_threshold, doc.queries)], sample_of(doc, 10), "day", silent)


def silent(sentence: str) -> None:
    """What nobody is told."""


def make_request(**changed: Any) -> PlanRequest:
    return PlanRequest(partition_by="day", block_rows=200, **changed)


def test_every_candidate_is_tried_and_the_best_is_chosen() -> None:
    run = trying()
    chosen = choose_method(run, make_request(), 2, silent)
    scores = {trial.request.method: trial.score for trial in run.evaluated}
    assert tuple(scores) == CANDIDATES
    assert scores[chosen.method] == min(scores.values()) < 0.3 < scores["input-order"]
    assert {trial.request.row_order for trial in run.evaluated} == {("auto",)}
    assert choose_method(trying(), make_request(row_order=("none",)), 2, silent).row_order == ("none",)
    run = trying()
    choose_method(run, make_request(storage_budget=(1.5,)), 2, silent)
    assert run.evaluated[-1].request.method == "gsop-r"


def test_the_best_are_compared_again_and_the_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    run, asked = trying(), []

    def score_again(trials: list[EvaluatedPlan]) -> list[EvaluatedPlan]:
        asked.extend(trials)
        return [replace(trial, score=1 - trial.score) for trial in trials]

    monkeypatch.setattr(run, "score_again", score_again)
    chosen = choose_method(run, make_request(), 2, silent)
    scores = [trial.score for trial in run.evaluated]
    assert [trial.score for trial in asked] == [score for score in scores if score <= 1.5 * min(scores)]
    assert len(asked) < len(scores)
    assert chosen == max(asked, key=lambda trial: trial.score).request


@pytest.mark.long
@pytest.mark.parametrize(
    ("found", "planned"),
    [((("kind",),), ("kind",)), (((),), ("none",)), ((("kind",), ("day",)), ("auto",)), ((), ("auto",))],
)
def test_the_order_of_rows_that_was_found_is_not_searched_again(
    found: tuple[tuple[str, ...], ...], planned: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trying()

    def score_again(trials: list[EvaluatedPlan]) -> list[EvaluatedPlan]:
        return [replace(trial, row_orders=found) for trial in trials]

    monkeypatch.setattr(run, "score_again", score_again)
    assert choose_method(run, make_request(), 2, silent).row_order == planned
    assert choose_method(run, make_request(row_order=("day",)), 2, silent).row_order == ("day",), "as was asked"


def trying_two() -> HoldOutEvaluation:
    """Two plans of one layout, to be judged again on segments that a test makes up."""
    run = trying()
    run.rows = object()  # type: ignore[assignment]  # nobody reads them here
    for method in ("sop", "input-order"):
        run.score(make_request(method=method), 2)
    return run


def test_what_is_smaller_as_a_whole_is_not_judged_by_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """One plan reads half of 100 bytes, the other two thirds of 60: the other reads less."""
    run = trying_two()

    def rehearsed(rows: object, trials: list[Trial], queries: list[Query]) -> list[TrialResult]:
        n, plans = len(queries), [trial.plan for trial in trials]
        nothing = (0.0,) * n
        return [
            TrialResult(plans[0], (50.0,) * n, (100.0,) * n, nothing),
            TrialResult(plans[1], (40.0,) * n, (60.0,) * n, nothing),
        ]

    monkeypatch.setattr("layoutopt.planning.hold_out.try_on_segments", rehearsed)
    assert [trial.score for trial in run.score_again(list(run.evaluated))] == [0.5, 0.4]
    assert [trial.score for trial in run.evaluated] == [0.5, 0.4]


def test_methods_that_cannot_plan_are_left_out() -> None:
    bare = replace(kinds(), queries=())
    run = HoldOutEvaluation([Fold({2: bare}, kinds().queries)], sample_of(bare), "day", silent)
    choose_method(run, make_request(), 2, silent)
    assert {"sort", "range", "zorder"}.isdisjoint(trial.request.method for trial in run.evaluated)


def test_tuning_tries_the_grid_and_then_block_sizes() -> None:
    few = replace(kinds(), features=replace(kinds().features, features=kinds().features.features[:1]))
    run = trying(t2=kinds(), t4=few)
    best = tune(run, make_request(method="sop"), [2, 4])
    tried_ones = [(one.threshold, one.request.num_features, one.request.block_rows) for one in run.evaluated]
    assert tried_ones[:2] == [(2, 4, 200), (4, 1, 200)]
    assert {(t, n) for t, n, _ in tried_ones[2:]} == {(2, 4)}
    assert [rows for *_, rows in tried_ones[2:]] == [50, 100, 400]
    assert best == min(run.evaluated, key=lambda trial: trial.score)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "rows.parquet"
    pq.write_table(rows(), path)
    return path


@pytest.fixture(scope="module")
def log() -> FeaturesDocument:
    doc = document(SCHEMA, [is_value(SCHEMA, "kind", "=", number % 4) for number in range(24)])
    return replace(doc, features=kinds().features)


@pytest.mark.spark
class TestPlanBest:
    @pytest.fixture(autouse=True)
    def _few_folds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each fold needs plans of its own, and five prove no more than two."""
        monkeypatch.setattr("layoutopt.features.cross_validation.FOLDS", 2)

    def test_auto_keeps_what_it_tried_in_the_plan(
        self, spark: SparkSession, source: Path, log: FeaturesDocument, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        some = ("input-order", "cuts", "gsop")
        monkeypatch.setattr("layoutopt.planning.automatic.CANDIDATES", some)
        request = PlanRequest(partition_by="day", block_rows=20, segment_rows=1000)
        plan = plan_best(spark, source, log, request)
        shares = Predictions.parse(plan.predicted).shares
        assert set(shares) == set(some)
        assert shares[plan.method] == min(shares.values())
        assert Plan.loads(plan.dumps()) == plan
        assert plan_best(spark, source, log, request).dumps() == plan.dumps()

    @pytest.mark.long
    def test_tuning_plans_by_the_best_parameters(
        self, spark: SparkSession, source: Path, log: FeaturesDocument
    ) -> None:
        plan = plan_best(spark, source, log, PlanRequest("sop", "day", block_rows=40, tune=True))
        best = next(iter(Predictions.parse(plan.predicted).shares))
        assert best.endswith(f"block-rows={plan.block_rows}")

    def test_what_is_of_no_use_or_cannot_be_is_said(
        self, spark: SparkSession, source: Path, log: FeaturesDocument
    ) -> None:
        request = PlanRequest(partition_by="day")
        few = replace(log, queries=log.queries[:3])
        with pytest.raises(PlanError, match="3 queries are too few"):
            plan_best(spark, source, few, replace(request, tune=True))
        said: list[str] = []
        assert plan_best(spark, source, few, request, said.append).method == "sop"
        assert said[0].startswith("the log's 3 queries are too few to choose by: sop")


@pytest.mark.long
@pytest.mark.spark
def test_trials_and_rehearsals_side_by_side_say_what_they_say_alone(spark: SparkSession) -> None:
    rows_of_source = simple_rows(spark, 400)
    doc = simple_document(rows_of_source)
    fold = Fold({1: replace(doc, queries=doc.queries[:3])}, doc.queries[3:])
    request = PlanRequest(block_rows=20, segment_rows=1000, guides="features")
    wanted = [replace(request, method=method) for method in ("cuts", "sort", "input-order")]
    wanted[1] = replace(wanted[1], by=("text",))
    alone, together = (
        draw_evaluation(source_rows(rows_of_source, request.partition_by), request, [fold], lambda sentence: None)
        for _ in range(2)
    )
    for each in wanted:
        alone.score(each, 1)
    assert score_all(together, wanted, 1) == alone.evaluated == together.evaluated
    plans = [Trial(trial.plans[0], trial.request.method == "cuts") for trial in alone.evaluated]
    apart = [
        try_on_segments(source_rows(rows_of_source, request.partition_by), [trial], doc.queries)[0] for trial in plans
    ]
    assert try_on_segments(source_rows(rows_of_source, request.partition_by), plans, doc.queries) == apart
    assert all(one.stored > 0 for one in apart)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("partition_by", ["day", *long_too(None)])
def test_plans_of_folds_have_features_of_their_own(spark: SparkSession, partition_by: str | None) -> None:
    rows_of_source = simple_rows(spark, 400)
    doc = simple_document(rows_of_source)
    some = [range(len(doc.features) - 1), range(len(doc.features) - 1, 0, -1)]
    folds = [Fold({1: replace(doc, features=doc.features.only(kept))}, doc.queries) for kept in some]
    request = PlanRequest("sop", partition_by, block_rows=20, segment_rows=1000)
    evaluation = draw_evaluation(
        source_rows(rows_of_source, request.partition_by), request, folds, lambda sentence: None
    )
    evaluation.score(request, 1)
    (trial,) = evaluation.evaluated
    plans = [Trial(plan, search=False) for plan in trial.plans]
    apart = [
        try_on_segments(source_rows(rows_of_source, request.partition_by), [plan], doc.queries)[0] for plan in plans
    ]
    assert apart[0].read != apart[1].read
    assert try_on_segments(source_rows(rows_of_source, request.partition_by), plans, doc.queries) == apart
    assert evaluation.score_again([trial])
