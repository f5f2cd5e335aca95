"""Objectives for tests."""

from __future__ import annotations

import numpy as np

from layoutopt.partitioning.objective import SkipSetObjective, integer_weights
from tests.partitioning.segments import Segment


def skip_set_objective(segment: Segment, seed: int, n_queries: int = 6, n_skip_sets: int = 8) -> SkipSetObjective:
    """Random queries over skip sets of some features each; some queries have none, some skip sets are empty."""
    rng = np.random.default_rng(seed)
    skip_sets = rng.random((n_skip_sets, segment.vectors.n_features)) < 0.3
    has_skip_set = rng.random((n_queries, n_skip_sets)) < 0.3
    return SkipSetObjective(skip_sets, has_skip_set, rng.integers(1, 5, n_queries).astype(np.float64))


def of_subsumed(matrix: np.ndarray, weights: np.ndarray, rows: int) -> SkipSetObjective:
    """Of queries that skip by the features that subsume them, ``bool[q, f]``, and by nothing else."""
    return SkipSetObjective(np.eye(matrix.shape[1], dtype=np.bool_), matrix, integer_weights(weights, rows))
