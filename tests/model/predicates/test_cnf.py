"""The bounded conjunctive normal form: sound, useful, and cheap."""

from __future__ import annotations

import datetime as dt
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.model.predicates import (
    FALSE,
    TRUE,
    And,
    Col,
    Comparison,
    Filter,
    InSet,
    Node,
    conjunction,
    describe,
    disjunction,
    like,
    parse_like,
    predicate_of,
)
from layoutopt.model.predicates.subsume import implies
from layoutopt.model.values import ValueSet, compare
from tests.effort import examples
from tests.model.conditions import Condition, Row, col, conditions, rows, to_node, truth
from tests.model.evaluator import holds


def _cell(name: str, type: str, op: str, value: object) -> InSet:
    return InSet(Col(name, type), compare(op, value, type))


def _in(name: str, *values: str) -> InSet:
    return InSet(Col(name, "string"), ValueSet.of(values))


def _branch(brand: str, containers: tuple[str, ...], quantity: int, size: int) -> Node:
    """One of the three alternatives of TPC-H's q19."""
    return conjunction(
        [
            _in("p_brand", brand),
            _in("p_container", *containers),
            _cell("l_quantity", "decimal(15,2)", ">=", quantity),
            _cell("l_quantity", "decimal(15,2)", "<=", quantity + 10),
            _cell("p_size", "int", ">=", 1),
            _cell("p_size", "int", "<=", size),
            _in("l_shipmode", "AIR", "REG AIR"),
            _in("l_shipinstruct", "DELIVER IN PERSON"),
        ]
    )


Q19 = disjunction(
    [
        _branch("Brand#12", ("SM BOX", "SM CASE"), 1, 5),
        _branch("Brand#23", ("MED BAG", "MED BOX"), 10, 10),
        _branch("Brand#34", ("LG BOX", "LG CASE"), 20, 15),
    ]
)


def test_an_or_of_ands_gives_a_predicate_for_each_column() -> None:
    single = {describe(p) for p in Filter.of(Q19).predicates if len(p.columns) == 1}
    assert single == {
        "p_brand IN ('Brand#12', 'Brand#23', 'Brand#34')",
        "p_container IN ('LG BOX', 'LG CASE', 'MED BAG', 'MED BOX', 'SM BOX', ... 1 more)",
        "l_quantity BETWEEN 1.00 AND 30.00",
        "p_size BETWEEN 1 AND 15",
        "l_shipmode IN ('AIR', 'REG AIR')",
        "l_shipinstruct = 'DELIVER IN PERSON'",
    }


def test_predicates_about_fewest_columns_come_first_and_the_bound_is_kept() -> None:
    predicates = Filter.of(Q19, max_clauses=8).predicates
    widths = [len(predicate.columns) for predicate in predicates]
    assert widths == sorted(widths)
    assert len(predicates) <= 8
    assert widths[:6] == [1] * 6


def test_several_literals_about_one_column_come_before_fewer_about_two() -> None:
    patterns = [like(col("s"), parse_like(f"%{letter}%")) for letter in "xyz"]
    one_column, two_columns = disjunction(patterns), disjunction([_in("a", "x"), _in("b", "x")])
    for root in (conjunction([one_column, two_columns]), conjunction([two_columns, one_column])):
        assert [len(predicate.columns) for predicate in Filter.of(root).predicates] == [1, 2]
        assert Filter.of(root, max_clauses=1).predicates == (predicate_of(one_column),)


def test_predicates_of_too_many_literals_are_left_out() -> None:
    wide = disjunction([_in(name, "x") for name in "abcdef"])
    assert len(Filter.of(wide).predicates) == 1
    assert Filter.of(wide, max_literals=5).predicates == ()
    assert Filter.of(conjunction([wide, _in("g", "y")]), max_literals=5).predicates == (predicate_of(_in("g", "y")),)


def test_no_predicate_follows_from_another() -> None:
    predicates = Filter.of(Q19).predicates
    for one in predicates:
        assert not any(implies(other.node, one) for other in predicates if other != one)


def test_a_large_or_of_ands_is_cut_and_its_single_columns_survive() -> None:
    day = dt.date(1994, 1, 1)
    branches = [
        conjunction([_cell(f"c{i}", "int", "=", n) for i in range(8)] + [_cell("d", "date", ">=", day)])
        for n in range(60)
    ]
    predicates = Filter.of(disjunction(branches)).predicates
    assert len(predicates) == 64
    assert {p.columns for p in predicates} >= {frozenset({f"c{i}"}) for i in range(8)} | {frozenset({"d"})}


A, B = Col("a", "int"), Col("b", "int")
LESS = Comparison(A, "<", B)
WHAT_IS_KEPT: list[tuple[Node, list[Node]]] = [
    (TRUE, []),
    (FALSE, []),
    (And((disjunction([_in("a", "x", "y"), _in("b", "z")]), _in("a", "x"))), [_in("a", "x")]),
    (conjunction([LESS, InSet(A, ValueSet.all())]), [LESS]),
]


@pytest.mark.parametrize(("root", "kept"), WHAT_IS_KEPT, ids=["true", "false", "the stricter one", "not null"])
def test_what_follows_from_others_is_left_out(root: Node, kept: list[Node]) -> None:
    assert Filter.of(root).predicates == tuple(map(predicate_of, kept))


@given(conditions("ijsd", 8), st.integers(1, 8), st.lists(rows("ijsrd"), min_size=1, max_size=12))
@settings(max_examples=examples(200))
def test_rows_that_pass_the_filter_pass_every_predicate(condition: Condition, bound: int, table: list[Row]) -> None:
    predicates = Filter.of(to_node(condition), max_clauses=bound).predicates
    assert len(predicates) <= bound
    for row in table:
        if truth(condition, row):
            assert all(holds(predicate, row) for predicate in predicates)


@given(conditions("ij", 4), st.lists(rows("ij"), min_size=1, max_size=12))
@settings(max_examples=examples(200))
def test_small_filters_are_the_conjunction_of_their_predicates(condition: Condition, table: list[Row]) -> None:
    root = to_node(condition)
    predicates = Filter.of(root).predicates
    for row in table:
        assert holds(root, row) == (root != FALSE and all(holds(predicate, row) for predicate in predicates))


def test_hashes_are_computed_anew_in_another_process() -> None:
    literal = InSet(col("s"), ValueSet.of(["a", "b"]))
    hash(literal)
    copy = pickle.loads(pickle.dumps(literal))
    assert copy == literal
    assert "_hash" not in copy.__dict__
    assert hash(copy) == hash(literal)
