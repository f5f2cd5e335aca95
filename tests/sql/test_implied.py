"""What conditions with a user's function imply about plain columns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import layoutopt
from layoutopt.model.predicates import TRUE, Node, describe
from layoutopt.model.schema import Column, Schema
from layoutopt.model.udf import Udf, by_name
from layoutopt.sql.scans import TableScan, find_scans

SCHEMA = Schema((Column("x", "int"), Column("y", "int"), Column("s", "string")))
OPERATORS = {"<": lambda a, b: a < b, "<=": lambda a, b: a <= b, "=": lambda a, b: a == b, ">": lambda a, b: a > b,
             ">=": lambda a, b: a >= b, "<>": lambda a, b: a != b}  # fmt: skip
TURNED = {"<": ">", "<=": ">=", "=": "=", ">": "<", ">=": "<=", "<>": "<>"}


@layoutopt.udf("int", implies={"<=": ":a BETWEEN :b - :value AND :b + :value", ">": ":value < 0 OR NOT :a = :b"})
def apart(a: int, b: int) -> int:
    return abs(a - b)


@layoutopt.udf("boolean", implies="s LIKE 'a%' AND :a > 3")
def good(a: int) -> bool:
    return a > 3


def scan(condition: str, *udfs: Udf) -> TableScan:
    (found,) = find_scans(f"SELECT x FROM t WHERE {condition}", {"t": SCHEMA}, udfs=by_name(udfs or (apart, good)))
    return found


def shown(condition: str, *udfs: Udf) -> str:
    return describe(scan(condition, *udfs).filter.root)


def test_a_boolean_function_implies_where_it_is_true() -> None:
    assert shown("good(x)") == "good(x) AND s LIKE 'a%' AND x >= 4"
    assert shown("NOT good(x)") == "NOT good(x)"
    assert shown("good(y) OR x = 1") == "(good(y) AND s LIKE 'a%' AND y >= 4) OR x = 1"


@pytest.mark.parametrize(
    ("condition", "implied"),
    [
        ("apart(x, 5) <= 2", "x BETWEEN 3 AND 7"),
        ("apart(x, 5) < 2", "x BETWEEN 3 AND 7"),
        ("2 >= apart(x, 5)", "x BETWEEN 3 AND 7"),
        ("NOT apart(x, 5) > 2", "x BETWEEN 3 AND 7"),
        ("apart(x, 5) = 2", "x BETWEEN 3 AND 7"),
        ("apart(x, 5) > 2", "x <> 5"),
        ("apart(x, 5) BETWEEN 1 AND 2", "x BETWEEN 3 AND 7"),
    ],
)
def test_comparisons_imply_by_their_operator(condition: str, implied: str) -> None:
    assert implied in shown(condition)


@pytest.mark.parametrize(
    "condition", ["apart(x, 5) >= 2", "apart(x, 5) <> 2", "apart(x, 5) IS NULL", "apart(x, y) < y"]
)
def test_nothing_is_implied_that_was_not_said(condition: str) -> None:
    assert "BETWEEN" not in shown(condition)
    assert "x <> 5" not in shown(condition)


def test_a_wrong_number_of_arguments_leaves_the_condition_out() -> None:
    found = scan("apart(x) < 2")
    assert found.filter.root == TRUE
    assert "has 1 arguments; apart takes a, b" in found.unusable[0].detail


def test_what_is_implied_needs_no_function_of_the_user_again() -> None:
    again = layoutopt.udf("boolean", name="again", implies="again(:a) AND :a > 1", version="1")(lambda a: True)
    assert shown("again(x)", again) == "again(x) AND x >= 2"


def test_functions_are_known_by_name_and_only_where_declared() -> None:
    assert "x BETWEEN -2 AND 4" in shown("APART(x, 1) < 3", apart)
    assert scan("apart(x, 1) < 3", good).filter.root == TRUE
    assert scan("apart(now(), 1) < 3").filter.root == TRUE


@given(
    st.sampled_from(sorted(OPERATORS)), st.integers(-4, 4), st.integers(-2, 4), st.booleans(), st.booleans()
)  # fmt: skip
def test_what_is_implied_holds_wherever_the_condition_does(
    operator: str, b: int, value: int, mirrored: bool, negated: bool
) -> None:
    compared = f"{value} {TURNED[operator]} apart(x, {b})" if mirrored else f"apart(x, {b}) {operator} {value}"
    root = scan(f"NOT ({compared})" if negated else compared).filter.root
    for x in range(-9, 10):
        if OPERATORS[operator](abs(x - b), value) != negated:
            assert _plain_parts_hold(root, x), (compared, x)


def _plain_parts_hold(root: Node, x: int) -> bool:
    """Whether a row with this x makes every part of an AND TRUE that is about the column itself."""
    from layoutopt.model.predicates import And, Col, InSet

    parts = root.children if isinstance(root, And) else (root,)
    return all(part.values.contains(x) for part in parts if isinstance(part, InSet) and isinstance(part.subject, Col))
