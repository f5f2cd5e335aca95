"""GSOP's search, and the scheme that it makes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.bench.baselines import hillclimb, hyrise
from layoutopt.model.layout import ByOrder, ByVectors
from layoutopt.search.grouping import grouping_cost, queries_reading
from layoutopt.search.gsop import one_group, scheme_from_groups, search_groups, single_columns
from layoutopt.search.local import choose_features
from layoutopt.search.problem import Problem
from layoutopt.search.rows import ComputedRows, Estimate
from tests.effort import examples
from tests.search.problems import WARD, problems, random_problem, two_families

estimates: st.SearchStrategy[Estimate] = st.sampled_from(["coarse", "block", "selectivity", "full"])


@settings(max_examples=examples(150))
@given(problems(), estimates)
def test_never_worse_than_sop_and_gsop_single_on_the_training_objective(problem: Problem, estimate: Estimate) -> None:
    found = search_groups(problem, WARD, estimate)
    exact = ComputedRows(problem, WARD)
    assert found.best.cost == pytest.approx(grouping_cost(problem, found.best.groups, exact))
    assert found.best.cost <= grouping_cost(problem, one_group(problem), exact) + 1e-6
    assert found.best.cost <= grouping_cost(problem, single_columns(problem), exact) + 1e-6
    assert found.best.cost <= min(passed.cost for passed in found.passed)
    for passed in found.passed:
        assert sorted(c for group in passed.groups for c in group) == list(range(len(problem.columns)))


@settings(max_examples=examples(30))
@given(problems(), estimates)
def test_the_same_problem_has_the_same_scheme(problem: Problem, estimate: Estimate) -> None:
    first, second = (search_groups(one, WARD, estimate) for one in (problem, replace(problem)))
    assert first.passed == second.passed
    assert scheme_from_groups(problem, first.best.groups, first.exact, "ward") == scheme_from_groups(
        problem, second.best.groups, second.exact, "ward"
    )


@pytest.mark.parametrize("estimate", ["coarse", "block", "selectivity", "full"])
def test_families_of_queries_in_conflict_are_given_groups_of_their_own(estimate: Estimate) -> None:
    found = search_groups(two_families((True, True, False, False), (False, False, True, True)), WARD, estimate).best
    assert set(found.groups) == {frozenset({0, 1}), frozenset({2, 3})}
    # Each query reads its 40 rows of two columns, and no tids: nothing better is possible.
    assert found.cost == 8 * 40 * 2


def test_columns_always_read_together_stay_together() -> None:
    problem = random_problem(5, n_columns=5)
    together = replace(problem, reads=np.ones_like(problem.reads))
    assert search_groups(together, WARD).best.groups == one_group(together)


@given(problems())
def test_a_scheme_has_each_groups_columns_and_local_features(problem: Problem) -> None:
    for groups in (
        search_groups(problem, WARD).best.groups,
        single_columns(problem),
        hillclimb(problem),
        hyrise(problem),
    ):
        exact = ComputedRows(problem, WARD)
        scheme = scheme_from_groups(problem, groups, exact, "ward")
        assert [layout.columns for layout in scheme.layouts] == [
            tuple(problem.columns[c] for c in sorted(group)) for group in sorted(groups, key=min)
        ]
        for layout, group in zip(scheme.layouts, sorted(groups, key=min), strict=True):
            served = queries_reading(problem, group)
            assert layout.master == layout.columns
            assert set(layout.features) <= set(choose_features(problem, served).tolist())
            assert layout.features == tuple(exact.guides(served).tolist())
            assert layout.blocking == (ByVectors("ward") if layout.features else ByOrder("input"))


def test_columns_that_nobody_reads_keep_the_order_of_the_source() -> None:
    problem = random_problem(6, n_columns=3)
    reads = problem.reads.copy()
    reads[:, 2] = False
    reads[:, :2] = True
    unread = replace(problem, reads=reads)
    scheme = scheme_from_groups(unread, (frozenset({0, 1}), frozenset({2})), ComputedRows(unread, WARD), "ward")
    assert isinstance(scheme.layouts[0].blocking, ByVectors)
    assert scheme.layouts[1].blocking == ByOrder("input")
