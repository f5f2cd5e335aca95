"""``advise``: estimate what each method would save on a table, by its log and its rows, before anything is written.

Reads of the table as it is follow from the footers of its files. Reads of other layouts follow from trials, on a few
files of a large table. Trials on a sample of rows are cheap, so every method and many orders of columns are tried so.
Trials on whole segments cost seconds a layout, and give figures that are accurate enough to report. They are made for
the methods that read the least on the sample, and for the best order of each kind, which other engines can write.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from layoutopt.advice import (
    TERABYTE,
    Advice,
    CurrentCosts,
    Reading,
    Trial,
    period_of,
    profile_filters,
    sample_statements,
    statements_of,
)
from layoutopt.config.settings import AdviseSettings, PlanSettings
from layoutopt.errors import PlanError, SchemaError, SettingError, SourceError, expected_names
from layoutopt.events import Progress, silent
from layoutopt.external.current_reads import RowGroups, read_row_groups, sample_files
from layoutopt.external.external_tables import open_snapshot, pin_version, read_schema
from layoutopt.external.formats import check_has_row_groups, parse_table_name
from layoutopt.external.snapshot import SnapshotFile, parquet_files, strip_scheme
from layoutopt.external.source_check import check_source
from layoutopt.features.cross_validation import MIN_QUERIES, can_be_split, splits
from layoutopt.features.selection import default_excluded, default_threshold, mine_all
from layoutopt.methods.interface import FEATURES
from layoutopt.methods.strategies import most_filtered
from layoutopt.model.arrays import Floats
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.layout import ByOrder
from layoutopt.model.query import Query, group_queries, weight_of
from layoutopt.model.schema import Schema
from layoutopt.model.types import quote_name
from layoutopt.model.udf import Udf, by_name
from layoutopt.planning.automatic import choose_best, found_row_order
from layoutopt.planning.hold_out import (
    EvaluatedPlan,
    Fold,
    HoldOutEvaluation,
    draw_evaluation,
    resample_fractions,
    score_all,
    score_deviation,
)
from layoutopt.planning.row_order import AUTO
from layoutopt.planning.rows import SourceRows
from layoutopt.planning.sample_evaluation import BytesRead
from layoutopt.planning.source_profile import SAMPLE_ROWS, SAMPLED_PARTITIONS
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.functions import check_features
from layoutopt.spark.core.source import check_partition_column, open_source, schema_of, snapshot_rows
from layoutopt.spark.core.versions import file_metadata
from layoutopt.spark.planning.frame_rows import FrameRows
from layoutopt.sql.expression_check import find_column
from layoutopt.sql.order_statements import ENGINES, HILBERT, SORT, ZORDER, engines_for
from layoutopt.workload.analyze import Analysis, analyze, check_log
from layoutopt.workload.log import read_log

# The methods that only a load can carry out; those that take the longest to try come first.
LOAD_METHODS: Final = ("gsop", "sop", "cuts", "qdtree", "predicate-sort")
# Orders of rows that other engines can write.
ORDERS: Final = (SORT, HILBERT, ZORDER)
# The key of the only T that features are mined with, among the documents of a fold.
THRESHOLD: Final = 0

# So many of LOAD_METHODS are tried on segments, if they read less than so many times what the best does on the sample.
_CLOSE: Final = 1.5
_MOST_LOAD_METHODS: Final = 2
# Further columns of an order add next to nothing, and some engines take no more.
_MOST_COLUMNS: Final = 4
# Resamples of the log, for the deviation of what is read now.
_DRAWS: Final = 1_000


def advise(
    spark: SparkSession, settings: AdviseSettings, progress: Progress | None = None, udfs: Sequence[Udf] = ()
) -> Advice:
    """Estimate what a log's queries read of a table, and what they would read of other layouts.

    Nothing is written. The work is bounded by samples and by a few segments, whatever the size of the table.

    Args:
        spark: the session.
        settings: name the source and the log; a source with versions is read at one version throughout.
        progress: receives each stage in a short sentence.
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
    """Advise as :func:`advise`, with a session that may start while the log is read."""
    say = progress or silent
    check_request(settings)
    settings = settings.model_copy(update={"source": pin_version(settings.source)})
    guess = _read_schema(settings.source)
    log = None if guess is None else _read_log(settings, guess, udfs, say)
    spark = started()
    say("looking at the source")
    rows = open_source(spark, settings.source)
    schema = schema_of(rows).writable()
    if log is None or [(c.name, c.type) for c in log.schema.columns] != [(c.name, c.type) for c in schema.columns]:
        log = _read_log(settings, schema, udfs, say)
    return _build_advice(rows, settings, log, say)


