"""The synthetic wide workload has the shape that it says, and a run compares every method; time is not for tests."""

from __future__ import annotations

from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from layoutopt.bench.wide_planning import Ranges, WideShape, print_wide, wide_problem, wide_result

SMALL = WideShape(
    columns=30, queries=60, mean_columns=5.0, deviation=2.0, least=2, most=9, topics=4, filter_columns=6, ranges=3
)
TINY = WideShape(**{**vars(SMALL), "segments": 2, "sampled_rows": 300, "segment_rows": 3_000, "block_rows": 100})


def test_the_thesis_says_so_of_the_columns_that_queries_read() -> None:
    problem = wide_problem(WideShape(segments=1, sampled_rows=10, segment_rows=10))
    (weights,) = problem.weights
    columns = problem.reads.sum(axis=1)
    assert (len(problem.columns), weights.sum()) == (453, 1_755)
    assert weights @ columns / weights.sum() == pytest.approx(13.6, rel=0.02)
    assert (columns.min(), columns.max()) >= (3, 20)
    assert problem.shares.shape[1] == 200


def test_filters_conflict_and_ranges_are_what_their_features_say() -> None:
    problem = wide_problem(TINY, seed=1)
    bits = np.repeat(problem.samples[0].vectors.bits(), problem.samples[0].vectors.counts, axis=0)
    used = (problem.shares > 0) @ np.kron(np.eye(6), np.ones((3, 1)))
    assert (used.sum(axis=0) > 0).all(), "every filter column is filtered by"
    assert ((used > 0).sum(axis=1) < 6).all(), "no query filters by all of them"
    assert 0.01 < bits.mean() < 0.5, "ranges are narrow"
    assert bits.mean(axis=0).max() < 0.6


def test_the_same_seed_draws_the_same_workload() -> None:
    one, same, other = wide_problem(TINY, seed=3), wide_problem(TINY, seed=3), wide_problem(TINY, seed=4)
    assert np.array_equal(one.reads, same.reads)
    assert np.array_equal(one.skips, same.skips)
    assert np.array_equal(one.samples[1].vectors.words, same.samples[1].vectors.words)
    assert one.reads.shape != other.reads.shape or not np.array_equal(one.reads, other.reads)


def test_a_run_compares_every_method_and_says_what_took_how_long() -> None:
    result = wide_result(TINY)
    costs = {method: cost for method, (cost, _) in result.objectives.items()}
    assert list(costs) == ["full scan", "gsop", "sop", "gsop-single", "gsop-hillclimb", "gsop-hyrise"]
    assert costs["gsop"] <= min(costs["sop"], costs["gsop-single"], costs["full scan"])
    assert {"gsop: merging", "gsop: computing", "gsop: estimating", "gsop: moving classes"} <= set(result.stages.taken)
    assert result.peak_bytes > 10**6
    text = StringIO()
    print_wide(Console(file=text, width=200), result)
    for said in ("synthetic", "gsop-hyrise", "Peak memory", "gsop: merging"):
        assert said in text.getvalue()


def test_a_range_is_skipped_by_wider_ones_and_one_of_two_by_both() -> None:
    ranges = Ranges(np.array([0, 0, 0, 1]), np.array([0.2, 0.1, 0.3, 0.0]), np.array([0.4, 0.5, 0.6, 1.0]))
    assert ranges.skip_sets((0,)) == [frozenset({0}), frozenset({1})]
    assert ranges.skip_sets((3,)) == [frozenset({3})]
    assert ranges.skip_sets((0, 2)) == [frozenset({0, 2})]
