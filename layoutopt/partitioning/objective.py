"""Define the cost of a blocking: the weight of the queries that read a block, as a function of its union vector.

Weights are scaled to integers so that losses are exact in floating point and ties are equal on every machine.

The exact objective becomes linear by derived features, some with negative weights. A query of weight ``w`` with the
skip sets ``c1 .. ck`` skips a block where any of them holds, that is where no row has any of its features. By
inclusion and exclusion, with 1 for "holds"::

    weight skipped = sum over combinations S of c1 .. ck, S not empty, of (-1) ** (|S| + 1) * w * [all of S hold]

All of S hold where no row has any feature of any of them. So S behaves as one more feature, whose bit is the OR of
these features' bits. Then whatever is linear in features (Ward's loss, counters of a local search) is exact, and stays
one product of matrices.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints, Packed, Singles, Words, stable_order, unpack_bits
from layoutopt.model.feature import FeatureSet
from layoutopt.model.query import Query
from layoutopt.model.vectors import VectorCounts, union
from layoutopt.skipping.skip_sets import SkipSet, membership_matrix, skip_set_table

# Sums of integers below 2**24 are exact in float32, in any order of additions.
_MAX_TOTAL_BITS = 23
# A loss is at most 2 * rows * total, and must stay below 2**53 to be exact in float64.
_MAX_LOSS_BITS = 52
# Skip sets of a query that count, those that hold for the most rows first: combinations double with each.
_MAX_SKIP_SETS = 5
# Derived features of all queries at most; beyond that, fewer skip sets of each query count.
_MAX_DERIVED = 1_000


@dataclass(frozen=True, eq=False)
class Partition:
    """The blocking map of a segment: which rows of which vector go to which block (Sun 2017, 3.4.4).

    Share ``k`` says that ``rows[k]`` rows of vector ``vector[k]`` lie in block ``block[k]``. A vector lies in one
    block unless its rows fill several. Shares are sorted by (vector, block), each pair once; no block is empty.

    Attributes:
        vector: index into the distinct vectors, ``int64[k]``.
        block: ``int64[k]`` in ``[0, n_blocks)``.
        rows: ``int64[k]``, positive.
    """

    vector: Ints
    block: Ints
    rows: Ints
    n_blocks: int

    @classmethod
    def of(cls, vector: Ints, block: Ints, rows: Ints) -> Partition:
        """Return the partition of these shares, in any order, with blocks of any numbers.

        Blocks are renumbered by their smallest vector and then by their number, so equal partitions are equal arrays.
        Shares of one vector in one block are summed.

        Raises:
            ValueError: a share has no rows.
        """
        if len(rows) and int(rows.min()) < 1:
            raise ValueError(f"a share has {int(rows.min())} rows: expected at least 1; leave it out")
        names, compact = np.unique(block, return_inverse=True)
        n_blocks = len(names)
        first_vector = np.full(n_blocks, np.iinfo(np.int64).max)
        np.minimum.at(first_vector, compact, vector)
        number = np.empty(n_blocks, dtype=np.int64)
        number[np.lexsort((names, first_vector))] = np.arange(n_blocks)
        pairs, which = np.unique(vector * max(n_blocks, 1) + number[compact], return_inverse=True)
        summed = np.zeros(len(pairs), dtype=np.int64)
        np.add.at(summed, which, rows)
        return cls(pairs // max(n_blocks, 1), pairs % max(n_blocks, 1), summed, n_blocks)

    def sizes(self) -> Ints:
        """Return rows of each block, ``int64[n_blocks]``."""
        return np.bincount(self.block, self.rows, self.n_blocks).astype(np.int64)

    def unions(self, vectors: VectorCounts) -> Words:
        """Return the union vector of each block, ``uint64[n_blocks, w]`` (Sun 2017, 3.4.1)."""
        return union(vectors.words[self.vector], self.block, self.n_blocks)


def assign_rows(partition: Partition, inverse: Ints, order: Ints | None = None) -> Ints:
    """Return the block of each row, ``int64[n]``.

    A vector in several blocks is cut along ``order``, so each block's rows of it are contiguous in that order: sorted
    by dates, blocks have narrow ranges of dates.

    Args:
        inverse: the vector of each row, ``int64[n]``, from :func:`layoutopt.model.vectors.distinct`.
        order: the rank of each row, ``int64[n]``; None is the order of the rows.

    Raises:
        ValueError: the rows of some vector are not as many as the partition has.
    """
    n_vectors = max(int(inverse.max(initial=-1)), int(partition.vector.max(initial=-1))) + 1
    expected = np.bincount(partition.vector, partition.rows, n_vectors)
    if not np.array_equal(expected, np.bincount(inverse, minlength=n_vectors)):
        raise ValueError("the rows differ from the partitioned ones: partition the segment's own vectors")
    if order is None:
        by_vector = stable_order(inverse, n_vectors)
    else:
        in_order = np.argsort(order, kind="stable")
        by_vector = in_order[stable_order(inverse[in_order], n_vectors)]
    block = np.empty(len(inverse), dtype=np.int64)
    block[by_vector] = np.repeat(partition.block, partition.rows)
    return block


def integer_weights(weights: Floats, rows: int) -> Floats:
    """Return the weights times a power of two, rounded to integers; the largest that keeps losses exact.

    Counts of queries and binary fractions keep their ratios exactly; other weights to about one in eight million of
    the total. Positive weights stay positive. Sums of the result are exact in float32, and times ``2 * rows`` in
    float64.

    >>> integer_weights(np.array([1.0, 0.5, 0.0]), rows=4).tolist()
    [4194304.0, 2097152.0, 0.0]
    """
    exact: Floats = np.rint(np.ldexp(weights, weight_exponent(weights, rows)))
    return np.where((weights > 0) & (exact == 0), 1.0, exact)


def weight_exponent(weights: Floats, rows: int) -> int:
    """Return the power of two that :func:`integer_weights` multiplies by.

    >>> weight_exponent(np.array([1.0, 0.5, 0.0]), rows=4)
    22
    """
    bits = min(_MAX_TOTAL_BITS, _MAX_LOSS_BITS - math.ceil(math.log2(max(rows, 1))))
    return bits - math.frexp(float(weights.sum()))[1]


class Objective(Protocol):
    """The cost of reading a row of a block; more bits never cost less."""

    def reading(self, unions: Bits) -> Floats:
        """Return the weight of the queries that read blocks with these unions, ``bool[n, f]`` -> ``float64[n]``."""
        ...


@dataclass(frozen=True, eq=False)
class FeatureObjective:
    """Equation 3.1 as a cost: a block is read once for every feature that does not skip it.

    A query that several features subsume counts once for each. ``weights`` are those of the features, ``float64[f]``.
    """

    weights: Floats

    @classmethod
    def of(cls, weights: Floats, rows: int) -> FeatureObjective:
        """Return the objective with integer weights, exact for up to ``rows`` rows."""
        return cls(integer_weights(weights, rows))

    def reading(self, unions: Bits) -> Floats:
        """See :class:`Objective`."""
        return np.asarray(unions @ self.weights)


@dataclass(frozen=True, eq=False)
class SkipSetObjective:
    """The exact cost: a query reads a block once, unless any of its skip sets skips it.

    A skip set is a set of features that skips a block where all of them have bit 0. A skip set of one feature is a
    feature that subsumes the query (Sun 2017, 3.5). See :mod:`layoutopt.skipping.skip_sets`.

    Attributes:
        skip_sets: the features of each skip set, ``bool[s, f]``.
        has_skip_set: which query has which skip set, ``bool[q, s]``; a query without skip sets reads every block.
        weights: of the queries, ``float64[q]``.
    """

    skip_sets: Bits
    has_skip_set: Bits
    weights: Floats

    @classmethod
    def from_skip_sets(
        cls, skip_sets: Sequence[SkipSet], has_skip_set: Bits, n_features: int, weights: Floats, rows: int
    ) -> SkipSetObjective:
        """Return the objective with integer weights, exact for up to ``rows`` rows."""
        return cls(membership_matrix(skip_sets, n_features).T > 0, has_skip_set, integer_weights(weights, rows))

    def reading(self, unions: Bits) -> Floats:
        """See :class:`Objective`."""
        return np.asarray(~self.skipped(unions) @ self.weights)

    def skipped(self, unions: Bits) -> Bits:
        """Return which query skips a block with which of these unions, ``bool[n, f]`` -> ``bool[n, q]``."""
        skipping = unions.astype(np.float32) @ self._skip_set_matrix == 0
        return np.asarray(skipping.astype(np.float32) @ self._query_matrix > 0)

    @cached_property
    def _skip_set_matrix(self) -> Singles:
        return self.skip_sets.T.astype(np.float32)

    @cached_property
    def _query_matrix(self) -> Singles:
        return self.has_skip_set.T.astype(np.float32)


def make_skip_objective(
    queries: Sequence[Query], features: FeatureSet, weights: Floats, rows: int, extra_skips: Bits | None = None
) -> SkipSetObjective:
    """Return the objective of queries over these features, and over further bits.

    ``weights`` are those of the queries, 0 where one does not read the rows. ``extra_skips`` tells which query skips
    where which further bit is 0, ``bool[n_queries, e]``.
    """
    counted = np.flatnonzero(weights > 0)
    skip_sets, counted_skips = skip_set_table([queries[i] for i in counted.tolist()], features)
    has_skip_set = np.zeros((len(queries), len(skip_sets)), dtype=np.bool_)
    has_skip_set[counted] = counted_skips
    n_features = len(features)
    if extra_skips is not None:
        skip_sets = (*skip_sets, *(frozenset({n_features + i}) for i in range(extra_skips.shape[1])))
        has_skip_set = np.hstack([has_skip_set, extra_skips])
        n_features += extra_skips.shape[1]
    return SkipSetObjective.from_skip_sets(skip_sets, has_skip_set, n_features, weights, rows)


@dataclass(frozen=True, eq=False)
class DerivedObjective:
    """An objective over the vectors of one segment, linear in derived features.

    Reading a row of a block costs ``union @ weights``, up to a constant, for its union of derived bits.

    Attributes:
        bits: the vectors' derived features, ``bool[d, t]``.
        weights: integers, ``float64[t]``, such that all sums of them are exact in float32.
        exponent: a query of weight 1 weighs two to the power of this in them.
        exact: False where queries have too many skip sets, so that costs are estimated too high.
    """

    bits: Bits
    weights: Floats
    exponent: int
    exact: bool = True

    def select(self, vectors: Ints) -> DerivedObjective:
        """Return the same objective for some of the vectors only."""
        return replace(self, bits=self.bits[vectors])

    @cached_property
    def alone(self) -> Floats:
        """Return the cost of a row of each vector in a block of its own, ``float64[d]``."""
        return self.bits @ self.weights

    def unions(self, partition: Partition) -> Bits:
        """Return the derived bits of each block, ``bool[n_blocks, t]``."""
        unions = np.zeros((partition.n_blocks, self.bits.shape[1]), dtype=np.bool_)
        np.logical_or.at(unions, partition.block, self.bits[partition.vector])
        return unions

    def cost(self, partition: Partition) -> float:
        """Return the rows scanned, weighted, up to a constant that is the same for all partitions."""
        return float(partition.sizes() @ (self.unions(partition) @ self.weights))


def derive(objective: Objective, vectors: VectorCounts) -> DerivedObjective:
    """Return the objective over derived features of these vectors.

    It is exact for Equation 3.1, and for skip sets while queries have few useful skip sets; else estimates are too
    high, never too low.

    A query that skips by feature 0 or by feature 1 has a derived feature for each, and one of negative weight for
    both. Rows with at most one of the bits are skipped in blocks of their own. A block of ten rows in which both bits
    occur is read:

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
        return _scale_weights(vectors.bits(), objective.weights, vectors.rows)
    if isinstance(objective, SkipSetObjective):
        return _derive_from_skip_sets(objective, vectors)
    raise TypeError(f"{type(objective).__name__} has no linear form: expected features or skip sets")


