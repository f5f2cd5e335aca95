"""What each method would save on a table, by its log and its rows, before anything is written: `advise`.

What is read of the table as it is, is known by the footers of its files; what would be read of other layouts by trials
(:mod:`layoutopt.spark.planning.advise`), on a few files of a large table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from layoutopt.advice import (
    TERABYTE,
    Advice,
    AsItIs,
    Reading,
    Tried,
    asked_of,
    period_of,
    some_statements,
    statements_of,
)
from layoutopt.config.settings import AdviseSettings, PlanSettings
from layoutopt.errors import PlanError, SchemaError, SettingError, SourceError
from layoutopt.events import Progress, silent
from layoutopt.features.cross_validation import FEWEST, can_be_split, splits
from layoutopt.features.selection import default_excluded, default_threshold, mine_all
from layoutopt.methods.interface import FEATURES
from layoutopt.methods.strategies import most_filtered
from layoutopt.model.arrays import Floats
from layoutopt.model.documents import FeaturesDocument
from layoutopt.model.layout import ByOrder
from layoutopt.model.query import Query, classes, weight_of
from layoutopt.model.schema import Schema
from layoutopt.model.types import quoted
from layoutopt.model.udf import Udf, by_name
from layoutopt.sources.external_tables import open_snapshot, pinned, read_schema
from layoutopt.sources.row_groups import RowGroups, row_groups_of, some_files
from layoutopt.sources.snapshot import SnapshotFile, ending, parquet_files, source_name
from layoutopt.spark.core.functions import check_features
from layoutopt.spark.core.source import check_partition_column, open_source, schema_of, snapshot_rows
from layoutopt.spark.planning.automatic import row_order_found, the_better
from layoutopt.spark.planning.hold_out import (
    EvaluatedPlan,
    Fold,
    HoldOutEvaluation,
    evaluation_on,
    resampled,
    score_all,
    spread,
)
from layoutopt.spark.planning.row_order import AUTO
from layoutopt.spark.planning.sample_evaluation import BytesRead
from layoutopt.spark.planning.source_profile import SAMPLE_ROWS, SAMPLED_PARTITIONS
from layoutopt.sql.statements import ENGINES, HILBERT, SORT, ZORDER, engines_for
from layoutopt.workload.analyze import Analysis, analyze
from layoutopt.workload.log import read_log

# ----------------------------------------------------------------------------------------------------
# The layouts that `advise` tries: all on a sample of rows, those that are about the best on whole segments too.
#
# Trials on the sample are cheap, so every method and many orders of columns are tried there. A rehearsal costs
# seconds a
# layout, and is what figures are worth telling by: of methods that only a load can carry out those get it that read the
# least on the sample, of orders, which other engines can keep, the best of each kind.

OURS: Final = ("gsop", "sop", "cuts", "qdtree", "predicate-sort")
"""The methods that only a load can carry out, those first that take the longest to try."""

ORDERS: Final = (SORT, HILBERT, ZORDER)
"""Orders of rows that other engines can keep."""

THRESHOLD: Final = 0
"""The name of the one T that features are mined with, among the documents of a fold."""

_CLOSE: Final = 1.5
_MOST_OURS: Final = 2
"""Of ours so many are rehearsed at most, which read less than so many times what the best does on the sample."""
_MOST_COLUMNS: Final = 4
"""Of an order: more columns say next to nothing, and some engines take no more."""


@dataclass(frozen=True)
class LayoutsTried:
    """What came of the trials.

    Attributes:
        all: every method and kind of order, the fewest bytes first.
        best: what takes the least of those that were rehearsed.
    """

    all: tuple[Tried, ...]
    best: Tried

    def with_stored(self, of_table: Callable[[float], float]) -> LayoutsTried:
        """The same with what they store of the whole table, by what they store of the columns and rows tried."""
        place = self.all.index(self.best)
        told = [replace(one, stored=None if one.stored is None else of_table(one.stored)) for one in self.all]
        return LayoutsTried(tuple(told), told[place])


def try_layouts(
    evaluation: HoldOutEvaluation,
    planning: PlanSettings,
    by: Sequence[str],
    full: float,
    kinds: Sequence[str],
) -> LayoutsTried:
    """Try methods and orders, and rehearse those that are about the best.

    Args:
        evaluation: of one threshold, :data:`THRESHOLD`.
        planning: what all layouts have in common.
        by: the columns that rows may be ordered by, those first that queries filter by most.
        full: the bytes that full scans by the queries held back read of the same rows as they are stored now.
        kinds: the orders that are of interest, among :data:`ORDERS`.

    Raises:
        PlanError: no method can plan for the queries.
    """
    updates: list[dict[str, object]] = [{"method": method, "row_order": (AUTO,)} for method in OURS]
    updates += [{"method": kind, "by": columns} for kind in kinds for columns in _orders(kind, by[:_MOST_COLUMNS])]
    trials = score_all(evaluation, [planning.model_copy(update=each) for each in updates], THRESHOLD)
    sampled = sorted((trial for trial in trials[: len(OURS)] if isinstance(trial, EvaluatedPlan)), key=_score)
    ordered = [trial for trial in trials[len(OURS) :] if isinstance(trial, EvaluatedPlan)]
    best_ordered = [
        min(of_kind, key=_score)
        for kind in kinds
        if (of_kind := [trial for trial in ordered if trial.settings.method == kind])
    ]
    close = [trial for trial in sampled if trial.score <= _CLOSE * sampled[0].score][:_MOST_OURS]
    among = [*close, *best_ordered]
    if not among:
        raise PlanError("no method can plan for these queries: none filters by a column that rows can be ordered by")
    again = evaluation.score_again(among)
    rehearsed = [_try_method(evaluation, trial, sum(trial.scanned) / full if full else 0.0) for trial in again]
    ratio = _ratio(among, rehearsed)
    others = [_try_method(evaluation, trial, ratio * trial.score) for trial in sampled[len(close) :]]
    best = rehearsed[again.index(the_better(again, evaluation.held))]
    return LayoutsTried(tuple(sorted((*rehearsed, *others), key=lambda tried: tried.share)), best)


def _score(trial: EvaluatedPlan) -> float:
    return trial.score


def _orders(kind: str, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """The orders of a kind that are tried.

    Which column leads decides what sorting is worth; along a curve it is how many columns share it.

    >>> _orders("sort", ["a", "b"]), _orders("hilbert", ["a", "b", "c"])
    ([('a', 'b'), ('b', 'a')], [('a', 'b'), ('a', 'b', 'c')])
    """
    if kind == SORT:
        return [(name, *(other for other in columns if other != name)) for name in columns]
    return [tuple(columns[:count]) for count in range(2, len(columns) + 1)]


def _ratio(sampled: Sequence[EvaluatedPlan], rehearsed: Sequence[Tried]) -> float:
    """What rehearsals read of what the sample had said of the same layouts, for those that are not rehearsed."""
    ratios = [tried.share / trial.score for trial, tried in zip(sampled, rehearsed, strict=True) if trial.score]
    return float(np.exp(np.mean(np.log([ratio for ratio in ratios if ratio > 0])))) if any(ratios) else 1.0


def _try_method(evaluation: HoldOutEvaluation, trial: EvaluatedPlan, share: float) -> Tried:
    deviation = spread(trial, evaluation.held)
    scheme = trial.plans[-1].scheme
    order = scheme.layouts[0].blocking
    return Tried(
        trial.settings.method,
        order.columns if isinstance(order, ByOrder) else (),
        len(scheme.layouts),
        row_order_found(trial),
        share,
        deviation / trial.score if trial.score else 0.0,
        bool(trial.scanned),
        trial.stored if trial.scanned else None,
    )


_DRAWS: Final = 1_000
"""Resamples of the log by which is told how sure what is read now is."""


@dataclass(frozen=True)
class _LogRead:
    """The log's queries of a table with that schema, and what plans are made from and judged by."""

    schema: Schema
    analysis: Analysis
    folds: tuple[Fold, ...]


