"""Plans tried on a few whole segments of the source: the order of rows found, and the bytes that queries read.

A segment is routed to blocks by the very code of a load, in a task as large as one of a load; blocks have their full
size and the rows that a load would give them, and some are encoded (:func:`layoutopt.writer.encodings.estimate_sizes`).
So what is predicted knows what a sample of rows can't: how many blocks there are, how alike the rows of one are, and
what sorting them saves. All plans are tried in one pass over the source; where there are fewer segments than cores, the
rows of each go to several tasks, which try some of the plans each. Orders of rows are searched for on the middle
one of the segments alone, since that is most of the work; what they save there they are taken to save in the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.catalog.paths import new_load_id
from layoutopt.features.cross_validation import family_of
from layoutopt.features.weights import feature_shares
from layoutopt.inspect.cost import work_of
from layoutopt.local.processes import Tasks
from layoutopt.local.vectors import evaluate_words as words_left_by_arrow
from layoutopt.model.arrays import Floats, Ints, spread
from layoutopt.model.engine_costs import Work
from layoutopt.model.feature import FeatureSet, all_features
from layoutopt.model.layout import Layout, Plan
from layoutopt.model.predicates import TRUE
from layoutopt.model.query import Query, filtered_columns
from layoutopt.model.schema import POSITION, SEGMENT
from layoutopt.model.vectors import project
from layoutopt.scan.prune import PrunedPlan, PruneOutcome
from layoutopt.scan.table import Table
from layoutopt.spark.core.featurize import with_feature_words
from layoutopt.spark.core.partition_values import of_partitions
from layoutopt.spark.core.segments import Chunk, Segment, count_chunks, cut_segments, with_positions, with_segments
from layoutopt.spark.core.sessions import compiled_in_parts
from layoutopt.spark.core.workers import Task, map_segments
from layoutopt.spark.loading.dry_run import narrowed, needed_columns
from layoutopt.spark.planning.row_order import (
    measured_again,
    measured_files,
    rehearsed_table,
    row_orders_of,
    with_orders,
)
from layoutopt.spark.planning.sample_evaluation import (
    RowSample,
    SampleRequest,
    draw_sample_of,
    drawn_by_place,
    segments_on_sample,
)
from layoutopt.spark.planning.source_profile import PlainRows, Rows, by_arrow_or_spark, tasks_of
from layoutopt.writer.row_order import in_row_order
from layoutopt.writer.segment import GatheredSegment, OfLeft, gather_segment
from layoutopt.writer.task import RoutedFile, WriteJob, route_segment

# ----------------------------------------------------------------------------------------------------
# A few whole segments of a source, spread along it, on which plans are tried.

_FEWEST_SEGMENTS, _MOST_SEGMENTS = 2, 6
_ENOUGH_ROWS: Final = 600_000
"""Of all segments together: where they are large, the fewest are rehearsed."""


class Chosen(NamedTuple):
    """Some segments of a source.

    Attributes:
        segments: numbered anew; with ``k`` shares the rows of segment ``i`` go to tasks ``k * i`` to ``k * i + k - 1``.
        partition_rows: by value, how many rows each partition of the table has.
        shares: how often the rows of each segment are wanted.
    """

    segments: tuple[Segment, ...]
    partition_rows: Mapping[PlainValue, int]
    shares: int


def some_segments(rows: Rows, plan: Plan, trials: int = 1) -> Chosen:
    """Some segments, spread evenly along the table's rows by partition and then the source's order.

    Args:
        rows: the source.
        plan: its partitions and segments.
        trials: how many plans are to be tried on each segment.
    """
    segments = cut_segments(_chunks_of(rows, plan), plan.segment_rows)
    up_to = np.cumsum([segment.rows for segment in segments])
    if not segments or not up_to[-1]:
        return Chosen((), {}, 1)
    middle = segments[_at(up_to, 0.5)]
    count = min(_MOST_SEGMENTS, max(_FEWEST_SEGMENTS, _ENOUGH_ROWS // middle.rows))
    chosen = [segments[i] for i in sorted({_at(up_to, (i + 0.5) / count) for i in range(count)})]
    partition_rows: dict[PlainValue, int] = {}
    for segment in segments:
        partition_rows[segment.value] = partition_rows.get(segment.value, 0) + segment.rows
    cores = tasks_of(rows).cores
    shares = max(1, min(trials, cores // len(chosen)))
    return Chosen(tuple(replace(each, id=i) for i, each in enumerate(chosen)), partition_rows, shares)


def _chunks_of(rows: Rows, plan: Plan) -> Sequence[Chunk]:
    if isinstance(rows, PlainRows):
        return rows.chunks(plan.segment_rows)
    return count_chunks(with_positions(rows), plan.partition_by, plan.segment_rows)


def rows_of_segments(rows: DataFrame, plan: Plan, chosen: Chosen) -> DataFrame:
    """The rows of some segments of a source, for each task that gets them."""
    segments, shares = chosen.segments, chosen.shares
    positioned = with_positions(rows)
    if plan.partition_by is not None and all(
        segment.rows == chosen.partition_rows[segment.value] for segment in segments
    ):
        # Asked of the files themselves, so that others are not read; the rows then have other positions.
        positioned = with_positions(of_partitions(rows, plan.partition_by, [each.value for each in segments]))
    tasks = [replace(each, id=shares * each.id + share) for each in segments for share in range(shares)]
    return with_segments(rows.sparkSession, positioned, tasks, plan.partition_by)


def _at(up_to: Ints, share: float) -> int:
    """The segment that holds the row at a share of all, from the rows up to the end of each."""
    return int(np.searchsorted(up_to, share * float(up_to[-1]), side="right"))


# ----------------------------------------------------------------------------------------------------
# What a few segments of a table say of all of it, for queries that read some partitions and not others.
#
# A query for a month of 1995 reads nothing of the other years. By a few years alone, scaled up by their rows, it would
# seem to read nothing, or several times too much. So a few rows of every partition are blocked too, which says roughly
# what each query reads where. The segments that were tried say how far off that is, for the queries of each family
# (those
# of the same columns that filter by the same ones), and it is set right by as much in the partitions that were not
# tried:
# a ratio estimate from a double sample (Cochran, *Sampling Techniques*, 12.9).


@dataclass(frozen=True, eq=False)
class Tried:
    """Which part of a table was tried.

    Attributes:
        values: of each segment that was tried, its partition's.
        rows: of each of them, ``float64[segments]``.
        partition_rows: by value, the rows of each partition of the table.
    """

    values: tuple[PlainValue, ...]
    rows: Floats
    partition_rows: Mapping[PlainValue, int]

    @property
    def times(self) -> Floats:
        """The rows of its partition that each segment stands for, for each of its own, ``float64[segments]``."""
        tried = {value: self.rows[[each == value for each in self.values]].sum() for value in self.values}
        return np.array([self.partition_rows[value] / tried[value] for value in self.values], dtype=np.float64)

    @property
    def total(self) -> int:
        """The rows of the table."""
        return sum(self.partition_rows.values())

    @property
    def is_everywhere(self) -> bool:
        """Whether a segment of every partition was tried."""
        return set(self.values) == set(self.partition_rows)

    def by_rows(self, figures: Floats) -> Floats:
        """Figures that every partition has alike, for the table: each segment stands for as many rows.

        Args:
            figures: ``float64[segments, ...]``.
        """
        times = self.total / len(self.rows) / self.rows
        return np.asarray(np.tensordot(times, figures, axes=1), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Roughly:
    """What a few rows of each partition say of a figure.

    Attributes:
        values: the partitions'.
        figures: ``float64[partitions, queries]``.
    """

    values: tuple[PlainValue, ...]
    figures: Floats


def scaled_up(tried: Tried, figures: Floats, rough: Roughly, families: Ints) -> Floats:
    """Figures of the segments that were tried, and of other partitions what is said roughly, set right by family.

    A family of which nothing is said roughly where segments were tried is set right as the median of families is.

    Args:
        tried: the segments.
        figures: of each segment and query, ``float64[segments, queries, ...]``.
        rough: of the partitions that were tried, and of all others or some of them.
        families: which family each query is of, ``int64[queries]``.

    Returns:
        ``float64[queries, ...]``.
    """
    known: Floats = np.tensordot(tried.times, figures, axes=1)
    is_tried = np.array([value in tried.values for value in rough.values], dtype=np.bool_)
    there, elsewhere = rough.figures[is_tried].sum(axis=0), rough.figures[~is_tried].sum(axis=0)
    if not there.any() or not elsewhere.any():
        return known
    rows = np.array([tried.partition_rows[value] for value in rough.values], dtype=np.float64)
    left = tried.total - rows[is_tried].sum()
    ratios = _ratios(known, there, families)
    more = elsewhere * (left / rows[~is_tried].sum())
    return np.asarray(known + more.reshape(-1, *(1,) * (known.ndim - 1)) * ratios, dtype=np.float64)


def _ratios(known: Floats, rough: Floats, families: Ints) -> Floats:
    """The sums of each query's family over what was roughly said; where that is 0 the median of the families."""
    of_families = np.zeros((families.max() + 1, *known.shape[1:]))
    np.add.at(of_families, families, known)
    sizes = np.bincount(families, weights=rough)
    told = sizes > 0
    of_families[told] /= sizes[told].reshape(-1, *(1,) * (known.ndim - 1))
    of_families[~told] = np.median(of_families[told], axis=0)
    return of_families[families]


