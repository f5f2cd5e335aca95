"""Subsumption: never wrong on any row, and TRUE where it ought to be."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.model.predicates import (
    FALSE,
    TRUE,
    Call,
    Col,
    Comparison,
    Filter,
    InSet,
    Like,
    Literal,
    Node,
    Predicate,
    conjunction,
    disjunction,
    like,
    parse_like,
    predicate_of,
)
from layoutopt.model.predicates.subsume import implies, subsumes
from layoutopt.model.values import ValueSet, compare
from tests.effort import examples
from tests.model.conditions import VALUES, Condition, Either, Row, col, conditions, leaves, rows, to_node
from tests.model.evaluator import holds

NUMBER, OTHER, TEXT, DOUBLE, FLAG = col("i"), col("j"), col("s"), col("d"), col("o")


def _number(op: str, value: object) -> InSet:
    return InSet(NUMBER, compare(op, value, "int"))


def _text(op: str, value: str) -> InSet:
    return InSet(TEXT, compare(op, value, "string"))


def _like(text: str, negated: bool = False) -> Literal:
    return like(TEXT, parse_like(text), negated)


def _among(*values: int) -> InSet:
    return InSet(NUMBER, ValueSet.of(values))


IS_NULL = InSet(NUMBER, ValueSet.empty(), null=True)
NOT_NULL = InSet(NUMBER, ValueSet.all())
TEXT_NOT_NULL = InSet(TEXT, ValueSet.all())
UDF = InSet(Call("likes", (TEXT, NUMBER), "boolean"), ValueSet.point(1))
YEAR = Call("year", (Col("y", "date"),), "int")


def _predicate(*literals: Node) -> Predicate:
    predicate = predicate_of(disjunction(literals))
    assert predicate is not None
    return predicate


FOLLOWS: list[tuple[Node, Predicate]] = [
    (_number("=", 5), _predicate(_number("=", 5))),
    (_number("=", 5), _predicate(_number("<>", 6))),
    (_number("=", 5), _predicate(_number("<", 6))),
    (_number("=", 5), _predicate(_among(5, 9))),
    (_number("=", 5), _predicate(NOT_NULL)),
    (_number("<>", 5), _predicate(NOT_NULL)),
    (_number("<", 5), _predicate(_number("<=", 4))),
    (_number(">", 5), _predicate(_number("<>", 5))),
    (InSet(NUMBER, ValueSet.interval(2, 4)), _predicate(InSet(NUMBER, ValueSet.interval(1, 5)))),
    (_among(2, 9), _predicate(_among(2, 5, 9))),
    (_among(2, 9), _predicate(InSet(NUMBER, ValueSet.interval(2, 10)))),
    (_among(2, 9), _predicate(_number("=", 2), _number("=", 9))),
    (IS_NULL, _predicate(IS_NULL)),
    (IS_NULL, _predicate(InSet(NUMBER, ValueSet.point(3), null=True))),
    (IS_NULL, _predicate(IS_NULL, _text("=", "a"))),
    (_text("=", "forest green"), _predicate(_like("%green%"))),
    (_text("=", "forest green"), _predicate(_like("forest%"))),
    (_text("=", "forest green"), _predicate(_like("f_rest%n"))),
    (_text("=", "forest green"), _predicate(_like("%red%", negated=True))),
    (InSet(TEXT, ValueSet.of(["ab", "cb"])), _predicate(_like("%b"))),
    (InSet(TEXT, ValueSet.of(["ab", "cd"])), _predicate(_like("%b"), _like("%d"))),
    (_like("abc%"), _predicate(_like("ab%"))),
    (_like("abc%"), _predicate(_text(">=", "ab"))),
    (_like("abc%"), _predicate(_text("<>", "abb"))),
    (_like("abc%"), _predicate(_like("%b%"))),
    (_like("abc%"), _predicate(_like("%x", negated=True), _text("<>", "q"))),
    (_like("abc%z"), _predicate(_like("abc%"))),
    (_like("abc%z"), _predicate(_text("<", "abd"))),
    (_like("%abc"), _predicate(_like("%bc"))),
    (_like("%abc"), _predicate(_like("%b%"))),
    (_like("%special%requests%"), _predicate(_like("%requests%"))),
    (_like("%green%"), _predicate(_text("<>", "red"))),
    (_like("%green%"), _predicate(TEXT_NOT_NULL)),
    (_like("%green%", negated=True), _predicate(TEXT_NOT_NULL)),
    (_like("%green%", negated=True), _predicate(_text("<>", "forest green"))),
    (_like("%e%", negated=True), _predicate(_like("%green%", negated=True))),
    (_like("a_"), _predicate(_like("%", negated=False))),
    (_like("a_"), _predicate(_like("__"))),
    (_like("%a"), _predicate(_like("%b", negated=True))),
    (_like("ab%"), _predicate(_like("b%", negated=True))),
    (_like("ab%", negated=True), _predicate(_text("<>", "abc"))),
    (Comparison(NUMBER, "<", OTHER), _predicate(Comparison(NUMBER, "<=", OTHER))),
    (Comparison(NUMBER, "<", OTHER), _predicate(Comparison(NUMBER, "<>", OTHER))),
    (Comparison(OTHER, "<", NUMBER), _predicate(Comparison(NUMBER, "<>", OTHER))),
    (Comparison(NUMBER, "=", OTHER), _predicate(Comparison(NUMBER, "<=", OTHER))),
    (Comparison(NUMBER, "=", OTHER), _predicate(Comparison(OTHER, "<=", NUMBER))),
    (Comparison(NUMBER, "<", OTHER), _predicate(NOT_NULL)),
    (Comparison(OTHER, "<>", NUMBER), _predicate(NOT_NULL)),
    (InSet(YEAR, ValueSet.point(1994)), _predicate(InSet(YEAR, ValueSet.interval(1990, None)))),
    (UDF, _predicate(UDF)),
    (conjunction([UDF, _number("=", 1)]), _predicate(UDF)),
    (conjunction([_number("=", 1), _text("=", "a")]), _predicate(_number("<", 3), Comparison(NUMBER, "<", OTHER))),
    (disjunction([_number("=", 1), _text("=", "a")]), _predicate(_number("<", 3), _like("a%"))),
    (
        disjunction([conjunction([_number("=", 1), _text("=", "a")]), conjunction([_number("=", 7), _text("=", "b")])]),
        _predicate(_among(1, 7)),
    ),
    (InSet(FLAG, ValueSet.point(1)), _predicate(InSet(FLAG, ValueSet.all()))),
    (FALSE, _predicate(_number("=", 5))),
]


@pytest.mark.parametrize(("node", "predicate"), FOLLOWS, ids=lambda x: repr(x)[:60])
def test_what_follows_is_found(node: Node, predicate: Predicate) -> None:
    assert implies(node, predicate)
    assert subsumes((predicate,), node)


FOLLOWS_NOT: list[tuple[Node, Predicate]] = [
    (_number("<=", 5), _predicate(_number("<", 5))),
    (_among(2, 9), _predicate(_among(2, 5))),
    (InSet(NUMBER, ValueSet.point(3), null=True), _predicate(_number("=", 3))),
    (InSet(NUMBER, ValueSet.point(3), null=True), _predicate(NOT_NULL)),
    (IS_NULL, _predicate(_number("<>", 3))),
    (TRUE, _predicate(NOT_NULL)),
    (_number("=", 5), _predicate(InSet(OTHER, compare("=", 5, "int")))),
    (_like("%b%"), _predicate(_like("abc%"))),
    (_like("a%"), _predicate(_like("a_%"))),
    (_like("%a%", negated=True), _predicate(_like("%b%"))),
    (_like("%green%", negated=True), _predicate(_like("%e%", negated=True))),
    (_like("%green%"), _predicate(_text("<>", "green"))),
    (_like("ab%c"), _predicate(_text("<", "abc"))),
    (_like("%b", negated=True), _predicate(_like("%a", negated=True))),
    (Comparison(NUMBER, "<=", OTHER), _predicate(Comparison(NUMBER, "<", OTHER))),
    (Comparison(NUMBER, "<>", OTHER), _predicate(Comparison(NUMBER, "<", OTHER))),
    (Comparison(NUMBER, "<", OTHER), _predicate(Comparison(OTHER, "<=", NUMBER))),
    (disjunction([_number("=", 1), _text("=", "a")]), _predicate(_number("=", 1))),
    (UDF, _predicate(InSet(Call("likes", (TEXT, OTHER), "boolean"), ValueSet.point(1)))),
    (UDF, _predicate(TEXT_NOT_NULL)),  # a function may be TRUE of NULL
]


@pytest.mark.parametrize(("node", "predicate"), FOLLOWS_NOT, ids=lambda x: repr(x)[:60])
def test_what_does_not_follow_is_not_claimed(node: Node, predicate: Predicate) -> None:
    assert not implies(node, predicate)


def test_a_feature_subsumes_only_if_all_its_predicates_do() -> None:
    node = conjunction([_number("=", 1), _text("=", "a")])
    assert subsumes((_predicate(_number("<", 5)), _predicate(_like("a%"))), node)
    assert not subsumes((_predicate(_number("<", 5)), _predicate(_like("b%"))), node)


@given(conditions("ijs", 5), conditions("ijs", 4), st.lists(rows("ijs"), min_size=5, max_size=15))
@settings(max_examples=examples(300))
def test_what_is_claimed_holds_on_every_row(specific: Condition, general: Condition, table: list[Row]) -> None:
    # The disjunction with the specific condition makes claims frequent.
    for target in (to_node(general), to_node(Either((specific, general)))):
        for predicate in Filter.of(target).predicates:
            node = to_node(specific)
            if implies(node, predicate):
                assert all(holds(predicate, row) for row in table if holds(node, row))


@given(leaves("s"), leaves("s"))
@settings(max_examples=examples(400))
def test_claims_about_strings_hold_for_all_sample_strings(specific: Condition, general: Condition) -> None:
    node, target = to_node(specific), predicate_of(to_node(general))
    if target is not None and implies(node, target):
        samples: list[Row] = [{"s": text} for text in (*VALUES["s"], "ac", "abb", "abab", "%", "a%", None)]
        assert all(holds(target, row) for row in samples if holds(node, row))


@given(leaves("t"), leaves("t"))
@settings(max_examples=examples(100))
def test_for_one_column_of_whole_numbers_every_consequence_is_found(specific: Condition, general: Condition) -> None:
    node, target = to_node(specific), predicate_of(to_node(general))
    every_row: list[Row] = [{"t": value} for value in (*range(-128, 128), None)]
    if target is not None:
        follows = all(holds(target, row) for row in every_row if holds(node, row))
        assert implies(node, target) == follows


@given(conditions(max_leaves=5))
def test_every_filter_implies_its_own_predicates(condition: Condition) -> None:
    node = to_node(condition)
    assert subsumes(Filter.of(node).predicates, node)


def test_like_of_a_function_follows_only_from_the_same_function() -> None:
    upper, lower = Call("upper", (TEXT,), "string"), Call("lower", (TEXT,), "string")
    pattern = parse_like("%a%b")
    assert implies(Like(lower, pattern), _predicate(like(lower, parse_like("%a%"))))
    assert not implies(Like(lower, pattern), _predicate(like(upper, parse_like("%a%"))))
    assert not implies(InSet(DOUBLE, ValueSet.point(1)), _predicate(like(upper, parse_like("%a%"))))
