"""What a blocking costs: the weight of the queries that read a block, as a function of its union vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Singles
from layoutopt.model.feature import FeatureSet
from layoutopt.model.query import Query
from layoutopt.model.vectors import VectorCounts, unpack
from layoutopt.partitioning.partition import Partition
from layoutopt.partitioning.weights import integer_weights
from layoutopt.skipping.skip_sets import SkipSet, membership, skip_set_table


class Objective(Protocol):
    """What reading a block costs a row of it. More bits never cost less."""

    def reading(self, unions: Bits) -> Floats:
        """The weight of the queries that read a block with each of these unions, ``bool[n, f]`` -> ``float64[n]``."""
        ...


def scanned(objective: Objective, partition: Partition, vectors: VectorCounts) -> float:
    """Rows scanned, each as often as its block is read: the objective summed over the rows of all blocks."""
    unions = unpack(partition.unions(vectors), vectors.n_features)
    return float(partition.sizes() @ objective.reading(unions))


@dataclass(frozen=True, eq=False)
class FeatureObjective:
    """Equation 3.1, as a cost: a block is read once for every feature that does not skip it.

    A query that several features subsume counts once for each of them.

    Attributes:
        weights: of the features, ``float64[f]``.
    """

    weights: Floats

    @classmethod
    def of(cls, weights: Floats, rows: int) -> FeatureObjective:
        """With weights scaled to integers, so that comparisons of up to ``rows`` rows are exact."""
        return cls(integer_weights(weights, rows))

    def reading(self, unions: Bits) -> Floats:
        """See :class:`Objective`."""
        return np.asarray(unions @ self.weights)


@dataclass(frozen=True, eq=False)
class SkipSetObjective:
    """What queries really skip: a block is read once by a query, unless any skip set of the query skips it.

    A skip set is a set of features: it skips a block where all of them have bit 0. One of a single feature is a feature
    that subsumes the query (Sun 2017, 3.5). See :mod:`layoutopt.skipping.skip_sets`.

    Attributes:
        skip_sets: the features of each skip set, ``bool[s, f]``.
        has_skip_set: which query has which skip set, ``bool[q, s]``; a query without skip sets reads every block.
        weights: of the queries, ``float64[q]``.
    """

    skip_sets: Bits
    has_skip_set: Bits
    weights: Floats

    @classmethod
    def of_skip_sets(
        cls, skip_sets: Sequence[SkipSet], has_skip_set: Bits, n_features: int, weights: Floats, rows: int
    ) -> SkipSetObjective:
        """From sets of features, with weights scaled to integers, exact for up to ``rows`` rows."""
        return cls(membership(skip_sets, n_features).T > 0, has_skip_set, integer_weights(weights, rows))

    def reading(self, unions: Bits) -> Floats:
        """See :class:`Objective`."""
        return np.asarray(~self.skipped(unions) @ self.weights)

    def skipped(self, unions: Bits) -> Bits:
        """Which query skips a block with which of these unions, ``bool[n, f]`` -> ``bool[n, q]``."""
        skipping = unions.astype(np.float32) @ self._features_of_skip_sets == 0
        return np.asarray(skipping.astype(np.float32) @ self._skip_sets_of_queries > 0)

    @cached_property
    def _features_of_skip_sets(self) -> Singles:
        return self.skip_sets.T.astype(np.float32)

    @cached_property
    def _skip_sets_of_queries(self) -> Singles:
        return self.has_skip_set.T.astype(np.float32)


def objective_of(
    queries: Sequence[Query], features: FeatureSet, weights: Floats, rows: int, others: Bits | None = None
) -> SkipSetObjective:
    """The objective of queries over these features, and over others that they are known to skip by.

    Args:
        queries: the training queries.
        features: bit ``i`` is feature ``i``.
        weights: of each query here, 0 where it does not read the rows, ``float64[n_queries]``; what these skip by is
            not looked for.
        rows: how many rows are partitioned together.
        others: for further bits, after the features': which query skips where one is 0, ``bool[n_queries, e]``.
    """
    counted = np.flatnonzero(weights > 0)
    skip_sets, of_counted = skip_set_table([queries[i] for i in counted.tolist()], features)
    has_skip_set = np.zeros((len(queries), len(skip_sets)), dtype=np.bool_)
    has_skip_set[counted] = of_counted
    n_features = len(features)
    if others is not None:
        skip_sets = (*skip_sets, *(frozenset({n_features + i}) for i in range(others.shape[1])))
        has_skip_set = np.hstack([has_skip_set, others])
        n_features += others.shape[1]
    return SkipSetObjective.of_skip_sets(skip_sets, has_skip_set, n_features, weights, rows)
