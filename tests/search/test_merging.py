"""Where merging starts on wide tables, and which pairs it looks at."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.model.arrays import Bits, Floats
from layoutopt.search import grouping as merging
from layoutopt.search.grouping import (
    Grouping,
    Pairs,
    column_classes,
    cost_unless_above,
    grouping_cost,
    move_classes,
    starting_groups,
)
from layoutopt.search.gsop import one_group, search_groups, single_columns
from layoutopt.search.problem import Problem
from layoutopt.search.rows import ComputedRows, RowsRead, block_estimate
from tests.effort import examples
from tests.search.problems import WARD, problems, random_problem


@settings(max_examples=examples(50))
@given(problems(), st.integers(1, 5))
def test_starting_groups_are_unions_of_classes_and_as_few_as_asked_for(problem: Problem, most: int) -> None:
    classes, start = column_classes(problem), starting_groups(problem, most)
    assert len(start) == min(most, len(classes))
    assert sorted(column for group in start for column in group) == list(range(len(problem.columns)))
    for one in classes:
        assert sum(one <= group for group in start) == 1


def test_classes_with_nearly_the_same_readers_start_together() -> None:
    reads = np.zeros((40, 4), dtype=np.bool_)
    reads[:20, :2] = reads[20:, 2:] = True
    reads[0, 1] = reads[39, 3] = False
    problem = replace(random_problem(0, n_queries=40), reads=reads, samples=random_problem(1, n_queries=40).samples)
    for sample in problem.samples:
        sample.query_weights[:] = 1
    assert starting_groups(problem, 2) == (frozenset({0, 1}), frozenset({2, 3}))


def worse_with_every_reader(problem: Problem) -> RowsRead:
    """Rows that grow with the queries that share a group, as they nearly always do."""
    of_query = np.random.default_rng(0).random(problem.weights.shape)
    return lambda served: of_query * served.sum() * served


@settings(max_examples=examples(50))
@given(problems())
def test_bounds_leave_out_no_pair_that_is_better(problem: Problem) -> None:
    groups, estimate = column_classes(problem), worse_with_every_reader(problem)
    if len(groups) < 2:
        return
    every = Pairs(problem, groups, estimate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "_ALL_PAIRS_GROUPS", 0)
        patch.setattr(merging, "_MAX_ESTIMATED", 1000)
        some = Pairs(problem, groups, estimate).best()
    assert every.change(*some) == pytest.approx(every.change(*every.best()))


@settings(max_examples=examples(20))
@given(problems())
def test_of_many_groups_only_so_many_pairs_are_estimated(problem: Problem) -> None:
    asked: set[bytes] = set()
    blind = worse_with_every_reader(problem)

    def estimate(served: Bits) -> Floats:
        asked.add(served.tobytes())
        return blind(served)

    groups = column_classes(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "_ALL_PAIRS_GROUPS", 0)
        patch.setattr(merging, "_MAX_ESTIMATED", 2)
        pairs = Pairs(problem, groups, estimate)
        before = len(asked)
        if len(groups) > 1:
            pairs.best()
    assert len(asked) <= before + 2


@settings(max_examples=examples(50))
@given(problems(), st.floats(0.0, 1.0))
def test_an_objective_is_given_up_only_above_the_limit(problem: Problem, share: float) -> None:
    exact = ComputedRows(problem, WARD)
    cost = grouping_cost(problem, single_columns(problem), exact)
    limit = 2 * share * cost
    found = cost_unless_above(problem, single_columns(problem), exact, problem.least_rows, limit)
    if found is None:
        assert cost > limit - 1e-6
    else:
        assert found == pytest.approx(cost)


@settings(max_examples=examples(40))
@given(problems())
def test_moves_are_schemes_with_their_exact_objectives(problem: Problem) -> None:
    exact = ComputedRows(problem, WARD)
    start = Grouping(one_group(problem), grouping_cost(problem, one_group(problem), exact))
    for found in move_classes(problem, start, column_classes(problem), block_estimate(problem), exact):
        assert sorted(column for group in found.groups for column in group) == list(range(len(problem.columns)))
        assert found.cost == pytest.approx(grouping_cost(problem, found.groups, exact))


@pytest.mark.parametrize("seed", [0, 1])
def test_wide_tables_are_never_worse_than_sop_and_gsop_single_either(seed: int) -> None:
    """More classes than merging starts from, so that bounds and pruning are at work."""
    problem = random_problem(seed, n_columns=48, n_queries=10, n_features=3, block_rows=40)
    assert len(column_classes(problem)) > len(starting_groups(problem))
    best = search_groups(problem, WARD).best
    exact = ComputedRows(problem, WARD)
    assert best.cost == pytest.approx(grouping_cost(problem, best.groups, exact))
    assert best.cost <= grouping_cost(problem, one_group(problem), exact) + 1e-6
    assert best.cost <= grouping_cost(problem, single_columns(problem), exact) + 1e-6
