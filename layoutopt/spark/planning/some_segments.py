"""A few whole segments of a source, spread along it, on which plans are tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from pyspark.sql import DataFrame

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.model.arrays import Ints
from layoutopt.model.layout import Plan
from layoutopt.spark.core.partition_values import of_partitions
from layoutopt.spark.core.segments import (
    Chunk,
    Segment,
    count_chunks,
    cut_segments,
    with_positions,
    with_segments,
)
from layoutopt.spark.planning.plain_rows import PlainRows, Rows, tasks_of

_FEWEST_SEGMENTS, _MOST_SEGMENTS = 2, 6
_ENOUGH_ROWS: Final = 600_000
"""Of all segments together: where they are large, the fewest are rehearsed."""


class Chosen(NamedTuple):
    """Some segments of a source.

    Attributes:
        segments: numbered anew; with ``k`` shares the rows of segment ``i`` go to tasks ``k * i`` to ``k * i + k - 1``.
        partition_rows: by value, how many rows each partition of the table has.
        shares: how often the rows of each segment are wanted.
    """

    segments: tuple[Segment, ...]
    partition_rows: Mapping[PlainValue, int]
    shares: int


def some_segments(rows: Rows, plan: Plan, trials: int = 1) -> Chosen:
    """Some segments, spread evenly along the table's rows by partition and then the source's order.

    Args:
        rows: the source.
        plan: its partitions and segments.
        trials: how many plans are to be tried on each segment.
    """
    segments = cut_segments(_chunks_of(rows, plan), plan.segment_rows)
    up_to = np.cumsum([segment.rows for segment in segments])
    if not segments or not up_to[-1]:
        return Chosen((), {}, 1)
    middle = segments[_at(up_to, 0.5)]
    count = min(_MOST_SEGMENTS, max(_FEWEST_SEGMENTS, _ENOUGH_ROWS // middle.rows))
    chosen = [segments[i] for i in sorted({_at(up_to, (i + 0.5) / count) for i in range(count)})]
    partition_rows: dict[PlainValue, int] = {}
    for segment in segments:
        partition_rows[segment.value] = partition_rows.get(segment.value, 0) + segment.rows
    cores = tasks_of(rows).cores
    shares = max(1, min(trials, cores // len(chosen)))
    return Chosen(tuple(replace(each, id=i) for i, each in enumerate(chosen)), partition_rows, shares)


def _chunks_of(rows: Rows, plan: Plan) -> Sequence[Chunk]:
    if isinstance(rows, PlainRows):
        return rows.chunks(plan.segment_rows)
    return count_chunks(with_positions(rows), plan.partition_by, plan.segment_rows)


def rows_of_segments(rows: DataFrame, plan: Plan, chosen: Chosen) -> DataFrame:
    """The rows of some segments of a source, for each task that gets them."""
    segments, shares = chosen.segments, chosen.shares
    positioned = with_positions(rows)
    if plan.partition_by is not None and all(
        segment.rows == chosen.partition_rows[segment.value] for segment in segments
    ):
        # Asked of the files themselves, so that others are not read; the rows then have other positions.
        positioned = with_positions(of_partitions(rows, plan.partition_by, [each.value for each in segments]))
    tasks = [replace(each, id=shares * each.id + share) for each in segments for share in range(shares)]
    return with_segments(rows.sparkSession, positioned, tasks, plan.partition_by)


def _at(up_to: Ints, share: float) -> int:
    """The segment that holds the row at a share of all, from the rows up to the end of each."""
    return int(np.searchsorted(up_to, share * float(up_to[-1]), side="right"))