def check_request(settings: AdviseSettings, *, is_local: bool = False) -> None:
    """Check the settings; with ``is_local`` also a source of this machine, and the log, before a session starts.

    Raises:
        LayoutoptError: as :func:`advise`.
    """
    for name in settings.engine:
        if name not in ENGINES:
            raise SettingError(f"unknown engine {name!r}: {expected_names(name, ENGINES)}")
    check_has_row_groups(settings.source, "advise")
    schema = check_source(settings.source, None, "") if is_local else None
    if schema is not None:
        if settings.partition_by is not None:
            find_column("--partition-by", settings.partition_by, schema)
        entries = read_log(settings.log, column=settings.column, dialect=settings.dialect, system=settings.system)
        check_log(entries, settings.dialect)


def _read_schema(source: str) -> Schema | None:
    """Read the schema without Spark; None where only Spark can, as for columns of folders' names."""
    name = parse_table_name(source)
    if name is None and Path(source).is_dir() and any("=" in child.name for child in Path(source).iterdir()):
        return None
    try:
        return read_schema(source)
    except (SchemaError, SourceError):
        return None


@dataclass(frozen=True)
class _Log:
    """The log's queries of a table with a schema, and the folds to plan from and judge by."""

    schema: Schema
    analysis: Analysis
    folds: tuple[Fold, ...]


def _read_log(settings: AdviseSettings, schema: Schema, udfs: Sequence[Udf], say: Progress) -> _Log:
    say("reading the log")
    entries = read_log(settings.log, column=settings.column, dialect=settings.dialect, system=settings.system)
    analysis = analyze(sample_statements(entries), schema, settings.table, settings.dialect, udfs=by_name(udfs))
    if not can_be_split(analysis.queries):
        raise PlanError(
            f"the {len(analysis.queries)} usable queries of {settings.log!r} are too few to judge layouts by; give a "
            f"log with {MIN_QUERIES} at least"
        )
    say("mining the queries that are not held out")
    threshold = default_threshold(analysis.queries) / weight_of(analysis.queries)
    folds = []
    for training, held in splits(analysis.queries):
        features = mine_all(training, schema, threshold=max(2, math.ceil(threshold * weight_of(training))))
        document = FeaturesDocument(
            table=analysis.table,
            schema=schema,
            features=features,
            queries=tuple(training),
            skipped=(),
            exclude_columns=default_excluded(schema),
        )
        folds.append(Fold({THRESHOLD: document}, held))
    return _Log(schema, analysis, tuple(folds))


@dataclass(frozen=True, eq=False)
class _Files:
    all: tuple[SnapshotFile, ...]
    groups: RowGroups
    partition_by: str | None


def _build_advice(rows: DataFrame, settings: AdviseSettings, log: _Log, say: Progress) -> Advice:
    queries = group_queries(log.analysis.queries)
    name = parse_table_name(settings.source)
    files = parquet_files(rows.inputFiles(), log.schema) if name is None else open_snapshot(name).files
    say("reading the footers of the source's files")
    groups = read_row_groups(files, log.schema, queries)
    if not groups.rows:
        raise PlanError(f"the source {settings.source!r} has no rows to advise on; give one with some")
    partition_by = _choose_partition_column(settings.partition_by, files, log.schema)
    check_partition_column(rows, partition_by)
    engines = settings.engine or engines_for(None if name is None else name.format.prefix, settings.system)
    kinds = [kind for kind in ORDERS if any(kind in ENGINES[engine].forms for engine in engines)]
    tried = _try_layouts(rows, settings, log, _Files(files, groups, partition_by), kinds, say)
    weights, read, full = _weights(queries), groups.read(queries), groups.full(queries)
    runs = weight_of(queries)
    period = period_of(log.analysis.queries, settings.queries_per_month)
    as_it_is = CurrentCosts(float(weights @ full), float(weights @ read), runs, period, settings.price_per_tb)
    layouts = tuple(map(as_it_is.advice_of, tried.all))
    best = layouts[tried.all.index(tried.best)]
    recommended = best if as_it_is.is_worth_writing(best) else None
    orders = [layout for layout in layouts if layout.rehearsed and layout.method in ORDERS]
    costs_now = as_it_is.cost(as_it_is.now)
    least = costs_now if recommended is None else recommended.costs
    bytes_read = BytesRead(tuple(weights * read), tuple(weights * full))
    share = bytes_read.fraction
    deviation = float(resample_fractions(bytes_read, queries, _DRAWS, seed=0).std()) / share if share else 0.0
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
        asked=profile_filters(queries, read, log.schema),
        full=Reading(as_it_is.full, 1.0),
        now=Reading(as_it_is.now, share, deviation),
        period=period,
        price=settings.price_per_tb,
        costs_now=costs_now,
        layouts=layouts,
        recommended=recommended,
        writing=groups.stored * settings.price_per_tb / TERABYTE,
        statements=statements_of(orders, least, engines, log.analysis.table, log.schema, partition_by is not None),
    )