def advise(
    spark: SparkSession, settings: AdviseSettings, progress: Progress | None = None, udfs: Sequence[Udf] = ()
) -> Advice:
    """What a log's queries read of a table, and what they would read of it if it were laid out anew.

    Nothing is written. The work is bounded by samples and by a few segments, whatever the size of the table.

    Args:
        spark: the session.
        settings: name the source and the log; of a source with versions one is looked at throughout.
        progress: told each stage in a short sentence.
        udfs: functions of the user's that statements may call.

    Raises:
        LogError: the log is empty, or none of its statements can be used on the table.
        SettingError: an engine is not known.
        PlanError: there are too few queries to judge by, or the source has no rows.
        SourceError, SchemaError: the source can't be read, or has no such column.
    """
    return advise_when_started(lambda: spark, settings, progress, udfs)


def advise_when_started(
    started: Callable[[], SparkSession],
    settings: AdviseSettings,
    progress: Progress | None = None,
    udfs: Sequence[Udf] = (),
) -> Advice:
    """As :func:`advise`, by a session that is asked for once the log was read, so that it may start meanwhile."""
    say = progress or silent
    _check_engines(settings.engine)
    settings = settings.model_copy(update={"source": pinned(settings.source)})
    guess = _schema_by_files(settings.source)
    log = None if guess is None else _read(settings, guess, udfs, say)
    spark = started()
    say("looking at the source")
    rows = open_source(spark, settings.source)
    schema = schema_of(rows).writable()
    if log is None or not _same(log.schema, schema):
        log = _read(settings, schema, udfs, say)
    return _advice(rows, settings, log, say)


