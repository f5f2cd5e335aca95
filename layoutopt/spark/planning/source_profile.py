"""What planning counts of the source: (vector, count) pairs of each partition, and which queries reach it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DateType, NumericType, TimestampNTZType, TimestampType

from layoutopt.catalog.keys import has_key, key_array
from layoutopt.catalog.partition_names import PlainValue
from layoutopt.errors import BoundError, NeedsSparkError, PlanError
from layoutopt.events import Progress
from layoutopt.features.weights import feature_shares, segment_weights
from layoutopt.local.parquet_files import arrow_schema
from layoutopt.local.processes import Processes, Tasks
from layoutopt.local.profile import (
    CHUNK,
    DRAWS,
    KEY,
    ROWS,
    ChunkCount,
    Draw,
    Survey,
    Surveyed,
    limit_of,
    places_in_files,
    with_nan,
)
from layoutopt.local.splits import (
    Counted,
    CutJob,
    LocalFile,
    Places,
    Split,
    count_files,
    local_files,
    read_parcels,
    rows_in_files,
    write_parcels,
)
from layoutopt.methods.interface import PartitionHistogram
from layoutopt.model.arrays import Bits, Floats, spread
from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.predicates import columns_of
from layoutopt.model.query import Query, filtered_columns
from layoutopt.model.schema import POSITION, SEGMENT, Column, Schema
from layoutopt.model.types import quoted
from layoutopt.model.values import NAN_KEY, key_kind
from layoutopt.model.vectors import VectorCounts
from layoutopt.skipping.cannot_match import BlockStatistics, ColumnBounds, cannot_match
from layoutopt.sources.snapshot import source_name
from layoutopt.spark.core.featurize import MAX_PAIRS, counts_by_key, vector_counts
from layoutopt.spark.core.partition_values import literal, null_first, of_partitions, partition_column
from layoutopt.spark.core.segments import Chunk, Segment, chunk_bits, known_chunks
from layoutopt.spark.core.source import hashable
from layoutopt.spark.core.workers import SparkTasks, Task
from layoutopt.spark.loading.job import LEAST_ROWS, check_features_of, in_tasks, places_of
from layoutopt.writer.segment import in_source_order

# ----------------------------------------------------------------------------------------------------
# A source of plain Parquet files on this machine as planning asks it: by processes that read the files by Arrow.
#
# What only a plan goes by may be found so without Spark's word: a load reads every row again, and is proved.

_TASKS_A_CORE: Final = 8  # at most, since the driver takes in what each of them finds
_FEW_SPLITS: Final = 4
_ROWS_A_SAMPLED: Final = 4  # that are read for each that is drawn: neighbours are more alike than a block's rows

T = TypeVar("T", covariant=True)


@dataclass(eq=False)
class PlainRows:
    """The rows of a source of plain files.

    Its methods raise NeedsSparkError where a file or a feature is not surely read as Spark reads it, and where the
    driver can't take in what tasks find.

    Attributes:
        opened: gives the same rows as Spark has them; a session is started for it where there is none.
        tasks: that read the files.
        schema: of the table.
        partition_by: the partition column, None for none.
        splits: of the files, in the order of their names, each with its rows of each value of the partition column.
        partition_rows: the rows of each partition, by its value, NULL first.
        say: told why Spark reads the rows after all.
        given_up: whether it does.
    """

    opened: Callable[[], DataFrame]
    tasks: Processes
    schema: Schema
    partition_by: str | None
    splits: Counted
    partition_rows: Mapping[PlainValue, int]
    say: Progress
    given_up: bool = False

    def chunks(self, segment_rows: int) -> list[Chunk]:
        """Neighbouring rows of one partition counted together, in the order of the files.

        Args:
            segment_rows: rows that a segment may have; of partitions that fit into one all rows are one chunk.
        """
        known = known_chunks(self.partition_rows, segment_rows)
        if known is not None:
            return known
        shift = chunk_bits(segment_rows)
        asked = ChunkCount(self._job([split for split, _ in self.splits], ()), shift)
        found = asked.merged(self._each(asked))
        counted = zip(*(found[name].to_pylist() for name in (KEY, CHUNK, ROWS)), strict=True)
        return sorted((Chunk(value, chunk << shift, rows) for value, chunk, rows in counted), key=lambda each: each.low)

    def survey(
        self, features: Sequence[Feature], bounded: Sequence[Column], values: Collection[PlainValue] | None = None
    ) -> Surveyed:
        """How often each feature vector occurs in each partition, and the bounds of some columns there.

        Args:
            features: bit ``i`` of a vector is feature ``i``.
            bounded: the columns.
            values: of the partitions whose bounds are of interest; of all when None. Vectors of others may be there.
        """
        wanted = self.partition_rows.keys() if values is None else values
        named = set().union(*(feature.columns for feature in features), (column.name for column in bounded))
        job = self._job(self._with(wanted), named)
        asked = Survey(job, tuple(features), tuple(bounded), MAX_PAIRS // max(1, len(job.tasks)))
        pairs, bounds = asked.merged(self._each(asked))
        of_interest = pa.array(list(wanted), bounds[KEY].type)
        return Surveyed(pairs, with_nan(bounds.filter(pc.is_in(bounds[KEY], of_interest)), bounded))

    def survey_of_one_split(self, bounded: Sequence[Column]) -> pa.Table:
        """The bounds of some columns in each partition by one split's rows alone, which lie within those of all."""
        split, _ = self.splits[len(self.splits) // 2]
        asked = Survey(self._job([split], [column.name for column in bounded]), (), tuple(bounded), MAX_PAIRS)
        (found,) = self._each(asked)
        return with_nan(found.bounds, bounded)

    def survey_of(self, rows: pa.Table, features: Sequence[Feature], bounded: Sequence[Column]) -> Surveyed:
        """What :meth:`survey` gives, of some rows that were drawn."""
        asked = Survey(self._job((), rows.column_names), tuple(features), tuple(bounded), MAX_PAIRS)
        pairs, bounds = asked.of_rows(rows)
        return Surveyed(pairs, with_nan(bounds, bounded))

    def drawn(self, partition_rows: Mapping[PlainValue, int], sample_rows: int, columns: Collection[str]) -> pa.Table:
        """About ``sample_rows`` rows of each of some partitions, in the order of the files' names.

        Args:
            partition_rows: the rows of each partition to draw from, by its value.
            sample_rows: rows wanted of each.
            columns: that they have, beside the partition column.
        """
        return self._of(self._draw(self._job(self._with(partition_rows), columns), partition_rows, sample_rows))

    def drawn_of_few(self, value: PlainValue, sample_rows: int) -> pa.Table:
        """About ``sample_rows`` rows of a partition with all columns, of a few files that lie apart.

        Enough to tell what cells take, and no reason to read all columns of all files.
        """
        having = [(split, held[value]) for split, held in self.splits if value in held]
        mean_rows = sum(rows for _, rows in having) / max(1, len(having))
        few = spread(having, max(_FEW_SPLITS, ceil(_ROWS_A_SAMPLED * sample_rows / max(1.0, mean_rows))))
        job = self._job([split for split, _ in few], self.schema.names)
        return self._of(self._draw(job, {value: sum(rows for _, rows in few)}, sample_rows))

    def _draw(self, job: CutJob, partition_rows: Mapping[PlainValue, int], sample_rows: int) -> Draw:
        below = {value: limit_of(sample_rows / max(1, count)) for value, count in partition_rows.items()}
        return Draw(job, below, places_in_files(split for split, _ in self.splits))

    def _of(self, draw: Draw) -> pa.Table:
        return pa.concat_tables(self._each(draw))

    def in_segments(
        self,
        segments: Sequence[Segment],
        columns: Collection[str],
        shares: int,
        task: Task,
        partition_rows: Mapping[PlainValue, int],
        sample_rows: int,
    ) -> tuple[pa.Table, pa.Table]:
        """What a task makes of each segment's rows, and rows drawn as by :meth:`drawn`, in one pass over the files.

        Args:
            segments: numbered from 0, of ranges of positions as :meth:`chunks` has them; those of one value in their
                order.
            columns: that the rows have, beside the partition column.
            shares: how many tasks get each segment: of segment ``i`` tasks ``shares * i`` on.
            task: gets the batches of one segment.
            partition_rows: the rows of each partition to draw from, by its value; none to draw none.
            sample_rows: rows wanted of each.
        """
        splits = [
            split
            for split, held in self.splits
            if not held.keys().isdisjoint(partition_rows) or any(_has_some(split, held, each) for each in segments)
        ]
        job = replace(self._job(splits, columns), places=places_of(segments), compressed=False)
        also = None
        if partition_rows:
            also = partial(self._draw(job, partition_rows, sample_rows).parcels, len(segments))
        with TemporaryDirectory(prefix="layoutopt-") as folder:
            self.tasks.each(len(job.tasks), partial(write_parcels, job, also, folder))
            count = shares * len(segments)
            each = partial(_found_or_drawn, folder, shares, count, task)
            *of_segments, drawn = self.tasks.each(count + 1, each)
        found = [table for table in of_segments if table is not None]
        none = arrow_schema(job.read).empty_table()
        return pa.concat_tables(found) if found else pa.table({}), none if drawn is None else drawn

    def _each(self, asked: Question[T]) -> list[T]:
        """What each task finds that finds something."""
        found = self.tasks.each(len(asked.job.tasks), asked.of_task)
        parts = [part for part in found if part is not None]
        if not parts:
            raise NeedsSparkError("the source has no rows any more")
        return parts

    def _with(self, values: Collection[PlainValue]) -> list[Split]:
        """The splits with rows of some partitions."""
        return [split for split, held in self.splits if not held.keys().isdisjoint(values)]

    def _job(self, splits: Sequence[Split], columns: Collection[str]) -> CutJob:
        wanted = {*columns, *([] if self.partition_by is None else [self.partition_by])}
        names = tuple(name for name in self.schema.names if name in wanted) or self.schema.names[:1]
        tasks = in_tasks(splits, _TASKS_A_CORE * self.tasks.cores)
        return CutJob(self.schema, self.partition_by, Places((), (), ()), tasks, columns=names)


Rows: TypeAlias = DataFrame | PlainRows
"""A source's rows, however they are read."""


class Question(Protocol[T]):
    """What tasks are asked of the rows that they read."""

    @property
    def job(self) -> CutJob:
        """Which rows and columns they read."""
        ...

    def of_task(self, number: int) -> T | None:
        """What the rows of one task say; None where there are none."""
        ...


def get_ready(rows: Rows) -> None:
    """Let processes that work on rows load what forms blocks, a second's work, while this one does something else."""
    if isinstance(rows, PlainRows):
        rows.tasks.begin(_loaded)


def _loaded(number: int) -> None:
    import layoutopt.partitioning.local_search_loops  # noqa: F401


def _found_or_drawn(folder: str, shares: int, last: int, task: Task, number: int) -> pa.Table | None:
    """What a task makes of the rows of a segment, or, the last one, the rows drawn as they are; None of no rows."""
    if number < last:
        made = list(task(read_parcels(folder, number // shares, number)))
        return pa.Table.from_batches(made) if made else None
    drawn = list(read_parcels(folder, last // shares, number))
    return in_source_order(pa.Table.from_batches(drawn)).drop_columns([SEGMENT, POSITION]) if drawn else None


def _has_some(split: Split, values: Collection[PlainValue], segment: Segment) -> bool:
    """Whether a split may have rows of a segment."""
    return segment.value in values and segment.low < split.low + split.rows and split.low < segment.high


def rows_to_plan(
    opened: Callable[[], DataFrame],
    source: DataFrame | str | Path,
    schema: Schema,
    partition_by: str | None,
    features: FeatureSet,
    say: Progress,
    few_too: bool = False,
) -> Rows:
    """A source's rows, read by Arrow where that is surely what Spark reads, and there are many.

    Args:
        opened: gives all rows of the source, in the schema, as Spark has them.
        source: what it opens.
        schema: of the table.
        partition_by: the partition column, None for none.
        features: that will be asked of the rows.
        say: told why Spark reads the rows of a path, now or where that turns out later; not of few rows, where these
            could be counted.
        few_too: whether few rows are read so, too.
    """
    if isinstance(source, DataFrame) or source_name(source) is not None:
        return opened()
    try:
        files = local_files(str(source), schema, partition_by)
        if not few_too and rows_in_files(files) < LEAST_ROWS:
            return opened()
        return _plain_rows(cache(opened), files, schema, partition_by, features, say)
    except NeedsSparkError as error:
        frame = opened()  # before a word: it may say that there is no such source
        say(_by_spark(error))
        return frame


def by_arrow_or_spark(rows: Rows, by_arrow: Callable[[PlainRows], T], by_spark: Callable[[DataFrame], T]) -> T:
    """What is found of rows by Arrow, or by Spark where Arrow can't tell; then Spark reads them from now on."""
    if isinstance(rows, PlainRows) and not rows.given_up:
        try:
            return by_arrow(rows)
        except (NeedsSparkError, pa.ArrowException) as error:
            rows.given_up = True
            rows.say(_by_spark(error))
    return by_spark(frame_of(rows))


def _by_spark(error: Exception) -> str:
    """Why Spark reads the rows."""
    return f"reading by Spark: {str(error).splitlines()[0]}"


def frame_of(rows: Rows) -> DataFrame:
    """The rows as Spark has them."""
    return rows.opened() if isinstance(rows, PlainRows) else rows


def names_of(rows: Rows) -> Sequence[str]:
    """The columns that rows have."""
    return rows.schema.names if isinstance(rows, PlainRows) else rows.columns


def tasks_of(rows: Rows) -> Tasks:
    """Where work on rows, and on samples of them, is done side by side."""
    return rows.tasks if isinstance(rows, PlainRows) else SparkTasks(rows.sparkSession)


def _plain_rows(
    opened: Callable[[], DataFrame],
    files: Sequence[LocalFile],
    schema: Schema,
    partition_by: str | None,
    features: FeatureSet,
    say: Progress,
) -> PlainRows:
    tasks = Processes()
    counted = count_files(files, schema, partition_by, tasks)
    check_features_of(CutJob(schema, partition_by, Places((), (), ()), ()), counted[0][0], features)
    partition_rows: dict[PlainValue, int] = {}
    for _, held in counted:
        for value, rows in held.items():
            partition_rows[value] = partition_rows.get(value, 0) + rows
    in_order = {value: partition_rows[value] for value in sorted(partition_rows, key=null_first)}
    return PlainRows(opened, tasks, schema, partition_by, counted, in_order, say)


# ----------------------------------------------------------------------------------------------------
# Samples of rows as feature vectors, for methods that search over more features than rows can be counted by.
#
# With hundreds of global features nearly every row has a vector of its own (Sun 2017, 4.5 samples too). Rows that Spark
# reads are chosen by a hash of their content, so that the same source gives the same sample on any number of cores: of
# all columns but long ones (texts, nested) that no feature is about, since reading and hashing those would be most of
# the
# work. Rows of plain files are chosen by their places instead (:mod:`layoutopt.local.profile`).

SAMPLED_PARTITIONS = 3
SAMPLE_ROWS = 40_000
"""Rows sampled of one partition."""

_SHORT = (NumericType, DateType, TimestampType, TimestampNTZType)


def sample_vectors(
    rows: DataFrame,
    features: FeatureSet,
    partition_by: str | None,
    partition_rows: Mapping[PlainValue, int],
    sample_rows: int = SAMPLE_ROWS,
) -> dict[PlainValue, VectorCounts]:
    """About ``sample_rows`` rows' vectors of each of some partitions.

    Args:
        rows: the source.
        features: bit ``i`` is feature ``i``.
        partition_by: the partition column, or None.
        partition_rows: the rows of each partition to sample, by its value.
        sample_rows: rows wanted of each.
    """
    some = drawn_rows(rows, features, partition_by, partition_rows, sample_rows)
    return vector_counts(some, features.features, partition_by)


def drawn_rows(
    rows: DataFrame,
    features: FeatureSet,
    partition_by: str | None,
    partition_rows: Mapping[PlainValue, int],
    sample_rows: int = SAMPLE_ROWS,
) -> DataFrame:
    """The rows that :func:`sample_vectors` counts, with the same arguments."""
    draw = _draw(rows, features)
    drawn_below = {value: limit_of(sample_rows / max(1, count)) for value, count in partition_rows.items()}
    if partition_by is None:
        return rows.where(draw < F.lit(drawn_below.get(None, 0)))
    key, type = F.col(quoted(partition_by)), rows.schema[partition_by].dataType
    limit = F.lit(0)
    for value, below in drawn_below.items():
        limit = F.when(key.eqNullSafe(literal(value, type)), F.lit(below)).otherwise(limit)
    return of_partitions(rows, partition_by, list(drawn_below)).where(draw < limit)


def rows_by_partition(rows: Rows, partition_by: str | None) -> dict[PlainValue, int]:
    """The rows of each partition by its value, NULL first; a table without partitions is one, of the value None."""
    if isinstance(rows, PlainRows):
        return dict(rows.partition_rows)
    keyed = rows.groupBy(partition_column(rows, partition_by).alias("_key"))
    counted = keyed.agg(F.count(F.lit(1)).alias("_rows")).toArrow()
    found = dict(zip(counted["_key"].to_pylist(), counted["_rows"].to_pylist(), strict=True))
    return {value: found[value] for value in sorted(found, key=null_first)}


def rows_drawn(rows: DataFrame, features: FeatureSet, share: float) -> DataFrame:
    """About that share of the rows, all of their columns; the same ones whatever their order."""
    return rows.where(_draw(rows, features) < F.lit(limit_of(share)))


def _draw(rows: DataFrame, features: FeatureSet) -> SparkColumn:
    """A number from 0 to ``_DRAWS - 1`` that depends on a row's content."""
    used = frozenset().union(*(feature.columns for feature in features))
    short = [field for field in rows.schema.fields if field.name in used or isinstance(field.dataType, _SHORT)]
    values = [hashable(field.name, field.dataType) for field in short or rows.schema.fields]
    return F.pmod(F.xxhash64(*values), F.lit(DRAWS))


_FLOATS = ("float", "double")
_TEXTS = ("string", "binary")
_SOME = 0.01
"""The share of rows that tells whether a column's bounds can exclude a query from a partition."""


def heaviest(features: FeatureSet, count: int | None) -> FeatureSet:
    """The heaviest features, in the order they had; of equal weights the first."""
    if count is None or count >= len(features):
        return features
    kept = np.sort(np.argsort(-features.weights, kind="stable")[:count]).tolist()
    return features.only(kept)


@dataclass(frozen=True)
class Counting:
    """What the pairs are counted of, for whom, and within what."""

    rows: Rows
    queries: tuple[Query, ...]
    schema: Schema
    partition_by: str | None
    max_vectors: int
    say: Progress

    @cached_property
    def bounded(self) -> list[Column]:
        """The columns by whose bounds a partition may be seen not to be reached by a query."""
        used = filtered_columns(self.queries)
        return [column for column in self.schema.columns if column.name in used and key_kind(column.type) is not None]


def count_histograms(of: Counting, features: FeatureSet) -> tuple[FeatureSet, tuple[PartitionHistogram, ...]]:
    """The features that fit ``max_vectors``, and every partition's pairs under them."""
    features, counts, reached = _countable(of, features)
    kept = features_within(features, list(counts.values()), of.max_vectors)
    for i in sorted(set(range(len(features))) - set(kept)):
        of.say(f"gave up blocking by feature {i} (weight {features[i].weight:g}) for max_vectors={of.max_vectors}")
    features = features.only(kept)
    counts = {value: vectors.project(kept) for value, vectors in counts.items()}
    return features, _with_weights(of, features, counts, reached or _reached(of))


def sample_histograms(of: Counting, features: FeatureSet) -> tuple[PartitionHistogram, ...]:
    """Vectors of a sample of some partitions, over all of the features.

    Raises:
        PlanError: the source has no rows.
    """
    counted = rows_by_partition(of.rows, of.partition_by)
    if not counted:
        raise PlanError("the source has no rows to plan a layout from; give one with rows, or a method by order")
    sampled = {value: counted[value] for value in spread(list(counted), SAMPLED_PARTITIONS)}
    counts, reached = by_arrow_or_spark(
        of.rows,
        lambda rows: _sampled(of, rows, features, sampled),
        lambda rows: (sample_vectors(rows, features, of.partition_by, sampled), _reached(of, list(sampled))),
    )
    return _with_weights(of, features, counts, reached)


def _sampled(
    of: Counting, plain: PlainRows, features: FeatureSet, sampled: Mapping[PlainValue, int]
) -> tuple[dict[PlainValue, VectorCounts], _Reached]:
    """What is counted of rows drawn from some partitions of plain files, and which queries reach these."""
    named = set().union(*(feature.columns for feature in features), (column.name for column in of.bounded))
    drawn = plain.drawn(sampled, SAMPLE_ROWS, named)
    pairs, few = plain.survey_of(drawn, features.features, of.bounded)
    asked = _columns_worth_asking(few, of.queries, of.bounded)
    bounds = pa.table({KEY: list(sampled), ROWS: list(sampled.values())})
    if asked:
        bounds = plain.survey((), asked, list(sampled)).bounds
    return counts_by_key(pairs, len(features)), _by_bounds(of, bounds, asked)


_Reached = Mapping[PlainValue, tuple[int, Floats]]


def _with_weights(
    of: Counting, features: FeatureSet, counts: Mapping[PlainValue, VectorCounts], reached: _Reached
) -> tuple[PartitionHistogram, ...]:
    shares = feature_shares(features, of.queries)
    return tuple(
        PartitionHistogram(value, rows, counts[value], of_queries, segment_weights(shares, of_queries, counts[value]))
        for value in sorted(counts, key=null_first)
        for rows, of_queries in (reached[value],)
    )


def _countable(
    of: Counting, features: FeatureSet
) -> tuple[FeatureSet, dict[PlainValue, VectorCounts], _Reached | None]:
    """The pairs of as many of the heaviest features as the driver can hold the pairs of.

    Also which queries reach the partitions, where the same pass over the rows tells.
    """
    while True:
        try:
            return features, *_counts(of, features)
        except BoundError:
            if len(features) <= 1:
                raise
            of.say(f"{len(features)} features make too many vectors to count; giving up the lightest quarter")
            features = heaviest(features, len(features) * 3 // 4)


def _counts(of: Counting, features: FeatureSet) -> tuple[dict[PlainValue, VectorCounts], _Reached | None]:
    return by_arrow_or_spark(
        of.rows,
        lambda rows: _surveyed(of, rows, features),
        lambda rows: (vector_counts(rows, features.features, of.partition_by), None),
    )


def _surveyed(of: Counting, rows: PlainRows, features: FeatureSet) -> tuple[dict[PlainValue, VectorCounts], _Reached]:
    few, asked = rows.survey_of_one_split(of.bounded), of.bounded
    if len(few) == len(rows.partition_rows):  # of a partition without a row in the split nothing is known
        asked = _columns_worth_asking(few, of.queries, of.bounded)
    found = rows.survey(features.features, asked)
    return counts_by_key(found.pairs, len(features)), _by_bounds(of, found.bounds, asked)


def features_within(features: FeatureSet, counts: Sequence[VectorCounts], max_vectors: int) -> list[int]:
    """The indices of the most of the heaviest features with which no partition has more distinct vectors than allowed.

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


def _reached(of: Counting, only_of: Sequence[PlainValue] | None = None) -> _Reached:
    """By partition, its rows and each query's weight, 0 where its bounds exclude the query.

    Minima of texts are dear (Spark sorts for them), and few columns exclude a query from a partition. Bounds of a
    hundredth of the rows lie within those of all, so they exclude at least as much: a query that even they let reach a
    partition needs no bounds at all, and of the others' columns only :func:`_columns_worth_asking` are asked.

    Args:
        of: of whom.
        only_of: the partitions of interest, by value; all when None.
    """
    rows = frame_of(of.rows)
    if only_of is not None and of.partition_by is not None:
        rows = of_partitions(rows, of.partition_by, only_of)
    columns = of.bounded
    few = _bounds(rows.sample(fraction=_SOME, seed=0), of.partition_by, columns)
    asked = _columns_worth_asking(few, of.queries, columns)
    bounds = _bounds(rows, of.partition_by, asked)
    if len(bounds) > len(few):  # of a partition without a row in the sample nothing is known
        bounds, asked = _bounds(rows, of.partition_by, columns), columns
    return _by_bounds(of, bounds, asked)


def _by_bounds(of: Counting, bounds: pa.Table, columns: Sequence[Column]) -> _Reached:
    """What :func:`_reached` gives, by the bounds of some columns."""
    excluded = _excluded(bounds, of.queries, columns)
    weights = np.where(excluded, 0.0, np.array([query.weight for query in of.queries])[:, None])
    counted = np.asarray(bounds["_rows"], dtype=np.int64).tolist()
    return {value: (counted[i], weights[:, i]) for i, value in enumerate(bounds["_key"].to_pylist())}


def _columns_worth_asking(few: pa.Table, queries: Sequence[Query], columns: Sequence[Column]) -> list[Column]:
    """The columns whose bounds over all rows may exclude a query from a partition, by the bounds of some rows.

    Of a query that is excluded from some partition all columns are worth it, but texts only where it reaches another
    partition without them.
    """
    texts = {column.name for column in columns if column.type in _TEXTS}
    by_all, by_cheap = _excluded(few, queries, columns), _excluded(few, queries, columns, but=texts)
    asked: set[str] = set()
    for query, excluded, excluded_cheaply in zip(queries, by_all, by_cheap, strict=True):
        if excluded.any():
            texts_add_nothing = np.array_equal(excluded, excluded_cheaply)
            asked |= columns_of(query.filter.root) - (texts if texts_add_nothing else set())
    return [column for column in columns if column.name in asked]


def _bounds(rows: DataFrame, partition_by: str | None, columns: Sequence[Column]) -> pa.Table:
    """By partition its rows, and least, greatest and count of each column as :func:`partition_bounds` takes them."""
    aggregates = [F.count(F.lit(1)).alias("_rows")]
    for i, column in enumerate(columns):
        value = quoted(column.name)
        aggregates += map(F.expr, (f"min({value}) AS _low{i}", f"max({value}) AS _high{i}", f"count({value}) AS _n{i}"))
    return rows.groupBy(partition_column(rows, partition_by).alias("_key")).agg(*aggregates).toArrow().combine_chunks()


def _excluded(bounds: pa.Table, queries: Sequence[Query], columns: Sequence[Column], but: Collection[str] = ()) -> Bits:
    """Which query the bounds of the columns, but for some, exclude from which partition, ``bool[queries, partitions]``.

    Args:
        bounds: of :func:`_bounds`, for these columns.
        queries: the queries.
        columns: the columns.
        but: names of columns whose bounds are not looked at.
    """
    counted = np.asarray(bounds["_rows"], dtype=np.int64)
    known = {
        column.name: partition_bounds(bounds, i, column.type, counted)
        for i, column in enumerate(columns)
        if column.name not in but
    }
    statistics = BlockStatistics(rows=counted, bounds=known)
    excluded = np.array([cannot_match(query.filter.root, statistics, None) for query in queries], dtype=np.bool_)
    return excluded.reshape(len(queries), statistics.n)  # also where there are no queries


def partition_bounds(table: pa.Table, i: int, type: str, rows: np.ndarray) -> ColumnBounds:
    """Column ``i``'s bounds by partition, from its least, greatest and count: ``_low{i}``, ``_high{i}``, ``_n{i}``.

    ``rows`` are the partitions', int64[n]. A text that is no UTF-8 bounds nothing.
    """
    nulls = rows - np.asarray(table[f"_n{i}"], dtype=np.int64)
    low, high = key_array(table[f"_low{i}"], type), key_array(table[f"_high{i}"], type)
    known = has_key(table[f"_low{i}"], type) & has_key(table[f"_high{i}"], type)
    if type in _FLOATS:
        # Spark's max is NaN where there is one, which is the largest key already; this says so.
        high = np.where(np.asarray(pc.fill_null(pc.is_nan(table[f"_high{i}"]), False)), NAN_KEY, high)
    return ColumnBounds(low=low, high=high, known=known, nulls=nulls, type=type)
