"""What a cell costs in bytes: measured on rows drawn at random, encoded as a load would encode them.

The thesis counts cells; but a text of forty characters is not a flag. A block holds a few of its segment's rows, far
apart in the source: rows drawn at random are as far apart, so they compress as a block's do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.methods.proposals import PlanRequest
from layoutopt.model.columns import TID
from layoutopt.model.feature import FeatureSet
from layoutopt.search.problem import Unit
from layoutopt.spark.core.partition_values import of_partitions
from layoutopt.spark.core.variants import with_binaries
from layoutopt.spark.planning.plain_rows import Rows, by_arrow_or_spark, names_of
from layoutopt.spark.planning.sampling import rows_drawn
from layoutopt.writer.encodings import bytes_a_row

_MEASURED_BLOCKS = 2
MEASURED_ROWS = 30_000
"""Rows encoded at most to measure what cells take."""


def unit_in_bytes(rows: Rows, features: FeatureSet, partition: tuple[PlainValue, int], request: PlanRequest) -> Unit:
    """Compressed bytes of a cell of each column, and of a tid, with each column chunk's share of the footer.

    Args:
        rows: the source.
        features: the plan's.
        partition: the value and the rows of the partition to measure.
        request: names the partition column, the size of blocks and segments, and the compression.
    """
    wanted = min(_MEASURED_BLOCKS * request.block_rows, MEASURED_ROWS)
    sample = rows_to_measure(rows, features, partition, request.partition_by, wanted)
    columns, in_segment = names_of(rows), min(partition[1], request.segment_rows)
    return measured_unit(sample, columns, request.block_rows, in_segment, request.codec, request.seed)


def rows_to_measure(
    rows: Rows, features: FeatureSet, partition: tuple[PlainValue, int], partition_by: str | None, wanted: int
) -> pa.Table:
    """About so many rows of a partition with all columns, twice as many at most.

    Args:
        rows: the source.
        features: those of a plan, whose columns Spark draws by.
        partition: its value and its rows.
        partition_by: the partition column, None for none.
        wanted: how many.
    """
    value, count = partition

    def by_spark(frame: DataFrame) -> pa.Table:
        some = frame if partition_by is None else of_partitions(frame, partition_by, [value])
        return with_binaries(rows_drawn(some, features, wanted / max(1, count))).toArrow()

    return by_arrow_or_spark(rows, lambda plain: plain.drawn_of_few(value, wanted), by_spark).slice(0, 2 * wanted)


def measured_unit(
    sample: pa.Table, columns: Sequence[str], block_rows: int, segment_rows: int, codec: str, seed: int
) -> Unit:
    """The unit of rows drawn from a segment, in the source's order; all 1 where there are none.

    Args:
        sample: the rows.
        columns: of the table, in order.
        block_rows: the mean block.
        segment_rows: of the segment; tids are below.
        codec: the Parquet compression.
        seed: of the tids drawn.
    """
    if not sample.num_rows:
        return Unit.cells(len(columns))
    drawn = np.random.default_rng(seed).integers(0, segment_rows, sample.num_rows)
    offsets = np.append(np.arange(0, sample.num_rows, block_rows), sample.num_rows)
    for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        drawn[start:stop].sort()
    measured = bytes_a_row(sample.append_column(TID, pa.array(drawn, pa.int32())), offsets, codec)
    return Unit(np.array([measured[name] for name in columns]), measured[TID])
