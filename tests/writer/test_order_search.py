"""The search for an order of rows, against all orders of a few columns."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.model.schema import Column, Schema
from layoutopt.writer.encodings import encoded_bytes, smallest_encodings
from layoutopt.writer.row_order import MOST_COLUMNS, ReadBlock, find_row_order

SCHEMA = Schema(
    (Column("shop", "string"), Column("town", "int"), Column("price", "double"), Column("tags", "map<string,int>"))
)
TAGS = pa.map_(pa.string(), pa.int32())


def block(n: int = 3_000, seed: int = 0) -> pa.Table:
    """Shops at random, a town and nearly a price for each, and tags."""
    shops = np.random.default_rng(seed).integers(0, 50, n)
    return pa.table(
        {
            "shop": pa.array([f"the shop number {shop}" for shop in shops]),
            "town": pa.array(shops // 5, pa.int32()),
            "price": pa.array(shops * 1.25 + np.arange(n) % 2),
            "tags": pa.array([[("a", i)] for i in range(n)], TAGS),
        }
    )


def size(rows: pa.Table, weights: dict[str, float]) -> float:
    """The bytes that are read of a block when it is encoded at its best."""
    read = rows.select(list(weights))
    taken = encoded_bytes([read], smallest_encodings([read], "zstd"), "zstd")
    return sum(float(taken[name][0]) * weight for name, weight in weights.items())


def sorted_by(rows: pa.Table, order: tuple[str, ...]) -> pa.Table:
    return rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in order]))


def test_what_is_found_is_about_the_best_of_all_orders() -> None:
    rows, weights = block(), {"shop": 1.0, "price": 2.0, "tags": 0.01}
    found = find_row_order([ReadBlock(rows, weights)], SCHEMA, "zstd")
    names = ("shop", "town", "price")
    by_order = {order: size(sorted_by(rows, order), weights) for k in (1, 2, 3) for order in permutations(names, k)}
    assert "tags" not in found.columns
    assert by_order[found.columns] <= 1.02 * min(by_order.values()) < 0.5 * size(rows, weights)
    # A load may find an encoding that the search did not try.
    assert 0 <= found.share - by_order[found.columns] / size(rows, weights) < 0.05
    assert found == find_row_order([ReadBlock(rows, weights)], SCHEMA, "zstd")


def test_rows_stay_as_they_are_where_sorting_saves_nothing() -> None:
    rows = sorted_by(block(), ("price",))
    for weights in ({"price": 1.0}, {}, {"shop": 0.0}):
        assert find_row_order([ReadBlock(rows, weights)], SCHEMA, "zstd").columns == ()


def test_tids_have_their_weight_too() -> None:
    """Rows are sorted for a column, but not where positions are read so often that their order is worth more."""
    rows = block().append_column("_tid", pa.array(np.arange(3_000) * 90, pa.int32()))
    assert find_row_order([ReadBlock(rows, {"price": 1.0, "_tid": 0.1})], SCHEMA, "zstd").columns != ()
    assert find_row_order([ReadBlock(rows, {"price": 0.1, "_tid": 10.0})], SCHEMA, "zstd").columns == ()


def test_columns_of_nulls_or_one_value_are_no_candidates() -> None:
    schema = Schema((Column("n", "int"), Column("one", "int"), Column("x", "int")))
    rows = pa.table({"n": pa.nulls(100, pa.int32()), "one": pa.array([7] * 100, pa.int32()), "x": pa.array(range(100))})
    found = find_row_order([ReadBlock(rows, {"n": 1.0, "one": 1.0, "x": 1.0})], schema, "zstd")
    assert set(found.columns) <= {"x"}


@given(st.lists(st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=3, max_size=3), min_size=1, max_size=30))
def test_small_blocks_of_any_values(cells: list[list[int | None]]) -> None:
    schema = Schema(tuple(Column(name, "int") for name in "abc"))
    rows = pa.table({name: pa.array([row[i] for row in cells], pa.int32()) for i, name in enumerate("abc")})
    halves = [rows.slice(0, len(cells) // 2), rows.slice(len(cells) // 2)]
    blocks = [ReadBlock(half, {"a": 1.0, "c": 2.0}) for half in halves if half.num_rows]
    found = find_row_order(blocks, schema, "zstd")
    assert len(found.columns) == len(set(found.columns)) <= MOST_COLUMNS
    assert found.share <= 1
