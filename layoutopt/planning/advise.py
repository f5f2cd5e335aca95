"""``advise``: estimate what each method would save on a table, by its log and its rows, before anything is written.

Reads of the table as it is follow from the footers of its files. Reads of other layouts follow from trials, on a few
files of a large table, whose number falls as they get dearer:

1. Every method and many orders of columns are tried on a sample of rows, by the queries of one fold of the log. This is
   the first estimate.
2. Those that read about the least are tried on the same sample by the other folds.
3. The best methods, and the best order of each kind, which other engines can write, are tried on whole segments by the
   queries of the first fold. What they read there, over what they read of the sample, corrects their figures of all
   folds (a ratio estimate). Such figures are accurate enough to report.

Rows are read by Arrow where that surely equals Spark's reading, or by Spark: see :class:`AdvisedSource`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from layoutopt.advice import (
    MOST_QUERIES,
    TERABYTE,
    Advice,
    CurrentCosts,
    Reading,
    Trial,
    period_of,
    profile_filters,
    statements_of,
)
from layoutopt.errors import PlanError, SchemaError, SettingError, SourceError, expected_names
from layoutopt.events import Progress, silent
from layoutopt.external.current_reads import RowGroups, read_row_groups, sample_files
from layoutopt.external.external_tables import open_snapshot, pin_version, read_schema
from layoutopt.external.formats import check_has_row_groups, parse_table_name
from layoutopt.external.listing import local_path
from layoutopt.external.snapshot import SnapshotFile, parquet_files
from layoutopt.external.source_check import check_source
from layoutopt.features.cross_validation import MIN_QUERIES, can_be_split, splits
from layoutopt.features.selection import default_excluded, default_threshold, mine_all
from layoutopt.methods.interface import FEATURES, PlanRequest
from layoutopt.methods.strategies import most_filtered
from layoutopt.model.arrays import Floats
from layoutopt.model.feature import all_features
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.layout import ByOrder
from layoutopt.model.methods import AUTO
from layoutopt.model.query import Query, group_queries, weight_of
from layoutopt.model.requests import AdviseRequest
from layoutopt.model.schema import Schema
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
from layoutopt.planning.plain_rows import check_are_many, open_plain_files
from layoutopt.planning.rows import SourceRows
from layoutopt.planning.sample_evaluation import BytesRead
from layoutopt.planning.source_profile import SAMPLE_ROWS, SAMPLED_PARTITIONS
from layoutopt.sources.door import Door
from layoutopt.sources.listing import list_source_files
from layoutopt.sources.parquet_files import resolve_local_path
from layoutopt.sql.expression_check import find_column
from layoutopt.sql.order_statements import ENGINES, HILBERT, SORT, ZORDER, engines_for
from layoutopt.sql.schema import list_files
from layoutopt.workload.analyze import Analysis, analyze, check_log
from layoutopt.workload.log import read_log

# The methods that only a load can carry out; those that take the longest to try come first.
LOAD_METHODS: Final = ("gsop", "sop", "cuts", "qdtree", "predicate-sort")
# Orders of rows that other engines can write.
ORDERS: Final = (SORT, HILBERT, ZORDER)
# The key of the only T that features are mined with, among the documents of a fold.
THRESHOLD: Final = 0

# After the first fold, methods that read more than so many times the least are clearly worse; so are orders of a kind.
_CLEARLY_WORSE: Final = 1.5
_CLEARLY_WORSE_ORDER: Final = 1.1
# So many of LOAD_METHODS are tried on segments, if they read less than so many times what the best does on the sample.
_CLOSE: Final = 1.5
_MOST_LOAD_METHODS: Final = 2
# Further columns of an order add next to nothing, and some engines take no more.
_MOST_COLUMNS: Final = 4
# Resamples of the log, for the deviation of what is read now.
_DRAWS: Final = 1_000

# Receives each estimate, the first ones within seconds.
Tell = Callable[[Advice], None]


def ignore_estimate(advice: Advice) -> None:
    """Ignore an estimate."""


# Opens some columns of the rows of some files, for a document with all columns, features and queries of the trials;
# the request names the partition column, and how many rows a segment has at most.
OpenFileRows = Callable[[Sequence[SnapshotFile], Sequence[str], FeaturesDocument, PlanRequest], SourceRows]


@dataclass(frozen=True, eq=False)
class AdvisedSource:
    """A source as one engine reads it.

    Attributes:
        schema: its columns.
        files: its files.
        open_rows: opens the rows of some of the files. Raises NeedsSparkError where only Spark reads them surely, and
            SchemaError where they can't be partitioned by the requested column.
    """

    schema: Schema
    files: tuple[SnapshotFile, ...]
    open_rows: OpenFileRows


def advise(
    open_by_spark: Callable[[str], AdvisedSource],
    request: AdviseRequest,
    progress: Progress | None = None,
    udfs: Sequence[Udf] = (),
    tell: Tell = ignore_estimate,
    *,
    by_arrow: bool = True,
    include_small: bool = True,
) -> Advice:
    """Estimate what a log's queries read of a table, and what they would read of other layouts.

    Nothing is written. The work is bounded by samples and by a few segments, whatever the size of the table.

    Args:
        open_by_spark: opens a source by its name, with its version; called only where Arrow can't read it.
        request: name the source and the log; a source with versions is read at one version throughout.
        progress: receives each stage in a short sentence.
        udfs: functions of the user's that statements may call.
        tell: receives estimates that are not complete: what is read now, then the first figures of layouts.
        by_arrow: whether Arrow reads what it reads as Spark does.
        include_small: whether it reads few rows too.

    Raises:
        LogError: the log is empty, or none of its statements can be used on the table.
        SettingError: an engine is not known.
        PlanError: there are too few queries to judge by, or the source has no rows.
        SourceError, SchemaError: the source can't be read, or has no such column.
    """
    say = progress or silent
    check_request(request)
    request = replace(request, source=pin_version(request.source))
    schema = _read_schema(request.source)
    log = None if schema is None else _read_log(request, schema, udfs, say)

    def build(source: AdvisedSource) -> Advice:
        if log is not None and _have_same_columns(log.schema, source.schema):
            return _build_advice(source, request, log, say, tell)
        return _build_advice(source, request, _read_log(request, source.schema, udfs, say), say, tell)

    openers: list[Callable[[object], AdvisedSource]] = [lambda _: open_by_spark(request.source)]
    if by_arrow and log is not None:
        columns = log.schema
        openers.insert(0, lambda _: _open_plain_source(request, columns, include_small))
    return Door(*openers, say=say).read(build)


def _open_plain_source(request: AdviseRequest, schema: Schema, include_small: bool) -> AdvisedSource:
    """Open a source's plain files.

    Raises:
        NeedsSparkError: Arrow might read the files otherwise than Spark; or they have few rows, unless included.
    """
    name = parse_table_name(request.source)
    if name is None:
        root = resolve_local_path(request.source)
        files = parquet_files(map(str, list_files(root) if root.is_dir() else [root]), schema)
    else:
        files = open_snapshot(name).files
    partition_by = _choose_partition_column(request.partition_by, files, schema)
    listed = list_source_files(request.source, schema, partition_by)
    if not include_small:
        check_are_many(listed)

    def open_rows(
        some: Sequence[SnapshotFile], columns: Sequence[str], document: FeaturesDocument, plan: PlanRequest
    ) -> SourceRows:
        paths = {local_path(file.path) for file in some}
        rows = open_plain_files(request.source, [file for file in listed if file.path in paths], document, plan)
        rows.warm_up()
        rows.prefetch()
        return Door(lambda _: rows)  # NeedsSparkError ends the advice by Arrow

    return AdvisedSource(schema, files, open_rows)


def _have_same_columns(first: Schema, second: Schema) -> bool:
    return [(c.name, c.type) for c in first.columns] == [(c.name, c.type) for c in second.columns]


def check_request(request: AdviseRequest, *, is_local: bool = False) -> None:
    """Check the settings; with ``is_local`` also a source of this machine, and the log, before a session starts.

    Raises:
        LayoutoptError: as :func:`advise`.
    """
    for name in request.engine:
        if name not in ENGINES:
            raise SettingError(f"unknown engine {name!r}: {expected_names(name, ENGINES)}")
    check_has_row_groups(request.source, "advise")
    if is_local and check_source(request.source, None, "") is not None:
        entries = read_log(request.log, column=request.column, dialect=request.dialect, system=request.system)
        check_log(entries, request.dialect)


def _read_schema(source: str) -> Schema | None:
    """Read the schema without Spark; None where only Spark can."""
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


def _read_log(request: AdviseRequest, schema: Schema, udfs: Sequence[Udf], say: Progress) -> _Log:
    if request.partition_by is not None:
        find_column("--partition-by", request.partition_by, schema)
    say("reading the log")
    entries = list(read_log(request.log, column=request.column, dialect=request.dialect, system=request.system))
    sample = MOST_QUERIES if len({entry.sql for entry in entries}) > MOST_QUERIES else None
    analysis = analyze(entries, schema, request.table, request.dialect, udfs=by_name(udfs), sample=sample)
    if not can_be_split(analysis.queries):
        raise PlanError(
            f"the {len(analysis.queries)} usable queries of {request.log!r} are too few to judge layouts by; give a "
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


def _build_advice(source: AdvisedSource, request: AdviseRequest, log: _Log, say: Progress, tell: Tell) -> Advice:
    """Build the advice, and tell of each estimate before it."""
    queries = group_queries(log.analysis.queries)
    name = parse_table_name(request.source)
    say("reading the footers of the source's files")
    groups = read_row_groups(source.files, log.schema, queries)
    if not groups.rows:
        raise PlanError(f"the source {request.source!r} has no rows to advise on; give one with some")
    files = _Files(
        tuple(source.files), groups, _choose_partition_column(request.partition_by, source.files, log.schema)
    )
    engines = request.engine or engines_for(None if name is None else name.format.prefix, request.system)
    kinds = [kind for kind in ORDERS if any(kind in ENGINES[engine].forms for engine in engines)]
    advice = _advise_now(request, log, files)
    tell(advice)
    for tried in _try_layouts(source, request, log, files, kinds, say):
        advice = _with_layouts(advice, tried, engines, log.schema)
        if not tried.is_complete:
            tell(advice)
    return advice


def _advise_now(request: AdviseRequest, log: _Log, files: _Files) -> Advice:
    """Return the advice as it is known without any trial: what is read now."""
    queries, groups = group_queries(log.analysis.queries), files.groups
    weights, read, full = _weights(queries), groups.read(queries), groups.full(queries)
    runs, period = weight_of(queries), period_of(log.analysis.queries, request.queries_per_month)
    as_it_is = CurrentCosts(float(weights @ full), float(weights @ read), runs, period, request.price_per_tb)
    bytes_read = BytesRead(tuple(weights * read), tuple(weights * full))
    share = bytes_read.fraction
    deviation = float(resample_fractions(bytes_read, queries, _DRAWS, seed=0).std()) / share if share else 0.0
    return Advice(
        source=request.source,
        log=request.log,
        table=log.analysis.table,
        rows=groups.rows,
        files=groups.files,
        stored=groups.stored,
        partition_by=files.partition_by,
        block_rows=request.block_rows,
        queries=runs,
        skipped=log.analysis.counts["skipped"],
        asked=profile_filters(queries, read, log.schema),
        full=Reading(as_it_is.full, 1.0),
        now=Reading(as_it_is.now, share, deviation),
        period=period,
        price=request.price_per_tb,
        costs_now=as_it_is.cost(as_it_is.now),
        layouts=(),
        recommended=None,
        writing=groups.stored * request.price_per_tb / TERABYTE,
        statements=(),
        is_complete=False,
    )


def _with_layouts(advice: Advice, tried: LayoutsTried, engines: Sequence[str], schema: Schema) -> Advice:
    """Return the advice with what was tried."""
    as_it_is = CurrentCosts(advice.full.bytes, advice.now.bytes, advice.queries, advice.period, advice.price)
    layouts = tuple(map(as_it_is.advice_of, tried.all))
    best = layouts[tried.all.index(tried.best)]
    recommended = best if as_it_is.is_worth_writing(best) else None
    orders = [layout for layout in layouts if layout.method in ORDERS]
    least = advice.costs_now if recommended is None else recommended.costs
    statements = statements_of(orders, least, engines, advice.table, schema, advice.partition_by is not None)
    return replace(
        advice, layouts=layouts, recommended=recommended, statements=statements, is_complete=tried.is_complete
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
    """The results of trials, the fewest bytes first; the best of those that most is known of.

    ``is_complete`` says whether no more trials follow.
    """

    all: tuple[Trial, ...]
    best: Trial
    is_complete: bool

    def scale_stored(self, scale: Callable[[float], float]) -> LayoutsTried:
        """Return the results with the stored bytes scaled from the columns and rows tried to the table."""
        place = self.all.index(self.best)
        scaled = [replace(tried, stored=None if tried.stored is None else scale(tried.stored)) for tried in self.all]
        return LayoutsTried(tuple(scaled), scaled[place], self.is_complete)


def _try_layouts(
    source: AdvisedSource, request: AdviseRequest, log: _Log, files: _Files, kinds: Sequence[str], say: Progress
) -> Iterator[LayoutsTried]:
    """Try layouts on some of the files and the columns that queries read; stored bytes are of the whole table."""
    by = files.partition_by
    planning = PlanRequest(partition_by=by, block_rows=request.block_rows, guides=FEATURES)
    some = sample_files(files.all, files.groups.rows / max(1, len(files.all)), by, planning.segment_rows)
    queries = group_queries(log.analysis.queries)
    read = {by, *(name for query in queries for name in query.columns)}
    schema = log.schema.select([name for name in log.schema.names if name in read])
    folds = [Fold({THRESHOLD: replace(fold.documents[THRESHOLD], schema=schema)}, fold.held) for fold in log.folds]
    features = all_features([fold.documents[THRESHOLD].features for fold in folds])
    document = replace(log.folds[0].documents[THRESHOLD], features=features, queries=tuple(queries))
    source_rows = source.open_rows(some, schema.names, document, planning)
    sample_rows = SAMPLE_ROWS if by is None else SAMPLE_ROWS // SAMPLED_PARTITIONS
    evaluation = draw_evaluation(source_rows, planning, folds, say, sample_rows)
    groups = files.groups if len(some) == len(files.all) else read_row_groups(some, log.schema, queries)
    columns = [name for name in most_filtered(queries, schema) if name != by]
    # Columns that no query reads are assumed to take the bytes that they take now.
    others = files.groups.stored - files.groups.stored_of(schema.names)
    for tried in try_layouts(evaluation, planning, columns, groups, kinds):
        yield tried.scale_stored(lambda stored: stored * files.groups.rows / max(1, groups.rows) + others)


def try_layouts(
    evaluation: HoldOutEvaluation,
    planning: PlanRequest,
    by: Sequence[str],
    groups: RowGroups,
    kinds: Sequence[str],
) -> Iterator[LayoutsTried]:
    """Try methods and orders on the sample, and on segments those that are about the best; yield each estimate.

    Args:
        evaluation: of one threshold, :data:`THRESHOLD`.
        planning: what all layouts have in common.
        by: the columns that rows may be ordered by, the most filtered first.
        groups: the row groups of the same rows now.
        kinds: among :data:`ORDERS`.

    Raises:
        PlanError: no method can plan for the queries.
    """
    updates: list[dict[str, Any]] = [{"method": method, "row_order": (AUTO,)} for method in LOAD_METHODS]
    updates += [{"method": kind, "by": columns} for kind in kinds for columns in _list_orders(kind, by[:_MOST_COLUMNS])]
    first, others = evaluation.of_folds(evaluation.folds[-1:]), evaluation.of_folds(evaluation.folds[:-1])
    trials = [
        _LayoutTrial(trial, trial, first.held, trial.score)
        for trial in score_all(first, [replace(planning, **update) for update in updates], THRESHOLD)
        if isinstance(trial, EvaluatedPlan)
    ]
    if not trials:
        raise PlanError("no method can plan for these queries: none filters by a column that rows can be ordered by")
    yield _sum_up(_drop_orders(trials), trials)
    judged = trials
    if others.folds:
        promising = _select_promising(trials)
        scored = score_all(others, [trial.first.request for trial in promising], THRESHOLD)
        pairs = [(old, new) for old, new in zip(promising, scored, strict=True) if isinstance(new, EvaluatedPlan)]
        judged = [old.judged_by(evaluation.join(new, old.first), evaluation.held) for old, new in pairs]
        dropped = [trial for trial in trials if trial not in promising and trial.method not in ORDERS]
        trials = _correct([old for old, _ in pairs], judged, dropped)
        yield _sum_up(_drop_orders(trials), judged)
    candidates = _select_candidates(judged)
    again = first.score_again([trial.first for trial in candidates])
    full = float(_weights(first.held) @ groups.full(first.held))
    measured = [old.corrected_by(new, full) for old, new in zip(candidates, again, strict=True)]
    trials = _correct(candidates, measured, [trial for trial in _drop_orders(trials) if trial not in candidates])
    yield _sum_up(trials, measured, is_complete=True)


@dataclass(frozen=True, eq=False)
class _LayoutTrial:
    """What is known of a layout.

    Attributes:
        first: tried by the queries of the first fold, on the sample.
        known: tried by ``held``: the same, or all folds; corrected by segments once it was tried on these.
        held: the queries that it was judged by.
        share: the share that queries read of full scans of the present table.
    """

    first: EvaluatedPlan
    known: EvaluatedPlan
    held: Sequence[Query]
    share: float

    @property
    def method(self) -> str:
        """The name of the method, or of the kind of order."""
        return self.first.request.method

    def judged_by(self, known: EvaluatedPlan, held: Sequence[Query]) -> _LayoutTrial:
        """Return the trial as judged by other queries."""
        return replace(self, known=known, held=held, share=known.score)

    def corrected_by(self, again: EvaluatedPlan, full: float) -> _LayoutTrial:
        """Return the trial as corrected by what the first fold's queries read of segments.

        ``full`` are the bytes of full scans of the present table by these queries.
        """
        sampled, known = self.first.score, self.known
        factor = again.score / sampled if sampled else 1.0
        share = sum(again.scanned) / full if full else 0.0
        read = BytesRead(tuple(factor * bytes for bytes in known.read.read), known.read.full)
        return replace(
            self,
            known=replace(again, score=factor * known.score, read=read, plans=known.plans),
            share=share * known.score / sampled if sampled else share,
        )

    def result(self) -> Trial:
        """Return what to report."""
        known, scheme = self.known, self.first.plans[-1].scheme
        order = scheme.layouts[0].blocking
        return Trial(
            self.method,
            order.columns if isinstance(order, ByOrder) else (),
            len(scheme.layouts),
            found_row_order(known),
            self.share,
            score_deviation(known, self.held) / known.score if known.score else 0.0,
            bool(known.scanned),
            known.stored if known.scanned else None,
        )


def _share(trial: _LayoutTrial) -> float:
    return trial.share


def _drop_orders(trials: Sequence[_LayoutTrial]) -> list[_LayoutTrial]:
    """Return the trials of methods of a load, and the best order of each kind; those that read the least first."""
    best: dict[str, _LayoutTrial] = {}
    for trial in sorted(trials, key=_share):
        best.setdefault(trial.method, trial)
    return list(best.values())


def _select_promising(trials: Sequence[_LayoutTrial]) -> list[_LayoutTrial]:
    """Return the methods that read about the least, and such orders of each kind; in the given order."""
    shares: dict[str, float] = {}
    for trial in trials:
        kind = trial.method if trial.method in ORDERS else ""
        shares[kind] = min(trial.share, shares.get(kind, math.inf))
    return [
        trial
        for trial in trials
        if trial.share
        <= (_CLEARLY_WORSE_ORDER * shares[trial.method] if trial.method in ORDERS else _CLEARLY_WORSE * shares[""])
    ]


def _select_candidates(trials: Sequence[_LayoutTrial]) -> list[_LayoutTrial]:
    """Return the few best methods, and the best order of each kind, to try on segments."""
    best = _drop_orders(trials)
    methods = [trial for trial in best if trial.method not in ORDERS]
    close = [trial for trial in methods if trial.share <= _CLOSE * methods[0].share][:_MOST_LOAD_METHODS]
    return [*close, *(trial for trial in best if trial.method in ORDERS)]


def _correct(
    before: Sequence[_LayoutTrial], after: Sequence[_LayoutTrial], others: Sequence[_LayoutTrial]
) -> list[_LayoutTrial]:
    """Return trials as they are known better, and others corrected by what that changed on average."""
    ratios = [new.share / old.share for old, new in zip(before, after, strict=True) if old.share and new.share]
    ratio = float(np.exp(np.mean(np.log(ratios)))) if ratios else 1.0
    return [*after, *(replace(trial, share=ratio * trial.share) for trial in others)]


def _sum_up(trials: Sequence[_LayoutTrial], best: Sequence[_LayoutTrial], *, is_complete: bool = False) -> LayoutsTried:
    """Sum up trials; the best one is among ``best``, which were judged alike and best."""
    chosen = choose_best([trial.known for trial in best], best[0].held)
    in_order = sorted(trials, key=_share)
    results = [trial.result() for trial in in_order]
    place = next(place for place, trial in enumerate(in_order) if trial.known is chosen)
    return LayoutsTried(tuple(results), results[place], is_complete)


def _list_orders(kind: str, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """List the orders of a kind to try: of a sort the leading column matters, of a curve the number of columns.

    >>> _list_orders("sort", ["a", "b"]), _list_orders("hilbert", ["a", "b", "c"])
    ([('a', 'b'), ('b', 'a')], [('a', 'b'), ('a', 'b', 'c')])
    """
    if kind == SORT:
        return [(name, *(other for other in columns if other != name)) for name in columns]
    return [tuple(columns[:count]) for count in range(2, len(columns) + 1)]
