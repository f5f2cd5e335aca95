"""Evaluate plans on a sample of rows: block it as a load would, and replay queries that were held out.

A block of the table is as many times smaller in the sample as the sample is smaller than the segment. Everything that
skips is there: feature bits and statistics are measured on the blocks of the sample, by the code of a load. Bytes are
cells, each by its column's bytes in blocks of the table's size, and the catalog that the query reads.

The thesis counts cells, of which a text of forty characters costs as much as a flag; here a cell's bytes are measured.
A block holds a few of its segment's rows, far apart in the source. Rows drawn at random are as far apart, so they
compress as a block's do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.catalog.paths import new_load_id
from layoutopt.features.weights import feature_shares, segment_weights
from layoutopt.methods.interface import PartitionHistogram, PlanRequest
from layoutopt.model.arrays import Floats, Ints, Words, spread
from layoutopt.model.feature import FeatureSet
from layoutopt.model.layout import Plan
from layoutopt.model.query import Query, group_queries
from layoutopt.model.schema import TID, Schema
from layoutopt.model.vectors import VectorCounts, project
from layoutopt.planning.rows import SourceRows
from layoutopt.planning.source_profile import SAMPLE_ROWS, SAMPLED_PARTITIONS
from layoutopt.scan.prune import PrunedPlan
from layoutopt.scan.table import Table
from layoutopt.search.problem import Unit
from layoutopt.sources.executor import Executor, map_in_groups
from layoutopt.writer.dry_run import dry_run_catalog, narrow_plan
from layoutopt.writer.encodings import bytes_per_row
from layoutopt.writer.routing import weigh_reaching_queries
from layoutopt.writer.segment import GatheredSegment
from layoutopt.writer.task import WriteJob, shrink_blocks, write_layouts

_MEASURED_BLOCKS = 2
# Rows encoded at most to measure the bytes of cells.
MEASURED_ROWS = 30_000
# Of the catalog, for each block and column: TPC-H's statistics, bounds and unions, compressed.
CATALOG_BYTES_A_CHUNK = 12
# Blocking more rows takes seconds, and sending them to a task for each core much less.
_MANY_ROWS = 20_000


def unit_in_bytes(
    rows: SourceRows, features: FeatureSet, partition: tuple[PlainValue, int], request: PlanRequest
) -> Unit:
    """Measure the compressed bytes of a cell of each column, and of a tid, in a partition of a value and its rows."""
    wanted = min(_MEASURED_BLOCKS * request.block_rows, MEASURED_ROWS)
    sample = _draw_all_columns(rows, features, partition, wanted)
    columns, segment_rows = rows.source.names, min(partition[1], request.segment_rows)
    return measure_unit(sample, columns, request.block_rows, segment_rows, request.codec, request.seed)


def _draw_all_columns(
    rows: SourceRows, features: FeatureSet, partition: tuple[PlainValue, int], wanted: int
) -> pa.Table:
    """Draw about ``wanted`` rows of a partition (its value and rows) with all columns, at most twice as many."""
    return rows.read(lambda rows: rows.draw_all_columns(features, partition, wanted)).slice(0, 2 * wanted)


def measure_unit(
    sample: pa.Table, columns: Sequence[str], block_rows: int, segment_rows: int, codec: str, seed: int
) -> Unit:
    """Measure the unit of rows drawn from a segment, in the source's order; all 1 where there are none.

    ``columns`` are the table's; tids are drawn below ``segment_rows`` by the seed.
    """
    if not sample.num_rows:
        return Unit.cells(len(columns))
    tids = np.random.default_rng(seed).integers(0, segment_rows, sample.num_rows)
    offsets = np.append(np.arange(0, sample.num_rows, block_rows), sample.num_rows)
    for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        tids[start:stop].sort()
    measured = bytes_per_row(sample.append_column(TID, pa.array(tids, pa.int32())), offsets, codec)
    return Unit(np.array([measured[name] for name in columns]), measured[TID])


@dataclass(frozen=True, eq=False)
class SampledSegment:
    """Rows drawn from a partition, for a segment of it.

    Attributes:
        value: of the partition column.
        partition_rows: of the whole partition.
        rows: of the segment.
        table: the rows drawn, in the order of the source, or of its files' names.
        words: their vectors over the sample's features, ``uint64[n, w]``.
    """

    value: PlainValue
    partition_rows: int
    rows: int
    table: pa.Table
    words: Words

    @property
    def scale(self) -> float:
        """Rows of the segment for each row drawn."""
        return float(self.rows) / max(1, int(self.table.num_rows))


@dataclass(frozen=True, eq=False)
class RowSample:
    """Rows of some partitions with their vectors, on which plans are evaluated.

    Attributes:
        features: bit ``i`` of the words is feature ``i``; plans to evaluate have some of them.
        segments: one a partition.
        measured: returns rows of the middle segment with all columns; None where the segments have all.
    """

    features: FeatureSet
    segments: tuple[SampledSegment, ...]
    measured: Callable[[], pa.Table] | None = None

    def unit(self, columns: tuple[str, ...], block_rows: int, codec: str, seed: int) -> Unit:
        """Return the bytes of a cell of each column and of a tid in blocks of that size, by the middle segment."""
        key = (columns, block_rows, codec, seed)
        if key not in self._units:
            middle = self.segments[len(self.segments) // 2]
            rows = middle.table
            if self.measured is not None and not set(columns) <= set(self.columns):
                rows = self.measured()
            rows = rows.select(list(columns)).slice(0, MEASURED_ROWS)
            self._units[key] = measure_unit(rows, columns, block_rows, middle.rows, codec, seed)
        return self._units[key]

    def for_workers(self) -> RowSample:
        """Return the sample as it can be sent to tasks, with what was measured so far."""
        sample = replace(self, measured=None)
        sample._units.update(self._units)
        return sample

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the segments."""
        return tuple(self.segments[0].table.column_names)

    @cached_property
    def _units(self) -> dict[tuple[tuple[str, ...], int, str, int], Unit]:
        return {}


