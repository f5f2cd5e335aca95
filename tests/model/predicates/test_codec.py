"""Filters as JSON: exact round trips, and refusals of everything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from layoutopt.errors import PlanError
from layoutopt.model.predicates import Call, Col, Comparison, Const, Filter, InSet, Predicate
from layoutopt.model.records import to_json
from layoutopt.model.values import ValueSet
from tests.model.conditions import Condition, col, conditions, read_noun, to_node


@given(conditions())
def test_trees_predicates_and_filters_come_back(condition: Condition) -> None:
    node = to_node(condition)
    wanted = Filter.of(node, max_clauses=7)
    assert read_noun(json.loads(json.dumps(to_json(node)))) == node
    assert Filter.from_json(json.loads(json.dumps(to_json(wanted)))) == wanted
    for predicate in wanted.predicates:
        assert Predicate.from_json(json.loads(json.dumps(to_json(predicate)))) == predicate


EXPRESSIONS = [
    Col("odd `name`", "decimal(15,2)"),
    Const(None, "int"),
    InSet(Col("n", "decimal(38,0)"), ValueSet.point(10**37 + 1)),
    Const(b"\0\xff", "binary"),
    Const("\U0001f600\0", "string"),
    Call("try_cast", (Call("concat", (col("s"), Const("x", "string")), "string"),), "bigint"),
]


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_expressions_come_back(expression: Any) -> None:
    assert read_noun(json.loads(json.dumps(to_json(expression)))) == expression


INT = {"col": "a", "type": "int"}
DAMAGED: list[Any] = [
    None,
    [],
    "a",
    {},
    {"col": 1, "type": "int"},
    {"col": "a"},
    {"call": "f(x); DROP", "args": [], "type": "int"},
    {"call": "F", "args": [], "type": "int"},
    {"call": "try_cast", "args": [], "type": "int"},
    {"in": INT, "values": [["a", "b"]], "null": False},
    {"in": INT, "values": [[1]], "null": False},
    {"in": INT, "values": [[True, None]], "null": False},
    {"in": INT, "values": [], "null": 0},
    {"in": {"col": "a", "type": "array<int>"}, "values": [[1, 2]], "null": False},
    {"in": {"constant": True}, "values": [], "null": True},
    {"like": INT, "pattern": "a%", "negated": False},
    {"like": {"col": "s", "type": "string"}, "pattern": "a\\", "negated": False},
    {"compare": ">", "left": INT, "right": INT},
    {"and": INT},
    {"and": [INT]},
    {"predicate": []},
    {"predicate": [{"or": []}]},
    {"filter": {"constant": True}, "max_clauses": "9", "max_literals": 1},
    {"const": {"base64": "???"}, "type": "binary"},
]


@pytest.mark.parametrize("value", DAMAGED, ids=str)
def test_damaged_documents_are_refused(value: Any) -> None:
    with pytest.raises(PlanError, match="write"):
        read_noun(value)


def test_nouns_in_each_others_places_are_refused() -> None:
    comparison = to_json(Comparison(col("i"), "<", col("j")))
    with pytest.raises(PlanError, match="compare"):
        Predicate.from_json(comparison)
    with pytest.raises(PlanError, match="compare"):
        Filter.from_json(comparison)
    with pytest.raises(PlanError, match="col, type"):
        read_noun({"and": [to_json(col("i"))]})


def test_too_deep_documents_are_refused() -> None:
    value: Any = {"constant": True}
    for _ in range(300):
        value = {"and": [value]}
    with pytest.raises(PlanError, match="deep"):
        read_noun(value)
