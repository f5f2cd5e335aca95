"""Filters part by part: what a block must be skipped for."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.features.implications import Implications
from layoutopt.features.selection import find_candidates, rank_by_coverage
from layoutopt.features.weights import MOST_UNITS, make_units
from layoutopt.model.predicates import And, InSet, Or, Predicate
from layoutopt.model.query import Query
from tests.features.workloads import PRODUCT, REVENUE, comparison, is_in, predicate, query

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
