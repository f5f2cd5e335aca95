"""Queries: JSON, and classes of queries that are read alike."""

from __future__ import annotations

import json
from typing import Any

import pytest

from layoutopt.errors import PlanError
from layoutopt.model.predicates import TRUE, Comparison, Filter, InSet, conjunction, disjunction
from layoutopt.model.query import Query, column_literals, group_queries
from layoutopt.model.values import ValueSet
from tests.model.conditions import col

ONE = Filter.of(InSet(col("i"), ValueSet.point(1)))
QUERY = Query(3, "t", ("i", "s"), ONE, 2.5, "2024-01-01T00:00:00", "ann", "SELECT s FROM t WHERE i = 1", exact=False)


def test_a_query_comes_back_from_json() -> None:
    assert Query.from_json(json.loads(json.dumps(QUERY.to_json()))) == QUERY
    plain = Query(0, "t", (), Filter.of(TRUE))
    assert Query.from_json(json.loads(json.dumps(plain.to_json()))) == plain


@pytest.mark.parametrize("change", [{"filter": {}}, {"weight": 0}, {"weight": "x"}, {"id": None}, {"columns": 5}])
def test_damaged_queries_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="write"):
        Query.from_json({**QUERY.to_json(), **change})
    with pytest.raises(PlanError, match="write"):
        Query.from_json(None)


def test_classes_add_up_the_weights_of_equal_filters_and_columns() -> None:
    queries = [
        Query(0, "t", ("i",), ONE, 1.0),
        Query(1, "t", ("i", "s"), ONE, 2.0),
        Query(2, "t", ("i",), Filter.of(InSet(col("i"), ValueSet.point(1))), 4.0),
        Query(3, "t", ("i",), Filter.of(TRUE), 8.0),
    ]
    assert [(query.id, query.weight) for query in group_queries(queries)] == [(0, 5.0), (1, 2.0), (3, 8.0)]


def test_a_weight_must_be_positive() -> None:
    with pytest.raises(ValueError, match="-1"):
        Query(0, "t", (), ONE, -1)


def test_what_a_filter_says_of_columns_is_found_once_wherever_it_stands() -> None:
    one, two, three = (InSet(col("i"), ValueSet.point(value)) for value in (1, 2, 3))
    text = InSet(col("s"), ValueSet.point("x"))
    tree = disjunction([conjunction([one, text]), conjunction([two, Comparison(col("i"), "<", col("j"))]), three])
    assert set(column_literals(Query(0, "t", (), Filter.of(tree)))) == {one, text, two, three}
    assert len(list(column_literals(Query(0, "t", (), Filter.of(tree))))) == 4
    assert not list(column_literals(Query(0, "t", (), Filter.of(TRUE))))
