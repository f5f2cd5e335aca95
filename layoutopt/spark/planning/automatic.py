"""``--method auto`` and ``--tune``: method and parameters by what queries held back would read (Sun 2017, 3.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from layoutopt.config.settings import PlanSettings
from layoutopt.errors import PlanError, SettingError
from layoutopt.features.choose import default_threshold
from layoutopt.features.holdout import hold_back, mined_from
from layoutopt.methods.proposals import FEATURES
from layoutopt.methods.registry import BY_ORDER, is_sampled
from layoutopt.model.document import FeaturesDocument
from layoutopt.model.layout import Plan
from layoutopt.model.predicted import when_tried
from layoutopt.spark.planning.guides import choose_guides, plan_by_best_guides
from layoutopt.spark.planning.histograms import Progress
from layoutopt.spark.planning.hold_out import EvaluatedPlan, HoldOutEvaluation, start_evaluation
from layoutopt.spark.planning.plan import make_plan, request_of

CANDIDATES: Final = ("input-order", "range", "zorder", "hilbert", "predicate-sort", "qdtree", "sop", "cuts", "gsop")
"""The methods that ``auto`` tries; ``gsop-r`` too where a storage budget is given."""

ALONE: Final = "sop"
"""What ``auto`` is where there are no queries to choose by."""

THRESHOLDS: Final = (1, 2, 4)
_FEATURES: Final = (7, 14, 28, 56)
_FEATURE_SHARES: Final = (0.25, 0.5, 1.0)
BLOCK_ROWS: Final = (0.25, 0.5, 2.0)
"""What is tuned over: T times these, numFeat for one layout and for several, and block sizes times these."""


def plan_best(
    spark: SparkSession,
    settings: PlanSettings,
    document: FeaturesDocument,
    progress: Progress | None = None,
    draw: Callable[[Sequence[EvaluatedPlan], Path], None] | None = None,
) -> Plan:
    """Plan as the settings of ``layoutopt plan`` say; method and parameters are found where they are left open.

    What was tried, and what it would have read of the queries held back, is among the plan's predictions; ``draw`` is
    given it too, with the file of ``--tune-plot``.

    Raises:
        SettingError: a setting that is of no use with the others; as :func:`~layoutopt.spark.planning.plan.make_plan`.
        PlanError: no query can be held back to tune by; as :func:`~layoutopt.spark.planning.plan.make_plan`.
    """
    say = progress or (lambda sentence: None)
    open_guides = settings.method == ALONE and settings.guides == "auto" and bool(hold_back(document.queries)[1])
    if settings.method != "auto" and not settings.tune:
        if settings.resamples:
            raise SettingError(f"--resamples {settings.resamples} judge plans; give --tune or --method auto too")
        if open_guides:
            return plan_by_best_guides(spark, settings, document, say)
        return make_plan(spark, settings.source, document, request_of(settings), say)
    if not settings.tune and not hold_back(document.queries)[1]:
        few = f"no four of the log's {len(document.queries)} queries are alike"
        say(f"{few}, so there is nothing to choose by: {ALONE}")
        return make_plan(spark, settings.source, document, replace(request_of(settings), method=ALONE), say)
    default = default_threshold(document.queries)
    thresholds = [factor * default for factor in (THRESHOLDS if settings.tune else (1,))]
    evaluation = start_evaluation(spark, settings, document, thresholds, say)
    tried: dict[str, float] = {}
    if settings.method == "auto":
        settings = choose_method(evaluation, settings, default)
        tried |= {when_tried(trial.settings.method): trial.score for trial in evaluation.evaluated}
    elif open_guides:
        settings = choose_guides(evaluation, settings, default)
    if settings.tune:
        evaluation.evaluated.clear()
        best = tune(evaluation, settings, thresholds)
        tried |= {when_tried(label_of(trial)): trial.score for trial in evaluation.evaluated}
        if settings.tune_plot is not None and draw is not None:
            draw(evaluation.evaluated, settings.tune_plot)
        settings = best.settings
        if best.threshold != default:
            document = mined_from(document, document.queries, threshold=best.threshold)
    plan = make_plan(spark, settings.source, document, request_of(settings), say)
    return replace(plan, predicted={**plan.predicted, **tried})


def choose_method(evaluation: HoldOutEvaluation, settings: PlanSettings, threshold: int) -> PlanSettings:
    """The settings with the method that reads the fewest bytes; of equals the first of the candidates.

    Copies are tried only where a storage budget was given, since they are the user's to pay for.
    """
    if settings.guides != "auto":
        raise SettingError(f"--guides {settings.guides} are of one method; give --method sop too, or leave them out")
    methods = [*CANDIDATES]
    if "storage_budget" in settings.model_fields_set and max(settings.storage_budget) > 1:
        methods.append("gsop-r")
    for method in methods:
        by = settings.by if method in BY_ORDER else ()
        try:
            evaluation.score(settings.model_copy(update={"method": method, "by": by, "guides": FEATURES}), threshold)
        except PlanError:  # no column to order by, or no feature that fits: others may plan
            continue
    best = min(evaluation.evaluated, key=lambda trial: trial.score, default=None)
    if best is None:
        raise PlanError("no method can plan for these queries; name one with --method to see why")
    return best.settings


def tune(evaluation: HoldOutEvaluation, settings: PlanSettings, thresholds: Sequence[int]) -> EvaluatedPlan:
    """The best T, numFeat and block size: the first two together, since they interact, then the last."""
    for threshold in thresholds:
        most = len(evaluation.documents[threshold].features)
        for count in numbers_of_features(settings, most):
            evaluation.score(settings.model_copy(update={"num_features": count}), threshold)
    best = _best(evaluation)
    for factor in BLOCK_ROWS:
        rows = max(1, round(factor * settings.block_rows))
        evaluation.score(best.settings.model_copy(update={"block_rows": rows}), best.threshold)
    return _best(evaluation)


def label_of(trial: EvaluatedPlan) -> str:
    """The parameters of a trial in words."""
    return f"T={trial.threshold} num-features={trial.settings.num_features} block-rows={trial.settings.block_rows}"


def numbers_of_features(settings: PlanSettings, most: int) -> list[int]:
    """The numbers of features to try of ``most``, ascending."""
    if is_sampled(settings.method):
        return sorted({max(1, round(share * most)) for share in _FEATURE_SHARES})
    return sorted({min(count, most) for count in _FEATURES})


def _best(evaluation: HoldOutEvaluation) -> EvaluatedPlan:
    return min(evaluation.evaluated, key=lambda trial: trial.score)
