"""How much a blocking should care for each feature: the weights of Equation 3.1 (Sun 2017), and marginal weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from layoutopt.features.implications import Implications
from layoutopt.model.arrays import Bits, Floats
from layoutopt.model.feature import FeatureSet
from layoutopt.model.query import Query
from layoutopt.model.vectors import VectorCounts


def feature_shares(features: FeatureSet, queries: Sequence[Query]) -> Floats:
    """How much of each query's filter each feature covers: float64, shape (queries, features), from 0 to 1.

    1 where the feature subsumes the query, as ``FeatureSet.matrix`` has it; ``1 / k`` where it subsumes one of the
    *k* parts of a disjunction, which a block is skipped for when all parts have bit 0. Weights from these shares make
    the blocking care for lists that no one feature subsumes. The array is shared: it can't be written to.
    """
    return _feature_shares(features, tuple(queries))


@lru_cache(maxsize=32)
def _feature_shares(features: FeatureSet, queries: tuple[Query, ...]) -> Floats:
    """Remembered, since planning weighs the same features by the same queries at each of its stages."""
    predicates = tuple(dict.fromkeys(p for feature in features for p in feature.predicates))
    place = {predicate: i for i, predicate in enumerate(predicates)}
    relation = Implications(predicates)
    shares = np.zeros((len(queries), len(features)))
    members = [[place[p] for p in feature.predicates] for feature in features]
    single = [i for i, of_feature in enumerate(members) if len(of_feature) == 1]
    places = [members[i][0] for i in single]
    joined = [(i, of_feature) for i, of_feature in enumerate(members) if len(of_feature) > 1]
    for row, query in zip(shares, queries, strict=True):
        implied, covered = relation.implied(query.filter.root), relation.shares(query.filter.root)
        row[single] = covered[places]
        for i, of_feature in joined:
            row[i] = float(implied[of_feature].all())
    shares.setflags(write=False)
    return shares


def feature_weights(
    matrix: Bits | Floats, query_weights: Floats, selectivity: Floats | None = None, *, marginal: bool = False
) -> Floats:
    """The weight of each feature for the blocking: float64, shape (features,).

    Eq. 3.1 gives a query's whole weight to every feature that subsumes it, though a query skips a block once. With
    `marginal` its most selective feature gets the whole weight, and each next one only the share of rows that those
    before it leave.

    Args:
        matrix: shape (queries, features): bool (subsumes), or the shares of :func:`feature_shares`.
        query_weights: shape (queries,), or (partitions, queries) for weights each; 0 for queries that don't reach the
            partition at hand.
        selectivity: share of rows that match each feature, shape (features,). Needed for `marginal`.

    Raises:
        ValueError: `marginal` without `selectivity`.

    >>> both = np.array([[True, True], [False, True]])
    >>> feature_weights(both, np.ones(2)).tolist()
    [1.0, 2.0]
    >>> feature_weights(both, np.ones(2), np.array([0.25, 0.5]), marginal=True).tolist()
    [1.0, 1.25]
    """
    shares = matrix.astype(np.float64)
    if marginal:
        if selectivity is None:
            raise ValueError("marginal weights need the features' selectivity")
        shares = _marginal(shares, selectivity)
    return np.asarray(query_weights @ shares)


MARGINAL: Final = "marginal"
SUBSUMED: Final = "subsumed"
WEIGHINGS: Final = (MARGINAL, SUBSUMED)
"""What a feature counts for: what queries skip by it beyond stricter ones, or all that it subsumes (Eq. 3.1)."""


def weights_by(weighing: str, shares: Floats, query_weights: Floats, selectivity: Floats) -> Floats:
    """The weights of features, ``float64[f]``, by one of :data:`WEIGHINGS`.

    Args:
        weighing: which.
        shares: how much of each query each feature covers, ``float64[n_queries, f]``.
        query_weights: ``float64[n_queries]``, 0 for queries that don't reach the segment.
        selectivity: share of rows that match each feature, ``float64[f]``.
    """
    if weighing == SUBSUMED:
        return feature_weights(shares >= 1.0, query_weights)
    return feature_weights(shares, query_weights, selectivity, marginal=True)


def segment_weights(shares: Floats, query_weights: Floats, vectors: VectorCounts, weighing: str = MARGINAL) -> Floats:
    """As :func:`weights_by`, for rows with these vectors."""
    return weights_by(weighing, shares, query_weights, vectors.counts @ vectors.bits() / max(vectors.rows, 1))


def _marginal(shares: Floats, selectivity: Floats) -> Floats:
    order = np.argsort(selectivity, kind="stable")
    ordered = shares[:, order]
    stays = 1.0 - ordered * (1.0 - selectivity[order])
    before = np.cumprod(np.column_stack([np.ones(len(shares)), stays]), axis=1)[:, :-1]
    result = np.empty_like(shares)
    result[:, order] = ordered * before
    return result
