"""Planning: features and queries, and the pairs that Spark counts, become a plan (DESIGN 3).

A method turns what planning knows into a scheme; methods join by :data:`METHODS`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from layoutopt.catalog.keys import key_array
from layoutopt.errors import BoundError, PlanError, SettingError
from layoutopt.features.weights import feature_shares
from layoutopt.model.document import FeaturesDocument
from layoutopt.model.feature import FeatureSet
from layoutopt.model.layout import ByOrder, ByVectors, Layout, Plan, Scheme
from layoutopt.model.predicate import columns_of
from layoutopt.model.query import Query, classes
from layoutopt.model.schema import Schema
from layoutopt.model.skipping import BlockFacts, ColumnBounds, FeatureBits, FeatureIndex, cannot_match
from layoutopt.model.values import NAN_KEY, key_kind
from layoutopt.model.vectors import VectorCounts
from layoutopt.partitioning.calibrate import calibrate_min_rows
from layoutopt.partitioning.order import ORDER_KINDS
from layoutopt.partitioning.partition import Weights
from layoutopt.partitioning.registry import find_partitioner
from layoutopt.spark.failures import clear_failures
from layoutopt.spark.featurize import vector_counts
from layoutopt.spark.routing import MIN_ROWS, weights_from
from layoutopt.spark.session import check_settings
from layoutopt.spark.source import check_partition_column, conformed, open_source

Progress = Callable[[str], None]

SOP_PARTITIONER = "ward"
# Partitions on which blocks are calibrated and rows scanned predicted; spread evenly over all.
_SAMPLED_PARTITIONS = 6
# Columns that an order takes from the workload where the user names none.
_MOST_ORDER_COLUMNS = 4
_FLOATS = ("float", "double")


@dataclass(frozen=True, eq=False)
class PartitionPairs:
    """What planning knows of one partition.

    Attributes:
        value: of the partition column.
        vectors: the (vector, count) pairs.
        query_weights: of each query, 0 where the partition's own bounds exclude it; ``float64[n_queries]``.
        weights: of each feature here, ``float64[f]``.
    """

    value: object
    vectors: VectorCounts
    query_weights: Weights
    weights: Weights


@dataclass(frozen=True, eq=False)
class Planning:
    """What a method has to make a scheme of.

    Attributes:
        schema: the table's.
        features: those of the plan.
        queries: classes of the training queries.
        partitions: the pairs, in the order of the partitions' values; empty for methods by order.
        by: the columns that the user wants rows ordered by.
        block_rows, segment_rows, max_vectors, seed: the plan's.
    """

    schema: Schema
    features: FeatureSet
    queries: tuple[Query, ...]
    partitions: tuple[PartitionPairs, ...]
    by: tuple[str, ...]
    block_rows: int
    segment_rows: int
    max_vectors: int
    seed: int


@dataclass(frozen=True)
class Designed:
    """A method's result: the scheme, and what it expects of it by name (``rows_scanned_fraction``, ...)."""

    scheme: Scheme
    predicted: Mapping[str, float]


class Method(Protocol):
    """A way to lay out a table."""

    def __call__(self, planning: Planning) -> Designed:
        """Make a scheme. Deterministic; bounded by work, not by the clock."""
        ...


def sop(planning: Planning) -> Designed:
    """One layout, blocked by all features with Ward's method (Sun 2017, chapter 3)."""
    sample = _sampled(planning.partitions)
    partitioner = find_partitioner(SOP_PARTITIONER)
    pairs = [(partition.vectors, partition.weights) for partition in sample]
    min_rows = calibrate_min_rows(partitioner, pairs, planning.block_rows, planning.seed)
    blocking = ByVectors(SOP_PARTITIONER, ((MIN_ROWS, min_rows),))
    return Designed(_one_layout(planning, blocking), predicted_rows(planning, sample, blocking, min_rows))


def by_order(kind: str, planning: Planning) -> Designed:
    """One layout, rows ordered by columns or a curve over them."""
    columns = () if kind == "input" else planning.by or order_columns(planning.queries, planning.schema)
    return Designed(_one_layout(planning, ByOrder(kind, columns)), {})


_BY_ORDER: dict[str, Method] = {kind: partial(by_order, kind) for kind in ORDER_KINDS if kind != "input"}
METHODS: Mapping[str, Method] = MappingProxyType({"sop": sop, "input-order": partial(by_order, "input"), **_BY_ORDER})
_WITHOUT_PAIRS = frozenset(_BY_ORDER) | {"input-order"}


