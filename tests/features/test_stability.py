"""Figure 3.2 on workloads whose curves are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layoutopt.features.stability import commonality, stability, unseen_shares
from layoutopt.model.query import Query, group_queries
from layoutopt.model.schema import Column, Schema
from tests.features.workloads import OVER_21, PRODUCT, SHIRTS, SHOES, is_in, query, workload
from tests.spark.tables import document, is_value


def test_commonality_of_one_popular_filter() -> None:
    queries = workload(*[(SHOES,)] * 8, (is_in(PRODUCT, "a"),), (is_in(PRODUCT, "b"),))
    curve = commonality(queries)
    assert curve.at(1 / 3) == pytest.approx(0.8)
    assert curve.at(2 / 3) == pytest.approx(0.9)
    assert curve.at(1.0) == 1.0


def test_a_query_is_counted_from_its_most_frequent_filter_on() -> None:
    curve = commonality(workload((SHOES,), (SHOES, OVER_21), (SHIRTS, OVER_21), (SHOES,)))
    assert curve.x.tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert curve.y.tolist() == pytest.approx([0, 3 / 4, 1, 1])


def test_weights_count_as_queries() -> None:
    assert commonality([query(SHOES, weight=9.0), query(SHIRTS, number=1)]).at(0.5) == pytest.approx(0.9)


def test_filters_that_never_recur_are_the_diagonal() -> None:
    queries = workload(*[(is_in(PRODUCT, f"p{i}"),) for i in range(50)])
    curve = stability(queries)
    for x in (0.1, 0.3, 0.5, 1.0):
        assert curve.at(x) == pytest.approx(x)


def test_one_recurring_filter_is_known_after_the_first_query() -> None:
    curve = stability(workload(*[(SHOES,)] * 50))
    assert curve.at(0.1) == pytest.approx(1.0)


def test_windows_are_averaged() -> None:
    queries = workload((SHOES,), (SHOES,), (SHIRTS,), (is_in(PRODUCT, "a"),))
    # The first window knows everything after half of it; the second is the diagonal.
    assert stability(queries, windows=2).at(0.5) == pytest.approx((1.0 + 0.5) / 2)


def test_a_workload_without_filters_has_empty_curves() -> None:
    assert commonality([query()]).at(0.5) == 0.0
    assert stability([query()]).at(0.5) == 0.0
    assert stability([]).at(1.0) == 0.0


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
