"""Read a source's rows for planning by Spark, where Arrow can't; draws and counts depend on content alone.

Spark draws by a hash of a row's short columns and of those that features name; long columns would take most of the
work to read and hash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DateType, NumericType, TimestampNTZType, TimestampType

from layoutopt.catalog.partition_names import PlainValue, null_first_key
from layoutopt.evaluation.predicates import read_word_columns, segment_words
from layoutopt.model.feature import FeatureSet
from layoutopt.model.layout import Plan
from layoutopt.model.schema import POSITION, SEGMENT, Column
from layoutopt.model.types import quote_name
from layoutopt.planning.rows import RowCounts, Rows, SegmentTask, SelectColumns
from layoutopt.planning.sample_evaluation import RowSample, SampleRequest
from layoutopt.planning.segment_evaluation import ChosenSegments
from layoutopt.sources.executor import Batches, Value
from layoutopt.sources.profile import DRAWS, KEY, ROWS, draw_limit
from layoutopt.sources.segments import Chunk
from layoutopt.spark.core.featurize import count_vectors, with_feature_words
from layoutopt.spark.core.partition_values import filter_partitions, partition_column, to_literal
from layoutopt.spark.core.segments import count_chunks, with_positions, with_segments
from layoutopt.spark.core.sessions import limit_method_size
from layoutopt.spark.core.source import hash_input, with_binaries
from layoutopt.spark.core.versions import to_arrow
from layoutopt.spark.core.workers import SparkTasks, map_segments

# The share of rows by which it is decided whether a column's bounds can exclude a query from a partition.
_BOUNDS_SHARE: Final = 0.01
_SHORT = (NumericType, DateType, TimestampType, TimestampNTZType)


@dataclass(frozen=True, eq=False)
class FrameRows(Rows):
    """The rows of a DataFrame."""

    frame: DataFrame
    partition_by: str | None

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns."""
        return self.frame.columns

    @property
    def tasks(self) -> SparkTasks:
        """Spark's tasks."""
        return SparkTasks(self.frame.sparkSession)

    @cached_property
    def partition_rows(self) -> Mapping[PlainValue, int]:
        """The rows of each partition, counted once."""
        keyed = self.frame.groupBy(partition_column(self.frame, self.partition_by).alias(KEY))
        counted = to_arrow(keyed.agg(F.count(F.lit(1)).alias(ROWS)))
        counts = dict(zip(counted[KEY].to_pylist(), counted[ROWS].to_pylist(), strict=True))
        return {value: counts[value] for value in sorted(counts, key=null_first_key)}

    def chunks(self, segment_rows: int) -> list[Chunk]:
        """Return chunks in Spark's order of the files."""
        return count_chunks(with_positions(self.frame), self.partition_by, segment_rows)

    def count(self, features: FeatureSet, bounded: Sequence[Column], select: SelectColumns) -> RowCounts:
        """Count vectors in one job, and measure bounds in two."""
        vectors = count_vectors(self.frame, features.features, self.partition_by)
        return RowCounts(vectors, *self._measure_bounds(self.frame, bounded, select))

    def count_some(
        self,
        features: FeatureSet,
        bounded: Sequence[Column],
        select: SelectColumns,
        partition_rows: Mapping[PlainValue, int],
        sample_rows: int,
    ) -> RowCounts:
        """Count the vectors of rows drawn, and measure bounds in two jobs."""
        some = draw_rows(self.frame, features, self.partition_by, partition_rows, sample_rows)
        rows = self.frame
        if self.partition_by is not None:
            rows = filter_partitions(rows, self.partition_by, list(partition_rows))
        vectors = count_vectors(some, features.features, self.partition_by)
        return RowCounts(vectors, *self._measure_bounds(rows, bounded, select))

    def _measure_bounds(
        self, rows: DataFrame, bounded: Sequence[Column], select: SelectColumns
    ) -> tuple[pa.Table, Sequence[Column]]:
        """Measure the bounds of the columns that are selected by those of a hundredth of the rows."""
        some_bounds = measure_bounds(rows, self.partition_by, bounded, _BOUNDS_SHARE)
        columns = select(some_bounds, bounded)
        bounds = measure_bounds(rows, self.partition_by, columns)
        if len(bounds) > len(some_bounds):  # the sample says nothing of a partition without rows in it
            return measure_bounds(rows, self.partition_by, bounded), bounded
        return bounds, columns

    def draw(self, request: SampleRequest) -> RowSample:
        """Draw rows by a hash of their content, in the source's order."""
        features, columns = request.features, request.columns
        # Positions are added last: which rows are drawn depends on content alone.
        few = draw_rows(self.frame, features, request.partition_by, request.partition_rows, request.sample_rows)
        with limit_method_size(self.frame.sparkSession):
            featurised = with_feature_words(with_positions(few), features.features, (*columns, POSITION))
            drawn = to_arrow(with_binaries(featurised))
        drawn = drawn.take(pa.array(np.argsort(np.asarray(drawn[POSITION]), kind="stable")))
        words = segment_words(
            features.features, drawn.select(list(columns)), lambda left: read_word_columns(drawn, len(left))
        )
        return request.build_sample(drawn, words)

    def draw_all_columns(self, features: FeatureSet, partition: tuple[PlainValue, int], wanted: int) -> pa.Table:
        """Draw rows of a partition by a hash of their short columns."""
        value, count = partition
        some = self.frame if self.partition_by is None else filter_partitions(self.frame, self.partition_by, [value])
        return to_arrow(with_binaries(draw_share(some, features, wanted / max(1, count))))

    def map_segments(
        self, plan: Plan, chosen: ChosenSegments, request: SampleRequest, task: SegmentTask[Value]
    ) -> tuple[list[Value], RowSample]:
        """Return a task's results for each segment, and the sample, in two jobs."""
        with limit_method_size(self.frame.sparkSession):
            routed = select_segment_rows(self.frame, plan, chosen)
            featurised = with_feature_words(routed, request.features.features, (*request.columns, POSITION, SEGMENT))
            parts = map_segments(featurised, chosen.shares * len(chosen.segments), partial(_run_task, task))
        results = [value for _, part in sorted(parts.items()) for value in part]
        return results, self.draw(request) if request.partition_rows else RowSample(request.features, ())


