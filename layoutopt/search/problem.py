"""The problem of a search: samples of rows as feature vectors, and classes of queries as masks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from layoutopt.features.weights import feature_shares
from layoutopt.model.arrays import Bits, Bytes, Floats, Ints, Singles
from layoutopt.model.feature import FeatureSet
from layoutopt.model.query import Query
from layoutopt.model.vectors import VectorCounts, any_of, unpack
from layoutopt.skipping.skip_sets import membership_matrix, skip_set_table

# Vectors that are processed at once: their bits, and which queries skip them, fit into a CPU cache.
_CHUNK = 1_024


@dataclass(frozen=True, eq=False)
class Incidence:
    """Sets of numbered things as lists: set ``i`` has ``things[starts[i]:starts[i + 1]]``. Most sets are small.

    Attributes:
        starts: ``int64[sets + 1]``.
        things: ``int64[n]``.
    """

    starts: Ints
    things: Ints

    @classmethod
    def of(cls, belongs: Bits) -> Incidence:
        """Return the sets of a matrix, ``bool[sets, things]``."""
        sets, things = np.nonzero(belongs)
        return cls(np.searchsorted(sets, np.arange(len(belongs) + 1)), things)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def only(self, sets: Ints) -> Incidence:
        """Return some of the sets, in that order."""
        sizes = np.diff(self.starts)[sets]
        starts = np.concatenate(([0], np.cumsum(sizes)))
        return Incidence(starts, self.things[np.repeat(self.starts[sets] - starts[:-1], sizes) + np.arange(starts[-1])])

    def any_of(self, packed: Bytes) -> Bytes:
        """Return the OR of the bits of each set's things, ``uint8[sets, k]``; 0 for an empty set.

        ``packed`` are the bits of every thing (:func:`numpy.packbits`), ``uint8[things, k]``.

        >>> sets = Incidence.of(np.array([[True, True, False], [False, False, False]]))
        >>> sets.any_of(np.array([[0b10], [0b01], [0b100]], dtype=np.uint8)).tolist()
        [[3], [0]]
        """
        bits_by_set = np.zeros((len(self), packed.shape[1]), dtype=np.uint8)
        filled = self.starts[:-1] < self.starts[1:]
        if filled.any():
            bits_by_set[filled] = np.bitwise_or.reduceat(packed[self.things], self.starts[:-1][filled], axis=0)
        return bits_by_set


@dataclass(frozen=True, eq=False)
class Sample:
    """Sampled rows of one segment.

    Attributes:
        vectors: distinct global feature vectors, and how many sampled rows have each.
        rows: rows of the whole segment; ``rows / vectors.rows`` is the sampling factor.
        query_weights: ``float64[queries]``, 0 for a query that the segment's own bounds exclude.
    """

    vectors: VectorCounts
    rows: int
    query_weights: Floats

    @property
    def scale(self) -> float:
        """Return the rows of the segment for each sampled row."""
        return self.rows / max(1, self.vectors.rows)

    @cached_property
    def matching(self) -> Floats:
        """Return how many of the sampled rows match each feature, ``float64[features]``."""
        matching = np.zeros(self.vectors.n_features)
        for counts, bits in self.chunks():
            matching += counts @ bits
        return matching

    def chunks(self) -> Iterator[tuple[Floats, Bits]]:
        """Yield chunks of vectors: the sampled rows of each, ``float64[n]``, and their bits, ``bool[n, features]``."""
        for start in range(0, len(self.vectors), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            bits = unpack(self.vectors.words[chunk], self.vectors.n_features)
            yield self.vectors.counts[chunk].astype(np.float64), bits


@dataclass(frozen=True, eq=False)
class Unit:
    """The cost of reading a ``cell`` of each column, ``float64[columns]``, and a ``tid`` (all 1 in Eq. 4.3)."""

    cell: Floats
    tid: float

    @classmethod
    def cells(cls, n_columns: int) -> Unit:
        """Return the thesis's unit: every cell and every tid costs 1."""
        return cls(np.ones(n_columns), 1.0)


