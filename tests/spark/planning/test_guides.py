"""What guides the blocks of one layout: chosen by queries held back, or asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.errors import PlanError, SettingError
from layoutopt.methods.interface import PlanRequest
from layoutopt.methods.registry import check_request
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.layout import ByCuts, ByVectors
from layoutopt.model.predictions import held_out_shares
from layoutopt.model.schema import Column, Schema
from layoutopt.model.vectors import pack
from layoutopt.planning.automatic import choose_guides, choose_method
from layoutopt.planning.hold_out import EvaluatedPlan, Fold, HoldOutEvaluation
from layoutopt.planning.sample_evaluation import RowSample, SampledSegment
from tests.spark.plans import plan_best
from tests.spark.tables import document, is_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = Schema((Column("id", "int"), Column("kind", "int")))


def rows(n: int = 400) -> pa.Table:
    ids = np.arange(n)
    return pa.table({"id": pa.array(ids, pa.int32()), "kind": pa.array(ids * 7 % 5, pa.int32())})


def kinds(queries: int = 4) -> FeaturesDocument:
    """Queries of four kinds, with a feature for each kind."""
    made = document(SCHEMA, [is_value(SCHEMA, "kind", "=", number % 4) for number in range(queries)])
    return replace(made, features=document(SCHEMA, [is_value(SCHEMA, "kind", "=", k) for k in range(4)]).features)


def evaluation() -> HoldOutEvaluation:
    doc = kinds()
    words = pack(np.asarray(rows()["kind"])[:, None] == np.arange(4))
    sample = RowSample(doc.features, (SampledSegment(None, 400, 400, rows(), words),))
    return HoldOutEvaluation([Fold({2: doc}, doc.queries)], sample, None, lambda sentence: None)


def make_request(**changed: Any) -> PlanRequest:
    return replace(PlanRequest("sop", block_rows=20), **changed)


@pytest.mark.parametrize(("by_cuts", "chosen"), [(0.1, "cuts"), (0.199, "features"), (0.3, "features")])
def test_cuts_guide_where_they_read_clearly_less(by_cuts: float, chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {"features": 0.2, "cuts": by_cuts}

    def scored(run: HoldOutEvaluation, asked: Sequence[PlanRequest], threshold: int) -> list[EvaluatedPlan]:
        return [EvaluatedPlan(each, threshold, scores[each.guides]) for each in asked]

    monkeypatch.setattr("layoutopt.planning.automatic.score_all", scored)
    assert choose_guides(evaluation(), make_request(), 2).guides == chosen


def test_guides_that_cannot_plan_are_not_chosen_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(run: HoldOutEvaluation, asked: Sequence[PlanRequest], threshold: int) -> list[EvaluatedPlan | PlanError]:
        return [EvaluatedPlan(asked[0], threshold, 0.5), PlanError("no column to cut by")]

    monkeypatch.setattr("layoutopt.planning.automatic.score_all", failed)
    with pytest.raises(PlanError, match="no column to cut by"):
        choose_guides(evaluation(), make_request(), 2)


def test_one_layout_is_blocked_by_what_guides_it() -> None:
    run = evaluation()
    layouts = {}
    for guides in ("auto", "features", "cuts", "both"):
        asked = make_request(guides=guides)
        (layouts[guides],) = run._plan(kinds(), asked).scheme.layouts
        assert run.score(asked, 2) < 0.4
    assert layouts["auto"] == layouts["features"]
    assert isinstance(layouts["features"].blocking, ByVectors)
    assert layouts["cuts"].blocking == layouts["both"].blocking == ByCuts(("kind",))
    assert layouts["cuts"].features == ()
    assert layouts["both"].features == (0, 1, 2, 3)


def test_guides_without_a_choice_are_refused() -> None:
    with pytest.raises(SettingError, match="--guides cuts"):
        choose_method(evaluation(), make_request(method="auto", guides="cuts"), 2, lambda sentence: None)
    with pytest.raises(SettingError, match="'gsop' has no choice of guides"):
        check_request(PlanRequest(method="gsop", guides="both"))
    with pytest.raises(SettingError, match="--guides is 'dates'"):
        check_request(make_request(guides="dates"))


@pytest.mark.long
@pytest.mark.spark
def test_what_guides_one_layout_is_chosen_and_kept_in_the_plan(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(rows(), tmp_path / "rows.parquet")
    source, log = tmp_path / "rows.parquet", kinds(24)
    assert set(held_out_shares(plan_best(spark, source, log, make_request()).predicted)) == {"features", "cuts"}
    by_cuts = plan_best(spark, source, log, make_request(guides="cuts"))
    assert by_cuts.method == "sop"
    assert not held_out_shares(by_cuts.predicted)
    assert by_cuts.scheme.layouts[0].blocking == ByCuts(("kind",))
    few = replace(log, queries=log.queries[:3])
    assert not held_out_shares(plan_best(spark, source, few, make_request()).predicted)


@pytest.mark.spark
def test_a_source_without_rows_is_planned_by_features(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(rows(0), tmp_path / "rows.parquet")
    (layout,) = plan_best(spark, tmp_path / "rows.parquet", kinds(24), make_request()).scheme.layouts
    assert isinstance(layout.blocking, ByVectors)
