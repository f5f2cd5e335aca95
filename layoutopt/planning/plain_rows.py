"""Read the rows of plain Parquet files for planning, by Arrow in tasks of any executor.

Rows are drawn by their places in the files (:mod:`layoutopt.sources.profile`): samples are the same on any number
of cores, and by processes of this machine as by Spark's tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import ceil
from tempfile import TemporaryDirectory
from threading import Lock, Thread
from typing import Final

import pyarrow as pa

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.errors import NeedsSparkError
from layoutopt.external.snapshot import SnapshotFile
from layoutopt.methods.interface import PlanRequest
from layoutopt.model.arrays import spread
from layoutopt.model.feature import FeatureSet
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.layout import Plan
from layoutopt.model.schema import POSITION, SEGMENT, Column
from layoutopt.planning.rows import RowCounts, Rows, SegmentTask, SelectColumns
from layoutopt.planning.sample_evaluation import RowSample, SampleRequest
from layoutopt.planning.segment_evaluation import ChosenSegments, choose_segments, few_rows_by_value
from layoutopt.planning.source_profile import COUNTED_PARTITIONS, SAMPLE_ROWS, SAMPLED_PARTITIONS
from layoutopt.sources.executor import Batches, Executor, Processes, Value, ignore_errors
from layoutopt.sources.listing import estimate_rows, list_source_files
from layoutopt.sources.profile import (
    DRAW,
    DrawJob,
    counts_by_key,
    draw_limit,
    evaluate_vectors,
    profile_rows,
    select_drawn,
)
from layoutopt.sources.segments import Chunk, Segment, segment_ranges
from layoutopt.sources.shuffle import (
    LEAST_ROWS,
    ShuffledRows,
    write_shuffle_batches,
)
from layoutopt.sources.source import Source, list_versions, open_files
from layoutopt.sources.split import arrow_schema
from layoutopt.sources.vectors import check_features_by_arrow, evaluate_words
from layoutopt.writer.segment import FindWords, sort_by_position

_FEWEST_SPLITS: Final = 4
# Rows read for each row drawn from few files: neighbouring rows are more alike than those of a block.
_READ_PER_DRAWN: Final = 4


@dataclass(frozen=True)
class Reading:
    """What a pass over the source reads: some columns of all rows of segments, and of rows drawn from partitions.

    Attributes:
        sample_rows: about so many rows of each partition.
    """

    columns: frozenset[str]
    segments: tuple[Segment, ...]
    sample_rows: Mapping[PlainValue, int]

    def covers(self, other: Reading) -> bool:
        """Return whether it reads all that the other does."""
        has_segments = not other.segments or self.segments == other.segments
        has_rows = all(rows <= self.sample_rows.get(value, 0) for value, rows in other.sample_rows.items())
        return has_segments and has_rows and self.columns >= other.columns


@dataclass(frozen=True, eq=False)
class SourcePass:
    """What a pass over the source left.

    Attributes:
        reading: what it read.
        drawn: the rows drawn, with their numbers ``_draw``, in the order of the files' names.
        shuffled: the rows of segments in files of this machine; None if there are no segments.
        folder: is removed with the pass.
    """

    reading: Reading
    drawn: pa.Table
    shuffled: ShuffledRows | None = None
    folder: TemporaryDirectory[str] | None = None


@dataclass(frozen=True, eq=False)
class PlainRows(Rows):
    """The rows of plain Parquet files.

    One pass reads the segments and samples that planning usually needs: those of ``wanted_columns``. Requests for more
    read again. Tasks on other machines draw the samples in a pass of their own, and shuffle segments when these are
    tried.

    Attributes:
        wanted_columns: those that features and queries use.
        segment_rows: of the segments that are tried; None where none are.
    """

    source: Source
    wanted_columns: frozenset[str] = frozenset()
    segment_rows: int | None = None
    _passes: list[SourcePass] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns."""
        return self.source.schema.names

    @property
    def tasks(self) -> Executor:
        """The executor that reads the files."""
        return self.source.executor

    @property
    def partition_rows(self) -> Mapping[PlainValue, int]:
        """The rows of each partition, by the files' footers or their partition column."""
        return self.source.partition_rows

    def chunks(self, segment_rows: int) -> list[Chunk]:
        """Return chunks in the order of the files' names."""
        return self.source.chunks(segment_rows)

    def count(self, features: FeatureSet, bounded: Sequence[Column], select: SelectColumns) -> RowCounts:
        """Estimate the vectors of some partitions by rows drawn; exact where all rows are."""
        values = spread(list(self.partition_rows), COUNTED_PARTITIONS)
        partition_rows = {value: self.partition_rows[value] for value in values}
        counted = self.count_some(features, bounded, select, partition_rows, SAMPLE_ROWS)
        vectors = {value: one.scale(partition_rows[value] / one.rows) for value, one in counted.vectors.items()}
        return counted._replace(vectors=vectors)

    def count_some(
        self,
        features: FeatureSet,
        bounded: Sequence[Column],
        select: SelectColumns,
        partition_rows: Mapping[PlainValue, int],
        sample_rows: int,
    ) -> RowCounts:
        """Count the vectors of rows drawn, and measure their bounds."""
        names = set().union(*(feature.columns for feature in features), (column.name for column in bounded))
        drawn = self._draw(dict.fromkeys(partition_rows, sample_rows), names)
        profile = profile_rows(self.source.cut_job(drawn.column_names), drawn, features, bounded)
        return RowCounts(counts_by_key(profile.pairs, len(features)), profile.bounds, bounded)

    def draw(self, request: SampleRequest) -> RowSample:
        """Draw rows in the order of the files' names."""
        drawn = self._draw(dict.fromkeys(request.partition_rows, request.sample_rows), request.columns)
        return request.build_sample(drawn, evaluate_vectors(request.features, drawn, self.source.schema))

    def draw_all_columns(self, features: FeatureSet, partition: tuple[PlainValue, int], wanted: int) -> pa.Table:
        """Draw from the first rows of a few files spread evenly: all columns of all rows would take long to read."""
        value, _ = partition
        candidates = [(split, counts[value]) for split, counts in self.source.splits if value in counts]
        mean_rows = sum(rows for _, rows in candidates) / max(1, len(candidates))
        count = max(_FEWEST_SPLITS, ceil(_READ_PER_DRAWN * wanted / max(1.0, mean_rows)))
        few = spread(candidates, count)
        share = wanted / max(1, sum(rows for _, rows in few))
        is_part = share < 1 / _READ_PER_DRAWN
        limits = {value: draw_limit(1 / _READ_PER_DRAWN if is_part else share)}
        enough = ceil(wanted / len(few)) if is_part else None
        draws = {split.low: limits for split, _ in few}
        job = DrawJob(self.source.cut_job(self.source.schema.names), draws, enough)
        return pa.concat_tables(self.source.run(job, [split for split, _ in few])).drop_columns([DRAW])

    def map_segments(
        self, plan: Plan, chosen: ChosenSegments, request: SampleRequest, task: SegmentTask[Value]
    ) -> tuple[list[Value], RowSample]:
        """Return a task's results for each segment, and the sample; reads the files unless they were read for it."""
        few, columns = dict.fromkeys(request.partition_rows, request.sample_rows), frozenset(request.columns)
        evaluate_rest, parts = partial(evaluate_words, settings=plan.settings), list[Sequence[Value] | None]()
        if self.tasks.shuffles_openly:
            shuffled = self._find_pass(Reading(columns, chosen.segments, few)).shuffled
            assert shuffled is not None, "segments were read"
            run = partial(_run_task, shuffled.read, chosen.shares, task, evaluate_rest)
            parts += self.tasks.map(range(chosen.shares * len(chosen.segments)), run)
        else:
            run_shares = partial(_run_shares, chosen.shares, task, evaluate_rest)
            parts += self.source.map_segments(chosen.segments, run_shares, columns=columns)
        sample = self.draw(request) if few else RowSample(request.features, ())
        return [value for part in parts for value in part or ()], sample

    def prefetch(self) -> None:
        """Read the segments and samples in the background, in processes of this machine."""
        if not self.tasks.shuffles_openly:
            return
        Thread(target=ignore_errors, args=(lambda: self._find_pass(self._wanted),), daemon=True).start()

    def warm_up(self) -> None:
        """Let the processes import the blocking code, which takes a second, in the background."""
        self.tasks.begin(_import_blocking)

    def _find_pass(self, reading: Reading) -> SourcePass:
        """Return the last pass if it read what is requested, or a new one: over all that is wanted, if that has it."""
        with self._lock:
            if not self._passes or not self._passes[0].reading.covers(reading):
                self._passes[:] = [self._read(self._wanted if self._wanted.covers(reading) else reading)]
            return self._passes[0]

    @cached_property
    def _wanted(self) -> Reading:
        """The rows and columns that planning usually needs."""
        segments = () if self.segment_rows is None else choose_segments(self, self.segment_rows).segments
        values = list(self.partition_rows)
        often = (*spread(values, SAMPLED_PARTITIONS), *spread(values, COUNTED_PARTITIONS))
        few = few_rows_by_value([segment.value for segment in segments], values)
        return Reading(self.wanted_columns, segments, {**few, **dict.fromkeys(often, SAMPLE_ROWS)})

    def _read(self, reading: Reading) -> SourcePass:
        """Read the files that have any of the rows once."""
        draws = self._split_limits(reading.sample_rows)
        segments = reading.segments if self.tasks.shuffles_openly else ()
        ranges = segment_ranges(segments)
        splits = [
            split for split, counts in self.source.splits if split.low in draws or ranges.overlapping(split, counts)
        ]
        job = replace(self.source.cut_job(reading.columns), ranges=ranges, compressed=False)
        reading = replace(reading, columns=frozenset(job.read_schema.names), segments=segments)
        draw_job = DrawJob(job, draws)
        if not self.tasks.shuffles_openly:
            return SourcePass(reading, pa.concat_tables(self.source.run(draw_job, splits)).combine_chunks())
        folder, last = TemporaryDirectory(prefix="layoutopt-"), len(segments)
        extra_batches = partial(draw_job.pack, last)
        written = self.tasks.map(
            list(enumerate(self.source.group(splits))), partial(write_shuffle_batches, job, extra_batches, folder.name)
        )
        shuffled = ShuffledRows.of(folder.name, written)
        batches = list(shuffled.read(last, last))
        drawn = arrow_schema(job.read_schema).append(pa.field(DRAW, pa.int32())).empty_table()
        if batches:
            drawn = sort_by_position(pa.Table.from_batches(batches)).drop_columns([SEGMENT, POSITION]).combine_chunks()
        return SourcePass(reading, drawn, shuffled, folder)

    def _draw(self, sample_rows: Mapping[PlainValue, int], columns: Collection[str]) -> pa.Table:
        """Draw about so many rows of each of some partitions, in the order of the files' names."""
        job = self.source.cut_job(columns)
        drawn = self._find_pass(Reading(frozenset(job.read_schema.names), (), sample_rows)).drawn
        limits: dict[PlainValue, int] = {}
        for by_value in self._split_limits(sample_rows).values():  # a partition has one limit in all splits
            limits.update(by_value)
        return select_drawn(job, drawn, limits).select(job.read_schema.names)

    def _split_limits(self, sample_rows: Mapping[PlainValue, int]) -> dict[int, dict[PlainValue, int]]:
        """Return the limits of about so many rows of each of some partitions, by the positions of some splits."""
        limits: dict[int, dict[PlainValue, int]] = {}
        for value, wanted in sample_rows.items():
            splits, rows = self.source.sample_splits(value)
            for split in splits:
                limits.setdefault(split.low, {})[value] = draw_limit(wanted / max(1, rows))
        return limits


