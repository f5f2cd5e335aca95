"""Indexes that a log asks for, by its texts alone."""

from __future__ import annotations

from layoutopt.features.choose import mine_features
from layoutopt.indexes.suggesting import suggested_indexes
from layoutopt.model.feature import FeatureSet
from layoutopt.model.schema import Column, Schema
from layoutopt.workload.analyze import analyze
from layoutopt.workload.log import LogEntry

SCHEMA = Schema((Column("user", "string"), Column("path", "string"), Column("n", "int"), Column("kind", "string")))


def suggested(conditions: list[str], features: FeatureSet | None = None) -> list[tuple[str, float]]:
    log = [LogEntry(i, f"SELECT n FROM t WHERE {text}") for i, text in enumerate(conditions)]
    queries = analyze(log, SCHEMA, "t").queries
    found = mine_features(queries, threshold=3) if features is None else features
    return [(str(each.spec), each.weight) for each in suggested_indexes(queries, found)]


def test_look_ups_by_values_that_never_recur_ask_for_a_bloom_filter() -> None:
    look_ups = [f"user = 'u{i}'" for i in range(20)] + [f"user IN ('a{i}', 'b{i}') AND n > 3" for i in range(5)]
    assert suggested([*look_ups, *["kind = 'click'"] * 9], FeatureSet(())) == [
        ("user:bloom", 25.0),
        ("kind:bloom", 9.0),
    ]
    assert suggested([*look_ups[:20], *["kind = 'click'"] * 9]) == [("user:bloom", 20.0)]


def test_patterns_ask_by_their_form() -> None:
    assert suggested([f"path LIKE '%w{i}rd%'" for i in range(8)]) == [("path:ngrams", 8.0)]
    assert suggested([f"path LIKE '%.e{i}'" for i in range(8)]) == [("path:suffix", 8.0)]
    assert suggested([f"path LIKE '/shop{i}%'" for i in range(8)])[0][0] in ("path:prefix", "path:ngrams")


def test_ranges_and_what_no_index_denies_ask_for_none() -> None:
    assert suggested([f"n > {i}" for i in range(8)]) == []
    assert suggested([f"user = 'u{i}' OR n = {i}" for i in range(8)]) == []
    assert suggested([f"reverse(user) > '{i}' AND length(user) < {i}" for i in range(8)]) == []


def test_few_queries_ask_for_none() -> None:
    assert suggested(["user = 'x'", *["kind = 'click'"] * 200]) == []