def _derive_from_skip_sets(objective: SkipSetObjective, vectors: VectorCounts) -> DerivedObjective:
    holds = (vectors.bits().astype(np.float32) @ objective.skip_sets.T.astype(np.float32)) == 0
    holds_anywhere = holds.any(axis=0)
    holds = holds[:, holds_anywhere]
    has_skip_set, weights = _merge_equal_queries(objective.has_skip_set[:, holds_anywhere], objective.weights)
    useful = [_rank_skip_sets(has, holds, vectors.counts) for has in has_skip_set]
    packed = np.packbits(holds.T, axis=1)  # of each skip set, the vectors for which it holds
    longest = max(map(len, useful), default=0)
    for n_skip_sets in range(min(longest, _MAX_SKIP_SETS), -1, -1):
        weight_of = _sum_derived_weights(packed, [skip_sets[:n_skip_sets] for skip_sets in useful], weights)
        if len(weight_of) <= _MAX_DERIVED:
            break
    all_hold = np.array([np.frombuffer(key, dtype=np.uint8) for key in weight_of], dtype=np.uint8)
    all_hold = all_hold.reshape(len(weight_of), packed.shape[1])
    bits = ~unpack_bits(all_hold, len(vectors))
    linear = _scale_weights(
        np.ascontiguousarray(bits.T), np.array(list(weight_of.values()), dtype=np.float64), vectors.rows
    )
    return replace(linear, exact=n_skip_sets == longest)