@dataclass(frozen=True)
class SampleRequest:
    """A request for about ``sample_rows`` rows of each of some partitions, whose rows are ``partition_rows``.

    ``features`` are all that plans to be evaluated have.
    """

    features: FeatureSet
    partition_by: str | None
    segment_rows: int
    partition_rows: Mapping[PlainValue, int]
    sample_rows: int
    columns: tuple[str, ...]

    def build_sample(self, drawn: pa.Table, words: Words) -> RowSample:
        """Build the sample from the rows drawn, with their vectors over ``features``."""
        segments = []
        for value, count in self.partition_rows.items():
            if self.partition_by is None:
                places: Ints = np.arange(len(words))
            else:
                column = drawn[self.partition_by]
                is_value = pc.is_null(column) if value is None else pc.equal(column, pa.scalar(value, column.type))
                places = np.flatnonzero(np.asarray(pc.fill_null(is_value, False)))
            table = drawn.select(list(self.columns)).take(pa.array(places)).combine_chunks()
            segments.append(SampledSegment(value, count, min(count, self.segment_rows), table, words[places]))
        return RowSample(self.features, tuple(segment for segment in segments if segment.table.num_rows))


def draw_sample(
    rows: SourceRows,
    features: FeatureSet,
    partition_by: str | None,
    segment_rows: int,
    sample_rows: int = SAMPLE_ROWS,
    columns: Collection[str] | None = None,
) -> RowSample:
    """Draw about ``sample_rows`` rows of each of a few partitions, spread evenly; the same on any number of cores.

    ``features`` are all that plans to be evaluated have; ``columns`` those that plans and queries use, the partition
    column among them, all when None.
    """
    counted = rows.read(lambda rows: rows.partition_rows)
    sampled = {value: counted[value] for value in spread(list(counted), SAMPLED_PARTITIONS)}
    names = tuple(rows.source.names)
    few = tuple(name for name in names if columns is None or name in columns) or names[:1]
    request = SampleRequest(features, partition_by, segment_rows, sampled, sample_rows, few)
    sample = rows.read(lambda rows: rows.draw(request))
    if len(few) == len(names) or not sample.segments:
        return sample
    middle = sample.segments[len(sample.segments) // 2]
    partition = middle.value, middle.partition_rows
    return replace(sample, measured=cache(partial(_draw_all_columns, rows, features, partition, MEASURED_ROWS)))


def build_histograms(
    sample: RowSample, features: FeatureSet, queries: Sequence[Query], schema: Schema
) -> list[PartitionHistogram]:
    """Build the histograms of the sampled partitions, for classes of training queries, with counts scaled up."""
    shares = feature_shares(features, queries)
    histograms = []
    for segment in sample.segments:
        words = project(segment.words, sample.features.places(features))
        vectors = VectorCounts.of_rows(words, len(features)).scale(segment.scale)
        reached = weigh_reaching_queries(queries, schema, segment.table)
        weights = segment_weights(shares, reached, vectors)
        histograms.append(PartitionHistogram(segment.value, segment.partition_rows, vectors, reached, weights))
    return histograms


@dataclass(frozen=True)
class BytesRead:
    """What queries would read of a table, by a sample; in the unit of the objective, which need not be bytes.

    Attributes:
        read: of each query, with the catalog's bytes, times its weight.
        full: of each query's full scan.
    """

    read: tuple[float, ...]
    full: tuple[float, ...]

    @property
    def fraction(self) -> float:
        """The share of all full scans that is read."""
        full = sum(self.full)
        return sum(self.read) / full if full else 0.0


NOTHING_READ = BytesRead((), ())


def evaluate_on_sample(sample: RowSample, plan: Plan, queries: Sequence[Query]) -> BytesRead:
    """Block the sample as a load by the plan would, and replay queries that were held out on the blocks."""
    merged = group_queries(queries)
    cells, names = _cell_bytes(sample, plan), sample.columns
    table, factors = _block_sample(sample, narrow_plan(plan, names))
    layouts = [layout for layout in plan.scheme.layouts if not set(names).isdisjoint(layout.columns)]
    chunks = np.array([len(layout.columns) for layout in layouts])
    rows = sum(segment.partition_rows for segment in sample.segments)
    read, full = np.zeros(len(merged)), np.zeros(len(merged))
    for places, plans in table.prune_all([(query.filter.root, query.columns) for query in merged]):
        for number, *by_plan in zip(range(places.start, places.stop), *plans, strict=True):
            query = merged[number]
            read[number] = query.weight * sum(_total_bytes(pruned, cells, factors, chunks) for pruned in by_plan)
            full[number] = query.weight * rows * sum(cells[name] for name in query.columns)
    return BytesRead(tuple(read.tolist()), tuple(full.tolist()))


@dataclass(frozen=True, eq=False)
class SegmentReads:
    """What queries would read of each segment of a sample, scaled to the table.

    Attributes:
        read: bytes, ``float64[segments, queries]``.
        reached: bytes of a full scan where the segment as a whole is not skipped, ``float64[segments, queries]``.
    """

    read: Floats
    reached: Floats


def evaluate_sample_segments(
    sample: RowSample, plan: Plan, queries: Sequence[Query], tasks: Executor | None = None
) -> SegmentReads:
    """Block the sample as a load by the plan would, and replay queries, without weights, on each of its segments.

    ``tasks`` block segments of many rows in parallel.
    """
    cells = _cell_bytes(sample, plan)
    table, factors = _block_sample(sample, plan, tasks)
    rows = np.array([segment.partition_rows for segment in sample.segments], dtype=np.float64)
    read, reached = np.zeros((2, len(rows), len(queries)))
    (source,) = table.sources
    segments = np.array([int(entry.key) for entry in source.entries])[source.entry_of]
    for places, (batch,) in table.prune_all([(query.filter.root, query.columns) for query in queries]):
        for number, pruned in zip(range(places.start, places.stop), batch, strict=True):
            read[:, number] = np.bincount(segments, _block_bytes(pruned, cells, factors), len(rows))
            reached[segments[~pruned.excluded], number] = sum(cells[name] for name in queries[number].columns)
    return SegmentReads(read, reached * rows[:, None])


def _cell_bytes(sample: RowSample, plan: Plan) -> dict[str, float]:
    unit = sample.unit(sample.columns, plan.block_rows, plan.codec, plan.seed)
    return {**dict(zip(sample.columns, unit.cell.tolist(), strict=True)), TID: unit.tid}


def _block_bytes(pruned: PrunedPlan, cells: Mapping[str, float], factors: _Factors) -> Floats:
    blocks, block_bytes = pruned.source.blocks, np.zeros(pruned.source.blocks.n)
    tid = cells[TID] if len(pruned.choice) > 1 else 0.0
    for choice in pruned.choice:
        in_layout = pruned.read & (blocks.layout == choice.layout)
        block_bytes[in_layout] = tid + sum(cells[name] for name in choice.columns)
    return block_bytes * blocks.rows * factors.rows


def _total_bytes(pruned: PrunedPlan, cells: Mapping[str, float], factors: _Factors, chunks: Ints) -> float:
    """Return the bytes read, with the catalog's; ``chunks`` are the columns of each layout."""
    catalog = float((chunks[pruned.source.blocks.layout] * factors.blocks)[~pruned.excluded].sum())
    return float(_block_bytes(pruned, cells, factors).sum()) + CATALOG_BYTES_A_CHUNK * catalog


@dataclass(frozen=True, eq=False)
class _Factors:
    """What a block of the sample represents: ``rows`` of the table for each of its rows, and ``blocks``."""

    rows: Floats
    blocks: Floats


def _block_sample(sample: RowSample, plan: Plan, tasks: Executor | None = None) -> tuple[Table, _Factors]:
    """Make the table that a load of the sample would, in blocks as many times smaller as the sample is."""
    shares, segments = feature_shares(plan.features, plan.queries), sample.segments
    keys = tuple(f"{number}" for number in range(len(segments)))
    job = WriteJob(plan, shares, "sampled", new_load_id(), 0, keys, (0,) * len(keys), rehearsal=True)
    if tasks is None or sum(segment.table.num_rows for segment in segments) < _MANY_ROWS:
        tables = [_block_segment(sample, job, number) for number in range(len(segments))]
    else:
        block = partial(_block_segment, sample, job)  # with the whole sample
        tables = map_in_groups(tasks, range(len(segments)), block, groups_a_core=1)
    counts = [table.num_rows for table in tables]
    partition_factors = [segment.partition_rows / segment.rows for segment in segments]
    scales = [segment.scale for segment in segments]
    table = Table(dry_run_catalog(plan, job, pa.concat_tables(tables)))
    return table, _Factors(
        np.repeat(np.multiply(scales, partition_factors), counts), np.repeat(partition_factors, counts)
    )


def _block_segment(sample: RowSample, job: WriteJob, number: int) -> pa.Table:
    plan, segment = job.plan, sample.segments[number]
    job = replace(
        job,
        plan=shrink_blocks(plan, segment.scale),
        first_block=number << 32,
        keys=job.keys[number : number + 1],
        numbers=(0,),
        sized=False,
    )
    words = project(segment.words, sample.features.places(plan.features))
    return write_layouts(job, GatheredSegment(0, segment.table.select(list(plan.schema.names)), words))[0]
