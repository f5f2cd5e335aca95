"""What layouts cost, against the model's equations and brute force over retrieval paths."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.model.layout import Layout
from layoutopt.model.retrieval import Read, choose_path, query_cost
from layoutopt.model.vectors import VectorCounts, pack
from layoutopt.search.costs import (
    Candidates,
    Costs,
    Covers,
    Evaluator,
    LayoutCandidate,
    find_families,
    master_layouts,
    path_costs,
)
from layoutopt.search.grouping import grouping_cost
from layoutopt.search.gsop import single_columns
from layoutopt.search.problem import Problem, Unit
from layoutopt.search.replication import CopyScheme, CopySearch
from layoutopt.search.rows import ComputedRows
from tests.model.costs import Stored, storage_cost
from tests.search.problems import WARD, bits_of, cells, overlapping, problem_of, problems, queries_of, random_problem


@given(st.data())
def test_a_query_pays_for_the_better_of_the_greedy_path_and_one_layout(data: st.DataObject) -> None:
    n_layouts, n_columns = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    rows = [data.draw(st.sampled_from([0, 1, 2, 5, np.inf])) for _ in range(n_layouts)]
    holds = np.array([[data.draw(st.booleans()) for _ in range(n_columns)] for _ in range(n_layouts)])
    eligible = {str(c): [i for i in range(n_layouts) if holds[i, c] and rows[i] < np.inf] for c in range(n_columns)}
    # A query of these columns, and before and after it one of the first or last of them, which is no matter to it.
    given_rows = np.repeat(np.array(rows, dtype=np.float64)[:, None], 3, axis=1)
    reads = np.ones((3, n_columns), dtype=np.bool_)
    reads[0, 1:] = reads[2, :-1] = False
    if not all(eligible.values()):
        with pytest.raises(ValueError, match="no layout"):
            path_costs(given_rows, holds, reads, np.ones(n_columns), 1.0)
        return
    cost = path_costs(given_rows, holds, reads, np.ones(n_columns), 1.0)[1]
    whole = [int(r) if r < np.inf else 99 for r in rows]
    layouts = [Layout(tuple(str(c) for c in range(n_columns) if holds[i, c])) for i in range(n_layouts)]
    greedy = query_cost(choose_path(list(eligible), layouts, whole, eligible).reads(whole))
    alone = [whole[i] * n_columns for i in range(n_layouts) if all(i in of for of in eligible.values())]
    assert cost == min([greedy, *alone])
    optimum = min(
        query_cost([Read(whole[i], path.count(i)) for i in sorted(set(path))]) for path in product(*eligible.values())
    )
    assert optimum <= cost <= 2 * optimum


@given(problems())
def test_disjoint_groups_cost_what_they_cost_in_the_search_for_groups(problem: Problem) -> None:
    costs = Costs(Evaluator(problem, WARD, few_guides=False), cells(problem))
    layouts = CopySearch(problem, find_families(problem), costs).layouts(CopyScheme(single_columns(problem)))
    groups = tuple(layout.columns for layout in layouts)
    assert costs.query_cost(layouts) == pytest.approx(
        grouping_cost(problem, groups, ComputedRows(problem, WARD).by_most)
    )
    assert costs.storage(layouts) == pytest.approx(len(problem.columns))
    if problem.reads.any():
        with pytest.raises(ValueError, match="no layout"):
            costs.query_cost(())


@given(overlapping())
def test_storage_is_equation_5_2(case: tuple[Problem, Candidates]) -> None:
    problem, layouts = case
    evaluator = Evaluator(problem, WARD)
    masters = master_layouts(evaluator, layouts)
    assert set(masters) == set(range(len(problem.columns)))
    rows = 1_000_000
    stored = []
    for layout in layouts:
        held = round(evaluator.evaluate(layout).share * rows)
        mine = sum(master is layout for master in masters.values())
        stored.append(Stored(held, len(layout.columns), rows - held, mine))
    expected = storage_cost(stored, rows, len(problem.columns))
    assert Costs(evaluator, cells(problem)).storage(layouts) / len(problem.columns) == pytest.approx(expected, abs=1e-4)


@given(overlapping())
def test_tids_are_stored_with_every_row_of_every_layout(case: tuple[Problem, Candidates]) -> None:
    problem, layouts = case
    evaluator = Evaluator(problem, WARD)
    tids = Costs(evaluator, Unit(np.zeros(len(problem.columns)), 1.0)).storage(layouts)
    if len(layouts) == 1:
        assert tids == 0
        return
    masters = set(master_layouts(evaluator, layouts).values())
    expected = sum(1.0 if layout in masters else evaluator.evaluate(layout).share for layout in layouts)
    assert tids == pytest.approx(expected)


@given(overlapping())
def test_every_query_has_all_its_columns(case: tuple[Problem, Candidates]) -> None:
    problem, layouts = case
    for query, reads in enumerate(problem.reads):
        held = {column for layout in layouts if query in layout.served for column in layout.columns}
        assert set(np.flatnonzero(reads).tolist()) <= held


def test_what_the_same_queries_read_is_evaluated_once() -> None:
    problem = random_problem(3)
    evaluator = Evaluator(problem, WARD)
    both = frozenset({0, 1})
    rows = evaluator.evaluate(LayoutCandidate(frozenset({0}), both)).rows
    assert evaluator.evaluate(LayoutCandidate(frozenset({1, 2}), both)).rows is rows
    assert evaluator.evaluate(LayoutCandidate(frozenset({0}), frozenset({0}))).rows is not rows


def test_of_equally_few_rows_the_layout_with_more_of_the_columns_is_read() -> None:
    """A second layout has the first one's column and one more: the first need not be read, nor its tids."""
    holds = np.array([[True, False, False], [True, True, False], [False, False, True]])
    rows = np.full((3, 1), 5.0)
    assert path_costs(rows, holds, np.ones((1, 3), dtype=np.bool_), np.ones(3), 1.0).tolist() == [15 + 10]


