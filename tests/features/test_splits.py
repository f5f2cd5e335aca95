"""Which queries of a log are held back."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from layoutopt.features.cross_validation import FOLDS, MIN_HELD_OUT, MIN_QUERIES, folds, hold_out, splits
from layoutopt.model.predicates import Col, Filter, InSet
from layoutopt.model.query import Query
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
