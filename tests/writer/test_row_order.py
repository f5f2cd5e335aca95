"""Rows sorted within their blocks, against Python's own sort of the values."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Context, Decimal
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.errors import SchemaError
from layoutopt.model.schema import Column, Schema
from layoutopt.writer import row_order
from layoutopt.writer.routing import Routing
from layoutopt.writer.row_order import sort_block_rows

WIDE = Context(prec=50)


def ten_thousandths(count: int) -> Decimal:
    """A number with four digits after the point, exactly."""
    return Decimal(count).scaleb(-4, WIDE)


TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "boolean": (pa.bool_(), st.booleans()),
    "tinyint": (pa.int8(), st.integers(-128, 127)),
    "bigint": (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)),
    "float": (pa.float32(), st.floats(width=32)),
    "double": (pa.float64(), st.floats() | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf])),
    "string": (pa.string(), st.text(max_size=3)),
    "binary": (pa.binary(), st.binary(max_size=3)),
    "date": (pa.date32(), st.dates()),
    "timestamp_ntz": (pa.timestamp("us"), st.datetimes()),
    "decimal(12,2)": (pa.decimal128(12, 2), st.decimals(-(10**9), 10**9, places=2)),
    "decimal(38,4)": (
        pa.decimal128(38, 4),
        st.integers(-(10**33), 10**33).map(ten_thousandths),
    ),
}
NAMES = ("a", "`b`", "c.d", 'e"f', "g h\n")


@st.composite
def segments(draw: st.DrawFn) -> tuple[Schema, pa.Table, tuple[str, ...], Routing]:
    """A segment's rows, some columns to sort by, and some of its rows in blocks in any order."""
    n = draw(st.integers(0, 40))
    types = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=len(NAMES)))
    schema = Schema(tuple(Column(name, type) for name, type in zip(NAMES, types, strict=False)))
    arrays = []
    for type in types:
        arrow, values = TYPES[type]
        few = draw(st.lists(values, min_size=1, max_size=6))  # so that rows are equal
        arrays.append(pa.array(draw(st.lists(st.sampled_from([*few, None]), min_size=n, max_size=n)), arrow))
    table = pa.table(dict(zip(schema.names, arrays, strict=True)))
    columns = tuple(draw(st.lists(st.sampled_from(schema.names), unique=True)))
    rows = draw(st.permutations(range(n)))[: draw(st.integers(0, n))]
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(rows) - 1)), max_size=5))) if len(rows) > 1 else []
    offsets = [0, *cuts, len(rows)] if rows else [0]
    return schema, table, columns, Routing(np.array(rows, dtype=np.int64), np.array(offsets, dtype=np.int64))


def sort_key(value: Any) -> tuple[Any, ...]:
    """Spark's order: NULL first, NaN last, 0.0 and -0.0 equal, texts by their bytes."""
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    return (1, value.encode() if isinstance(value, str) else value)


@given(segments())
def test_each_block_is_sorted_and_equal_rows_keep_their_order(
    given_rows: tuple[Schema, pa.Table, tuple[str, ...], Routing],
) -> None:
    schema, table, columns, routing = given_rows
    found = sort_block_rows(routing, columns, schema, table)
    assert found.offsets is routing.offsets
    values = table.to_pylist()
    for start, stop in pairwise(routing.offsets.tolist()):
        before = routing.rows[start:stop].tolist()
        expected = sorted(before, key=lambda row: [sort_key(values[row][name]) for name in columns])
        assert found.rows[start:stop].tolist() == expected


@given(segments())
def test_rows_too_many_for_one_word_are_sorted_alike(
    given_rows: tuple[Schema, pa.Table, tuple[str, ...], Routing],
) -> None:
    schema, table, columns, routing = given_rows
    found = sort_block_rows(routing, columns, schema, table).rows.tolist()
    for bits in (0, 18):  # by lexsort, and by words that are made short again
        with patch.object(row_order, "_WORD_BITS", bits):
            assert sort_block_rows(routing, columns, schema, table).rows.tolist() == found


def test_many_rows_of_many_columns() -> None:
    rng = np.random.default_rng(0)
    n = 50_000
    columns = {f"c{i}": rng.integers(-(10**i), 10**i, n) for i in range(8)}
    schema = Schema(tuple(Column(name, "bigint") for name in columns))
    routing = Routing(rng.permutation(n), np.array([0, 10_000, 10_001, n]))
    found = sort_block_rows(routing, schema.names, schema, pa.table(columns))
    for start, stop in pairwise(routing.offsets.tolist()):
        rows = routing.rows[start:stop]
        keys = [columns[name][rows] for name in reversed(schema.names)]
        assert found.rows[start:stop].tolist() == rows[np.lexsort(keys)].tolist()


def test_text_that_is_no_utf8_is_sorted_by_its_bytes() -> None:
    texts = pa.array([b"\xff", b"a", None, "\U0001f600".encode()], pa.binary()).cast(pa.binary())
    column = pa.Array.from_buffers(pa.string(), 4, texts.buffers())
    schema, routing = Schema((Column("s", "string"),)), Routing(np.arange(4), np.array([0, 4]))
    assert sort_block_rows(routing, ("s",), schema, pa.table({"s": column})).rows.tolist() == [2, 1, 3, 0]


def test_columns_without_values_or_an_order() -> None:
    schema = Schema((Column("n", "int"), Column("m", "array<int>")))
    table = pa.table({"n": pa.nulls(3, pa.int32()), "m": pa.array([[1], None, []])})
    routing = Routing(np.array([2, 0, 1]), np.array([0, 3]))
    assert sort_block_rows(routing, ("n",), schema, table).rows.tolist() == [2, 0, 1]
    with pytest.raises(SchemaError, match="has no order"):
        sort_block_rows(routing, ("m",), schema, table)


def test_dates_and_decimals_need_few_bits() -> None:
    days = pa.chunked_array([[dt.date(2020, 1, 1), None, dt.date(2020, 1, 3), dt.date(2020, 1, 3)]])
    assert row_order.order_codes(days, "date").values.tolist() == [1, 0, 3, 3]
    prices = pa.chunked_array([pa.array([Decimal("1.00"), Decimal("900.00")], pa.decimal128(9, 2))])
    values, bits = row_order.order_codes(prices, "decimal(9,2)")
    assert (values.tolist(), bits) == ([0, 1], 1)
