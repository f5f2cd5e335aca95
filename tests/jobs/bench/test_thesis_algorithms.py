"""Algorithms 1 and 2 on layouts of features: the text's own figures, and what every scheme passed must keep."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings

from jobs.bench.thesis_algorithms import (
    FeatureCosts,
    FeatureLayout,
    FeatureLayouts,
    ThesisSearch,
    initial_layouts,
    merge,
    merge_equal_layouts,
    merge_replicate,
    relevant_columns,
    replicate,
    thesis_scheme,
)
from layoutopt.model.vectors import VectorCounts, pack
from layoutopt.search.problem import Problem, Sample, Unit
from layoutopt.skipping.skip_sets import membership_matrix
from tests.effort import examples
from tests.search.problems import WARD, bits_of, problems


def laid(*layouts: tuple[set[int], set[int]]) -> FeatureLayouts:
    """Layouts of these columns and features, as the text numbers them: from 1."""
    return merge_equal_layouts(
        FeatureLayout(frozenset(c - 1 for c in columns), frozenset(f - 1 for f in features))
        for columns, features in layouts
    )


def asked(reads: list[list[int]], rows: list[list[int]], block_rows: int = 2) -> Problem:
    """Query i is subsumed by feature i alone and reads so; the rows have these features."""
    n = len(reads)
    skip_sets = tuple(frozenset((feature,)) for feature in range(n))
    vectors = VectorCounts.of_rows(pack(np.array(rows, dtype=np.bool_)), n)
    return Problem(
        columns=tuple(f"c{number + 1}" for number in range(len(reads[0]))),
        reads=np.array(reads, dtype=np.bool_),
        shares=np.eye(n),
        members=membership_matrix(skip_sets, n),
        skips=np.eye(n, dtype=np.bool_),
        samples=(Sample(vectors, len(rows), np.ones(n)),),
        unit=Unit.cells(len(reads[0])),
        block_rows=block_rows,
        max_vectors=100,
        by_count=True,
    )


# The columns of figure 5.2 that each feature is relevant to, and the rows of figure 5.4 that have each.
FIGURES = asked([[1, 0, 1, 0], [0, 1, 1, 0], [0, 1, 0, 1]], [[1, 0, 1], [0, 1, 1], [1, 0, 0], [0, 1, 0]])


def test_figure_5_5() -> None:
    """The text says that (d) has feature 1 and a copy feature 2; the intersection of its layouts is feature 2."""
    relevant, start = relevant_columns(FIGURES), initial_layouts(FIGURES)
    assert start == laid(({1}, {1}), ({2}, {2, 3}), ({3}, {1, 2}), ({4}, {3}))
    second, third = start[1], start[2]
    assert replicate(relevant, start, second, 2) == laid(({1}, {1}), ({2}, {2}), ({3}, {1, 2}), ({2, 4}, {3}))
    assert merge(start, second, third) == laid(({1}, {1}), ({2, 3}, {1, 2, 3}), ({4}, {3}))
    both = merge_replicate(relevant, start, second, third)
    assert both == laid(({1, 3}, {1}), ({2, 3}, {2}), ({2, 4}, {3}))


def test_figure_5_4_stores_18_of_16_cells() -> None:
    costs, layouts = FeatureCosts(FIGURES, WARD), laid(({1, 2, 3}, {1, 2}), ({2, 4}, {3}))
    first, second = layouts
    assert costs.masters(layouts) == {first: frozenset({0, 1, 2}), second: frozenset({3})}
    assert costs.storage(layouts) == 18 / 16
    assert costs.storage(initial_layouts(FIGURES)) == 1.0


def test_the_query_of_figure_5_6_costs_14() -> None:
    """Two rows of columns 2 and 4 with their tids, and all four of column 3."""
    problem = asked([[0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 1, 1]], [[1, 0, 1], [0, 1, 1], [1, 0, 0], [0, 1, 0]])
    assert FeatureCosts(problem, WARD).query_cost(laid(({1, 2, 3}, {1, 2}), ({2, 4}, {3}))) == 14


def results(problem: Problem, layouts: FeatureLayouts) -> list[FeatureLayouts]:
    relevant = relevant_columns(problem)
    found = [replicate(relevant, layouts, one, f) for one in layouts if len(one.features) > 1 for f in one.features]
    for one, other in combinations(layouts, 2):
        if one.features & other.features:
            found += [merge(layouts, one, other), merge_replicate(relevant, layouts, one, other)]
    return found


@settings(max_examples=examples(60), deadline=None)
@given(problems())
def test_no_operation_loses_a_column_and_none_comes_back(problem: Problem) -> None:
    """Features summed over layouts fall, or else their squares: so every search ends."""

    def left(layouts: FeatureLayouts) -> tuple[int, int]:
        sizes = [len(layout.features) for layout in layouts]
        return sum(sizes), sum(size**2 for size in sizes)

    layouts = initial_layouts(problem)
    for result in results(problem, layouts):
        assert {column for layout in result for column in layout.columns} == set(range(len(problem.columns)))
        assert left(result) < left(layouts)
        assert max(Counter(layout.features for layout in result).values()) == 1


@settings(max_examples=examples(30), deadline=None)
@given(problems())
def test_the_best_scheme_is_within_the_budget_and_reads_no_more(problem: Problem) -> None:
    costs = FeatureCosts(problem, WARD)
    search = ThesisSearch(costs)
    for budget in (1.0, 1.3, 2.0):
        passed = search.passed(budget)
        best = passed[0]
        assert passed[-1] == search.start
        assert all(costs.storage(layouts) <= budget + 1e-6 for layouts in passed)
        read = [costs.query_cost(layouts) for layouts in passed]
        assert read == sorted(read)
        scheme = thesis_scheme(costs, best, "ward")
        masters = Counter(name for layout in scheme.layouts for name in layout.master)
        assert masters == Counter(problem.columns)


@settings(max_examples=examples(60), deadline=None)
@given(problems())
def test_a_layout_is_read_whole_where_no_feature_subsumes_a_query(problem: Problem) -> None:
    """And never for less than the rows that nothing excludes."""
    costs = FeatureCosts(problem, WARD)
    weighted = problem.weights * problem.least_rows
    least = float((weighted.sum(axis=0) * problem.reads.sum(axis=1)).sum())
    cells = Unit.cells(len(problem.columns))
    if np.array_equal(problem.unit.cell, cells.cell):
        assert costs.query_cost(initial_layouts(problem)) >= least - 1e-6
    for layout in initial_layouts(problem):
        found = costs.share(layout.features)
        rows = sum(
            sample.scale * float(sample.vectors.counts @ bits[:, sorted(layout.features)].any(axis=1))
            for sample, bits in zip(problem.samples, bits_of(problem), strict=True)
        )
        assert found == pytest.approx(rows / sum(sample.rows for sample in problem.samples), abs=0.05)
