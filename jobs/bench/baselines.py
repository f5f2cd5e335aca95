"""Group columns by co-access alone: HillClimb and Hyrise, the baselines of GSOP (Sun 2017, 4.7.5).

Both ignore skipping: a query reads every group it touches whole, as a row store does, and pays for joining groups. So
they make narrow groups of columns that are nearly always read together.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from layoutopt.model.arrays import Floats
from layoutopt.search.grouping import Group, agglomerate, column_classes, queries_reading
from layoutopt.search.problem import Problem

# Hyrise optimises the access graph in parts of at most this many primary partitions.
_MAX_SUBGRAPH = 10


def row_store_cost(problem: Problem, group: Group) -> float:
    """Return what queries pay for a group: all of its cells and a tid for each row, for each query that touches it."""
    queries = problem.weights.sum(axis=0) @ queries_reading(problem, group)
    return float(queries * (problem.unit.cell[sorted(group)].sum() + problem.unit.tid))


def hillclimb(problem: Problem) -> tuple[Group, ...]:
    """Group by HillClimb (Hankins and Patel, data morphing): from single columns, merge the best pair while it pays."""
    return _merge_greedily(problem, [frozenset((column,)) for column in range(len(problem.columns))])


def hyrise(problem: Problem) -> tuple[Group, ...]:
    """Group by Hyrise (Grund et al. 2010): split the affinity graph of primary partitions, merge within each part.

    Primary partitions are columns that all queries read together. Edges are weighted by common queries; parts grow
    from the heaviest edges up to a fixed size.
    """
    parts = _split_graph(problem, column_classes(problem))
    return tuple(group for part in parts for group in _merge_greedily(problem, part))


def _merge_greedily(problem: Problem, start: Sequence[Group]) -> tuple[Group, ...]:
    """Merge the pair that lowers the cost most until none does; of equal pairs the first."""
    readers = np.stack([queries_reading(problem, group) for group in start])
    width = np.array([problem.unit.cell[sorted(group)].sum() for group in start])
    tid = problem.unit.tid

    def gain(first: Floats, second: Floats, first_width: Floats, second_width: Floats, common: Floats) -> Floats:
        separate = first * (first_width + tid) + second * (second_width + tid)
        return separate - (first + second - common) * (first_width + second_width + tid)

    merged = agglomerate(readers, problem.weights.sum(axis=0), width, gain)
    return tuple(sorted((frozenset().union(*(start[k] for k in numbers)) for numbers in merged), key=min))


def _split_graph(problem: Problem, primary: Sequence[Group]) -> list[list[Group]]:
    """Return the parts of the affinity graph: edges join parts, the heaviest first, unless they grow too large."""
    readers = np.stack([queries_reading(problem, group) for group in primary])
    weight = problem.weights.sum(axis=0)
    affinity = (readers * weight) @ readers.T.astype(np.float64)
    part = list(range(len(primary)))
    edges = sorted(combinations(range(len(primary)), 2), key=lambda edge: (-affinity[edge], edge))
    for i, j in edges:
        if affinity[i, j] <= 0 or part[i] == part[j]:
            continue
        merged_part = [k for k in range(len(primary)) if part[k] in (part[i], part[j])]
        if len(merged_part) <= _MAX_SUBGRAPH:
            target = min(part[i], part[j])
            for k in merged_part:
                part[k] = target
    return [[primary[k] for k in range(len(primary)) if part[k] == p] for p in sorted(set(part))]