def families_of(queries: Sequence[Query]) -> Ints:
    """Which family each query is of, numbered from 0, ``int64[queries]``."""
    numbers = {family: number for number, family in enumerate(dict.fromkeys(map(family_of, queries)))}
    return np.array([numbers[family_of(query)] for query in queries], dtype=np.int64)


_RESULT_SCHEMA = (
    "plan int, segment int, orders array<array<string>>, "
    "read array<double>, full array<double>, looked_at array<double>, "
    "work array<array<double>>, full_work array<array<double>>, "
    "read_sorted array<double>, full_sorted array<double>, reached array<double>, "
    "stored array<double>, stored_sorted array<double>"
)
_RESULT = pa.schema(
    [
        ("plan", pa.int32()),
        ("segment", pa.int32()),
        ("orders", pa.list_(pa.list_(pa.string()))),
        ("read", pa.list_(pa.float64())),
        ("full", pa.list_(pa.float64())),
        ("looked_at", pa.list_(pa.float64())),
        ("work", pa.list_(pa.list_(pa.float64()))),  # of each query, in the order of KINDS
        ("full_work", pa.list_(pa.list_(pa.float64()))),
        ("read_sorted", pa.list_(pa.float64())),  # where an order was searched for
        ("full_sorted", pa.list_(pa.float64())),
        ("reached", pa.list_(pa.float64())),
        ("stored", pa.list_(pa.float64())),  # one figure
        ("stored_sorted", pa.list_(pa.float64())),
    ]
)
_ROUGHLY: Final = MappingProxyType({"read": "read", "work": "read", "looked_at": "reached", "reached": "reached"})
"""By the name of a figure that partitions don't have alike, which of a sample's figures it goes with."""
_FIGURES: Final = (*_ROUGHLY, "full", "full_work", "stored")

