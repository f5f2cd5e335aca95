"""Blocks by cuts of a segment's rows: nothing lost, whatever the values, and codes that hold what literals ask for."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.evaluation.keys import key_array
from layoutopt.model.layout import ByCuts, Layout, Plan, Scheme
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import Key, to_key
from layoutopt.model.vectors import pack
from layoutopt.writer.routing import feature_guides, route
from layoutopt.writer.value_cuts import CutColumn, Intervals
from tests.spark.tables import document, is_value, plan_of

DOUBLES = st.sampled_from([-math.inf, -2.5, -0.0, 0.0, 5e-324, 1.0, 3.5, math.inf, math.nan])
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int32(), st.integers(-5, 5)),
    "bigint": (pa.int64(), st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1])),
    "double": (pa.float64(), DOUBLES),
    "boolean": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates(dt.date(1990, 1, 1), dt.date(1990, 1, 9))),
    "timestamp_ntz": (pa.timestamp("us"), st.datetimes(dt.datetime(1990, 1, 1), dt.datetime(1990, 1, 2))),
    "decimal(5,2)": (pa.decimal128(5, 2), st.decimals(-3, 3, places=2)),
    "decimal(30,2)": (pa.decimal128(30, 2), st.decimals(-3, 3, places=2)),
    "string": (pa.string(), st.sampled_from(["", "a", "a\0", "b", "ß", "\U0001f600"])),
    "binary": (pa.binary(), st.binary(max_size=2)),
}


@st.composite
def columns(draw: st.DrawFn, type: str) -> tuple[list[Any], pa.Array]:
    arrow, value = VALUES[type]
    values = draw(st.lists(st.one_of(st.none(), value), max_size=60))
    return values, pa.array(values, arrow)


@pytest.mark.parametrize("type", VALUES)
@given(data=st.data())
def test_a_value_of_an_interval_has_one_of_its_codes(type: str, data: st.DataObject) -> None:
    values, array = data.draw(columns(type))
    key = VALUES[type][1].map(lambda value: to_key(value, type))
    bound: st.SearchStrategy[Key | None] = st.one_of(st.none(), key)
    intervals = data.draw(st.lists(st.tuples(bound, bound), max_size=3))
    n = len(values)
    places = np.sort(
        data.draw(st.permutations(range(n)).map(lambda some: np.array(some[: n // 2 + 1], dtype=np.int64)))
    )
    column = CutColumn.of(array, type, Intervals.of(intervals), places)
    every = np.arange(n)
    codes, keys = column.sampled(every), key_array(array, type)
    present = np.array([value is not None for value in values], dtype=np.bool_)
    assert np.array_equal(codes == 0, ~present)
    for (low, high), first, stop in zip(intervals, column.first.tolist(), column.stop.tolist(), strict=True):
        for code, row_key in zip(codes[present].tolist(), keys[present].tolist(), strict=True):
            inside = (low is None or row_key >= low) and (high is None or row_key < high)
            assert first <= code < stop or not inside
    # Codes keep the order of the values, and the two ways to ask for a side agree.
    in_order = np.argsort(keys[present], kind="stable")
    assert (np.diff(codes[present][in_order]) >= 0).all()
    for code in range(column.thresholds.n_codes):
        assert np.array_equal(column.is_low(code, every), codes <= code)


def test_constants_of_the_log_part_values_exactly() -> None:
    array = pa.array(np.arange(10_000) / 7)
    low, high = to_key(100.25, "double"), to_key(100.5, "double")
    column = CutColumn.of(array, "double", Intervals.of([(low, high)]), np.arange(0, 10_000, 50))
    (first,), (stop,) = column.first, column.stop
    codes = column.sampled(np.arange(10_000))
    values = np.arange(10_000) / 7
    assert np.array_equal((codes >= first) & (codes < stop), (values >= 100.25) & (values < 100.5))


SCHEMA = Schema(
    (Column("x", "double"), Column("s", "string"), Column("d", "decimal(30,2)"), Column("list", "array<int>"))
)


def a_plan(block_rows: int, columns: tuple[str, ...], features: tuple[int, ...]) -> Plan:
    conditions = [
        is_value(SCHEMA, "x", ">", 1.0),
        is_value(SCHEMA, "s", "=", "a"),
        is_value(SCHEMA, "d", "<=", Decimal(1)),
    ]
    plan = plan_of(document(SCHEMA, conditions), block_rows=block_rows)
    return replace(plan, scheme=Scheme((Layout(SCHEMA.names, features, SCHEMA.names, ByCuts(columns)),)))


ROW = st.tuples(
    st.one_of(st.none(), DOUBLES),
    st.one_of(st.none(), st.text(max_size=2)),
    st.decimals(-3, 3, places=2),
    st.booleans(),
)


@given(
    st.lists(ROW, min_size=1, max_size=120),
    st.integers(1, 50),
    st.sampled_from([(), ("x",), ("x", "s", "d")]),
    st.sampled_from([(), (1,), (0, 1, 2)]),
)
def test_every_row_goes_to_one_block(
    rows: list[tuple[Any, ...]], block_rows: int, columns: tuple[str, ...], features: tuple[int, ...]
) -> None:
    table = pa.table(
        {
            "x": pa.array([row[0] for row in rows], pa.float64()),
            "s": pa.array([row[1] for row in rows], pa.string()),
            "d": pa.array([row[2] for row in rows], pa.decimal128(30, 2)),
            "list": pa.array([[1]] * len(rows), pa.list_(pa.int32())),
        }
    )
    words = pack(np.array([[row[3]] * 3 for row in rows]))
    plan = a_plan(block_rows, columns, features)
    layout = plan.scheme.layouts[0]
    routing = route(plan, layout, table, words, feature_guides(layout, words, np.ones(3)))
    sizes = np.diff(routing.offsets)
    assert sorted(routing.rows.tolist()) == list(range(len(rows)))
    assert routing.offsets[-1] == len(rows)
    assert sizes.min() > 0
    least = max(1, round(block_rows / 1.33))
    assert len(sizes) == 1 or (sizes.min() >= least and sizes.max() < 2 * least)


def test_rows_that_no_feature_lacks_are_cut_by_features() -> None:
    n = 600
    table = pa.table(
        {
            "x": pa.array(np.zeros(n)),
            "s": pa.array(["a"] * n),
            "d": pa.array([Decimal(0)] * n, pa.decimal128(30, 2)),
            "list": pa.array([[1]] * n, pa.list_(pa.int32())),
        }
    )
    bits = np.zeros((n, 3), dtype=np.bool_)
    bits[::3, 1] = True
    plan = a_plan(100, ("x", "s", "d"), (0, 1, 2))
    layout = plan.scheme.layouts[0]
    routing = route(plan, layout, table, pack(bits), feature_guides(layout, pack(bits), np.ones(3)))
    for start, stop in zip(routing.offsets[:-1], routing.offsets[1:], strict=True):
        assert len(np.unique(bits[routing.rows[start:stop], 1])) == 1


def test_plans_with_cuts_are_read_back() -> None:
    plan = a_plan(100, ("x", "s"), (1,))
    assert Plan.loads(plan.dumps()) == plan
