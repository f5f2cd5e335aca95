"""Our hash against Spark's own, over every type and the values that tend to differ."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.evaluation.checksum import block_sums, hash_array, is_hashable, sums_by_block

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FLOATS = [0.0, -0.0, 1.5, -1.5, float("nan"), float("inf"), float("-inf"), 1e-310, None]
TEXTS = [
    "",
    "a",
    "ab",
    "abc",
    "abcd",
    "abcde",
    "ünïcödé",
    "日本語テキスト",
    "😀x",
    "\x00",
    "\x7f\x80ÿ",
    "x" * 257,
    None,
]
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

CASES: dict[str, list[Any]] = {
    "boolean": [True, False, None],
    "tinyint": [-128, -1, 0, 127, None],
    "smallint": [-32768, -1, 0, 32767, None],
    "int": [-(2**31), -1, 0, 1, 2**31 - 1, None],
    "bigint": [-(2**63), -1, 0, 1, 2**32, 2**63 - 1, None],
    "float": FLOATS,
    "double": FLOATS,
    "string": TEXTS,
    "binary": [None if t is None else t.encode() for t in TEXTS] + [bytes(range(256))],
    "date": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2026, 2, 28), None],
    "timestamp": [EPOCH, EPOCH - dt.timedelta(microseconds=1), EPOCH + dt.timedelta(days=20000, microseconds=7), None],
    "timestamp_ntz": [dt.datetime(1582, 10, 15), dt.datetime(2026, 1, 1, 0, 0, 0, 1), None],
    "decimal(9,2)": [Decimal("0.00"), Decimal("-0.01"), Decimal("9999999.99"), None],
    "decimal(18,0)": [Decimal(10**18 - 1), Decimal(1 - 10**18), Decimal(0), None],
    "decimal(19,4)": [Decimal(0), Decimal("-0.0001"), Decimal("0.0127"), Decimal("0.0128"), Decimal("-0.0128"), None],
    "decimal(38,0)": [Decimal(10**38 - 1), Decimal(1 - 10**38), Decimal(2**63), Decimal(-(2**64)), Decimal(-129)],
}


@pytest.mark.spark
@pytest.mark.parametrize("type", CASES)
def test_every_type_hashes_as_in_spark(spark: SparkSession, type: str) -> None:
    df = spark.createDataFrame([(i, value) for i, value in enumerate(CASES[type])], f"i int, v {type}")
    table = df.selectExpr("v", "hash(v) AS h").toArrow()
    column = table["v"].combine_chunks()
    assert is_hashable(type)
    assert hash_array(column, type).view(np.int32).tolist() == table["h"].to_pylist()
    # The same from a slice: buffers begin before the array does.
    assert hash_array(column[1:], type).view(np.int32).tolist() == table["h"].to_pylist()[1:]


@pytest.mark.spark
def test_random_texts_and_numbers_hash_as_in_spark(spark: SparkSession) -> None:
    random = np.random.default_rng(7)
    sizes = random.integers(0, 70, 20_000)
    texts = ["".join(chr(c) for c in random.integers(32, 1200, size)) for size in sizes.tolist()]
    numbers = random.integers(-(2**63), 2**63 - 1, len(texts))
    df = spark.createDataFrame(pa.table({"s": texts, "n": numbers}))
    table = df.selectExpr("s", "n", "hash(s) AS hs", "hash(n) AS hn").toArrow()
    assert np.array_equal(hash_array(table["s"].combine_chunks(), "string").view(np.int32), table["hs"].to_numpy())
    assert np.array_equal(hash_array(table["n"].combine_chunks(), "bigint").view(np.int32), table["hn"].to_numpy())


def reference_hash(data: bytes) -> int:
    """``Murmur3_x86_32.hashUnsafeBytes`` written out byte by byte."""

    def rotate(x: int, r: int) -> int:
        return (x << r | x >> (32 - r)) & 0xFFFFFFFF

    def mix(h: int, k: int) -> int:
        k = rotate(k * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
        return (rotate(h ^ k, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF

    h, whole = 42, len(data) // 4 * 4
    for i in range(0, whole, 4):
        h = mix(h, int.from_bytes(data[i : i + 4], "little"))
    for byte in data[whole:]:
        h = mix(h, (byte - 256 if byte >= 128 else byte) & 0xFFFFFFFF)
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16


@given(st.lists(st.none() | st.binary(max_size=40)))
def test_bytes_against_the_algorithm_written_out(values: list[bytes | None]) -> None:
    expected = [42 if value is None else reference_hash(value) for value in values]
    assert hash_array(pa.array(values, pa.binary()), "binary").tolist() == expected
    assert hash_array(pa.array(values, pa.large_binary()), "binary").tolist() == expected


@given(st.integers(-(10**38) + 1, 10**38 - 1))
def test_wide_decimals_hash_by_the_bytes_of_a_big_integer(unscaled: int) -> None:
    size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    expected = reference_hash(unscaled.to_bytes(size, "big", signed=True))
    array = pa.array([Decimal(unscaled)], pa.decimal128(38, 0))
    assert hash_array(array, "decimal(38,0)").tolist() == [expected]


def test_repeated_texts_are_hashed_by_their_distinct_values_alike() -> None:
    few = pa.array((["AIR", "RAIL", None, ""] * 1500), pa.string())
    assert hash_array(few, "string").tolist() == hash_array(few[:4], "string").tolist() * 1500


def test_block_sums_see_a_duplicate_and_no_order() -> None:
    values = pa.array([1, 2, 2, None, 1, 2, None, 2], pa.int32())
    first, second = block_sums(values, np.array([0, 4, 8]), "int").tolist()
    assert first == second
    assert block_sums(pa.array([1, 2, 2, 2], pa.int32()), np.array([0, 4]), "int").tolist() != [first]
    assert block_sums(values[:0], np.array([0]), "int").tolist() == []


def test_a_type_that_spark_must_hash_is_refused() -> None:
    assert not is_hashable("array<int>")
    with pytest.raises(ValueError, match="array<int>"):
        hash_array(pa.array([[1]]), "array<int>")


@given(st.integers(-(2**63), 2**63 - 5000), st.integers(0, 3))
def test_numbers_that_lie_close_together_hash_as_one_by_one(lowest: int, width: int) -> None:
    values = lowest + np.arange(5000) % (width * 1000 + 1)
    column = pa.array(values, pa.int64())
    few_at_once = [hash_array(column[i : i + 500], "bigint") for i in range(0, 5000, 500)]
    assert np.array_equal(hash_array(column, "bigint"), np.concatenate(few_at_once))


@given(st.lists(st.none() | st.sampled_from(["", "a", "abcde", "é"])), st.integers(0, 5))
def test_a_dictionary_hashes_as_its_values(texts: list[str | None], skipped: int) -> None:
    plain = pa.array(texts, pa.string())
    coded = plain.dictionary_encode()[skipped:]
    assert hash_array(coded, "string").tolist() == hash_array(plain[skipped:], "string").tolist()


@given(st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=3), max_size=6))
def test_sums_by_block_are_those_of_each_block(blocks: list[list[int]]) -> None:
    hashes = np.array([value for block in blocks for value in block], np.uint32)
    offsets = np.cumsum([0, *map(len, blocks)])
    assert sums_by_block(hashes, offsets).tolist() == [sum(block) for block in blocks]
