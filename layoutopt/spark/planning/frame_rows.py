"""Read a source's rows for planning by Spark, where Arrow can't read them; draws and counts depend on content alone.

Spark draws by a hash of a row's short columns and of those that features name; long columns would take most of the
work to read and hash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DateType, NumericType, TimestampNTZType, TimestampType

from layoutopt.catalog.partition_names import PlainValue, null_first_key
from layoutopt.local.processes import Task
from layoutopt.local.profile import DRAWS, draw_limit
from layoutopt.local.segments import Chunk
from layoutopt.model.arrays import Words
from layoutopt.model.feature import FeatureSet
from layoutopt.model.layout import Plan
from layoutopt.model.schema import POSITION, SEGMENT, Column
from layoutopt.model.types import quote_name
from layoutopt.model.vectors import VectorCounts
from layoutopt.spark.core.featurize import count_vectors, with_feature_words
from layoutopt.spark.core.partition_values import filter_partitions, partition_column, to_literal
from layoutopt.spark.core.segments import count_chunks, with_positions, with_segments
from layoutopt.spark.core.sessions import limit_method_size
from layoutopt.spark.core.source import hash_input, with_binaries
from layoutopt.spark.core.workers import map_segments
from layoutopt.writer.evaluation import read_word_columns, segment_words

if TYPE_CHECKING:
    from layoutopt.spark.planning.sample_evaluation import SampleRequest
    from layoutopt.spark.planning.segment_evaluation import ChosenSegments

_SHORT = (NumericType, DateType, TimestampType, TimestampNTZType)


def count_rows(rows: DataFrame, partition_by: str | None) -> dict[PlainValue, int]:
    """Return the rows of each partition by its value, NULL first."""
    keyed = rows.groupBy(partition_column(rows, partition_by).alias("_key"))
    counted = keyed.agg(F.count(F.lit(1)).alias("_rows")).toArrow()
    counts = dict(zip(counted["_key"].to_pylist(), counted["_rows"].to_pylist(), strict=True))
    return {value: counts[value] for value in sorted(counts, key=null_first_key)}


def sample_vectors(
    rows: DataFrame,
    features: FeatureSet,
    partition_by: str | None,
    partition_rows: Mapping[PlainValue, int],
    sample_rows: int,
) -> dict[PlainValue, VectorCounts]:
    """Return the vectors of about ``sample_rows`` rows of each partition in ``partition_rows``."""
    some = draw_rows(rows, features, partition_by, partition_rows, sample_rows)
    return count_vectors(some, features.features, partition_by)


def draw_rows(
    rows: DataFrame,
    features: FeatureSet,
    partition_by: str | None,
    partition_rows: Mapping[PlainValue, int],
    sample_rows: int,
) -> DataFrame:
    """Return the rows that :func:`sample_vectors` counts, by the same arguments."""
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


def draw_all_columns(
    rows: DataFrame, features: FeatureSet, partition: tuple[PlainValue, int], partition_by: str | None, wanted: int
) -> pa.Table:
    """Draw about ``wanted`` rows of a partition (its value and rows) with all columns."""
    value, count = partition
    some = rows if partition_by is None else filter_partitions(rows, partition_by, [value])
    return with_binaries(draw_share(some, features, wanted / max(1, count))).toArrow()


def draw_in_order(rows: DataFrame, request: SampleRequest) -> tuple[pa.Table, Words]:
    """Draw rows by a hash of their content; return them in the source's order, with their vectors."""
    features, columns = request.features, request.columns
    # Positions are added last: which rows are drawn depends on content alone.
    few = draw_rows(rows, features, request.partition_by, request.partition_rows, request.sample_rows)
    with limit_method_size(rows.sparkSession):
        drawn = with_binaries(
            with_feature_words(with_positions(few), features.features, (*columns, POSITION))
        ).toArrow()
    drawn = drawn.take(pa.array(np.argsort(np.asarray(drawn[POSITION]), kind="stable")))
    words = segment_words(
        features.features, drawn.select(list(columns)), lambda left: read_word_columns(drawn, len(left))
    )
    return drawn, words


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
    return rows.groupBy(partition_column(rows, partition_by).alias("_key")).agg(*aggregates).toArrow().combine_chunks()


def count_row_chunks(rows: DataFrame, partition_by: str | None, segment_rows: int) -> list[Chunk]:
    """Return chunks of neighbouring rows, in the source's order."""
    return count_chunks(with_positions(rows), partition_by, segment_rows)


def map_chosen_segments(
    rows: DataFrame, plan: Plan, chosen: ChosenSegments, request: SampleRequest, task: Task, schema: str
) -> pa.Table:
    """Return a task's results, of a schema, for some segments of a source."""
    with limit_method_size(rows.sparkSession):
        routed = select_segment_rows(rows, plan, chosen)
        featurised = with_feature_words(routed, request.features.features, (*request.columns, POSITION, SEGMENT))
        return map_segments(featurised, chosen.shares * len(chosen.segments), task, schema).toArrow()


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
