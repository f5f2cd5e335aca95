"""The interface of partitioning algorithms."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from layoutopt.model.arrays import Floats
from layoutopt.model.vectors import VectorCounts
from layoutopt.partitioning.objective import Objective, Partition


class Partitioner(Protocol):
    """A partitioning algorithm: a function of these arguments only."""

    def __call__(
        self, vectors: VectorCounts, weights: Floats, min_rows: int, seed: int, objective: Objective | None = None
    ) -> Partition:
        """Put every row into a block.

        Args:
            vectors: the distinct vectors of one segment.
            weights: the worth of skipping by each feature (queries it subsumes), ``float64[n_features]``, not
                negative.
            min_rows: blocks hold ``[min_rows, 2 * min_rows)`` rows, except for at most one remainder with fewer.
            seed: the same arguments give the same partition; deterministic algorithms ignore it.
            objective: what queries can't skip, over these features; None is Equation 3.1 with the weights, which
                Ward's method always uses.

        Raises:
            ValueError: ``min_rows`` is below 1, or the weights don't fit the features or are negative or not finite.
        """
        ...


def check_arguments(vectors: VectorCounts, weights: Floats, min_rows: int) -> None:
    """Raise ValueError for arguments that no partitioner can use; see :class:`Partitioner`."""
    if min_rows < 1:
        raise ValueError(f"min_rows is {min_rows}: expected at least 1")
    if weights.shape != (vectors.n_features,):
        raise ValueError(f"weights have shape {weights.shape}: expected one for each of {vectors.n_features} features")
    if not bool(np.isfinite(weights).all()) or (len(weights) and float(weights.min()) < 0):
        raise ValueError(f"weights {weights.tolist()} must be finite and not negative")
