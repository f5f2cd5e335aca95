"""The two basic ways to replicate that GSOP-R is compared with (5.3): selective replication, and full copies."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Final

import numpy as np

from layoutopt.partitioning.partitioner import Partitioner
from layoutopt.search.costs import Candidates, Costs, LayoutCandidate, Queries, find_few_families
from layoutopt.search.gsop import search_groups
from layoutopt.search.layout_operations import columns_read, subsumed_queries
from layoutopt.search.problem import Problem

# Features replicated at most.
_MAX_COPIES: Final = 64
# Smaller relative gains, and smaller amounts of storage, count as nothing.
_EPSILON: Final = 1e-6


def copy_selectively(problem: Problem, groups: Candidates, budget: float, costs: Costs) -> Candidates:
    """Add copies of the rows and columns that features request to GSOP's groups, one feature at a time (5.3.1).

    The feature that gains most for what it stores comes next, within the budget. Its queries leave the groups, which
    are then partitioned for the rest.
    """
    layouts, remaining = groups, dict(subsumed_queries(problem))
    for _ in range(_MAX_COPIES):
        best = _find_best_copy(problem, layouts, remaining, budget, costs)
        if best is None:
            break
        # The best feature's queries leave the layouts that are no copies.
        remaining_groups = [
            layout if layout.copy else replace(layout, served=layout.served - best.served) for layout in layouts
        ]
        layouts = min(((*remaining_groups, best), (*layouts, best)), key=costs.query_cost)
        del remaining[best.served]
    return layouts


def _find_best_copy(
    problem: Problem, layouts: Candidates, remaining: dict[Queries, float], budget: float, costs: Costs
) -> LayoutCandidate | None:
    cost, stored = costs.query_cost(layouts), costs.storage(layouts)
    best: tuple[float, LayoutCandidate] | None = None
    for queries in remaining:
        copy = LayoutCandidate(columns_read(problem, queries), queries, copy=True)
        added = costs.storage((*layouts, copy)) - stored
        gain = cost - costs.query_cost((*layouts, copy)) if stored + added <= budget else 0.0
        worth = gain / max(added, _EPSILON)
        if gain > _EPSILON * cost and (best is None or worth > best[0]):
            best = (worth, copy)
    return best[1] if best else None


def make_full_copies(problem: Problem, copies: int, partitioner: Partitioner, costs: Costs) -> Candidates:
    """Return whole copies of the table, each with column groups for its share of the queries (5.3.2).

    The text merges features bottom-up by cost until there are as many clusters as copies. Here families of queries are
    merged. A cluster's cost is estimated by one layout for it.
    """
    layouts: list[LayoutCandidate] = []
    clusters = _cluster_queries(problem, copies, costs)
    for cluster in clusters + [frozenset()] * (copies - len(clusters)):
        reads = problem.reads.copy()
        reads[[query for query in range(len(reads)) if query not in cluster]] = False
        groups = search_groups(replace(problem, reads=reads), partitioner).best.groups
        layouts += [
            LayoutCandidate(group, frozenset(np.flatnonzero(reads[:, sorted(group)].any(axis=1)).tolist()))
            for group in groups
        ]
    return tuple(layouts)


def _cluster_queries(problem: Problem, count: int, costs: Costs) -> list[Queries]:
    clusters = [family.queries for family in find_few_families(problem)]

    def cost(queries: Queries) -> float:
        rows = costs.evaluator.evaluate(LayoutCandidate(columns_read(problem, queries), queries)).rows
        numbers = sorted(queries)
        return float((rows[numbers] * (problem.reads[numbers] @ problem.unit.cell)).sum())

    while len(clusters) > count:
        first, second = min(
            combinations(clusters, 2), key=lambda pair: cost(pair[0] | pair[1]) - cost(pair[0]) - cost(pair[1])
        )
        clusters = [cluster for cluster in clusters if cluster not in (first, second)] + [first | second]
    return clusters
