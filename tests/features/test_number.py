"""How many features a log is worth."""

from __future__ import annotations

import pytest

from layoutopt.features.cross_validation import MIN_HELD_OUT
from layoutopt.features.selection import MAX_FEATURES, count_useful_features, find_candidates
from layoutopt.model.predicates import Col
from layoutopt.model.query import Query
from tests.features.workloads import is_in, query

A = Col("a", "int")


def log_of(values: list[int]) -> list[Query]:
    return [query(is_in(A, value), number=i) for i, value in enumerate(values)]


def number_of(queries: list[Query]) -> int:
    return count_useful_features(find_candidates(queries, threshold=2), queries)


@pytest.mark.parametrize("recurring", [3, 10])
def test_features_for_what_is_not_asked_for_any_more_are_too_many(recurring: int) -> None:
    """The first hundred of 600 queries ask for fifty other constants, twice each; the last quarter for none of them."""
    queries = log_of([100 + i // 2 for i in range(100)] + [i % recurring for i in range(500)])
    assert number_of(queries) == recurring


def test_all_features_pay_where_all_recur_alike() -> None:
    assert number_of(log_of([i % 40 for i in range(800)])) == 40


def test_where_nothing_tells_there_may_be_many() -> None:
    """A log may be too short, or its later queries may ask for nothing that was asked for before."""
    assert number_of(log_of([i % 4 for i in range(4 * MIN_HELD_OUT - 4)])) == MAX_FEATURES
    assert number_of(log_of([i // 2 for i in range(4 * MIN_HELD_OUT)])) == MAX_FEATURES


def test_a_feature_that_adds_next_to_nothing_is_not_worth_it() -> None:
    queries = [query(is_in(A, i % 4), number=i, weight=1000.0) for i in range(400)]
    queries += [query(is_in(A, 9), number=400 + i) for i in range(4)]
    assert number_of(queries) == 4