@given(problems(), st.lists(st.integers(0, 6), min_size=1))
def test_rows_without_the_features_can_be_skipped_by_every_query(problem: Problem, numbers: list[int]) -> None:
    served = queries_of(problem, numbers)
    features = Covers(problem).find(served)
    if not features:
        return
    for bits in bits_of(problem):
        lacked = bits[~bits[:, list(features)].any(axis=1)]
        assert problem.skippable(lacked, served).all()


@given(problems(), st.lists(st.integers(0, 5), min_size=1), st.lists(st.integers(0, 6), min_size=1))
def test_served_are_those_that_skip_a_block_without_the_features(
    problem: Problem, features: list[int], numbers: list[int]
) -> None:
    chosen = tuple(sorted({feature % problem.shares.shape[1] for feature in features}))
    lacked = np.ones((1, problem.shares.shape[1]), dtype=np.bool_)
    lacked[0, list(chosen)] = False
    queries = np.flatnonzero(queries_of(problem, numbers))
    assert Covers(problem).serves(chosen, queries).tolist() == problem.skippable(lacked)[0, queries].tolist()


@given(problems())
def test_shares_are_counted_row_by_row(problem: Problem) -> None:
    features = tuple(range(0, problem.shares.shape[1], 2))
    held = rows = 0.0
    for sample, bits in zip(problem.samples, bits_of(problem), strict=True):
        for vector, count in zip(bits, sample.vectors.counts.tolist(), strict=True):
            held += count * sample.scale * bool(vector[list(features)].any())
        rows += sample.rows
    assert np.isclose(Covers(problem).share(features), held / rows)


def templates(common: bool) -> Problem:
    """Eight queries, each with a constant of its own, feature 1 to 8; with ``common``, all are within feature 0 too."""
    bits = np.array([[i < 16, *(i % 16 == k for k in range(8))] for i in range(64)])
    skips = np.hstack([np.full((8, 1), common), np.eye(8, dtype=np.bool_)])
    vectors = VectorCounts.of_rows(pack(bits), 9)
    return problem_of(vectors, np.ones((8, 1), dtype=np.bool_), block_rows=10, skips=skips)


def test_a_general_feature_is_found_and_constants_of_the_log_are_not() -> None:
    every = np.ones(8, dtype=np.bool_)
    assert Covers(templates(common=True)).find(every) == (0,)
    # Each constant serves one query: those held back would find nothing here, and so would queries not seen yet.
    assert Covers(templates(common=False)).find(every) == ()


def test_constants_that_recur_are_a_cover() -> None:
    once = templates(common=False)
    twice = replace(
        once,
        reads=np.repeat(once.reads, 2, axis=0),
        shares=np.repeat(once.shares, 2, axis=0),
        skips=np.repeat(once.skips, 2, axis=0),
        samples=(replace(once.samples[0], query_weights=np.ones(16)),),
    )
    assert Covers(twice).find(np.ones(16, dtype=np.bool_)) == tuple(range(1, 9))
