"""Plans judged on a sample of rows: blocked as a load would block them, and replayed with queries held back.

A block of the table is as many times smaller in the sample as the sample is smaller than the segment. Everything that
skips is there: feature bits and statistics are measured on the blocks of the sample, by the code of a load. Bytes are
cells, each by what one of its column takes in blocks of the table's size, and the catalog that the query looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.catalog.paths import new_load_id
from layoutopt.features.weights import feature_shares, segment_weights
from layoutopt.local.processes import Tasks
from layoutopt.local.profile import vectors
from layoutopt.methods.interface import PartitionHistogram, PlanRequest
from layoutopt.model.arrays import Floats, Ints, Words, spread
from layoutopt.model.feature import FeatureSet
from layoutopt.model.layout import Plan
from layoutopt.model.query import Query, classes
from layoutopt.model.schema import POSITION, TID, Schema
from layoutopt.model.vectors import VectorCounts, distinct, project
from layoutopt.scan.prune import PrunedPlan, PruneOutcome
from layoutopt.scan.table import Table
from layoutopt.search.problem import Unit
from layoutopt.spark.core.featurize import with_feature_words
from layoutopt.spark.core.partition_values import of_partitions
from layoutopt.spark.core.segments import with_positions
from layoutopt.spark.core.sessions import compiled_in_parts
from layoutopt.spark.core.source import with_binaries
from layoutopt.spark.loading.dry_run import narrowed, rehearsed_catalog
from layoutopt.spark.planning.source_profile import (
    SAMPLE_ROWS,
    SAMPLED_PARTITIONS,
    Rows,
    by_arrow_or_spark,
    drawn_rows,
    names_of,
    rows_by_partition,
    rows_drawn,
)
from layoutopt.writer.encodings import bytes_a_row
from layoutopt.writer.evaluation import segment_words, words_of
from layoutopt.writer.routing import reaching
from layoutopt.writer.segment import GatheredSegment
from layoutopt.writer.task import WriteJob, scaled, write_layouts

# ----------------------------------------------------------------------------------------------------
# What a cell costs in bytes: measured on rows drawn at random, encoded as a load would encode them.
#
# The thesis counts cells; but a text of forty characters is not a flag. A block holds a few of its segment's rows, far
# apart in the source: rows drawn at random are as far apart, so they compress as a block's do.

_MEASURED_BLOCKS = 2
MEASURED_ROWS = 30_000
"""Rows encoded at most to measure what cells take."""


def unit_in_bytes(rows: Rows, features: FeatureSet, partition: tuple[PlainValue, int], request: PlanRequest) -> Unit:
    """Compressed bytes of a cell of each column, and of a tid, with each column chunk's share of the footer.

    Args:
        rows: the source.
        features: the plan's.
        partition: the value and the rows of the partition to measure.
        request: names the partition column, the size of blocks and segments, and the compression.
    """
    wanted = min(_MEASURED_BLOCKS * request.block_rows, MEASURED_ROWS)
    sample = rows_to_measure(rows, features, partition, request.partition_by, wanted)
    columns, in_segment = names_of(rows), min(partition[1], request.segment_rows)
    return measured_unit(sample, columns, request.block_rows, in_segment, request.codec, request.seed)


def rows_to_measure(
    rows: Rows, features: FeatureSet, partition: tuple[PlainValue, int], partition_by: str | None, wanted: int
) -> pa.Table:
    """About so many rows of a partition with all columns, twice as many at most.

    Args:
        rows: the source.
        features: those of a plan, whose columns Spark draws by.
        partition: its value and its rows.
        partition_by: the partition column, None for none.
        wanted: how many.
    """
    value, count = partition

    def by_spark(frame: DataFrame) -> pa.Table:
        some = frame if partition_by is None else of_partitions(frame, partition_by, [value])
        return with_binaries(rows_drawn(some, features, wanted / max(1, count))).toArrow()

    return by_arrow_or_spark(rows, lambda plain: plain.drawn_of_few(value, wanted), by_spark).slice(0, 2 * wanted)


def measured_unit(
    sample: pa.Table, columns: Sequence[str], block_rows: int, segment_rows: int, codec: str, seed: int
) -> Unit:
    """The unit of rows drawn from a segment, in the source's order; all 1 where there are none.

    Args:
        sample: the rows.
        columns: of the table, in order.
        block_rows: the mean block.
        segment_rows: of the segment; tids are below.
        codec: the Parquet compression.
        seed: of the tids drawn.
    """
    if not sample.num_rows:
        return Unit.cells(len(columns))
    drawn = np.random.default_rng(seed).integers(0, segment_rows, sample.num_rows)
    offsets = np.append(np.arange(0, sample.num_rows, block_rows), sample.num_rows)
    for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        drawn[start:stop].sort()
    measured = bytes_a_row(sample.append_column(TID, pa.array(drawn, pa.int32())), offsets, codec)
    return Unit(np.array([measured[name] for name in columns]), measured[TID])


CATALOG_BYTES_A_CHUNK = 12
"""Of the catalog, for each block and column: TPC-H's statistics, bounds and unions, compressed."""

