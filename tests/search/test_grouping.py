"""Column grouping: the objective of Eq. 4.1 - 4.4, and bottom-up merging (Sun 2017, 4.4)."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.model.arrays import Bits, Floats
from layoutopt.model.retrieval import Read
from layoutopt.search import grouping as merging
from layoutopt.search.grouping import (
    Group,
    Grouping,
    Pairs,
    agglomerate,
    column_classes,
    cost_unless_above,
    grouping_cost,
    merge_bottom_up,
    move_classes,
    queries_reading,
    starting_groups,
)
from layoutopt.search.gsop import one_group, search_groups, single_columns
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


Groups = dict[int, tuple[list[int], np.ndarray, float]]


def gain(one: Floats, other: Floats, size: Floats, others_size: Floats, common: Floats) -> Floats:
    """By chance, as it were, but a function of what it is given."""
    return common * 3 - (one + other - common) * 0.5 - np.sin(size + others_size)


def naively(readers: np.ndarray, weight: np.ndarray, size: np.ndarray, most: int | None) -> list[list[int]]:
    groups: Groups = {i: ([i], readers[i], float(size[i])) for i in range(len(readers))}
    while len(groups) > (most or 1):

        def of(i: int, j: int, groups: Groups = groups) -> float:
            (_, one, a), (_, other, b) = groups[i], groups[j]
            counts = [np.array([float(weight[mask].sum())]) for mask in (one, other, one & other)]
            return float(gain(counts[0], counts[1], np.array([a]), np.array([b]), counts[2])[0])

        i, j = min(combinations(groups, 2), key=lambda pair: (-of(*pair), pair))
        if most is None and of(i, j) <= 0:
            break
        (first, one, a), (second, other, b) = groups.pop(i), groups.pop(j)
        groups[2 * len(readers) - len(groups) - 2] = (first + second, one | other, a + b)
    return [members for members, _, _ in groups.values()]


@settings(max_examples=examples(40))
@given(st.integers(1, 9), st.integers(1, 6), st.none() | st.integers(1, 5), st.integers(0, 10_000))
def test_the_pair_that_gains_most_is_merged_again_and_again(n: int, queries: int, most: int | None, seed: int) -> None:
    rng = np.random.default_rng(seed)
    readers = rng.random((n, queries)) < 0.5
    weight, size = rng.integers(1, 5, queries).astype(np.float64), rng.integers(1, 9, n).astype(np.float64)
    found = agglomerate(readers, weight, size, gain, most)
    assert {frozenset(group) for group in found} == {frozenset(g) for g in naively(readers, weight, size, most)}
    if most is not None:
        assert len(found) == min(n, most)


@pytest.mark.parametrize("most", [None, 1, 3])
def test_one_group_stays_alone(most: int | None) -> None:
    assert agglomerate(np.ones((1, 2), dtype=np.bool_), np.ones(2), np.ones(1), gain, most) == [[0]]
