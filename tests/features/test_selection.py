"""Frequent predicate sets, against brute force and the pitfalls of augmentation."""

from __future__ import annotations

import datetime
import random
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.features.augment import augment, predicate_subject
from layoutopt.features.selection import (
    MOST_TRANSACTIONS,
    Candidates,
    ReadEstimate,
    default_excluded,
    default_threshold,
    find_candidates,
    mine_features,
    mine_ranges,
    rank_by_coverage,
)
from layoutopt.model.feature import SessionSettings
from layoutopt.model.predicates import (
    Col,
    Comparison,
    Constant,
    InSet,
    Node,
    Predicate,
    conjunction,
    describe,
    disjunction,
)
from layoutopt.model.predicates.subsume import subsumes
from layoutopt.model.query import Query
from layoutopt.model.schema import Column, Schema
from tests.effort import examples
from tests.features.workloads import (
    BOTH,
    EXAMPLE_1,
    OVER_21,
    OVER_32,
    PRODUCT,
    REGION,
    REVENUE,
    SHIRTS,
    SHOES,
    comparison,
    is_in,
    predicate,
    query,
    workload,
)


def sets_of(queries: list[Query], threshold: float, max_set: int = 3) -> set[frozenset[Predicate]]:
    return {frozenset(s) for s in find_candidates(queries, threshold=threshold, max_set=max_set).sets}


def test_the_example_of_the_thesis() -> None:
    found = sets_of(EXAMPLE_1, threshold=2)
    # {product in both} and {revenue > 21} subsume two queries each, together only Q2 and Q3's: all are frequent.
    assert frozenset({predicate(BOTH)}) in found
    # {BOTH, OVER_21} subsumes what {OVER_21} does and is stricter.
    assert frozenset({predicate(BOTH), predicate(OVER_21)}) in found
    assert frozenset({predicate(OVER_21)}) not in found
    assert frozenset({predicate(OVER_32)}) not in found


def test_support_counts_subsumed_queries() -> None:
    candidates = find_candidates(EXAMPLE_1, threshold=2)
    for members, column in zip(candidates.sets, candidates.subsumes.T, strict=True):
        assert column.tolist() == [subsumes(members, q.filter.root) for q in EXAMPLE_1]


def test_sets_have_one_predicate_an_expression() -> None:
    queries = workload(*[(is_in(PRODUCT, f"p{i % 6}"), comparison(REVENUE, ">", i % 4)) for i in range(48)])
    queries += workload(*[(comparison(PRODUCT, "<>", f"p{i % 6}"), OVER_21) for i in range(24)])
    candidates = find_candidates(queries, threshold=2)
    for members in candidates.sets:
        assert len({predicate_subject(p) for p in members}) == len(members)
    assert any(len(members) == 2 for members in candidates.sets)


def test_many_unequal_predicates_do_not_explode() -> None:
    # x = 'p0' is subsumed by every x <> 'pi': each `=` query has dozens of items.
    queries = workload(*[(is_in(PRODUCT, f"p{i % 30}"), is_in(REGION, f"r{i % 2}")) for i in range(60)])
    queries += workload(*[(comparison(PRODUCT, "<>", f"p{i}"),) for i in range(30)])
    candidates = find_candidates(queries, threshold=2)
    assert len(candidates.sets) < 200
    assert all(len(m) == 1 or all(_is_list(p) for p in m) for m in candidates.sets)


def _is_list(p: Predicate) -> bool:
    return isinstance(p.literals[0], InSet) and p.literals[0].values.points() is not None


def test_a_heavy_log_is_scaled_but_counted_exactly() -> None:
    heavy = 10.0 * MOST_TRANSACTIONS
    queries = [query(SHOES, is_in(REGION, "r"), weight=heavy), query(SHIRTS, weight=3.0, number=1)]
    candidates = find_candidates(queries, threshold=3)
    assert dict(zip(map(frozenset, candidates.sets), candidates.support.tolist(), strict=True)) == {
        frozenset({predicate(SHOES), predicate(is_in(REGION, "r"))}): heavy,
        frozenset({predicate(SHIRTS)}): 3.0,
    }


def test_values_of_lists_that_never_recur_are_candidates() -> None:
    queries = workload(*[(is_in(PRODUCT, a, b),) for a, b in combinations("abcd", 2)])
    candidates = find_candidates(queries, threshold=3)
    assert {frozenset(s) for s in candidates.sets} == {frozenset({predicate(is_in(PRODUCT, v))}) for v in "abcd"}
    assert candidates.support.tolist() == [0.0] * 4
    assert np.allclose(candidates.weights @ candidates.shares, 1.5)


@pytest.mark.parametrize("threshold", [1, 2, 3])
def test_no_queries_no_candidates(threshold: int) -> None:
    candidates = find_candidates([], threshold=threshold)
    assert candidates.sets == ()
    assert candidates.shares.shape == (0, 0)


LITERALS = st.one_of(
    st.builds(lambda v: is_in(PRODUCT, *v), st.sets(st.sampled_from("abc"), min_size=1, max_size=2)),
    st.builds(lambda v: comparison(REVENUE, ">", v), st.integers(0, 3)),
    st.builds(lambda v: is_in(REGION, v), st.sampled_from("xy")),
)


