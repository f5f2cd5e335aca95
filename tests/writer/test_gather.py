"""Segments put together from batches: every row, in the source's order, whatever came first."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.errors import BoundError
from layoutopt.model.layout import ByOrder, Layout, Plan, Scheme
from layoutopt.model.schema import POSITION, SEGMENT, Column, Schema, word_names
from layoutopt.writer.segment import gather_segment
from tests.scan.builder import feature_of
from tests.spark.tables import document, is_value, plan_of

SCHEMA = Schema((Column("id", "bigint"), Column("text", "string")))


def a_plan(segment_rows: int = 1000) -> Plan:
    """A plan whose first feature is found by keys, and whose second is left to Spark."""
    like = feature_of("text LIKE '%1'", SCHEMA).node
    return plan_of(document(SCHEMA, [is_value(SCHEMA, "id", "<=", 99), like]), segment_rows=segment_rows)


def batches_of(parts: Sequence[Sequence[int]], segment: Sequence[int] | None = None) -> Iterator[pa.RecordBatch]:
    for number, positions in enumerate(parts):
        columns = {
            "id": pa.array(positions, pa.int64()),
            "text": pa.array([f"text {position}" for position in positions], pa.string()),
            POSITION: pa.array(positions, pa.int64()),
            SEGMENT: pa.array([3 if segment is None else segment[number]] * len(positions), pa.int32()),
            word_names(1)[0]: pa.array([position % 2 for position in positions], pa.int64()),
        }
        yield pa.RecordBatch.from_pydict(columns)


@st.composite
def parts_in_any_order(draw: st.DrawFn) -> list[list[int]]:
    """Positions as a shuffle gives them, and now and then ones that interleave."""
    positions = sorted(draw(st.sets(st.integers(0, 1 << 40), min_size=1, max_size=40)))
    cuts = sorted(draw(st.sets(st.integers(0, len(positions)), max_size=6)))
    parts = [positions[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(positions)], strict=True)]
    if draw(st.booleans()):
        shuffled = draw(st.permutations(positions))
        parts = [shuffled[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(positions)], strict=True)]
    return list(draw(st.permutations(parts)))


@given(parts_in_any_order())
def test_rows_stand_in_the_order_of_the_source(parts: list[list[int]]) -> None:
    segment = gather_segment(a_plan(), batches_of(parts))
    expected = sorted(position for part in parts for position in part)
    assert segment is not None
    assert segment.id == 3
    assert segment.table["id"].to_pylist() == expected
    assert segment.table["text"].to_pylist() == [f"text {position}" for position in expected]
    bits = [(position <= 99) + 2 * (position % 2) for position in expected]
    np.testing.assert_array_equal(segment.words[:, 0], bits)


def test_no_rows_are_no_segment() -> None:
    assert gather_segment(a_plan(), batches_of([[], []])) is None


def test_more_rows_than_a_segment_may_have_are_refused() -> None:
    with pytest.raises(BoundError, match="segment_rows"):
        gather_segment(a_plan(segment_rows=4), batches_of([[0, 1, 2], [3, 4]]))


def test_rows_of_two_segments_are_refused() -> None:
    with pytest.raises(BoundError, match=r"segments \[3, 4\]"):
        gather_segment(a_plan(), batches_of([[5], [1]], segment=[4, 3]))


def test_fields_that_are_never_null_may_be_in_what_is() -> None:
    """A source may say so of the fields of a struct that is null itself; Parquet's writer refuses their nulls."""
    never = pa.field("a", pa.int32(), nullable=False)
    inner = pa.struct([never, pa.field("l", pa.list_(pa.field("element", pa.struct([never]), nullable=False)))])
    nested = pa.StructArray.from_arrays(
        [pa.array([1, None], pa.int32()), pa.array([[{"a": 7}], None], inner[1].type)],
        fields=list(inner),
        mask=pa.array([False, True]),
    )
    values = pa.array([[("k", {"a": 1})], None], pa.map_(pa.string(), pa.field("value", pa.struct([never]), False)))
    schema = Schema(
        (Column("nested", "struct<a:int,l:array<struct<a:int>>>"), Column("map", "map<string,struct<a:int>>"))
    )
    layout = Layout(schema.names, (), schema.names, ByOrder("input"))
    plan = replace(a_plan(), schema=schema, scheme=Scheme((layout,)))
    (batch,) = batches_of([[0, 1]])
    batch = pa.RecordBatch.from_arrays(
        [nested, values, *batch.columns[2:]], names=["nested", "map", *batch.schema.names[2:]]
    )
    gathered = gather_segment(plan, [batch])
    assert gathered is not None
    sink = io.BytesIO()
    pq.write_table(gathered.table, sink)
    assert pq.read_table(sink).to_pylist() == [
        {"nested": {"a": 1, "l": [{"a": 7}]}, "map": [("k", {"a": 1})]},
        {"nested": None, "map": None},
    ]
