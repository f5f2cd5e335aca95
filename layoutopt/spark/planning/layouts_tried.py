"""The layouts that `advise` tries: all on a sample of rows, those that are about the best on whole segments too.

Trials on the sample are cheap, so every method and many orders of columns are tried there. A rehearsal costs seconds a
layout, and is what figures are worth telling by: of methods that only a load can carry out those get it that read the
least on the sample, of orders, which other engines can keep, the best of each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from layoutopt.advise.figures import Tried
from layoutopt.config.settings import PlanSettings
from layoutopt.errors import PlanError
from layoutopt.model.layout import ByOrder
from layoutopt.spark.planning.automatic import row_order_found, the_better
from layoutopt.spark.planning.comparing import spread
from layoutopt.spark.planning.hold_out import EvaluatedPlan, HoldOutEvaluation
from layoutopt.spark.planning.row_order import AUTO
from layoutopt.spark.planning.side_by_side import score_all
from layoutopt.sql.statements import HILBERT, SORT, ZORDER

OURS: Final = ("gsop", "sop", "cuts", "qdtree", "predicate-sort")
"""The methods that only a load can carry out, those first that take the longest to try."""

ORDERS: Final = (SORT, HILBERT, ZORDER)
"""Orders of rows that other engines can keep."""

THRESHOLD: Final = 0
"""The name of the one T that features are mined with, among the documents of a fold."""

_CLOSE: Final = 1.5
_MOST_OURS: Final = 2
"""Of ours so many are rehearsed at most, which read less than so many times what the best does on the sample."""
_MOST_COLUMNS: Final = 4
"""Of an order: more columns say next to nothing, and some engines take no more."""


@dataclass(frozen=True)
class LayoutsTried:
    """What came of the trials.

    Attributes:
        all: every method and kind of order, the fewest bytes first.
        best: what takes the least of those that were rehearsed.
    """

    all: tuple[Tried, ...]
    best: Tried

    def with_stored(self, of_table: Callable[[float], float]) -> LayoutsTried:
        """The same with what they store of the whole table, by what they store of the columns and rows tried."""
        place = self.all.index(self.best)
        told = [replace(one, stored=None if one.stored is None else of_table(one.stored)) for one in self.all]
        return LayoutsTried(tuple(told), told[place])


def try_layouts(
    evaluation: HoldOutEvaluation,
    planning: PlanSettings,
    by: Sequence[str],
    full: float,
    kinds: Sequence[str],
) -> LayoutsTried:
    """Try methods and orders, and rehearse those that are about the best.

    Args:
        evaluation: of one threshold, :data:`THRESHOLD`.
        planning: what all layouts have in common.
        by: the columns that rows may be ordered by, those first that queries filter by most.
        full: the bytes that full scans by the queries held back read of the same rows as they are stored now.
        kinds: the orders that are of interest, among :data:`ORDERS`.

    Raises:
        PlanError: no method can plan for the queries.
    """
    updates: list[dict[str, object]] = [{"method": method, "row_order": (AUTO,)} for method in OURS]
    updates += [{"method": kind, "by": columns} for kind in kinds for columns in _orders(kind, by[:_MOST_COLUMNS])]
    trials = score_all(evaluation, [planning.model_copy(update=each) for each in updates], THRESHOLD)
    sampled = sorted((trial for trial in trials[: len(OURS)] if isinstance(trial, EvaluatedPlan)), key=_score)
    ordered = [trial for trial in trials[len(OURS) :] if isinstance(trial, EvaluatedPlan)]
    best_ordered = [
        min(of_kind, key=_score)
        for kind in kinds
        if (of_kind := [trial for trial in ordered if trial.settings.method == kind])
    ]
    close = [trial for trial in sampled if trial.score <= _CLOSE * sampled[0].score][:_MOST_OURS]
    among = [*close, *best_ordered]
    if not among:
        raise PlanError("no method can plan for these queries: none filters by a column that rows can be ordered by")
    again = evaluation.score_again(among)
    rehearsed = [_tried(evaluation, trial, sum(trial.scanned) / full if full else 0.0) for trial in again]
    ratio = _ratio(among, rehearsed)
    others = [_tried(evaluation, trial, ratio * trial.score) for trial in sampled[len(close) :]]
    best = rehearsed[again.index(the_better(again, evaluation.held))]
    return LayoutsTried(tuple(sorted((*rehearsed, *others), key=lambda tried: tried.share)), best)


def _score(trial: EvaluatedPlan) -> float:
    return trial.score


def _orders(kind: str, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """The orders of a kind that are tried.

    Which column leads decides what sorting is worth; along a curve it is how many columns share it.

    >>> _orders("sort", ["a", "b"]), _orders("hilbert", ["a", "b", "c"])
    ([('a', 'b'), ('b', 'a')], [('a', 'b'), ('a', 'b', 'c')])
    """
    if kind == SORT:
        return [(name, *(other for other in columns if other != name)) for name in columns]
    return [tuple(columns[:count]) for count in range(2, len(columns) + 1)]


def _ratio(sampled: Sequence[EvaluatedPlan], rehearsed: Sequence[Tried]) -> float:
    """What rehearsals read of what the sample had said of the same layouts, for those that are not rehearsed."""
    ratios = [tried.share / trial.score for trial, tried in zip(sampled, rehearsed, strict=True) if trial.score]
    return float(np.exp(np.mean(np.log([ratio for ratio in ratios if ratio > 0])))) if any(ratios) else 1.0


def _tried(evaluation: HoldOutEvaluation, trial: EvaluatedPlan, share: float) -> Tried:
    deviation = spread(trial, evaluation.held)
    scheme = trial.plans[-1].scheme
    order = scheme.layouts[0].blocking
    return Tried(
        trial.settings.method,
        order.columns if isinstance(order, ByOrder) else (),
        len(scheme.layouts),
        row_order_found(trial),
        share,
        deviation / trial.score if trial.score else 0.0,
        bool(trial.scanned),
        trial.stored if trial.scanned else None,
    )
