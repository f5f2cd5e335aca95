"""Judging settings of ``plan`` by queries held back (Sun 2017, 3.6).

Each one is planned from the earlier queries of the log, features mined from them alone, on one sample of rows,
and judged by the bytes that the later queries would read of it (:mod:`layoutopt.spark.planning.sample_evaluation`).
The best of them can be judged once more, on whole segments (:mod:`layoutopt.spark.planning.segment_evaluation`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np

from layoutopt.config.settings import PlanSettings
from layoutopt.errors import PlanError
from layoutopt.events import Progress, silent
from layoutopt.features.cross_validation import splits
from layoutopt.features.selection import mined_from
from layoutopt.local.processes import Tasks
from layoutopt.methods.interface import FEATURES, PlanningInput
from layoutopt.methods.registry import METHODS, is_counted
from layoutopt.model.arrays import Floats
from layoutopt.model.documents import FeaturesDocument
from layoutopt.model.engine_costs import BUILT_IN, EngineCosts
from layoutopt.model.feature import FeatureSet, all_features
from layoutopt.model.layout import Plan
from layoutopt.model.query import Query, classes, weight_of
from layoutopt.model.schema import Schema
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.sessions import AnySession
from layoutopt.spark.planning.plan import guiding_features, needs_bytes, opened, plan_from, request_of
from layoutopt.spark.planning.row_order import found_order, is_searched, with_order_asked
from layoutopt.spark.planning.sample_evaluation import (
    CATALOG_BYTES_A_CHUNK,
    NOTHING_READ,
    BytesRead,
    RowSample,
    draw_sample,
    evaluate_on_sample,
    histograms_of,
)
from layoutopt.spark.planning.segment_evaluation import Rehearsed, Trial, rehearse_segments
from layoutopt.spark.planning.source_profile import SAMPLE_ROWS, Rows, features_within, get_ready, tasks_of

# ----------------------------------------------------------------------------------------------------
# What ``auto`` goes by: the bytes that queries read, the cells, or the seconds that an engine is predicted to take.

BYTES: Final = "bytes"
CELLS: Final = "cells"
TIME: Final = "time"


@dataclass(frozen=True)
class Objective:
    """What a rehearsed plan is judged by.

    Attributes:
        kind: ``bytes``, ``cells`` or ``time``.
        costs: what the engine costs, for ``time``.
    """

    kind: str = BYTES
    costs: EngineCosts = field(default_factory=lambda: BUILT_IN.costs("spark"))

    def read(self, found: Rehearsed) -> Floats:
        """What each query takes, ``float64[queries]``; with bytes those of the catalog that it looks at too."""
        if self.kind == BYTES:
            read: Floats = np.array(found.read) + CATALOG_BYTES_A_CHUNK * np.array(found.looked_at)
            return read
        if self.kind == CELLS:
            return np.array([work.values + work.joined_values for work in found.work])
        return np.array([self.costs.seconds(work) for work in found.work])

    def full(self, found: Rehearsed) -> Floats:
        """What a full scan of each query's columns takes, ``float64[queries]``."""
        if self.kind == BYTES:
            return np.array(found.full)
        if self.kind == CELLS:
            return np.array([work.values + work.joined_values for work in found.full_work])
        return np.array([self.costs.seconds(work) for work in found.full_work])


_BY_BYTES: Final = Objective()
_WORST_SHARE: Final = 0.25
"""Of the resamples those by whose mean a plan is judged."""


@dataclass(frozen=True)
class EvaluatedPlan:
    """A plan that was evaluated.

    Attributes:
        settings: what it was planned by.
        threshold: T of its features, in queries of the whole log.
        score: the share of full scans' bytes that the queries held back read, or of the worst resamples of them.
        read: what each of them reads.
        by: what the score and what is read are of: bytes, cells or time.
        plans: what was made of each fold's training queries, where it is at hand.
        scanned: the bytes of column chunks alone that each query reads, its weight counted, if it was rehearsed.
        stored: the bytes of the columns that matter to the log, of the whole table, if it was rehearsed.
        row_orders: of each layout what the rows of its blocks were sorted by when it was rehearsed.
    """

    settings: PlanSettings
    threshold: int
    score: float
    read: BytesRead = NOTHING_READ
    plans: tuple[Plan, ...] = ()
    by: str = BYTES
    scanned: tuple[float, ...] = ()
    stored: float = 0.0
    row_orders: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Fold:
    """What to plan from, and what to judge by.

    Attributes:
        documents: of the training queries, by T in queries of the whole log.
        held: the queries held back.
    """

    documents: Mapping[int, FeaturesDocument]
    held: Sequence[Query]