_SAMPLED_ROWS, _MOST_PARTITIONS = 60_000, 200
"""Of all partitions together, blocked to learn which of them queries read."""


@dataclass(frozen=True)
class Trial:
    """A plan to be tried; ``search`` says whether an order of rows is to be found for it."""

    plan: Plan
    search: bool


@dataclass(frozen=True)
class Rehearsed:
    """What came of a trial, scaled up from the segments to the table; one number a query.

    Attributes:
        plan: with the orders of rows that were found on the middle one of the segments.
        read: the bytes that each query reads, its weight not counted.
        full: the bytes of a full scan of its columns.
        looked_at: column chunks of the blocks whose metadata it looks at.
        work: how much work each query is.
        full_work: and a full scan of its columns.
        reached: the bytes of a full scan of its columns in those segments whose bounds don't exclude it.
        stored: the bytes of all layouts' columns that the plan or the queries name, or that they go by; with tids.
    """

    plan: Plan
    read: tuple[float, ...]
    full: tuple[float, ...]
    looked_at: tuple[float, ...]
    work: tuple[Work, ...] = ()
    full_work: tuple[Work, ...] = ()
    reached: tuple[float, ...] = ()
    stored: float = 0.0

    def fraction(self, queries: Sequence[Query]) -> float:
        """What is read of all full scans, by the weights of the queries that were asked for; 0 where nothing is."""
        weights = np.array([query.weight for query in queries])
        full = float(weights @ np.array(self.full))
        return self.bytes_read(queries) / full if full else 0.0

    def bytes_read(self, queries: Sequence[Query]) -> float:
        """What is read in all, by the weights of the queries that were asked for."""
        return float(np.array([query.weight for query in queries]) @ np.array(self.read))

    def shares(self) -> tuple[float, ...]:
        """What each query reads of its full scan."""
        return tuple(round(read / full, 6) if full else 0.0 for read, full in zip(self.read, self.full, strict=True))