def _run_task(
    read: Callable[[int, int], Batches],
    shares: int,
    task: SegmentTask[Value],
    evaluate_rest: FindWords,
    number: int,
) -> Sequence[Value]:
    return task(read(number // shares, number), evaluate_rest)


def _run_shares(
    shares: int, task: SegmentTask[Value], evaluate_rest: FindWords, segment: int, batches: Batches
) -> list[Value]:
    """Return the values of all tasks that share a segment's rows."""
    rows, values = list(batches), list[Value]()
    for number in range(shares * segment, shares * (segment + 1)):
        values += task((_with_segment(batch, number) for batch in rows), evaluate_rest)
    return values


def _with_segment(batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    place = batch.schema.get_field_index(SEGMENT)
    numbers = pa.repeat(pa.scalar(number, batch.schema.field(place).type), batch.num_rows)
    return batch.set_column(place, batch.schema.field(place), numbers)


def _import_blocking(number: int) -> None:
    import layoutopt.partitioning.local_search_loops  # noqa: F401


def open_plain_rows(
    source: str, document: FeaturesDocument, request: PlanRequest, executor: Executor | None = None
) -> PlainRows:
    """Open a source's plain files.

    Args:
        source: a path.
        document: the columns of the table, and features and queries that planning will evaluate.
        request: names the partition column, and how many rows a segment has at most.
        executor: reads the files; None for processes of this machine.

    Raises:
        NeedsSparkError: Arrow might read a file or a feature otherwise than Spark.
        SourceError: a file is damaged.
    """
    files = list_source_files(source, document.schema, request.partition_by)
    return open_plain_files(source, files, document, request, executor)


def check_are_many(files: Sequence[SnapshotFile]) -> None:
    """Raise NeedsSparkError for files of few rows, which a session that runs reads as fast."""
    if estimate_rows(files) < LEAST_ROWS:
        raise NeedsSparkError(f"there are fewer than {LEAST_ROWS:,} rows")


def open_plain_files(
    name: str,
    files: Sequence[SnapshotFile],
    document: FeaturesDocument,
    request: PlanRequest,
    executor: Executor | None = None,
) -> PlainRows:
    """Open some files of a source as :func:`open_plain_rows` opens all."""
    features = document.features
    source = open_files(
        name, list_versions(name, files), document.schema, request.partition_by, executor or Processes()
    )
    if not source.splits:
        raise NeedsSparkError("the source has no rows")
    check_features_by_arrow(source.cut_job(source.schema.names), source.splits[0][0], features)
    columns = {*request.by, *(request.row_order or ())}.union(
        *(feature.columns for feature in features), *(query.columns for query in document.queries)
    )
    return PlainRows(
        source,
        frozenset(name for name in source.schema.names if name in columns or name == request.partition_by),
        request.segment_rows if document.queries else None,
    )
