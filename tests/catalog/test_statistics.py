"""Statistics of blocks agree with a plain look at every value, and never claim too little."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.catalog.statistics import MAX_TEXT, block_statistics, measure, statistics_type
from layoutopt.errors import SchemaError
from layoutopt.evaluation.keys import has_key, key_array, stored_keys
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import NAN_KEY, to_key
from tests.catalog.typed_values import ARROW, VALUES


def column_of(type: str) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | VALUES[type], max_size=30)


typed_columns = st.sampled_from(sorted(VALUES)).flatmap(lambda type: st.tuples(st.just(type), column_of(type)))


@given(typed_columns)
def test_keys_of_arrays_are_the_keys_of_their_values(case: tuple[str, list[Any]]) -> None:
    type, values = case
    array = pa.array(values, ARROW[type])
    keys = key_array(array, type)
    expected = [None if value is None else to_key(value, type) for value in array.to_pylist()]
    assert [key if valid else None for key, valid in zip(keys.tolist(), array.is_valid().to_pylist(), strict=True)] == (
        expected
    )


@given(typed_columns, st.lists(st.integers(0, 30), max_size=6))
def test_statistics_are_those_of_a_plain_look(case: tuple[str, list[Any]], cuts: list[int]) -> None:
    type, values = case
    array = pa.array(values, ARROW[type])
    offsets = np.array([0, *sorted(min(cut, len(values)) for cut in cuts), len(values)], dtype=np.int64)
    stats = block_statistics(pa.table({"x": array}), offsets, Schema((Column("x", type),))).field("c0").to_pylist()
    for found, start, end in zip(stats, offsets[:-1], offsets[1:], strict=True):
        assert_describes(found, array.slice(start, end - start).to_pylist(), type)


def assert_describes(found: dict[str, Any], values: list[Any], type: str) -> None:
    present = [value for value in values if value is not None]
    numbers = [value for value in present if not (isinstance(value, float) and math.isnan(value))]
    keys: list[Any] = [to_key(value, type) for value in numbers]
    assert found["nulls"] == len(values) - len(present)
    assert found.get("nans", 0) == len(present) - len(numbers)
    if not keys:
        assert found["min"] is None
        assert found["max"] is None
    elif type not in ("string", "binary"):
        assert (found["min"], found["max"]) == (min(keys), max(keys))
    elif found["max"] is not None:
        assert found["min"] <= min(keys)
        assert found["max"] >= max(keys)
        assert max(len(found["min"]), len(found["max"])) <= MAX_TEXT
        if all(len(key) <= MAX_TEXT for key in keys):
            assert (found["min"], found["max"]) == (min(keys), max(keys))


@pytest.mark.parametrize(
    ("type", "values"),
    [
        ("int", [3, None, 1, 2]),
        ("string", ["c", None, "a", "b"]),
        ("double", [3.5, None, -0.0, math.nan]),
        ("decimal(18,4)", [Decimal(3), None, Decimal("-0.5"), Decimal(2)]),
        ("decimal(38,10)", [Decimal(3), None, Decimal("-0.5"), Decimal(2)]),
    ],
)
def test_slices_chunks_and_dictionaries_change_nothing(type: str, values: list[Any]) -> None:
    plain = pa.array(values, ARROW[type])
    padded = pa.array([None, *values, None], ARROW[type]).slice(1, len(values))
    forms = [padded, pa.chunked_array([plain.slice(0, 1), plain.slice(1)])]
    forms += [] if type.startswith("decimal") else [plain.dictionary_encode()]
    for form in forms:
        assert stored_keys(form, type).to_pylist() == stored_keys(plain, type).to_pylist()


def test_a_trailing_empty_block_takes_no_row_from_the_one_before() -> None:
    offsets = np.array([0, 0, 3, 3], dtype=np.int64)
    measured = measure(pa.array([5, 7, 9]), offsets, "bigint")
    assert measured.low is not None
    assert measured.high is not None
    assert measured.low.to_pylist() == [None, 5, None]
    assert measured.high.to_pylist() == [None, 9, None]


def test_nans_are_counted_and_stay_out_of_the_range() -> None:
    values = pa.array([math.nan, 1.0, None, math.nan, math.nan, math.inf, -math.inf])
    stats = block_statistics(pa.table({"x": values}), np.array([0, 3, 5, 7]), Schema((Column("x", "double"),)))
    low, high = int(to_key(-math.inf, "double")), int(to_key(math.inf, "double"))
    one = to_key(1.0, "double")
    assert [(s["nulls"], s["nans"], s["min"], s["max"]) for s in stats.field("c0").to_pylist()] == [
        (1, 1, one, one),
        (0, 2, None, None),
        (0, 0, low, high),
    ]
    assert high < NAN_KEY


@pytest.mark.parametrize(
    ("type", "values", "low", "high"),
    [
        ("string", ["b" * 70, "b" * 63 + "\U0010ffff" * 7], "b" * 64, "b" * 62 + "c"),
        ("string", ["a", "\U0010ffff" * 70], None, None),  # without a successor
        ("binary", [b"a", b"\xff" * 70], None, None),
        ("string", ["\ud7ff" * 70], "\ud7ff" * 64, "\ud7ff" * 63 + "\ue000"),  # over the surrogates
    ],
)
def test_long_texts_are_rounded_outwards_or_unknown(type: str, values: list[Any], low: Any, high: Any) -> None:
    table = pa.table({"x": pa.array(values, ARROW[type])})
    (stats,) = block_statistics(table, np.array([0, len(values)]), Schema((Column("x", type),))).field("c0").to_pylist()
    assert (stats["min"], stats["max"]) == (low, high)


def test_text_that_is_no_utf8_is_unknown() -> None:
    # Spark's order, of bytes: "a", the emoji (F0 ..), FF. A str with a surrogate for FF would sort below the emoji.
    invalid = pa.array([b"a", "\U0001f600".encode(), b"\xff\xfe", None]).view(pa.string())
    stats = block_statistics(pa.table({"x": invalid}), np.array([0, 3, 4]), Schema((Column("x", "string"),)))
    found = stats.field("c0").to_pylist()
    assert [(block["nulls"], block["min"], block["max"]) for block in found] == [(0, None, None), (1, None, None)]
    assert has_key(invalid, "string").tolist() == [True, True, False, False]
    assert key_array(invalid, "string").tolist() == ["a", "\U0001f600", "", ""]


def test_columns_without_an_order_have_nulls_only_and_absent_ones_nothing() -> None:
    schema = Schema((Column("a", "array<int>"), Column("gone", "int"), Column("b", "int")))
    table = pa.table({"b": pa.array([1, 2], pa.int32()), "a": pa.array([[1], None])})
    sums = {"b": np.array([77])}
    known = {"column_bytes": {"b": np.array([10])}, "tid_sums": {"a": np.array([5])}}
    stats = block_statistics(table, np.array([0, 2]), schema, sums=sums, **known)
    assert stats.type == statistics_type(schema)
    assert stats.to_pylist() == [
        {
            "c0": {"nulls": 1, "bytes": None, "sum": None, "tid_sum": 5},
            "c1": None,
            "c2": {"nulls": 0, "min": 1, "max": 2, "bytes": 10, "sum": 77, "tid_sum": None},
        }
    ]


def test_coarser_and_finer_times_become_microseconds() -> None:
    seconds = pa.array([1], pa.timestamp("s", "UTC"))
    assert key_array(seconds, "timestamp").tolist() == [1_000_000]
    assert key_array(pa.array([2_000], pa.timestamp("ns")), "timestamp").tolist() == [2]
    with pytest.raises(SchemaError, match="timestamp"):
        key_array(pa.array([2_001], pa.timestamp("ns")), "timestamp")


def test_values_of_another_type_are_refused() -> None:
    with pytest.raises(SchemaError, match="int"):
        key_array(pa.array(["x"]), "int")
    with pytest.raises(SchemaError, match="no order"):
        key_array(pa.array([[1]]), "array<int>")


@pytest.mark.parametrize("offsets", [[1, 2], [0, 1], [0, 2, 1, 2], []])
def test_offsets_must_cover_the_rows(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="offsets"):
        block_statistics(pa.table({"x": [1, 2]}), np.array(offsets, dtype=np.int64), Schema((Column("x", "bigint"),)))
