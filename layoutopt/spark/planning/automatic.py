"""``--method auto`` and ``--tune``: method and parameters by what queries held back would read (Sun 2017, 3.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from layoutopt.config.documents import read_calibration
from layoutopt.config.settings import PlanSettings
from layoutopt.errors import PlanError, SettingError
from layoutopt.events import Progress
from layoutopt.features.cross_validation import can_be_split
from layoutopt.features.selection import default_threshold, mined_from
from layoutopt.methods.interface import CUTS, FEATURES
from layoutopt.methods.registry import BY_ORDER, is_sampled
from layoutopt.model.documents import FeaturesDocument
from layoutopt.model.engine_costs import BUILT_IN, Calibration, calibrated, spread_when_tried, when_tried
from layoutopt.model.layout import Plan
from layoutopt.model.methods import TRIED
from layoutopt.model.query import Query
from layoutopt.spark.core.sessions import AnySession
from layoutopt.spark.planning.hold_out import (
    BYTES,
    TIME,
    EvaluatedPlan,
    HoldOutEvaluation,
    Objective,
    clearly_less,
    score_all,
    spread,
    start_evaluation,
    statements_to_tell,
)
from layoutopt.spark.planning.plan import ALONE, make_plan, request_of
from layoutopt.spark.planning.row_order import AUTO, NONE
from layoutopt.spark.planning.source_profile import Rows

# ----------------------------------------------------------------------------------------------------
# What guides the blocks of one layout where ``--guides`` is ``auto``: features or cuts, by queries held back (3.6).

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


# The methods that ``auto`` tries; ``gsop-r`` too where a storage budget is given.
CANDIDATES: Final = TRIED

_BY_BYTES: Final = Objective()
_LESS_BY_LAYOUTS: Final = 0.95
"""Several layouts are taken where they read so little of what one does."""

_CLOSE: Final = 1.5
"""Methods are rehearsed that read less than so many times what the best does: samples were wrong by a third."""

SIZES: Final = (0.25, 0.5, 2.0, 4.0, 8.0)
"""Block sizes that are tried by time, times the default."""

THRESHOLDS: Final = (1, 2, 4)
_FEATURES: Final = (7, 14, 28, 56)
_FEATURE_SHARES: Final = (0.25, 0.5, 1.0)
BLOCK_ROWS: Final = (0.25, 0.5, 2.0)
"""What is tuned over: T times these, numFeat for one layout and for several, and block sizes times these."""


def plan_best(
    spark: AnySession,
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
    _check_objective(settings)
    say = progress or (lambda sentence: None)
    open_guides = settings.method == ALONE and settings.guides == "auto" and can_be_split(document.queries)
    if settings.method != "auto" and not settings.tune:
        if settings.resamples:
            raise SettingError(f"--resamples {settings.resamples} judge plans; give --tune or --method auto too")
        if open_guides:
            return plan_by_best_guides(spark, settings, document, say)
        return make_plan(spark, settings.source, document, request_of(settings), say)
    if not settings.tune and not can_be_split(document.queries):
        say(f"the log's {len(document.queries)} queries are too few to choose by: {ALONE}")
        return make_plan(spark, settings.source, document, replace(request_of(settings), method=ALONE), say)
    default = default_threshold(document.queries)
    thresholds = [factor * default for factor in (THRESHOLDS if settings.tune else (1,))]
    evaluation = start_evaluation(spark, settings, document, thresholds, say)
    tried: dict[str, float] = {}
    if settings.method == "auto":
        given = given_calibration(settings)
        objective = objective_of(settings, given)
        settings = choose_method(evaluation, settings, default, say, objective)
        for trial in evaluation.evaluated:
            label = _label(trial, settings)
            tried[when_tried(label, trial.by)] = trial.score
            tried[spread_when_tried(label, trial.by)] = spread(trial, evaluation.held)
        if given is not None:  # whoever reads the plan can then tell what it was chosen by
            tried |= calibrated(settings.engine, given.costs(settings.engine).seconds_of)
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
    plan = make_plan(spark, settings.source, document, request_of(settings), say, rows=evaluation.rows)
    return replace(plan, predicted={**plan.predicted, **tried})


def given_calibration(settings: PlanSettings) -> Calibration | None:
    """What engines cost on the user's machine, where a file says so; it counts for plans by time alone."""
    if settings.calibration is None or settings.objective != TIME:
        return None
    return read_calibration(settings.calibration)


def objective_of(settings: PlanSettings, calibration: Calibration | None) -> Objective:
    """What plans are judged by; without a calibration by the built-in costs, the same on every machine.

    Raises:
        PlanError: the engine was not calibrated.
    """
    return Objective(settings.objective, (calibration or BUILT_IN).costs(settings.engine))


def _check_objective(settings: PlanSettings) -> None:
    if settings.objective != BYTES and (settings.method != "auto" or settings.tune):
        raise SettingError(f"--objective {settings.objective} is what `auto` goes by; leave out --method and --tune")
    if settings.calibration is not None and settings.objective != TIME:
        raise SettingError("--calibration is of no use without --objective time; give that too, or leave it out")


def _label(trial: EvaluatedPlan, settings: PlanSettings) -> str:
    """The method of a trial, with its block size where that is not the plan's."""
    rows = trial.settings.block_rows
    return trial.settings.method if rows == settings.block_rows else f"{trial.settings.method} block-rows={rows}"


