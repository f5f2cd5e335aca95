"""Ward's method against the thesis's pseudo-code, written down naively."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.model.vectors import VectorCounts, distinct, pack
from layoutopt.partitioning.block_sizes import add_heavy_blocks
from layoutopt.partitioning.objective import assign_rows, integer_weights
from layoutopt.partitioning.ward import cluster, ward
from tests.effort import examples
from tests.partitioning.segments import Segment, segments


@st.composite
def clusterings(draw: st.DrawFn) -> tuple[np.ndarray, list[int], list[int], int]:
    n_features = draw(st.integers(1, 6))
    patterns = draw(st.lists(st.integers(0, 2**n_features - 1), min_size=1, max_size=22, unique=True))
    bits = np.array([[bool(p >> k & 1) for k in range(n_features)] for p in patterns])
    min_rows = draw(st.integers(2, 60))
    sizes = draw(st.lists(st.integers(1, min_rows - 1), min_size=len(patterns), max_size=len(patterns)))
    weights = draw(st.lists(st.integers(0, 4), min_size=n_features, max_size=n_features))  # few values: many ties
    return bits, sizes, weights, min_rows


@given(clusterings())
@settings(max_examples=examples(150), deadline=None)
def test_clusters_are_those_of_the_pseudo_code(case: tuple[np.ndarray, list[int], list[int], int]) -> None:
    bits, sizes, weights, min_rows = case
    exact = integer_weights(np.array(weights, dtype=np.float64), sum(sizes))
    expected = naive_clusters(bits, np.array(sizes), np.array(weights), min_rows)
    assert cluster(bits, np.array(sizes), exact, min_rows).tolist() == expected


def test_clusters_are_those_of_the_pseudo_code_past_chunks_and_compaction() -> None:
    rng = np.random.default_rng(5)
    bits = distinct_bits(rng.random((700, 9)) < 0.4)[:300]
    sizes = rng.integers(1, 30, len(bits))
    weights = rng.integers(0, 5, 9)
    exact = integer_weights(weights.astype(np.float64), int(sizes.sum()))
    sums = naive_clusters(bits, sizes, weights, 40)
    assert cluster(bits, sizes, exact, 40).tolist() == sums


def distinct_bits(bits: np.ndarray) -> np.ndarray:
    return VectorCounts.of_rows(pack(bits), bits.shape[1]).bits()


def naive_clusters(bits: np.ndarray, sizes: np.ndarray, weights: np.ndarray, min_rows: int) -> list[int]:
    """3.4.4 as it stands: Equation 3.1 for every pair in every round, in int64; of equal pairs the first."""
    unions, rows, labels = bits.astype(np.int64), sizes.copy(), np.arange(len(bits))
    in_pool = np.ones(len(bits), dtype=bool)
    while in_pool.sum() > 1:
        pool = np.flatnonzero(in_pool)
        u, s = unions[pool], rows[pool]
        totals = u @ weights
        shared = (u * weights) @ u.T
        loss = s[:, None] * (totals[None, :] - shared) + s[None, :] * (totals[:, None] - shared)
        loss[np.tri(len(pool), dtype=bool)] = np.iinfo(np.int64).max
        i, j = (int(pool[k]) for k in np.unravel_index(loss.argmin(), loss.shape))
        unions[i] |= unions[j]
        rows[i] += rows[j]
        labels[labels == j] = i
        in_pool[j] = False
        in_pool[i] = rows[i] < min_rows
    return labels.tolist()


@given(segments(max_vectors=12), st.integers(0, 3))
@settings(max_examples=examples(100), deadline=None)
def test_rows_for_one_block_are_one_block(segment: Segment, more: int) -> None:
    """Without a look at the vectors: what merging them would end with."""
    vectors, min_rows = segment.vectors, segment.vectors.rows // 2 + 1 + more
    light, weights = vectors.counts < min_rows, integer_weights(segment.weights, vectors.rows)
    labels = cluster(vectors.bits()[light], vectors.counts[light], weights, min_rows)
    merged = add_heavy_blocks(vectors.counts, labels, vectors.bits(), weights, min_rows)
    found = ward(vectors, segment.weights, min_rows, 0)
    assert found.n_blocks == merged.n_blocks == 1
    np.testing.assert_array_equal(found.rows, merged.rows)
    np.testing.assert_array_equal(found.vector, merged.vector)


def test_similar_vectors_share_a_block() -> None:
    words, _, counts = distinct(pack(np.array([[1, 1, 0], [0, 0, 1], [1, 0, 0], [0, 0, 1]], dtype=bool)))
    vectors = VectorCounts(words, counts, 3)
    partition = ward(vectors, np.array([10.0, 1.0, 10.0]), min_rows=2, seed=0)
    unions = {tuple(bits) for bits in (partition.unions(vectors)[:, :1] & np.uint64(7)).tolist()}
    assert unions == {(0b011,), (0b100,)}
    assert partition.sizes().tolist() == [2, 2]


def skipped_rows(bits: np.ndarray, blocks: list[list[int]], weights: np.ndarray) -> float:
    """Equation 3.2: what all queries skip."""
    return sum(len(block) * float(weights[~bits[block].any(axis=0)].sum()) for block in blocks)


def test_figure_3_1() -> None:
    """Of its six tuples in blocks of two the figure's blocks skip 180 tuples, those of Ward's method 260."""
    bits = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0], [1, 1, 0], [0, 1, 1], [1, 0, 0]], dtype=bool)
    weights = np.array([50.0, 20.0, 10.0])
    assert skipped_rows(bits, [[0, 3], [1, 4], [2, 5]], weights) == 180
    words, inverse, counts = distinct(pack(bits))
    vectors = VectorCounts(words, counts, 3)
    partition = ward(vectors, weights, min_rows=2, seed=0)
    assert partition.sizes().tolist() == [2, 2, 2]
    block = assign_rows(partition, inverse)
    assert skipped_rows(bits, [np.flatnonzero(block == b).tolist() for b in range(3)], weights) == 260
