"""Indexes that a log asks for, by its texts alone."""

from __future__ import annotations

from layoutopt.features.selection import mine_features
from layoutopt.indexes.choosing import suggest_indexes
from layoutopt.model.feature import FeatureSet
from layoutopt.model.schema import Column, Schema
from layoutopt.workload.analyze import analyze
from layoutopt.workload.log import LogEntry

SCHEMA = Schema((Column("user", "string"), Column("path", "string"), Column("n", "int"), Column("kind", "string"),
                 Column("lat", "double"), Column("lon", "decimal(9,6)"), Column("price", "decimal(9,2)"),
                 Column("tags", "array<string>"), Column("m", "map<string,int>")))  # fmt: skip


def suggested(conditions: list[str], features: FeatureSet | None = None) -> list[tuple[str, float]]:
    log = [LogEntry(i, f"SELECT n FROM t WHERE {text}") for i, text in enumerate(conditions)]
    queries = analyze(log, SCHEMA, "t").queries
    found = mine_features(queries, threshold=3) if features is None else features
    return [(str(each.spec), each.weight) for each in suggest_indexes(queries, found)]


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


def test_distances_pieces_places_and_what_is_computed_ask_for_types_of_their_own() -> None:
    near = [f"levenshtein(user, 'u{i}') < 3" for i in range(8)]
    assert suggested(near) == [("user:metric-distance", 8.0)]
    pieces = [f"split_part(path, '/', 1) = 'p{i}'" for i in range(8)]
    assert suggested(pieces)[0] == ("split_part(path, '/', 1):formatted", 8.0)
    places = [f"lat BETWEEN {i} AND {i + 1} AND lon BETWEEN {i} AND {i + 2}" for i in range(8)]
    assert suggested(places) == [("struct(lat, lon):geo-box", 8.0)]
    assert suggested([f"lat BETWEEN {i} AND {i + 1} AND price > {i}" for i in range(8)]) == []
    assert suggested([f"price * n > {i}" for i in range(8)], FeatureSet(()))[0][0].endswith(":gap-list")
    assert suggested([f"n % 7 > {i}" for i in range(8)]) == []


def test_elements_of_arrays_and_keys_of_maps_ask_for_indexes_of_them() -> None:
    """Also where one condition is about several elements, which are of one array."""
    either = [f"array_contains(tags, 't{i}') OR array_contains(tags, 'u{i}')" for i in range(8)]
    assert suggested(either, FeatureSet(())) == [("tags:bloom", 8.0)]
    assert suggested([f"exists(tags, x -> x IN ('t{i}', 'u{i}'))" for i in range(8)], FeatureSet(())) == [
        ("tags:bloom", 8.0)
    ]
    assert suggested([f"NOT array_contains(tags, 't{i}')" for i in range(8)], FeatureSet(())) == []
    assert suggested([f"array_contains(tags, 't{i}') OR user = '{i}'" for i in range(8)], FeatureSet(())) == []
    look_ups = dict(suggested([f"m['k{i}'] > {i}" for i in range(8)], FeatureSet(())))
    assert look_ups == {"map_keys(m):bloom": 8.0}
    assert suggested([f"exists(map_values(m), v -> v > {i})" for i in range(8)], FeatureSet(())) == [
        ("map_values(m):gap-list", 8.0)
    ]


def test_what_is_asked_is_told() -> None:
    log = [LogEntry(i, f"SELECT n FROM t WHERE user = 'u{i}' AND n > 1") for i in range(5)]
    (found,) = suggest_indexes(analyze(log, SCHEMA, "t").queries, FeatureSet(()))
    assert found.asked == "user = 'u0'"
