"""The local features of a group (Sun 2017, 4.5)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.model.arrays import Bits
from layoutopt.model.vectors import VectorCounts, pack
from layoutopt.search.local import (
    block_sample,
    choose_features,
    distinct_by_prefix,
    feature_choices,
    local_weights,
)
from layoutopt.search.problem import Problem, Sample, Unit
from tests.search.problems import WARD, bits_of, problems, queries_of, random_problem

some_queries = st.lists(st.integers(0, 6), min_size=1, max_size=4)


def most_vectors(problem: Problem, features: list[int]) -> int:
    return max(len({tuple(row) for row in bits[:, features].tolist()}) for bits in bits_of(problem))


def by_worth(problem: Problem, served: Bits) -> list[int]:
    worth = local_weights(problem, served).sum(axis=0) * (1 - problem.selectivity)
    return sorted(np.flatnonzero(worth > 0).tolist(), key=lambda i: (-worth[i], i))


@given(st.integers(0, 40), st.integers(1, 150), st.integers(0, 10_000))
def test_distinct_rows_are_counted_for_every_prefix(n: int, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    bits = rng.random((n, columns)) < rng.choice([0.02, 0.1, 0.5])
    expected = [len({tuple(row) for row in bits[:, : k + 1].tolist()}) for k in range(columns)]
    order = rng.permutation(columns)
    words = pack(bits[:, np.argsort(order)])  # feature order[k] is column k
    assert distinct_by_prefix(words, order).tolist() == expected


@given(problems(), some_queries)
def test_as_many_of_the_worthiest_as_the_limit_of_vectors_allows(problem: Problem, asked: list[int]) -> None:
    served = queries_of(problem, asked)
    chosen = choose_features(problem, served).tolist()
    ranked = by_worth(problem, served)
    assert chosen == sorted(ranked[: len(chosen)])
    # One feature makes two vectors at most; a limit below that would leave no blocking at all.
    assert most_vectors(problem, chosen) <= max(2, problem.max_vectors)
    if len(chosen) < len(ranked):
        assert most_vectors(problem, ranked[: len(chosen) + 1]) > problem.max_vectors


@given(problems(max_vectors=1000), some_queries)
def test_only_features_of_the_queries_served_are_chosen(problem: Problem, asked: list[int]) -> None:
    served = queries_of(problem, asked)
    reached = served & (problem.weights.sum(axis=0) > 0)
    useful = (problem.shares[reached] > 0).any(axis=0)
    assert set(choose_features(problem, served).tolist()) <= set(np.flatnonzero(useful).tolist())


def test_features_that_every_row_matches_are_left_out() -> None:
    bits = np.array([[True, True], [True, False]])
    problem = Problem(
        columns=("a",),
        reads=np.ones((2, 1), dtype=np.bool_),
        shares=np.eye(2),
        members=np.eye(2, dtype=np.float32),
        skips=np.eye(2, dtype=np.bool_),
        samples=(Sample(VectorCounts.of_rows(pack(bits), 2), 2, np.array([100.0, 1.0])),),
        unit=Unit.cells(1),
        block_rows=1,
        max_vectors=10,
    )
    assert choose_features(problem, np.ones(2, dtype=np.bool_)).tolist() == [1]


def test_queries_that_reach_no_sample_have_no_say() -> None:
    problem = random_problem(3)
    silent = tuple(replace(sample, query_weights=np.zeros(5)) for sample in problem.samples)
    assert choose_features(replace(problem, samples=silent), np.ones(5, dtype=np.bool_)).tolist() == []


@given(problems())
def test_local_vectors_keep_every_row(problem: Problem) -> None:
    sample, bits = problem.samples[0], bits_of(problem)[0]
    features = np.arange(0, bits.shape[1], 2)
    found = sample.vectors.project(features.tolist())
    rows = np.repeat(bits[:, features], sample.vectors.counts, axis=0)
    kinds, counts = np.unique(rows, axis=0, return_counts=True)
    expected = {tuple(kind): count for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True)}
    assert {tuple(b): n for b, n in zip(found.bits().tolist(), found.counts.tolist(), strict=True)} == expected


@given(problems())
def test_sampled_blocks_hold_the_whole_segment_and_say_nothing_of_other_features(problem: Problem) -> None:
    served = np.ones(len(problem.reads), dtype=np.bool_)
    features = choose_features(problem, served)
    weights = local_weights(problem, served)
    sample, bits = problem.samples[0], bits_of(problem)[0]
    blocks = block_sample(problem, sample, features, weights[0], WARD)
    assert abs(blocks.rows.sum() - sample.rows) < 1e-6 * sample.rows
    others = np.setdiff1d(np.arange(bits.shape[1]), features)
    assert blocks.unions[:, others].all()
    assert np.array_equal(blocks.unions[:, features].any(axis=0), bits[:, features].any(axis=0))


@given(problems())
def test_fewer_features_are_tried_each_set_within_a_third_of_the_vectors(problem: Problem) -> None:
    served = np.ones(len(problem.reads), dtype=np.bool_)
    choices = feature_choices(problem, served)
    assert choices[0].tolist() == choose_features(problem, served).tolist()
    assert all(set(fewer.tolist()) < set(more.tolist()) for more, fewer in pairwise(choices))
    for fewer in choices[1:]:
        vectors = max(len(np.unique(bits[:, fewer], axis=0)) for bits in bits_of(problem))
        assert len(fewer) == 1 or vectors <= problem.max_vectors / 3
