"""Which rows a copy holds: everything that its queries need, by features that serve other queries too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.model.vectors import VectorCounts, pack
from layoutopt.search.costs import Covers
from layoutopt.search.problem import Problem, Sample, Unit
from tests.search.problems import bits_of, problems, queries_of


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
    return Problem(
        columns=("a",),
        reads=np.ones((8, 1), dtype=np.bool_),
        shares=skips.astype(np.float64),
        members=np.eye(9, dtype=np.float32),
        skips=skips,
        samples=(Sample(vectors, 64, np.ones(8)),),
        unit=Unit.cells(1),
        block_rows=10,
        max_vectors=100,
    )


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
