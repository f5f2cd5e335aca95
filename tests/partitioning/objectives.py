"""Objectives for tests."""

from __future__ import annotations

import numpy as np

from layoutopt.partitioning.objective import ClauseObjective
from tests.partitioning.segments import Segment


def clause_objective(segment: Segment, seed: int, n_queries: int = 6, n_clauses: int = 8) -> ClauseObjective:
    """Random queries over clauses of some features each; some queries have none, some clauses are empty."""
    rng = np.random.default_rng(seed)
    clauses = rng.random((n_clauses, segment.vectors.n_features)) < 0.3
    has_clause = rng.random((n_queries, n_clauses)) < 0.3
    return ClauseObjective(clauses, has_clause, rng.integers(1, 5, n_queries).astype(np.float64))
