"""Planning: features and queries, and what Spark counts of the source, become a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from layoutopt.config.settings import Cost, PlanSettings
from layoutopt.errors import PlanError, SettingError
from layoutopt.features.sharpen import sharpest
from layoutopt.methods.proposals import Designed, PartitionPairs, Planning
from layoutopt.methods.registry import BY_ORDER, COUNTED, METHODS, SAMPLED
from layoutopt.methods.replication import REPLICATING, replication_of
from layoutopt.model.document import FeaturesDocument
from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.layout import Plan, Scheme
from layoutopt.model.predicates import Comparison
from layoutopt.model.query import classes
from layoutopt.partitioning.registry import DEFAULT, find_partitioner, with_effort
from layoutopt.search.problem import Unit
from layoutopt.spark.core.failures import clear_failures
from layoutopt.spark.core.sessions import check_settings
from layoutopt.spark.core.source import check_partition_column, conformed, open_source
from layoutopt.spark.planning.costs import unit_in_bytes
from layoutopt.spark.planning.pairs import Counting, Progress, count_pairs, features_within, heaviest, sample_pairs

__all__ = ["METHODS", "Progress", "features_within", "heaviest", "make_plan", "plan_by"]

MAX_VECTORS = 3_000
"""Distinct vectors of a segment in a layout (4.5): Ward's time grows with their square, and a load runs it often."""

NUM_FEATURES = 40
"""Features among which those are chosen that guide the blocking of a single layout."""