def choose_method(
    evaluation: HoldOutEvaluation,
    settings: PlanSettings,
    threshold: int,
    say: Progress,
    objective: Objective = _BY_BYTES,
) -> PlanSettings:
    """The settings with the method that takes the least; of equals the first of the candidates.

    Those that read about the fewest bytes on a sample of rows are compared once more, by the objective, on whole
    segments, where blocks have their full size and the order of rows that they would have. By time, block sizes are
    compared then too where none was given. Several layouts have to read clearly less than the best method
    of one: a query pays for putting rows together, so a small gain, or one that the queries held back don't prove, is
    none. Copies are tried only where a storage budget was given, since they are the user's to pay for.

    Raises:
        PlanError: no method can plan for the queries.
        SettingError: guides were chosen, but no method.
    """
    if settings.guides != "auto":
        raise SettingError(f"--guides {settings.guides} are of one method; give --method sop too, or leave them out")
    methods = [*CANDIDATES]
    if "storage_budget" in settings.model_fields_set and max(settings.storage_budget) > 1:
        methods.append("gsop-r")
    # What is chosen for the user is no peer to compare with: its blocks are sorted too.
    common = {"guides": FEATURES, "row_order": settings.row_order or (AUTO,)}
    by = {method: settings.by if method in BY_ORDER else () for method in methods}
    asked = [settings.model_copy(update={**common, "method": method, "by": by[method]}) for method in methods]
    score_all(evaluation, asked[::-1], threshold)  # those that take longest are named last
    evaluation.evaluated.reverse()
    if not evaluation.evaluated:
        raise PlanError("no method can plan for these queries; name one with --method to see why")
    fewest = _best(evaluation).score
    among = [trial for trial in evaluation.evaluated if trial.score <= _CLOSE * fewest]
    singles = [trial for trial in evaluation.evaluated if _has_one_layout(trial)]
    if objective.kind != BYTES and singles and not any(map(_has_one_layout, among)):
        among.append(min(singles, key=_score))  # what reads more may take less
    close = evaluation.score_again(among, objective)
    chosen = the_better(close, evaluation.held)
    _say_why(close, chosen, evaluation.held, say)
    if objective.kind == TIME and "block_rows" not in settings.model_fields_set:
        say("trying other block sizes")
        chosen = _best_block_rows(evaluation, chosen, objective)
    if chosen.settings.row_order == (AUTO,) and not settings.tune:  # which may find other parameters yet
        return chosen.settings.model_copy(update={"row_order": row_order_found(chosen)})
    return chosen.settings


def row_order_found(trial: EvaluatedPlan) -> tuple[str, ...]:
    """What to plan with: the order that a single layout was rehearsed with; several layouts have one each."""
    return (trial.row_orders[0] or (NONE,)) if len(trial.row_orders) == 1 else (AUTO,)


def the_better(trials: Sequence[EvaluatedPlan], held: Sequence[Query]) -> EvaluatedPlan:
    """What takes the least; several layouts only where they take clearly less than any single one.

    Args:
        trials: at least one, all judged alike.
        held: the queries held back that they were judged by.
    """
    best = min(trials, key=_score)
    single = min((trial for trial in trials if _has_one_layout(trial)), key=_score, default=best)
    gains = best.score < _LESS_BY_LAYOUTS * single.score and clearly_less(best, single, held)
    return best if gains else single


def _best_block_rows(evaluation: HoldOutEvaluation, trial: EvaluatedPlan, objective: Objective) -> EvaluatedPlan:
    """A trial with the block size that takes the least; of equals its own."""
    sizes = (round(factor * trial.settings.block_rows) for factor in SIZES)
    others = [_with_block_rows(trial, rows) for rows in sizes]
    evaluation.evaluated += others
    return min(evaluation.score_again([trial, *others], objective), key=_score)


def _with_block_rows(trial: EvaluatedPlan, rows: int) -> EvaluatedPlan:
    settings = trial.settings.model_copy(update={"block_rows": rows})
    return replace(trial, settings=settings, plans=tuple(replace(plan, block_rows=rows) for plan in trial.plans))


def _say_why(close: Sequence[EvaluatedPlan], chosen: EvaluatedPlan, held: Sequence[Query], say: Progress) -> None:
    """Say what else was as good, and what would tell."""
    others = [trial for trial in close if trial is not chosen]
    if not others:
        return
    next_best = min(others, key=_score)
    if next_best.score < chosen.score:
        say(f"{next_best.settings.method} reads less, but by too little for several layouts: {chosen.settings.method}")
    elif more := statements_to_tell(chosen, next_best, held):
        names = f"{chosen.settings.method} and {next_best.settings.method}"
        say(f"the log can't tell {names} apart; about {more:,} more queries like these would")


def _has_one_layout(trial: EvaluatedPlan) -> bool:
    return not is_sampled(trial.settings.method)


def _score(trial: EvaluatedPlan) -> float:
    return trial.score


def tune(evaluation: HoldOutEvaluation, settings: PlanSettings, thresholds: Sequence[int]) -> EvaluatedPlan:
    """The best T, numFeat and block size: the first two together, since they interact, then the last."""
    for threshold in thresholds:
        most = max(len(fold.documents[threshold].features) for fold in evaluation.folds)
        counts = numbers_of_features(settings, most) if most else ()
        score_all(evaluation, [settings.model_copy(update={"num_features": count}) for count in counts], threshold)
    if not evaluation.evaluated:
        raise PlanError(
            f"{settings.method} can't plan for these queries whatever is tuned; leave out --tune to see why"
        )
    best = _best(evaluation)
    sizes = [max(1, round(factor * settings.block_rows)) for factor in BLOCK_ROWS]
    score_all(evaluation, [best.settings.model_copy(update={"block_rows": rows}) for rows in sizes], best.threshold)
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
    return min(evaluation.evaluated, key=_score)
