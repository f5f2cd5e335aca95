"""The portfolio: better than Ward by the exact objective."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.vectors import VectorCounts, pack
from layoutopt.partitioning import qdtree as qdtree_module
from layoutopt.partitioning.objective import DerivedObjective, FeatureObjective, derive
from layoutopt.partitioning.portfolio import EFFORTS, Effort, portfolio
from layoutopt.partitioning.qdtree import cut_greedily, qdtree
from layoutopt.partitioning.ward import ward
from tests.partitioning.objectives import skip_set_objective
from tests.partitioning.segments import Segment, check_sizes, count_scanned, random_segment, segments


@given(segment=segments(), seed=st.integers(0, 50), effort=st.sampled_from(["low", "default"]))
@settings(deadline=None)
def test_never_worse_than_ward_with_no_more_blocks(segment: Segment, seed: int, effort: Effort) -> None:
    vectors, min_rows, objective = segment.vectors, segment.min_rows, skip_set_objective(segment, seed)
    first = ward(vectors, segment.weights, min_rows, seed)
    best = portfolio(vectors, segment.weights, min_rows, seed, objective, effort)
    assert count_scanned(objective, best, vectors) <= count_scanned(objective, first, vectors)
    assert best.n_blocks <= first.n_blocks
    check_sizes(best, segment)


@pytest.mark.slow
def test_more_effort_scans_less() -> None:
    # Of one segment alone the luckier search may win.
    by_ward, by_effort = 0.0, dict.fromkeys(EFFORTS, 0.0)
    for seed in range(6):
        segment = random_segment(n_rows=1_200, n_features=10, seed=seed, min_rows=70)
        vectors, objective = segment.vectors, skip_set_objective(segment, 2, n_queries=12, n_skip_sets=10)
        by_ward += count_scanned(objective, ward(vectors, segment.weights, 70, 0), vectors)
        for effort in EFFORTS:
            best = portfolio(vectors, segment.weights, 70, 0, objective, effort)
            by_effort[effort] += count_scanned(objective, best, vectors)
    low, default, high = by_effort.values()
    assert by_ward > low > default > high
    assert default < 0.95 * by_ward


def test_greedy_cuts_find_the_only_cuts_that_help() -> None:
    """Features 0 and 1 part the rows in four; feature 2 is of no use to queries, feature 3 leaves too few rows."""
    bits = np.array([[a, b, c, a and b and c] for a in (0, 1) for b in (0, 1) for c in (0, 1)], dtype=bool)
    rows = np.full(8, 10)
    segment = Segment(VectorCounts.of_rows(pack(np.repeat(bits, 10, axis=0)), 4), np.array([4.0, 2.0, 0.0, 8.0]), 20)
    derived = derive(FeatureObjective.of(segment.weights, 80), segment.vectors)
    order = segment.vectors.bits()
    leaves = cut_greedily(derived, order, rows, min_rows=20)
    assert len({tuple(leaf) for leaf in np.c_[order[:, :2], leaves].tolist()}) == 4
    assert len(set(leaves.tolist())) == 4


@pytest.mark.slow
def cut_naively(derived: DerivedObjective, cuts: Bits, rows: Ints, min_rows: int) -> Ints:
    """Count every side of every cut of every node."""
    leaf, open_nodes, n_leaves = np.zeros(len(rows), dtype=np.int64), [np.arange(len(rows))] * bool(len(rows)), 0
    while open_nodes:
        node = open_nodes.pop()
        best, fewest = -1, rows[node].sum() * float(derived.bits[node].any(axis=0) @ derived.weights)
        for cut in range(cuts.shape[1]):
            sides = node[cuts[node, cut]], node[~cuts[node, cut]]
            sizes = [int(rows[side].sum()) for side in sides]
            scanned = [derived.bits[side].any(axis=0) @ derived.weights for side in sides]
            if min(sizes) >= min_rows and (cost := float(np.dot(sizes, scanned))) < fewest:
                best, fewest = cut, cost
        if best < 0:
            leaf[node] = n_leaves
            n_leaves += 1
        else:
            open_nodes += [node[cuts[node, best]], node[~cuts[node, best]]]
    return leaf


@given(seed=st.integers(0, 10**6), vectors=st.integers(0, 150), few=st.sampled_from([1, 20, 256]))
@settings(deadline=None)
def test_cuts_are_those_of_counting_every_node_alone(seed: int, vectors: int, few: int) -> None:
    rng = np.random.default_rng(seed)
    derived_features, features = rng.integers(0, 12, 2).tolist()
    bits = rng.random((vectors, derived_features)) < rng.random(derived_features) / 2
    cuts = rng.random((vectors, features)) < rng.random(features)
    rows, min_rows = rng.integers(1, 9, vectors), int(rng.integers(1, 60))
    derived = DerivedObjective(bits, rng.integers(-20, 200, derived_features).astype(np.float64), 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(qdtree_module, "_FEW_VECTORS", few)
        result = cut_greedily(derived, cuts, rows, min_rows)
    assert result.tolist() == cut_naively(derived, cuts, rows, min_rows).tolist()


def test_a_qdtree_scans_less_than_chance_and_no_less_than_the_portfolio() -> None:
    segment = random_segment(n_rows=4_000, n_features=12, seed=3, min_rows=100)
    objective = skip_set_objective(segment, 1)
    vectors = segment.vectors
    tree = count_scanned(objective, qdtree(vectors, segment.weights, 100, 0, objective), vectors)
    best = count_scanned(objective, portfolio(vectors, segment.weights, 100, 0, objective, "high"), vectors)
    by_chance = count_scanned(objective, ward(vectors, np.zeros(12), 100, 0), vectors)
    assert best <= tree < 0.8 * by_chance
