"""Choose method and parameters by what queries held out would read (Sun 2017, 3.6).

Three settings of ``plan`` are chosen so: ``--method auto``, ``--tune``, and ``--guides auto``, which decides between
features and cuts for the blocks of one layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from layoutopt.errors import PlanError, SettingError
from layoutopt.events import Progress
from layoutopt.features.cross_validation import can_be_split
from layoutopt.features.selection import default_threshold, mine_subset
from layoutopt.methods.interface import CUTS, FEATURES, PlanRequest
from layoutopt.methods.registry import BY_ORDER, is_sampled
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.layout import Plan
from layoutopt.model.methods import AUTO, TRIED
from layoutopt.model.predictions import Predictions
from layoutopt.model.query import Query
from layoutopt.planning.hold_out import (
    EvaluatedPlan,
    HoldOutEvaluation,
    reads_clearly_less,
    score_all,
    score_deviation,
    start_evaluation,
    statements_to_tell,
)
from layoutopt.planning.plan import SINGLE_LAYOUT, OpenRows, make_plan
from layoutopt.planning.row_order import NONE
from layoutopt.planning.rows import SourceRows

# The methods that ``auto`` tries; ``gsop-r`` too where a storage budget is given.
CANDIDATES: Final = TRIED
# Cuts are chosen where they read so little of what features do; less is noise of the queries held out.
_LESS_BY_CUTS: Final = 0.97
# Several layouts are chosen where they read so little of what one does.
_LESS_BY_LAYOUTS: Final = 0.95
# Methods that read at most so many times the least are tried on segments: samples were wrong by a third.
_CLOSE: Final = 1.5
# Values to tune over: times T; numFeat of one layout; shares of the features of several; times the block size.
THRESHOLDS: Final = (1, 2, 4)
_FEATURES: Final = (7, 14, 28, 56)
_FEATURE_SHARES: Final = (0.25, 0.5, 1.0)
BLOCK_ROWS: Final = (0.25, 0.5, 2.0)


def plan_best(
    open_rows: OpenRows,
    document: FeaturesDocument,
    request: PlanRequest,
    progress: Progress | None = None,
) -> Plan:
    """Plan as the request says, choosing method and parameters where they are left open.

    What was tried, and what it would have read of the queries held out, is added to the plan's predictions.

    Raises:
        SettingError: as :func:`~layoutopt.planning.plan.make_plan`.
        PlanError: no query can be held out to tune by; as :func:`~layoutopt.planning.plan.make_plan`.
    """
    say = progress or (lambda sentence: None)
    open_guides = request.method == SINGLE_LAYOUT and request.guides == AUTO and can_be_split(document.queries)
    if request.method != AUTO and not request.tune:
        if open_guides:
            return _plan_by_best_guides(open_rows, document, request, say)
        return make_plan(open_rows, document, request, say)
    if not request.tune and not can_be_split(document.queries):
        say(f"the log's {len(document.queries)} queries are too few to choose by: {SINGLE_LAYOUT}")
        return make_plan(open_rows, document, request, say)
    default = default_threshold(document.queries)
    thresholds = [factor * default for factor in (THRESHOLDS if request.tune else (1,))]
    evaluation = start_evaluation(open_rows, document, request, thresholds, say)
    shares: dict[str, float] = {}
    spreads: dict[str, float] = {}
    if request.method == AUTO:
        request = choose_method(evaluation, request, default, say)
        shares = {trial.request.method: trial.score for trial in evaluation.evaluated}
        spreads = {trial.request.method: score_deviation(trial, evaluation.held) for trial in evaluation.evaluated}
    elif open_guides:
        request = choose_guides(evaluation, request, default)
    if request.tune:
        evaluation.evaluated.clear()
        best = tune(evaluation, request, thresholds)
        shares |= {parameter_label(trial): trial.score for trial in evaluation.evaluated}
        request = best.request
        if best.threshold != default:
            document = mine_subset(document, document.queries, threshold=best.threshold)
    plan = make_plan(open_rows, document, request, say, rows=evaluation.rows)
    return _add_predictions(plan, Predictions(shares=shares, spreads=spreads))


def _add_predictions(plan: Plan, predictions: Predictions) -> Plan:
    return replace(plan, predicted={**plan.predicted, **predictions.to_stored()})


def _plan_by_best_guides(open_rows: OpenRows, document: FeaturesDocument, request: PlanRequest, say: Progress) -> Plan:
    """Plan by the better guides, and add to the plan's predictions what either would have read."""
    threshold = default_threshold(document.queries)
    shares: dict[str, float] = {}
    rows: SourceRows | None = None
    try:
        evaluation = start_evaluation(open_rows, document, request, [threshold], say)
        rows, request = evaluation.rows, choose_guides(evaluation, request, threshold)
        shares = {trial.request.guides: trial.score for trial in evaluation.evaluated}
    except PlanError:  # a source without rows: there is nothing to choose by
        request = replace(request, guides=FEATURES)
    plan = make_plan(open_rows, document, request, say, rows=rows)
    return _add_predictions(plan, Predictions(shares=shares))


