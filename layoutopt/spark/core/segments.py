"""Assign each row of a load to a segment: partitions are counted, unless their rows are known, and large ones cut.

Segments are cut along the source's own order, which ``input-order`` keeps. Two jobs read the same order where the
source's files are the same. Where a cut is wrong nevertheless (a source that is not read from files), a segment is
larger than planned and its writing task refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from layoutopt.model.schema import POSITION, SEGMENT
from layoutopt.sources.profile import CHUNK, KEY, ROWS, list_chunks
from layoutopt.sources.segments import Chunk, Segment, chunk_bits
from layoutopt.spark.core.partition_values import partition_column, plain_type
from layoutopt.spark.core.versions import to_arrow

# No source has names that begin so.
_VALUE, _LOW, _HIGH = "_w_value", "_w_low", "_w_high"


def with_positions(df: DataFrame) -> DataFrame:
    """Return the rows with ``_pos``, a bigint that rises along the source's order; unique, not dense."""
    return df.select("*", F.monotonically_increasing_id().alias(POSITION))


def count_chunks(positioned: DataFrame, partition_by: str | None, segment_rows: int) -> list[Chunk]:
    """Count the rows with ``_pos`` by partition and chunk, in one aggregate; in the order of the source."""
    shift = chunk_bits(segment_rows)
    value = partition_column(positioned, partition_by)
    keyed = positioned.select(value.alias(KEY), F.shiftright(F.col(POSITION), shift).alias(CHUNK))
    return list_chunks(to_arrow(keyed.groupBy(KEY, CHUNK).agg(F.count("*").alias(ROWS))), shift)


def with_segments(
    spark: SparkSession, positioned: DataFrame, segments: Sequence[Segment], partition_by: str | None
) -> DataFrame:
    """Return the rows with ``_segment``, the int id of their segment, by a broadcast join with the segments.

    A row of no segment is dropped, which the comparison with the source detects.
    """
    value_type = IntegerType() if partition_by is None else plain_type(positioned.schema[partition_by].dataType)
    fields = [(_VALUE, value_type), (_LOW, LongType()), (_HIGH, LongType()), (SEGMENT, IntegerType())]
    schema = StructType([StructField(name, type) for name, type in fields])
    table = spark.createDataFrame([(s.value, s.low, s.high, s.id) for s in segments], schema)
    inside = (F.col(POSITION) >= F.col(_LOW)) & (F.col(POSITION) < F.col(_HIGH))
    if partition_by is not None:
        inside = partition_column(positioned, partition_by).eqNullSafe(F.col(_VALUE)) & inside
    return positioned.join(F.broadcast(table), inside, "inner").drop(_VALUE, _LOW, _HIGH)