def rehearse_segments(rows: Rows, trials: Sequence[Trial], queries: Sequence[Query]) -> list[Rehearsed]:
    """Try plans on a few segments.

    Args:
        rows: the source.
        trials: of the same source, partitions and segments; each may have features of its own.
        queries: what they are judged by.
    """
    rehearsed = partial(_rehearsed, trials, queries)
    return by_arrow_or_spark(rows, rehearsed, rehearsed)


def _rehearsed(trials: Sequence[Trial], queries: Sequence[Query], rows: Rows) -> list[Rehearsed]:
    """What comes of trials on segments as these rows have them."""
    first = trials[0].plan
    held = needed_columns([trial.plan for trial in trials], {name for query in queries for name in query.columns})
    chosen = some_segments(rows, first, len(trials))
    segments = chosen.segments
    nothing = (0.0,) * len(queries)
    if not segments or not held:
        return [Rehearsed(trial.plan, nothing, nothing, nothing) for trial in trials]
    jobs = [_job(trial.plan, held, queries) for trial in trials]
    features = all_features([trial.plan.features for trial in trials])
    middle = len(segments) // 2
    layouts = [trial.plan.scheme.layouts for trial in trials]
    searched_in = [middle if trial.search else None for trial in trials]
    task = partial(_rehearse, jobs, features, searched_in, layouts, tuple(queries), chosen.shares)
    of_values = tuple(segment.value for segment in segments)
    tried = Tried(of_values, np.array([segment.rows for segment in segments], dtype=np.float64), chosen.partition_rows)
    wanted = _few_rows(first, features, tried, held)
    if isinstance(rows, PlainRows):
        answer, sample = _by_arrow(rows, chosen, wanted, task)
    else:
        answer, sample = _by_spark(rows, first, chosen, wanted, task)
    found, tasks = answer.to_pylist(), tasks_of(rows)
    return [
        _of_table(trial, held, [row for row in found if row["plan"] == number], tried, sample, queries, tasks)
        for number, trial in enumerate(trials)
    ]


def _by_arrow(
    rows: PlainRows, chosen: Chosen, wanted: SampleRequest, task: Callable[..., Iterator[pa.RecordBatch]]
) -> tuple[pa.Table, RowSample]:
    """What the tasks make of the segments' rows, and the rows drawn, from one pass over the files."""
    by_arrow = partial(task, of_left=words_left_by_arrow)
    found, drawn = rows.in_segments(
        chosen.segments, wanted.columns, chosen.shares, by_arrow, wanted.partition_rows, wanted.sample_rows
    )
    return found, drawn_by_place(drawn, rows.schema, wanted)


def _by_spark(
    rows: DataFrame, plan: Plan, chosen: Chosen, wanted: SampleRequest, task: Task
) -> tuple[pa.Table, RowSample]:
    """The same by Spark, which reads the files twice."""
    with compiled_in_parts(rows.sparkSession):
        routed = rows_of_segments(rows, plan, chosen)
        featurised = with_feature_words(routed, wanted.features.features, (*wanted.columns, POSITION, SEGMENT))
        found = map_segments(featurised, chosen.shares * len(chosen.segments), task, _RESULT_SCHEMA).toArrow()
    return found, draw_sample_of(rows, wanted) if wanted.partition_rows else RowSample(wanted.features, ())


def _few_rows(plan: Plan, features: FeatureSet, tried: Tried, held: Sequence[str]) -> SampleRequest:
    """A few rows of each partition; none where a segment of each was tried."""
    values = dict.fromkeys((*tried.values, *spread(list(tried.partition_rows), _MOST_PARTITIONS)))
    partition_rows = {} if tried.is_everywhere else {value: tried.partition_rows[value] for value in values}
    few = _SAMPLED_ROWS // len(values)
    return SampleRequest(features, plan.partition_by, plan.segment_rows, partition_rows, few, tuple(held))