def _check_engines(engines: Sequence[str]) -> None:
    for name in engines:
        if name not in ENGINES:
            raise SettingError(f"engine = {name!r} is none that can be told an order; choose of {', '.join(ENGINES)}")


def _schema_by_files(source: str) -> Schema | None:
    """The schema as it is known without Spark; None where only Spark can tell, as of columns that folders stand for."""
    name = source_name(source)
    if name is None and Path(source).is_dir() and any("=" in child.name for child in Path(source).iterdir()):
        return None
    try:
        return read_schema(source)
    except (SchemaError, SourceError):
        return None


def _same(one: Schema, other: Schema) -> bool:
    return [(c.name, c.type) for c in one.columns] == [(c.name, c.type) for c in other.columns]


def _read(settings: AdviseSettings, schema: Schema, udfs: Sequence[Udf], say: Progress) -> _LogRead:
    """Understand the log's queries, and mine those that are not held back."""
    say("reading the log")
    entries = read_log(settings.log, column=settings.column, dialect=settings.dialect, system=settings.system)
    analysis = analyze(some_statements(entries), schema, settings.table, settings.dialect, udfs=by_name(udfs))
    if not can_be_split(analysis.queries):
        raise PlanError(
            f"the {len(analysis.queries)} usable queries of {settings.log!r} are too few to judge layouts by; give a "
            f"log with {FEWEST} at least"
        )
    say("mining the queries that are not held back")
    threshold = default_threshold(analysis.queries) / weight_of(analysis.queries)
    folds = tuple(
        Fold({THRESHOLD: _mined(analysis, schema, training, threshold * weight_of(training))}, held)
        for training, held in splits(analysis.queries)
    )
    return _LogRead(schema, analysis, folds)


def _mined(analysis: Analysis, schema: Schema, training: Sequence[Query], threshold: float) -> FeaturesDocument:
    features = mine_all(training, schema, threshold=max(2, math.ceil(threshold)))
    return FeaturesDocument(
        table=analysis.table,
        schema=schema,
        features=features,
        queries=tuple(training),
        skipped=(),
        exclude_columns=default_excluded(schema),
    )


def _advice(rows: DataFrame, settings: AdviseSettings, log: _LogRead, say: Progress) -> Advice:
    """The advice, once log and source are known."""
    queries = classes(log.analysis.queries)
    files = _files_of(rows, settings.source, log.schema)
    say("reading the footers of the source's files")
    groups = row_groups_of(files, log.schema, queries)
    if not groups.rows:
        raise PlanError(f"the source {settings.source!r} has no rows to advise on; give one with some")
    partition_by = _partition_column(settings.partition_by, files, log.schema)
    check_partition_column(rows, partition_by)
    engines = settings.engine or engines_for(_format_of(settings.source), settings.system)
    tried = _tried(rows, settings, log, _Files(files, groups, partition_by), _kinds(engines), say)
    weights, read, full = _weights(queries), groups.read(queries), groups.full(queries)
    runs = weight_of(queries)
    period = period_of(log.analysis.queries, settings.queries_per_month)
    as_it_is = AsItIs(float(weights @ full), float(weights @ read), runs, period, settings.price_per_tb)
    layouts = tuple(map(as_it_is.advice_of, tried.all))
    best = layouts[tried.all.index(tried.best)]
    recommended = best if as_it_is.is_worth_writing(best) else None
    orders = [layout for layout in layouts if layout.rehearsed and layout.method in ORDERS]
    costs_now = as_it_is.cost(as_it_is.now)
    least = costs_now if recommended is None else recommended.costs
    return Advice(
        source=settings.source,
        log=settings.log,
        table=log.analysis.table,
        rows=groups.rows,
        files=groups.files,
        stored=groups.stored,
        partition_by=partition_by,
        block_rows=settings.block_rows,
        queries=runs,
        skipped=len(log.analysis.skipped),
        asked=asked_of(queries, read, log.schema),
        full=Reading(as_it_is.full, 1.0),
        now=Reading(as_it_is.now, *_share_and_spread(BytesRead(tuple(weights * read), tuple(weights * full)), queries)),
        period=period,
        price=settings.price_per_tb,
        costs_now=costs_now,
        layouts=layouts,
        recommended=recommended,
        writing=groups.stored * settings.price_per_tb / TERABYTE,
        statements=statements_of(orders, least, engines, log.analysis.table, log.schema, partition_by is not None),
    )