_MANY_ROWS = 20_000
"""Blocking them takes seconds, sending them to a task for each core much less."""


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
    """Rows of some partitions with their vectors: what plans are tried on.

    Attributes:
        features: bit ``i`` of the words is feature ``i``; plans that are tried have some of them.
        segments: one a partition.
        measured: gives rows of the middle one with all columns; None where the segments' own will do.
    """

    features: FeatureSet
    segments: tuple[SampledSegment, ...]
    measured: Callable[[], pa.Table] | None = None

    def unit(self, columns: tuple[str, ...], block_rows: int, codec: str, seed: int) -> Unit:
        """What a cell of each column and a tid take in blocks of that size, measured on one of the segments."""
        key = (columns, block_rows, codec, seed)
        if key not in self._units:
            middle = self.segments[len(self.segments) // 2]
            rows = middle.table
            if self.measured is not None and not set(columns) <= set(self.columns):
                rows = self.measured()
            rows = rows.select(list(columns)).slice(0, MEASURED_ROWS)
            self._units[key] = measured_unit(rows, columns, block_rows, middle.rows, codec, seed)
        return self._units[key]

    def alone(self) -> RowSample:
        """The sample as a task can have it, with what was measured so far."""
        alone = replace(self, measured=None)
        alone._units.update(self._units)
        return alone

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the segments have."""
        return tuple(self.segments[0].table.column_names)

    @cached_property
    def _units(self) -> dict[tuple[tuple[str, ...], int, str, int], Unit]:
        return {}


@dataclass(frozen=True)
class SampleRequest:
    """Which rows are drawn from some partitions.

    Attributes:
        features: all that plans to be tried are made of.
        partition_by: the partition column, or None.
        segment_rows: the most rows of a segment.
        partition_rows: by value, the rows of each partition to draw from.
        sample_rows: rows wanted of each.
        columns: that the sample is to have.
    """

    features: FeatureSet
    partition_by: str | None
    segment_rows: int
    partition_rows: Mapping[PlainValue, int]
    sample_rows: int
    columns: tuple[str, ...]

    def sample(self, found: pa.Table, words: Words) -> RowSample:
        """The sample that the rows drawn are, with their vectors over ``features``."""
        segments = []
        for value, count in self.partition_rows.items():
            of_value = (
                np.arange(len(words)) if self.partition_by is None else _places_of(found[self.partition_by], value)
            )
            table = found.select(list(self.columns)).take(pa.array(of_value)).combine_chunks()
            segments.append(SampledSegment(value, count, min(count, self.segment_rows), table, words[of_value]))
        return RowSample(self.features, tuple(segment for segment in segments if segment.table.num_rows))


def draw_sample(
    rows: Rows,
    features: FeatureSet,
    partition_by: str | None,
    segment_rows: int,
    sample_rows: int = SAMPLE_ROWS,
    columns: Collection[str] | None = None,
) -> RowSample:
    """Draw about ``sample_rows`` rows of each of a few partitions, spread evenly.

    By a hash of their content, or of their places in plain files; the same on any number of cores.

    Args:
        rows: the source.
        features: all that plans to be tried are made of.
        partition_by: the partition column, or None.
        segment_rows: the most rows of a segment.
        sample_rows: rows wanted of each partition.
        columns: that plans and queries look at, the partition column among them; all when None.
    """
    counted = rows_by_partition(rows, partition_by)
    sampled = {value: counted[value] for value in spread(list(counted), SAMPLED_PARTITIONS)}
    names = tuple(names_of(rows))
    few = tuple(name for name in names if columns is None or name in columns) or names[:1]
    sample = draw_sample_of(rows, SampleRequest(features, partition_by, segment_rows, sampled, sample_rows, few))
    if len(few) == len(names) or not sample.segments:
        return sample
    middle = sample.segments[len(sample.segments) // 2]
    of_middle = middle.value, middle.partition_rows
    measured = cache(partial(rows_to_measure, rows, features, of_middle, partition_by, MEASURED_ROWS))
    return replace(sample, measured=measured)


def draw_sample_of(rows: Rows, wanted: SampleRequest) -> RowSample:
    """Draw rows as :func:`draw_sample` does, of the partitions named."""
    return by_arrow_or_spark(
        rows,
        lambda plain: drawn_by_place(
            plain.drawn(wanted.partition_rows, wanted.sample_rows, wanted.columns), plain.schema, wanted
        ),
        lambda frame: _drawn_by_content(frame, wanted),
    )


def drawn_by_place(found: pa.Table, schema: Schema, wanted: SampleRequest) -> RowSample:
    """The sample that rows drawn from plain files are.

    Raises:
        NeedsSparkError: Arrow can't tell a feature.
    """
    return wanted.sample(found, vectors(wanted.features.features, found, schema))


def _drawn_by_content(rows: DataFrame, wanted: SampleRequest) -> RowSample:
    """Rows drawn by a hash of their content, in the source's order."""
    features, columns = wanted.features, wanted.columns
    # Positions come last: what is drawn depends on content alone.
    few = drawn_rows(rows, features, wanted.partition_by, wanted.partition_rows, wanted.sample_rows)
    with compiled_in_parts(rows.sparkSession):
        found = with_binaries(
            with_feature_words(with_positions(few), features.features, (*columns, POSITION))
        ).toArrow()
    found = found.take(pa.array(np.argsort(np.asarray(found[POSITION]), kind="stable")))
    words = segment_words(features.features, found.select(list(columns)), lambda left: words_of(found, len(left)))
    return wanted.sample(found, words)


def _places_of(column: pa.ChunkedArray, value: PlainValue) -> Ints:
    matches = pc.is_null(column) if value is None else pc.equal(column, pa.scalar(value, column.type))
    found: Ints = np.flatnonzero(np.asarray(pc.fill_null(matches, False)))
    return found


def histograms_of(
    sample: RowSample, features: FeatureSet, queries: Sequence[Query], schema: Schema
) -> list[PartitionHistogram]:
    """What planning would know of the sampled partitions: vectors over some of the features, counted up to segments.

    Args:
        sample: the rows.
        features: some of the sample's.
        queries: the classes of the training queries.
        schema: the table's.
    """
    shares = feature_shares(features, queries)
    found = []
    for segment in sample.segments:
        words, _, counts = distinct(project(segment.words, sample.features.places(features)))
        counts = np.maximum(1, np.rint(counts * segment.scale)).astype(np.int64)
        vectors = VectorCounts(words, counts, len(features))
        reached = reaching(queries, schema, segment.table)
        found.append(
            PartitionHistogram(
                segment.value, segment.partition_rows, vectors, reached, segment_weights(shares, reached, vectors)
            )
        )
    return found


@dataclass(frozen=True)
class BytesRead:
    """What queries would read of a table, by a sample; or take of it, where another objective than bytes counts.

    Attributes:
        read: bytes of each query, the catalog's included and its weight counted.
        full: bytes of each query's full scan.
    """

    read: tuple[float, ...]
    full: tuple[float, ...]

    @property
    def fraction(self) -> float:
        """What is read of all full scans."""
        full = sum(self.full)
        return sum(self.read) / full if full else 0.0


NOTHING_READ = BytesRead((), ())
"""What no queries read."""


def evaluate_on_sample(sample: RowSample, plan: Plan, queries: Sequence[Query]) -> BytesRead:
    """Block the sample as a load by the plan would, and replay queries on the blocks.

    Args:
        sample: the rows; the plan's features are some of its.
        plan: the plan.
        queries: held back from it.
    """
    merged = classes(queries)
    cells, held = _cells_of(sample, plan), sample.columns
    table, factors = _rehearsed(sample, narrowed(plan, held))
    layouts = [layout for layout in plan.scheme.layouts if not set(held).isdisjoint(layout.columns)]
    chunks = np.array([len(layout.columns) for layout in layouts])
    rows = sum(segment.partition_rows for segment in sample.segments)
    read, full = np.zeros(len(merged)), np.zeros(len(merged))
    for number, query in enumerate(merged):
        found = (_bytes_of(pruned, cells, factors, chunks) for pruned in table.prune(query.filter.root, query.columns))
        read[number] = query.weight * sum(found)
        full[number] = query.weight * rows * sum(cells[name] for name in query.columns)
    return BytesRead(tuple(read.tolist()), tuple(full.tolist()))


@dataclass(frozen=True, eq=False)
class SegmentReads:
    """What queries would read of each segment of a sample, by the size of the table.

    Attributes:
        read: bytes, ``float64[segments, queries]``.
        reached: bytes of a full scan where the segment as a whole is not skipped, ``float64[segments, queries]``.
    """

    read: Floats
    reached: Floats


def segments_on_sample(
    sample: RowSample, plan: Plan, queries: Sequence[Query], tasks: Tasks | None = None
) -> SegmentReads:
    """Block the sample as a load by the plan would, and replay queries on each of its segments.

    Args:
        sample: the rows, of all columns of the plan.
        plan: the plan.
        queries: not merged, nor weighed.
        tasks: that block segments of many rows side by side; left out, they are blocked here.
    """
    cells = _cells_of(sample, plan)
    table, factors = _rehearsed(sample, plan, tasks)
    rows = np.array([segment.partition_rows for segment in sample.segments], dtype=np.float64)
    read, reached = np.zeros((2, len(rows), len(queries)))
    (source,) = table.sources
    of_block = np.array([int(entry.key) for entry in source.entries])[source.entry_of]
    for number, query in enumerate(queries):
        (pruned,) = table.prune(query.filter.root, query.columns)
        read[:, number] = np.bincount(of_block, _bytes_by_block(pruned, cells, factors), len(rows))
        looked_at = of_block[pruned.outcome != PruneOutcome.PARTITION]
        reached[looked_at, number] = sum(cells[name] for name in query.columns)
    return SegmentReads(read, reached * rows[:, None])


def _cells_of(sample: RowSample, plan: Plan) -> dict[str, float]:
    """The bytes of a cell of each column in blocks of the plan's size, and of a tid."""
    unit = sample.unit(sample.columns, plan.block_rows, plan.codec, plan.seed)
    return {**dict(zip(sample.columns, unit.cell.tolist(), strict=True)), TID: unit.tid}


def _bytes_by_block(pruned: PrunedPlan, cells: Mapping[str, float], factors: _Factors) -> Floats:
    """The bytes of data and tids that are read of each block."""
    blocks, bytes_ = pruned.source.blocks, np.zeros(pruned.source.blocks.n)
    tid = cells[TID] if len(pruned.choice) > 1 else 0.0
    for choice in pruned.choice:
        mine = pruned.read & (blocks.layout == choice.layout)
        bytes_[mine] = tid + sum(cells[name] for name in choice.columns)
    return bytes_ * blocks.rows * factors.rows


def _bytes_of(pruned: PrunedPlan, cells: Mapping[str, float], factors: _Factors, chunks: Ints) -> float:
    """The bytes that are read, the catalog's included; ``chunks`` are the columns of each layout of the table."""
    looked_at = pruned.outcome != PruneOutcome.PARTITION
    catalog = float((chunks[pruned.source.blocks.layout] * factors.blocks)[looked_at].sum())
    return float(_bytes_by_block(pruned, cells, factors).sum()) + CATALOG_BYTES_A_CHUNK * catalog


@dataclass(frozen=True, eq=False)
class _Factors:
    """What a block of the sample stands for: so many ``rows`` for each of its, and so many ``blocks`` of the table."""

    rows: Floats
    blocks: Floats


def _rehearsed(sample: RowSample, plan: Plan, tasks: Tasks | None = None) -> tuple[Table, _Factors]:
    """The table that a load of the sample would make, in blocks as many times smaller as the sample is."""
    shares, segments = feature_shares(plan.features, plan.queries), sample.segments
    keys = tuple(f"{number}" for number in range(len(segments)))
    job = WriteJob(plan, shares, "sampled", new_load_id(), 0, keys, (0,) * len(keys), rehearsal=True)
    if tasks is None or sum(segment.table.num_rows for segment in segments) < _MANY_ROWS:
        tables = [_blocks_of(sample, job, number) for number in range(len(segments))]
    else:
        count = min(len(segments), tasks.cores)
        of_tasks = tasks.each(count, partial(_share_of_blocks, sample, job, count))
        tables = [of_tasks[number % count][number // count] for number in range(len(segments))]
    counts = [table.num_rows for table in tables]
    of_segment = [segment.partition_rows / segment.rows for segment in segments]
    scales = [segment.scale for segment in segments]
    table = Table(rehearsed_catalog(plan, job, pa.concat_tables(tables)))
    return table, _Factors(np.repeat(np.multiply(scales, of_segment), counts), np.repeat(of_segment, counts))


def _share_of_blocks(sample: RowSample, job: WriteJob, tasks: int, task: int) -> list[pa.Table]:
    """The blocks of every so many-th segment; the body of a task, each of which gets the whole sample."""
    return [_blocks_of(sample, job, number) for number in range(task, len(sample.segments), tasks)]


def _blocks_of(sample: RowSample, job: WriteJob, number: int) -> pa.Table:
    """The blocks of one segment of a sample."""
    plan, segment = job.plan, sample.segments[number]
    small = scaled(plan, segment.scale)
    mine = replace(
        job, plan=small, first_block=number << 32, keys=job.keys[number : number + 1], numbers=(0,), sized=False
    )
    words = project(segment.words, sample.features.places(plan.features))
    gathered = GatheredSegment(0, segment.table.select(list(plan.schema.names)), words)
    return write_layouts(mine, gathered)[0]
