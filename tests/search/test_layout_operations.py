"""The operations of 5.5.1: what they leave every query, and figure 5.5."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
from hypothesis import given, settings

from layoutopt.search.costs import (
    Candidates,
    Costs,
    Evaluator,
    LayoutCandidate,
    drop_unread_columns,
    merge_equal_layouts,
)
from layoutopt.search.layout_operations import improve, merge, merge_replicate, replicate
from layoutopt.search.problem import Problem, thin_samples
from tests.effort import examples
from tests.search.problems import WARD, cells, overlapping, problems, random_problem


def results(problem: Problem, layouts: Candidates) -> list[Candidates]:
    found = [replicate(problem, layouts, layout, frozenset({query})) for layout in layouts for query in layout.served]
    for one, other in combinations(layouts, 2):
        found += [merge(problem, layouts, one, other), merge_replicate(problem, layouts, one, other)]
    return found


@given(overlapping())
def test_no_operation_takes_a_column_from_a_query_or_the_table(case: tuple[Problem, Candidates]) -> None:
    problem, layouts = case
    for result in results(problem, layouts):
        assert {column for layout in result for column in layout.columns} == set(range(len(problem.columns)))
        assert len({layout.served for layout in result}) == len(result)
        for query, reads in enumerate(problem.reads):
            held = {column for layout in result if query in layout.served for column in layout.columns}
            assert set(np.flatnonzero(reads).tolist()) <= held


def of_single_columns(reads: list[list[int]]) -> tuple[Problem, Candidates]:
    """The scheme of a layout for every column, of a problem whose queries read so."""
    problem = replace(random_problem(1, n_queries=len(reads)), reads=np.array(reads, dtype=np.bool_))
    layouts = [
        LayoutCandidate(frozenset({c}), frozenset(np.flatnonzero(problem.reads[:, c]).tolist())) for c in range(4)
    ]
    return problem, tuple(layouts)


def told(layouts: Candidates) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The columns and queries of each layout."""
    return {(tuple(sorted(layout.columns)), tuple(sorted(layout.served))) for layout in layouts}


def test_figure_5_5() -> None:
    """Column 0 is relevant to feature 1, column 1 to 2 and 3, column 2 to 1 and 2, column 3 to feature 3.

    A query asks for each feature, and a layout has those of its queries. What a layout has in common with another is
    merged with it, as 5.5.2 has it. (Of the last operation the text says that the layout of both columns has feature 1
    and a copy feature 2; with these columns it is the other way round.)
    """
    problem, layouts = of_single_columns([[0, 0, 0, 0], [1, 0, 1, 0], [0, 1, 1, 0], [0, 1, 0, 1]])
    _, second, third, _ = layouts
    assert told(layouts) == {((0,), (1,)), ((1,), (2, 3)), ((2,), (1, 2)), ((3,), (3,))}
    replicated = replicate(problem, layouts, second, frozenset({3}))
    assert told(replicated) == {((0,), (1,)), ((1,), (2,)), ((2,), (1, 2)), ((1, 3), (3,))}
    merged = merge(problem, layouts, second, third)
    assert told(merged) == {((0,), (1,)), ((1, 2), (1, 2, 3)), ((3,), (3,))}
    both = merge_replicate(problem, layouts, second, third)
    assert told(both) == {((0, 2), (1,)), ((1, 2), (2,)), ((1, 3), (3,))}


def test_the_operations_where_one_query_reads_three_columns() -> None:
    """Query 0 reads columns 0 and 1, query 1 columns 1 and 2, query 2 all three; nobody reads column 3."""
    problem, layouts = of_single_columns([[1, 1, 0, 0], [0, 1, 1, 0], [1, 1, 1, 0]])
    zero, one, two, _ = layouts
    replicated = replicate(problem, layouts, one, frozenset({1}))
    assert told(replicated) == {((0, 1), (0, 2)), ((1,), (1,)), ((2,), (1, 2)), ((3,), ())}
    assert [layout.copy for layout in replicated if layout.served == {1}] == [True]
    assert told(merge(problem, layouts, zero, two)) == {((0, 1, 2), (0, 1, 2)), ((3,), ())}
    both = merge_replicate(problem, layouts, zero, two)
    assert told(both) == {((0, 2), (2,)), ((0,), (0,)), ((2,), (1,)), ((1,), (0, 1, 2)), ((3,), ())}


def test_layouts_of_the_same_queries_are_one() -> None:
    both = merge_equal_layouts(
        [LayoutCandidate(frozenset({2}), frozenset({7})), LayoutCandidate(frozenset({0}), frozenset({7}), copy=True)]
    )
    assert both == (LayoutCandidate(frozenset({0, 2}), frozenset({7})),)


@given(overlapping())
def test_tidying_leaves_every_column_once_at_least(case: tuple[Problem, Candidates]) -> None:
    problem, layouts = case
    everything = LayoutCandidate(frozenset(range(len(problem.columns))), frozenset())
    kept = drop_unread_columns(problem, [everything, *layouts, everything])
    assert {column for layout in kept for column in layout.columns} == set(range(len(problem.columns)))


@given(problems())
def test_thinned_samples_stand_for_as_many_rows(problem: Problem) -> None:
    thin = thin_samples(problem, 20)
    for sample, before in zip(thin.samples, problem.samples, strict=True):
        assert sample.rows == before.rows
        assert 1 <= sample.vectors.rows <= max(21, 1)
        known = {tuple(v): n for v, n in zip(before.vectors.words.tolist(), before.vectors.counts, strict=True)}
        assert all(
            n <= known[tuple(v)] for v, n in zip(sample.vectors.words.tolist(), sample.vectors.counts, strict=True)
        )


@settings(max_examples=examples(60), deadline=None)
@given(overlapping())
def test_improving_gains_and_stays_within_the_budget(case: tuple[Problem, Candidates]) -> None:
    problem, layouts = case
    costs = Costs(Evaluator(problem, WARD), cells(problem))
    budget = costs.storage(layouts) + 1.0
    better = improve(problem, layouts, budget, costs, costs)
    assert costs.query_cost(better) <= costs.query_cost(layouts)
    assert costs.storage(better) <= budget
