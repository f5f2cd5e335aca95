"""Checksums at tids: of every type, alike on both sides of a file, and different where rows were swapped."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.evaluation.checksum import Positions, hash_array, hash_with_positions, sum_with_positions, value_hashes

PAIRS = pa.map_(pa.string(), pa.float64())
DEEP = pa.list_(pa.map_(pa.int32(), pa.map_(pa.string(), pa.int32())))
PRICED = pa.struct([("d", pa.date32()), ("m", pa.decimal128(30, 2))])
INNER = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])
NESTED: list[tuple[pa.DataType, list[Any]]] = [
    (pa.list_(pa.int32()), [None, [], [None], [1], [1, 2], [2, 1], [1, None], [0], [0, 0]]),
    (pa.large_list(pa.string()), [None, [], [""], ["", ""], ["a", "b"], ["ab"]]),
    (INNER, [None, {"a": None, "b": None}, {"a": 1, "b": None}, {"a": 1, "b": []}, {"a": None, "b": [None]}]),
    (PAIRS, [None, [], [("a", 1.0)], [("a", None)], [("b", 1.0)], [("a", 1.0), ("b", 2.0)]]),
    (DEEP, [None, [], [[]], [[(1, [])]], [[(1, [("k", 2)])]]]),
    (PRICED, [None, {"d": dt.date(1994, 1, 1), "m": Decimal("1.50")}]),
    (pa.list_(pa.timestamp("us", tz="UTC")), [None, [], [dt.datetime(2020, 1, 1, tzinfo=dt.UTC)]]),
    (pa.list_(pa.binary()), [None, [b""], [b"\0"], [b"\0\0"]]),
    (pa.list_(pa.bool_()), [None, [True], [False], [None], []]),
]


def hashes_of(column: pa.ChunkedArray) -> list[int]:
    found = value_hashes(column, "a nested type")
    assert found is not None
    return [int(hash) for hash in found]


@pytest.mark.parametrize(("type", "values"), NESTED, ids=[str(type)[:40] for type, _ in NESTED])
def test_nested_values_that_differ_have_hashes_that_differ(type: pa.DataType, values: list[Any]) -> None:
    found = hashes_of(pa.chunked_array([pa.array(values, type)]))
    assert len(set(found)) == len(values)
    assert found[0] == 42  # of NULL, as in Spark


@pytest.mark.parametrize(("type", "values"), NESTED, ids=[str(type)[:40] for type, _ in NESTED])
def test_a_values_hash_is_the_same_in_slices_chunks_and_files(type: pa.DataType, values: list[Any]) -> None:
    array = pa.array(values * 3, type)
    found = hashes_of(pa.chunked_array([array]))
    assert found == found[: len(values)] * 3
    chunks = [array.slice(start, stop - start) for start, stop in pairwise([0, 2, 2, 5, len(array)])]
    assert hashes_of(pa.chunked_array(chunks)) == found
    in_reverse = np.arange(len(array))[::-1]
    assert hashes_of(pa.chunked_array([array.take(pa.array(in_reverse))])) == found[::-1]
    file = io.BytesIO()
    pq.write_table(pa.table({"x": array}), file)
    assert hashes_of(pq.read_table(file)["x"]) == found


def test_what_lies_under_a_null_does_not_count() -> None:
    below = pa.array([1, 2], pa.int32())
    hidden = pa.StructArray.from_arrays([below], names=["a"], mask=pa.array([True, False]))
    plain = pa.array([None, {"a": 2}], pa.struct([("a", pa.int32())]))
    assert hashes_of(pa.chunked_array([hidden])) == hashes_of(pa.chunked_array([plain]))


def test_simple_values_hash_as_in_spark() -> None:
    array = pa.array(["Spark", None, ""])
    found = value_hashes(pa.chunked_array([array]), "string")
    assert found is not None
    assert found.tolist() == hash_array(array, "string").tolist()


def test_types_without_a_hash_say_so() -> None:
    durations = pa.chunked_array([pa.array([1], pa.duration("us"))])
    assert value_hashes(durations, "interval day to second") is None
    assert value_hashes(pa.chunked_array([pa.array([[1]], pa.list_(pa.duration("us")))]), "array<interval>") is None
    assert hashes_of(pa.chunked_array([], pa.list_(pa.int32()))) == []


def test_the_hash_at_a_tid_is_sparks_of_one_long() -> None:
    values = np.array([0, 7, 2**32 - 1], dtype=np.uint32)
    tids = np.array([0, 5, 2**31 - 1])
    longs = pa.array(((values.astype(np.uint64) << np.uint64(32)) | tids.astype(np.uint64)).view(np.int64))
    assert hash_with_positions(values, tids).tolist() == hash_array(longs, "bigint").tolist()


@given(st.lists(st.integers(0, 3), min_size=2, max_size=30), st.data())
def test_two_tids_swapped_change_the_sum_unless_the_values_are_equal(values: list[int], data: st.DataObject) -> None:
    i, j = data.draw(st.lists(st.integers(0, len(values) - 1), min_size=2, max_size=2, unique=True))
    hashes = hash_array(pa.array(values, pa.int64()), "bigint")
    tids, offsets = np.arange(len(values)), np.array([0, len(values)])
    swapped = tids.copy()
    swapped[[i, j]] = j, i
    same = (
        sum_with_positions(hashes, Positions(tids), offsets)[0]
        == sum_with_positions(hashes, Positions(swapped), offsets)[0]
    )
    assert same == (values[i] == values[j])


def test_sums_are_by_block_and_do_not_ask_for_an_order() -> None:
    hashes = np.random.default_rng(0).integers(0, 2**32, 10, dtype=np.uint32)
    tids = np.arange(10)
    single = hash_with_positions(hashes, tids).astype(np.int64)
    offsets = np.array([0, 3, 3, 10])
    assert sum_with_positions(hashes, Positions(tids), offsets).tolist() == [single[:3].sum(), 0, single[3:].sum()]
    order = np.random.default_rng(1).permutation(10)
    assert sum_with_positions(hashes[order], Positions(tids[order]), np.array([0, 10])).tolist() == [single.sum()]
