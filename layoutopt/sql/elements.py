"""Conditions on array elements, rewritten without lambdas: about the largest, the smallest or a contained element.

Spark's functions for contained elements agree on TRUE, FALSE and NULL: ``exists(xs, x -> x = 1)``,
``array_contains(xs, 1)`` and ``arrays_overlap(xs, array(1))`` are NULL if there is a NULL and no 1. Unsupported
conditions raise :class:`Unusable`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Final

from sqlglot import exp

from layoutopt.model.predicates import Call, Col, Const, Expr, InSet, Like, Node, Or, disjunction
from layoutopt.model.predicates.normal import make_exists_call as exists_element
from layoutopt.model.schema import Column
from layoutopt.model.types import INTEGER_BITS, nested_parts
from layoutopt.model.values import ValueSet
from layoutopt.sql.expressions import read_subject
from layoutopt.sql.operands import Context
from layoutopt.sql.problems import Unusable

_MIRRORED: Final[dict[type[exp.Expr], type[exp.Expr]]] = {
    exp.EQ: exp.EQ, exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE
}  # fmt: skip
_MAX_ELEMENTS: Final = 64


def without_lambda(node: exp.Expr, truth: bool) -> exp.Expr | None:
    """Return a condition that is TRUE (with ``truth=False``, FALSE) for the same rows; None for other conditions."""
    if isinstance(node, exp.Exists) and isinstance(node.expression, exp.Lambda):
        return _rewrite_exists(node, node.expression, truth)
    if isinstance(node, exp.Anonymous) and node.name.casefold() == "arrays_overlap" and len(node.expressions) == 2:
        return _rewrite_overlap(node)
    return None


def _rewrite_exists(node: exp.Expr, test: exp.Lambda, truth: bool) -> exp.Expr | None:
    """Rewrite ``exists(xs, x -> x > 5)`` to a condition on the largest or smallest element, or to containment."""
    body, names = test.this.unnest(), [variable.name for variable in test.expressions]
    if len(names) == 1 and isinstance(body, exp.In) and _is_name(body.this, names[0]) and body.expressions:
        return _contains_any(node, node.this, body.expressions)
    kind, first, second = type(body), body.args.get("this"), body.args.get("expression")
    if kind in _MIRRORED and isinstance(second, exp.Identifier):
        kind, first, second = _MIRRORED[kind], second, first
    # "The largest element is at most 5" is TRUE for more rows than "no element may be larger".
    is_supported = kind in _MIRRORED and (truth or kind is exp.EQ)
    if not is_supported or len(names) != 1 or not _is_name(first, names[0]) or isinstance(second, exp.Identifier):
        return None
    assert second is not None, "a comparison has two sides"
    if kind is exp.EQ:
        return _contains_any(node, node.this, [second])
    end = (exp.ArrayMax if kind in (exp.GT, exp.GTE) else exp.ArrayMin)(this=node.this.copy())
    comparison: exp.Expr = kind(this=end, expression=second.copy())
    return comparison


def some_element_node(node: exp.Expr, truth: bool, context: Context, read: Callable[[exp.Expr, Context], Node]) -> Node:
    """Return the rows for which ``exists(xs, x -> x LIKE 'a%' OR x BETWEEN 'k' AND 'm')`` is TRUE.

    Rows for which it is FALSE are not supported. ``read`` translates a condition exactly, or raises.
    """
    test, unsupported = node.expression, Unusable("unsupported-expression", f"{node.sql('spark')} is not supported")
    array = read_subject(node.this, context).expr
    kind, parts = nested_parts(array.type)
    if not truth or len(test.expressions) != 1 or kind != "array" or not is_supported_element(*parts):
        raise unsupported
    element = Column(test.expressions[0].name, parts[0])

    def resolve(column: exp.Column) -> tuple[Column, tuple[str, ...]]:
        if column.name != element.name or column.table:
            raise unsupported
        return element, ()

    def to_column(part: exp.Expr) -> exp.Expr:
        # The parser leaves the lambda's variable as a bare name.
        is_variable = _is_name(part, element.name) and not isinstance(part.parent, exp.Column)
        return exp.column(part.copy()) if is_variable else part

    body = read(test.this.copy().transform(to_column), replace(context, resolve=resolve, known={}))
    tests = body.children if isinstance(body, Or) else [body]
    return disjunction([element_condition(array, part, Col(element.name, parts[0]), unsupported) for part in tests])


def is_supported_element(type: str) -> bool:
    """Return whether patterns and ranges of elements of a type are supported."""
    return type in ("string", "date", "timestamp", "timestamp_ntz", *INTEGER_BITS)


def element_condition(array: Expr, test: Node, element: Expr, unsupported: Unusable) -> Node:
    """Return the rows with an element that meets a test of the element alone."""
    if not isinstance(test, InSet | Like) or test.subject != element:
        raise unsupported
    if isinstance(test, Like):
        return _is_true(exists_element(array, test), unsupported)
    if test.null or test.values.is_empty:
        raise unsupported
    parts = []
    for low, high in test.values.intervals:
        literal = InSet(test.subject, ValueSet(((low, high),)))
        if literal.values.points() is not None:
            contains = Call("array_contains", (array, Const(low, test.subject.type)), "boolean")
            parts.append(_is_true(contains, unsupported))
        elif low is None or high is None:
            end = Call("array_min" if low is None else "array_max", (array,), test.subject.type)
            parts.append(replace(literal, subject=end))
        else:
            parts.append(_is_true(exists_element(array, literal), unsupported))
    return disjunction(parts)


def _is_true(call: Call | None, unsupported: Unusable) -> Node:
    if call is None:
        raise unsupported
    return InSet(call, ValueSet.point(1))


def _is_name(side: exp.Expr | None, name: str) -> bool:
    return isinstance(side, exp.Identifier) and side.name == name


def _rewrite_overlap(node: exp.Anonymous) -> exp.Expr:
    """Rewrite ``arrays_overlap(xs, array(1, 2))``, with the constant array on either side, to containment."""
    array, constants = node.expressions
    if isinstance(array, exp.Array):
        array, constants = constants, array
    if not isinstance(constants, exp.Array) or isinstance(array, exp.Array) or not constants.expressions:
        raise Unusable("unsupported-expression", f"{node.sql('spark')} is supported for array(...) of constants only")
    return _contains_any(node, array, constants.expressions)


def _contains_any(node: exp.Expr, array: exp.Expr, values: Sequence[exp.Expr]) -> exp.Expr:
    if len(values) > _MAX_ELEMENTS:
        raise Unusable(
            "unsupported-expression",
            f"{node.sql('spark')[:80]} has {len(values)} values, at most {_MAX_ELEMENTS} allowed",
        )
    contains: list[exp.Expr] = [exp.ArrayContains(this=array.copy(), expression=value.copy()) for value in values]
    return reduce(lambda left, right: exp.Or(this=left, expression=right), contains)
