"""GSOP: from a problem to a scheme of disjoint layouts (Sun 2017, chapter 4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layoutopt.model.layout import ByOrder, ByVectors, Layout, Scheme
from layoutopt.partitioning.partitioner import Partitioner
from layoutopt.search.grouping import (
    Group,
    Grouping,
    column_classes,
    cost_unless_above,
    grouping_cost,
    merge_bottom_up,
    move_classes,
    queries_reading,
    starting_groups,
)
from layoutopt.search.problem import Problem
from layoutopt.search.rows import ComputedRows, Estimate, rows_estimator

# Schemes for which fewer guides are tried.
_FINALISTS = 3


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Attributes:
        best: the grouping with the least exact objective.
        passed: every grouping whose objective was computed, in order; those of merging with as many guides as fit.
        exact: the rows by which the best was computed.
    """

    best: Grouping
    passed: tuple[Grouping, ...]
    exact: ComputedRows


def search_groups(problem: Problem, partitioner: Partitioner, estimate: Estimate = "selectivity") -> SearchResult:
    """Return the best column grouping: bottom-up merging (4.4.4), then moves; never worse than SOP or GSOP-single.

    Groups are guided by as many features as fit; fewer are tried only for the best schemes, which gains as much. Both
    ends of the spectrum (4.3.2) are candidates too; single columns are computed only until they are seen to be worse.
    ``estimate`` compares candidates.
    """
    exact = ComputedRows(problem, partitioner)
    estimate_rows = rows_estimator(problem, estimate, partitioner)
    start = starting_groups(problem)
    groupings = merge_bottom_up(problem, start, estimate_rows, exact.by_most)
    groupings += move_classes(problem, min(groupings, key=_sort_key), start, estimate_rows, exact.by_most)
    finalists = sorted(groupings, key=_sort_key)[:_FINALISTS]
    groupings += [Grouping(scheme.groups, grouping_cost(problem, scheme.groups, exact)) for scheme in finalists]
    groupings.append(Grouping(one_group(problem), grouping_cost(problem, one_group(problem), exact)))
    # If merging started from the classes, they are computed already.
    floor = np.zeros_like(problem.weights) if start == column_classes(problem) else problem.least_rows
    singles_cost = cost_unless_above(problem, single_columns(problem), exact, floor, min(groupings, key=_sort_key).cost)
    if singles_cost is not None:
        groupings.append(Grouping(single_columns(problem), singles_cost))
    return SearchResult(min(groupings, key=_sort_key), tuple(groupings), exact)


def _sort_key(grouping: Grouping) -> tuple[float, int]:
    return grouping.cost, len(grouping.groups)


def one_group(problem: Problem) -> tuple[Group, ...]:
    """Return all columns in one group: SOP."""
    return (frozenset(range(len(problem.columns))),)


def single_columns(problem: Problem) -> tuple[Group, ...]:
    """Return every column alone: GSOP-single (4.3.1)."""
    return tuple(frozenset((column,)) for column in range(len(problem.columns)))


def scheme_from_groups(problem: Problem, groups: tuple[Group, ...], exact: ComputedRows, partitioner: str) -> Scheme:
    """Return the scheme of a grouping: each group with its own local features (4.5), all columns master columns.

    A group that no query reads keeps the order of the source, which compresses as the source does.
    """
    return Scheme(tuple(_to_layout(problem, group, exact, partitioner) for group in sorted(groups, key=min)))


def _to_layout(problem: Problem, group: Group, exact: ComputedRows, partitioner: str) -> Layout:
    columns = tuple(problem.columns[column] for column in sorted(group))
    served = queries_reading(problem, group)
    features = tuple(exact.guides(served).tolist()) if served.any() else ()
    blocking = ByVectors(partitioner) if features else ByOrder("input")
    return Layout(columns, features, columns, blocking)
