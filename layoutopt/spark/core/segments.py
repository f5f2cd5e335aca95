"""Which segment each row of a load goes to: partitions are counted, where nobody has, and large ones cut.

Segments are cut along the source's own order, so that what lay together stays together and ``input-order`` means
what it says. Two jobs see the same order where the source's files are the same. Where a cut nevertheless comes out
wrong (a source that is not read from files), a segment is larger than planned and the writing task refuses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.model.schema import END_OF_SOURCE, POSITION, SEGMENT
from layoutopt.spark.core.partition_values import null_first, partition_column, plain_type

# No source has names that begin so.
_VALUE, _LOW, _HIGH, _CHUNK, _COUNT = "_w_value", "_w_low", "_w_high", "_w_chunk", "_w_count"
# Rows counted together: cuts fall between chunks. Finer where segments are small.
_LARGEST_CHUNK = 1 << 16
_CHUNKS_A_SEGMENT = 16


@dataclass(frozen=True)
class Segment:
    """Rows that one task partitions and writes.

    Attributes:
        id: number in the load, from 0.
        value: the partition column's, plain; None is NULL, or that the table has no partitions.
        number: number in its partition, from 0.
        low, high: positions in the source of its rows, ``[low, high)``.
        rows: how many it was counted to have.
    """

    id: int
    value: PlainValue
    number: int
    low: int
    high: int
    rows: int


@dataclass(frozen=True)
class Chunk:
    """Neighbouring rows of one partition: ``rows`` of them from position ``low`` on."""

    value: PlainValue
    low: int
    rows: int


class Cutter(Protocol):
    """How a partition's chunks, in the source's order, become segments: the segment of each chunk, rising from 0."""

    def __call__(self, rows: Sequence[int], segment_rows: int) -> list[int]:
        """Cut chunks of so many rows each into segments of at most ``segment_rows``."""
        ...


def in_input_order(rows: Sequence[int], segment_rows: int) -> list[int]:
    """Segments of nearly equal size along the source's order; never above ``segment_rows`` unless one chunk is.

    >>> in_input_order([4, 4, 4, 4], segment_rows=12)
    [0, 0, 1, 1]
    """
    fewest = -(-sum(rows) // segment_rows) or 1
    aim = min(segment_rows, -(-sum(rows) // fewest))
    cut = _filled(rows, aim)
    # Whole chunks may not fit into equal shares; then segments are filled up to the bound.
    return cut if cut[-1] < fewest else _filled(rows, segment_rows)


def _filled(rows: Sequence[int], most: int) -> list[int]:
    segments, held = [0], 0
    for n in rows:
        starts_another = held > 0 and held + n > most
        held = n if starts_another else held + n
        segments.append(segments[-1] + starts_another)
    return segments[1:] or [0]


def with_positions(df: DataFrame) -> DataFrame:
    """The rows with ``_pos``, a bigint that rises along the source's order; unique, not dense."""
    return df.select("*", F.monotonically_increasing_id().alias(POSITION))


def count_chunks(positioned: DataFrame, partition_by: str | None, segment_rows: int) -> list[Chunk]:
    """Count rows by partition and chunk of the source, in one cheap aggregate; in the order of the source.

    Args:
        positioned: the source with ``_pos``.
        partition_by: the partition column, None for none.
        segment_rows: rows that a segment may have.
    """
    shift = chunk_bits(segment_rows)
    value = partition_column(positioned, partition_by)
    keyed = positioned.select(value.alias(_VALUE), F.shiftright(F.col(POSITION), shift).alias(_CHUNK))
    counted = keyed.groupBy(_VALUE, _CHUNK).agg(F.count("*").alias(_COUNT)).collect()
    chunks = [Chunk(row[_VALUE], row[_CHUNK] << shift, row[_COUNT]) for row in counted]
    return sorted(chunks, key=lambda chunk: chunk.low)


def chunk_bits(segment_rows: int) -> int:
    """The positions of a chunk are equal but for so many of their last bits, where segments have so many rows at most.

    >>> chunk_bits(1_000_000), chunk_bits(100)
    (15, 2)
    """
    return int(np.log2(min(_LARGEST_CHUNK, max(1, segment_rows // _CHUNKS_A_SEGMENT))))


def known_chunks(counted: Mapping[PlainValue, int | None], segment_rows: int) -> list[Chunk] | None:
    """Partitions whose rows are known, as one chunk each; None where one has to be counted, or cut, or none has rows.

    Whether there really are none is for the source to say: without a chunk nobody would read it.

    Args:
        counted: the rows of each partition value, None where nobody knows.
        segment_rows: rows that a segment may have.

    >>> known_chunks({1994: 7, 1995: 0}, 10)
    [Chunk(value=1994, low=0, rows=7)]
    >>> known_chunks({1994: 11}, 10), known_chunks({1994: None}, 10), known_chunks({1994: 0}, 10)
    (None, None, None)
    """
    if any(rows is None or rows > segment_rows for rows in counted.values()):
        return None
    return [Chunk(value, 0, rows) for value, rows in counted.items() if rows] or None


def cut_segments(chunks: Iterable[Chunk], segment_rows: int, cutter: Cutter = in_input_order) -> tuple[Segment, ...]:
    """The segments of a load, numbered by partition value (NULL first) and then along the source.

    Args:
        chunks: in the order of the source.
        segment_rows: rows that a segment may have.
        cutter: how partitions above it are cut.
    """
    by_value: dict[PlainValue, list[Chunk]] = {}
    for chunk in chunks:
        by_value.setdefault(chunk.value, []).append(chunk)
    segments: list[Segment] = []
    for value in sorted(by_value, key=null_first):
        held = by_value[value]
        cut = cutter([chunk.rows for chunk in held], segment_rows)
        for number in range(cut[-1] + 1):
            members = [chunk for chunk, segment in zip(held, cut, strict=True) if segment == number]
            low = members[0].low if number else 0
            if number:
                segments[-1] = _ending(segments[-1], low)
            rows = sum(chunk.rows for chunk in members)
            segments.append(Segment(len(segments), value, number, low, END_OF_SOURCE, rows))
    return tuple(segments)


def _ending(segment: Segment, high: int) -> Segment:
    return Segment(segment.id, segment.value, segment.number, segment.low, high, segment.rows)


def with_segments(
    spark: SparkSession, positioned: DataFrame, segments: Sequence[Segment], partition_by: str | None
) -> DataFrame:
    """The rows with ``_segment``, the int id of their segment, by a broadcast join with the table of segments.

    A row that no segment takes is lost here, and so is noticed by the comparison with the source.
    """
    value_type = IntegerType() if partition_by is None else plain_type(positioned.schema[partition_by].dataType)
    fields = [(_VALUE, value_type), (_LOW, LongType()), (_HIGH, LongType()), (SEGMENT, IntegerType())]
    schema = StructType([StructField(name, type) for name, type in fields])
    table = spark.createDataFrame([(s.value, s.low, s.high, s.id) for s in segments], schema)
    inside = (F.col(POSITION) >= F.col(_LOW)) & (F.col(POSITION) < F.col(_HIGH))
    if partition_by is not None:
        inside = partition_column(positioned, partition_by).eqNullSafe(F.col(_VALUE)) & inside
    joined = positioned.join(F.broadcast(table), inside, "inner")
    return joined.drop(_VALUE, _LOW, _HIGH)
