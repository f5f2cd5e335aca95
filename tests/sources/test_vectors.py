"""Feature vectors without Spark: those that Spark would compute, or none.

Features of columns and bounds of functions are compared with DuckDB, which shares no code with them. What DuckDB itself
evaluates is compared with values written here.
"""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.errors import NeedsSparkError
from layoutopt.model.feature import FeatureSet, SessionSettings
from layoutopt.model.schema import Column, Schema
from layoutopt.model.vectors import unpack
from layoutopt.sources.vectors import evaluate_exact_vectors, evaluate_words
from tests.effort import examples
from tests.scan.builder import feature_of, holds
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

USUAL = SessionSettings()
OF_FUNCTIONS = (
    "substring(kind, 1, 2) IN ('ai', 'sh')",
    "year(day) = 1995 OR kind = 'air'",
    "kind IS NULL OR price <= 20",
    "kind NOT IN ('air', 'rail') AND score >= 0.25",
    "day BETWEEN date'1994-03-01' AND date'1995-02-01' OR id < 5",
    "kind = ''",
    "kind NOT LIKE '%i%'",
    "upper(kind) = 'AIR'",
    "lower(kind) <> 'rail'",
)


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 80), st.lists(st.sampled_from((*CONDITIONS, *OF_FUNCTIONS)), max_size=6))
def test_they_are_what_duckdb_says(seed: int, count: int, conditions: list[str]) -> None:
    rows = some_rows(max(1, count), seed).slice(0, count)
    features = [feature_of(condition, SCHEMA) for condition in conditions]
    found = evaluate_exact_vectors(FeatureSet(tuple(features)), rows, SCHEMA)
    assert (unpack(found, len(features)) == holds(rows, conditions)).all()
    assert (evaluate_words(features, rows, SCHEMA, settings=USUAL) == found).all()  # as a task finds them


def test_bits_that_only_spark_could_tell_are_set() -> None:
    kinds = pa.array([b"fair", b"\xff", b"bad", None]).cast(pa.string(), safe=False)
    rows = some_rows(4).set_column(2, "kind", kinds)
    conditions = ["kind LIKE '%ai%'", "kind NOT LIKE '%ai%'", "substring(kind, 1, 1) = 'b'"]
    features = [feature_of(condition, SCHEMA) for condition in conditions]
    found = unpack(evaluate_words(features, rows, SCHEMA, settings=USUAL), len(features))
    assert found.astype(int).tolist() == [[1, 0, 0], [1, 1, 1], [0, 1, 1], [0, 0, 0]]


def test_letters_of_bytes_that_are_no_utf8_are_left_to_spark() -> None:
    """To Spark the text has 2 letters, and to DuckDB another number: the bit would be 0, and the row never found."""
    kinds = pa.array([b"fair", b"\xe9abc", None]).cast(pa.string(), safe=False)
    features = FeatureSet((feature_of("length(kind) = 2", SCHEMA),))
    with pytest.raises(NeedsSparkError, match="only Spark can tell"):
        evaluate_exact_vectors(features, some_rows(3).set_column(2, "kind", kinds), SCHEMA)
    schema = Schema((Column("part", "struct<kind:string>"),))
    nested = pa.table({"part": pa.StructArray.from_arrays([kinds], ["kind"])})
    plain = pa.table({"part": pa.StructArray.from_arrays([pa.array(["fair", "at"])], ["kind"])})
    features = FeatureSet((feature_of("length(part.kind) = 2", schema),))
    with pytest.raises(NeedsSparkError, match="only Spark can tell"):
        evaluate_exact_vectors(features, nested, schema)
    assert unpack(evaluate_exact_vectors(features, plain, schema), 1)[:, 0].tolist() == [False, True]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("length(kind) > 3", [True, False, False]),
        ("kind || 'x' LIKE '%lx'", [True, False, False]),
        ("id + 1 < 2", [True, False, False]),
    ],
)
def test_duckdb_tells_what_it_means_as_spark_does(condition: str, expected: list[bool]) -> None:
    rows = some_rows(3).set_column(2, "kind", pa.array(["rail", "air", None]))
    features = [feature_of(condition, SCHEMA)]
    assert unpack(evaluate_words(features, rows, SCHEMA, settings=USUAL), 1)[:, 0].tolist() == expected
    exact = evaluate_exact_vectors(FeatureSet(tuple(features)), rows, SCHEMA)
    assert unpack(exact, 1)[:, 0].tolist() == expected


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_hours_are_of_the_zone_of_the_features(zone: str) -> None:
    schema = Schema((Column("ts", "timestamp"),))
    times = [dt.datetime(2026, 3, 8, hour, 30, tzinfo=dt.UTC) for hour in range(24)]
    rows = pa.table({"ts": pa.array([*times, None], pa.timestamp("us", "UTC"))})
    features = FeatureSet((feature_of("hour(ts) BETWEEN 1 AND 3", schema),), SessionSettings(zone))
    expected = [*(1 <= time.astimezone(ZoneInfo(zone)).hour <= 3 for time in times), False]
    assert unpack(evaluate_exact_vectors(features, rows, schema), 1)[:, 0].tolist() == expected


@pytest.mark.parametrize("settings", [SessionSettings(ansi=False), SessionSettings(case_sensitive=True)])
def test_other_settings_are_left_to_spark(settings: SessionSettings) -> None:
    features = FeatureSet((feature_of("hour(seen) > 3", SCHEMA),), settings)
    with pytest.raises(NeedsSparkError, match="only Spark can tell"):
        evaluate_exact_vectors(features, some_rows(20), SCHEMA)


def test_what_only_spark_knows_is_left_to_it() -> None:
    features = FeatureSet((feature_of("cast(score AS string) = '0.5'", SCHEMA),))
    with pytest.raises(NeedsSparkError, match="only Spark can tell"):
        evaluate_exact_vectors(features, some_rows(20), SCHEMA)
    with pytest.raises(NeedsSparkError, match="only Spark can tell"):
        evaluate_words(features.features, some_rows(20), SCHEMA, settings=USUAL)
    nulls = some_rows(50).set_column(4, "score", pa.nulls(50, pa.float64()))
    assert unpack(evaluate_words(features.features, nulls, SCHEMA, settings=USUAL), 1).sum() == 0


def test_long_texts_are_told_apart_by_all_of_their_letters() -> None:
    texts = ["x" * 70 + "a", "x" * 70 + "b", None]
    rows = some_rows(3).set_column(2, "kind", pa.array(texts))
    condition = f"kind = '{texts[0]}'"
    assert evaluate_exact_vectors(FeatureSet((feature_of(condition, SCHEMA),)), rows, SCHEMA)[:, 0].tolist() == [
        1,
        0,
        0,
    ]
    beginning = feature_of(f"substring(kind, 1, 71) = '{texts[1]}'", SCHEMA)
    assert evaluate_exact_vectors(FeatureSet((beginning,)), rows, SCHEMA)[:, 0].tolist() == [0, 1, 0]
    assert evaluate_exact_vectors(FeatureSet(()), rows, SCHEMA).shape[0] == len(np.asarray(texts, dtype=object))