def make_plan(
    spark: SparkSession,
    source: DataFrame | str | Path,
    document: FeaturesDocument,
    *,
    method: str = "sop",
    partition_by: str | None = None,
    block_rows: int = 10_000,
    segment_rows: int = 1_000_000,
    max_vectors: int = 20_000,
    seed: int = 0,
    by: Sequence[str] = (),
    min_features: int = 1,
    num_features: int | None = None,
    codec: str = "zstd",
    progress: Progress | None = None,
) -> Plan:
    """Plan a table's layout from its source and the analysed workload.

    Args:
        spark: the session; its settings must be the document's.
        source: rows, or a path to Parquet.
        document: features and queries.
        method: one of :data:`METHODS`.
        partition_by: the column by which the table is partitioned, None for none.
        block_rows: the mean block.
        segment_rows: rows that one task takes into memory.
        max_vectors: distinct vectors of a partition that blocking takes; the lightest features go until it holds.
        seed: of everything with chance.
        by: columns to order by, for methods by order; chosen from the workload where left out.
        min_features: fewer features than these are not worth a plan by features.
        num_features: at most so many features, the heaviest.
        codec: the Parquet compression.
        progress: called with a short sentence at each stage, and for every feature given up.

    Raises:
        SettingError: unknown method, a bad number, or settings that are not the document's.
        SchemaError: the source's schema is not the document's, or there is no such column.
        PlanError: too few features are left.
        SourceError: the source can't be read.
        BoundError: there are too many distinct vectors, even of few features.
    """
    say = progress or (lambda sentence: None)
    _check_numbers(method, block_rows=block_rows, segment_rows=segment_rows, max_vectors=max_vectors)
    if by and method not in _BY_ORDER:
        raise SettingError(f"method {method!r} takes no columns to order by; leave --by out")
    check_settings(spark, document.features.settings, "the features document")
    rows = conformed(open_source(spark, source), document.schema, "the features document")
    check_partition_column(rows, partition_by)
    partition_by = None if partition_by is None else document.schema.find(partition_by).name
    features = heaviest(document.features, num_features)
    queries = tuple(classes(document.queries))
    partitions: tuple[PartitionPairs, ...] = ()
    if method not in _WITHOUT_PAIRS:
        say("counting feature vectors")
        name = "DataFrame" if isinstance(source, DataFrame) else repr(str(source))
        with clear_failures(name):
            counting = _Counting(rows, queries, document.schema, partition_by, max_vectors, say)
            features, partitions = _count_pairs(counting, features)
        if len(features) < min_features:
            raise PlanError(
                f"{len(features)} features fit max_vectors={max_vectors}, not {min_features}; raise max_vectors"
            )
    columns = tuple(document.schema.find(name).name for name in by)
    planning = Planning(
        document.schema, features, queries, partitions, columns, block_rows, segment_rows, max_vectors, seed
    )
    say(f"planning by {method}")
    designed = METHODS[method](planning)
    return Plan(
        table=document.table,
        schema=document.schema,
        partition_by=partition_by,
        method=method,
        features=features,
        queries=queries,
        scheme=designed.scheme,
        block_rows=block_rows,
        segment_rows=segment_rows,
        max_vectors=max_vectors,
        seed=seed,
        codec=codec,
        settings=document.features.settings,
        predicted=designed.predicted,
    )


def _check_numbers(method: str, **numbers: int) -> None:
    if method not in METHODS:
        raise SettingError(f"there is no method {method!r}; choose one of {', '.join(METHODS)}")
    for name, value in numbers.items():
        if value < 1:
            raise SettingError(f"{name} is {value}; give at least 1")


def heaviest(features: FeatureSet, count: int | None) -> FeatureSet:
    """The heaviest features, in the order they had; of equal weights the first."""
    if count is None or count >= len(features):
        return features
    kept = np.sort(np.argsort(-features.weights, kind="stable")[:count]).tolist()
    return _only(features, kept)


def _only(features: FeatureSet, kept: Sequence[int]) -> FeatureSet:
    return replace(features, features=tuple(features[i] for i in kept))


@dataclass(frozen=True)
class _Counting:
    """What the pairs are counted of, for whom, and within what."""

    rows: DataFrame
    queries: tuple[Query, ...]
    schema: Schema
    partition_by: str | None
    max_vectors: int
    say: Progress


def _count_pairs(of: _Counting, features: FeatureSet) -> tuple[FeatureSet, tuple[PartitionPairs, ...]]:
    """The features that fit ``max_vectors``, and every partition's pairs under them."""
    features, counts = _countable(of, features)
    kept = features_within(features, list(counts.values()), of.max_vectors)
    for i in sorted(set(range(len(features))) - set(kept)):
        of.say(f"gave up feature {i} (weight {features[i].weight:g}) to stay within max_vectors={of.max_vectors}")
    features = _only(features, kept)
    weights = _query_weights(of)
    shares = feature_shares(features, of.queries)
    partitions = []
    for value in sorted(counts, key=lambda value: (value is not None, value if value is not None else 0)):
        vectors = counts[value].project(kept)
        of_queries = weights.get(value, np.array([query.weight for query in of.queries]))
        partitions.append(PartitionPairs(value, vectors, of_queries, weights_from(shares, of_queries, vectors)))
    return features, tuple(partitions)


