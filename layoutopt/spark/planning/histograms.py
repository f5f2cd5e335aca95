"""What planning counts of the source: (vector, count) pairs of each partition, and which queries reach it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from layoutopt.catalog.keys import has_key, key_array
from layoutopt.catalog.partition_names import PlainValue
from layoutopt.direct.survey import KEY, ROWS
from layoutopt.errors import BoundError, PlanError
from layoutopt.events import Progress
from layoutopt.features.weights import feature_shares, segment_weights
from layoutopt.methods.proposals import PartitionHistogram
from layoutopt.model.arrays import Bits, Floats
from layoutopt.model.feature import FeatureSet
from layoutopt.model.predicates import columns_of
from layoutopt.model.query import Query, filtered_columns
from layoutopt.model.schema import Column, Schema
from layoutopt.model.sequences import spread
from layoutopt.model.types import quoted
from layoutopt.model.values import NAN_KEY, key_kind
from layoutopt.model.vectors import VectorCounts
from layoutopt.skipping.cannot_match import BlockStatistics, ColumnBounds, cannot_match
from layoutopt.spark.core.featurize import counts_by_key, vector_counts
from layoutopt.spark.core.partition_values import null_first, of_partitions, partition_column
from layoutopt.spark.planning.plain_rows import PlainRows, Rows, by_arrow_or_spark, frame_of
from layoutopt.spark.planning.sampling import SAMPLE_ROWS, SAMPLED_PARTITIONS, rows_by_partition, sample_vectors

_FLOATS = ("float", "double")
_TEXTS = ("string", "binary")
_SOME = 0.01
"""The share of rows that tells whether a column's bounds can exclude a query from a partition."""


def heaviest(features: FeatureSet, count: int | None) -> FeatureSet:
    """The heaviest features, in the order they had; of equal weights the first."""
    if count is None or count >= len(features):
        return features
    kept = np.sort(np.argsort(-features.weights, kind="stable")[:count]).tolist()
    return features.only(kept)


@dataclass(frozen=True)
class Counting:
    """What the pairs are counted of, for whom, and within what."""

    rows: Rows
    queries: tuple[Query, ...]
    schema: Schema
    partition_by: str | None
    max_vectors: int
    say: Progress

    @cached_property
    def bounded(self) -> list[Column]:
        """The columns by whose bounds a partition may be seen not to be reached by a query."""
        used = filtered_columns(self.queries)
        return [column for column in self.schema.columns if column.name in used and key_kind(column.type) is not None]


def count_histograms(of: Counting, features: FeatureSet) -> tuple[FeatureSet, tuple[PartitionHistogram, ...]]:
    """The features that fit ``max_vectors``, and every partition's pairs under them."""
    features, counts, reached = _countable(of, features)
    kept = features_within(features, list(counts.values()), of.max_vectors)
    for i in sorted(set(range(len(features))) - set(kept)):
        of.say(f"gave up blocking by feature {i} (weight {features[i].weight:g}) for max_vectors={of.max_vectors}")
    features = features.only(kept)
    counts = {value: vectors.project(kept) for value, vectors in counts.items()}
    return features, _with_weights(of, features, counts, reached or _reached(of))


def sample_histograms(of: Counting, features: FeatureSet) -> tuple[PartitionHistogram, ...]:
    """Vectors of a sample of some partitions, over all of the features.

    Raises:
        PlanError: the source has no rows.
    """
    counted = rows_by_partition(of.rows, of.partition_by)
    if not counted:
        raise PlanError("the source has no rows to plan a layout from; give one with rows, or a method by order")
    sampled = {value: counted[value] for value in spread(list(counted), SAMPLED_PARTITIONS)}
    counts, reached = by_arrow_or_spark(
        of.rows,
        lambda rows: _sampled(of, rows, features, sampled),
        lambda rows: (sample_vectors(rows, features, of.partition_by, sampled), _reached(of, list(sampled))),
    )
    return _with_weights(of, features, counts, reached)