def _run_task(task: SegmentTask[Value], number: int, batches: Batches) -> Sequence[Value]:
    return task(batches, None)


def draw_rows(
    rows: DataFrame,
    features: FeatureSet,
    partition_by: str | None,
    partition_rows: Mapping[PlainValue, int],
    sample_rows: int,
) -> DataFrame:
    """Return about ``sample_rows`` rows of each partition in ``partition_rows``."""
    draw = _draw_number(rows, features)
    limits = {value: draw_limit(sample_rows / max(1, count)) for value, count in partition_rows.items()}
    if partition_by is None:
        return rows.where(draw < F.lit(limits.get(None, 0)))
    key, type = F.col(quote_name(partition_by)), rows.schema[partition_by].dataType
    limit_of_row = F.lit(0)
    for value, limit in limits.items():
        limit_of_row = F.when(key.eqNullSafe(to_literal(value, type)), F.lit(limit)).otherwise(limit_of_row)
    return filter_partitions(rows, partition_by, list(limits)).where(draw < limit_of_row)


def draw_share(rows: DataFrame, features: FeatureSet, share: float) -> DataFrame:
    """Return about that share of the rows with all columns; the same ones whatever their order."""
    return rows.where(_draw_number(rows, features) < F.lit(draw_limit(share)))


def _draw_number(rows: DataFrame, features: FeatureSet) -> SparkColumn:
    """Return a number from 0 to ``DRAWS - 1`` that depends on a row's content alone."""
    used = frozenset().union(*(feature.columns for feature in features))
    short = [field for field in rows.schema.fields if field.name in used or isinstance(field.dataType, _SHORT)]
    values = [hash_input(field.name, field.dataType) for field in short or rows.schema.fields]
    return F.pmod(F.xxhash64(*values), F.lit(DRAWS))


def measure_bounds(rows: DataFrame, partition_by: str | None, columns: Sequence[Column], share: float = 1) -> pa.Table:
    """Return by partition its rows, ``_rows``, and of the ``i``-th column ``_low{i}``, ``_high{i}`` and ``_n{i}``.

    ``share`` is the share of the rows that is measured. NaN is the greatest float, as to Spark.
    """
    if share < 1:
        rows = rows.sample(fraction=share, seed=0)
    aggregates = [F.count(F.lit(1)).alias("_rows")]
    for i, column in enumerate(columns):
        value = quote_name(column.name)
        aggregates += map(F.expr, (f"min({value}) AS _low{i}", f"max({value}) AS _high{i}", f"count({value}) AS _n{i}"))
    by_key = rows.groupBy(partition_column(rows, partition_by).alias("_key"))
    return to_arrow(by_key.agg(*aggregates)).combine_chunks()


def select_segment_rows(rows: DataFrame, plan: Plan, chosen: ChosenSegments) -> DataFrame:
    """Return the rows of some segments of a source, for each task that gets them."""
    segments, shares = chosen.segments, chosen.shares
    positioned = with_positions(rows)
    if plan.partition_by is not None and all(
        segment.rows == chosen.partition_rows[segment.value] for segment in segments
    ):
        # A filter on partitions skips the other files; the rows then have other positions, which do not matter.
        positioned = with_positions(filter_partitions(rows, plan.partition_by, [s.value for s in segments]))
    tasks = [replace(segment, id=shares * segment.id + share) for segment in segments for share in range(shares)]
    return with_segments(rows.sparkSession, positioned, tasks, plan.partition_by)
