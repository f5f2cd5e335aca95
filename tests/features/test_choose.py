"""Choosing features: numbers, order, defaults, determinism."""

from __future__ import annotations

import datetime
import random

import pytest

from layoutopt.features.selection import default_excluded, default_threshold, mine_features, mine_ranges
from layoutopt.model.feature import SessionSettings
from layoutopt.model.predicates import Col, Comparison, describe
from layoutopt.model.schema import Column, Schema
from tests.features.workloads import (
    EXAMPLE_1,
    OVER_21,
    PRODUCT,
    REGION,
    REVENUE,
    SHOES,
    comparison,
    is_in,
    predicate,
    query,
    workload,
)


def test_at_most_num_features_the_best_first() -> None:
    queries = workload(*[(is_in(PRODUCT, f"p{i // 3}"),) for i in range(30)], *[(is_in(REGION, "r"),)] * 9)
    features = mine_features(queries, threshold=2, num_features=4)
    assert len(features) == 4
    first = next(iter(features))
    assert first.predicates == (predicate(is_in(REGION, "r")),)
    assert features.weights.tolist() == sorted(features.weights, reverse=True)
    assert 0 < first.weight < 9.0


def test_the_weight_in_the_text_is_the_number_of_queries_additionally_subsumed() -> None:
    queries = [query(is_in(PRODUCT, "a"), weight=5.0), query(comparison(PRODUCT, "<>", "b"), weight=3.0, number=1)]
    features = mine_features(queries, threshold=2, num_features=10, selection="text")
    assert [(f.predicates, f.weight) for f in features] == [
        ((predicate(is_in(PRODUCT, "a")),), 5.0),
        ((predicate(comparison(PRODUCT, "<>", "b")),), 3.0),
    ]


def test_a_higher_threshold_gives_no_feature() -> None:
    assert len(mine_features(EXAMPLE_1, threshold=100, num_features=5)) == 0


@pytest.mark.parametrize("selection", ["coverage", "text"])
def test_the_order_of_the_queries_does_not_matter_to_what_is_covered(selection: str) -> None:
    filters = [(is_in(PRODUCT, f"p{i % 5}"), comparison(REVENUE, ">", i % 3)) for i in range(60)]
    shuffled = list(filters)
    random.Random(7).shuffle(shuffled)
    one, other = (
        mine_features(workload(*order), threshold=3, num_features=50, selection=selection)  # type: ignore[arg-type]
        for order in (filters, shuffled)
    )
    assert {describe_all(f.predicates) for f in one} == {describe_all(f.predicates) for f in other}


def describe_all(predicates: tuple[object, ...]) -> frozenset[str]:
    return frozenset(describe(p) for p in predicates)  # type: ignore[arg-type]


def test_the_same_log_gives_the_same_features() -> None:
    queries = workload(*[(is_in(PRODUCT, f"p{i % 5}"), OVER_21, is_in(REGION, f"r{i % 2}")) for i in range(40)])
    assert mine_features(queries, threshold=2, num_features=9) == mine_features(queries, threshold=2, num_features=9)


def test_features_carry_the_settings_that_give_them_meaning() -> None:
    meaning = SessionSettings(time_zone="Asia/Tokyo")
    assert mine_features(EXAMPLE_1, threshold=1, num_features=3, settings=meaning).settings == meaning


def test_the_default_threshold_follows_the_workload() -> None:
    assert default_threshold([query(SHOES)]) == 2
    assert default_threshold([query(SHOES, weight=800.0)]) == 4
    assert default_threshold([query(SHOES, weight=801.0)]) == 5


def test_dates_and_timestamps_are_excluded_by_default() -> None:
    types = {"a": "date", "b": "timestamp", "c": "timestamp_ntz", "d": "int", "e": "string"}
    schema = Schema(tuple(Column(name, type_) for name, type_ in types.items()))
    assert default_excluded(schema) == ("a", "b", "c")


def test_a_comparison_of_excluded_columns_is_excluded_only_when_asked() -> None:
    late = Comparison(Col("shipped", "date"), "<", Col("due", "date"))
    queries = workload((late,), (late, comparison(Col("due", "date"), ">", datetime.date(2026, 1, 1))), (late,))
    dates = ("Shipped", "DUE")
    kept = mine_features(queries, threshold=2, exclude_columns=dates, exclude_comparisons=False)
    assert [f.predicates for f in kept] == [(predicate(late),)]
    assert len(mine_features(queries, threshold=1, exclude_columns=dates)) == 0


def test_ranges_of_excluded_columns_make_features_of_their_own() -> None:
    schema = Schema((Column("day", "date"), Column("due", "date"), Column("product", "string")))
    day, due = Col("day", "date"), Col("due", "date")
    until_5, until_9 = (comparison(day, "<", datetime.date(2026, 1, n)) for n in (5, 9))
    late = Comparison(day, "<", due)
    queries = [*workload((until_5, SHOES)), *workload((until_9, late)), *workload((until_9,))]
    found = mine_ranges(queries, ["day", "due"], schema, threshold=2, num_features=5)
    assert [feature.predicates for feature in found] == [(predicate(until_9),)]
    assert len(mine_ranges(queries, ["day", "due"], schema, threshold=1, num_features=1)) == 1