def _sampled(
    of: Counting, plain: PlainRows, features: FeatureSet, sampled: Mapping[PlainValue, int]
) -> tuple[dict[PlainValue, VectorCounts], _Reached]:
    """What is counted of rows drawn from some partitions of plain files, and which queries reach these."""
    named = set().union(*(feature.columns for feature in features), (column.name for column in of.bounded))
    drawn = plain.drawn(sampled, SAMPLE_ROWS, named)
    pairs, few = plain.survey_of(drawn, features.features, of.bounded)
    asked = _columns_worth_asking(few, of.queries, of.bounded)
    bounds = pa.table({KEY: list(sampled), ROWS: list(sampled.values())})
    if asked:
        bounds = plain.survey((), asked, list(sampled)).bounds
    return counts_by_key(pairs, len(features)), _by_bounds(of, bounds, asked)


_Reached = Mapping[PlainValue, tuple[int, Floats]]


def _with_weights(
    of: Counting, features: FeatureSet, counts: Mapping[PlainValue, VectorCounts], reached: _Reached
) -> tuple[PartitionHistogram, ...]:
    shares = feature_shares(features, of.queries)
    return tuple(
        PartitionHistogram(value, rows, counts[value], of_queries, segment_weights(shares, of_queries, counts[value]))
        for value in sorted(counts, key=null_first)
        for rows, of_queries in (reached[value],)
    )


