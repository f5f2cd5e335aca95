"""Column grouping by co-access alone (Sun 2017, 4.7.5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from jobs.bench import baselines
from jobs.bench.baselines import hillclimb, hyrise, row_store_cost
from layoutopt.model.arrays import Bits
from layoutopt.search.grouping import Group
from layoutopt.search.problem import Problem, Unit
from tests.search.problems import problems, random_problem

Baseline = Callable[[Problem], tuple[Group, ...]]
both = pytest.mark.parametrize("baseline", [hillclimb, hyrise])


def reading(reads: list[list[int]], weights: list[float] | None = None) -> Problem:
    """A problem in which query i reads the columns of row i."""
    matrix = np.array(reads, dtype=np.bool_)
    problem = random_problem(0, n_columns=matrix.shape[1], n_queries=len(reads))
    (sample,) = problem.samples
    of_queries = np.ones(len(reads)) if weights is None else np.array(weights)
    return replace(problem, reads=matrix, samples=(replace(sample, query_weights=of_queries),))


@both
@given(problem=problems())
def test_every_column_is_in_one_group_the_same_each_time(baseline: Baseline, problem: Problem) -> None:
    groups = baseline(problem)
    assert groups == baseline(replace(problem))
    assert sorted(column for group in groups for column in group) == list(range(len(problem.columns)))
    assert list(groups) == sorted(groups, key=min) or baseline is hyrise


@both
@given(problem=problems())
def test_skipping_has_no_say(baseline: Baseline, problem: Problem) -> None:
    blind = replace(problem, skips=np.zeros_like(problem.skips), shares=np.zeros_like(problem.shares), block_rows=1)
    assert baseline(blind) == baseline(problem)


@given(problem=problems())
def test_no_further_merge_pays(problem: Problem) -> None:
    groups = hillclimb(problem)
    costs = {group: row_store_cost(problem, group) for group in groups}
    for a in groups:
        for b in groups:
            if a != b:
                assert row_store_cost(problem, a | b) >= costs[a] + costs[b] - 1e-9


@both
def test_columns_read_together_are_together_and_others_are_not(baseline: Baseline) -> None:
    problem = reading([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0]])
    assert set(baseline(problem)) == {frozenset({0, 1}), frozenset({2}), frozenset({3})}


@both
def test_columns_mostly_read_together_are_joined_where_tids_cost_more_than_cells(baseline: Baseline) -> None:
    problem = reading([[1, 1], [1, 0]], [3.0, 1.0])
    assert set(baseline(problem)) == {frozenset({0, 1})}
    seldom = reading([[1, 1], [1, 0]], [1.0, 3.0])
    assert set(baseline(seldom)) == {frozenset({0}), frozenset({1})}


def test_a_group_costs_its_row_and_a_tid_for_every_query_that_touches_it() -> None:
    problem = replace(
        reading([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [2.0, 3.0, 7.0]), unit=Unit(np.array([1, 2, 9.0]), 4.0)
    )
    assert row_store_cost(problem, frozenset({0, 1})) == (2 + 3) * (1 + 2 + 4)


def test_hyrise_merges_only_within_parts_of_limited_size() -> None:
    # A chain: each column is read with its neighbour, and once alone, so that all are partitions of their own.
    n = 25
    reads = [[int(c in (i, i + 1)) for c in range(n)] for i in range(n - 1)]
    problem = reading(reads, [9.0 - i % 3 for i in range(n - 1)])
    primary = [frozenset((column,)) for column in range(n)]
    parts = baselines._split_graph(problem, primary)
    assert sorted(column for part in parts for group in part for column in group) == list(range(n))
    assert max(map(len, parts)) <= 10
    assert len(parts) < n
    inside = [frozenset().union(*part) for part in parts]
    assert all(any(group <= part for part in inside) for group in hyrise(problem))


def test_columns_that_nobody_reads_do_no_harm() -> None:
    nobody: Bits = np.zeros((1, 3), dtype=np.bool_)
    problem = replace(reading([[1, 0, 0]]), reads=nobody)
    for baseline in (hillclimb, hyrise):
        assert set().union(*baseline(problem)) == {0, 1, 2}