def _choose_partition_column(name: str | None, files: Sequence[SnapshotFile], schema: Schema) -> str | None:
    """Choose the column named, or the first that the files are partitioned by."""
    if name is not None:
        return schema.find(name).name
    partitioning = {name for file in files for name in file.constants}
    return next((name for name in schema.names if name in partitioning), None)


def _weights(queries: Sequence[Query]) -> Floats:
    return np.array([query.weight for query in queries])


@dataclass(frozen=True)
class LayoutsTried:
    """The results of all trials, the fewest bytes first, and the best of those on segments."""

    all: tuple[Trial, ...]
    best: Trial

    def scale_stored(self, scale: Callable[[float], float]) -> LayoutsTried:
        """Return the results with the stored bytes scaled from the columns and rows tried to the table."""
        place = self.all.index(self.best)
        scaled = [replace(tried, stored=None if tried.stored is None else scale(tried.stored)) for tried in self.all]
        return LayoutsTried(tuple(scaled), scaled[place])


def _try_layouts(
    rows: DataFrame, settings: AdviseSettings, log: _Log, files: _Files, kinds: Sequence[str], say: Progress
) -> LayoutsTried:
    """Try layouts on some of the files and the columns that queries read; stored bytes are of the whole table."""
    by = files.partition_by
    planning = PlanSettings(source=settings.source, partition_by=by, block_rows=settings.block_rows, guides=FEATURES)
    some = sample_files(files.all, files.groups.rows / max(1, len(files.all)), by, planning.segment_rows)
    queries = group_queries(log.analysis.queries)
    read = {by, *(name for query in queries for name in query.columns)}
    schema = log.schema.select([name for name in log.schema.names if name in read])
    folds = [Fold({THRESHOLD: replace(fold.documents[THRESHOLD], schema=schema)}, fold.held) for fold in log.folds]
    for fold in folds:
        check_features(rows.sparkSession, fold.documents[THRESHOLD].features, "the log")
    some_rows = rows if len(some) == len(files.all) else select_file_rows(rows, settings.source, some)
    sample_rows = SAMPLE_ROWS if by is None else SAMPLE_ROWS // SAMPLED_PARTITIONS
    narrow = some_rows.select(*(quote_name(name) for name in schema.names))
    source_rows = SourceRows(
        lambda: FrameRows(narrow, by), say=say, errors=partial(translate_spark_errors, repr(settings.source))
    )
    evaluation = draw_evaluation(source_rows, planning, folds, say, sample_rows)
    groups = files.groups if some_rows is rows else read_row_groups(some, log.schema, queries)
    full = float(_weights(evaluation.held) @ groups.full(evaluation.held))
    columns = [name for name in most_filtered(queries, schema) if name != by]
    say("trying layouts on a sample")
    tried = try_layouts(evaluation, planning, columns, full, kinds)
    # Columns that no query reads are assumed to take the bytes that they take now.
    others = files.groups.stored - files.groups.stored_of(schema.names)
    return tried.scale_stored(lambda stored: stored * files.groups.rows / max(1, groups.rows) + others)


