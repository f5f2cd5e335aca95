"""Weights: Eq. 3.1, parts of disjunctions, and marginal weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.features.implications import Implications
from layoutopt.features.selection import find_candidates, rank_by_coverage
from layoutopt.features.weights import (
    MOST_UNITS,
    assumed_selectivity,
    feature_shares,
    feature_weights,
    make_units,
    predicate_share,
)
from layoutopt.model.feature import Feature, FeatureSet, SessionSettings
from layoutopt.model.predicates import And, Comparison, InSet, Like, Literal, Or, Predicate, parse_like
from layoutopt.model.query import Query
from tests.features.workloads import (
    BOTH,
    EITHER,
    EXAMPLE_1,
    OVER_21,
    PRODUCT,
    REGION,
    REVENUE,
    SHIRTS,
    SHOES,
    comparison,
    is_in,
    predicate,
    query,
)

FEATURES = FeatureSet(
    (
        Feature((predicate(SHOES),), 1.0),
        Feature((predicate(BOTH), predicate(OVER_21)), 1.0),
        Feature((predicate(OVER_21),), 1.0),
    ),
    SessionSettings(),
)


def test_shares_are_one_exactly_where_the_feature_subsumes() -> None:
    assert ((feature_shares(FEATURES, EXAMPLE_1) == 1.0) == FEATURES.matrix(EXAMPLE_1)).all()


def test_a_part_of_a_disjunction_counts_as_a_part() -> None:
    shares = feature_shares(FEATURES, [query(BOTH), query(EITHER), query(SHIRTS)])
    assert shares.tolist() == [[0.5, 0.0, 0.0], [0.5, 0.0, 0.5], [0.0, 0.0, 0.0]]


def test_plain_weights_are_sums() -> None:
    matrix = np.array([[True, True], [False, True]])
    assert feature_weights(matrix, np.array([2.0, 3.0])).tolist() == [2.0, 5.0]


def test_queries_that_do_not_reach_the_partition_weigh_nothing() -> None:
    assert feature_weights(np.ones((2, 1), dtype=bool), np.array([0.0, 3.0])).tolist() == [3.0]


def test_marginal_weights_need_selectivity() -> None:
    with pytest.raises(ValueError, match="selectivity"):
        feature_weights(np.ones((1, 1), dtype=bool), np.ones(1), marginal=True)


def test_the_most_selective_feature_gets_the_whole_weight() -> None:
    weights = feature_weights(np.ones((1, 3), dtype=bool), np.ones(1), np.array([0.5, 0.1, 1.0]), marginal=True)
    assert weights == pytest.approx([0.1, 1.0, 0.05])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.integers(0, 63))
def test_marginal_skips_never_exceed_one_pass_over_the_rows(selectivity: list[float], bits: int) -> None:
    matrix = np.array([[bool(bits >> i & 1) for i in range(len(selectivity))]])
    s = np.array(selectivity)
    weights = feature_weights(matrix, np.ones(1), s, marginal=True)
    assert (weights <= matrix[0] + 1e-12).all()
    assert weights @ (1 - s) <= 1 + 1e-9


LETTERS = "abcdef"


def test_a_list_has_a_unit_a_value_and_a_plain_filter_one() -> None:
    items = [predicate(is_in(PRODUCT, "a")), predicate(is_in(PRODUCT, "a", "b")), predicate(is_in(PRODUCT, "z"))]
    nodes = [is_in(PRODUCT, "a", "b"), is_in(PRODUCT, "a")]
    units = make_units(nodes, Implications(items), len(items))
    assert units.filter_of_unit.tolist() == [0, 0, 1]
    assert units.shares.tolist() == [0.5, 0.5, 1.0]
    # 'a' is one of two parts of the first filter; the list is the whole of it, and covers the second one too.
    assert units.factors.tolist() == [[2, 1, 0], [0, 1, 0], [1, 1, 0]]


def test_of_two_lists_each_combination_is_a_unit() -> None:
    root = And((is_in(PRODUCT, "a", "b"), Or((comparison(REVENUE, ">", 5), is_in(PRODUCT, "c"), is_in(PRODUCT, "d")))))
    items = [predicate(is_in(PRODUCT, "a")), predicate(comparison(REVENUE, ">", 1))]
    units = make_units([root], Implications(items), len(items))
    assert units.factors.tolist() == [[2, 3], [2, 0], [2, 0], [0, 3], [0, 0], [0, 0]]


@given(st.lists(st.integers(2, 40), min_size=1, max_size=3))
def test_long_lists_are_stood_for_by_some_of_their_values(sizes: list[int]) -> None:
    lists = [is_in(PRODUCT, *(f"{place}{value:02d}" for value in range(size))) for place, size in enumerate(sizes)]
    items = [Predicate((part,)) for part in lists]
    (first, *_) = lists
    value = predicate(is_in(PRODUCT, "000"))
    units = make_units([And(tuple(lists)) if len(lists) > 1 else first], Implications([*items, value]), len(items) + 1)
    assert 1 <= len(units.filter_of_unit) <= MOST_UNITS
    assert np.isclose(units.shares.sum(), 1.0)
    assert (units.factors[:, : len(items)] == 1).all()
    assert set(units.factors[:, -1].tolist()) == {0, sizes[0]}


def lists_of(*lists: str) -> list[Query]:
    return [query(is_in(PRODUCT, *letters), number=i) for i, letters in enumerate(lists)]


def test_features_for_the_same_part_do_not_add_up() -> None:
    """Lists that overlap say as little of a value as the best of them: single values are what a new list needs."""
    queries = [*lists_of("ab", "bc", "cd", "de", "ef", "fa"), *lists_of("ac", "bd", "ce", "df")]
    candidates = find_candidates(queries, threshold=2)
    chosen = [candidates.sets[place] for place, _ in rank_by_coverage(candidates, len(LETTERS))]
    assert {one[0] for one in chosen} == {predicate(is_in(PRODUCT, letter)) for letter in LETTERS}
    # With all values known, no list is read less by another list.
    assert all(isinstance(one[0].literals[0], InSet) for one in chosen)


def guessed(*literals: Literal) -> list[float]:
    shares = assumed_selectivity([predicate(literal) for literal in literals])
    return [shares[literal] for literal in literals]


def test_one_of_many_values_is_selective_and_its_complement_is_not() -> None:
    values = [is_in(PRODUCT, v) for v in "abcdefghi"]
    *ones, all_but_one, three = guessed(*values, comparison(PRODUCT, "<>", "a"), is_in(PRODUCT, *"abc"))
    assert ones == pytest.approx([0.09] * 9)
    assert all_but_one > 0.8
    assert three == pytest.approx(3 * ones[0])


def test_wider_ranges_match_more() -> None:
    narrow, wide = guessed(*(comparison(REVENUE, ">", bound) for bound in (30, 10)))
    assert 0 < narrow < wide < 1


def test_patterns_share_the_rows() -> None:
    likes = [Like(PRODUCT, parse_like(f"%{v}"), False) for v in "abcde"]
    assert guessed(*likes, Like(PRODUCT, parse_like("%a"), True)) == pytest.approx([0.2] * 5 + [0.8])


def test_comparisons_of_columns() -> None:
    equal, less = guessed(*(Comparison(PRODUCT, op, REGION) for op in ("=", "<")))
    assert equal < less < 1


def test_a_disjunction_matches_what_its_literals_match() -> None:
    shares = assumed_selectivity([predicate(SHOES), predicate(OVER_21)])
    assert predicate_share(predicate(SHOES, OVER_21), shares) == pytest.approx(shares[SHOES] + shares[OVER_21])
    assert predicate_share(predicate(SHOES, OVER_21), {SHOES: 0.7, OVER_21: 0.8}) == 1.0
