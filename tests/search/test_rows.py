"""The rows that queries read of a group: computed, and estimated (Sun 2017, 4.4.3)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.model.vectors import VectorCounts, pack
from layoutopt.partitioning.block_sizes import min_rows_for
from layoutopt.partitioning.objective import assign_rows
from layoutopt.search.grouping import cells_lower_bound, grouping_cost
from layoutopt.search.gsop import one_group, single_columns
from layoutopt.search.local import _rank_features, choose_features, feature_choices, local_weights, prefixes
from layoutopt.search.problem import Problem
from layoutopt.search.rows import (
    ComputedRows,
    Estimate,
    block_estimate,
    cache_by_queries,
    coarse_estimate,
    compute_by_choices,
    compute_rows_read,
    rows_estimator,
    selectivity_estimate,
)
from tests.effort import examples
from tests.search.problems import WARD, bits_of, problem_of, problems, queries_of, random_problem

some_queries = st.lists(st.integers(0, 6), min_size=1, max_size=4)


def skips_vector(problem: Problem, query: int, bits: np.ndarray) -> bool:
    """Whether some skip set of the query has only features whose bit is 0, one skip set after the other."""
    for skip_set in np.flatnonzero(problem.skips[query]):
        if not bits[np.flatnonzero(problem.members[:, skip_set])].any():
            return True
    return False


def read_naively(problem: Problem, s: int, served: Bits, features: Ints) -> list[float]:
    """Block by block and query by query, from the rows themselves."""
    sample, bits = problem.samples[s], bits_of(problem)[s]
    vectors = sample.vectors.project(features.tolist())
    weights = local_weights(problem, served)[s][features]
    partition = WARD(vectors, weights, max(1, round(min_rows_for(problem.block_rows) / sample.scale)), problem.seed)
    rows = np.repeat(bits, sample.vectors.counts, axis=0)
    local = rows[:, features]
    kinds = {tuple(vector): i for i, vector in enumerate(vectors.bits().tolist())}
    block = assign_rows(partition, np.array([kinds[tuple(row)] for row in local.tolist()]))
    read = [0.0] * len(served)
    for number in range(partition.n_blocks):
        union = np.ones(bits.shape[1], dtype=np.bool_)
        union[features] = local[block == number].any(axis=0)
        for query in np.flatnonzero(served).tolist():
            if not skips_vector(problem, query, union):
                read[query] += sample.scale * float((block == number).sum())
    return read


@given(problems(), some_queries)
def test_computed_rows_are_those_of_the_blocks_that_queries_cannot_skip(problem: Problem, asked: list[int]) -> None:
    served = queries_of(problem, asked)
    exact = ComputedRows(problem, WARD)
    by_most = exact.by_most(served), choose_features(problem, served)
    for found, guides in ((exact(served), exact.guides(served)), by_most):
        assert found.shape == (len(problem.samples), len(served))
        for s in range(len(problem.samples)):
            assert found[s] == pytest.approx(read_naively(problem, s, served, guides))


@given(problems(), some_queries)
def test_fewer_guides_are_taken_only_where_queries_then_read_less(problem: Problem, asked: list[int]) -> None:
    served = queries_of(problem, asked)
    cells = problem.weights * problem.reads.sum(axis=1)
    exact = ComputedRows(problem, WARD)
    assert (exact(served) * cells).sum() <= (exact.by_most(served) * cells).sum() + 1e-6
    assert set(exact.guides(served).tolist()) <= set(choose_features(problem, served).tolist())


@given(problems(), some_queries)
def test_choices_of_guides_read_what_each_reads_alone(problem: Problem, numbers: list[int]) -> None:
    served = queries_of(problem, numbers)
    choices = feature_choices(problem, served)
    alone = [compute_rows_read(problem, served, features, WARD) for features in choices]
    for result, expected in zip(compute_by_choices(problem, served, choices, WARD), alone, strict=True):
        assert result.tolist() == expected.tolist()


@given(problems(), some_queries)
def test_choices_follow_the_vectors_of_each_number_of_features(problem: Problem, numbers: list[int]) -> None:
    served = queries_of(problem, numbers)
    ranked = _rank_features(problem, served)[: len(choose_features(problem, served))]
    sizes = prefixes([sample.vectors.words for sample in problem.samples], ranked, problem.max_vectors)
    expected = [np.sort(ranked[:size]).tolist() for size in sizes]
    assert [features.tolist() for features in feature_choices(problem, served)] == expected


def every_estimate(problem: Problem, served: Bits) -> dict[str, Floats]:
    names: list[Estimate] = ["coarse", "block", "selectivity", "full"]
    return {name: rows_estimator(problem, name, WARD)(served) for name in names}


@given(problems(), some_queries)
def test_selectivity_is_below_and_all_rows_above_every_other(problem: Problem, asked: list[int]) -> None:
    served = queries_of(problem, asked)
    found = every_estimate(problem, served)
    rows = np.array([[sample.rows] for sample in problem.samples])
    for read in found.values():
        assert (found["selectivity"] <= read + 1e-6).all()
        assert (read <= rows + 1e-6).all()
        assert not read[:, ~served].any()


@given(problems(least_rows=40), some_queries)
def test_the_block_estimate_is_above_where_each_vector_fills_blocks_of_its_own(
    problem: Problem, asked: list[int]
) -> None:
    served = queries_of(problem, asked)
    found = block_estimate(problem)(served)
    assert (found >= ComputedRows(problem, WARD).by_most(served) - 1e-6).all()


@given(problems(), some_queries)
def test_coarse_is_exact_where_its_few_vectors_are_enough(problem: Problem, asked: list[int]) -> None:
    served = queries_of(problem, asked)
    found = coarse_estimate(problem, WARD)(served)
    assert np.array_equal(found, ComputedRows(problem, WARD).by_most(served))


def one_vector_a_query(counts: list[int], block_rows: int) -> Problem:
    """Query i asks for feature i alone; vector i has feature i alone, and so many rows."""
    n = len(counts)
    vectors = VectorCounts(pack(np.eye(n, dtype=np.bool_)), np.array(counts), n)
    return problem_of(vectors, np.ones((n, 1), dtype=np.bool_), block_rows=block_rows)


def test_the_estimates_by_hand() -> None:
    problem = one_vector_a_query([25, 10, 9], block_rows=10)
    everyone = np.ones(3, dtype=np.bool_)
    assert selectivity_estimate(problem)(everyone).tolist() == [[25, 10, 9]]
    # Whole blocks of 10 spared: of the others, query 0 spares 10 + 0, query 1 20 + 0, query 2 20 + 10.
    assert block_estimate(problem)(everyone).tolist() == [[34, 24, 14]]
    assert ComputedRows(problem, WARD)(everyone).tolist() == [[25, 10, 9]]


def test_blocks_too_large_to_be_pure_are_read_by_all_whose_rows_they_have() -> None:
    problem = one_vector_a_query([6, 6, 6, 6], block_rows=14)
    everyone = np.ones(4, dtype=np.bool_)
    assert ComputedRows(problem, WARD)(everyone).tolist() == [[12, 12, 12, 12]]
    assert block_estimate(problem)(everyone).tolist() == [[24, 24, 24, 24]]


def test_queries_without_skip_sets_read_everything() -> None:
    problem = one_vector_a_query([6, 6], block_rows=3)
    blind = replace(problem, skips=np.zeros((2, 2), dtype=np.bool_), shares=np.zeros((2, 2)))
    everyone = np.ones(2, dtype=np.bool_)
    for read in every_estimate(blind, everyone).values():
        assert read.tolist() == [[12, 12]]


def test_every_set_of_queries_is_computed_once() -> None:
    asked: list[list[bool]] = []

    def rows_read(served: Bits) -> Floats:
        asked.append(served.tolist())
        return np.zeros((1, len(served)))

    twice = cache_by_queries(rows_read)
    for served in ([True, False], [False, True], [True, False]):
        twice(np.array(served))
    assert asked == [[True, False], [False, True]]


@given(problems())
@settings(max_examples=examples(60))
def test_no_grouping_reads_less_than_the_rows_that_are_needed(problem: Problem) -> None:
    exact = ComputedRows(problem, WARD)
    for groups in (one_group(problem), single_columns(problem)):
        assert cells_lower_bound(problem) <= grouping_cost(problem, groups, exact) + 1e-6


def test_whole_blocks_are_read_where_a_row_is_needed() -> None:
    problem = random_problem(7, n_queries=6, n_samples=2, least_rows=30, scale=3, block_rows=70)
    needed, in_blocks = cells_lower_bound(problem), cells_lower_bound(problem, min_rows_for(70))
    expected = 0.0
    for sample, bits in zip(problem.samples, bits_of(problem), strict=True):
        for q in range(6):
            rows = 3 * int(sample.vectors.counts[~problem.skippable(bits)[:, q]].sum())
            block = min(sample.rows, 3 * round(50 / 3))
            expected += sample.query_weights[q] * (max(rows, block) if rows else 0) * problem.reads[q].sum()
    assert in_blocks == pytest.approx(expected)
    assert 0 < needed <= in_blocks
    assert np.isfinite(in_blocks)
