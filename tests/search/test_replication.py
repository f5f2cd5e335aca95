"""GSOP-R's search: within the budget, never worse than GSOP, and what copies are for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.model.layout import ByOrder, ByVectors
from layoutopt.model.vectors import VectorCounts, pack
from layoutopt.search.costs import Evaluator, LayoutCandidate, find_families, find_few_families
from layoutopt.search.problem import Problem, Sample, Unit
from layoutopt.search.replication import scheme_from_layouts
from layoutopt.skipping.skip_sets import membership_matrix
from tests.effort import examples
from tests.search.problems import WARD, bits_of, crossing, found_by, problems, random_problem, shares_of


@settings(max_examples=examples(60), deadline=None)
@given(problems(), st.sampled_from([1.0, 1.1, 1.5, 2.0, 4.0]), st.booleans())
def test_within_the_budget_and_never_worse_than_gsop(problem: Problem, budget: float, in_bytes: bool) -> None:
    n = len(problem.columns)
    stored = Unit(np.arange(1.0, n + 1), 0.5) if in_bytes else None
    cost, search = found_by(problem, stored=stored)
    found = search.best(budget)
    assert found.storage <= budget + 1e-9
    assert found.cost <= cost + 1e-6 * max(cost, 1)
    assert found.cells >= 1 - 1e-9
    if not in_bytes:
        assert found.cells == pytest.approx(found.storage)


@settings(max_examples=examples(40), deadline=None)
@given(problems())
def test_a_scheme_stores_every_column_and_serves_every_query(problem: Problem) -> None:
    _, search = found_by(problem)
    layouts = search.best(2.0).layouts
    scheme = scheme_from_layouts(search.exact.evaluator, layouts, "ward")
    assert scheme.columns == set(problem.columns)
    for query, reads in enumerate(problem.reads):
        wanted = {problem.columns[c] for c in np.flatnonzero(reads)}
        held: set[str] = set()
        for layout in scheme.layouts:
            if layout.serves is None or query in layout.serves:
                held |= set(layout.columns)
        assert wanted <= held
    for candidate, layout in zip(layouts, scheme.layouts, strict=True):
        if search.exact.evaluator.evaluate(candidate).features is None:
            assert layout.is_undivided
        else:
            assert set(layout.master) <= set(layout.columns)
        assert isinstance(layout.blocking, ByVectors) or layout.blocking == ByOrder("input")


@settings(max_examples=examples(20), deadline=None)
@given(problems())
def test_the_same_problem_has_the_same_scheme(problem: Problem) -> None:
    first, second = (found_by(one)[1].best(1.5).layouts for one in (problem, replace(problem)))
    assert first == second


def test_a_copy_of_the_column_in_conflict_ends_it() -> None:
    problem = crossing()
    assert [sorted(family.columns) for family in find_families(problem)] == [[0, 1], [1, 2]]
    cost, search = found_by(problem)
    found = search.best(1.25)
    # Every query reads its 40 rows of two columns and no tids; one column of four is stored twice.
    assert found.cost == 8 * 40 * 2 < cost
    assert found.storage == 1.25
    assert {layout.columns - {3} for layout in found.layouts} == {frozenset({0, 1}), frozenset({1, 2})}
    assert search.best(1.0).cost == cost
    # A copy of a few rows of a and b, for one query, is all that less storage can buy.
    assert found.cost < search.best(1.24).cost < cost


def test_a_copy_holds_the_rows_of_a_general_feature_only() -> None:
    """All queries of one family are within feature 8, an eighth of the rows: a copy of those is nearly free."""
    problem = crossing()
    bits = np.hstack([np.tile(bits_of(problem)[0], (8, 1)), np.repeat(np.eye(8, 1, dtype=np.bool_), 16, axis=0)])
    vectors = VectorCounts.of_rows(pack(bits), 9)
    vectors = VectorCounts(vectors.words, vectors.counts * 10, 9)
    general = np.array([[False]] * 4 + [[True]] * 4)
    skips = np.hstack([problem.skips, general])
    problem = replace(
        problem,
        shares=skips.astype(np.float64),
        members=np.eye(9, dtype=np.float32),
        skips=skips,
        samples=(Sample(vectors, 1280, np.ones(8)),),
    )
    _, search = found_by(problem)
    found = search.best(1.05)
    scheme = scheme_from_layouts(search.exact.evaluator, found.layouts, "ward")
    (copy,) = [layout for layout in scheme.layouts if not layout.is_undivided]
    assert (copy.columns, copy.master, copy.features) == (("b", "c"), ("c",), (8,))
    assert set(copy.guides) & {4, 5, 6, 7}
    assert found.storage == pytest.approx(1 + 1 / 8 / 4)


def test_classes_are_told_apart_in_what_a_layout_serves() -> None:
    problem = replace(crossing(), classes=np.array([7, 0, 0, 1, 2, 3, 4, 5, 6]))
    _, search = found_by(problem)
    scheme = scheme_from_layouts(search.exact.evaluator, search.best(1.25).layouts, "ward")
    assert {layout.serves for layout in scheme.layouts} == {(1, 2, 3, 4, 5), (0, 6, 7, 8)}


@pytest.mark.long
@pytest.mark.slow
def test_many_families_are_searched_as_few() -> None:
    problem = random_problem(4, n_columns=8, n_queries=32)
    assert len(find_families(problem)) > 24
    cost, search = found_by(problem)
    assert search.best(1.5).cost <= cost


def test_weak_features_do_not_break_up_the_rows_of_strong_ones() -> None:
    """Each query asks for four of twenty values, and for nothing that one of twelve weak features excludes."""
    rng = np.random.default_rng(5)
    rows, values, weak = 6_000, 20, 12
    bits = np.column_stack(
        [rng.integers(0, values, rows)[:, None] == np.arange(values), rng.random((rows, weak)) < 0.95]
    )
    lists = [frozenset(rng.choice(values, 4, replace=False).tolist()) for _ in range(weak)]
    skip_sets = (*lists, *(frozenset((values + feature,)) for feature in range(weak)))
    skips = np.hstack([np.eye(weak, dtype=np.bool_), np.eye(weak, dtype=np.bool_)])
    problem = Problem(
        columns=("a",), reads=np.ones((weak, 1), dtype=np.bool_), shares=shares_of(skip_sets, skips, values + weak),
        members=membership_matrix(skip_sets, values + weak), skips=skips,
        samples=(Sample(VectorCounts.of_rows(pack(bits), values + weak), rows, np.ones(weak)),),
        unit=Unit.cells(1), block_rows=150, max_vectors=3_000,
    )  # fmt: skip
    layout = LayoutCandidate(frozenset((0,)), frozenset(range(weak)))
    few, many = Evaluator(problem, WARD), Evaluator(problem, WARD, few_guides=False)
    assert set(few.evaluate(layout).guides) < set(many.evaluate(layout).guides)
    assert not {*range(values, values + weak)} & set(few.evaluate(layout).guides)
    assert few.evaluate(layout).rows.sum() < 0.9 * many.evaluate(layout).rows.sum()


@settings(max_examples=examples(30), deadline=None)
@given(problems())
def test_more_storage_never_reads_more(problem: Problem) -> None:
    _, search = found_by(problem)
    costs = [found.cost for found in search.curve((1.0, 1.2, 1.5, 3.0))]
    assert costs == sorted(costs, reverse=True)


def test_few_families_are_left_as_they_are() -> None:
    problem = random_problem(3, n_columns=12, n_features=12, n_queries=24)
    assert [family.queries for family in find_few_families(problem)] == [f.queries for f in find_families(problem)]
    many = random_problem(3, n_columns=12, n_features=12, n_queries=90)
    merged = find_few_families(many)
    assert len(merged) == 24
    assert frozenset().union(*(f.queries for f in merged)) == frozenset().union(
        *(f.queries for f in find_families(many))
    )
