"""Segments for tests: vectors with counts, drawn by hypothesis or from a seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from layoutopt.model.vectors import VectorCounts, distinct, pack, unpack
from layoutopt.partitioning.objective import Objective, Partition


@dataclass(frozen=True, eq=False)
class Segment:
    vectors: VectorCounts
    weights: np.ndarray
    min_rows: int


def count_scanned(objective: Objective, partition: Partition, vectors: VectorCounts) -> float:
    """Return the rows scanned, weighted: the objective summed over the rows of all blocks."""
    unions = unpack(partition.unions(vectors), vectors.n_features)
    return float(partition.sizes() @ objective.reading(unions))


@st.composite
def segments(draw: st.DrawFn, max_features: int = 8, max_vectors: int = 40) -> Segment:
    """Small segments with light and heavy vectors, weights of zero and of fractions."""
    n_features = draw(st.integers(1, max_features))
    patterns = draw(st.lists(st.integers(0, 2**n_features - 1), min_size=1, max_size=max_vectors, unique=True))
    min_rows = draw(st.integers(1, 50))
    count = st.one_of(st.integers(1, max(1, min_rows // 3)), st.integers(1, 7 * min_rows))
    counts = draw(st.lists(count, min_size=len(patterns), max_size=len(patterns)))
    weight = st.one_of(st.integers(0, 5).map(float), st.floats(0, 100))
    weights = draw(st.lists(weight, min_size=n_features, max_size=n_features))
    words, _, _ = distinct(np.array(sorted(patterns), dtype=np.uint64)[:, None])
    return Segment(VectorCounts(words, np.array(counts, dtype=np.int64), n_features), np.array(weights), min_rows)


def random_segment(n_rows: int, n_features: int, seed: int, min_rows: int, topics: int = 12) -> Segment:
    """Rows that scatter around some topics, as rows of a table that correlate do."""
    rng = np.random.default_rng(seed)
    centres = rng.random((topics, n_features)) < 0.3
    share = 1 / np.arange(1, topics + 1)
    bits = centres[rng.choice(topics, n_rows, p=share / share.sum())] ^ (rng.random((n_rows, n_features)) < 0.06)
    weights = rng.integers(1, 20, n_features).astype(np.float64)
    return Segment(VectorCounts.of_rows(pack(bits), n_features), weights, min_rows)


def check_sizes(partition: Partition, segment: Segment) -> None:
    """Blocks hold all rows, from ``min_rows`` to less than twice as many, but for one remainder."""
    sizes = partition.sizes()
    assert sizes.sum() == segment.vectors.rows
    assert sizes.max() < 2 * segment.min_rows
    assert (sizes < segment.min_rows).sum() <= 1
