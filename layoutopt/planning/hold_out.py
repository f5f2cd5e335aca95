"""Evaluate requests of plans by queries that were held out (Sun 2017, 3.6).

Each request is planned from the earlier queries of the log, with features mined from these alone, on one sample of
rows. It is judged by the bytes that the later queries would read of the sample
(:mod:`layoutopt.planning.sample_evaluation`); the best can be judged again on whole segments
(:mod:`layoutopt.planning.segment_evaluation`).

Whether one plan reads less than another is decided by a paired bootstrap: statements are drawn with replacement, the
same ones for both plans, and one plan reads less if it does so in nearly all draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from layoutopt.errors import PlanError
from layoutopt.events import Progress, silent
from layoutopt.features.cross_validation import splits
from layoutopt.features.selection import mine_subset
from layoutopt.methods.interface import FEATURES, PlanningInput, PlanRequest
from layoutopt.methods.registry import METHODS, is_counted
from layoutopt.model.arrays import Floats
from layoutopt.model.feature import FeatureSet, all_features
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.layout import Plan
from layoutopt.model.query import Query, group_queries, weight_of
from layoutopt.model.schema import Schema
from layoutopt.planning.plan import (
    OpenRows,
    build_plan,
    guiding_features,
    needs_bytes,
    resolve_names,
)
from layoutopt.planning.row_order import is_order_searched, resolve_row_order, with_requested_order
from layoutopt.planning.rows import SourceRows
from layoutopt.planning.sample_evaluation import (
    CATALOG_BYTES_A_CHUNK,
    NOTHING_READ,
    BytesRead,
    RowSample,
    build_histograms,
    draw_sample,
    evaluate_on_sample,
)
from layoutopt.planning.segment_evaluation import Trial, try_on_segments
from layoutopt.planning.source_profile import SAMPLE_ROWS, features_within

_DRAWS: Final = 1_000
# The share of draws in which a plan has to read less.
_SURE: Final = 0.95
# So many standard deviations are in 95 % of the draws on one side.
_DEVIATIONS: Final = 1.645
_MOST_STATEMENTS: Final = 100_000


@dataclass(frozen=True)
class EvaluatedPlan:
    """A plan that was evaluated.

    Attributes:
        threshold: T of its features, in queries of the whole log.
        score: the share of full scans that the queries held out read.
        read: what each of them reads.
        plans: one for each fold's training queries, if available.
        scanned: if tried on segments, the bytes of column chunks alone that each query reads, times its weight.
        stored: if tried on segments, the bytes of the columns that the log uses, of the whole table.
        row_orders: if tried on segments, the order of rows of each layout.
    """

    request: PlanRequest
    threshold: int
    score: float
    read: BytesRead = NOTHING_READ
    plans: tuple[Plan, ...] = ()
    scanned: tuple[float, ...] = ()
    stored: float = 0.0
    row_orders: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Fold:
    """Documents of training queries, by T in queries of the whole log, and the queries held out (``held``)."""

    documents: Mapping[int, FeaturesDocument]
    held: Sequence[Query]


class HoldOutEvaluation:
    """Evaluates plans on one sample of rows, whose features are those of the folds' documents.

    Attributes:
        folds: what to plan from and to judge by; what is read is added over them.
        held: the classes of queries held out, fold by fold.
        evaluated: the plans, in order.
        say: receives each stage.
        rows: those that the sample was drawn from, if available.
    """

    def __init__(
        self,
        folds: Sequence[Fold],
        sample: RowSample,
        partition_by: str | None,
        say: Progress,
        rows: SourceRows | None = None,
    ) -> None:
        self.folds = folds
        self.held = tuple(query for fold in folds for query in group_queries(fold.held))
        self.evaluated: list[EvaluatedPlan] = []
        self._sample = sample
        self._by = partition_by
        self.say = say
        self.rows = rows

    def of_folds(self, folds: Sequence[Fold]) -> HoldOutEvaluation:
        """Return an evaluation of some of the folds on the same sample."""
        return HoldOutEvaluation(folds, self._sample, self._by, self.say, self.rows)

    def join(self, first: EvaluatedPlan, rest: EvaluatedPlan) -> EvaluatedPlan:
        """Return a trial of all folds from those of the first folds and of the rest, by the same request."""
        read = BytesRead((*first.read.read, *rest.read.read), (*first.read.full, *rest.read.full))
        return self._with_score(replace(first, plans=(*first.plans, *rest.plans)), read)

    def for_workers(self, requests: Iterable[PlanRequest]) -> HoldOutEvaluation:
        """Return the evaluation as it can be sent to tasks: without rows, plans and progress.

        The bytes of cells are measured here, for the plans to evaluate, instead of in each task.
        """
        names = next(iter(self.folds[0].documents.values())).schema.names
        for request in requests:
            for columns in (self._sample.columns, *([names] if needs_bytes(request) else [])):
                self._sample.unit(columns, request.block_rows, request.codec, request.seed)
        return HoldOutEvaluation(self.folds, self._sample.for_workers(), self._by, silent)

    def score(self, request: PlanRequest, threshold: int) -> float:
        """Plan, replay the queries held out, and add the score to those evaluated."""
        self.say(f"trying {_name_trial(request)}")
        plans = tuple(self._plan(fold.documents[threshold], request) for fold in self.folds)
        pairs = zip(plans, self.folds, strict=True)
        reads = [evaluate_on_sample(self._sample, plan, fold.held) for plan, fold in pairs]
        read = BytesRead(
            tuple(value for fold in reads for value in fold.read), tuple(value for fold in reads for value in fold.full)
        )
        self.evaluated.append(self._with_score(EvaluatedPlan(request, threshold, 0.0, plans=plans), read))
        return self.evaluated[-1].score

    def score_again(self, trials: Sequence[EvaluatedPlan]) -> list[EvaluatedPlan]:
        """Judge some of the evaluated plans, of one T, on whole segments, and replace their scores.

        What is read includes bytes of the catalog. Plans stay unchanged where there are no rows.
        """
        if self.rows is None or not trials:
            return list(trials)
        self.say(f"trying segments for {', '.join(trial.request.method for trial in trials)}")
        plans = [_build_trial(trial.request, plan) for trial in trials for plan in trial.plans]
        results = try_on_segments(self.rows, plans, self.held)
        # One full scan for all trials: rows that are sorted better make the whole table smaller, too.
        full = np.max([result.full for result in results], axis=0)
        count = len(self.folds)
        again = []
        for number, trial in enumerate(trials):
            own = slice(number * count, (number + 1) * count)
            fold_results = results[own]
            scanned = self._select_own([np.array(result.read) for result in fold_results])
            chunks = self._select_own([np.array(result.metadata_chunks) for result in fold_results])
            evaluated = replace(
                trial,
                scanned=tuple((self._weights * scanned).tolist()),
                stored=float(np.mean([result.stored for result in fold_results])),
                row_orders=tuple(layout.row_order for layout in fold_results[-1].plan.scheme.layouts),
            )
            read = self._weights * (scanned + CATALOG_BYTES_A_CHUNK * chunks)
            bytes_read = BytesRead(tuple(read.tolist()), tuple((self._weights * full).tolist()))
            again.append(self._with_score(evaluated, bytes_read))
        for before, after in zip(trials, again, strict=True):
            self.evaluated[self.evaluated.index(before)] = after
        return again

    @property
    def _weights(self) -> Floats:
        return np.array([query.weight for query in self.held])

    def _select_own(self, figures: Sequence[Floats]) -> Floats:
        """Select, from each fold's figures for all queries held out, those of its own, ``float64[queries]``."""
        own, start = np.zeros(len(self.held)), 0
        for fold, values in zip(self.folds, figures, strict=True):
            queries = slice(start, start := start + len(group_queries(fold.held)))
            own[queries] = values[queries]
        return own

    def _with_score(self, trial: EvaluatedPlan, read: BytesRead) -> EvaluatedPlan:
        return replace(trial, score=round(read.fraction, 6), read=read)

    def _plan(self, document: FeaturesDocument, request: PlanRequest) -> Plan:
        request = replace(request, partition_by=self._by)
        features = guiding_features(document, request.method, request.num_features)
        queries, schema = tuple(group_queries(document.queries)), document.schema
        partitions = build_histograms(self._sample, features, queries, schema)
        if is_counted(request):
            features = features.only(features_within(features, [p.vectors for p in partitions], request.max_vectors))
            partitions = build_histograms(self._sample, features, queries, schema)
        unit = None
        if needs_bytes(request):
            unit = self._sample.unit(schema.names, request.block_rows, request.codec, request.seed)
        request = replace(request, by=tuple(schema.find(name).name for name in request.by))
        return build_plan(
            document, PlanningInput(request, schema, features, queries, tuple(partitions), unit, predicts=False)
        )