def choose_guides(evaluation: HoldOutEvaluation, request: PlanRequest, threshold: int) -> PlanRequest:
    """Return the request of ``sop`` with features as guides, or with cuts where these read clearly less.

    Raises:
        PlanError: one of them can't plan.
    """
    features, cuts = (replace(request, guides=guides) for guides in (FEATURES, CUTS))
    scores = []
    for trial in score_all(evaluation, (features, cuts), threshold):
        if isinstance(trial, PlanError):
            raise trial
        scores.append(trial.score)
    return cuts if scores[1] < _LESS_BY_CUTS * scores[0] else features


def choose_method(evaluation: HoldOutEvaluation, request: PlanRequest, threshold: int, say: Progress) -> PlanRequest:
    """Return the request with the method by which queries read the least; of equals the first of the candidates.

    Methods that read about the fewest bytes on a sample of rows are compared again on whole segments, where blocks
    have their full size and their order of rows. Several layouts have to read clearly less than the best single one: a
    query pays for joining rows, so a small gain, or one that the queries held out don't prove, does not count. Copies
    are tried only where the user gave a storage budget for them.

    Raises:
        PlanError: no method can plan for the queries.
        SettingError: guides were chosen, but no method.
    """
    if request.guides != AUTO:
        raise SettingError(f"--guides {request.guides} are of one method; give --method sop too, or leave them out")
    methods = [*CANDIDATES]
    if request.storage_budget is not None and max(request.storage_budget) > 1:
        methods.append("gsop-r")
    # The chosen method is no peer to compare with: its blocks are sorted too.
    common = replace(request, guides=FEATURES, row_order=request.row_order or (AUTO,))
    candidates = [replace(common, method=name, by=request.by if name in BY_ORDER else ()) for name in methods]
    score_all(evaluation, candidates[::-1], threshold)  # those that take longest are last in the list
    evaluation.evaluated.reverse()
    if not evaluation.evaluated:
        raise PlanError("no method can plan for these queries; name one with --method to see why")
    fewest = min(map(_score, evaluation.evaluated))
    close = [trial for trial in evaluation.evaluated if trial.score <= _CLOSE * fewest]
    close = evaluation.score_again(close)
    chosen = choose_best(close, evaluation.held)
    _explain_choice(close, chosen, evaluation.held, say)
    if chosen.request.row_order == (AUTO,) and not request.tune:  # tuning may find other parameters yet
        return replace(chosen.request, row_order=found_row_order(chosen))
    return chosen.request


def found_row_order(trial: EvaluatedPlan) -> tuple[str, ...]:
    """Return the order of rows found for a single layout; several layouts have one each, so ``auto``."""
    return (trial.row_orders[0] or (NONE,)) if len(trial.row_orders) == 1 else (AUTO,)


def choose_best(trials: Sequence[EvaluatedPlan], held: Sequence[Query]) -> EvaluatedPlan:
    """Return the trial that takes the least; several layouts only where they take clearly less than any single one.

    There is at least one trial; all were judged alike, by the queries held out, ``held``.
    """
    best = min(trials, key=_score)
    single = min((trial for trial in trials if _has_one_layout(trial)), key=_score, default=best)
    gains = best.score < _LESS_BY_LAYOUTS * single.score and reads_clearly_less(best, single, held)
    return best if gains else single


def _explain_choice(
    close: Sequence[EvaluatedPlan], chosen: EvaluatedPlan, held: Sequence[Query], say: Progress
) -> None:
    others = [trial for trial in close if trial is not chosen]
    if not others:
        return
    next_best = min(others, key=_score)
    if next_best.score < chosen.score:
        say(f"{next_best.request.method} reads less, but by too little for several layouts: {chosen.request.method}")
    elif more := statements_to_tell(chosen, next_best, held):
        names = f"{chosen.request.method} and {next_best.request.method}"
        say(f"the log can't tell {names} apart; about {more:,} more queries like these would")


def _has_one_layout(trial: EvaluatedPlan) -> bool:
    return not is_sampled(trial.request.method)


def _score(trial: EvaluatedPlan) -> float:
    return trial.score


def tune(evaluation: HoldOutEvaluation, request: PlanRequest, thresholds: Sequence[int]) -> EvaluatedPlan:
    """Return the best T, numFeat and block size: the first two together, since they interact, then the last."""
    for threshold in thresholds:
        most = max(len(fold.documents[threshold].features) for fold in evaluation.folds)
        counts = feature_counts_to_try(request, most) if most else ()
        score_all(evaluation, [replace(request, num_features=count) for count in counts], threshold)
    if not evaluation.evaluated:
        raise PlanError(f"{request.method} can't plan for these queries whatever is tuned; leave out --tune to see why")
    best = min(evaluation.evaluated, key=_score)
    sizes = [max(1, round(factor * request.block_rows)) for factor in BLOCK_ROWS]
    score_all(evaluation, [replace(best.request, block_rows=rows) for rows in sizes], best.threshold)
    return min(evaluation.evaluated, key=_score)


def parameter_label(trial: EvaluatedPlan) -> str:
    """Return the parameters of a trial as text."""
    return f"T={trial.threshold} num-features={trial.request.num_features} block-rows={trial.request.block_rows}"


def feature_counts_to_try(request: PlanRequest, most: int) -> list[int]:
    """Return the numbers of features to try of ``most``, ascending."""
    if is_sampled(request.method):
        return sorted({max(1, round(share * most)) for share in _FEATURE_SHARES})
    return sorted({min(count, most) for count in _FEATURES})