class HoldOutEvaluation:
    """One sample of rows, what to plan from, what to judge by, and what was evaluated.

    Attributes:
        folds: what to plan from and to judge by; what is read is added over them.
        held: the classes of queries held back, fold by fold.
        evaluated: the plans, in order.
        say: told each stage.
        rows: what the sample was drawn from, if that is at hand.
    """

    def __init__(
        self,
        folds: Sequence[Fold],
        sample: RowSample,
        partition_by: str | None,
        say: Progress,
        rows: Rows | None = None,
    ) -> None:
        """Evaluate plans on a sample, of these rows, whose features are those of the folds' documents."""
        self.folds = folds
        self.held = tuple(query for fold in folds for query in classes(fold.held))
        self.evaluated: list[EvaluatedPlan] = []
        self._sample = sample
        self._by = partition_by
        self.say = say
        self.rows = rows

    @property
    def tasks(self) -> Tasks | None:
        """Where trials are done side by side; None where there are no rows."""
        return None if self.rows is None else tasks_of(self.rows)

    def on_sample_alone(self, asked: Iterable[PlanSettings]) -> HoldOutEvaluation:
        """The same evaluation as workers can have it: without rows, nothing evaluated, and silent.

        What cells take is measured here, for settings that will be asked, in place of in each task.
        """
        names = next(iter(self.folds[0].documents.values())).schema.names
        for each in asked:
            for columns in (self._sample.columns, *([names] if needs_bytes(request_of(each)) else [])):
                self._sample.unit(columns, each.block_rows, each.codec, each.seed)
        return HoldOutEvaluation(self.folds, self._sample.alone(), self._by, silent)

    def score(self, settings: PlanSettings, threshold: int) -> float:
        """Plan, replay the queries held back, and remember the score."""
        self.say(f"trying {named(settings)}")
        plans = tuple(self._plan(fold.documents[threshold], settings) for fold in self.folds)
        pairs = zip(plans, self.folds, strict=True)
        reads = [evaluate_on_sample(self._sample, plan, fold.held) for plan, fold in pairs]
        read = BytesRead(*(tuple(each for of in reads for each in getattr(of, kind)) for kind in ("read", "full")))
        self.evaluated.append(self._evaluated(EvaluatedPlan(settings, threshold, 0.0, plans=plans), read))
        return self.evaluated[-1].score

    def score_again(self, trials: Sequence[EvaluatedPlan], objective: Objective = _BY_BYTES) -> list[EvaluatedPlan]:
        """Some of what was evaluated, of one T, judged by an objective on whole segments; their scores are replaced.

        They stay as they are where there are no rows.
        """
        if self.rows is None or not trials:
            return list(trials)
        self.say(f"rehearsing segments for {', '.join(trial.settings.method for trial in trials)}")
        with translate_spark_errors(repr(trials[0].settings.source)):
            plans = [_asked(trial.settings, plan) for trial in trials for plan in trial.plans]
            found = rehearse_segments(self.rows, plans, self.held)
        # Shares of one thing: what is sorted better is smaller as a whole, too.
        full = np.max([objective.full(one) for one in found], axis=0)
        count = len(self.folds)
        of_trials = [found[start : start + count] for start in range(0, len(found), count)]
        again = [
            self._evaluated(self._rehearsed(trial, of_trial, objective), self._read_of(of_trial, full, objective))
            for trial, of_trial in zip(trials, of_trials, strict=True)
        ]
        for before, after in zip(trials, again, strict=True):
            self.evaluated[self.evaluated.index(before)] = after
        return again

    def _rehearsed(self, trial: EvaluatedPlan, found: Sequence[Rehearsed], objective: Objective) -> EvaluatedPlan:
        """The trial with what its rehearsals say besides its score."""
        scanned = self._of_folds([np.array(one.read) for one in found])
        stored = float(np.mean([one.stored for one in found]))
        return replace(
            trial,
            by=objective.kind,
            scanned=tuple((self._weights * scanned).tolist()),
            stored=stored,
            row_orders=tuple(layout.row_order for layout in found[-1].plan.scheme.layouts),
        )

    @property
    def _weights(self) -> Floats:
        return np.array([query.weight for query in self.held])

    def _of_folds(self, of_all: Sequence[Floats]) -> Floats:
        """Of each fold's figures for all queries held back those of its own, ``float64[queries]``."""
        own, start = np.zeros(len(self.held)), 0
        for fold, found in zip(self.folds, of_all, strict=True):
            mine = slice(start, start := start + len(classes(fold.held)))
            own[mine] = found[mine]
        return own

    def _evaluated(self, trial: EvaluatedPlan, read: BytesRead) -> EvaluatedPlan:
        score = worst_fraction(read, self.held, trial.settings.resamples, trial.settings.seed)
        return replace(trial, score=round(score, 6), read=read)

    def _read_of(self, rehearsed: Sequence[Rehearsed], full: Floats, objective: Objective) -> BytesRead:
        """What the queries of each fold take of its plan, where full scans take ``full``, ``float64[queries]``."""
        read = self._of_folds([objective.read(found) for found in rehearsed])
        return BytesRead(tuple((self._weights * read).tolist()), tuple((self._weights * full).tolist()))

    def _plan(self, document: FeaturesDocument, settings: PlanSettings) -> Plan:
        """The plan of the training queries by the sample alone."""
        request = replace(request_of(settings), partition_by=self._by)
        features = guiding_features(document, request.method, request.num_features)
        queries, schema = tuple(classes(document.queries)), document.schema
        partitions = histograms_of(self._sample, features, queries, schema)
        if is_counted(request):
            features = features.only(features_within(features, [p.vectors for p in partitions], request.max_vectors))
            partitions = histograms_of(self._sample, features, queries, schema)
        unit = (
            self._sample.unit(schema.names, request.block_rows, request.codec, request.seed)
            if needs_bytes(request)
            else None
        )
        request = replace(request, by=tuple(schema.find(name).name for name in request.by))
        return plan_from(
            document, PlanningInput(request, schema, features, queries, tuple(partitions), unit, predicts=False)
        )