def make_plan(
    spark: SparkSession,
    source: DataFrame | str | Path,
    document: FeaturesDocument,
    *,
    method: str = "sop",
    partition_by: str | None = None,
    block_rows: int = 10_000,
    segment_rows: int = 1_000_000,
    max_vectors: int = MAX_VECTORS,
    seed: int = 0,
    by: Sequence[str] = (),
    min_features: int = 1,
    num_features: int | None = None,
    codec: str = "zstd",
    cost: Cost = "cells",
    storage_budgets: Sequence[float] = (1.2,),
    choose: float | None = None,
    budget_unit: Cost = "cells",
    copies: int = 2,
    partitioner: str = DEFAULT,
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
        max_vectors: distinct vectors that blocking takes of a layout; the lightest features go until it holds.
        seed: of everything with chance.
        by: columns to order by, for methods by order; chosen from the workload where left out.
        min_features: fewer features than these are not worth a plan by features.
        num_features: numFeat, the most features that guide the blocking; 40 for one layout and all for several where
            left out. Every feature of the document is measured all the same, and skips.
        codec: the Parquet compression.
        cost: what methods that search over column groups count: cells and tids, or their bytes.
        storage_budgets: for methods with copies, what they may store over the table stored once; a scheme for each.
        choose: the budget whose scheme is the plan's; the largest where left out.
        budget_unit: what budgets are of: cells, or compressed bytes.
        copies: how often ``gsop-fullcopy`` stores the table.
        partitioner: what a load blocks by vectors with, by its name.
        progress: called with a short sentence at each stage, and for every feature given up.

    Raises:
        SettingError: unknown method or partitioner, a bad number, or settings that are not the document's.
        SchemaError: the source's schema is not the document's, or there is no such column.
        PlanError: too few features are left.
        SourceError: the source can't be read.
        BoundError: there are too many distinct vectors, even of few features.
    """
    say = progress or (lambda sentence: None)
    replication = replication_of(storage_budgets, choose, budget_unit == "bytes", copies)
    find_partitioner(partitioner)
    _check_numbers(method, block_rows=block_rows, segment_rows=segment_rows, max_vectors=max_vectors)
    if by and method not in BY_ORDER:
        raise SettingError(f"method {method!r} takes no columns to order by; leave --by out")
    check_settings(spark, document.features.settings, "the features document")
    rows = conformed(open_source(spark, source), document.schema, "the features document")
    check_partition_column(rows, partition_by)
    partition_by = None if partition_by is None else document.schema.find(partition_by).name
    features = guiding_features(document, method, num_features)
    queries = tuple(classes(document.queries))
    partitions: tuple[PartitionPairs, ...] = ()
    unit: Unit | None = None
    if method in SAMPLED or method in COUNTED:
        name = "DataFrame" if isinstance(source, DataFrame) else repr(str(source))
        with clear_failures(name):
            counting = Counting(rows, queries, document.schema, partition_by, max_vectors, say)
            if method in SAMPLED:
                say("sampling feature vectors")
                partitions = sample_pairs(counting, features)
                if cost == "bytes" or method in REPLICATING:
                    say("measuring the bytes of cells")
                    middle = partitions[len(partitions) // 2]
                    unit = unit_in_bytes(
                        rows,
                        features,
                        partition_by,
                        (middle.value, middle.rows),
                        block_rows=block_rows,
                        segment_rows=segment_rows,
                        codec=codec,
                        seed=seed,
                    )
            else:
                say("counting feature vectors")
                features, partitions = count_pairs(counting, features)
        if len(features) < min_features:
            raise PlanError(
                f"{len(features)} features fit max_vectors={max_vectors}, not {min_features}; raise max_vectors"
            )
    columns = tuple(document.schema.find(name).name for name in by)
    planning = Planning(
        document.schema,
        features,
        queries,
        partitions,
        columns,
        block_rows,
        segment_rows,
        max_vectors,
        seed,
        unit if cost == "bytes" else None,
        replace(replication, bytes=unit),
        partitioner,
    )
    say(f"planning by {method}")
    return assembled(document, planning, METHODS[method](planning), method, partition_by, codec)


def assembled(
    document: FeaturesDocument,
    planning: Planning,
    designed: Designed,
    method: str,
    partition_by: str | None,
    codec: str,
) -> Plan:
    """The plan of a scheme, which measures every feature of the document."""
    return Plan(
        table=document.table,
        schema=document.schema,
        partition_by=partition_by,
        method=method,
        features=document.features,
        queries=planning.queries,
        scheme=_among(designed.scheme, planning.features, document.features),
        block_rows=planning.block_rows,
        segment_rows=planning.segment_rows,
        max_vectors=planning.max_vectors,
        seed=planning.seed,
        codec=codec,
        settings=document.features.settings,
        predicted=designed.predicted,
    )


def plan_by(
    spark: SparkSession, settings: PlanSettings, document: FeaturesDocument, progress: Progress | None = None
) -> Plan:
    """Plan as the settings of ``layoutopt plan`` say; see :func:`make_plan`."""
    return make_plan(
        spark,
        settings.source,
        document,
        method=settings.method,
        partition_by=settings.partition_by,
        by=settings.by,
        num_features=settings.num_features,
        block_rows=settings.block_rows,
        segment_rows=settings.segment_rows,
        max_vectors=settings.max_vectors,
        seed=settings.seed,
        codec=settings.codec,
        cost=settings.cost,
        storage_budgets=settings.storage_budget,
        choose=settings.choose,
        budget_unit=settings.budget_unit,
        copies=settings.copies,
        partitioner=with_effort(settings.partitioner, settings.effort),
        progress=progress,
    )


def guiding_features(document: FeaturesDocument, method: str, num_features: int | None) -> FeatureSet:
    """The features that guide the blocking.

    Several layouts choose among all. One layout takes the strictest, since they compete (Sun 2017, figure 3.7), and
    none about the columns that the analysis excluded (dates): it is sliced by these, which serves constants not seen
    yet too.
    """
    features = document.features
    if method in SAMPLED:
        return heaviest(features, num_features)
    excluded = set(document.exclude_columns)
    free = features.only(i for i, feature in enumerate(features) if not _has_range_of(feature, excluded))
    strict = free.only(sharpest(free, document.queries))
    return heaviest(strict, NUM_FEATURES if num_features is None else num_features)


def _has_range_of(feature: Feature, columns: set[str]) -> bool:
    """Whether a predicate of the feature is about single ones of the columns; a comparison of two is not."""
    return any(
        predicate.columns <= columns and not any(isinstance(literal, Comparison) for literal in predicate.literals)
        for predicate in feature.predicates
    )


def _among(scheme: Scheme, guiding: FeatureSet, features: FeatureSet) -> Scheme:
    """The scheme with its features counted among all of the document's, which are all measured, so that all skip.

    Plans of one document then have the same bits, whatever guides their blocking.
    """
    place = {feature: i for i, feature in enumerate(features)}
    of = [place[feature] for feature in guiding]
    layouts = (
        replace(layout, features=tuple(of[i] for i in layout.features), guides=tuple(of[i] for i in layout.guides))
        for layout in scheme.layouts
    )
    return Scheme(tuple(layouts))


def _check_numbers(method: str, **numbers: int) -> None:
    if method not in METHODS:
        raise SettingError(f"there is no method {method!r}; choose one of {', '.join(METHODS)}")
    for name, value in numbers.items():
        if value < 1:
            raise SettingError(f"{name} is {value}; give at least 1")