def _of_table(
    trial: Trial,
    held: Sequence[str],
    found: Sequence[Mapping[str, Any]],
    tried: Tried,
    sample: RowSample,
    queries: Sequence[Query],
    tasks: Tasks,
) -> Rehearsed:
    """What came of a trial, from what it gave on each of the segments."""
    rows = sorted(found, key=lambda row: int(row["segment"]))
    if len(rows) < len(tried.values):  # somebody took the rows away meanwhile
        nothing = (0.0,) * len(queries)
        return Rehearsed(trial.plan, nothing, nothing, nothing)
    figures = {name: np.array([row[name] for row in rows], dtype=np.float64) for name in _FIGURES}
    by_name = {name: tried.by_rows(of) for name, of in figures.items()}
    if sample.segments:
        rough = segments_on_sample(sample, narrowed(trial.plan, held), queries, tasks)
        values, families = tuple(segment.value for segment in sample.segments), families_of(queries)
        for name, roughly in _ROUGHLY.items():
            of_partitions = Roughly(values, getattr(rough, roughly))
            by_name[name] = scaled_up(tried, figures[name], of_partitions, families)
    plan = trial.plan
    if trial.search:
        middle = rows[len(rows) // 2]
        plan = _with_orders_of(plan, held, middle["orders"])
        for name, like in (("read", "read"), ("full", "full"), ("reached", "full"), ("stored", "stored")):
            by_name[name] *= _left(np.array(middle[like]), np.array(middle[f"{like}_sorted"]))
    work, full_work = (_works(by_name.pop(name), by_name[of]) for name, of in (("work", "read"), ("full_work", "full")))
    stored = float(by_name.pop("stored").sum())
    sums = {name: tuple(of.tolist()) for name, of in by_name.items()}
    return Rehearsed(plan, work=work, full_work=full_work, stored=stored, **sums)


def _works(counts: Floats, bytes: Floats) -> tuple[Work, ...]:
    """The work of each query, whose bytes are known by now, for the whole table."""
    pairs = zip(counts.tolist(), bytes.tolist(), strict=True)
    return tuple(replace(Work(*of), queries=1, bytes=size) for of, size in pairs)


def _left(before: Floats, after: Floats) -> Floats:
    """What sorting leaves of each query's bytes; of a query that reads none there what it leaves of all."""
    left: Floats = np.full(len(before), after.sum() / before.sum() if before.sum() else 1.0)
    return np.divide(after, before, out=left, where=before > 0)


def _job(plan: Plan, held: Sequence[str], queries: Sequence[Query]) -> WriteJob:
    shares = feature_shares(plan.features, plan.queries)
    job = WriteJob(narrowed(plan, held), shares, "sampled", new_load_id(), 0, ("sampled",), (0,), rehearsal=True)
    return replace(job, bounded=filtered_columns((*plan.queries, *queries)))


def _with_orders_of(plan: Plan, held: Sequence[str], orders: Sequence[Sequence[str]]) -> Plan:
    """The plan with the orders found for its layouts that have a column that is held."""
    found = iter(orders)
    layouts = plan.scheme.layouts
    return with_orders(plan, [() if set(held).isdisjoint(each.columns) else next(found) for each in layouts])


def _rehearse(
    jobs: Sequence[WriteJob],
    features: FeatureSet,
    searched_in: Sequence[int | None],
    layouts: Sequence[Sequence[Layout]],
    queries: Sequence[Query],
    shares: int,
    batches: Iterable[pa.RecordBatch],
    of_left: OfLeft | None = None,
) -> Iterator[pa.RecordBatch]:
    """The body of ``mapInArrow``: all rows of one segment in, a row for each plan out, or for each of its share.

    The rows' vectors are over ``features``, of which each plan has some.
    """
    segment = gather_segment(replace(jobs[0].plan, features=features), batches, of_left=of_left)
    if segment is None:
        return
    number_of, share = divmod(segment.id, shares)
    for number in range(share, len(jobs), shares):
        job = jobs[number]
        words = project(segment.words, features.places(job.plan.features))
        tried = rehearse_one(job, replace(segment, id=0, words=words), queries, searched_in[number] == number_of)
        before = bytes_of(tried.table, job.plan, queries, tried.pruned)
        after = (
            before if tried.sorted is tried.table else bytes_of(tried.sorted, job.plan, queries, tried.pruned_sorted)
        )
        work = works_of(tried.table, layouts[number], queries, tried.pruned)
        stored = [_stored(tried.table), _stored(tried.sorted)]
        values = [number, number_of, tried.orders, *before[:3], *work, *after[:2], before[3], *stored]
        arrays = [pa.array([value], field.type) for value, field in zip(values, _RESULT, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_RESULT)


def _stored(table: Table) -> list[float]:
    """The bytes of all blocks of a table, alone in a list as other figures are."""
    return [float(sum(source.blocks.bytes.sum() for source in table.sources))]


class RehearsedSegment(NamedTuple):
    """The order of rows of each layout, and the tables that a segment alone would make without and with them.

    ``pruned`` and ``pruned_sorted`` are what each query reads of these tables.
    """

    orders: list[list[str]]
    table: Table
    pruned: list[PrunedPlan]
    sorted: Table
    pruned_sorted: list[PrunedPlan]


def rehearse_one(job: WriteJob, segment: GatheredSegment, queries: Sequence[Query], search: bool) -> RehearsedSegment:
    """Block a segment and measure its blocks; where orders of rows are searched for, once more with them."""
    files = list(route_segment(job, segment))
    measured = measured_files(job, segment, files)
    table = rehearsed_table(job, measured)
    pruned, layouts = pruned_by(table, queries), job.plan.scheme.layouts
    if not search:
        return RehearsedSegment([list(layout.row_order) for layout in layouts], table, pruned, table, pruned)
    training = pruned if tuple(queries) == job.plan.queries else pruned_by(table, job.plan.queries)
    found = row_orders_of(job, segment, files, table, training)
    orders = [list(found[i].columns) if i in found else [] for i in range(len(layouts))]
    ordered = [_sorted_file(job, segment, file, orders[file.layout]) for file in files]
    after = rehearsed_table(job, measured_again(job, segment, ordered, measured))
    return RehearsedSegment(orders, table, pruned, after, [each.of(after.sources[0]) for each in pruned])


def _sorted_file(job: WriteJob, segment: GatheredSegment, file: RoutedFile, order: Sequence[str]) -> RoutedFile:
    return replace(file, routing=in_row_order(file.routing, order, job.plan.schema, segment.table))


class BytesOf(NamedTuple):
    """Of each query the bytes read, those of a full scan, the column chunks whose metadata it looks at, and the bytes
    of a full scan where the segment's bounds don't exclude it."""

    read: list[float]
    full: list[float]
    looked_at: list[float]
    reached: list[float]


def pruned_by(table: Table, queries: Sequence[Query]) -> list[PrunedPlan]:
    """What each query reads of a table that has blocks of one plan."""
    found = []
    for query in queries:
        (pruned,) = table.prune(query.filter.root, query.columns)
        found.append(pruned)
    return found


def bytes_of(table: Table, plan: Plan, queries: Sequence[Query], of_queries: Sequence[PrunedPlan]) -> BytesOf:
    """What queries read of a table that has one segment of a plan, from what each reads of its blocks."""
    chunks = np.array([len(layout.columns) for layout in plan.scheme.layouts])

    @cache
    def full_scan(columns: tuple[str, ...]) -> float:
        return float(sum(pruned.size(PruneOutcome.READ).bytes for pruned in table.prune(TRUE, columns)))

    found = BytesOf([], [], [], [])
    for query, pruned in zip(queries, of_queries, strict=True):
        seen = pruned.outcome != PruneOutcome.PARTITION
        full = full_scan(tuple(query.columns))
        found.read.append(float(pruned.size(PruneOutcome.READ).bytes))
        found.full.append(full)
        found.looked_at.append(float(chunks[pruned.source.blocks.layout[seen]].sum()))
        found.reached.append(full if seen.any() else 0.0)
    return found


def works_of(
    table: Table, layouts: Sequence[Layout], queries: Sequence[Query], of_queries: Sequence[PrunedPlan]
) -> tuple[list[list[float]], list[list[float]]]:
    """The counts of each query's work, and of a full scan of its columns; ``layouts`` is :func:`work_of`'s."""

    @cache
    def full_scan(columns: tuple[str, ...]) -> list[float]:
        return list(map(float, work_of(table.prune(TRUE, columns), layouts).counts))

    work = [work_of([pruned], layouts).counts.tolist() for pruned in of_queries]
    return work, [full_scan(tuple(query.columns)) for query in queries]
