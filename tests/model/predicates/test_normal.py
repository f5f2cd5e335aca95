"""Canonical trees: they mean what was written, and equal conditions become equal trees."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.model.predicates import (
    ANY_STRING,
    FALSE,
    TRUE,
    And,
    Col,
    Comparison,
    Constant,
    InSet,
    Like,
    Literal,
    Node,
    Or,
    conjunction,
    disjunction,
    like,
    negate,
    order_of,
    parse_like,
)
from layoutopt.model.values import ValueSet, compare
from tests.effort import examples
from tests.model.conditions import (
    Between,
    Both,
    Compare,
    Condition,
    Either,
    In,
    IsNull,
    Matches,
    Not,
    Row,
    TwoColumns,
    col,
    conditions,
    leaves,
    rows,
    to_node,
    truth,
)
from tests.model.evaluator import holds


@given(conditions(), st.lists(rows(), min_size=1, max_size=12))
@settings(max_examples=examples(200))
def test_a_tree_holds_for_exactly_the_rows_for_which_the_condition_is_true(
    condition: Condition, table: list[Row]
) -> None:
    node = to_node(condition)
    assert [holds(node, row) for row in table] == [truth(condition, row) is True for row in table]


@given(leaves(), st.lists(rows(), min_size=1, max_size=12))
@settings(max_examples=examples(200))
def test_the_negation_of_a_leaf_holds_for_exactly_the_rows_for_which_it_is_false(
    leaf: Condition, table: list[Row]
) -> None:
    negated = to_node(leaf, wanted=False)
    assert [holds(negated, row) for row in table] == [truth(leaf, row) is False for row in table]


@given(leaves())
def test_negating_twice_gives_the_literal_back(leaf: Condition) -> None:
    node = to_node(leaf)
    if isinstance(node, Constant) or (isinstance(node, InSet) and (node.null or node.values.is_empty)):
        return
    assert negate(negate(node)) == node if isinstance(node, InSet | Like | Comparison) else True


@given(conditions())
def test_canonical_trees_stay_as_they_are(condition: Condition) -> None:
    node = to_node(condition)
    assert conjunction([node]) == disjunction([node]) == node
    if isinstance(node, And | Or):
        rebuild = conjunction if isinstance(node, And) else disjunction
        assert rebuild(reversed(node.children)) == node
        assert list(node.children) == sorted(node.children, key=order_of)


@given(st.lists(leaves("is"), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_the_order_and_grouping_of_parts_do_not_matter(parts: list[Condition], random: object) -> None:
    nodes = [to_node(part) for part in parts]
    shuffled = list(nodes)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    nested = [conjunction(shuffled[:2]), conjunction(shuffled[2:])]
    assert conjunction(nodes) == conjunction(shuffled) == conjunction(nested) == conjunction(nodes + shuffled)


SAME: list[tuple[Condition, Condition]] = [
    (Between("i", 1, 2), Both((Compare("i", ">=", 1), Compare("i", "<=", 2)))),
    (Between("i", 1, 2), Not(Either((Compare("i", "<", 1), Compare("i", ">", 2))))),
    (Between("i", 1, 2), In("i", (2, 1, 2))),
    (Compare("i", ">", 5), Compare("i", ">=", 6)),
    (Not(In("s", ("a", "b"))), Both((Compare("s", "<>", "b"), Compare("s", "<>", "a")))),
    (Compare("o", "=", False), Not(Compare("o", "=", True))),
    (Compare("o", "<>", True), Compare("o", "<", True)),
    (Matches("s", "ab%"), Both((Compare("s", ">=", "ab"), Compare("s", "<", "ac")))),
    (Matches("s", "abc"), Compare("s", "=", "abc")),
    (Matches("s", "%%_%"), Matches("s", "_%")),
    (Matches("s", "%"), Not(IsNull("s"))),
    (Compare("s", ">=", ""), Not(IsNull("s"))),
    (Compare("d", "<=", float("nan")), Not(IsNull("d"))),
    (Compare("d", ">", float("inf")), Compare("d", "=", float("nan"))),
    (Compare("d", "<", 0.0), Compare("d", "<=", -5e-324)),
    (Compare("d", "=", -0.0), Compare("d", "=", 0)),
    (TwoColumns("i", "<", "j"), TwoColumns("j", ">", "i")),
    (TwoColumns("i", "=", "j"), Not(TwoColumns("j", "<>", "i"))),
    (TwoColumns("i", "<=", "j"), Not(TwoColumns("j", "<", "i"))),
    (TwoColumns("i", "<=", "i"), Not(IsNull("i"))),
    (Both((Compare("i", "=", 1), Either((Compare("i", "=", 1), Compare("s", "=", "a"))))), Compare("i", "=", 1)),
]


@pytest.mark.parametrize(("one", "other"), SAME, ids=str)
def test_equal_conditions_are_one_tree(one: Condition, other: Condition) -> None:
    assert to_node(one) == to_node(other)
    assert hash(to_node(one)) == hash(to_node(other))


A, S = col("i"), col("s")
POINT = InSet(A, ValueSet.point(1))
WITH_NULL, WITHOUT = InSet(A, ValueSet.point(1), null=True), InSet(A, ValueSet.interval(0, 5))
MADE: list[tuple[Node, Node]] = [
    (conjunction([POINT, TRUE]), POINT),
    (disjunction([POINT, FALSE]), POINT),
    (conjunction([POINT, FALSE]), FALSE),
    (disjunction([POINT, TRUE]), TRUE),
    (conjunction([]), TRUE),
    (disjunction([]), FALSE),
    (conjunction([POINT, InSet(A, ValueSet.point(2))]), FALSE),
    (disjunction([InSet(A, ValueSet.all()), InSet(A, ValueSet.empty(), null=True)]), TRUE),
    (conjunction([Comparison(A, "<", A)]), FALSE),
    (conjunction([WITH_NULL, WITHOUT]), POINT),
    (disjunction([WITH_NULL, WITHOUT]), InSet(A, ValueSet.interval(0, 5), null=True)),
    (like(S, parse_like("a\\%")), InSet(S, ValueSet.point("a%"))),
    (like(S, parse_like("a%"), negated=True), InSet(S, ValueSet.prefix("a").complement())),
    (like(S, parse_like("")), InSet(S, ValueSet.point(""))),
    (conjunction([Like(S, ("a", ANY_STRING))]), InSet(S, ValueSet.prefix("a"))),
]


@pytest.mark.parametrize(("made", "canonical"), MADE, ids=str)
def test_the_canonical_tree(made: Node, canonical: Node) -> None:
    assert made == canonical


@pytest.mark.parametrize(
    ("literal", "negated"),
    [
        (InSet(A, ValueSet.empty(), null=True), InSet(A, ValueSet.all())),
        (InSet(A, ValueSet.all()), InSet(A, ValueSet.empty(), null=True)),
        (InSet(A, ValueSet.point(3), null=True), InSet(A, compare("<>", 3, "int"))),
        (like(S, parse_like("%a%")), Like(S, (ANY_STRING, "a", ANY_STRING), negated=True)),
        (Comparison(A, "<", col("j")), Comparison(col("j"), "<=", A)),
    ],
)
def test_negations(literal: Literal, negated: Literal) -> None:
    assert negate(literal) == negated


def test_nouns_refuse_what_has_no_meaning() -> None:
    with pytest.raises(ValueError, match="array<int>"):
        InSet(Col("c", "array<int>"), ValueSet.point(1))
    with pytest.raises(ValueError, match="'int'"):
        Like(A, ("a",))
    with pytest.raises(ValueError, match=">="):
        Comparison(A, ">=", A)
    with pytest.raises(ValueError, match="string"):
        Comparison(A, "=", S)
    assert InSet(Col("c", "array<int>"), ValueSet.all()).values.is_all
