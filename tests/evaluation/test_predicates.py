"""Feature vectors by keys: those of an engine that shares no code with them, beside those that Spark hands over."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.evaluation import predicates
from layoutopt.evaluation.predicates import (
    distinct_rows,
    features_left_to_spark,
    is_keyed,
    merge_words,
    segment_words,
    words_by_keys,
)
from layoutopt.model.feature import Feature
from layoutopt.model.schema import Column, Schema
from layoutopt.model.vectors import WORD_BITS, distinct, pack, unpack, words_for
from tests.effort import examples
from tests.scan.builder import feature_of, holds
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

KEYED = (
    *(condition for condition in CONDITIONS if "LIKE" not in condition),
    "kind IS NULL OR price <= 20",
    "kind NOT IN ('air', 'rail') AND score >= 0.25",
    "day BETWEEN date'1994-03-01' AND date'1995-02-01' OR id < 5",
    "score = 0.0",
    "score IS NULL",
    "score > 1.0",
    "NOT (score <= 1.0) OR kind = ''",
    "id = year",
    "id < year AND kind IS NOT NULL",
)
MAP = pa.map_(pa.string(), pa.int32())
LEFT = ("kind LIKE '%i%'", "substring(kind, 1, 2) = 'ai' AND price > 10", "kind LIKE 'a%l' OR id = 3")


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 80), st.lists(st.sampled_from((*KEYED, *LEFT)), max_size=80))
def test_they_are_what_duckdb_says(seed: int, count: int, conditions: list[str]) -> None:
    """Features of one column and of several, in any number of words, some of them handed over by Spark."""
    rows = some_rows(max(1, count), seed).slice(0, count)
    features, expected = [feature_of(condition, SCHEMA) for condition in conditions], holds(rows, conditions)
    words = segment_words(features, rows, lambda left: pack(expected[:, list(left)]))
    assert words.shape == (count, words_for(len(features)))
    assert (words == pack(expected)).all()


def test_which_are_left_to_spark() -> None:
    features = [feature_of(condition, SCHEMA) for condition in (*LEFT, *KEYED)]
    assert features_left_to_spark(features, SCHEMA.names) == tuple(range(len(LEFT)))
    assert not any(map(is_keyed, features[: len(LEFT)]))
    held = [name for name in SCHEMA.names if name != "kind"]
    without = features_left_to_spark(features, held)
    assert without == tuple(i for i, feature in enumerate(features) if i < len(LEFT) or "kind" in feature.columns)
    assert len(LEFT) < len(without) < len(features)


@given(st.lists(st.booleans(), min_size=1, max_size=3 * WORD_BITS), st.integers(0, 10**6))
def test_vectors_over_two_parts_are_one(is_first: list[bool], seed: int) -> None:
    bits = np.random.default_rng(seed).random((5, len(is_first))) < 0.5
    first, second = np.flatnonzero(is_first), np.flatnonzero(~np.array(is_first))
    whole = merge_words(first.tolist(), pack(bits[:, first]), second.tolist(), pack(bits[:, second]))
    assert (whole == pack(bits)).all()


def test_no_features_are_vectors_of_zeros() -> None:
    assert words_by_keys([], some_rows(7)).tolist() == [[0]] * 7


def test_fields_are_found_by_names_that_are_paths_to_arrow() -> None:
    fields = (".x", "x", "[0]", "a.b")
    schema = Schema((Column("s", f"struct<{','.join(f'{name}:int' for name in fields)}>"),))
    values = [dict.fromkeys(fields, 5) | {name: 1} for name in fields]
    rows = pa.table({"s": pa.array(values, pa.struct([(name, pa.int32()) for name in fields]))})
    features = [feature_of(f"s.`{name}` = 1", schema) for name in fields]
    assert (unpack(words_by_keys(features, rows), len(fields)) == np.eye(len(fields), dtype=bool)).all()


@pytest.mark.parametrize("distinct", [3, 20_000])
def test_columns_of_many_values_and_of_few(distinct: int) -> None:
    rows = some_rows(20_000)
    kinds = pa.array([f"air{i % distinct}" if i % 7 else None for i in range(20_000)])
    rows = rows.set_column(rows.column_names.index("kind"), "kind", kinds)
    conditions = ["kind = 'air1'", "kind IS NULL OR price <= 20", "kind > 'air1' AND id < 900", "kind IS NULL"]
    features = [feature_of(condition, SCHEMA) for condition in conditions]
    assert (unpack(words_by_keys(features, rows), len(features)) == holds(rows, conditions)).all()


ODD_NAN = np.array([0x7FF8_0000_0000_0001], dtype=np.uint64).view(np.float64)[0]
EDGES: dict[str, tuple[str, list[pa.Array], dict[str, list[int]]]] = {
    "fields of structs": (
        "s struct<a:int>, id int",
        [pa.array([{"a": 1}, None, {"a": None}, {"a": 2}], pa.struct([("a", pa.int32())])), pa.array([1, 2, 3, 4])],
        {"s.a = 1": [1, 0, 0, 0], "s.a IS NULL": [0, 1, 1, 0], "s.a <> 1 OR id = 2": [0, 1, 0, 1]},
    ),
    "NULL of types without keys": (
        "xs array<int>, m map<string,int>, never int",
        [pa.array([[1], None, []]), pa.array([None, None, [("k", 1)]], MAP), pa.nulls(3)],
        {"xs IS NULL": [0, 1, 0], "m IS NOT NULL": [0, 0, 1], "never = 1": [0] * 3, "never IS NULL": [1] * 3},
    ),
    "zeros and NaNs of any bits": (  # one key each, however a dictionary takes them
        "x double",
        [pa.array([0.0, -0.0, math.nan, ODD_NAN, -ODD_NAN, None, math.inf])],
        {
            "x = 0": [1, 1, 0, 0, 0, 0, 0], "x > 1": [0, 0, 1, 1, 1, 0, 1], "x < 0": [0] * 7,
            "x IS NULL": [0, 0, 0, 0, 0, 1, 0],
        },
    ),
    "texts that are no UTF-8": (
        "t string",
        [pa.array([b"a\xff", b"a\xfe", b"a", None], pa.binary()).view(pa.string())],
        {"t > 'a'": [1, 1, 0, 0]},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("columns", "arrays", "expected"), EDGES.values(), ids=EDGES)
def test_values_at_the_edges_are_told(columns: str, arrays: list[pa.Array], expected: dict[str, list[int]]) -> None:
    schema = Schema(tuple(Column(name, type) for name, type in (column.split(" ") for column in columns.split(", "))))
    rows = pa.table(arrays, names=list(schema.names))
    words = words_by_keys([feature_of(condition, schema) for condition in expected], rows)
    assert unpack(words, len(expected)).T.astype(int).tolist() == list(expected.values())


def test_a_predicate_of_several_features_is_asked_once_and_clears_all() -> None:
    only_null, cheap = (feature_of(condition, SCHEMA) for condition in ("kind IS NULL", "price <= 20"))
    features = [only_null, Feature((*only_null.predicates, *cheap.predicates)), cheap]
    rows = some_rows(300)
    expected = holds(rows, ["kind IS NULL", "kind IS NULL AND price <= 20", "price <= 20"])
    assert (unpack(words_by_keys(features, rows), 3) == expected).all()
    assert 0 < expected[:, 1].sum() < expected[:, 0].sum()


@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(0, 300))
def test_distinct_vectors_of_rows_are_those_that_sorting_finds(seed: int, width: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 2**63, (3, width), dtype=np.uint64) * np.uint64(2)
    words = np.take_along_axis(values, rng.integers(0, 3, (rows, width)), axis=0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(predicates, "_MANY_ROWS", 1)
        by_hashing = distinct_rows(words)
    for found, expected in zip(by_hashing, distinct(words), strict=True):
        assert found.dtype == expected.dtype
        assert found.tolist() == expected.tolist()
