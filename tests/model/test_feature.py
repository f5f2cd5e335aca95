"""Features: their order, the query vectors they give, and JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from layoutopt.errors import PlanError
from layoutopt.model.feature import Feature, FeatureSet, SessionSettings
from layoutopt.model.predicates import FALSE, TRUE, Filter, InSet, Node, Predicate, conjunction, disjunction
from layoutopt.model.query import Query
from layoutopt.model.values import ValueSet, compare
from tests.model.conditions import col


def _number(op: str, value: int) -> InSet:
    return InSet(col("i"), compare(op, value, "int"))


TEXT = InSet(col("s"), ValueSet.prefix("a"))
SMALL, POSITIVE, STARTS = (Predicate((literal,)) for literal in (_number("<", 5), _number(">", 0), TEXT))
FEATURES = FeatureSet(
    (Feature((SMALL,), 3.0), Feature((STARTS, POSITIVE), 2.0), Feature((STARTS,))),
    SessionSettings("Europe/Berlin", ansi=False),
)


def _query(root: Node) -> Query:
    return Query(0, "t", ("i", "s"), Filter.of(root))


def test_the_matrix_says_which_feature_subsumes_which_query() -> None:
    exact = InSet(col("s"), ValueSet.point("abc"))
    roots = [_number("=", 3), conjunction([_number("=", 7), exact]), disjunction([_number("=", 3), TEXT]), TRUE, FALSE]
    assert FEATURES.matrix([_query(root) for root in roots]).tolist() == [
        [True, False, False],
        [False, True, True],
        [False, False, False],
        [False, False, False],
        [True, True, True],
    ]
    assert FEATURES.matrix([]).shape == (0, 3)
    assert FeatureSet(()).matrix([_query(TRUE)]).shape == (1, 0)


def test_predicates_of_a_feature_have_one_order() -> None:
    assert Feature((STARTS, POSITIVE, STARTS)) == Feature((POSITIVE, STARTS))
    assert Feature((STARTS, POSITIVE)).columns == {"i", "s"}


def test_feature_sets_are_sequences_with_weights() -> None:
    assert len(FEATURES) == 3
    assert next(iter(FEATURES)) == FEATURES[0]
    assert FEATURES.weights.tolist() == [3.0, 2.0, 1.0]


def test_features_come_back_from_json() -> None:
    assert FeatureSet.from_json(json.loads(json.dumps(FEATURES.to_json()))) == FEATURES


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        {"features": [], "settings": {"time_zone": "UTC", "ansi": 1, "case_sensitive": False}},
        {"features": [{}], "settings": SessionSettings().to_json()},
        {"features": [{"predicates": [], "weight": 1}], "settings": SessionSettings().to_json()},
        {"features": [{**FEATURES[0].to_json(), "weight": -1}], "settings": SessionSettings().to_json()},
    ],
    ids=str,
)
def test_damaged_features_are_refused(value: Any) -> None:
    with pytest.raises(PlanError, match="write"):
        FeatureSet.from_json(value)


def test_features_without_meaning_are_refused() -> None:
    with pytest.raises(ValueError, match="without predicates"):
        Feature(())
    with pytest.raises(ValueError, match="nan"):
        Feature((SMALL,), float("nan"))