def _build_trial(request: PlanRequest, plan: Plan) -> Trial:
    request = replace(request, row_order=resolve_row_order(request, plan.schema))
    return Trial(with_requested_order(plan, request), is_order_searched(request))


def start_evaluation(
    open_rows: OpenRows,
    document: FeaturesDocument,
    request: PlanRequest,
    thresholds: Sequence[int],
    say: Progress,
) -> HoldOutEvaluation:
    """Split the log in two, or a short one in several ways, mine the training queries with each T, and draw rows.

    Raises:
        PlanError: there are too few queries to hold any out; or the source has no rows.
        SchemaError, SettingError, SourceError: as :func:`layoutopt.planning.plan.make_plan`.
    """
    parts = splits(document.queries)
    if not parts:
        raise PlanError(
            f"the log's {len(document.queries)} queries are too few to hold some out to choose by; name a --method "
            "and leave out --tune"
        )
    rows = open_rows(document, resolve_names(request, document.schema), say)
    rows.source.prefetch()
    say("mining the queries that are not held out")
    folds = [Fold(_mine(document, training, thresholds), held) for training, held in parts]
    return draw_evaluation(rows, request, folds, say)


def _mine(
    document: FeaturesDocument, training: Sequence[Query], thresholds: Sequence[int]
) -> dict[int, FeaturesDocument]:
    share = weight_of(training) / weight_of(document.queries)
    return {
        threshold: mine_subset(document, training, threshold=max(2, math.ceil(threshold * share)))
        for threshold in thresholds
    }