def select_file_rows(rows: DataFrame, source: str, files: Sequence[SnapshotFile]) -> DataFrame:
    """Return the rows of some of a source's files."""
    name = parse_table_name(source)
    if name is not None:
        return snapshot_rows(rows.sparkSession, open_snapshot(name), only=[file.path for file in files])
    endings = {strip_scheme(file.path) for file in files}
    uris = [uri for uri in rows.inputFiles() if strip_scheme(unquote(uri)) in endings]
    uris += [uri.replace("file:///", "file:/") for uri in uris]  # Spark spells local ones in two ways
    return rows.where(file_metadata(rows)["file_path"].isin(uris))


def try_layouts(
    evaluation: HoldOutEvaluation,
    planning: PlanSettings,
    by: Sequence[str],
    full: float,
    kinds: Sequence[str],
) -> LayoutsTried:
    """Try methods and orders on the sample, and on segments those that are about the best.

    Args:
        evaluation: of one threshold, :data:`THRESHOLD`.
        planning: what all layouts have in common.
        by: the columns that rows may be ordered by, the most filtered first.
        full: the bytes that full scans by the queries held out read of the same rows now.
        kinds: among :data:`ORDERS`.

    Raises:
        PlanError: no method can plan for the queries.
    """
    updates: list[dict[str, object]] = [{"method": method, "row_order": (AUTO,)} for method in LOAD_METHODS]
    updates += [{"method": kind, "by": columns} for kind in kinds for columns in _list_orders(kind, by[:_MOST_COLUMNS])]
    trials = score_all(evaluation, [planning.model_copy(update=update) for update in updates], THRESHOLD)
    sampled = sorted((trial for trial in trials[: len(LOAD_METHODS)] if isinstance(trial, EvaluatedPlan)), key=_score)
    ordered = [trial for trial in trials[len(LOAD_METHODS) :] if isinstance(trial, EvaluatedPlan)]
    best_ordered = [
        min(trials_of_kind, key=_score)
        for kind in kinds
        if (trials_of_kind := [trial for trial in ordered if trial.settings.method == kind])
    ]
    close = [trial for trial in sampled if trial.score <= _CLOSE * sampled[0].score][:_MOST_LOAD_METHODS]
    candidates = [*close, *best_ordered]
    if not candidates:
        raise PlanError("no method can plan for these queries: none filters by a column that rows can be ordered by")
    again = evaluation.score_again(candidates)
    measured = [_build_tried(evaluation, trial, sum(trial.scanned) / full if full else 0.0) for trial in again]
    # Segments' shares over the sample's of the same layouts correct the sample's shares of the others.
    ratios = [tried.share / trial.score for trial, tried in zip(candidates, measured, strict=True) if trial.score]
    ratio = float(np.exp(np.mean(np.log([ratio for ratio in ratios if ratio > 0])))) if any(ratios) else 1.0
    others = [_build_tried(evaluation, trial, ratio * trial.score) for trial in sampled[len(close) :]]
    best = measured[again.index(choose_best(again, evaluation.held))]
    return LayoutsTried(tuple(sorted((*measured, *others), key=lambda tried: tried.share)), best)


def _score(trial: EvaluatedPlan) -> float:
    return trial.score


def _list_orders(kind: str, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """List the orders of a kind to try: of a sort the leading column matters, of a curve the number of columns.

    >>> _list_orders("sort", ["a", "b"]), _list_orders("hilbert", ["a", "b", "c"])
    ([('a', 'b'), ('b', 'a')], [('a', 'b'), ('a', 'b', 'c')])
    """
    if kind == SORT:
        return [(name, *(other for other in columns if other != name)) for name in columns]
    return [tuple(columns[:count]) for count in range(2, len(columns) + 1)]


def _build_tried(evaluation: HoldOutEvaluation, trial: EvaluatedPlan, share: float) -> Trial:
    deviation = score_deviation(trial, evaluation.held)
    scheme = trial.plans[-1].scheme
    order = scheme.layouts[0].blocking
    return Trial(
        trial.settings.method,
        order.columns if isinstance(order, ByOrder) else (),
        len(scheme.layouts),
        found_row_order(trial),
        share,
        deviation / trial.score if trial.score else 0.0,
        bool(trial.scanned),
        trial.stored if trial.scanned else None,
    )
