"""Evaluate plans on a few whole segments of the source: the order of rows, and the bytes that queries read.

A segment is routed to blocks by the code of a load, in a task as large as one of a load; blocks have their full size
and the rows that a load would give them, and some are encoded (:func:`layoutopt.writer.encodings.estimate_sizes`). That
shows what a sample of rows can't: how many blocks there are, how alike the rows of one are, and what sorting them
saves. All plans are evaluated in one pass over the source; where there are fewer segments than cores, the rows of each
go to several tasks, which evaluate some of the plans each. Orders of rows are searched on the middle segment alone,
which is most of the work, and assumed to save as much in the others.

A query for a month of 1995 reads nothing of other years. Figures of a few years, scaled up by rows, would make it read
nothing, or several times too much. So a few rows of every partition are blocked too, which estimates roughly what each
query reads where. The evaluated segments show the error of these estimates for each query family (queries of the same
columns and filtered columns), which corrects those of other partitions: a ratio estimate from a double sample (Cochran,
*Sampling Techniques*, 12.9).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.catalog.paths import new_load_id
from layoutopt.features.cross_validation import query_family
from layoutopt.features.weights import feature_shares
from layoutopt.inspect.cost import count_work
from layoutopt.model.arrays import Floats, Ints, spread
from layoutopt.model.feature import FeatureSet, all_features
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import TRUE
from layoutopt.model.query import Query, filtered_columns
from layoutopt.model.vectors import project
from layoutopt.planning.row_order import (
    dry_run_table,
    find_row_orders,
    measure_files,
    measure_reordered,
    with_orders,
)
from layoutopt.planning.rows import Rows, SourceRows
from layoutopt.planning.sample_evaluation import (
    RowSample,
    SampleRequest,
    evaluate_sample_segments,
)
from layoutopt.scan.opened_table import sum_read
from layoutopt.scan.prune import PrunedPlan
from layoutopt.scan.table import Table
from layoutopt.sources.executor import Executor
from layoutopt.sources.segments import Segment, cut_segments
from layoutopt.writer.dry_run import narrow_plan, needed_columns
from layoutopt.writer.row_order import sort_block_rows
from layoutopt.writer.segment import FindWords, GatheredSegment, gather_segment
from layoutopt.writer.task import WriteJob, route_segment

_FEWEST_SEGMENTS, _MOST_SEGMENTS = 2, 6
# Rows of all segments together: the fewest segments are evaluated where they are large.
_ENOUGH_ROWS: Final = 600_000
# Rows of all partitions together, and partitions, that are blocked to estimate which of them queries read.
_SAMPLED_ROWS, _MOST_PARTITIONS = 60_000, 200

# For each figure that differs by partition, the figure of a sample that estimates it.
_ROUGH_FIGURES: Final = MappingProxyType(
    {"read": "read", "cells": "read", "metadata_chunks": "reached", "reached": "reached"}
)
_FIGURES: Final = (*_ROUGH_FIGURES, "full", "full_cells", "stored")


class PlanFigures(NamedTuple):
    """What a plan's blocks of one segment would be; a figure a query, with tids.

    Attributes:
        plan: the number of the plan among the trials.
        orders: of rows, by layout.
        read_sorted, full_sorted: in these orders; as without where none was searched.
        stored, stored_sorted: one figure.
    """

    plan: int
    segment: int
    orders: list[list[str]]
    read: list[float]
    full: list[float]
    metadata_chunks: list[float]
    cells: list[float]
    full_cells: list[float]
    read_sorted: list[float]
    full_sorted: list[float]
    reached: list[float]
    stored: list[float]
    stored_sorted: list[float]


@dataclass(frozen=True)
class Trial:
    """A plan to evaluate; ``search`` says whether to search an order of rows for it."""

    plan: Plan
    search: bool


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial, scaled up from the segments to the table; one number a query, without its weight.

    Attributes:
        plan: with the orders of rows found on the middle segment.
        read: the bytes read.
        full: the bytes of a full scan of its columns.
        metadata_chunks: column chunks of the blocks whose metadata it reads.
        cells, full_cells: the cells and tids that it reads, and those of a full scan.
        reached: the bytes of a full scan of its columns in those segments whose bounds don't exclude it.
        stored: the bytes of all layouts' columns that the plan or the queries use; with tids.
    """

    plan: Plan
    read: tuple[float, ...]
    full: tuple[float, ...]
    metadata_chunks: tuple[float, ...]
    cells: tuple[float, ...] = ()
    full_cells: tuple[float, ...] = ()
    reached: tuple[float, ...] = ()
    stored: float = 0.0

    def fraction(self, queries: Sequence[Query]) -> float:
        """Return the share of all full scans that is read, by the queries' weights; 0 where nothing is."""
        weights = np.array([query.weight for query in queries])
        full = float(weights @ np.array(self.full))
        return self.bytes_read(queries) / full if full else 0.0

    def bytes_read(self, queries: Sequence[Query]) -> float:
        """Return what is read in all, by the queries' weights."""
        return float(np.array([query.weight for query in queries]) @ np.array(self.read))

    def shares(self) -> tuple[float, ...]:
        """Return the share of its full scan that each query reads."""
        return tuple(round(read / full, 6) if full else 0.0 for read, full in zip(self.read, self.full, strict=True))


