"""Whether ranges recur in a log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layoutopt.features.stability import unseen_shares
from layoutopt.model.query import Query, group_queries
from layoutopt.model.schema import Column, Schema
from tests.spark.tables import document, is_value

SCHEMA = Schema((Column("id", "int"), Column("kind", "int")))


def log(*conditions: tuple[str, int]) -> list[Query]:
    made = document(SCHEMA, [is_value(SCHEMA, column, "<", value) for column, value in conditions]).queries
    return [replace(query, id=place, weight=1.0) for place, query in enumerate(made)]


def test_ranges_that_never_recur_are_unseen_and_reports_are_not() -> None:
    brushing = [("id", number) for number in range(20)]
    reports = [("kind", number % 3) for number in range(20)]
    queries = log(*(one for pair in zip(brushing, reports, strict=True) for one in pair))
    assert unseen_shares(queries) == {"id": 1.0, "kind": 0.0}
    assert unseen_shares(group_queries(queries)) == {"id": 1.0, "kind": 0.0}


def test_what_recurs_for_the_first_time_in_the_later_half_is_unseen() -> None:
    queries = log(("id", 1), ("id", 2), ("id", 3), ("id", 1), ("id", 4), ("id", 4))
    assert unseen_shares(queries)["id"] == pytest.approx(2 / 3)


def test_an_empty_log_has_no_columns() -> None:
    assert unseen_shares([]) == {}
