"""Cutting partitions into segments: pure functions."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.model.schema import POSITION, SEGMENT
from layoutopt.sources.segments import Chunk, cut_in_input_order, cut_segments
from layoutopt.spark.core.segments import count_chunks, with_positions, with_segments
from tests.spark.tables import simple_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@given(st.lists(st.integers(1, 50), min_size=1), st.integers(50, 400))
def test_cuts_keep_the_bound_and_the_order(rows: list[int], segment_rows: int) -> None:
    cut = cut_in_input_order(rows, segment_rows)
    sizes = [sum(n for n, segment in zip(rows, cut, strict=True) if segment == s) for s in range(cut[-1] + 1)]
    assert cut == sorted(cut)
    assert cut[0] == 0
    assert max(sizes) <= segment_rows
    # Two neighbours together always exceed a segment's equal share, or there would be one segment fewer.
    assert len(sizes) <= 2 * -(-sum(rows) // segment_rows)


def test_segments_of_a_partition_tile_its_positions() -> None:
    chunks = [Chunk(value, low, 10) for low in range(0, 100, 10) for value in (1995, None)]
    segments = cut_segments(chunks, 40)
    assert [(s.value, s.number, s.rows) for s in segments] == [
        (None, 0, 40),
        (None, 1, 40),
        (None, 2, 20),
        (1995, 0, 40),
        (1995, 1, 40),
        (1995, 2, 20),
    ]
    for value in (None, 1995):
        own = [s for s in segments if s.value == value]
        assert own[0].low == 0
        assert all(first.high == second.low for first, second in itertools.pairwise(own))
        assert own[-1].high > 10**18
    assert [s.id for s in segments] == list(range(6))


@pytest.mark.spark
def test_every_row_goes_to_the_segment_that_was_counted_for_it(spark: SparkSession) -> None:
    source = with_positions(simple_rows(spark).selectExpr("id", "if(kind = 4, NULL, kind) AS kind"))
    chunks = count_chunks(source, "kind", 30)
    segments = cut_segments(chunks, 30)
    routed = with_segments(spark, source, segments, "kind")
    counted = {row[SEGMENT]: row["count"] for row in routed.groupBy(SEGMENT).count().collect()}
    assert counted == {segment.id: segment.rows for segment in segments}
    assert max(counted.values()) <= 30
    assert sum(counted.values()) == 400
    wrong = [
        row
        for row in routed.collect()
        if row["kind"] != segments[row[SEGMENT]].value
        or not segments[row[SEGMENT]].low <= row[POSITION] < segments[row[SEGMENT]].high
    ]
    assert wrong == []
