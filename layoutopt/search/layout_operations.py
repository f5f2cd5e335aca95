"""The text's operations on layouts (Sun 2017, 5.5.1), said of the queries that a layout serves.

A layout's local features follow from its queries, so where the text gives a feature to another layout, here the
queries that it subsumes go there. After each operation layouts of the same queries are merged (5.5.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from layoutopt.search.costs import Candidate, Candidates, Costs, Queries, joined, tidied
from layoutopt.search.grouping import Group
from layoutopt.search.problem import Problem

_ROUNDS = 6
_TRIED = 10
"""Operations evaluated in a round: those that could gain most for what they store."""
_NOTHING = 1e-6
_LEAST_GAIN = 0.005
"""An operation that gains less of the cost fits the log's very constants rather than what queries have in common."""
_LEAST_WEIGHT = 0.01
"""Of all queries' weight: a feature of fewer is not replicated alone."""


def replicate(problem: Problem, layouts: Candidates, layout: Candidate, queries: Queries) -> Candidates:
    """Copy what some of a layout's queries read there; the layout then cares for the others alone."""
    taken = layout.served & queries
    copy = Candidate(layout.columns & read_by(problem, taken), taken, copy=True)
    return _replaced(problem, layouts, [layout], [Candidate(layout.columns, layout.served - taken, layout.copy), copy])


def merge(problem: Problem, layouts: Candidates, one: Candidate, other: Candidate) -> Candidates:
    """One layout with the columns and queries of both."""
    both = Candidate(one.columns | other.columns, one.served | other.served, one.copy and other.copy)
    return _replaced(problem, layouts, [one, other], [both])


def merge_replicate(problem: Problem, layouts: Candidates, one: Candidate, other: Candidate) -> Candidates:
    """One layout for the queries that read both, and copies for those that read only one of them."""
    common = one.served & other.served
    both = Candidate(one.columns | other.columns, common, one.copy and other.copy)
    copies = [
        Candidate(layout.columns & read_by(problem, layout.served - common), layout.served - common, copy=True)
        for layout in (one, other)
        if layout.served - common
    ]
    return _replaced(problem, layouts, [one, other], [both, *copies])


def read_by(problem: Problem, queries: Queries) -> Group:
    """The columns that some of the queries read."""
    return frozenset(np.flatnonzero(problem.reads[sorted(queries)].any(axis=0)).tolist())


def _replaced(problem: Problem, layouts: Candidates, old: list[Candidate], new: list[Candidate]) -> Candidates:
    return joined(tidied(problem, [*(layout for layout in layouts if layout not in old), *new]))


def improve(problem: Problem, layouts: Candidates, budget: float, estimate: Costs, exact: Costs) -> Candidates:
    """Apply the operation that gains most for what it stores while one gains, by the exact costs; at most some rounds.

    Algorithm 2 evaluates every operation by partitioning; here those with most to gain are compared by the estimated
    costs. The layouts are within the budget, which is in the unit of the costs' storage.
    """
    cost = exact.query_cost(layouts)
    for _ in range(_ROUNDS):
        best = _best(problem, layouts, budget, estimate)
        if best is None or exact.storage(best) > budget:
            break
        new_cost = exact.query_cost(best)
        if new_cost > cost * (1 - _LEAST_GAIN):
            break
        layouts, cost = best, new_cost
    return layouts


def _best(problem: Problem, layouts: Candidates, budget: float, costs: Costs) -> Candidates | None:
    cost, stored = costs.query_cost(layouts), costs.storage(layouts)
    steps = sorted(_steps(problem, layouts, costs), key=lambda step: -step[0])[:_TRIED]
    found: tuple[float, Candidates] | None = None
    for _, changed in steps:
        new_stored = costs.storage(changed)
        gain = cost - costs.query_cost(changed) if new_stored <= budget else 0.0
        worth = gain / max(new_stored - stored, _NOTHING)
        if gain >= _LEAST_GAIN * cost and (found is None or worth > found[0]):
            found = (worth, changed)
    return found[1] if found else None


def _steps(problem: Problem, layouts: Candidates, costs: Costs) -> Iterator[tuple[float, Candidates]]:
    """The results of all operations, each with the most that it could gain for each cell stored."""
    features = subsumed_queries(problem)
    cell, tid = problem.unit.cell, problem.unit.tid
    for layout in layouts:
        if not layout.served:
            continue
        numbers = np.array(sorted(layout.served))
        columns = sorted(layout.columns)
        pays = costs.evaluator.evaluate(layout).rows[numbers] * (problem.reads[numbers][:, columns] @ cell[columns])
        for queries, share in features:
            taken = queries & layout.served
            if 0 < len(taken) < len(numbers):
                potential = float(pays[np.isin(numbers, list(taken))].sum()) * (1 - share)
                stored = share * costs.stored.cell[sorted(layout.columns & read_by(problem, taken))].sum()
                worth = potential / max(stored, _NOTHING)
                yield worth, replicate(problem, layouts, layout, queries)
    for one, other in combinations(layouts, 2):
        common = sorted(one.served & other.served)
        if not common:
            continue
        tids = tid * float(sum(costs.evaluator.evaluate(layout).rows[common].sum() for layout in (one, other)))
        yield tids / _NOTHING, merge(problem, layouts, one, other)
        if one.served != other.served:
            yield tids, merge_replicate(problem, layouts, one, other)


def subsumed_queries(problem: Problem) -> list[tuple[Queries, float]]:
    """The sets of queries that a feature subsumes, with the smallest share of rows of such a feature."""
    found: dict[Queries, float] = {}
    weights = problem.weights.sum(axis=0)
    for feature in range(problem.shares.shape[1]):
        subsumed = np.flatnonzero(problem.subsumed[:, feature])
        queries = frozenset(subsumed.tolist())
        if queries and weights[subsumed].sum() >= _LEAST_WEIGHT * weights.sum():
            share = float(problem.selectivity[feature])
            found[queries] = min(share, found.get(queries, 1.0))
    return sorted(found.items(), key=lambda item: sorted(item[0]))
