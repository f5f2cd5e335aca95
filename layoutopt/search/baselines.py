"""Column grouping by co-access alone, which GSOP is compared with (Sun 2017, 4.7.5): HillClimb and Hyrise.

Both look at which columns queries read together, and not at skipping: a query reads every group it touches whole, as a
row store does, and pays for joining groups. So they make narrow groups of columns that are nearly always read together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from layoutopt.search.grouping import Group, column_classes, served_by
from layoutopt.search.problem import Problem

GroupCost = Callable[[Problem, Group], float]

_HYRISE_SUBGRAPH = 10
"""Hyrise optimises the access graph in parts of at most so many primary partitions."""


def row_store_cost(problem: Problem, group: Group) -> float:
    """What queries pay for a group: all of its cells and a tid for each row, for each query that touches it."""
    queries = problem.weights.sum(axis=0) @ served_by(problem, group)
    return float(queries * (problem.unit.cell[sorted(group)].sum() + problem.unit.tid))


def hillclimb(problem: Problem) -> tuple[Group, ...]:
    """HillClimb (Hankins and Patel's data morphing): from single columns, merge the best pair while that pays."""
    singles = [frozenset((column,)) for column in range(len(problem.columns))]
    return _climb(problem, singles, row_store_cost)


def hyrise(problem: Problem) -> tuple[Group, ...]:
    """Hyrise (Grund et al. 2010): primary partitions, an affinity graph cut into parts, the best merges in each part.

    Primary partitions are columns that all queries read together. The graph between them is weighted by common
    queries; parts are grown from the heaviest edges up to a fixed size.
    """
    parts = _subgraphs(problem, column_classes(problem))
    return tuple(group for part in parts for group in _climb(problem, part, row_store_cost))


def _climb(problem: Problem, start: Sequence[Group], cost: GroupCost) -> tuple[Group, ...]:
    """Merge the pair that lowers the cost most until none does; of equal pairs the first."""
    groups = dict(enumerate(start))
    costs = {i: cost(problem, group) for i, group in groups.items()}

    def gain(i: int, j: int) -> float:
        return costs[i] + costs[j] - cost(problem, groups[i] | groups[j])

    gains = {(i, j): gain(i, j) for i, j in combinations(groups, 2)}
    while gains:
        i, j = min(gains, key=lambda pair: (-gains[pair], pair))
        if gains[i, j] <= 0:
            break
        new = max(groups) + 1
        groups[new] = groups.pop(i) | groups.pop(j)
        costs[new] = cost(problem, groups[new])
        # Only what the merged two were part of changes: wide tables have a hundred thousand pairs.
        gains = {pair: known for pair, known in gains.items() if not {i, j} & {*pair}}
        gains |= {(k, new): gain(k, new) for k in groups if k != new}
    return tuple(sorted(groups.values(), key=min))


def _subgraphs(problem: Problem, primary: Sequence[Group]) -> list[list[Group]]:
    """The affinity graph's parts: edges from the heaviest, each joining two parts unless they grow too large."""
    readers = np.stack([served_by(problem, group) for group in primary])
    weight = problem.weights.sum(axis=0)
    affinity = (readers * weight) @ readers.T.astype(np.float64)
    part = list(range(len(primary)))
    edges = sorted(combinations(range(len(primary)), 2), key=lambda edge: (-affinity[edge], edge))
    for i, j in edges:
        joined = [k for k in range(len(primary)) if part[k] in (part[i], part[j])]
        if affinity[i, j] > 0 and part[i] != part[j] and len(joined) <= _HYRISE_SUBGRAPH:
            target = min(part[i], part[j])
            for k in joined:
                part[k] = target
    return [[primary[k] for k in range(len(primary)) if part[k] == p] for p in sorted(set(part))]
