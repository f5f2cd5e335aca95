"""A source of plain Parquet files on this machine as planning asks it: by processes that read the files by Arrow.

What only a plan goes by may be found so without Spark's word: a load reads every row again, and is proved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.direct.cut_rows import CutJob, Places, Split
from layoutopt.direct.local_files import Counted, LocalFile, count_files, local_files, rows_in_files
from layoutopt.direct.parcel_files import read_parcels, write_parcels
from layoutopt.direct.plain_parquet import arrow_schema
from layoutopt.direct.processes import Processes, Tasks
from layoutopt.direct.survey import (
    CHUNK,
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
from layoutopt.errors import NeedsSparkError
from layoutopt.events import Progress
from layoutopt.model.columns import POSITION, SEGMENT
from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.schema import Column, Schema
from layoutopt.model.sequences import spread
from layoutopt.sources.snapshot import source_name
from layoutopt.spark.core.featurize import MAX_PAIRS
from layoutopt.spark.core.partition_values import null_first
from layoutopt.spark.core.segments import Chunk, Segment, chunk_bits, known_chunks
from layoutopt.spark.core.workers import SparkTasks, Task
from layoutopt.spark.loading.plain_files import LEAST_ROWS, check_features_of, in_tasks, places_of
from layoutopt.writer.gather import in_source_order

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
    import layoutopt.partitioning.loops.clusters
    import layoutopt.partitioning.loops.shares  # noqa: F401


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
