"""Conditions that equalities imply: where ``t.k = d.y AND d.y = 5`` is TRUE, so is ``t.k = 5``.

Types alone decide whether a condition on one column holds for an equal one; its place in the statement decides which
rows it may drop (:mod:`layoutopt.sql.query_blocks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from layoutopt.model.predicates import And, Col, Constant, InSet, Node, Or
from layoutopt.model.values import key_kind
from layoutopt.sql.scopes import FromItem, Scope, ValueRef, plain_columns
from layoutopt.sql.types import is_floating, is_integer, normal_type


@dataclass(frozen=True, eq=False)
class Fact:
    """A condition that is TRUE.

    Attributes:
        condition: it consists of whole columns and constants.
        columns: each column that it names, as the text names it, with the scope that the column belongs to.
        crosses_types: whether it was inferred over an equality with a column of another or an unknown type.
    """

    condition: exp.Expr
    columns: Mapping[ValueRef, tuple[exp.Expr, Scope]]
    crosses_types: bool = False

    @property
    def items(self) -> set[FromItem | None]:
        """Return the from-items that it names; None stands for those whose columns are unknown."""
        return {None if isinstance(value, str) else value[0] for value in self.columns}


def read_facts(conditions: Iterable[exp.Expr], scope: Scope) -> Iterator[Fact]:
    """Yield the conditions that consist of whole columns and constants."""
    for condition in conditions:
        values = [] if condition.find(exp.Query) else [(scope.find_value(c), c) for c in plain_columns(condition)]
        if values and all(value is not None for value, _ in values):
            yield Fact(condition, {value[0]: (column, value[1]) for value, column in values if value is not None})


def infer_facts(facts: Sequence[Fact]) -> list[Fact]:
    """Return the conditions on one column that the facts imply, other than the facts."""
    equalities = [tuple(fact.columns) for fact in facts if _is_equality(fact)]
    if not equalities:
        return []
    named = {value: column for fact in facts for value, column in fact.columns.items()}
    types = {value: _type_of(value) for value in named}
    classes = {value: {value} for value in named}
    for left, right in equalities:
        if _is_lossless(types[left], types[right]):
            merged = classes[left] | classes[right]
            classes |= dict.fromkeys(merged, merged)
    given = [fact for fact in facts if len(fact.columns) == 1]
    crossing: list[Fact] = []
    for pair in equalities:
        for source, target in (pair, pair[::-1]):
            if types[source] is None and (is_integer(types[target] or "") or types[target] == "date"):
                crossing += [_move(f, target, named, True) for f in given if source in f.columns and _is_plain(f)]
    inferred = {(value, fact.condition): fact for fact in crossing for value in fact.columns}
    for fact in [*given, *crossing]:
        (source,) = fact.columns
        for target in classes[source] - {source}:
            if types[source] == types[target] or _is_plain(fact):
                moved = _move(fact, target, named, fact.crosses_types)
                inferred[target, moved.condition] = moved
    known = {(value, fact.condition) for fact in given for value in fact.columns}
    return [fact for key, fact in inferred.items() if key not in known]


def _is_equality(fact: Fact) -> bool:
    condition = fact.condition.unnest()
    is_plain = type(condition) is exp.EQ and all(
        isinstance(side.unnest(), exp.Column) for side in condition.iter_expressions()
    )
    return is_plain and len(fact.columns) == 2


def _type_of(value: ValueRef) -> str | None:
    kind = None if isinstance(value, str) else value[0].find_type(value[1])
    return None if kind is None else normal_type(kind)


def _is_lossless(left: str | None, right: str | None) -> bool:
    """Return whether columns of these types that Spark finds equal have the same value, which is one of no other."""
    if left is None or right is None:
        return False
    # 0.0 equals -0.0; types without order are compared in ways of their own, such as padded texts
    is_same = left == right and not is_floating(left) and key_kind(left) is not None
    return is_same or (is_integer(left) and is_integer(right))


def _move(fact: Fact, target: ValueRef, named: Mapping[ValueRef, tuple[exp.Expr, Scope]], crosses_types: bool) -> Fact:
    column = named[target][0]
    condition = exp.Paren(this=fact.condition.copy())
    for part in list(plain_columns(condition)):
        part.replace(column.copy())
    return Fact(condition.this, {target: named[target]}, crosses_types)


_PLAIN: Final = frozenset(
    {exp.Column, exp.Identifier, exp.Paren, exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE}
    | {exp.In, exp.Between, exp.Neg, exp.Literal, exp.Cast, exp.DataType}
)  # fmt: skip


def _is_plain(fact: Fact) -> bool:
    """Return whether a condition only compares its column with whole numbers or dates: alike for all their types."""
    return all(type(node) in _PLAIN and _is_plain_constant(node) for node in fact.condition.walk())


def _is_plain_constant(node: exp.Expr) -> bool:
    if isinstance(node, exp.Cast):
        return isinstance(node.this, exp.Literal) and node.to.is_type(exp.DType.DATE)
    if isinstance(node, exp.Literal):
        return isinstance(node.parent, exp.Cast) if node.is_string else node.name.isdigit()
    return True


# Whole numbers that a float holds exactly.
_MOST_EXACT: Final = 1 << 24


def holds_across_types(node: Node, zone: str) -> bool:
    """Return whether a filter that crosses types holds whatever type the other column has.

    A float equals several large numbers; outside UTC, a timestamp may equal two dates, where a zone skips a day.
    """
    if isinstance(node, And | Or):
        return all(holds_across_types(child, zone) for child in node.children)
    if not isinstance(node, InSet) or not isinstance(node.subject, Col) or node.null:
        return isinstance(node, Constant)
    if node.subject.type == "date":
        return zone == "UTC"
    bounds = [bound for interval in node.values.intervals for bound in interval if isinstance(bound, int)]
    return all(abs(bound) <= _MOST_EXACT for bound in bounds)
