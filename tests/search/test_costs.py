"""What layouts cost, against the model's equations and brute force over retrieval paths."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.model.engine_costs import Read, query_cost
from layoutopt.model.layout import Layout
from layoutopt.model.retrieval import choose_path
from layoutopt.search.costs import Candidate, Candidates, Costs, Evaluator, find_families, master_layouts, path_costs
from layoutopt.search.grouping import grouping_cost
from layoutopt.search.gsop import single_columns
from layoutopt.search.problem import Problem, Unit
from layoutopt.search.replication import CopyScheme, CopySearch
from layoutopt.search.rows import ComputedRows
from tests.model.costs import Stored, storage_cost
from tests.search.problems import WARD, cells, overlapping, problems, random_problem


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


def test_a_query_without_a_column_is_refused() -> None:
    with pytest.raises(ValueError, match="no layout"):
        path_costs(np.array([[1.0]]), np.array([[True, False]]), np.ones((1, 2), dtype=np.bool_), np.ones(2), 1.0)


def test_what_the_same_queries_read_is_evaluated_once() -> None:
    problem = random_problem(3)
    evaluator = Evaluator(problem, WARD)
    both = frozenset({0, 1})
    rows = evaluator.evaluate(Candidate(frozenset({0}), both)).rows
    assert evaluator.evaluate(Candidate(frozenset({1, 2}), both)).rows is rows
    assert evaluator.evaluate(Candidate(frozenset({0}), frozenset({0}))).rows is not rows


def test_of_equally_few_rows_the_layout_with_more_of_the_columns_is_read() -> None:
    """A second layout has the first one's column and one more: the first need not be read, nor its tids."""
    holds = np.array([[True, False, False], [True, True, False], [False, False, True]])
    rows = np.full((3, 1), 5.0)
    assert path_costs(rows, holds, np.ones((1, 3), dtype=np.bool_), np.ones(3), 1.0).tolist() == [15 + 10]
