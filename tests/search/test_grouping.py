"""Column grouping: the objective of Eq. 4.1 - 4.4, and bottom-up merging (Sun 2017, 4.4)."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.model.arrays import Bits, Floats
from layoutopt.model.engine_costs import Read
from layoutopt.search.grouping import (
    Group,
    Pairs,
    column_classes,
    grouping_cost,
    merge_bottom_up,
    queries_reading,
    starting_groups,
)
from layoutopt.search.problem import Problem, Unit
from layoutopt.search.rows import ComputedRows, RowsRead, block_estimate, cache_by_queries
from tests.effort import examples
from tests.model.costs import workload_cost
from tests.search.problems import WARD, problems, random_problem


@st.composite
def problems_with_groups(draw: st.DrawFn) -> tuple[Problem, tuple[Group, ...]]:
    problem = draw(problems())
    n = len(problem.columns)
    of_column = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    groups = [frozenset(i for i in range(n) if of_column[i] == g) for g in range(4)]
    return problem, tuple(group for group in groups if group)


def rows_by_chance(problem: Problem, seed: int) -> RowsRead:
    """Rows that depend on the set of queries alone, whole numbers, none for queries not served."""

    def rows_read(served: Bits) -> Floats:
        rng = np.random.default_rng([seed, *np.packbits(served).tolist()])
        return np.floor(rng.random((len(problem.samples), len(served))) * 100) * served

    return cache_by_queries(rows_read)


def cost_by_loops(problem: Problem, groups: tuple[Group, ...], rows_read: RowsRead) -> float:
    """Query by query: the cells of each group read, and a tid a row where there are several."""
    total = 0.0
    for s, sample in enumerate(problem.samples):
        for query, weight in enumerate(sample.query_weights.tolist()):
            read = [group for group in groups if problem.reads[query, sorted(group)].any()]
            for group in read:
                rows = rows_read(queries_reading(problem, group))[s, query]
                cells = sum(problem.unit.cell[c] for c in group if problem.reads[query, c])
                total += weight * rows * (cells + (problem.unit.tid if len(read) > 1 else 0))
    return total


@given(problems_with_groups(), st.integers(0, 99))
def test_the_objective_is_that_of_a_loop_over_queries(case: tuple[Problem, tuple[Group, ...]], seed: int) -> None:
    problem, groups = case
    rows_read = rows_by_chance(problem, seed)
    assert grouping_cost(problem, groups, rows_read) == pytest.approx(cost_by_loops(problem, groups, rows_read))


@given(problems_with_groups(), st.integers(0, 99))
def test_in_cells_it_is_equation_4_4_of_the_model(case: tuple[Problem, tuple[Group, ...]], seed: int) -> None:
    problem, groups = case
    if not (problem.unit.cell == 1).all():
        return
    rows_read = rows_by_chance(problem, seed)
    queries = []
    for s, query in np.ndindex(problem.weights.shape):
        columns = [int(problem.reads[query, sorted(group)].sum()) for group in groups]
        rows = [int(rows_read(queries_reading(problem, group))[s, query]) for group in groups]
        reads = [Read(rows=r, columns=c) for r, c in zip(rows, columns, strict=True) if c]
        queries.append((reads, float(problem.weights[s, query])))
    if (problem.unit.tid, problem.unit.cell.sum()) == (1.0, len(problem.columns)):
        assert grouping_cost(problem, groups, rows_read) == pytest.approx(workload_cost(queries))


def test_tids_are_paid_only_where_several_groups_are_read() -> None:
    problem = random_problem(1, n_columns=3, n_queries=2)
    object.__setattr__(problem, "reads", np.array([[True, True, False], [True, False, True]]))
    for sample in problem.samples:
        sample.query_weights[:] = 1
    groups = (frozenset({0, 1}), frozenset({2}))

    def ten(served: Bits) -> Floats:
        return np.where(served, 10.0, 0.0)[None, :]

    # Query 0: two cells a row. Query 1: a cell and a tid a row of both groups.
    assert grouping_cost(problem, groups, ten) == 20 + 2 * (10 + 10)


@given(problems())
def test_columns_of_one_class_have_the_same_readers_and_no_others(problem: Problem) -> None:
    classes = column_classes(problem)
    assert sorted(column for group in classes for column in group) == list(range(len(problem.columns)))
    of_column = {column: group for group in classes for column in group}
    for a, b in combinations(range(len(problem.columns)), 2):
        same = bool((problem.reads[:, a] == problem.reads[:, b]).all())
        assert (of_column[a] == of_column[b]) == same


@given(problems_with_groups(), st.integers(0, 99))
def test_separating_a_class_never_pays(case: tuple[Problem, tuple[Group, ...]], seed: int) -> None:
    """Columns of one class put together in any scheme: where most of them are, say where the smallest is."""
    problem, groups = case
    rows_read = rows_by_chance(problem, seed)
    finer = {group & whole for group in groups for whole in column_classes(problem)} - {frozenset()}
    together = column_classes(problem)
    assert (
        grouping_cost(problem, together, rows_read)
        <= grouping_cost(problem, tuple(sorted(finer, key=min)), rows_read) + 1e-6
    )


@given(problems_with_groups(), st.integers(0, 99))
def test_a_merges_change_is_the_difference_of_the_objective(case: tuple[Problem, tuple[Group, ...]], seed: int) -> None:
    problem, groups = case
    rows_read = rows_by_chance(problem, seed)
    before = grouping_cost(problem, groups, rows_read)
    pairs = Pairs(problem, groups, rows_read)
    for i, j in combinations(range(len(groups)), 2):
        after = (*(g for k, g in enumerate(groups) if k not in (i, j)), groups[i] | groups[j])
        assert before + pairs.change(i, j) == pytest.approx(grouping_cost(problem, after, rows_read))


@settings(max_examples=examples(50))
@given(problems())
def test_merging_passes_from_classes_to_one_group_by_best_estimated_pairs(problem: Problem) -> None:
    estimate, exact = block_estimate(problem), ComputedRows(problem, WARD)
    passed = merge_bottom_up(problem, starting_groups(problem), estimate, exact)
    assert set(passed[0].groups) == set(column_classes(problem))
    assert passed[-1].groups == (frozenset(range(len(problem.columns))),)
    for scheme in passed:
        assert scheme.cost == pytest.approx(cost_by_loops(problem, scheme.groups, exact))
    for before, after in pairwise(passed):
        (merged,) = set(after.groups) - set(before.groups)
        assert _estimated(problem, before.groups, merged, estimate) <= _least(problem, before.groups, estimate) + 1e-6


def _estimated(problem: Problem, groups: tuple[Group, ...], merged: Group, estimate: RowsRead) -> float:
    return grouping_cost(problem, (*(g for g in groups if not g <= merged), merged), estimate)


def _least(problem: Problem, groups: tuple[Group, ...], estimate: RowsRead) -> float:
    """The least estimate of all merges of two groups that some query reads together; anything if there is none."""
    pairs = [
        (a, b) for a, b in combinations(groups, 2) if (queries_reading(problem, a) & queries_reading(problem, b)).any()
    ]
    return min((_estimated(problem, groups, a | b, estimate) for a, b in pairs), default=np.inf)


def test_units_in_bytes_move_the_objective() -> None:
    problem = random_problem(2, n_columns=2)
    wide = Unit(np.array([1.0, 100.0]), 4.0)
    whole = (frozenset({0, 1}),)
    rows_read = rows_by_chance(problem, 0)
    cells = grouping_cost(problem, whole, rows_read)
    object.__setattr__(problem, "unit", wide)
    assert grouping_cost(problem, whole, rows_read) > cells
