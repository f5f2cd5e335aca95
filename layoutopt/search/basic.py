"""The two basic ways to replicate that GSOP-R is compared with (Sun 2017, 5.3): selective, and full copies."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np

from layoutopt.partitioning.partitioner import Partitioner
from layoutopt.search.candidates import Candidate, Candidates, Queries
from layoutopt.search.costs import Costs, few_families
from layoutopt.search.gsop import search_groups
from layoutopt.search.problem import Problem
from layoutopt.search.transform import read_by, subsumed_queries

_NOTHING = 1e-6
_MOST_COPIED = 64
"""Features replicated at most."""


def selective(problem: Problem, plain: Candidates, allowed: float, costs: Costs) -> Candidates:
    """GSOP with the rows and columns that features request stored once more, one feature after the other (5.3.1).

    The feature comes next that gains most for what it stores, until no more is ``allowed``, in the unit of the costs'
    storage. Its queries leave the column groups (``plain``), which are then partitioned for the others.
    """
    layouts, left = plain, dict(subsumed_queries(problem))
    for _ in range(_MOST_COPIED):
        best = _most_worth(problem, layouts, left, allowed, costs)
        if best is None:
            break
        relieved = _relieved(layouts, best.served)
        layouts = min(((*relieved, best), (*layouts, best)), key=costs.query_cost)
        del left[best.served]
    return layouts


def _most_worth(
    problem: Problem, layouts: Candidates, left: dict[Queries, float], allowed: float, costs: Costs
) -> Candidate | None:
    """The feature's copy that gains most for each cell stored while the groups stay as they are."""
    cost, stored = costs.query_cost(layouts), costs.storage(layouts)
    found: tuple[float, Candidate] | None = None
    for queries in left:
        copy = Candidate(read_by(problem, queries), queries, copy=True)
        more = costs.storage((*layouts, copy)) - stored
        gain = cost - costs.query_cost((*layouts, copy)) if stored + more <= allowed else 0.0
        worth = gain / max(more, _NOTHING)
        if gain > _NOTHING * cost and (found is None or worth > found[0]):
            found = (worth, copy)
    return found[1] if found else None


def _relieved(layouts: Candidates, queries: Queries) -> Candidates:
    """The layouts without these queries, where they are not copies for features."""
    return tuple(layout if layout.copy else replace(layout, served=layout.served - queries) for layout in layouts)


def full_copies(problem: Problem, copies: int, partitioner: Partitioner, costs: Costs) -> Candidates:
    """Whole copies of the table, each with column groups for its share of the queries (5.3.2).

    The text merges features, bottom-up and by cost, until as many clusters are left as copies. Here families of queries
    are merged, few from the start, each with the features that serve it; what a cluster costs is estimated by one
    layout for it, and every pair's merge is estimated once.
    """
    layouts: list[Candidate] = []
    clusters = _clusters(problem, copies, costs)
    for cluster in clusters + [frozenset()] * (copies - len(clusters)):
        reads = problem.reads.copy()
        reads[[query for query in range(len(reads)) if query not in cluster]] = False
        groups = search_groups(replace(problem, reads=reads), partitioner).best.groups
        layouts += [
            Candidate(group, frozenset(np.flatnonzero(reads[:, sorted(group)].any(axis=1)).tolist()))
            for group in groups
        ]
    return tuple(layouts)


def _clusters(problem: Problem, count: int, costs: Costs) -> list[Queries]:
    clusters = [family.queries for family in few_families(problem)]

    def cost(queries: Queries) -> float:
        rows = costs.evaluator.evaluate(Candidate(read_by(problem, queries), queries)).rows
        numbers = sorted(queries)
        return float((rows[numbers] * (problem.reads[numbers] @ problem.unit.cell)).sum())

    while len(clusters) > count:
        one, other = min(
            combinations(clusters, 2), key=lambda pair: cost(pair[0] | pair[1]) - cost(pair[0]) - cost(pair[1])
        )
        clusters = [cluster for cluster in clusters if cluster not in (one, other)] + [one | other]
    return clusters
