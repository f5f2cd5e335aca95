"""GSOP: from a problem to a scheme of disjoint layouts (Sun 2017, chapter 4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layoutopt.model.layout import ByOrder, ByVectors, Layout, Scheme
from layoutopt.partitioning.partitioner import Partitioner
from layoutopt.search.baselines import hillclimb, hyrise
from layoutopt.search.grouping import (
    Group,
    Grouping,
    column_classes,
    cost_of,
    cost_unless_above,
    merge_bottom_up,
    move_classes,
    served_by,
    starting_groups,
)
from layoutopt.search.problem import Problem
from layoutopt.search.rows import ComputedRows, Estimate, rows_estimator


@dataclass(frozen=True)
class SearchResult:
    """A search's result.

    Attributes:
        best: the grouping with the least exact objective.
        passed: every grouping whose objective was computed, in order; the best ones first by as many guides as fit.
        exact: by which the best was computed.
    """

    best: Grouping
    passed: tuple[Grouping, ...]
    exact: ComputedRows


_FINALISTS = 3
"""Schemes for which fewer guides are tried."""


def search_groups(problem: Problem, partitioner: Partitioner, estimate: Estimate = "selectivity") -> SearchResult:
    """The best column grouping found: bottom-up merging (4.4.4), then moves; never worse than SOP or GSOP-single.

    On the way groups are guided by as many features as fit; fewer are tried for the best schemes alone, where they gain
    as much as if they were tried for all. Both ends of the spectrum (4.3.2) are candidates too, by the same exact
    objective on the same samples; single columns are computed only as far as it takes to see that they are worse.

    Candidates are compared by the ``estimate``.
    """
    exact = ComputedRows(problem, partitioner)
    estimated = rows_estimator(problem, estimate, partitioner)
    start = starting_groups(problem)
    passed = merge_bottom_up(problem, start, estimated, exact.by_most)
    passed += move_classes(problem, min(passed, key=_rank), start, estimated, exact.by_most)
    finalists = sorted(passed, key=_rank)[:_FINALISTS]
    passed += [Grouping(one.groups, cost_of(problem, one.groups, exact)) for one in finalists]
    passed.append(Grouping(whole(problem), cost_of(problem, whole(problem), exact)))
    # Classes are computed already where merging started from them.
    floor = np.zeros_like(problem.weights) if start == column_classes(problem) else problem.least_rows
    apart = cost_unless_above(problem, singles(problem), exact, floor, min(passed, key=_rank).cost)
    if apart is not None:
        passed.append(Grouping(singles(problem), apart))
    return SearchResult(min(passed, key=_rank), tuple(passed), exact)


def search_as_written(problem: Problem, partitioner: Partitioner) -> SearchResult:
    """The text's search alone: all pairs compared by the estimate by blocks, the best step of merging taken (4.4.4).

    Columns that the same queries read are one group from the start: merging them saves tids and costs nothing.
    """
    computed = ComputedRows(problem, partitioner)
    estimated = rows_estimator(problem, "block", partitioner)
    passed = merge_bottom_up(problem, column_classes(problem), estimated, computed, every_pair=True)
    best = min(passed, key=_rank)
    return SearchResult(best, tuple(passed), computed)


def _rank(grouping: Grouping) -> tuple[float, int]:
    return grouping.cost, len(grouping.groups)


def whole(problem: Problem) -> tuple[Group, ...]:
    """All columns in one group: SOP."""
    return (frozenset(range(len(problem.columns))),)


def singles(problem: Problem) -> tuple[Group, ...]:
    """Every column alone: GSOP-single (4.3.1)."""
    return tuple(frozenset((column,)) for column in range(len(problem.columns)))


GROUPINGS = {"gsop-single": singles, "gsop-hillclimb": hillclimb, "gsop-hyrise": hyrise}
"""The groupings that need no search, by method."""


def scheme_of(problem: Problem, groups: tuple[Group, ...], exact: ComputedRows, partitioner: str) -> Scheme:
    """The scheme of a grouping: each group with its own local features (4.5), all its columns master columns.

    A group that no query reads keeps the order of the source, which compresses as the source does.
    """
    return Scheme(tuple(_layout(problem, group, exact, partitioner) for group in sorted(groups, key=min)))


def _layout(problem: Problem, group: Group, exact: ComputedRows, partitioner: str) -> Layout:
    columns = tuple(problem.columns[column] for column in sorted(group))
    served = served_by(problem, group)
    features = tuple(exact.guides(served).tolist()) if served.any() else ()
    blocking = ByVectors(partitioner) if features else ByOrder("input")
    return Layout(columns, features, columns, blocking)
