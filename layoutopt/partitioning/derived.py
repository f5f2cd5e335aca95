"""The exact objective as Equation 3.1 over derived features, some with negative weights.

A query of weight ``w`` with the skip sets ``c1 .. ck`` skips a block where any of them holds, which is where no row has
any of its features. By inclusion and exclusion, with 1 for "holds"::

    weight skipped = sum over the combinations S of c1 .. ck, S not empty, of (-1) ** (|S| + 1) * w * [all of S hold]

All of S hold where no row has any feature of any of them. So S behaves as one more feature, whose bit is the OR of all
these features' bits: a union vector has it 0 exactly where all of S hold. With derived features of these weights, what
is linear in features (Ward's loss, counters of a local search) becomes exact, and stays one product of matrices.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints, Packed
from layoutopt.model.vectors import VectorCounts
from layoutopt.partitioning.objective import FeatureObjective, Objective, SkipSetObjective
from layoutopt.partitioning.partition import Partition
from layoutopt.partitioning.weights import exponent_of, integer_weights

# Skip sets of one query that count, those that hold for the most rows first: their combinations double with each.
_MOST_SKIP_SETS = 5
# Derived features of all queries, to which work on each vector is proportional; beyond that, queries keep fewer sets.
_MOST_DERIVED = 1_000


@dataclass(frozen=True, eq=False)
class Derived:
    """An objective over the vectors of one segment, linear in derived features.

    What reading a block costs a row of it is ``union @ weights``, up to a constant, for its union of derived bits.

    Attributes:
        bits: the vectors' derived features, ``bool[d, t]``.
        weights: integers, ``float64[t]``, such that all sums of them are exact in float32.
        exponent: a query of weight 1 weighs two to the power of this in them.
        exact: FALSE where queries had too many skip sets, so that unions are said to cost more than they do.
    """

    bits: Bits
    weights: Floats
    exponent: int
    exact: bool = True

    def of_some(self, vectors: Ints) -> Derived:
        """The same objective for some of the vectors only."""
        return replace(self, bits=self.bits[vectors])

    @cached_property
    def alone(self) -> Floats:
        """What reading costs a row of each vector where nothing else is in its block, ``float64[d]``."""
        return self.bits @ self.weights

    def unions(self, partition: Partition) -> Bits:
        """The derived bits of each block, ``bool[n_blocks, t]``."""
        unions = np.zeros((partition.n_blocks, self.bits.shape[1]), dtype=np.bool_)
        np.logical_or.at(unions, partition.block, self.bits[partition.vector])
        return unions

    def cost(self, partition: Partition) -> float:
        """Rows scanned, weighted, up to a constant that is the same for all partitions."""
        return float(partition.sizes() @ (self.unions(partition) @ self.weights))


def derive(objective: Objective, vectors: VectorCounts) -> Derived:
    """The objective over derived features of these vectors.

    Exact for Equation 3.1. For skip sets exact while queries have few skip sets that help here; else what is scanned is
    estimated too high, never too low.

    A query that skips by feature 0 or by feature 1 has a derived feature for each, and one of negative weight for both.
    Rows with neither bit, and those with one of them, are skipped where they lie alone. A block of ten rows in which
    both bits occur is read:

    >>> vectors = VectorCounts(np.array([[0b00], [0b01], [0b10]], dtype=np.uint64), np.array([5, 5, 5]), 2)
    >>> either = SkipSetObjective(np.eye(2, dtype=bool), np.array([[True, True]]), np.ones(1))
    >>> derived = derive(either, vectors)
    >>> derived.bits.astype(int).tolist(), np.ldexp(derived.weights, -derived.exponent).tolist()
    ([[0, 0, 0], [1, 0, 1], [0, 1, 1]], [1.0, 1.0, -1.0])
    >>> together = Partition.of(np.arange(3), np.array([0, 1, 1]), vectors.counts)
    >>> float(np.ldexp(derived.cost(together), -derived.exponent))
    10.0
    """
    if isinstance(objective, FeatureObjective):
        return _scaled(vectors.bits(), objective.weights, vectors.rows)
    if isinstance(objective, SkipSetObjective):
        return _by_inclusion_and_exclusion(objective, vectors)
    raise TypeError(f"{type(objective).__name__} has no linear form; give features or skip sets")


def _by_inclusion_and_exclusion(objective: SkipSetObjective, vectors: VectorCounts) -> Derived:
    holds = (vectors.bits().astype(np.float32) @ objective.skip_sets.T.astype(np.float32)) == 0
    somewhere = holds.any(axis=0)
    holds = holds[:, somewhere]
    has_skip_set, weights = _distinct_queries(objective.has_skip_set[:, somewhere], objective.weights)
    useful = [_most_useful(has, holds, vectors.counts) for has in has_skip_set]
    packed = np.packbits(holds.T, axis=1)  # of each skip set, the vectors for which it holds
    longest = max(map(len, useful), default=0)
    for most in range(min(longest, _MOST_SKIP_SETS), -1, -1):
        weight_of = _combined_weights(packed, [skip_sets[:most] for skip_sets in useful], weights)
        if len(weight_of) <= _MOST_DERIVED:
            break
    all_hold = np.array([np.frombuffer(key, dtype=np.uint8) for key in weight_of], dtype=np.uint8)
    all_hold = all_hold.reshape(len(weight_of), packed.shape[1])
    bits = ~np.unpackbits(all_hold, axis=1, count=len(vectors)).view(np.bool_)
    linear = _scaled(np.ascontiguousarray(bits.T), np.array(list(weight_of.values()), dtype=np.float64), vectors.rows)
    return replace(linear, exact=most == longest)


def _scaled(bits: Bits, weights: Floats, rows: int) -> Derived:
    """With the weights times one power of two, rounded, so that sums of their magnitudes stay exact."""
    sizes = np.abs(weights)
    return Derived(bits, np.sign(weights) * integer_weights(sizes, rows), exponent_of(sizes, rows))


def _distinct_queries(has_skip_set: Bits, weights: Floats) -> tuple[Bits, Floats]:
    """Queries of equal skip sets as one, without those that have none or no weight."""
    counted = has_skip_set.any(axis=1) & (weights > 0)
    distinct, which = np.unique(has_skip_set[counted], axis=0, return_inverse=True)
    return distinct, np.bincount(which.reshape(-1), weights[counted], len(distinct)).astype(np.float64)


def _most_useful(has_skip_set: Bits, holds: Bits, counts: Ints) -> list[int]:
    """A query's skip sets, each the one that skips most rows beyond those before it; none that skips no further rows.

    Args:
        has_skip_set: the query's skip sets, ``bool[s]``.
        holds: for which vectors each holds, ``bool[d, s]``.
        counts: rows of each vector, ``int64[d]``.
    """
    left = np.flatnonzero(has_skip_set)
    open_rows = counts.copy()
    chosen: list[int] = []
    while len(left):
        # Of equals the one that holds for more rows in all.
        best = int(left[np.lexsort((-(counts @ holds[:, left]), -(open_rows @ holds[:, left])))[0]])
        chosen.append(best)
        open_rows = open_rows * ~holds[:, best]
        left = left[(holds[:, left] & ~holds[:, [best]]).any(axis=0)]
    return chosen


def _combined_weights(packed: Packed, queries: Iterable[list[int]], weights: Floats) -> dict[bytes, float]:
    """The weight of each derived feature, by the packed vectors for which it is 0: equal ones of all queries as one."""
    sums: dict[bytes, float] = {}
    for skip_sets, weight in zip(queries, weights.tolist(), strict=True):
        for all_hold, sign in _combinations(packed, skip_sets):
            key = all_hold.tobytes()
            sums[key] = sums.get(key, 0.0) + sign * weight
    return {key: weight for key, weight in sums.items() if weight}


def _combinations(packed: Packed, skip_sets: list[int]) -> list[tuple[Packed, int]]:
    """Of every combination of a query's skip sets: the vectors for which all hold, and ``(-1) ** (size + 1)``.

    Combinations that hold for no vector are left out: their derived feature is 1 in every block.
    """
    found: list[tuple[Packed, int]] = []
    for skip_set in skip_sets:
        larger = [(both, -sign) for all_hold, sign in found if (both := all_hold & packed[skip_set]).any()]
        found += [(packed[skip_set], 1), *larger]
    return found