@dataclass(frozen=True, eq=False)
class Problem:
    """A workload over samples, in arrays. Queries are classes of equal masks, with their weights added.

    Attributes:
        columns: the table's column names; a column's number is its position.
        reads: which query reads which column, ``bool[queries, columns]``.
        shares: how much of each query's filter each feature covers, ``float64[queries, features]``.
        members: which feature is a member of which skip set, ``float32[features, skip_sets]``.
        skips: which query skips a block by which skip set, ``bool[queries, skip_sets]``.
        samples: sampled segments.
        unit: what a cell and a tid cost.
        block_rows: mean rows of a block of the table (not of the sample).
        max_vectors: about how many distinct vectors a layout's local features may make (4.5).
        classes: the class of each original query, ``int64[original queries]``; None if unknown.
        by_count: whether local features are ranked and weighted by the number of queries that they subsume, and as
            many as fit are used, as in the text (4.5); else by marginal weight and selectivity, and fewer are tried
            too.
    """

    columns: tuple[str, ...]
    reads: Bits
    shares: Floats
    members: Singles
    skips: Bits
    samples: tuple[Sample, ...]
    unit: Unit
    block_rows: int
    max_vectors: int
    seed: int = 0
    classes: Ints | None = None
    by_count: bool = False

    @cached_property
    def subsumed(self) -> Bits:
        """Return whether each feature subsumes each query's filter, F^q, ``bool[queries, features]``."""
        return np.asarray(self.shares == 1.0)

    @cached_property
    def selectivity(self) -> Floats:
        """Return the share of sampled rows that match each feature, ``float64[features]``."""
        matching = sum(sample.matching for sample in self.samples)
        return np.asarray(matching / max(1, sum(s.vectors.rows for s in self.samples)), dtype=np.float64)

    @cached_property
    def weights(self) -> Floats:
        """Return the query weights, ``float64[samples, queries]``."""
        return np.stack([s.query_weights for s in self.samples])

    def skippable(self, unions: Bits, queries: Bits | None = None) -> Bits:
        """Return which query can skip which block by its skip sets, ``bool[blocks, queries]``.

        Args:
            unions: union bits, ``bool[blocks, features]``; 1 where not measured.
            queries: limits the result to these queries, ``bool[all queries]``.
        """
        sets_of_query = self._query_sets
        if queries is not None:
            sets_of_query = sets_of_query.only(np.flatnonzero(queries))
        used, sets = np.unique(sets_of_query.things, return_inverse=True)
        features_of_set, sets_by_query = self._set_features.only(used), Incidence(sets_of_query.starts, sets)
        skippable = np.zeros((len(unions), len(sets_of_query)), dtype=np.bool_)
        for start in range(0, len(unions), _CHUNK):
            chunk = unions[start : start + _CHUNK]
            skipped = sets_by_query.any_of(~features_of_set.any_of(np.packbits(chunk.T, axis=1)))
            skippable[start : start + _CHUNK] = np.unpackbits(skipped, axis=1, count=len(chunk)).T
        return skippable

    @cached_property
    def least_rows(self) -> Floats:
        """Return the rows that no skip set of the query excludes, ``float64[samples, queries]``: a lower bound."""
        least = np.zeros((len(self.samples), len(self.reads)))
        for s, sample in enumerate(self.samples):
            skipped = np.zeros(len(self.reads))
            for counts, bits in sample.chunks():
                skipped += counts @ self.skippable(bits)
            least[s] = sample.scale * (sample.vectors.rows - skipped)
        return least

    @property
    def rows(self) -> int:
        """Return the rows of all sampled segments."""
        return sum(sample.rows for sample in self.samples)

    def rows_with_any(self, features: Sequence[int]) -> float:
        """Return about how many of these rows have one of the features."""
        return sum(sample.scale * sample.vectors.rows_with_any(features) for sample in self.samples)

    def rows_with_sets(self) -> Floats:
        """Return about how many of these rows have a member of each skip set, ``float64[skip_sets]``."""
        rows = np.zeros(self.members.shape[1])
        for sample in self.samples:
            sample_rows = np.zeros(self.members.shape[1])
            for counts, bits in sample.chunks():
                having = self._set_features.any_of(np.packbits(bits.T, axis=1))
                sample_rows += np.unpackbits(having, axis=1, count=len(counts)) @ counts
            rows += sample.scale * sample_rows
        return rows

    @cached_property
    def _set_features(self) -> Incidence:
        return Incidence.of(self.members.T > 0)

    @cached_property
    def _query_sets(self) -> Incidence:
        return Incidence.of(self.skips)


def make_problem(
    queries: Sequence[Query],
    features: FeatureSet,
    columns: Sequence[str],
    samples: Sequence[Sample],
    *,
    unit: Unit | None = None,
    block_rows: int,
    max_vectors: int,
    seed: int = 0,
) -> Problem:
    """Put a workload into arrays; queries of equal columns and equal skip sets become one class.

    The samples have query weights of shape ``[len(queries)]``. For the rest see :class:`Problem`.
    """
    skip_sets, skips = skip_set_table(queries, features)
    number = {name: i for i, name in enumerate(columns)}
    reads = np.zeros((len(queries), len(columns)), dtype=np.bool_)
    for q, query in enumerate(queries):
        reads[q, [number[name] for name in query.columns]] = True
    first, class_of_query = equal_rows(np.concatenate([reads, skips], axis=1))
    summed = [np.bincount(class_of_query, s.query_weights, len(first)).astype(np.float64) for s in samples]
    return Problem(
        columns=tuple(columns),
        reads=reads[first],
        shares=feature_shares(features, queries)[first],
        members=membership_matrix(skip_sets, len(features)),
        skips=skips[first],
        samples=tuple(Sample(s.vectors, s.rows, weights) for s, weights in zip(samples, summed, strict=True)),
        unit=unit or Unit.cells(len(columns)),
        block_rows=block_rows,
        max_vectors=max_vectors,
        seed=seed,
        classes=class_of_query,
    )


def restrict_rows(problem: Problem, features: Sequence[int]) -> Problem:
    """Return the problem over the rows with one of these features only; samples without any are dropped."""
    samples = []
    for sample in problem.samples:
        kept = any_of(sample.vectors.words, features)
        if not kept.any():
            continue
        vectors = VectorCounts(sample.vectors.words[kept], sample.vectors.counts[kept], sample.vectors.n_features)
        samples.append(Sample(vectors, round(vectors.rows * sample.scale), sample.query_weights))
    return replace(problem, samples=tuple(samples))


def thin_samples(problem: Problem, rows: int) -> Problem:
    """Return the problem over about ``rows`` rows of each sample, taken at even distances."""
    samples = []
    for sample in problem.samples:
        step = max(1.0, sample.vectors.rows / rows)
        ends = np.floor(np.cumsum(sample.vectors.counts) / step + 0.5).astype(np.int64)
        counts = np.diff(np.concatenate(([0], ends)))
        kept = counts > 0
        vectors = VectorCounts(sample.vectors.words[kept], counts[kept], sample.vectors.n_features)
        samples.append(Sample(vectors, sample.rows, sample.query_weights))
    return replace(problem, samples=tuple(samples))


def equal_rows(masks: Bits) -> tuple[Ints, Ints]:
    """Return the first row of each class of equal rows, and each row's class."""
    _, first, inverse = np.unique(np.packbits(masks, axis=1), axis=0, return_index=True, return_inverse=True)
    return first, inverse.reshape(-1)
