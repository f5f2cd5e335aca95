"""Column grouping by co-access alone, which GSOP is compared with (Sun 2017, 4.7.5): HillClimb and Hyrise.

Both look at which columns queries read together, and not at skipping: a query reads every group it touches whole, as a
row store does, and pays for joining groups. So they make narrow groups of columns that are nearly always read together.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from layoutopt.model.arrays import Floats
from layoutopt.search.grouping import Group, agglomerate, column_classes, served_by
from layoutopt.search.problem import Problem

_HYRISE_SUBGRAPH = 10
"""Hyrise optimises the access graph in parts of at most so many primary partitions."""


def row_store_cost(problem: Problem, group: Group) -> float:
    """What queries pay for a group: all of its cells and a tid for each row, for each query that touches it."""
    queries = problem.weights.sum(axis=0) @ served_by(problem, group)
    return float(queries * (problem.unit.cell[sorted(group)].sum() + problem.unit.tid))


def hillclimb(problem: Problem) -> tuple[Group, ...]:
    """HillClimb (Hankins and Patel's data morphing): from single columns, merge the best pair while that pays."""
    singles = [frozenset((column,)) for column in range(len(problem.columns))]
    return _climb(problem, singles)


def hyrise(problem: Problem) -> tuple[Group, ...]:
    """Hyrise (Grund et al. 2010): primary partitions, an affinity graph cut into parts, the best merges in each part.

    Primary partitions are columns that all queries read together. The graph between them is weighted by common
    queries; parts are grown from the heaviest edges up to a fixed size.
    """
    parts = _subgraphs(problem, column_classes(problem))
    return tuple(group for part in parts for group in _climb(problem, part))


def _climb(problem: Problem, start: Sequence[Group]) -> tuple[Group, ...]:
    """Merge the pair that lowers the cost most until none does; of equal pairs the first."""
    readers = np.stack([served_by(problem, group) for group in start])
    width = np.array([problem.unit.cell[sorted(group)].sum() for group in start])
    tid = problem.unit.tid

    def gain(one: Floats, other: Floats, width: Floats, others_width: Floats, common: Floats) -> Floats:
        apart = one * (width + tid) + other * (others_width + tid)
        return apart - (one + other - common) * (width + others_width + tid)

    merged = agglomerate(readers, problem.weights.sum(axis=0), width, gain)
    return tuple(sorted((frozenset().union(*(start[k] for k in numbers)) for numbers in merged), key=min))


def _subgraphs(problem: Problem, primary: Sequence[Group]) -> list[list[Group]]:
    """The affinity graph's parts: edges from the heaviest, each joining two parts unless they grow too large."""
    readers = np.stack([served_by(problem, group) for group in primary])
    weight = problem.weights.sum(axis=0)
    affinity = (readers * weight) @ readers.T.astype(np.float64)
    part = list(range(len(primary)))
    edges = sorted(combinations(range(len(primary)), 2), key=lambda edge: (-affinity[edge], edge))
    for i, j in edges:
        if affinity[i, j] <= 0 or part[i] == part[j]:
            continue
        joined = [k for k in range(len(primary)) if part[k] in (part[i], part[j])]
        if len(joined) <= _HYRISE_SUBGRAPH:
            target = min(part[i], part[j])
            for k in joined:
                part[k] = target
    return [[primary[k] for k in range(len(primary)) if part[k] == p] for p in sorted(set(part))]
