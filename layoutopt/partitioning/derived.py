"""The exact objective as Equation 3.1 over derived features, some with negative weights.

A query of the skip sets ``c1 .. ck`` skips a block where any of them has all its bits 0 there. By inclusion and exclusion
the weight that skips a block is a sum over sets of skip sets: of a query's weight, positive for sets of odd size and
negative for even ones, for every set whose skip sets all hold. A set of skip sets holds where no row has any of their
features, so it behaves as one more feature: its bit is the OR of its members' bits, and the union vector of a block has
it 0 exactly where the set holds. So everything that is linear in features (Ward's loss, counters of a local search)
becomes exact by taking derived features with these weights, and stays one product of matrices.
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

# Skip sets of one query that count, those that hold for the most rows first: sets of them double with each.
_MOST_SKIP_SETS = 5
# Sets of skip sets of all queries; beyond that, queries keep fewer skip sets. Work on each vector is proportional to this.
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
    """
    if isinstance(objective, FeatureObjective):
        return _derived(vectors.bits(), objective.weights, vectors.rows)
    if isinstance(objective, SkipSetObjective):
        return _of_skip_sets(objective, vectors)
    raise TypeError(f"{type(objective).__name__} has no linear form; give features or skip sets")


def _of_skip_sets(objective: SkipSetObjective, vectors: VectorCounts) -> Derived:
    zeros = (vectors.bits().astype(np.float32) @ objective.skip_sets.T.astype(np.float32)) == 0
    useful = zeros.any(axis=0)
    queries, weights = _summed(objective.has_skip_set[:, useful], objective.weights)
    skip_sets = [_helping(query, zeros[:, useful], vectors.counts) for query in queries]
    packed = np.packbits(zeros[:, useful].T, axis=1)
    longest = max(map(len, skip_sets), default=0)
    for most in range(min(longest, _MOST_SKIP_SETS), -1, -1):
        sets = _sets(packed, [members[:most] for members in skip_sets], weights)
        if len(sets) <= _MOST_DERIVED:
            break
    held = np.array([np.frombuffer(key, dtype=np.uint8) for key in sets], dtype=np.uint8)
    bits = ~np.unpackbits(held.reshape(len(sets), packed.shape[1]), axis=1, count=len(vectors)).view(np.bool_)
    linear = _derived(np.ascontiguousarray(bits.T), np.array(list(sets.values()), dtype=np.float64), vectors.rows)
    return replace(linear, exact=most == longest)


def _derived(bits: Bits, weights: Floats, rows: int) -> Derived:
    """With the weights times one power of two, rounded, so that sums of their magnitudes stay exact."""
    sizes = np.abs(weights)
    return Derived(bits, np.sign(weights) * integer_weights(sizes, rows), exponent_of(sizes, rows))


def _summed(has_skip_set: Bits, weights: Floats) -> tuple[Bits, Floats]:
    """Queries of equal skip sets as one, without those that have none or no weight."""
    counted = has_skip_set.any(axis=1) & (weights > 0)
    distinct, which = np.unique(has_skip_set[counted], axis=0, return_inverse=True)
    sums = np.zeros(len(distinct))
    np.add.at(sums, which.reshape(-1), weights[counted])
    return distinct, sums


def _helping(query: Bits, zeros: Bits, counts: Ints) -> list[int]:
    """A query's skip sets, those first that let it skip the most rows beyond those before; none that another implies."""
    left = np.flatnonzero(query)
    open_rows = counts.copy()
    chosen: list[int] = []
    while len(left):
        # Of equals the one that holds for more rows in all.
        best = int(left[np.lexsort((-(counts @ zeros[:, left]), -(open_rows @ zeros[:, left])))[0]])
        chosen.append(best)
        open_rows = open_rows * ~zeros[:, best]
        left = left[(zeros[:, left] & ~zeros[:, [best]]).any(axis=0)]
    return chosen


def _sets(packed: Packed, queries: Iterable[list[int]], weights: Floats) -> dict[bytes, float]:
    """The sets of skip sets of all queries with their weights, each named by the vectors for which it holds, packed."""
    sums: dict[bytes, float] = {}
    for members, weight in zip(queries, weights.tolist(), strict=True):
        for held, sign in _subsets(packed, members):
            key = held.tobytes()
            sums[key] = sums.get(key, 0.0) + sign * weight
    return {key: weight for key, weight in sums.items() if weight}


def _subsets(packed: Packed, members: list[int]) -> list[tuple[Packed, int]]:
    """Every set of these skip sets that holds for some vector, with its sign."""
    found: list[tuple[Packed, int]] = []
    for skip_set in members:
        found += [(packed[skip_set], 1)] + [
            (both, -sign) for held, sign in found if (both := held & packed[skip_set]).any()
        ]
    return found