def _countable(of: _Counting, features: FeatureSet) -> tuple[FeatureSet, dict[object, VectorCounts]]:
    """The pairs of as many of the heaviest features as the driver can hold the pairs of."""
    while True:
        try:
            return features, vector_counts(of.rows, features.features, of.partition_by)
        except BoundError:
            if len(features) <= 1:
                raise
            of.say(f"{len(features)} features make too many vectors to count; giving up the lightest quarter")
            features = heaviest(features, len(features) * 3 // 4)


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


def _query_weights(of: _Counting) -> dict[object, Weights]:
    """By partition, each query's weight, 0 where the partition's bounds exclude it; from one aggregate."""
    used = frozenset().union(*(columns_of(query.filter.root) for query in of.queries))
    columns = [column for column in of.schema.columns if column.name in used and key_kind(column.type) is not None]
    if of.partition_by is None or not columns:
        return {}
    aggregates = [F.count(F.lit(1)).alias("_rows")]
    for i, column in enumerate(columns):
        value = F.col("`" + column.name.replace("`", "``") + "`")
        aggregates += [F.min(value).alias(f"_low{i}"), F.max(value).alias(f"_high{i}"), F.count(value).alias(f"_n{i}")]
    bounds = of.rows.groupBy(F.col(f"`{of.partition_by}`").alias("_key")).agg(*aggregates).toArrow().combine_chunks()
    counted = np.asarray(bounds["_rows"], dtype=np.int64)
    known = {column.name: _bounds(bounds, i, column.type, counted) for i, column in enumerate(columns)}
    facts = BlockFacts(rows=counted, bounds=known)
    excluded = np.array([cannot_match(query.filter.root, facts, None) for query in of.queries])
    weights = np.where(excluded, 0.0, np.array([query.weight for query in of.queries])[:, None])
    return {value: weights[:, i] for i, value in enumerate(bounds["_key"].to_pylist())}


def _bounds(table: pa.Table, i: int, type: str, rows: np.ndarray) -> ColumnBounds:
    nulls = rows - np.asarray(table[f"_n{i}"], dtype=np.int64)
    high = key_array(table[f"_high{i}"], type)
    if type in _FLOATS:
        # Spark's max is NaN where there is one, which is the largest key already; this says so.
        high = np.where(np.asarray(pc.fill_null(pc.is_nan(table[f"_high{i}"]), False)), NAN_KEY, high)
    return ColumnBounds(low=key_array(table[f"_low{i}"], type), high=high, known=nulls < rows, nulls=nulls, type=type)


def _sampled(partitions: Sequence[PartitionPairs]) -> list[PartitionPairs]:
    count = min(len(partitions), _SAMPLED_PARTITIONS)
    return [partitions[(2 * i + 1) * len(partitions) // (2 * count)] for i in range(count)]


def _one_layout(planning: Planning, blocking: ByVectors | ByOrder) -> Scheme:
    names = planning.schema.names
    return Scheme((Layout(names, tuple(range(len(planning.features))), names, blocking),))


def predicted_rows(
    planning: Planning, sample: Sequence[PartitionPairs], blocking: ByVectors, min_rows: int
) -> dict[str, float]:
    """What the training queries would scan, by partition bounds and features alone, on sampled partitions.

    Returns:
        ``rows_scanned_fraction``: of the rows of all queries' full scans, by weight; ``block_rows``: the mean block.
    """
    index = FeatureIndex(planning.features)
    partitioner = find_partitioner(blocking.algorithm)
    scanned = full = blocks = rows = 0.0
    for part in sample:
        partition = partitioner(part.vectors, part.weights, min_rows, planning.seed)
        sizes = partition.sizes()
        facts = BlockFacts(rows=sizes, bits=FeatureBits(partition.unions(part.vectors)))
        for query, weight in zip(planning.queries, part.query_weights.tolist(), strict=True):
            full += query.weight * part.vectors.rows
            if weight:
                scanned += weight * float(sizes[~cannot_match(query.filter.root, facts, index)].sum())
        blocks, rows = blocks + partition.n_blocks, rows + part.vectors.rows
    if not full or not blocks:
        return {}
    return {"rows_scanned_fraction": round(scanned / full, 6), "block_rows": round(rows / blocks, 1)}


def order_columns(queries: Sequence[Query], schema: Schema) -> tuple[str, ...]:
    """The columns that filters use most, by weight, at most four; of equals the first in the schema.

    Raises:
        PlanError: no query filters by an orderable column.
    """
    used: dict[str, float] = defaultdict(float)
    for query in queries:
        for name in columns_of(query.filter.root):
            used[name] += query.weight
    orderable = [c.name for c in schema.columns if used[c.name] and key_kind(c.type) is not None]
    if not orderable:
        raise PlanError("no query filters by a column that rows can be ordered by; name columns with --by")
    return tuple(sorted(orderable, key=lambda name: -used[name])[:_MOST_ORDER_COLUMNS])
