"""Conditions on elements of arrays, as conditions without lambdas: of the largest, the smallest and those contained.

Of what is contained Spark's functions agree whether they are TRUE, FALSE or NULL: ``exists(xs, x -> x = 1)``,
``array_contains(xs, 1)`` and ``arrays_overlap(xs, array(1))`` are NULL where there is a NULL and no 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Final

from sqlglot import exp

from layoutopt.model.predicates import Call, Col, Const, Expr, InSet, Like, Node, Or, disjunction
from layoutopt.model.predicates.normal import some_element as element_meeting
from layoutopt.model.schema import Column
from layoutopt.model.types import INTEGER_BITS, nested_parts
from layoutopt.model.values import ValueSet
from layoutopt.sql.expressions import subject
from layoutopt.sql.operands import Context
from layoutopt.sql.problems import Unusable

_MIRRORED: Final[dict[type[exp.Expr], type[exp.Expr]]] = {
    exp.EQ: exp.EQ, exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE
}  # fmt: skip
_MOST_ELEMENTS: Final = 64


def without_lambda(node: exp.Expr, truth: bool) -> exp.Expr | None:
    """A condition that is TRUE (or, with ``truth=False``, FALSE) for the same rows; None of conditions of other forms.

    Raises:
        Unusable: it compares arrays in a way that is not followed.
    """
    if isinstance(node, exp.Exists) and isinstance(node.expression, exp.Lambda):
        return _some_element(node, node.expression, truth)
    if isinstance(node, exp.Anonymous) and node.name.casefold() == "arrays_overlap" and len(node.expressions) == 2:
        return _some_common(node)
    return None


def _some_element(node: exp.Expr, test: exp.Lambda, truth: bool) -> exp.Expr | None:
    """``exists(xs, x -> x > 5)``: by the largest element, or the smallest; one that is equal is contained."""
    body, names = test.this.unnest(), [each.name for each in test.expressions]
    if len(names) == 1 and isinstance(body, exp.In) and _is_name(body.this, names[0]) and body.expressions:
        return _contains_some(node, node.this, body.expressions)
    kind, first, second = type(body), body.args.get("this"), body.args.get("expression")
    if kind in _MIRRORED and isinstance(second, exp.Identifier):
        kind, first, second = _MIRRORED[kind], second, first
    # That the largest element is at most 5 is TRUE of more rows than that no element is known to be larger.
    known = kind in _MIRRORED and (truth or kind is exp.EQ)
    if not known or len(names) != 1 or not _is_name(first, names[0]) or isinstance(second, exp.Identifier):
        return None
    assert second is not None, "a comparison has two sides"
    if kind is exp.EQ:
        return _contains_some(node, node.this, [second])
    end = (exp.ArrayMax if kind in (exp.GT, exp.GTE) else exp.ArrayMin)(this=node.this.copy())
    compared: exp.Expr = kind(this=end, expression=second.copy())
    return compared


def some_element(node: exp.Expr, truth: bool, context: Context, read: Callable[[exp.Expr, Context], Node]) -> Node:
    """``exists(xs, x -> x LIKE 'a%' OR x BETWEEN 'k' AND 'm')``: the rows for which such a condition is TRUE.

    Args:
        node: whose ``expression`` is a lambda.
        truth: whether the rows are asked for of which it is TRUE.
        context: of the condition.
        read: reads a condition exactly, or raises.

    Raises:
        Unusable: it is not followed, as one that is to be FALSE.
    """
    test, refused = node.expression, Unusable("unsupported-expression", f"{node.sql('spark')} is not followed")
    array = subject(node.this, context).expr
    kind, parts = nested_parts(array.type)
    if not truth or len(test.expressions) != 1 or kind != "array" or not is_followed(*parts):
        raise refused
    element = Column(test.expressions[0].name, parts[0])

    def resolve(column: exp.Column) -> tuple[Column, tuple[str, ...]]:
        if column.name != element.name or column.table:
            raise refused
        return element, ()

    body = test.this.copy().transform(lambda each: exp.column(each.copy()) if _is_free(each, element.name) else each)
    found = read(body, replace(context, resolve=resolve))
    tests = found.children if isinstance(found, Or) else [found]
    return disjunction([is_met(array, each, Col(element.name, parts[0]), refused) for each in tests])


def is_followed(type: str) -> bool:
    """Return whether patterns and ranges of elements of a type are followed."""
    return type in ("string", "date", "timestamp", "timestamp_ntz", *INTEGER_BITS)


def _is_free(node: exp.Expr, name: str) -> bool:
    """Whether it is the lambda's variable, which the parser has as a bare name."""
    return _is_name(node, name) and not isinstance(node.parent, exp.Column)


def is_met(array: Expr, test: Node, element: Expr, refused: Unusable) -> Node:
    """Return the rows with an element that meets a test of the element alone.

    Raises:
        Unusable: ``refused``, where the test is of another form.
    """
    if not isinstance(test, InSet | Like) or test.subject != element:
        raise refused
    if isinstance(test, Like):
        return _is_true(element_meeting(array, test), refused)
    if test.null or test.values.is_empty:
        raise refused
    parts = []
    for low, high in test.values.intervals:
        within = InSet(test.subject, ValueSet(((low, high),)))
        if within.values.points() is not None:
            contained = Const(low, test.subject.type)
            parts.append(_is_true(Call("array_contains", (array, contained), "boolean"), refused))
        elif low is None or high is None:
            end = Call("array_min" if low is None else "array_max", (array,), test.subject.type)
            parts.append(replace(within, subject=end))
        else:
            parts.append(_is_true(element_meeting(array, within), refused))
    return disjunction(parts)


def _is_true(call: Call | None, refused: Unusable) -> Node:
    if call is None:
        raise refused
    return InSet(call, ValueSet.point(1))


def _is_name(side: exp.Expr | None, name: str) -> bool:
    return isinstance(side, exp.Identifier) and side.name == name


def _some_common(node: exp.Anonymous) -> exp.Expr:
    """``arrays_overlap(xs, array(1, 2))``, the constant array on either side."""
    array, given = node.expressions
    if isinstance(array, exp.Array):
        array, given = given, array
    if not isinstance(given, exp.Array) or isinstance(array, exp.Array) or not given.expressions:
        raise Unusable("unsupported-expression", f"{node.sql('spark')} is followed for array(...) of constants only")
    return _contains_some(node, array, given.expressions)


def _contains_some(node: exp.Expr, array: exp.Expr, values: Sequence[exp.Expr]) -> exp.Expr:
    if len(values) > _MOST_ELEMENTS:
        raise Unusable("unsupported-expression", f"{node.sql('spark')[:80]} is followed for {_MOST_ELEMENTS} values")
    contained: list[exp.Expr] = [exp.ArrayContains(this=array.copy(), expression=value.copy()) for value in values]
    return reduce(lambda left, right: exp.Or(this=left, expression=right), contained)