def try_on_segments(rows: SourceRows, trials: Sequence[Trial], queries: Sequence[Query]) -> list[TrialResult]:
    """Evaluate plans by queries, on a few segments.

    The trials are of the same source, partitions and segments; each may have features of its own.
    """
    return rows.read(partial(_run_trials, trials, queries))


def _run_trials(trials: Sequence[Trial], queries: Sequence[Query], rows: Rows) -> list[TrialResult]:
    first = trials[0].plan
    columns = needed_columns([trial.plan for trial in trials], {name for query in queries for name in query.columns})
    chosen = choose_segments(rows, first.segment_rows, len(trials))
    segments = chosen.segments
    nothing = (0.0,) * len(queries)
    if not segments or not columns:
        return [TrialResult(trial.plan, nothing, nothing, nothing) for trial in trials]
    jobs = [_write_job(trial.plan, columns, queries) for trial in trials]
    features = all_features([trial.plan.features for trial in trials])
    middle = len(segments) // 2
    searched_segments = [middle if trial.search else None for trial in trials]
    task = partial(_try_plans, jobs, features, searched_segments, tuple(queries), chosen.shares)
    values = tuple(segment.value for segment in segments)
    tried = TriedSegments(values, np.array([segment.rows for segment in segments], np.float64), chosen.partition_rows)
    request = _request_sample(first, features, tried, columns)
    results, sample = rows.map_segments(first, chosen, request, task)
    tasks = rows.tasks
    return [
        _scale_result(trial, columns, [row for row in results if row.plan == number], tried, sample, queries, tasks)
        for number, trial in enumerate(trials)
    ]


def _request_sample(plan: Plan, features: FeatureSet, tried: TriedSegments, columns: Sequence[str]) -> SampleRequest:
    """Request a few rows of each partition; none where a segment of each was evaluated."""
    rows_by_value = {} if tried.is_everywhere else few_rows_by_value(tried.values, tried.partition_rows)
    partition_rows = {value: tried.partition_rows[value] for value in rows_by_value}
    few = max(rows_by_value.values(), default=0)
    return SampleRequest(features, plan.partition_by, plan.segment_rows, partition_rows, few, tuple(columns))