def _asked(settings: PlanSettings, plan: Plan) -> Trial:
    """The plan with the order of rows that its settings ask for."""
    request = request_of(settings)
    request = replace(request, row_order=found_order(request, plan.schema))
    return Trial(with_order_asked(plan, request), is_searched(request))


def start_evaluation(
    spark: AnySession,
    settings: PlanSettings,
    document: FeaturesDocument,
    thresholds: Sequence[int],
    say: Progress,
) -> HoldOutEvaluation:
    """Cut the log in two, or a short one in several ways, mine the parts to train on with each T, and draw rows.

    Raises:
        PlanError: there are too few queries to hold any back; or the source has no rows.
        SchemaError, SettingError, SourceError: as :func:`layoutopt.spark.planning.plan.make_plan`.
    """
    parts = splits(document.queries)
    if not parts:
        raise PlanError(
            f"the log's {len(document.queries)} queries are too few to hold some back to choose by; name a --method "
            "and leave out --tune"
        )
    rows = opened(spark, settings.source, document, request_of(settings), say)
    get_ready(rows)
    say("mining the queries that are not held back")
    folds = [Fold(_mined(document, training, thresholds), held) for training, held in parts]
    return evaluation_on(rows, settings, folds, say)


def _features_of(folds: Sequence[Fold]) -> FeatureSet:
    """The features of all documents to plan from."""
    return all_features([document.features for fold in folds for document in fold.documents.values()])


def _mined(
    document: FeaturesDocument, training: Sequence[Query], thresholds: Sequence[int]
) -> dict[int, FeaturesDocument]:
    share = weight_of(training) / weight_of(document.queries)
    return {
        threshold: mined_from(document, training, threshold=max(2, math.ceil(threshold * share)))
        for threshold in thresholds
    }


def evaluation_on(
    rows: Rows,
    settings: PlanSettings,
    folds: Sequence[Fold],
    say: Progress,
    sample_rows: int = SAMPLE_ROWS,
) -> HoldOutEvaluation:
    """Draw rows with the features of all documents, to evaluate plans on.

    Args:
        rows: the source, conformed to the documents' schema.
        settings: name the source and the partition column, and how many rows a segment has at most.
        folds: what to plan from, and what to judge by.
        say: told each stage.
        sample_rows: rows wanted of each of a few partitions.

    Raises:
        PlanError: the source has no rows.
    """
    one = next(iter(folds[0].documents.values()))
    partition_by = None if settings.partition_by is None else one.schema.find(settings.partition_by).name
    features = _features_of(folds)
    columns = _columns_looked_at(folds, settings, one.schema)
    say("drawing rows to try plans on")
    with translate_spark_errors(repr(settings.source)):
        sample = draw_sample(rows, features, partition_by, settings.segment_rows, sample_rows, columns)
    if not sample.segments:
        raise PlanError("the source has no rows to choose a plan by; name a --method and leave out --tune")
    return HoldOutEvaluation(folds, sample, partition_by, say, rows)


def _columns_looked_at(folds: Sequence[Fold], settings: PlanSettings, schema: Schema) -> set[str]:
    """All columns that plans by these settings, and queries, may look at."""
    if settings.method not in (*METHODS, "auto"):  # nobody knows what another package's method goes by
        return set(schema.names)
    named = [*settings.by, *([] if settings.partition_by is None else [settings.partition_by])]
    wanted = {schema.find(name).name for name in named}
    wanted.update(*(feature.columns for feature in _features_of(folds)))
    for fold in folds:
        for queries in (fold.held, *(document.queries for document in fold.documents.values())):
            wanted.update(*(query.columns for query in queries))
    return wanted


