"""Measure a source for planning: vectors and their counts by partition, rows drawn, and which queries reach what.

Rows of plain Parquet files on this machine are read by Arrow in processes (:class:`PlainRows`); Spark reads all other
sources. What only a plan depends on needs no proof by Spark: a load reads every row again and verifies it.

Methods that search over more features than rows can be counted by plan from samples: with hundreds of features nearly
every row has a vector of its own (Sun 2017, 4.5). Samples are the same on any number of cores: rows of plain files are
drawn by their places in the files (:mod:`layoutopt.local.profile`), others by their content
(:mod:`layoutopt.spark.planning.frame_rows`). PySpark, which takes a second to import, is imported only for the latter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.keys import FLOATS, has_key, key_array
from layoutopt.catalog.partition_names import PlainValue, null_first_key
from layoutopt.errors import BoundError, NeedsSparkError, PlanError
from layoutopt.events import Progress
from layoutopt.external.snapshot import parse_source_name
from layoutopt.features.weights import feature_shares, segment_weights
from layoutopt.local import local_rows
from layoutopt.local.local_rows import LocalRows
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
    first_row_numbers,
    merge_nan_bounds,
)
from layoutopt.local.segments import Segment, segment_ranges
from layoutopt.local.splits import (
    LEAST_ROWS,
    NO_RANGES,
    CutJob,
    LocalFile,
    Split,
    count_files,
    estimate_rows,
    list_local_files,
    read_shuffle_batches,
    write_shuffle_batches,
)
from layoutopt.local.vectors import check_features_by_arrow
from layoutopt.methods.interface import PartitionHistogram
from layoutopt.model.arrays import Bits, Floats, spread
from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.predicates import columns_of
from layoutopt.model.query import Query, filtered_columns
from layoutopt.model.schema import POSITION, SEGMENT, Column, Schema
from layoutopt.model.values import NAN_KEY, key_kind
from layoutopt.model.vectors import VectorCounts
from layoutopt.skipping.cannot_match import BlockStatistics, ColumnBounds, cannot_match
from layoutopt.writer.segment import sort_by_position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SAMPLED_PARTITIONS = 3
# Rows sampled of one partition.
SAMPLE_ROWS = 40_000
_TEXTS = ("string", "binary")
# The share of rows by which Spark decides whether a column's bounds can exclude a query from a partition.
_BOUNDS_SHARE = 0.01
_FEWEST_SPLITS: Final = 4
# Rows read for each row drawn from few files: neighbouring rows are more alike than those of a block.
_READ_PER_DRAWN: Final = 4

T = TypeVar("T", covariant=True)


@dataclass(eq=False)
class PlainRows(LocalRows):
    """The rows of a source of plain Parquet files on this machine, for planning.

    Methods raise NeedsSparkError also where results are too large for the driver.

    Attributes:
        open_frame: returns the same rows as a DataFrame; starts a session where there is none.
        say: receives the reason when Spark has to read the rows.
        needs_spark: whether Spark reads the rows from now on.
    """

    open_frame: Callable[[], DataFrame]
    say: Progress
    needs_spark: bool = False

    def profile(
        self, features: Sequence[Feature], bounded: Sequence[Column], values: Collection[PlainValue] | None = None
    ) -> Profile:
        """Count the feature vectors of each partition and measure the bounds of some columns there.

        ``values`` are the partitions to bound, all when None; vectors of other partitions may be included.
        """
        wanted = self.partition_rows.keys() if values is None else values
        names = set().union(*(feature.columns for feature in features), (column.name for column in bounded))
        cut_job = self.cut_job(self.splits_with(wanted), names)
        job = ProfileJob(cut_job, tuple(features), tuple(bounded), MAX_PAIRS // max(1, len(cut_job.tasks)))
        pairs, bounds = job.merge(self.run(job))
        is_wanted = pc.is_in(bounds[KEY], pa.array(list(wanted), bounds[KEY].type))
        return Profile(pairs, merge_nan_bounds(bounds.filter(is_wanted), bounded))

    def bound_one_split(self, bounded: Sequence[Column]) -> pa.Table:
        """Return the bounds of some columns in each partition by the rows of one split; all rows' bounds are wider."""
        split, _ = self.splits[len(self.splits) // 2]
        job = ProfileJob(self.cut_job([split], [column.name for column in bounded]), (), tuple(bounded), MAX_PAIRS)
        (profile,) = self.run(job)
        return merge_nan_bounds(profile.bounds, bounded)

    def profile_table(self, rows: pa.Table, features: Sequence[Feature], bounded: Sequence[Column]) -> Profile:
        """Return what :meth:`profile` would, for rows that were drawn."""
        job = ProfileJob(self.cut_job((), rows.column_names), tuple(features), tuple(bounded), MAX_PAIRS)
        pairs, bounds = job.profile_rows(rows)
        return Profile(pairs, merge_nan_bounds(bounds, bounded))

    def draw(self, partition_rows: Mapping[PlainValue, int], sample_rows: int, columns: Collection[str]) -> pa.Table:
        """Draw about ``sample_rows`` rows of each partition in ``partition_rows``, in the order of the files' names."""
        cut_job = self.cut_job(self.splits_with(partition_rows), columns)
        return pa.concat_tables(self.run(self._draw_job(cut_job, partition_rows, sample_rows)))

    def draw_from_few_files(self, value: PlainValue, sample_rows: int) -> pa.Table:
        """Draw about ``sample_rows`` rows of a partition with all columns, from a few files spread evenly.

        That is enough to measure cells without reading all columns of all files.
        """
        candidates = [(split, counts[value]) for split, counts in self.splits if value in counts]
        mean_rows = sum(rows for _, rows in candidates) / max(1, len(candidates))
        wanted = max(_FEWEST_SPLITS, ceil(_READ_PER_DRAWN * sample_rows / max(1.0, mean_rows)))
        few = spread(candidates, wanted)
        cut_job = self.cut_job([split for split, _ in few], self.schema.names)
        rows = sum(rows for _, rows in few)
        return pa.concat_tables(self.run(self._draw_job(cut_job, {value: rows}, sample_rows)))

    def map_segments_and_draw(
        self,
        segments: Sequence[Segment],
        columns: Collection[str],
        shares: int,
        task: Task,
        partition_rows: Mapping[PlainValue, int],
        sample_rows: int,
    ) -> tuple[pa.Table, pa.Table]:
        """Return a task's results for each segment, and rows drawn as by :meth:`draw`, in one pass over the files.

        Args:
            segments: numbered from 0, of ranges of positions as :meth:`chunks` has them; those of one value in order.
            columns: to read, beside the partition column.
            shares: segment ``i`` goes to ``shares`` tasks from ``shares * i`` on.
            task: gets the batches of one segment.
            partition_rows: the rows of each partition to draw from; empty draws none.
            sample_rows: rows wanted of each.
        """
        splits = [
            split
            for split, counts in self.splits
            if not counts.keys().isdisjoint(partition_rows)
            or any(_may_overlap(split, counts, segment) for segment in segments)
        ]
        job = replace(self.cut_job(splits, columns), ranges=segment_ranges(segments), compressed=False)
        extra_batches = None
        if partition_rows:
            extra_batches = partial(self._draw_job(job, partition_rows, sample_rows).pack, len(segments))
        with TemporaryDirectory(prefix="layoutopt-") as folder:
            written = self.tasks.map(len(job.tasks), partial(write_shuffle_batches, job, extra_batches, folder))
            read = partial(read_shuffle_batches, folder, written)
            count = shares * len(segments)
            *results, drawn = self.tasks.map(count + 1, partial(_run_or_collect, read, shares, count, task))
        tables = [table for table in results if table is not None]
        no_rows = arrow_schema(job.read_schema).empty_table()
        return pa.concat_tables(tables) if tables else pa.table({}), no_rows if drawn is None else drawn

    def _draw_job(self, job: CutJob, partition_rows: Mapping[PlainValue, int], sample_rows: int) -> DrawJob:
        limits = {value: draw_limit(sample_rows / max(1, count)) for value, count in partition_rows.items()}
        return DrawJob(job, limits, first_row_numbers(split for split, _ in self.splits))


# A source's rows, read by Spark or by Arrow.
Rows: TypeAlias = "DataFrame | PlainRows"


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


def _may_overlap(split: Split, values: Collection[PlainValue], segment: Segment) -> bool:
    return segment.value in values and segment.low < split.low + split.rows and split.low < segment.high


def warm_up(rows: Rows) -> None:
    """Let the processes of plain rows import the blocking code, which takes a second, in the background."""
    if isinstance(rows, PlainRows):
        rows.tasks.begin(_import_blocking)


def _import_blocking(number: int) -> None:
    import layoutopt.partitioning.local_search_loops  # noqa: F401


def choose_rows(
    open_frame: Callable[[], DataFrame],
    source: DataFrame | str | Path,
    schema: Schema,
    partition_by: str | None,
    features: FeatureSet,
    say: Progress,
    include_small: bool = False,
) -> Rows:
    """Return a source's rows, read by Arrow where that surely equals Spark's reading and there are many rows.

    Args:
        open_frame: opens all rows of ``source``, in the schema, by Spark.
        source: what it opens.
        schema: of the table.
        partition_by: the partition column, None for none.
        features: that rows will be evaluated for.
        say: receives the reason when Spark reads the rows of a path, now or later; not for small sources.
        include_small: whether Arrow reads small sources too.
    """
    if not isinstance(source, str | Path) or parse_source_name(source) is not None:
        return open_frame()
    try:
        files = list_local_files(str(source), schema, partition_by)
        if not include_small and estimate_rows(files) < LEAST_ROWS:
            return open_frame()
        return _open_plain_rows(cache(open_frame), files, schema, partition_by, features, say)
    except NeedsSparkError as error:
        frame = open_frame()  # first: it may raise that there is no such source
        say(_spark_reason(error))
        return frame


def _open_plain_rows(
    open_frame: Callable[[], DataFrame],
    files: Sequence[LocalFile],
    schema: Schema,
    partition_by: str | None,
    features: FeatureSet,
    say: Progress,
) -> PlainRows:
    tasks = Processes()
    splits = count_files(files, schema, partition_by, tasks)
    if not splits:
        raise NeedsSparkError("the source has no rows")
    check_features_by_arrow(CutJob(schema, partition_by, NO_RANGES, ()), splits[0][0], features)
    return PlainRows(tasks, schema, partition_by, splits, local_rows.count_partition_rows(splits), open_frame, say)


def by_arrow_or_spark(rows: Rows, by_arrow: Callable[[PlainRows], T], by_spark: Callable[[DataFrame], T]) -> T:
    """Return the result by Arrow, or by Spark where Arrow can't produce it; Spark then reads these rows from now on."""
    if isinstance(rows, PlainRows) and not rows.needs_spark:
        try:
            return by_arrow(rows)
        except (NeedsSparkError, pa.ArrowException) as error:
            rows.needs_spark = True
            rows.say(_spark_reason(error))
    return by_spark(to_dataframe(rows))


def _spark_reason(error: Exception) -> str:
    return f"reading by Spark: {str(error).splitlines()[0]}"


def to_dataframe(rows: Rows) -> DataFrame:
    """Return the rows as Spark reads them."""
    return rows.open_frame() if isinstance(rows, PlainRows) else rows


def column_names(rows: Rows) -> Sequence[str]:
    """Return the names of the rows' columns."""
    return rows.schema.names if isinstance(rows, PlainRows) else rows.columns


def tasks_for(rows: Rows) -> Tasks:
    """Return the tasks in which work on rows, and on samples of them, runs in parallel."""
    if isinstance(rows, PlainRows):
        return rows.tasks
    from layoutopt.spark.core.workers import SparkTasks

    return SparkTasks(rows.sparkSession)


def count_partition_rows(rows: Rows, partition_by: str | None) -> dict[PlainValue, int]:
    """Return the rows of each partition by its value, NULL first; a table without partitions has the value None."""
    if isinstance(rows, PlainRows):
        return dict(rows.partition_rows)
    from layoutopt.spark.planning import frame_rows

    return frame_rows.count_rows(rows, partition_by)


@dataclass(frozen=True)
class CountRequest:
    """A request to count the vectors of rows, for some queries, in at most ``max_vectors`` vectors a partition."""

    rows: Rows
    queries: tuple[Query, ...]
    schema: Schema
    partition_by: str | None
    max_vectors: int
    say: Progress

    @cached_property
    def bounded(self) -> list[Column]:
        """The columns whose bounds may exclude a query from a partition."""
        used = filtered_columns(self.queries)
        return [column for column in self.schema.columns if column.name in used and key_kind(column.type) is not None]


# By partition: its rows, and each query's weight, 0 where the partition's bounds exclude the query.
_Reached = Mapping[PlainValue, tuple[int, Floats]]


def count_histograms(request: CountRequest, features: FeatureSet) -> tuple[FeatureSet, tuple[PartitionHistogram, ...]]:
    """Return the features that fit ``max_vectors``, and every partition's vectors under them."""
    features, counts, reached = _count_within_memory(request, features)
    kept = features_within(features, list(counts.values()), request.max_vectors)
    for i in sorted(set(range(len(features))) - set(kept)):
        weight = f"{features[i].weight:g}"
        request.say(f"gave up blocking by feature {i} (weight {weight}) for max_vectors={request.max_vectors}")
    features = features.only(kept)
    counts = {value: vectors.project(kept) for value, vectors in counts.items()}
    return features, _build_histograms(request, features, counts, reached or _find_reached(request))


def _count_within_memory(
    request: CountRequest, features: FeatureSet
) -> tuple[FeatureSet, dict[PlainValue, VectorCounts], _Reached | None]:
    """Count vectors of as many of the heaviest features as fit the driver; and reach, if the pass measures it."""
    while True:
        try:
            by_arrow, by_spark = (
                partial(_count_by_arrow, request, features),
                partial(_count_by_spark, request, features),
            )
            return features, *by_arrow_or_spark(request.rows, by_arrow, by_spark)
        except BoundError:
            if len(features) <= 1:
                raise
            request.say(f"{len(features)} features make too many vectors to count; giving up the lightest quarter")
            features = select_heaviest(features, len(features) * 3 // 4)


def _count_by_spark(
    request: CountRequest, features: FeatureSet, rows: DataFrame
) -> tuple[dict[PlainValue, VectorCounts], _Reached | None]:
    from layoutopt.spark.core.featurize import count_vectors

    return count_vectors(rows, features.features, request.partition_by), None


def _count_by_arrow(
    request: CountRequest, features: FeatureSet, rows: PlainRows
) -> tuple[dict[PlainValue, VectorCounts], _Reached | None]:
    some_bounds, columns = rows.bound_one_split(request.bounded), request.bounded
    if len(some_bounds) == len(rows.partition_rows):  # the split says nothing of a partition without rows in it
        columns = _select_excluding_columns(some_bounds, request.queries, request.bounded)
    profile = rows.profile(features.features, columns)
    return counts_by_key(profile.pairs, len(features)), _reached_by_bounds(request, profile.bounds, columns)


def sample_histograms(request: CountRequest, features: FeatureSet) -> tuple[PartitionHistogram, ...]:
    """Return the vectors of a sample of some partitions, over all of the features.

    Raises:
        PlanError: the source has no rows.
    """
    counted = count_partition_rows(request.rows, request.partition_by)
    if not counted:
        raise PlanError("the source has no rows to plan a layout from; give one with rows, or a method by order")
    sampled = {value: counted[value] for value in spread(list(counted), SAMPLED_PARTITIONS)}
    counts, reached = by_arrow_or_spark(
        request.rows,
        partial(_sample_by_arrow, request, features, sampled),
        partial(_sample_by_spark, request, features, sampled),
    )
    return _build_histograms(request, features, counts, reached)


def _sample_by_spark(
    request: CountRequest, features: FeatureSet, sampled: Mapping[PlainValue, int], rows: DataFrame
) -> tuple[dict[PlainValue, VectorCounts], _Reached]:
    from layoutopt.spark.planning import frame_rows

    counts = frame_rows.sample_vectors(rows, features, request.partition_by, sampled, SAMPLE_ROWS)
    return counts, _find_reached(request, list(sampled))


def _sample_by_arrow(
    request: CountRequest, features: FeatureSet, sampled: Mapping[PlainValue, int], rows: PlainRows
) -> tuple[dict[PlainValue, VectorCounts], _Reached]:
    names = set().union(*(feature.columns for feature in features), (column.name for column in request.bounded))
    drawn = rows.draw(sampled, SAMPLE_ROWS, names)
    pairs, some_bounds = rows.profile_table(drawn, features.features, request.bounded)
    columns = _select_excluding_columns(some_bounds, request.queries, request.bounded)
    bounds = pa.table({KEY: list(sampled), ROWS: list(sampled.values())})
    if columns:
        bounds = rows.profile((), columns, list(sampled)).bounds
    return counts_by_key(pairs, len(features)), _reached_by_bounds(request, bounds, columns)


def _build_histograms(
    request: CountRequest, features: FeatureSet, counts: Mapping[PlainValue, VectorCounts], reached: _Reached
) -> tuple[PartitionHistogram, ...]:
    shares = feature_shares(features, request.queries)
    histograms = []
    for value in sorted(counts, key=null_first_key):
        rows, query_weights = reached[value]
        weights = segment_weights(shares, query_weights, counts[value])
        histograms.append(PartitionHistogram(value, rows, counts[value], query_weights, weights))
    return tuple(histograms)


def select_heaviest(features: FeatureSet, count: int | None) -> FeatureSet:
    """Return the heaviest features in their order; of equal weights the first."""
    if count is None or count >= len(features):
        return features
    return features.only(np.sort(np.argsort(-features.weights, kind="stable")[:count]).tolist())


def features_within(features: FeatureSet, counts: Sequence[VectorCounts], max_vectors: int) -> list[int]:
    """Return the indices of the most of the heaviest features that keep each partition within ``max_vectors``.

    Fewer features never make more vectors, so the number is found by bisection.
    """
    by_weight = np.argsort(-features.weights, kind="stable")

    def fit(count: int) -> bool:
        kept = np.sort(by_weight[:count]).tolist()
        return all(len(vectors.project(kept)) <= max_vectors for vectors in counts)

    if fit(len(features)):
        return list(range(len(features)))
    fits, fails = 0, len(features)
    while fails - fits > 1:
        count = (fits + fails) // 2
        fits, fails = (count, fails) if fit(count) else (fits, count)
    return [int(i) for i in np.sort(by_weight[:fits])]


def _find_reached(request: CountRequest, values: Sequence[PlainValue] | None = None) -> _Reached:
    """Find by Spark which queries reach which partitions (those of ``values``; all when None).

    Minima of texts are expensive (Spark sorts for them), and few columns exclude a query from a partition. Bounds of a
    hundredth of the rows lie within those of all, so they exclude at least as much: a query that reaches a partition
    by these needs no others, and :func:`_select_excluding_columns` selects the columns that the remaining ones need.
    """
    from layoutopt.spark.core.partition_values import filter_partitions
    from layoutopt.spark.planning.frame_rows import measure_bounds

    rows = to_dataframe(request.rows)
    if values is not None and request.partition_by is not None:
        rows = filter_partitions(rows, request.partition_by, values)
    some_bounds = measure_bounds(rows, request.partition_by, request.bounded, _BOUNDS_SHARE)
    columns = _select_excluding_columns(some_bounds, request.queries, request.bounded)
    bounds = measure_bounds(rows, request.partition_by, columns)
    if len(bounds) > len(some_bounds):  # the sample says nothing of a partition without rows in it
        columns = request.bounded
        bounds = measure_bounds(rows, request.partition_by, columns)
    return _reached_by_bounds(request, bounds, columns)


def _reached_by_bounds(request: CountRequest, bounds: pa.Table, columns: Sequence[Column]) -> _Reached:
    excluded = _find_excluded(bounds, request.queries, columns)
    weights = np.where(excluded, 0.0, np.array([query.weight for query in request.queries])[:, None])
    counted = np.asarray(bounds["_rows"], dtype=np.int64).tolist()
    return {value: (counted[i], weights[:, i]) for i, value in enumerate(bounds["_key"].to_pylist())}


def _select_excluding_columns(
    some_bounds: pa.Table, queries: Sequence[Query], columns: Sequence[Column]
) -> list[Column]:
    """Select the columns whose bounds over all rows may exclude a query, judged by the bounds of some rows.

    Texts are selected only where they exclude a query from more partitions than the other columns do.
    """
    texts = {column.name for column in columns if column.type in _TEXTS}
    by_all = _find_excluded(some_bounds, queries, columns)
    by_cheap = _find_excluded(some_bounds, queries, columns, ignored=texts)
    selected: set[str] = set()
    for query, excluded, excluded_cheaply in zip(queries, by_all, by_cheap, strict=True):
        if excluded.any():
            texts_add_nothing = np.array_equal(excluded, excluded_cheaply)
            selected |= columns_of(query.filter.root) - (texts if texts_add_nothing else set())
    return [column for column in columns if column.name in selected]


def _find_excluded(
    bounds: pa.Table, queries: Sequence[Query], columns: Sequence[Column], ignored: Collection[str] = ()
) -> Bits:
    """Return which query bounds exclude from which partition, ``bool[queries, partitions]``."""
    counted = np.asarray(bounds["_rows"], dtype=np.int64)
    known = {
        column.name: partition_bounds(bounds, i, column.type, counted)
        for i, column in enumerate(columns)
        if column.name not in ignored
    }
    statistics = BlockStatistics(rows=counted, bounds=known)
    excluded = np.array([cannot_match(query.filter.root, statistics, None) for query in queries], dtype=np.bool_)
    return excluded.reshape(len(queries), statistics.n)  # also where there are no queries


def partition_bounds(table: pa.Table, i: int, type: str, rows: np.ndarray) -> ColumnBounds:
    """Return column ``i``'s bounds from ``_low{i}``, ``_high{i}`` and ``_n{i}`` of each partition.

    ``rows`` are the partitions', int64[n]. A text that is no UTF-8 bounds nothing.
    """
    nulls = rows - np.asarray(table[f"_n{i}"], dtype=np.int64)
    low, high = key_array(table[f"_low{i}"], type), key_array(table[f"_high{i}"], type)
    known = has_key(table[f"_low{i}"], type) & has_key(table[f"_high{i}"], type)
    if type in FLOATS:
        # Spark's maximum is NaN where there is a NaN, whose key is the largest.
        high = np.where(np.asarray(pc.fill_null(pc.is_nan(table[f"_high{i}"]), False)), NAN_KEY, high)
    return ColumnBounds(low=low, high=high, known=known, nulls=nulls, type=type)