def _countable(
    of: Counting, features: FeatureSet
) -> tuple[FeatureSet, dict[PlainValue, VectorCounts], _Reached | None]:
    """The pairs of as many of the heaviest features as the driver can hold the pairs of.

    Also which queries reach the partitions, where the same pass over the rows tells.
    """
    while True:
        try:
            return features, *_counts(of, features)
        except BoundError:
            if len(features) <= 1:
                raise
            of.say(f"{len(features)} features make too many vectors to count; giving up the lightest quarter")
            features = heaviest(features, len(features) * 3 // 4)


def _counts(of: Counting, features: FeatureSet) -> tuple[dict[PlainValue, VectorCounts], _Reached | None]:
    return by_arrow_or_spark(
        of.rows,
        lambda rows: _surveyed(of, rows, features),
        lambda rows: (vector_counts(rows, features.features, of.partition_by), None),
    )


def _surveyed(of: Counting, rows: PlainRows, features: FeatureSet) -> tuple[dict[PlainValue, VectorCounts], _Reached]:
    few, asked = rows.survey_of_one_split(of.bounded), of.bounded
    if len(few) == len(rows.partition_rows):  # of a partition without a row in the split nothing is known
        asked = _columns_worth_asking(few, of.queries, of.bounded)
    found = rows.survey(features.features, asked)
    return counts_by_key(found.pairs, len(features)), _by_bounds(of, found.bounds, asked)


def features_within(features: FeatureSet, counts: Sequence[VectorCounts], max_vectors: int) -> list[int]:
    """The indices of the most of the heaviest features with which no partition has more distinct vectors than allowed.

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


def _reached(of: Counting, only_of: Sequence[PlainValue] | None = None) -> _Reached:
    """By partition, its rows and each query's weight, 0 where its bounds exclude the query.

    Minima of texts are dear (Spark sorts for them), and few columns exclude a query from a partition. Bounds of a
    hundredth of the rows lie within those of all, so they exclude at least as much: a query that even they let reach a
    partition needs no bounds at all, and of the others' columns only :func:`_columns_worth_asking` are asked.

    Args:
        of: of whom.
        only_of: the partitions of interest, by value; all when None.
    """
    rows = frame_of(of.rows)
    if only_of is not None and of.partition_by is not None:
        rows = of_partitions(rows, of.partition_by, only_of)
    columns = of.bounded
    few = _bounds(rows.sample(fraction=_SOME, seed=0), of.partition_by, columns)
    asked = _columns_worth_asking(few, of.queries, columns)
    bounds = _bounds(rows, of.partition_by, asked)
    if len(bounds) > len(few):  # of a partition without a row in the sample nothing is known
        bounds, asked = _bounds(rows, of.partition_by, columns), columns
    return _by_bounds(of, bounds, asked)


def _by_bounds(of: Counting, bounds: pa.Table, columns: Sequence[Column]) -> _Reached:
    """What :func:`_reached` gives, by the bounds of some columns."""
    excluded = _excluded(bounds, of.queries, columns)
    weights = np.where(excluded, 0.0, np.array([query.weight for query in of.queries])[:, None])
    counted = np.asarray(bounds["_rows"], dtype=np.int64).tolist()
    return {value: (counted[i], weights[:, i]) for i, value in enumerate(bounds["_key"].to_pylist())}


def _columns_worth_asking(few: pa.Table, queries: Sequence[Query], columns: Sequence[Column]) -> list[Column]:
    """The columns whose bounds over all rows may exclude a query from a partition, by the bounds of some rows.

    Of a query that is excluded from some partition all columns are worth it, but texts only where it reaches another
    partition without them.
    """
    texts = {column.name for column in columns if column.type in _TEXTS}
    by_all, by_cheap = _excluded(few, queries, columns), _excluded(few, queries, columns, but=texts)
    asked: set[str] = set()
    for query, excluded, excluded_cheaply in zip(queries, by_all, by_cheap, strict=True):
        if excluded.any():
            texts_add_nothing = np.array_equal(excluded, excluded_cheaply)
            asked |= columns_of(query.filter.root) - (texts if texts_add_nothing else set())
    return [column for column in columns if column.name in asked]


def _bounds(rows: DataFrame, partition_by: str | None, columns: Sequence[Column]) -> pa.Table:
    """By partition its rows, and least, greatest and count of each column as :func:`partition_bounds` takes them."""
    aggregates = [F.count(F.lit(1)).alias("_rows")]
    for i, column in enumerate(columns):
        value = quoted(column.name)
        aggregates += map(F.expr, (f"min({value}) AS _low{i}", f"max({value}) AS _high{i}", f"count({value}) AS _n{i}"))
    return rows.groupBy(partition_column(rows, partition_by).alias("_key")).agg(*aggregates).toArrow().combine_chunks()


def _excluded(bounds: pa.Table, queries: Sequence[Query], columns: Sequence[Column], but: Collection[str] = ()) -> Bits:
    """Which query the bounds of the columns, but for some, exclude from which partition, ``bool[queries, partitions]``.

    Args:
        bounds: of :func:`_bounds`, for these columns.
        queries: the queries.
        columns: the columns.
        but: names of columns whose bounds are not looked at.
    """
    counted = np.asarray(bounds["_rows"], dtype=np.int64)
    known = {
        column.name: partition_bounds(bounds, i, column.type, counted)
        for i, column in enumerate(columns)
        if column.name not in but
    }
    statistics = BlockStatistics(rows=counted, bounds=known)
    excluded = np.array([cannot_match(query.filter.root, statistics, None) for query in queries], dtype=np.bool_)
    return excluded.reshape(len(queries), statistics.n)  # also where there are no queries


def partition_bounds(table: pa.Table, i: int, type: str, rows: np.ndarray) -> ColumnBounds:
    """Column ``i``'s bounds by partition, from its least, greatest and count: ``_low{i}``, ``_high{i}``, ``_n{i}``.

    ``rows`` are the partitions', int64[n]. A text that is no UTF-8 bounds nothing.
    """
    nulls = rows - np.asarray(table[f"_n{i}"], dtype=np.int64)
    low, high = key_array(table[f"_low{i}"], type), key_array(table[f"_high{i}"], type)
    known = has_key(table[f"_low{i}"], type) & has_key(table[f"_high{i}"], type)
    if type in _FLOATS:
        # Spark's max is NaN where there is one, which is the largest key already; this says so.
        high = np.where(np.asarray(pc.fill_null(pc.is_nan(table[f"_high{i}"]), False)), NAN_KEY, high)
    return ColumnBounds(low=low, high=high, known=known, nulls=nulls, type=type)