def named(settings: PlanSettings) -> str:
    """What a trial is called: its method, and what guides it where that is unusual."""
    by = "" if settings.guides in ("auto", FEATURES) else f" by {settings.guides}"
    return f"{settings.method}{by}"


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
    fractions = resampled(found, queries, resamples, seed)
    return float(np.sort(fractions)[-max(1, math.ceil(_WORST_SHARE * resamples)) :].mean())


def resampled(found: BytesRead, queries: Sequence[Query], resamples: int, seed: int) -> Floats:
    """The share of full scans that is read in each resample, ``float64[resamples]``; one seed draws one set of them."""
    weights = np.array([query.weight for query in queries])
    statements = max(1, round(weights.sum()))
    draws = np.random.default_rng(seed).multinomial(statements, weights / weights.sum(), size=resamples)
    factors = draws / weights
    full = factors @ np.array(found.full)
    shares: Floats = np.divide(factors @ np.array(found.read), full, out=np.zeros(resamples), where=full > 0)
    return shares


# ----------------------------------------------------------------------------------------------------
# Whether one plan reads less than another, or whether the queries held back can't tell.
#
# Both are replayed with the same queries, so what counts is the difference of each query. Statements are drawn anew
# with
# replacement, the same ones for both (the paired bootstrap): where one plan reads less in nearly all draws, it does.

_DRAWS: Final = 1_000
_SURE: Final = 0.95
"""The share of draws in which a plan has to read less."""
_DEVIATIONS: Final = 1.645
"""So many standard deviations are in 95 % of the draws on one side."""
_MOST_STATEMENTS: Final = 100_000


def spread(trial: EvaluatedPlan, held: Sequence[Query]) -> float:
    """The standard deviation of what a plan reads, as a share of full scans, if other queries like these came."""
    return float(resampled(trial.read, held, _DRAWS, seed=0).std())


def clearly_less(less: EvaluatedPlan, more: EvaluatedPlan, held: Sequence[Query]) -> bool:
    """Whether the first plan reads less than the second in nearly all draws of queries like those held back."""
    return float((_difference(less, more, held) > 0).mean()) >= _SURE


def statements_to_tell(one: EvaluatedPlan, other: EvaluatedPlan, held: Sequence[Query]) -> int | None:
    """About how many more statements like those held back would tell which of two plans reads less.

    The deviation of a mean falls with the square root of the number of statements. None where these tell already, or
    where no log of sensible size would.
    """
    difference = _difference(one, other, held)
    mean, deviation = abs(float(difference.mean())), float(difference.std())
    statements = sum(query.weight for query in held)
    if not mean:
        return None
    needed = math.ceil(statements * (_DEVIATIONS * deviation / mean) ** 2) - round(statements)
    return needed if 0 < needed <= _MOST_STATEMENTS else None


def _difference(less: EvaluatedPlan, more: EvaluatedPlan, held: Sequence[Query]) -> Floats:
    """By how much less of full scans the first plan reads in each draw, ``float64[draws]``."""
    return resampled(more.read, held, _DRAWS, seed=0) - resampled(less.read, held, _DRAWS, seed=0)


# ----------------------------------------------------------------------------------------------------
# Trials on a sample side by side: each is work of one core for seconds, so each is a task of its own.


def score_all(
    evaluation: HoldOutEvaluation, asked: Sequence[PlanSettings], threshold: int
) -> list[EvaluatedPlan | PlanError]:
    """Score settings as :meth:`~layoutopt.spark.planning.hold_out.HoldOutEvaluation.score` does, in any order.

    Those that can be planned are among what the evaluation has evaluated then, in the order given.

    Args:
        evaluation: its sample goes to every task; without rows there are no tasks, and settings are scored here.
        asked: what to plan by; what takes longest is best named first.
        threshold: T of the features.

    Returns:
        The trial of each; where the method can't plan, why.
    """
    if not asked:
        return []
    evaluation.say(f"trying {', '.join(dict.fromkeys(map(named, asked)))}")
    alone = evaluation.on_sample_alone(asked)
    if (tasks := evaluation.tasks) is None:
        trials = [_score(alone, asked, threshold, number) for number in range(len(asked))]
    else:
        with translate_spark_errors("the sample"):
            trials = tasks.each(len(asked), partial(_score, alone, tuple(asked), threshold))
    evaluation.evaluated += [trial for trial in trials if isinstance(trial, EvaluatedPlan)]
    return trials


def _score(
    evaluation: HoldOutEvaluation, asked: Sequence[PlanSettings], threshold: int, number: int
) -> EvaluatedPlan | PlanError:
    """One trial, in a task or here."""
    try:
        evaluation.score(asked[number], threshold)
    except PlanError as error:
        return error
    return evaluation.evaluated[-1]