def _scale_weights(bits: Bits, weights: Floats, rows: int) -> DerivedObjective:
    """Scale the weights by a power of two and round them, so sums of their magnitudes stay exact."""
    sizes = np.abs(weights)
    return DerivedObjective(bits, np.sign(weights) * integer_weights(sizes, rows), weight_exponent(sizes, rows))


def _merge_equal_queries(has_skip_set: Bits, weights: Floats) -> tuple[Bits, Floats]:
    counted = has_skip_set.any(axis=1) & (weights > 0)
    distinct, which = np.unique(has_skip_set[counted], axis=0, return_inverse=True)
    return distinct, np.bincount(which.reshape(-1), weights[counted], len(distinct)).astype(np.float64)


def _rank_skip_sets(has_skip_set: Bits, holds: Bits, counts: Ints) -> list[int]:
    """Return a query's skip sets, each the one that skips most further rows; none that skips no further rows.

    ``holds`` tells for which vectors each skip set holds, ``bool[d, s]``.
    """
    candidates = np.flatnonzero(has_skip_set)
    open_rows = counts.copy()
    chosen: list[int] = []
    while len(candidates):
        # Of equals the skip set that holds for more rows in total.
        best = int(candidates[np.lexsort((-(counts @ holds[:, candidates]), -(open_rows @ holds[:, candidates])))[0]])
        chosen.append(best)
        open_rows = open_rows * ~holds[:, best]
        candidates = candidates[(holds[:, candidates] & ~holds[:, [best]]).any(axis=0)]
    return chosen


def _sum_derived_weights(packed: Packed, queries: Iterable[list[int]], weights: Floats) -> dict[bytes, float]:
    """Return the weight of each derived feature, by the packed vectors for which it is 0."""
    sums: dict[bytes, float] = {}
    for skip_sets, weight in zip(queries, weights.tolist(), strict=True):
        for all_hold, sign in _combine_skip_sets(packed, skip_sets):
            key = all_hold.tobytes()
            sums[key] = sums.get(key, 0.0) + sign * weight
    return {key: weight for key, weight in sums.items() if weight}


def _combine_skip_sets(packed: Packed, skip_sets: list[int]) -> list[tuple[Packed, int]]:
    """Return the vectors for which each combination of skip sets holds, and ``(-1) ** (size + 1)``.

    Combinations that hold for no vector are left out: their derived feature is 1 in every block.
    """
    combinations: list[tuple[Packed, int]] = []
    for skip_set in skip_sets:
        larger = [
            (combined, -sign) for all_hold, sign in combinations if (combined := all_hold & packed[skip_set]).any()
        ]
        combinations += [(packed[skip_set], 1), *larger]
    return combinations
