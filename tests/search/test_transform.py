"""The operations of 5.5.1: what they leave every query, and figure 5.5."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings

from layoutopt.search.candidates import CandidateLayout, CandidateLayouts, joined, tidied
from layoutopt.search.costs import Costs
from layoutopt.search.evaluation import Evaluator
from layoutopt.search.problem import Problem, thinned
from layoutopt.search.transform import improve, merge, merge_replicate, replicate
from tests.search.problems import WARD, problems
from tests.search.test_costs import cells, overlapping


def results(problem: Problem, layouts: CandidateLayouts) -> list[CandidateLayouts]:
    found = [replicate(problem, layouts, layout, frozenset({query})) for layout in layouts for query in layout.served]
    for one, other in combinations(layouts, 2):
        found += [merge(problem, layouts, one, other), merge_replicate(problem, layouts, one, other)]
    return found


@given(overlapping())
def test_no_operation_takes_a_column_from_a_query_or_the_table(case: tuple[Problem, CandidateLayouts]) -> None:
    problem, layouts = case
    for result in results(problem, layouts):
        assert {column for layout in result for column in layout.columns} == set(range(len(problem.columns)))
        assert len({layout.served for layout in result}) == len(result)
        for query, reads in enumerate(problem.reads):
            held = {column for layout in result if query in layout.served for column in layout.columns}
            assert set(np.flatnonzero(reads).tolist()) <= held


def small(problem: Problem) -> tuple[Problem, CandidateLayouts]:
    layouts = [
        CandidateLayout(frozenset({c}), frozenset(np.flatnonzero(problem.reads[:, c]).tolist())) for c in range(4)
    ]
    return problem, tuple(layouts)


@pytest.fixture
def three_queries() -> Problem:
    """Query 0 reads columns 0 and 1, query 1 columns 1 and 2, query 2 all; nobody reads column 3."""
    from tests.search.problems import random_problem

    problem = random_problem(1, n_queries=3)
    reads = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 1, 1, 0]], dtype=np.bool_)
    object.__setattr__(problem, "reads", reads)
    return problem


def layouts_of(*given: tuple[set[int], set[int]]) -> set[tuple[frozenset[int], frozenset[int]]]:
    return {(frozenset(columns), frozenset(queries)) for columns, queries in given}


def test_the_operations_on_an_example(three_queries: Problem) -> None:
    problem, layouts = small(three_queries)
    zero, one, two, _ = layouts
    replicated = replicate(problem, layouts, one, frozenset({1}))
    assert {(d.columns, d.served) for d in replicated} == layouts_of(
        ({0, 1}, {0, 2}), ({1}, {1}), ({2}, {1, 2}), ({3}, set())
    )
    assert [d.copy for d in replicated if d.served == {1}] == [True]
    assert {(d.columns, d.served) for d in merge(problem, layouts, zero, two)} == layouts_of(
        ({0, 1, 2}, {0, 1, 2}), ({3}, set())
    )
    both = merge_replicate(problem, layouts, zero, two)
    assert {(d.columns, d.served) for d in both} == layouts_of(
        ({0, 2}, {2}), ({0}, {0}), ({2}, {1}), ({1}, {0, 1, 2}), ({3}, set())
    )


def test_layouts_of_the_same_queries_are_one() -> None:
    both = joined(
        [CandidateLayout(frozenset({2}), frozenset({7})), CandidateLayout(frozenset({0}), frozenset({7}), copy=True)]
    )
    assert both == (CandidateLayout(frozenset({0, 2}), frozenset({7})),)


@given(overlapping())
def test_tidying_leaves_every_column_once_at_least(case: tuple[Problem, CandidateLayouts]) -> None:
    problem, layouts = case
    everything = CandidateLayout(frozenset(range(len(problem.columns))), frozenset())
    kept = tidied(problem, [everything, *layouts, everything])
    assert {column for layout in kept for column in layout.columns} == set(range(len(problem.columns)))


@given(problems())
def test_thinned_samples_stand_for_as_many_rows(problem: Problem) -> None:
    thin = thinned(problem, 20)
    for sample, before in zip(thin.samples, problem.samples, strict=True):
        assert sample.rows == before.rows
        assert 1 <= sample.vectors.rows <= max(21, 1)
        known = {tuple(v): n for v, n in zip(before.vectors.words.tolist(), before.vectors.counts, strict=True)}
        assert all(
            n <= known[tuple(v)] for v, n in zip(sample.vectors.words.tolist(), sample.vectors.counts, strict=True)
        )


@settings(max_examples=60, deadline=None)
@given(overlapping())
def test_improving_gains_and_stays_within_the_budget(case: tuple[Problem, CandidateLayouts]) -> None:
    problem, layouts = case
    costs = Costs(Evaluator(problem, WARD), cells(problem))
    budget = costs.storage(layouts) + 1.0
    better = improve(problem, layouts, budget, costs, costs)
    assert costs.query_cost(better) <= costs.query_cost(layouts)
    assert costs.storage(better) <= budget
