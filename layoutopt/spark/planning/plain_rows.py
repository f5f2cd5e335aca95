"""A source of plain Parquet files on this machine as planning asks it: by tasks that read the files by Arrow.

What only a plan goes by may be found so without a second reader's word: a load reads every row again, and is proved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import ceil
from pathlib import Path
from typing import Final, Protocol, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.direct.cut_rows import CutJob, Places, Split
from layoutopt.direct.plain_parquet import arrow_schema
from layoutopt.direct.survey import KEY, Draw, Survey, Surveyed, limit_of, places_in_files, with_nan
from layoutopt.errors import NeedsSparkError
from layoutopt.events import Progress
from layoutopt.model.columns import POSITION, SEGMENT
from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.schema import Column, Schema
from layoutopt.model.sequences import spread
from layoutopt.sources.snapshot import source_name
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.featurize import MAX_PAIRS
from layoutopt.spark.core.partition_values import null_first
from layoutopt.spark.core.segments import Segment
from layoutopt.spark.core.workers import Batches, Task, each_in_workers
from layoutopt.spark.loading.plain_files import (
    LEAST_ROWS,
    check_some,
    held_in_files,
    in_tasks,
    map_parcels,
    paths_of,
    places_of,
)
from layoutopt.writer.answers import stream_of
from layoutopt.writer.gather import in_source_order

_TASKS_A_CORE: Final = 8  # at most, since the driver takes in what each of them finds
_ANSWER: Final = "found binary, drawn binary"  # Arrow streams
_FEW_SPLITS: Final = 4
_ROWS_A_SAMPLED: Final = 4  # that are read for each that is drawn: neighbours are more alike than a block's rows
_LOOKED_AT: Final = 64  # files whose footers tell how many rows there are about

T = TypeVar("T", covariant=True)


@dataclass(eq=False)
class PlainRows:
    """The rows of a source of plain files.

    Its methods raise NeedsSparkError where a file or a feature is not surely read as Spark reads it, and where the
    driver can't take in what tasks find.

    Attributes:
        frame: the same rows as Spark has them.
        name: the source, for messages.
        schema: of the table.
        partition_by: the partition column, None for none.
        splits: of the files, in the order of their names, each with its rows of each value of the partition column.
        partition_rows: the rows of each partition, by its value, NULL first.
        say: told why Spark reads the rows after all.
        given_up: whether it does.
    """

    frame: DataFrame
    name: str
    schema: Schema
    partition_by: str | None
    splits: tuple[tuple[Split, Mapping[PlainValue, int]], ...]
    partition_rows: Mapping[PlainValue, int]
    say: Progress
    given_up: bool = False

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
            segments: numbered from 0, of ranges of positions in ``frame``; those of one value in their order.
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
        job = replace(self._job(splits, columns), places=places_of(segments))
        also = None
        if partition_rows:
            also = partial(self._draw(job, partition_rows, sample_rows).parcels, len(segments))
        each = partial(_found_or_drawn, shares * len(segments), task)
        with translate_spark_errors(self.name):
            answers = map_parcels(self.frame.sparkSession, job, each, _ANSWER, shares, also).toArrow()
        drawn = _tables_of(answers["drawn"])
        return _tables_of(answers["found"]), drawn if drawn.num_columns else arrow_schema(job.read).empty_table()

    def _each(self, asked: Question[T]) -> list[T]:
        """What each task finds that finds something."""
        with translate_spark_errors(self.name):
            found = each_in_workers(self.frame.sparkSession, len(asked.job.tasks), asked.of_task)
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
        most = _TASKS_A_CORE * self.frame.sparkSession.sparkContext.defaultParallelism
        return CutJob(self.schema, self.partition_by, Places((), (), ()), in_tasks(splits, most), columns=names)


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


def _found_or_drawn(last: int, task: Task, batches: Batches) -> Iterator[pa.RecordBatch]:
    """What a task makes of the rows of a segment, or those of the last one as they are; as ``_ANSWER`` says."""
    some = iter(batches)
    first = next(some, None)
    if first is None:
        return
    given = chain([first], some)
    if first[SEGMENT][0].as_py() == last:
        drawn = in_source_order(pa.Table.from_batches(given)).drop_columns([SEGMENT, POSITION])
        yield _answer(None, stream_of(drawn))
    else:
        yield from (_answer(stream_of(pa.Table.from_batches([found])), None) for found in task(given))


def _answer(found: bytes | None, drawn: bytes | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"found": pa.array([found], pa.binary()), "drawn": pa.array([drawn], pa.binary())}
    )


def _tables_of(streams: pa.ChunkedArray) -> pa.Table:
    """The tables of Arrow streams behind one another, NULL being none; of no stream a table without columns."""
    tables = [pa.ipc.open_stream(stream.as_buffer()).read_all() for stream in streams.drop_null()]
    return pa.concat_tables(tables) if tables else pa.table({})


def _has_some(split: Split, values: Collection[PlainValue], segment: Segment) -> bool:
    """Whether a split may have rows of a segment."""
    return segment.value in values and segment.low < split.low + split.rows and split.low < segment.high


def rows_to_plan(
    frame: DataFrame,
    source: DataFrame | str | Path,
    schema: Schema,
    partition_by: str | None,
    features: FeatureSet,
    say: Progress,
) -> Rows:
    """A source's rows, read by Arrow where that is surely what Spark reads, and there are many.

    Args:
        frame: all rows of the source, in the schema.
        source: what was opened.
        schema: of the table.
        partition_by: the partition column, None for none.
        features: that will be asked of the rows.
        say: told why Spark reads the rows of a path, now or where that turns out later; not of few rows, where these
            could be counted.
    """
    if isinstance(source, DataFrame) or source_name(source) is not None:
        return frame
    name = repr(str(source))
    try:
        with translate_spark_errors(name):
            n_rows = _about_so_many_rows(frame)
            if n_rows >= LEAST_ROWS:
                return _plain_rows(frame, name, schema, partition_by, features, n_rows, say)
    except NeedsSparkError as error:
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
    return rows.frame if isinstance(rows, PlainRows) else rows


def _plain_rows(
    frame: DataFrame,
    name: str,
    schema: Schema,
    partition_by: str | None,
    features: FeatureSet,
    n_rows: int,
    say: Progress,
) -> PlainRows:
    held, splits = held_in_files(frame, schema, partition_by, n_rows)
    check_some(CutJob(schema, partition_by, Places((), (), ()), ()), splits, features)
    partition_rows: dict[PlainValue, int] = {}
    for groups in held:
        for group in groups:
            partition_rows[group["value"]] = partition_rows.get(group["value"], 0) + group["rows"]
    by_name = sorted(zip(splits, held, strict=True), key=lambda one: (one[0].path, one[0].start))
    parts = tuple((split, {group["value"]: group["rows"] for group in groups}) for split, groups in by_name)
    in_order = {value: partition_rows[value] for value in sorted(partition_rows, key=null_first)}
    return PlainRows(frame, name, schema, partition_by, parts, in_order, say)


def _about_so_many_rows(frame: DataFrame) -> int:
    """The rows of the files, by the footers of some.

    Raises:
        NeedsSparkError: the files are not on this machine under plain names, or damaged.
    """
    paths = paths_of(frame)
    some = paths[:: -(-len(paths) // _LOOKED_AT) or 1]
    try:
        counted = [pq.read_metadata(path).num_rows for path in some]
    except (OSError, pa.ArrowException) as error:
        raise NeedsSparkError("a file's footer can't be read") from error
    return int(sum(counted)) * len(paths) // max(1, len(some))