def draw_evaluation(
    rows: SourceRows,
    request: PlanRequest,
    folds: Sequence[Fold],
    say: Progress,
    sample_rows: int = SAMPLE_ROWS,
) -> HoldOutEvaluation:
    """Draw rows of a source, in the documents' schema, with the features of all documents, to evaluate plans on.

    The request names the partition column, and how many rows a segment has at most.

    Raises:
        PlanError: the source has no rows.
    """
    schema = next(iter(folds[0].documents.values())).schema
    partition_by = None if request.partition_by is None else schema.find(request.partition_by).name
    features = all_features([document.features for fold in folds for document in fold.documents.values()])
    columns = _needed_columns(folds, features, request, schema)
    say("drawing rows to try plans on")
    sample = draw_sample(rows, features, partition_by, request.segment_rows, sample_rows, columns)
    if not sample.segments:
        raise PlanError("the source has no rows to choose a plan by; name a --method and leave out --tune")
    return HoldOutEvaluation(folds, sample, partition_by, say, rows)


def _needed_columns(folds: Sequence[Fold], features: FeatureSet, request: PlanRequest, schema: Schema) -> set[str]:
    if request.method not in (*METHODS, "auto"):  # a method of another package may use any column
        return set(schema.names)
    names = [*request.by, *([] if request.partition_by is None else [request.partition_by])]
    wanted = {schema.find(name).name for name in names}
    wanted.update(*(feature.columns for feature in features))
    for fold in folds:
        for queries in (fold.held, *(document.queries for document in fold.documents.values())):
            wanted.update(*(query.columns for query in queries))
    return wanted


