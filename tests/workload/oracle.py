"""A second opinion on filters: nodes evaluated row by row in plain Python, over keys."""

from __future__ import annotations

from collections.abc import Mapping

from layoutopt.model.predicates import And, Call, Comparison, Const, Constant, Expr, InSet, Like, Node, Or, matches
from layoutopt.model.values import Key

KeyRow = Mapping[str, Key | None]


def holds(node: Node, row: KeyRow) -> bool:
    """Whether a node is TRUE for a row of keys; of functions only ``coalesce`` is known."""
    match node:
        case Constant(value):
            return value
        case And(children):
            return all(holds(child, row) for child in children)
        case Or(children):
            return any(holds(child, row) for child in children)
        case InSet(subject, values, null):
            key = _key(subject, row)
            return null if key is None else values.contains(key)
        case Like(subject, pattern, negated):
            key = _key(subject, row)
            return isinstance(key, str) and matches(pattern, key) != negated
        case Comparison(left, op, right):
            return _compared(_key(left, row), op, _key(right, row))


def _key(expr: Expr, row: KeyRow) -> Key | None:
    if isinstance(expr, Const):
        return expr.value
    if isinstance(expr, Call):
        assert expr.fn == "coalesce", f"the oracle does not know {expr.fn}"
        keys = [_key(argument, row) for argument in expr.args]
        return next((key for key in keys if key is not None), None)
    return row[expr.name]


def _compared(left: Key | None, op: str, right: Key | None) -> bool:
    if left is None or right is None:
        return False
    if op in ("=", "<>"):
        return (left == right) == (op == "=")
    return left < right or (op == "<=" and left == right)  # type: ignore[operator]
