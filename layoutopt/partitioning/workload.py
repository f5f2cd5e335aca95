"""The exact objective of a workload: what its queries can't skip of a segment's rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from layoutopt.model.arrays import Bits, Floats
from layoutopt.model.feature import FeatureSet
from layoutopt.model.query import Query
from layoutopt.partitioning.objective import SkipSetObjective
from layoutopt.skipping.skip_sets import SkipSet, skip_set_table


def objective_of(
    queries: Sequence[Query], features: FeatureSet, weights: Floats, rows: int, others: Bits | None = None
) -> SkipSetObjective:
    """The objective of queries over these features, and over others that they are known to skip by.

    Args:
        queries: the training queries.
        features: bit ``i`` is feature ``i``.
        weights: of each query here, 0 where it does not read the rows, ``float64[n_queries]``.
        rows: how many rows are partitioned together.
        others: for further bits, after the features': which query skips where one is 0, ``bool[n_queries, e]``.
    """
    skip_sets, has_skip_set = _skip_sets(tuple(queries), features)
    n_features = len(features)
    if others is not None:
        skip_sets = (*skip_sets, *(frozenset({n_features + i}) for i in range(others.shape[1])))
        has_skip_set = np.hstack([has_skip_set, others])
        n_features += others.shape[1]
    return SkipSetObjective.of_skip_sets(skip_sets, has_skip_set, n_features, weights, rows)


@lru_cache(maxsize=32)
def _skip_sets(queries: tuple[Query, ...], features: FeatureSet) -> tuple[tuple[SkipSet, ...], Bits]:
    """Remembered, since a process routes many segments of one plan."""
    return skip_set_table(queries, features)
