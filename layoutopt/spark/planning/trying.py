"""Trying settings of ``plan`` by queries held back (Sun 2017, 3.6).

Every candidate is planned from the earlier queries of the log, features mined from them alone, on one sample of rows,
and judged by the bytes that the later queries would read of it (:mod:`layoutopt.spark.planning.tryout`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from layoutopt.config.settings import PlanSettings
from layoutopt.errors import PlanError
from layoutopt.features.holdout import hold_back, mined_from
from layoutopt.methods.proposals import Planning
from layoutopt.methods.registry import COUNTED, METHODS, SAMPLED
from layoutopt.methods.replication import REPLICATING, replication_of
from layoutopt.model.document import FeaturesDocument
from layoutopt.model.feature import FeatureSet
from layoutopt.model.layout import Plan
from layoutopt.model.query import Query, classes
from layoutopt.partitioning.registry import with_effort
from layoutopt.search.problem import Unit
from layoutopt.spark.core.failures import clear_failures
from layoutopt.spark.core.sessions import check_settings
from layoutopt.spark.core.source import check_partition_column, conformed, open_source
from layoutopt.spark.planning.pairs import Progress, features_within
from layoutopt.spark.planning.plan import assembled, guiding_features
from layoutopt.spark.planning.tryout import RowSample, Tried, draw_sample, pairs_of, try_plan

_WORST_SHARE: Final = 0.25
"""Of the resamples those by whose mean a plan is judged."""


@dataclass(frozen=True)
class Trial:
    """A plan that was tried.

    Attributes:
        settings: what it was planned by.
        threshold: T of its features, in queries of the whole log.
        score: the share of full scans' bytes that the queries held back read, or of the worst resamples of them.
    """

    settings: PlanSettings
    threshold: int
    score: float


class Trying:
    """One sample of rows, what to plan from and what to judge by, and what was tried.

    Attributes:
        documents: of the training queries, by T in queries of the whole log.
        held: the queries held back.
        trials: what was tried, in order.
    """

    def __init__(
        self,
        documents: Mapping[int, FeaturesDocument],
        held: Sequence[Query],
        sample: RowSample,
        partition_by: str | None,
        say: Progress,
    ) -> None:
        """Try plans on a sample whose features are those of the documents."""
        self.documents = documents
        self.held = held
        self.trials: list[Trial] = []
        self._sample = sample
        self._by = partition_by
        self._say = say

    def score(self, settings: PlanSettings, threshold: int) -> float:
        """Plan and replay; remembered as a trial."""
        plan = self._plan(self.documents[threshold], settings)
        tried = try_plan(self._sample, plan, self.held)
        score = worst_fraction(tried, classes(self.held), settings.resamples, settings.seed)
        self.trials.append(Trial(settings, threshold, round(score, 6)))
        return self.trials[-1].score

    def _plan(self, document: FeaturesDocument, settings: PlanSettings) -> Plan:
        """The plan of the training queries by the sample alone."""
        method = settings.method
        features = guiding_features(document, method, settings.num_features)
        queries = tuple(classes(document.queries))
        partitions = pairs_of(self._sample, features, queries, document.schema)
        if method in COUNTED:
            features = features.only(features_within(features, [p.vectors for p in partitions], settings.max_vectors))
            partitions = pairs_of(self._sample, features, queries, document.schema)
        unit: Unit | None = None
        if method in SAMPLED and (settings.cost == "bytes" or method in REPLICATING):
            unit = self._sample.unit(document.schema.names, settings.block_rows, settings.codec, settings.seed)
        replication = replication_of(
            settings.storage_budget, settings.choose, settings.budget_unit == "bytes", settings.copies
        )
        planning = Planning(
            document.schema,
            features,
            queries,
            tuple(partitions),
            tuple(document.schema.find(name).name for name in settings.by),
            settings.block_rows,
            settings.segment_rows,
            settings.max_vectors,
            settings.seed,
            unit if settings.cost == "bytes" else None,
            replace(replication, bytes=unit),
            with_effort(settings.partitioner, settings.effort),
        )
        self._say(f"trying {method}")
        return assembled(document, planning, METHODS[method](planning), method, self._by, settings.codec)


def start_trying(
    spark: SparkSession,
    settings: PlanSettings,
    document: FeaturesDocument,
    thresholds: Sequence[int],
    say: Progress,
) -> Trying:
    """Cut the log in two, mine the earlier part with each T, and draw rows with the features of all.

    Raises:
        PlanError: too few queries are alike, so that none can be held back; or the source has no rows.
        SchemaError, SettingError, SourceError: as :func:`layoutopt.spark.planning.plan.make_plan`.
    """
    check_settings(spark, document.features.settings, "the features document")
    rows = conformed(open_source(spark, settings.source), document.schema, "the features document")
    check_partition_column(rows, settings.partition_by)
    training, held = hold_back(document.queries)
    if not held:
        raise PlanError(
            f"none of the log's {len(document.queries)} queries can be held back to choose by, since no four read and "
            "filter the same columns; name a --method and leave out --tune"
        )
    say("mining the earlier queries")
    share = weight_of(training) / weight_of(document.queries)
    documents = {
        threshold: mined_from(document, training, threshold=max(2, math.ceil(threshold * share)))
        for threshold in thresholds
    }
    return try_on(rows, settings, documents, held, say)


def try_on(
    rows: DataFrame,
    settings: PlanSettings,
    documents: Mapping[int, FeaturesDocument],
    held: Sequence[Query],
    say: Progress,
) -> Trying:
    """Draw rows with the features of all documents, to try plans on.

    Args:
        rows: the source, conformed to the documents' schema.
        settings: name the source and the partition column, and how many rows a segment has at most.
        documents: what to plan from, by T in queries of the whole log.
        held: the queries to judge by.
        say: told each stage.

    Raises:
        PlanError: the source has no rows.
    """
    one = next(iter(documents.values()))
    partition_by = None if settings.partition_by is None else one.schema.find(settings.partition_by).name
    by_predicates = {feature.predicates: feature for each in documents.values() for feature in each.features}
    features = FeatureSet(tuple(by_predicates.values()), one.features.settings)
    say("drawing rows to try plans on")
    with clear_failures(repr(settings.source)):
        sample = draw_sample(rows, features, partition_by, settings.segment_rows)
    if not sample.segments:
        raise PlanError("the source has no rows to choose a plan by; name a --method and leave out --tune")
    return Trying(documents, held, sample, partition_by, say)


def weight_of(queries: Sequence[Query]) -> float:
    """How many statements of the log these are."""
    return math.fsum(query.weight for query in queries)


def worst_fraction(tried: Tried, queries: Sequence[Query], resamples: int, seed: int) -> float:
    """The share of full scans that is read; with resamples the mean of the worst quarter of them.

    A resample draws as many statements as there are, each as likely as any, with replacement (the bootstrap): a plan
    that lives on a few of them is bad on the resamples without.

    Args:
        tried: what each query reads.
        queries: classes, in the order of ``tried``.
        resamples: how many; 0 takes the queries as they are.
        seed: of the draws.
    """
    if not resamples:
        return tried.fraction
    weights = np.array([query.weight for query in queries])
    draws = np.random.default_rng(seed).multinomial(
        max(1, round(weights.sum())), weights / weights.sum(), size=resamples
    )
    factors = draws / weights
    full = factors @ np.array(tried.full)
    fractions = np.divide(factors @ np.array(tried.read), full, out=np.zeros(resamples), where=full > 0)
    worst = np.sort(fractions)[-max(1, math.ceil(_WORST_SHARE * resamples)) :]
    return float(worst.mean())
