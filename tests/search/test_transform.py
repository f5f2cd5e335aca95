"""The operations of 5.5.1: what they leave every query, and figure 5.5."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings

from layoutopt.search.costs import Costs
from layoutopt.search.drafts import Draft, Drafts, Maker, joined, thinned, tidied
from layoutopt.search.problem import Problem
from layoutopt.search.transform import improve, merge, merge_replicate, replicate
from tests.search.problems import WARD, problems
from tests.search.test_costs import cells, overlapping


def results(problem: Problem, drafts: Drafts) -> list[Drafts]:
    found = [replicate(problem, drafts, draft, frozenset({query})) for draft in drafts for query in draft.served]
    for one, other in combinations(drafts, 2):
        found += [merge(problem, drafts, one, other), merge_replicate(problem, drafts, one, other)]
    return found


@given(overlapping())
def test_no_operation_takes_a_column_from_a_query_or_the_table(case: tuple[Problem, Drafts]) -> None:
    problem, drafts = case
    for result in results(problem, drafts):
        assert {column for draft in result for column in draft.columns} == set(range(len(problem.columns)))
        assert len({draft.served for draft in result}) == len(result)
        for query, reads in enumerate(problem.reads):
            held = {column for draft in result if query in draft.served for column in draft.columns}
            assert set(np.flatnonzero(reads).tolist()) <= held


def small(problem: Problem) -> tuple[Problem, Drafts]:
    drafts = [Draft(frozenset({c}), frozenset(np.flatnonzero(problem.reads[:, c]).tolist())) for c in range(4)]
    return problem, tuple(drafts)


@pytest.fixture
def three_queries() -> Problem:
    """Query 0 reads columns 0 and 1, query 1 columns 1 and 2, query 2 all; nobody reads column 3."""
    from tests.search.problems import random_problem

    problem = random_problem(1, n_queries=3)
    reads = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 1, 1, 0]], dtype=np.bool_)
    object.__setattr__(problem, "reads", reads)
    return problem


def drafts_of(*given: tuple[set[int], set[int]]) -> set[tuple[frozenset[int], frozenset[int]]]:
    return {(frozenset(columns), frozenset(queries)) for columns, queries in given}


def test_the_operations_on_an_example(three_queries: Problem) -> None:
    problem, drafts = small(three_queries)
    zero, one, two, _ = drafts
    replicated = replicate(problem, drafts, one, frozenset({1}))
    assert {(d.columns, d.served) for d in replicated} == drafts_of(
        ({0, 1}, {0, 2}), ({1}, {1}), ({2}, {1, 2}), ({3}, set())
    )
    assert [d.copy for d in replicated if d.served == {1}] == [True]
    assert {(d.columns, d.served) for d in merge(problem, drafts, zero, two)} == drafts_of(
        ({0, 1, 2}, {0, 1, 2}), ({3}, set())
    )
    both = merge_replicate(problem, drafts, zero, two)
    assert {(d.columns, d.served) for d in both} == drafts_of(
        ({0, 2}, {2}), ({0}, {0}), ({2}, {1}), ({1}, {0, 1, 2}), ({3}, set())
    )


def test_layouts_of_the_same_queries_are_one() -> None:
    both = joined([Draft(frozenset({2}), frozenset({7})), Draft(frozenset({0}), frozenset({7}), copy=True)])
    assert both == (Draft(frozenset({0, 2}), frozenset({7})),)


@given(overlapping())
def test_tidying_leaves_every_column_once_at_least(case: tuple[Problem, Drafts]) -> None:
    problem, drafts = case
    everything = Draft(frozenset(range(len(problem.columns))), frozenset())
    kept = tidied(problem, [everything, *drafts, everything])
    assert {column for draft in kept for column in draft.columns} == set(range(len(problem.columns)))


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
def test_improving_gains_and_stays_within_the_budget(case: tuple[Problem, Drafts]) -> None:
    problem, drafts = case
    costs = Costs(Maker(problem, WARD), cells(problem))
    budget = costs.storage(drafts) + 1.0
    better = improve(problem, drafts, budget, costs, costs)
    assert costs.query_cost(better) <= costs.query_cost(drafts)
    assert costs.storage(better) <= budget
