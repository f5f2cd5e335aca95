"""HoldOutEvaluation settings of ``plan`` by queries held back (Sun 2017, 3.6).

Each one is planned from the earlier queries of the log, features mined from them alone, on one sample of rows,
and judged by the bytes that the later queries would read of it (:mod:`layoutopt.spark.planning.sample_evaluation`).
The best of them can be judged once more, on whole segments (:mod:`layoutopt.spark.planning.segments_rehearsed`).
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
from layoutopt.methods.proposals import PlanningInput
from layoutopt.methods.registry import COUNTED
from layoutopt.model.document import FeaturesDocument
from layoutopt.model.feature import FeatureSet
from layoutopt.model.layout import Plan
from layoutopt.model.query import Query, classes
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.planning.histograms import Progress, features_within
from layoutopt.spark.planning.plan import guiding_features, needs_bytes, opened, plan_from, request_of
from layoutopt.spark.planning.row_order import found_order, is_searched, with_order_asked
from layoutopt.spark.planning.sample_evaluation import (
    CATALOG_BYTES_A_CHUNK,
    BytesRead,
    RowSample,
    draw_sample,
    evaluate_on_sample,
    histograms_of,
)
from layoutopt.spark.planning.segments_rehearsed import Rehearsed, Trial, rehearse_segments

_WORST_SHARE: Final = 0.25
"""Of the resamples those by whose mean a plan is judged."""


@dataclass(frozen=True)
class EvaluatedPlan:
    """A plan that was evaluated.

    Attributes:
        settings: what it was planned by.
        threshold: T of its features, in queries of the whole log.
        score: the share of full scans' bytes that the queries held back read, or of the worst resamples of them.
        plan: what was made of the earlier queries, where it is at hand.
    """

    settings: PlanSettings
    threshold: int
    score: float
    plan: Plan | None = None


class HoldOutEvaluation:
    """One sample of rows, what to plan from, what to judge by, and what was evaluated.

    Attributes:
        documents: of the training queries, by T in queries of the whole log.
        held: the queries held back.
        evaluated: the plans, in order.
    """

    def __init__(
        self,
        documents: Mapping[int, FeaturesDocument],
        held: Sequence[Query],
        sample: RowSample,
        partition_by: str | None,
        say: Progress,
        rows: DataFrame | None = None,
    ) -> None:
        """Evaluate plans on a sample whose features are those of the documents, of these rows."""
        self.documents = documents
        self.held = held
        self.evaluated: list[EvaluatedPlan] = []
        self._sample = sample
        self._by = partition_by
        self._say = say
        self._rows = rows

    def score(self, settings: PlanSettings, threshold: int) -> float:
        """Plan, replay the queries held back, and remember the score."""
        plan = self._plan(self.documents[threshold], settings)
        read = evaluate_on_sample(self._sample, plan, self.held)
        score = worst_fraction(read, classes(self.held), settings.resamples, settings.seed)
        self.evaluated.append(EvaluatedPlan(settings, threshold, round(score, 6), plan))
        return self.evaluated[-1].score

    def score_again(self, trials: Sequence[EvaluatedPlan]) -> list[EvaluatedPlan]:
        """Some of what was evaluated, of one T, judged by the bytes of whole segments; their scores are replaced.

        They stay as they are where there are no rows.
        """
        if self._rows is None or not trials:
            return list(trials)
        self._say(f"rehearsing segments for {', '.join(trial.settings.method for trial in trials)}")
        with translate_spark_errors(repr(trials[0].settings.source)):
            found = rehearse_segments(self._rows, [_asked(trial) for trial in trials], classes(self.held))
        # Shares of one thing: what is sorted better is smaller as a whole, too.
        full = np.max([one.full for one in found], axis=0).tolist()
        again = [
            replace(trial, score=self._score_of(trial, one, full)) for trial, one in zip(trials, found, strict=True)
        ]
        for before, after in zip(trials, again, strict=True):
            self.evaluated[self.evaluated.index(before)] = after
        return again

    def _score_of(self, trial: EvaluatedPlan, rehearsed: Rehearsed, full: Sequence[float]) -> float:
        queries = classes(self.held)
        weights = np.array([query.weight for query in queries])
        read = weights * (np.array(rehearsed.read) + CATALOG_BYTES_A_CHUNK * np.array(rehearsed.looked_at))
        found = BytesRead(tuple(read.tolist()), tuple((weights * np.array(full)).tolist()))
        return round(worst_fraction(found, queries, trial.settings.resamples, trial.settings.seed), 6)

    def _plan(self, document: FeaturesDocument, settings: PlanSettings) -> Plan:
        """The plan of the training queries by the sample alone."""
        request = replace(request_of(settings), partition_by=self._by)
        features = guiding_features(document, request.method, request.num_features)
        queries, schema = tuple(classes(document.queries)), document.schema
        partitions = histograms_of(self._sample, features, queries, schema)
        if request.method in COUNTED:
            features = features.only(features_within(features, [p.vectors for p in partitions], request.max_vectors))
            partitions = histograms_of(self._sample, features, queries, schema)
        unit = (
            self._sample.unit(schema.names, request.block_rows, request.codec, request.seed)
            if needs_bytes(request)
            else None
        )
        self._say(f"trying {request.method}")
        request = replace(request, by=tuple(schema.find(name).name for name in request.by))
        return plan_from(document, PlanningInput(request, schema, features, queries, tuple(partitions), unit))


def _asked(trial: EvaluatedPlan) -> Trial:
    """The plan with the order of rows that its settings ask for."""
    assert trial.plan is not None, "what is evaluated here has its plan"
    request = request_of(trial.settings)
    request = replace(request, row_order=found_order(request, trial.plan.schema))
    return Trial(with_order_asked(trial.plan, request), is_searched(request))


def start_evaluation(
    spark: SparkSession,
    settings: PlanSettings,
    document: FeaturesDocument,
    thresholds: Sequence[int],
    say: Progress,
) -> HoldOutEvaluation:
    """Cut the log in two, mine the earlier part with each T, and draw rows with the features of all.

    Raises:
        PlanError: too few queries are alike, so that none can be held back; or the source has no rows.
        SchemaError, SettingError, SourceError: as :func:`layoutopt.spark.planning.plan.make_plan`.
    """
    rows, _ = opened(spark, settings.source, document, request_of(settings))
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
    return evaluation_on(rows, settings, documents, held, say)


def evaluation_on(
    rows: DataFrame,
    settings: PlanSettings,
    documents: Mapping[int, FeaturesDocument],
    held: Sequence[Query],
    say: Progress,
) -> HoldOutEvaluation:
    """Draw rows with the features of all documents, to evaluate plans on.

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
    with translate_spark_errors(repr(settings.source)):
        sample = draw_sample(rows, features, partition_by, settings.segment_rows)
    if not sample.segments:
        raise PlanError("the source has no rows to choose a plan by; name a --method and leave out --tune")
    return HoldOutEvaluation(documents, held, sample, partition_by, say, rows)


def weight_of(queries: Sequence[Query]) -> float:
    """How many statements of the log these are."""
    return math.fsum(query.weight for query in queries)


def worst_fraction(found: BytesRead, queries: Sequence[Query], resamples: int, seed: int) -> float:
    """The share of full scans that is read; with resamples the mean of the worst quarter of them.

    A resample draws as many statements as there are, each as likely as any, with replacement (the bootstrap): a plan
    that lives on a few of them is bad on the resamples without.

    Args:
        found: what each query reads.
        queries: classes, in the order of ``found``.
        resamples: how many; 0 takes the queries as they are.
        seed: of the draws.
    """
    if not resamples:
        return found.fraction
    weights = np.array([query.weight for query in queries])
    draws = np.random.default_rng(seed).multinomial(
        max(1, round(weights.sum())), weights / weights.sum(), size=resamples
    )
    factors = draws / weights
    full = factors @ np.array(found.full)
    fractions = np.divide(factors @ np.array(found.read), full, out=np.zeros(resamples), where=full > 0)
    worst = np.sort(fractions)[-max(1, math.ceil(_WORST_SHARE * resamples)) :]
    return float(worst.mean())