def few_rows_by_value(tried: Iterable[PlainValue], partitions: Iterable[PlainValue]) -> dict[PlainValue, int]:
    """Return the partitions, those tried among them, of which a few rows are blocked, and how many of each."""
    values = dict.fromkeys((*tried, *spread(list(partitions), _MOST_PARTITIONS)))
    return dict.fromkeys(values, _SAMPLED_ROWS // max(1, len(values)))


def _write_job(plan: Plan, columns: Sequence[str], queries: Sequence[Query]) -> WriteJob:
    shares = feature_shares(plan.features, plan.queries)
    job = WriteJob(narrow_plan(plan, columns), shares, "sampled", new_load_id(), 0, ("sampled",), (0,), rehearsal=True)
    return replace(job, bounded=filtered_columns((*plan.queries, *queries)))


class ChosenSegments(NamedTuple):
    """Some segments of a source.

    Attributes:
        segments: numbered anew; with ``k`` shares the rows of segment ``i`` go to tasks ``k * i`` to ``k * i + k - 1``.
        partition_rows: by value, the rows of each partition of the table.
        shares: how many tasks get the rows of each segment.
    """

    segments: tuple[Segment, ...]
    partition_rows: Mapping[PlainValue, int]
    shares: int


def choose_segments(rows: Rows, segment_rows: int, trials: int = 1) -> ChosenSegments:
    """Choose segments spread evenly along the table's rows, by partition and then the source's order.

    ``trials`` is the number of plans to evaluate on each segment.
    """
    segments = cut_segments(rows.chunks(segment_rows), segment_rows)
    up_to = np.cumsum([segment.rows for segment in segments])
    if not segments or not up_to[-1]:
        return ChosenSegments((), {}, 1)

    def locate(share: float) -> int:
        """Return the segment that holds the row at a share of all."""
        return int(np.searchsorted(up_to, share * float(up_to[-1]), side="right"))

    count = min(_MOST_SEGMENTS, max(_FEWEST_SEGMENTS, _ENOUGH_ROWS // segments[locate(0.5)].rows))
    chosen = [segments[i] for i in sorted({locate((i + 0.5) / count) for i in range(count)})]
    partition_rows: dict[PlainValue, int] = {}
    for segment in segments:
        partition_rows[segment.value] = partition_rows.get(segment.value, 0) + segment.rows
    shares = max(1, min(trials, rows.tasks.cores // len(chosen)))
    return ChosenSegments(tuple(replace(segment, id=i) for i, segment in enumerate(chosen)), partition_rows, shares)


@dataclass(frozen=True, eq=False)
class TriedSegments:
    """The part of a table that was evaluated.

    Attributes:
        values: the partition of each segment.
        rows: of each segment, ``float64[segments]``.
        partition_rows: by value, the rows of each partition of the table.
    """

    values: tuple[PlainValue, ...]
    rows: Floats
    partition_rows: Mapping[PlainValue, int]

    @property
    def times(self) -> Floats:
        """The rows of its partition that each segment represents, for each of its own, ``float64[segments]``."""
        tried = {value: self.rows[[other == value for other in self.values]].sum() for value in self.values}
        return np.array([self.partition_rows[value] / tried[value] for value in self.values], dtype=np.float64)

    @property
    def total(self) -> int:
        """The rows of the table."""
        return sum(self.partition_rows.values())

    @property
    def is_everywhere(self) -> bool:
        """Whether a segment of every partition was evaluated."""
        return set(self.values) == set(self.partition_rows)

    def scale_by_rows(self, figures: Floats) -> Floats:
        """Scale figures that are alike in all partitions, ``float64[segments, ...]``, to the table."""
        times = self.total / len(self.rows) / self.rows
        return np.asarray(np.tensordot(times, figures, axes=1), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class RoughFigures:
    """Rough estimates of a figure in some partitions, ``float64[partitions, queries]``, from a few rows of each."""

    values: tuple[PlainValue, ...]
    figures: Floats


def scale_up(tried: TriedSegments, figures: Floats, rough: RoughFigures, families: Ints) -> Floats:
    """Scale figures of segments to the table, by rough estimates of other partitions that are corrected by family.

    A family without rough estimates where segments were evaluated is corrected by the median of the families.

    Args:
        tried: the segments.
        figures: of each segment and query, ``float64[segments, queries, ...]``.
        rough: of the partitions that were evaluated, and of all others or some of them.
        families: the family of each query, ``int64[queries]``; the result is ``float64[queries, ...]``.
    """
    known: Floats = np.tensordot(tried.times, figures, axes=1)
    is_tried = np.array([value in tried.values for value in rough.values], dtype=np.bool_)
    rough_tried, rough_others = rough.figures[is_tried].sum(axis=0), rough.figures[~is_tried].sum(axis=0)
    if not rough_tried.any() or not rough_others.any():
        return known
    rows = np.array([tried.partition_rows[value] for value in rough.values], dtype=np.float64)
    other_rows = tried.total - rows[is_tried].sum()
    ratios = _correct_ratios(known, rough_tried, families)
    others = rough_others * (other_rows / rows[~is_tried].sum())
    return np.asarray(known + others.reshape(-1, *(1,) * (known.ndim - 1)) * ratios, dtype=np.float64)


def _correct_ratios(known: Floats, rough: Floats, families: Ints) -> Floats:
    """Return for each query the ratio of known to rough figures of its family; the families' median where that is 0."""
    sums = np.zeros((families.max() + 1, *known.shape[1:]))
    np.add.at(sums, families, known)
    rough_sums = np.bincount(families, weights=rough)
    has_rough = rough_sums > 0
    sums[has_rough] /= rough_sums[has_rough].reshape(-1, *(1,) * (known.ndim - 1))
    sums[~has_rough] = np.median(sums[has_rough], axis=0)
    return sums[families]


def _number_families(queries: Sequence[Query]) -> Ints:
    numbers = {family: number for number, family in enumerate(dict.fromkeys(map(query_family, queries)))}
    return np.array([numbers[query_family(query)] for query in queries], dtype=np.int64)


def _scale_result(
    trial: Trial,
    columns: Sequence[str],
    results: Sequence[PlanFigures],
    tried: TriedSegments,
    sample: RowSample,
    queries: Sequence[Query],
    tasks: Executor,
) -> TrialResult:
    rows = sorted(results, key=lambda row: row.segment)
    if len(rows) < len(tried.values):  # the source's rows were removed meanwhile
        nothing = (0.0,) * len(queries)
        return TrialResult(trial.plan, nothing, nothing, nothing)
    figures = {name: np.array([getattr(row, name) for row in rows], dtype=np.float64) for name in _FIGURES}
    scaled = {name: tried.scale_by_rows(values) for name, values in figures.items()}
    if sample.segments:
        rough = evaluate_sample_segments(sample, narrow_plan(trial.plan, columns), queries, tasks)
        values, families = tuple(segment.value for segment in sample.segments), _number_families(queries)
        for name, rough_name in _ROUGH_FIGURES.items():
            rough_figures = RoughFigures(values, getattr(rough, rough_name))
            scaled[name] = scale_up(tried, figures[name], rough_figures, families)
    plan = trial.plan
    if trial.search:
        middle = rows[len(rows) // 2]
        orders = iter(middle.orders)
        layouts = plan.scheme.layouts
        plan = with_orders(
            plan, [() if set(columns).isdisjoint(layout.columns) else next(orders) for layout in layouts]
        )
        for name, like in (("read", "read"), ("full", "full"), ("reached", "full"), ("stored", "stored")):
            scaled[name] *= _saving(np.array(getattr(middle, like)), np.array(getattr(middle, f"{like}_sorted")))
    stored = float(scaled.pop("stored").sum())
    sums = {name: tuple(values.tolist()) for name, values in scaled.items()}
    return TrialResult(plan, stored=stored, **sums)


def _saving(before: Floats, after: Floats) -> Floats:
    """Return the share of each query's bytes that remains after sorting; of all bytes for a query that reads none."""
    shares: Floats = np.full(len(before), after.sum() / before.sum() if before.sum() else 1.0)
    return np.divide(after, before, out=shares, where=before > 0)


def _try_plans(
    jobs: Sequence[WriteJob],
    features: FeatureSet,
    searched_segments: Sequence[int | None],
    queries: Sequence[Query],
    shares: int,
    batches: Iterable[pa.RecordBatch],
    evaluate_rest: FindWords | None = None,
) -> list[PlanFigures]:
    """Return the figures of each plan, or each of the task's share of plans, from all rows of a segment.

    The rows' vectors are over ``features``, of which each plan has some.
    """
    segment = gather_segment(replace(jobs[0].plan, features=features), batches, evaluate_rest=evaluate_rest)
    if segment is None:
        return []
    figures = []
    segment_number, share = divmod(segment.id, shares)
    for number in range(share, len(jobs), shares):
        job = jobs[number]
        words = project(segment.words, features.places(job.plan.features))
        search = searched_segments[number] == segment_number
        tried = try_on_segment(job, replace(segment, id=0, words=words), queries, search)
        before = after = measure_query_bytes(tried.table, job.plan, queries, tried.pruned)
        if tried.sorted is not tried.table:
            after = measure_query_bytes(tried.sorted, job.plan, queries, tried.pruned_sorted)
        cells = _count_query_cells(tried.table, queries, tried.pruned)
        stored = [
            [float(sum(source.blocks.bytes.sum() for source in table.sources))] for table in (tried.table, tried.sorted)
        ]
        sizes = (*before[:3], *cells, *after[:2], before[3], *stored)
        figures.append(PlanFigures(number, segment_number, tried.orders, *sizes))
    return figures


class SegmentTrial(NamedTuple):
    """The order of rows of each layout, and the tables that a segment alone would make without and with them.

    ``pruned`` and ``pruned_sorted`` are what each query reads of these tables.
    """

    orders: list[list[str]]
    table: Table
    pruned: list[PrunedPlan]
    sorted: Table
    pruned_sorted: list[PrunedPlan]


def try_on_segment(job: WriteJob, segment: GatheredSegment, queries: Sequence[Query], search: bool) -> SegmentTrial:
    """Block a segment and measure its blocks; with ``search`` once more in the orders of rows found for it."""
    files = list(route_segment(job, segment))
    measured = measure_files(job, segment, files)
    table = dry_run_table(job, measured)
    pruned, layouts = prune_queries(table, queries), job.plan.scheme.layouts
    if not search:
        return SegmentTrial([list(layout.row_order) for layout in layouts], table, pruned, table, pruned)
    training = pruned if tuple(queries) == job.plan.queries else prune_queries(table, job.plan.queries)
    row_orders = find_row_orders(job, segment, files, table, training)
    orders = [list(row_orders[i].columns) if i in row_orders else [] for i in range(len(layouts))]
    reordered = []
    for file in files:
        routing = sort_block_rows(file.routing, orders[file.layout], job.plan.schema, segment.table)
        reordered.append(replace(file, routing=routing))
    after = dry_run_table(job, measure_reordered(job, segment, reordered, measured))
    return SegmentTrial(orders, table, pruned, after, [replace(plan, source=after.sources[0]) for plan in pruned])


class QueryBytes(NamedTuple):
    """Bytes of each query.

    Attributes:
        read: the bytes read.
        full: those of a full scan of its columns.
        metadata_chunks: the column chunks whose metadata it reads.
        reached: the bytes of a full scan where the segment's bounds don't exclude it.
    """

    read: list[float]
    full: list[float]
    metadata_chunks: list[float]
    reached: list[float]


def prune_queries(table: Table, queries: Sequence[Query]) -> list[PrunedPlan]:
    """Return what each query reads of a table that has blocks of one plan."""
    questions = [(query.filter.root, query.columns) for query in queries]
    return [pruned for _, (batch,) in table.prune_all(questions) for pruned in batch]


def measure_query_bytes(
    table: Table, plan: Plan, queries: Sequence[Query], pruned_plans: Sequence[PrunedPlan]
) -> QueryBytes:
    """Measure the bytes of queries on a table that has one segment of a plan, from what each reads of its blocks."""
    chunks = np.array([len(layout.columns) for layout in plan.scheme.layouts])

    @cache
    def full_scan(columns: tuple[str, ...]) -> float:
        return float(sum_read(table.prune(TRUE, columns)).bytes)

    result = QueryBytes([], [], [], [])
    for query, pruned in zip(queries, pruned_plans, strict=True):
        is_reached = ~pruned.excluded
        full = full_scan(tuple(query.columns))
        result.read.append(float(pruned.size(pruned.read).bytes))
        result.full.append(full)
        result.metadata_chunks.append(float(chunks[pruned.source.blocks.layout[is_reached]].sum()))
        result.reached.append(full if is_reached.any() else 0.0)
    return result


def _count_query_cells(
    table: Table, queries: Sequence[Query], pruned_plans: Sequence[PrunedPlan]
) -> tuple[list[float], list[float]]:
    """Return the cells and tids that each query reads, and those of a full scan of its columns."""

    @cache
    def full_scan(columns: tuple[str, ...]) -> float:
        return float(count_work(table.prune(TRUE, columns)).values)

    cells = [float(count_work([pruned]).values) for pruned in pruned_plans]
    return cells, [full_scan(tuple(query.columns)) for query in queries]