def _name_trial(request: PlanRequest) -> str:
    by = "" if request.guides in ("auto", FEATURES) else f" by {request.guides}"
    return f"{request.method}{by}"


def resample_fractions(read: BytesRead, queries: Sequence[Query]) -> Floats:
    """Return the share of full scans that is read in each resample, ``float64[resamples]``; always the same.

    A resample draws as many statements as there are, with replacement (the bootstrap). ``queries`` are classes, in the
    order of ``read``.
    """
    weights = np.array([query.weight for query in queries])
    statements = max(1, round(weights.sum()))
    draws = np.random.default_rng(0).multinomial(statements, weights / weights.sum(), size=_DRAWS)
    factors = draws / weights
    full = factors @ np.array(read.full)
    shares: Floats = np.divide(factors @ np.array(read.read), full, out=np.zeros(_DRAWS), where=full > 0)
    return shares


def score_deviation(trial: EvaluatedPlan, held: Sequence[Query]) -> float:
    """Return the standard deviation of the share of full scans that a plan reads, over queries like those held out."""
    return float(resample_fractions(trial.read, held).std())


def reads_clearly_less(first: EvaluatedPlan, second: EvaluatedPlan, held: Sequence[Query]) -> bool:
    """Whether the first plan reads less than the second in nearly all draws of queries like those held out."""
    return float((_resample_difference(first, second, held) > 0).mean()) >= _SURE


def statements_to_tell(first: EvaluatedPlan, second: EvaluatedPlan, held: Sequence[Query]) -> int | None:
    """Estimate how many more statements would show which of two plans reads less.

    The deviation of a mean falls with the square root of the number of statements. None where the present ones suffice,
    or where no log of sensible size would.
    """
    difference = _resample_difference(first, second, held)
    mean, deviation = abs(float(difference.mean())), float(difference.std())
    statements = sum(query.weight for query in held)
    if not mean:
        return None
    needed = math.ceil(statements * (_DEVIATIONS * deviation / mean) ** 2) - round(statements)
    return needed if 0 < needed <= _MOST_STATEMENTS else None


def _resample_difference(first: EvaluatedPlan, second: EvaluatedPlan, held: Sequence[Query]) -> Floats:
    """Return how much less of full scans the first plan reads in each draw, ``float64[draws]``."""
    return resample_fractions(second.read, held) - resample_fractions(first.read, held)


def score_all(
    evaluation: HoldOutEvaluation, requests: Sequence[PlanRequest], threshold: int
) -> list[EvaluatedPlan | PlanError]:
    """Score requests as :meth:`HoldOutEvaluation.score` does, in parallel tasks of one core each.

    Those that take longest should come first. Plans are added to those that the evaluation has evaluated, in order.

    Returns:
        The plan of each, or the error of its method.
    """
    if not requests:
        return []
    evaluation.say(f"trying {', '.join(dict.fromkeys(map(_name_trial, requests)))}")
    worker = evaluation.for_workers(requests)
    if evaluation.rows is None:
        trials = [_score(worker, threshold, request) for request in requests]
    else:
        score = partial(_score, worker, threshold)
        trials = evaluation.rows.read(lambda rows: rows.tasks.map(requests, score))
    evaluation.evaluated += [trial for trial in trials if isinstance(trial, EvaluatedPlan)]
    return trials


def _score(evaluation: HoldOutEvaluation, threshold: int, request: PlanRequest) -> EvaluatedPlan | PlanError:
    try:
        evaluation.score(request, threshold)
    except PlanError as error:
        return error
    return evaluation.evaluated[-1]
