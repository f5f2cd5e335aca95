"""Measure a source for planning: feature vectors and their counts by partition, and which queries reach what.

Methods that search over more features than rows can be counted by plan from samples: with hundreds of features nearly
every row has a vector of its own (Sun 2017, 4.5).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.partition_names import PlainValue, null_first_key
from layoutopt.errors import BoundError, PlanError
from layoutopt.evaluation.keys import FLOATS, has_key, key_array
from layoutopt.events import Progress
from layoutopt.features.weights import feature_shares, segment_weights
from layoutopt.methods.interface import PartitionHistogram
from layoutopt.model.arrays import Bits, Floats, spread
from layoutopt.model.feature import FeatureSet
from layoutopt.model.predicates import columns_of
from layoutopt.model.query import Query, filtered_columns
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import NAN_KEY, key_kind
from layoutopt.model.vectors import VectorCounts
from layoutopt.planning.pairs import Pairs
from layoutopt.planning.rows import RowCounts, SourceRows
from layoutopt.skipping.cannot_match import BlockStatistics, ColumnBounds, cannot_match_each

SAMPLED_PARTITIONS = 3
# Partitions whose vectors are counted on a sample.
COUNTED_PARTITIONS = 12
# Rows sampled of one partition.
SAMPLE_ROWS = 40_000
_TEXTS = ("string", "binary")


@dataclass(frozen=True)
class CountRequest:
    """A request to count the vectors of rows, for some queries, in at most ``max_vectors`` vectors a partition.

    ``pairs`` were counted before; they stand for the rows under their features.
    """

    rows: SourceRows
    queries: tuple[Query, ...]
    schema: Schema
    max_vectors: int
    say: Progress
    pairs: Pairs | None = None

    @cached_property
    def bounded(self) -> list[Column]:
        """The columns whose bounds may exclude a query from a partition."""
        used = filtered_columns(self.queries)
        return [column for column in self.schema.columns if column.name in used and key_kind(column.type) is not None]

    def select(self, some_bounds: pa.Table, columns: Sequence[Column]) -> list[Column]:
        """Select the columns whose bounds over all rows may exclude a query, judged by the bounds of some rows."""
        return _select_excluding_columns(some_bounds, self.queries, columns)


def count_histograms(request: CountRequest, features: FeatureSet) -> tuple[FeatureSet, tuple[PartitionHistogram, ...]]:
    """Return the features that fit ``max_vectors``, and the vectors of all or some partitions under them."""
    features, counted = _count_within_memory(request, features)
    kept = features_within(features, list(counted.vectors.values()), request.max_vectors)
    for i in sorted(set(range(len(features))) - set(kept)):
        weight = f"{features[i].weight:g}"
        request.say(f"gave up blocking by feature {i} (weight {weight}) for max_vectors={request.max_vectors}")
    features = features.only(kept)
    counts = {value: vectors.project(kept) for value, vectors in counted.vectors.items()}
    return features, _build_histograms(request, features, counted._replace(vectors=counts))


def _count_within_memory(request: CountRequest, features: FeatureSet) -> tuple[FeatureSet, RowCounts]:
    """Count vectors of as many of the heaviest features as fit the driver."""
    while True:
        try:
            return features, count_rows(request, features, is_sample=False)
        except BoundError:
            if len(features) <= 1:
                raise
            request.say(f"{len(features)} features make too many vectors to count; giving up the lightest quarter")
            features = select_heaviest(features, len(features) * 3 // 4)


def count_rows(request: CountRequest, features: FeatureSet, *, is_sample: bool) -> RowCounts:
    """Return the vectors of all or some partitions, or of a sample of few; of pairs under these features, if given.

    Raises:
        PlanError: the source has no rows to draw a sample of, or lost a partition since the pairs were counted.
        BoundError: there are too many distinct vectors.
    """
    if request.pairs is not None and request.pairs.covers(features, is_sample):
        request.say("taking the pairs that were counted")
        removed = request.pairs.counts.vectors.keys() - request.rows.read(lambda rows: rows.partition_rows).keys()
        if removed:
            raise PlanError(
                f"the source no longer has the partition {min(map(str, removed))!r} of the pairs; count them again by "
                "jobs/featurize.py"
            )
        return request.pairs.counts
    if not is_sample:
        return request.rows.read(lambda rows: rows.count(features, request.bounded, request.select))
    counted = request.rows.read(lambda rows: rows.partition_rows)
    if not counted:
        raise PlanError("the source has no rows to plan a layout from; give one with rows, or a method by order")
    sampled = {value: counted[value] for value in spread(list(counted), SAMPLED_PARTITIONS)}
    return request.rows.read(
        lambda rows: rows.count_some(features, request.bounded, request.select, sampled, SAMPLE_ROWS)
    )


def sample_histograms(request: CountRequest, features: FeatureSet) -> tuple[PartitionHistogram, ...]:
    """Return the vectors of a sample of some partitions, over all of the features.

    Raises:
        PlanError: the source has no rows.
    """
    return _build_histograms(request, features, count_rows(request, features, is_sample=True))


def _build_histograms(
    request: CountRequest, features: FeatureSet, counted: RowCounts
) -> tuple[PartitionHistogram, ...]:
    shares = feature_shares(features, request.queries)
    reached = _reached_by_bounds(request, counted.bounds, counted.columns)
    partition_rows = request.rows.read(lambda rows: rows.partition_rows)
    histograms = []
    for value in sorted(counted.vectors, key=null_first_key):
        query_weights, vectors = reached[value], counted.vectors[value]
        weights = segment_weights(shares, query_weights, vectors)
        histograms.append(PartitionHistogram(value, partition_rows[value], vectors, query_weights, weights))
    return tuple(histograms)


def select_heaviest(features: FeatureSet, count: int | None) -> FeatureSet:
    """Return the heaviest features in their order; of equal weights the first."""
    if count is None or count >= len(features):
        return features
    return features.only(np.sort(np.argsort(-features.weights, kind="stable")[:count]).tolist())


def features_within(features: FeatureSet, counts: Sequence[VectorCounts], max_vectors: int) -> list[int]:
    """Return the indices of the most of the heaviest features that keep each partition within ``max_vectors``.

    Fewer features never make more vectors, so the number is found by bisection.
    """
    by_weight = np.argsort(-features.weights, kind="stable")

    def fit(count: int) -> bool:
        kept = np.sort(by_weight[:count]).tolist()
        return all(len(vectors.project(kept)) <= max_vectors for vectors in counts)

    if fit(len(features)):
        return list(range(len(features)))
    fits, fails = 0, len(features)
    while fails - fits > 1:
        count = (fits + fails) // 2
        fits, fails = (count, fails) if fit(count) else (fits, count)
    return [int(i) for i in np.sort(by_weight[:fits])]


def _reached_by_bounds(request: CountRequest, bounds: pa.Table, columns: Sequence[Column]) -> dict[PlainValue, Floats]:
    """Return by partition each query's weight, 0 where the partition's bounds exclude the query."""
    excluded = _find_excluded(bounds, request.queries, columns)
    weights = np.where(excluded, 0.0, np.array([query.weight for query in request.queries])[:, None])
    return {value: weights[:, i] for i, value in enumerate(bounds["_key"].to_pylist())}


def _select_excluding_columns(
    some_bounds: pa.Table, queries: Sequence[Query], columns: Sequence[Column]
) -> list[Column]:
    """Select the columns whose bounds over all rows may exclude a query, judged by the bounds of some rows.

    Minima of texts are expensive (Spark sorts for them), and few columns exclude a query from a partition. Bounds of
    some rows lie within those of all, so they exclude at least as much: a query that reaches a partition by these needs
    no others. Texts are selected only where they exclude a query from more partitions than the other columns do.
    """
    texts = {column.name for column in columns if column.type in _TEXTS}
    by_all = _find_excluded(some_bounds, queries, columns)
    by_cheap = _find_excluded(some_bounds, queries, columns, ignored=texts)
    selected: set[str] = set()
    for query, excluded, excluded_cheaply in zip(queries, by_all, by_cheap, strict=True):
        if excluded.any():
            texts_add_nothing = np.array_equal(excluded, excluded_cheaply)
            selected |= columns_of(query.filter.root) - (texts if texts_add_nothing else set())
    return [column for column in columns if column.name in selected]


def _find_excluded(
    bounds: pa.Table, queries: Sequence[Query], columns: Sequence[Column], ignored: Collection[str] = ()
) -> Bits:
    """Return which query bounds exclude from which partition, ``bool[queries, partitions]``."""
    counted = np.asarray(bounds["_rows"], dtype=np.int64)
    known = {
        column.name: partition_bounds(bounds, i, column.type, counted)
        for i, column in enumerate(columns)
        if column.name not in ignored
    }
    statistics = BlockStatistics(rows=counted, bounds=known)
    return cannot_match_each([query.filter.root for query in queries], statistics)


def partition_bounds(table: pa.Table, i: int, type: str, rows: np.ndarray) -> ColumnBounds:
    """Return column ``i``'s bounds from ``_low{i}``, ``_high{i}`` and ``_n{i}`` of each partition.

    ``rows`` are the partitions', int64[n]. A text that is no UTF-8 bounds nothing.
    """
    nulls = rows - np.asarray(table[f"_n{i}"], dtype=np.int64)
    low, high = key_array(table[f"_low{i}"], type), key_array(table[f"_high{i}"], type)
    known = has_key(table[f"_low{i}"], type) & has_key(table[f"_high{i}"], type)
    if type in FLOATS:
        # Spark's maximum is NaN where there is a NaN, whose key is the largest.
        high = np.where(np.asarray(pc.fill_null(pc.is_nan(table[f"_high{i}"]), False)), NAN_KEY, high)
    return ColumnBounds(low=low, high=high, known=known, nulls=nulls, type=type)