@dataclass(frozen=True, eq=False)
class _Files:
    """The files of the source, what their footers say, and by which column they are parted."""

    all: tuple[SnapshotFile, ...]
    groups: RowGroups
    partition_by: str | None


def _tried(
    rows: DataFrame, settings: AdviseSettings, log: _LogRead, files: _Files, kinds: Sequence[str], say: Progress
) -> LayoutsTried:
    """Try layouts on some of the files, on the columns that queries read; what they store is of the whole table."""
    by = files.partition_by
    planning = PlanSettings(source=settings.source, partition_by=by, block_rows=settings.block_rows, guides=FEATURES)
    some = some_files(files.all, files.groups.rows / max(1, len(files.all)), by, planning.segment_rows)
    queries = classes(log.analysis.queries)
    read = {by, *(name for query in queries for name in query.columns)}
    schema = log.schema.select([name for name in log.schema.names if name in read])
    folds = [Fold({THRESHOLD: replace(fold.documents[THRESHOLD], schema=schema)}, fold.held) for fold in log.folds]
    for fold in folds:
        check_features(rows.sparkSession, fold.documents[THRESHOLD].features, "the log")
    held = rows if len(some) == len(files.all) else rows_of(rows, settings.source, some)
    sample_rows = SAMPLE_ROWS if by is None else SAMPLE_ROWS // SAMPLED_PARTITIONS
    narrow = held.select(*(quoted(name) for name in schema.names))
    evaluation = evaluation_on(narrow, planning, folds, say, sample_rows)
    groups = files.groups if held is rows else row_groups_of(some, log.schema, queries)
    full = float(_weights(evaluation.held) @ groups.full(evaluation.held))
    columns = [name for name in most_filtered(queries, schema) if name != by]
    say("trying layouts on a sample")
    tried = try_layouts(evaluation, planning, columns, full, kinds)
    # Columns that no query reads are stored about as they are now.
    others = files.groups.stored - files.groups.stored_of(schema.names)
    return tried.with_stored(lambda of_some: of_some * files.groups.rows / max(1, groups.rows) + others)


def _share_and_spread(found: BytesRead, queries: Sequence[Query]) -> tuple[float, float]:
    """What is read of full scans, and its standard deviation as a share of that, if other queries like these came."""
    share = found.fraction
    return share, float(resampled(found, queries, _DRAWS, seed=0).std()) / share if share else 0.0


def _weights(queries: Sequence[Query]) -> Floats:
    return np.array([query.weight for query in queries])


def _kinds(engines: Sequence[str]) -> tuple[str, ...]:
    """The orders that some of the engines can keep."""
    return tuple(kind for kind in ORDERS if any(kind in ENGINES[engine].forms for engine in engines))


def _format_of(source: str) -> str | None:
    name = source_name(source)
    return None if name is None else name.format


def _files_of(rows: DataFrame, source: str, schema: Schema) -> tuple[SnapshotFile, ...]:
    name = source_name(source)
    return parquet_files(rows.inputFiles(), schema) if name is None else open_snapshot(name).files


def _partition_column(asked: str | None, files: Sequence[SnapshotFile], schema: Schema) -> str | None:
    """The column asked for, or the first by which the files are parted already; None for none."""
    if asked is not None:
        return schema.find(asked).name
    parting = {name for file in files for name in file.constants}
    return next((name for name in schema.names if name in parting), None)


def rows_of(rows: DataFrame, source: str, files: Sequence[SnapshotFile]) -> DataFrame:
    """The rows of some of a source's files."""
    name = source_name(source)
    if name is not None:
        return snapshot_rows(rows.sparkSession, open_snapshot(name), only=[file.path for file in files])
    endings = {ending(file.path) for file in files}
    uris = [uri for uri in rows.inputFiles() if ending(unquote(uri)) in endings]
    uris += [uri.replace("file:///", "file:/") for uri in uris]  # Spark spells local ones in two ways
    return rows.where(rows.metadataColumn("_metadata")["file_path"].isin(uris))
