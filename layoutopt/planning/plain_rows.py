"""Read the rows of plain Parquet files on this machine for planning, by Arrow in processes.

Rows are drawn by their places in the files (:mod:`layoutopt.local.profile`), so that samples are the same on any number
of cores.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.errors import NeedsSparkError
from layoutopt.local.local_rows import LocalRows, count_partition_rows
from layoutopt.local.parquet_files import arrow_schema
from layoutopt.local.processes import Processes, Task, Tasks
from layoutopt.local.profile import (
    KEY,
    MAX_PAIRS,
    ROWS,
    DrawJob,
    Profile,
    ProfileJob,
    counts_by_key,
    draw_limit,
    evaluate_vectors,
    first_row_numbers,
    merge_nan_bounds,
)
from layoutopt.local.segments import Chunk, segment_ranges
from layoutopt.local.splits import (
    LEAST_ROWS,
    NO_RANGES,
    CutJob,
    count_files,
    estimate_rows,
    list_local_files,
    read_shuffle_batches,
    write_shuffle_batches,
)
from layoutopt.local.vectors import check_features_by_arrow, evaluate_words
from layoutopt.model.arrays import spread
from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.layout import Plan
from layoutopt.model.schema import POSITION, SEGMENT, Column, Schema
from layoutopt.planning.rows import RowCounts, Rows, SegmentTask, SelectColumns
from layoutopt.writer.segment import sort_by_position

if TYPE_CHECKING:
    from layoutopt.planning.sample_evaluation import RowSample, SampleRequest
    from layoutopt.planning.segment_evaluation import ChosenSegments

_FEWEST_SPLITS: Final = 4
# Rows read for each row drawn from few files: neighbouring rows are more alike than those of a block.
_READ_PER_DRAWN: Final = 4


@dataclass(frozen=True, eq=False)
class PlainRows(Rows):
    """The rows of plain Parquet files on this machine."""

    local: LocalRows

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns."""
        return self.local.schema.names

    @property
    def tasks(self) -> Tasks:
        """The executor that reads the files."""
        return self.local.tasks

    @property
    def partition_rows(self) -> Mapping[PlainValue, int]:
        """The rows of each partition, by the files' footers or their partition column."""
        return self.local.partition_rows

    def chunks(self, segment_rows: int) -> list[Chunk]:
        """Return chunks in the order of the files' names."""
        return self.local.chunks(segment_rows)

    def count(self, features: FeatureSet, bounded: Sequence[Column], select: SelectColumns) -> RowCounts:
        """Count vectors and measure bounds in one pass."""
        some_bounds, columns = self._bound_one_split(bounded), bounded
        if len(some_bounds) == len(self.partition_rows):  # the split says nothing of a partition without rows in it
            columns = select(some_bounds, bounded)
        profile = self._profile(features.features, columns)
        return RowCounts(counts_by_key(profile.pairs, len(features)), profile.bounds, columns)

    def count_some(
        self,
        features: FeatureSet,
        bounded: Sequence[Column],
        select: SelectColumns,
        partition_rows: Mapping[PlainValue, int],
        sample_rows: int,
    ) -> RowCounts:
        """Count the vectors of rows drawn; bounds take a pass only where a column is worth measuring."""
        names = set().union(*(feature.columns for feature in features), (column.name for column in bounded))
        pairs, some_bounds = self._profile_table(
            self._draw(partition_rows, sample_rows, names), features.features, bounded
        )
        columns = select(some_bounds, bounded)
        bounds = pa.table({KEY: list(partition_rows), ROWS: list(partition_rows.values())})
        if columns:
            bounds = self._profile((), columns, list(partition_rows)).bounds
        return RowCounts(counts_by_key(pairs, len(features)), bounds, columns)

    def draw(self, request: SampleRequest) -> RowSample:
        """Draw rows in the order of the files' names."""
        return self._build_sample(self._draw(request.partition_rows, request.sample_rows, request.columns), request)

    def _build_sample(self, drawn: pa.Table, request: SampleRequest) -> RowSample:
        return request.build_sample(drawn, evaluate_vectors(request.features.features, drawn, self.local.schema))

    def draw_all_columns(self, features: FeatureSet, partition: tuple[PlainValue, int], wanted: int) -> pa.Table:
        """Draw from a few files spread evenly: that measures cells without reading all columns of all files."""
        value, _ = partition
        candidates = [(split, counts[value]) for split, counts in self.local.splits if value in counts]
        mean_rows = sum(rows for _, rows in candidates) / max(1, len(candidates))
        count = max(_FEWEST_SPLITS, ceil(_READ_PER_DRAWN * wanted / max(1.0, mean_rows)))
        few = spread(candidates, count)
        cut_job = self.local.cut_job([split for split, _ in few], self.local.schema.names)
        rows = sum(rows for _, rows in few)
        return pa.concat_tables(self.local.run(self._draw_job(cut_job, {value: rows}, wanted)))

    def map_segments(
        self, plan: Plan, chosen: ChosenSegments, request: SampleRequest, task: SegmentTask, schema: str
    ) -> tuple[pa.Table, RowSample]:
        """Return a task's results for each segment, and the sample, in one pass over the files."""
        segments, shares, partition_rows = chosen.segments, chosen.shares, request.partition_rows
        splits = [
            split
            for split, counts in self.local.splits
            if not counts.keys().isdisjoint(partition_rows)
            or any(segment.may_overlap(split, counts) for segment in segments)
        ]
        job = replace(self.local.cut_job(splits, request.columns), ranges=segment_ranges(segments), compressed=False)
        extra_batches = None
        if partition_rows:
            extra_batches = partial(self._draw_job(job, partition_rows, request.sample_rows).pack, len(segments))
        with TemporaryDirectory(prefix="layoutopt-") as folder:
            written = self.tasks.map(len(job.tasks), partial(write_shuffle_batches, job, extra_batches, folder))
            read = partial(read_shuffle_batches, folder, written)
            count = shares * len(segments)
            *results, drawn = self.tasks.map(
                count + 1, partial(_run_or_collect, read, shares, count, partial(task, of_left=evaluate_words))
            )
        tables = [table for table in results if table is not None]
        drawn = arrow_schema(job.read_schema).empty_table() if drawn is None else drawn
        return pa.concat_tables(tables) if tables else pa.table({}), self._build_sample(drawn, request)

    def warm_up(self) -> None:
        """Let the processes import the blocking code, which takes a second, in the background."""
        self.tasks.begin(_import_blocking)

    def _profile(
        self, features: Sequence[Feature], bounded: Sequence[Column], values: Collection[PlainValue] | None = None
    ) -> Profile:
        """Count the feature vectors of each partition and measure the bounds of some columns there.

        ``values`` are the partitions to bound, all when None; vectors of other partitions may be included.
        """
        wanted = self.local.partition_rows.keys() if values is None else values
        names = set().union(*(feature.columns for feature in features), (column.name for column in bounded))
        cut_job = self.local.cut_job(self.local.splits_with(wanted), names)
        job = ProfileJob(cut_job, tuple(features), tuple(bounded), MAX_PAIRS // max(1, len(cut_job.tasks)))
        pairs, bounds = job.merge(self.local.run(job))
        is_wanted = pc.is_in(bounds[KEY], pa.array(list(wanted), bounds[KEY].type))
        return Profile(pairs, merge_nan_bounds(bounds.filter(is_wanted), bounded))

    def _bound_one_split(self, bounded: Sequence[Column]) -> pa.Table:
        """Return the bounds of some columns in each partition by the rows of one split; all rows' bounds are wider."""
        split, _ = self.local.splits[len(self.local.splits) // 2]
        job = ProfileJob(
            self.local.cut_job([split], [column.name for column in bounded]), (), tuple(bounded), MAX_PAIRS
        )
        (profile,) = self.local.run(job)
        return merge_nan_bounds(profile.bounds, bounded)

    def _profile_table(self, rows: pa.Table, features: Sequence[Feature], bounded: Sequence[Column]) -> Profile:
        """Return the profile of rows that were drawn."""
        job = ProfileJob(self.local.cut_job((), rows.column_names), tuple(features), tuple(bounded), MAX_PAIRS)
        pairs, bounds = job.profile_rows(rows)
        return Profile(pairs, merge_nan_bounds(bounds, bounded))

    def _draw(self, partition_rows: Mapping[PlainValue, int], sample_rows: int, columns: Collection[str]) -> pa.Table:
        """Draw about ``sample_rows`` rows of each partition in ``partition_rows``, in the order of the files' names."""
        cut_job = self.local.cut_job(self.local.splits_with(partition_rows), columns)
        return pa.concat_tables(self.local.run(self._draw_job(cut_job, partition_rows, sample_rows)))

    def _draw_job(self, job: CutJob, partition_rows: Mapping[PlainValue, int], sample_rows: int) -> DrawJob:
        limits = {value: draw_limit(sample_rows / max(1, count)) for value, count in partition_rows.items()}
        return DrawJob(job, limits, first_row_numbers(split for split, _ in self.local.splits))


def _run_or_collect(
    read: Callable[[int, int], Iterator[pa.RecordBatch]], shares: int, last: int, task: Task, number: int
) -> pa.Table | None:
    """Run the task on a segment's rows, or as the last task collect the rows drawn; None for no rows."""
    batches = read(number // shares, number)
    if number < last:
        results = list(task(batches))
        return pa.Table.from_batches(results) if results else None
    drawn = list(batches)
    return sort_by_position(pa.Table.from_batches(drawn)).drop_columns([SEGMENT, POSITION]) if drawn else None


def _import_blocking(number: int) -> None:
    import layoutopt.partitioning.local_search_loops  # noqa: F401


def open_plain_rows(
    source: str, schema: Schema, partition_by: str | None, features: FeatureSet, include_small: bool = False
) -> PlainRows | None:
    """Open a source's plain files; None where they have few rows, for which Spark is as good.

    Args:
        source: a path.
        schema: of the table.
        partition_by: the partition column, None for none.
        features: that rows will be evaluated for.
        include_small: whether few rows are opened too.

    Raises:
        NeedsSparkError: Arrow might read a file or a feature otherwise than Spark.
        SourceError: a file is damaged.
    """
    files = list_local_files(source, schema, partition_by)
    if not include_small and estimate_rows(files) < LEAST_ROWS:
        return None
    tasks = Processes()
    splits = count_files(files, schema, partition_by, tasks)
    if not splits:
        raise NeedsSparkError("the source has no rows")
    check_features_by_arrow(CutJob(schema, partition_by, NO_RANGES, ()), splits[0][0], features)
    return PlainRows(LocalRows(tasks, schema, partition_by, splits, count_partition_rows(splits)))
