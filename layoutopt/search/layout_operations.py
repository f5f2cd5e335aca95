"""The text's operations on layouts (Sun 2017, 5.5.1), in terms of the queries that a layout serves.

A layout's local features follow from its queries. So where the text moves a feature to another layout, here the
queries that it subsumes move. After each operation, layouts of the same queries are merged (5.5.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from layoutopt.search.costs import Candidates, Costs, LayoutCandidate, Queries, drop_unread_columns, merge_equal_layouts
from layoutopt.search.grouping import Group
from layoutopt.search.problem import Problem

_MAX_ROUNDS = 6
# Operations that are evaluated in a round: those that could gain most for what they store.
_OPERATIONS_TRIED = 10
_EPSILON = 1e-6
# A smaller gain, as a share of the cost, fits particular constants of the log.
_MIN_GAIN = 0.005
# A feature of a smaller share of all queries' weight is not replicated alone.
_MIN_WEIGHT = 0.01


def replicate(problem: Problem, layouts: Candidates, layout: LayoutCandidate, queries: Queries) -> Candidates:
    """Copy what some of a layout's queries read; the layout then serves the rest."""
    moved = layout.served & queries
    copy = LayoutCandidate(layout.columns & columns_read(problem, moved), moved, copy=True)
    return _replace_layouts(
        problem, layouts, [layout], [LayoutCandidate(layout.columns, layout.served - moved, layout.copy), copy]
    )


def merge(problem: Problem, layouts: Candidates, first: LayoutCandidate, second: LayoutCandidate) -> Candidates:
    """Merge two layouts: the columns and queries of both."""
    merged = LayoutCandidate(first.columns | second.columns, first.served | second.served, first.copy and second.copy)
    return _replace_layouts(problem, layouts, [first, second], [merged])


def merge_replicate(
    problem: Problem, layouts: Candidates, first: LayoutCandidate, second: LayoutCandidate
) -> Candidates:
    """Merge two layouts for the queries that read both, and copy what the rest read."""
    common = first.served & second.served
    merged = LayoutCandidate(first.columns | second.columns, common, first.copy and second.copy)
    copies = [
        LayoutCandidate(
            layout.columns & columns_read(problem, layout.served - common), layout.served - common, copy=True
        )
        for layout in (first, second)
        if layout.served - common
    ]
    return _replace_layouts(problem, layouts, [first, second], [merged, *copies])


def columns_read(problem: Problem, queries: Queries) -> Group:
    """Return the columns that some of the queries read."""
    return frozenset(np.flatnonzero(problem.reads[sorted(queries)].any(axis=0)).tolist())


def _replace_layouts(
    problem: Problem, layouts: Candidates, old: list[LayoutCandidate], new: list[LayoutCandidate]
) -> Candidates:
    return merge_equal_layouts(
        drop_unread_columns(problem, [*(layout for layout in layouts if layout not in old), *new])
    )


def improve(problem: Problem, layouts: Candidates, budget: float, estimate: Costs, exact: Costs) -> Candidates:
    """Repeat the operation that gains most for what it stores while one gains, by the exact costs.

    Algorithm 2 evaluates every operation by partitioning; here the most promising ones are compared by estimated
    costs. The budget is in the unit of the costs' storage.
    """
    cost = exact.query_cost(layouts)
    for _ in range(_MAX_ROUNDS):
        best = _find_best(problem, layouts, budget, estimate)
        if best is None or exact.storage(best) > budget:
            break
        new_cost = exact.query_cost(best)
        if new_cost > cost * (1 - _MIN_GAIN):
            break
        layouts, cost = best, new_cost
    return layouts


def _find_best(problem: Problem, layouts: Candidates, budget: float, costs: Costs) -> Candidates | None:
    cost, stored = costs.query_cost(layouts), costs.storage(layouts)
    steps = sorted(_list_operations(problem, layouts, costs), key=lambda step: -step[0])[:_OPERATIONS_TRIED]
    best: tuple[float, Candidates] | None = None
    for _, changed in steps:
        new_stored = costs.storage(changed)
        gain = cost - costs.query_cost(changed) if new_stored <= budget else 0.0
        worth = gain / max(new_stored - stored, _EPSILON)
        if gain >= _MIN_GAIN * cost and (best is None or worth > best[0]):
            best = (worth, changed)
    return best[1] if best else None


def _list_operations(problem: Problem, layouts: Candidates, costs: Costs) -> Iterator[tuple[float, Candidates]]:
    """Yield the results of all operations, each with the most that it could gain per stored cell."""
    features = subsumed_queries(problem)
    cell, tid = problem.unit.cell, problem.unit.tid
    for layout in layouts:
        if not layout.served:
            continue
        numbers = np.array(sorted(layout.served))
        columns = sorted(layout.columns)
        paid = costs.evaluator.evaluate(layout).rows[numbers] * (problem.reads[numbers][:, columns] @ cell[columns])
        for queries, share in features:
            moved = queries & layout.served
            if 0 < len(moved) < len(numbers):
                potential = float(paid[np.isin(numbers, list(moved))].sum()) * (1 - share)
                stored = share * costs.stored.cell[sorted(layout.columns & columns_read(problem, moved))].sum()
                worth = potential / max(stored, _EPSILON)
                yield worth, replicate(problem, layouts, layout, queries)
    for first, second in combinations(layouts, 2):
        common = sorted(first.served & second.served)
        if not common:
            continue
        tids = tid * float(sum(costs.evaluator.evaluate(layout).rows[common].sum() for layout in (first, second)))
        yield tids / _EPSILON, merge(problem, layouts, first, second)
        if first.served != second.served:
            yield tids, merge_replicate(problem, layouts, first, second)


def subsumed_queries(problem: Problem) -> list[tuple[Queries, float]]:
    """Return the sets of queries that a feature subsumes, with the least share of rows of such a feature."""
    share_by_queries: dict[Queries, float] = {}
    weights = problem.weights.sum(axis=0)
    for feature in range(problem.shares.shape[1]):
        subsumed = np.flatnonzero(problem.subsumed[:, feature])
        queries = frozenset(subsumed.tolist())
        if queries and weights[subsumed].sum() >= _MIN_WEIGHT * weights.sum():
            share = float(problem.selectivity[feature])
            share_by_queries[queries] = min(share, share_by_queries.get(queries, 1.0))
    return sorted(share_by_queries.items(), key=lambda item: sorted(item[0]))
