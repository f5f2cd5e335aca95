"""Measure whether a workload's filters recur: commonality and stability (Sun 2017, figure 3.2)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from layoutopt.model.arrays import Floats
from layoutopt.model.predicates import Predicate
from layoutopt.model.query import Query, column_literals

WINDOWS = 5
_GRID = np.linspace(0.0, 1.0, 101)


@dataclass(frozen=True, eq=False)
class Curve:
    """Points of a curve from (0, 0), both axes as shares from 0 to 1, ``float64[points]``."""

    x: Floats
    y: Floats

    def at(self, x: float) -> float:
        """Return the height at ``x``, interpolated linearly."""
        return float(np.interp(x, self.x, self.y))


def commonality(queries: Sequence[Query]) -> Curve:
    """Return figure 3.2(a): the most frequent x of the filters are used by y of the queries.

    A filter is one predicate; a query uses it if it is among its conjuncts. Queries without predicates are left out; a
    query of weight *w* counts as *w* queries. Without queries the curve is (0, 0).
    """
    used, weights = _used_predicates(queries)
    frequency: Counter[Predicate] = Counter()
    for predicates, weight in zip(used, weights, strict=True):
        for predicate in predicates:
            frequency[predicate] += weight
    order = {predicate: i for i, (predicate, _) in enumerate(frequency.most_common())}
    # A query counts from its most frequent predicate on.
    first = [min(order[predicate] for predicate in predicates) for predicates in used]
    return _make_curve(_sum_by_place(first, weights, len(order)))


def stability(queries: Sequence[Query], windows: int = WINDOWS) -> Curve:
    """Return figure 3.2(b): after x of the queries, the filters seen so far are used by y of all queries.

    The queries, in order, are cut into ``windows`` windows of equal length, whose curves are averaged on a common
    grid, so that no single starting point decides.
    """
    used, weights = _used_predicates(queries)
    cuts = np.linspace(0, len(used), min(windows, max(1, len(used))) + 1).astype(int)
    curves = [_window_curve(used[a:b], weights[a:b]) for a, b in pairwise(cuts) if b > a]
    if not curves:
        return _make_curve(np.zeros(0))
    return Curve(_GRID, np.mean([np.interp(_GRID, curve.x, curve.y) for curve in curves], axis=0))


def _window_curve(used: Sequence[frozenset[Predicate]], weights: Floats) -> Curve:
    seen_at: dict[Predicate, int] = {}
    for i, predicates in enumerate(used):
        for predicate in predicates:
            seen_at.setdefault(predicate, i)
    first = [min(seen_at[predicate] for predicate in predicates) for predicates in used]
    return _make_curve(_sum_by_place(first, weights, len(used)), weights)


def _sum_by_place(places: Sequence[int], weights: Floats, length: int) -> Floats:
    """Return the weights added up by place, ``float64[length]``."""
    return np.bincount(np.array(places, dtype=np.int64), weights, length).astype(np.float64)


def _make_curve(gains: Floats, steps: Floats | None = None) -> Curve:
    """Return the running share of ``gains`` over the running share of ``steps`` (1 each by default)."""
    steps = np.ones(len(gains)) if steps is None else steps
    x, y = (np.concatenate([[0.0], np.cumsum(values)]) for values in (steps, gains))
    return Curve(x / x[-1] if x[-1] else x, y / y[-1] if y[-1] else y)


def _used_predicates(queries: Sequence[Query]) -> tuple[list[frozenset[Predicate]], Floats]:
    with_filter = [query for query in queries if query.filter.predicates]
    used = [frozenset(query.filter.predicates) for query in with_filter]
    return used, np.array([query.weight for query in with_filter], dtype=np.float64)


def unseen_shares(queries: Sequence[Query]) -> dict[str, float]:
    """Return, by column, the share of the literals in the later half of a log that the earlier half lacks.

    Brushing makes new ranges nearly always; reports repeat theirs. Of a class of ``w`` equal queries that begins in
    the earlier half, ``w - 1`` are assumed to be spread evenly over both halves. A query's ``id`` is its place in the
    log, or that of the first of its class.
    """
    middle = max((query.id for query in queries), default=0) / 2
    early = {literal for query in queries if query.id <= middle for literal in column_literals(query)}
    unseen: dict[str, float] = defaultdict(float)
    totals: dict[str, float] = defaultdict(float)
    for query in queries:
        weight = query.weight if query.id > middle else max(0.0, query.weight - 1) / 2
        for literal in column_literals(query):
            (column,) = literal.columns
            totals[column] += weight
            unseen[column] += 0.0 if literal in early else weight
    return {column: unseen[column] / total for column, total in totals.items() if total}
