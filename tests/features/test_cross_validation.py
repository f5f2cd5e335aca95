"""Which queries of a log are held back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.features.cross_validation import FOLDS, MIN_HELD_OUT, MIN_QUERIES, folds, hold_out, splits
from layoutopt.features.selection import (
    MAX_FEATURES,
    count_useful_features,
    find_candidates,
    mine_features,
    mine_subset,
)
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.predicates import Col, Filter, InSet
from layoutopt.model.query import Query
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import compare


def query(number: int, column: str, value: int, timestamp: str | None = None) -> Query:
    root = InSet(Col(column, "int"), compare("=", value, "int"))
    return Query(number, "t", (column,), Filter.of(root), timestamp=timestamp)


def test_the_later_quarter_of_each_family_is_held_back_in_a_log_sorted_by_report() -> None:
    log = [query(i, "a", i % 3) for i in range(8)] + [query(8 + i, "b", i % 3) for i in range(8)]
    training, held = hold_out(log)
    assert [one.id for one in held] == [6, 7, 14, 15]
    assert [one.id for one in training] == [*range(6), *range(8, 14)]


def test_timestamps_tell_time_where_all_queries_have_one() -> None:
    log = [query(i, "a", 1, timestamp=f"2026-01-{20 - i:02}") for i in range(4)]
    assert [one.id for one in hold_out(log)[1]] == [0]
    assert [one.id for one in hold_out([*log[:3], replace(log[3], timestamp=None)])[1]] == [3]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), max_size=30))
def test_every_query_is_on_one_side_and_no_family_is_only_held_back(drawn: list[tuple[str, int]]) -> None:
    log = [query(i, column, value) for i, (column, value) in enumerate(drawn)]
    training, held = hold_out(log)
    assert sorted([*training, *held], key=lambda one: one.id) == log
    for column in "ab":
        of_family = sum(one.columns == (column,) for one in log)
        assert sum(one.columns == (column,) for one in held) == of_family // 4


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), min_size=MIN_QUERIES, max_size=30))
def test_each_query_of_a_short_log_is_held_back_once(drawn: list[tuple[str, int]]) -> None:
    log = [query(i, column, value) for i, (column, value) in enumerate(drawn)]
    parts = splits(log)
    assert len(parts) == min(FOLDS, len(log))
    assert all(held for _, held in parts)
    assert sorted((one.id for _, held in parts for one in held)) == list(range(len(log)))
    for training, held in parts:
        assert sorted([*training, *held], key=lambda one: one.id) == log
        assert training


def test_folds_are_stretches_of_time_of_each_family_and_rare_queries_are_one_family() -> None:
    log = [query(i, "a", i) for i in range(6)] + [query(6, "b", 1), query(7, "day", 1), query(8, "b", 2)]
    assert [[one.id for one in held] for _, held in folds(log, 3)] == [[0, 1, 6], [2, 3, 7], [4, 5, 8]]


def test_a_long_log_is_split_once_and_a_tiny_one_not_at_all() -> None:
    log = [query(i, "a", i) for i in range(4 * MIN_HELD_OUT)]
    assert splits(log) == [hold_out(log)]
    assert splits(log[: MIN_QUERIES - 1]) == []


def log_of(values: list[int]) -> list[Query]:
    return [query(i, "a", value) for i, value in enumerate(values)]


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
    queries = [replace(query(i, "a", i % 4), weight=1000.0) for i in range(400)]
    queries += [query(400 + i, "a", 9) for i in range(4)]
    assert number_of(queries) == 4


SCHEMA = Schema((Column("a", "int"), Column("b", "int"), Column("day", "date")))


def test_features_are_those_that_the_analysis_of_the_training_queries_would_find() -> None:
    log = [query(i, "a", i % 3) for i in range(30)] + [query(30 + i, "b", 7) for i in range(2)]
    whole = FeaturesDocument("t", SCHEMA, mine_features(log, threshold=2), tuple(log), exclude_columns=("day",))
    assert {f.columns for f in whole.features} == {frozenset("a"), frozenset("b")}
    again = mine_subset(whole, log[:30], threshold=2)
    assert again.features == mine_features(log[:30], threshold=2, num_features=len(whole.features))
    assert again.queries == tuple(log[:30])
    assert len(mine_subset(whole, log, threshold=2, num_features=1).features) == 1
    assert len(mine_subset(whole, log, threshold=5).features) < len(whole.features)
