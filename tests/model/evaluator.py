"""Which rows a node of the model stands for, by its definition: one row at a time, without any skipping or algebra."""

from __future__ import annotations

from typing import Any

from layoutopt.model.predicates import And, Col, Comparison, Constant, Expr, InSet, Like, Node, Or, Predicate
from layoutopt.model.values import Key, to_key
from tests.model.conditions import Row


def holds(node: Node | Predicate, row: Row) -> bool:
    match node:
        case Constant(value):
            return value
        case Predicate(literals):
            return any(holds(literal, row) for literal in literals)
        case And(children):
            return all(holds(child, row) for child in children)
        case Or(children):
            return any(holds(child, row) for child in children)
        case InSet(subject, values, null):
            key = _key(subject, row)
            return null if key is None else _among(key, values.intervals)
        case Like(subject, pattern, negated):
            key = _key(subject, row)
            return key is not None and _matches(str(key), list(pattern)) != negated
        case Comparison(left, op, right):
            return _compares(_key(left, row), op, _key(right, row))


def _key(subject: Expr, row: Row) -> Key | None:
    assert isinstance(subject, Col)
    value = row[subject.name]
    return None if value is None else to_key(value, subject.type)


def _among(key: Any, intervals: Any) -> bool:
    return any((low is None or low <= key) and (high is None or key < high) for low, high in intervals)


def _matches(text: str, tokens: list[Any]) -> bool:
    if not tokens:
        return not text
    first, rest = tokens[0], tokens[1:]
    if isinstance(first, str):
        return text.startswith(first) and _matches(text[len(first) :], rest)
    if first.value == "_":
        return bool(text) and _matches(text[1:], rest)
    return any(_matches(text[start:], rest) for start in range(len(text) + 1))


def _compares(left: Any, op: str, right: Any) -> bool:
    if left is None or right is None:
        return False
    return bool({"=": left == right, "<>": left != right, "<": left < right, "<=": left <= right}[op])