@settings(max_examples=examples(40))
@given(st.lists(st.lists(LITERALS, min_size=1, max_size=3), min_size=1, max_size=8), st.integers(1, 3))
def test_every_frequent_set_is_helped_by_a_candidate_as_strict(filters: list[list[InSet]], threshold: int) -> None:
    queries = workload(*filters)
    candidates = find_candidates(queries, threshold=threshold, max_set=2)
    found = {tuple(column) for column in candidates.subsumes.T.tolist()}
    items = augment(queries, threshold).predicates
    # Each single frequent predicate's queries are those of some candidate.
    roots = {q.filter: q.filter.root for q in queries}.values()
    rows = [root for root in roots if not isinstance(root, Constant)]
    for item in items:
        subsumed = tuple(subsumes((item,), root) for root in rows)
        if candidates.weights @ np.array(subsumed) >= threshold:
            assert subsumed in found


def test_at_most_num_features_the_best_first() -> None:
    queries = workload(*[(is_in(PRODUCT, f"p{i // 3}"),) for i in range(30)], *[(is_in(REGION, "r"),)] * 9)
    features = mine_features(queries, threshold=2, num_features=4)
    assert len(features) == 4
    first = next(iter(features))
    assert first.predicates == (predicate(is_in(REGION, "r")),)
    assert features.weights.tolist() == sorted(features.weights, reverse=True)
    assert 0 < first.weight < 9.0


def test_a_higher_threshold_gives_no_feature() -> None:
    assert len(mine_features(EXAMPLE_1, threshold=100, num_features=5)) == 0


def test_the_order_of_the_queries_does_not_matter_to_what_is_covered() -> None:
    filters = [(is_in(PRODUCT, f"p{i % 5}"), comparison(REVENUE, ">", i % 3)) for i in range(60)]
    shuffled = list(filters)
    random.Random(7).shuffle(shuffled)
    one, other = (mine_features(workload(*order), threshold=3, num_features=50) for order in (filters, shuffled))
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


def kept(candidates: Candidates, ranked: tuple[tuple[int, float], ...]) -> list[tuple[set[Predicate], float]]:
    return [(set(candidates.sets[i]), gain) for i, gain in ranked]


def test_coverage_keeps_a_general_set_where_specific_ones_cover_the_training_queries() -> None:
    queries = [query(OVER_32, weight=8.0), query(OVER_21, weight=3.0, number=1)]
    candidates = find_candidates(queries, threshold=4)
    general = candidates.sets.index((predicate(OVER_21),))
    # Some constant between the two comes next: the general feature is there for it.
    assert general in [i for i, _ in rank_by_coverage(candidates, 5)]


def test_coverage_prefers_selective_sets() -> None:
    queries = [
        query(is_in(PRODUCT, "a"), weight=10.0),
        query(comparison(PRODUCT, "<>", "b"), weight=12.0, number=1),
        query(is_in(PRODUCT, "b"), weight=1.0, number=2),
        query(is_in(PRODUCT, "c"), weight=1.0, number=3),
    ]
    candidates = find_candidates(queries, threshold=1)
    first, gain = kept(candidates, rank_by_coverage(candidates, 1))[0]
    assert first == {predicate(is_in(PRODUCT, "a"))}
    assert gain > 6.0


def test_coverage_stops_when_nothing_is_added() -> None:
    candidates = find_candidates(workload((SHOES,), (SHOES,), (SHIRTS,), (SHIRTS,)), threshold=2)
    assert len(rank_by_coverage(candidates, 100)) == 2


def test_coverage_of_no_candidates_is_empty() -> None:
    assert rank_by_coverage(find_candidates([], threshold=1), 5) == ()


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 9)), min_size=1, max_size=8), st.integers(1, 6))
def test_gains_never_grow_and_never_exceed_the_workload(rows: list[tuple[int, int]], limit: int) -> None:
    queries = [query(comparison(REVENUE, ">", v), weight=float(w), number=i) for i, (v, w) in enumerate(rows)]
    candidates = find_candidates(queries, threshold=1)
    gains = [gain for _, gain in rank_by_coverage(candidates, limit)]
    assert len(gains) <= limit
    assert sum(gains) <= sum(w for _, w in rows)


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.lists(LITERALS, min_size=1, max_size=3), st.integers(1, 9)), min_size=1, max_size=12))
def test_the_choice_is_that_of_looking_at_all_candidates_each_time(rows: list[tuple[list[Node], int]]) -> None:
    nodes = [disjunction(literals) if weight % 3 == 0 else conjunction(literals) for literals, weight in rows]
    queries = [query(node, weight=float(rows[i][1]), number=i) for i, node in enumerate(nodes)]
    candidates = find_candidates(queries, threshold=1)
    reading = ReadEstimate(candidates)
    expected: list[int] = []
    while len(expected) < len(candidates.sets):
        gains = {place: round(reading.gain(place), 9) for place in range(len(candidates.sets)) if place not in expected}
        best = max(gains, key=lambda place: (gains[place], -place))
        if gains[best] <= 1e-9:
            break
        expected.append(best)
        reading.choose(best)
    assert [place for place, _ in rank_by_coverage(candidates, len(candidates.sets))] == expected
