"""What guides the blocks of one layout where ``--guides`` is ``auto``: features or cuts, by queries held back (3.6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from layoutopt.config.settings import PlanSettings
from layoutopt.errors import PlanError
from layoutopt.events import Progress
from layoutopt.features.choose import default_threshold
from layoutopt.methods.proposals import CUTS, FEATURES
from layoutopt.model.document import FeaturesDocument
from layoutopt.model.layout import Plan
from layoutopt.model.predicted import when_tried
from layoutopt.spark.core.sessions import AnySession
from layoutopt.spark.planning.hold_out import HoldOutEvaluation, start_evaluation
from layoutopt.spark.planning.plain_rows import Rows
from layoutopt.spark.planning.plan import make_plan, request_of
from layoutopt.spark.planning.side_by_side import score_all

_LESS_BY_CUTS: Final = 0.97
"""Cuts are taken where they read so little of what features do: within it, what the queries held back say is noise."""


def plan_by_best_guides(spark: AnySession, settings: PlanSettings, document: FeaturesDocument, say: Progress) -> Plan:
    """Plan by the guides that are better, and keep among the plan's predictions what either would have read.

    Raises:
        SchemaError, SettingError, SourceError, PlanError: as :func:`layoutopt.spark.planning.plan.make_plan`.
    """
    threshold = default_threshold(document.queries)
    tried: dict[str, float] = {}
    rows: Rows | None = None
    try:
        evaluation = start_evaluation(spark, settings, document, [threshold], say)
        rows, settings = evaluation.rows, choose_guides(evaluation, settings, threshold)
        tried = {when_tried(trial.settings.guides): trial.score for trial in evaluation.evaluated}
    except PlanError:  # a source without rows: there is nothing to choose by, and nothing to choose
        settings = settings.model_copy(update={"guides": FEATURES})
    plan = make_plan(spark, settings.source, document, request_of(settings), say, rows=rows)
    return replace(plan, predicted={**plan.predicted, **tried})


def choose_guides(evaluation: HoldOutEvaluation, settings: PlanSettings, threshold: int) -> PlanSettings:
    """The settings of ``sop`` with features as guides, or with cuts where these read clearly less.

    Raises:
        PlanError: one of them can't plan.
    """
    features, cuts = (settings.model_copy(update={"guides": guides}) for guides in (FEATURES, CUTS))
    scores = []
    for trial in score_all(evaluation, (features, cuts), threshold):
        if isinstance(trial, PlanError):
            raise trial
        scores.append(trial.score)
    return cuts if scores[1] < _LESS_BY_CUTS * scores[0] else features
