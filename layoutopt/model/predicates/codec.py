"""Filters as JSON and back, exactly: data, never code.

Each noun is an object whose one tag says what it is: ``{"col": "a", "type": "int"}``, ``{"in": {"col": ...}, "values":
[[1, 5]], "null": false}``, ``{"and": [...]}``. Keys are numbers or strings, bytes ``{"base64": "..."}``. Reading checks
the shapes here, and names and types in the constructors of the nouns.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Final, TypeVar, cast

from layoutopt.errors import PlanError
from layoutopt.model.predicates.cnf import Filter
from layoutopt.model.predicates.like import like_text, parse_like
from layoutopt.model.predicates.nodes import (
    And,
    Call,
    Col,
    Comparison,
    Const,
    Constant,
    Expr,
    InSet,
    Like,
    Literal,
    Node,
    Or,
    Predicate,
)
from layoutopt.model.types import type_name
from layoutopt.model.values import Interval, ValueSet
from layoutopt.model.values.keys import Key, key_kind

Json = dict[str, object]
Noun = Expr | Node | Predicate | Filter
Kind = TypeVar("Kind")

_EXPRESSIONS: Final = (Col, Const, Call)
_LITERALS: Final = (InSet, Like, Comparison)
_NODES: Final = (And, Or, Constant, *_LITERALS)
_DEEPEST: Final = 200
"""Deeper documents are refused: no filter is so deep, and reading one must not exhaust the stack."""
_LARGEST_BOUND: Final = 1024
"""Of clauses and literals: what a normal form costs grows with its square."""


def to_json(x: Noun) -> Json:
    """A JSON value that :func:`from_json` reads back as an equal noun.

    >>> to_json(InSet(Col("a", "int"), ValueSet.interval(1, 5)))
    {'in': {'col': 'a', 'type': 'int'}, 'values': [[1, 5]], 'null': False}
    """
    match x:
        case Col():
            return {"col": x.name, "type": x.type}
        case Const():
            return {"const": _key_to_json(x.value), "type": x.type}
        case Call():
            return {"call": x.fn, "args": [to_json(argument) for argument in x.args], "type": x.type}
        case Filter():
            return {"filter": to_json(x.root), "max_clauses": x.max_clauses, "max_literals": x.max_literals}
        case Predicate():
            return {"predicate": [to_json(literal) for literal in x.literals]}
        case _:
            return _node_to_json(x)


def _node_to_json(x: Node) -> Json:
    match x:
        case InSet():
            values = [[_key_to_json(low), _key_to_json(high)] for low, high in x.values.intervals]
            return {"in": to_json(x.subject), "values": values, "null": x.null}
        case Like():
            return {"like": to_json(x.subject), "pattern": like_text(x.pattern), "negated": x.negated}
        case Comparison():
            return {"compare": x.op, "left": to_json(x.left), "right": to_json(x.right)}
        case And():
            return {"and": [to_json(child) for child in x.children]}
        case Or():
            return {"or": [to_json(child) for child in x.children]}
        case Constant():
            return {"constant": x.value}


def from_json(value: object) -> Noun:
    """The noun that :func:`to_json` wrote.

    Raises:
        PlanError: the value is not what :func:`to_json` writes.
    """
    return read_as(value, (*_EXPRESSIONS, *_NODES, Predicate, Filter))


def node_from_json(value: object) -> Node:
    """As :func:`from_json`, for a tree."""
    return cast(Node, read_as(value, _NODES))


def predicate_from_json(value: object) -> Predicate:
    """As :func:`from_json`, for a predicate."""
    return cast(Predicate, read_as(value, (Predicate,)))


def filter_from_json(value: object) -> Filter:
    """As :func:`from_json`, for a filter."""
    return cast(Filter, read_as(value, (Filter,)))


def read_as(value: object, kinds: tuple[type, ...]) -> Noun:
    """As :func:`from_json`, for a noun of one of these kinds.

    Raises:
        PlanError: the value is no such noun's JSON.
    """
    try:
        return _read(value, kinds, 0)
    except (ValueError, TypeError, LookupError) as error:
        raise PlanError(f"a filter's JSON is damaged: {error}; write the document again") from error


def _read(value: object, kinds: tuple[type, ...], depth: int) -> Noun:
    if depth > _DEEPEST:
        raise ValueError(f"it is more than {_DEEPEST} levels deep")
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r:.80} stands where an object is due")
    for tag, reader in _READERS.items():
        if tag in value:
            noun = reader(value, depth + 1)
            if not isinstance(noun, kinds):
                raise ValueError(f"a {type(noun).__name__} stands where another noun is due")
            return noun
    raise ValueError(f"an object with the names {', '.join(map(str, value))} is no noun")


def _typed(value: object, kind: type[Kind]) -> Kind:
    if type(value) is not kind:
        raise ValueError(f"{value!r:.80} stands where a {kind.__name__} is due")
    return value


def _type(value: Mapping[str, object]) -> str:
    return type_name(_typed(value["type"], str))


def _expr(value: object, depth: int) -> Expr:
    return cast(Expr, _read(value, _EXPRESSIONS, depth))


def _nodes(value: object, depth: int) -> tuple[Node, ...]:
    return tuple(cast(Node, _read(child, _NODES, depth)) for child in _typed(value, list))


def _read_const(value: Mapping[str, object], depth: int) -> Const:
    type = _type(value)
    return Const(_key_from_json(value["const"], type), type)


def _read_call(value: Mapping[str, object], depth: int) -> Call:
    args = tuple(_expr(argument, depth) for argument in _typed(value["args"], list))
    return Call(_typed(value["call"], str), args, _type(value))


def _read_set(value: Mapping[str, object], depth: int) -> InSet:
    subject = _expr(value["in"], depth)
    intervals: list[Interval] = []
    for low, high in _typed(value["values"], list):
        intervals.append((_key_from_json(low, subject.type), _key_from_json(high, subject.type)))
    return InSet(subject, ValueSet(tuple(intervals)), _typed(value["null"], bool))


def _read_like(value: Mapping[str, object], depth: int) -> Like:
    pattern = parse_like(_typed(value["pattern"], str))
    return Like(_expr(value["like"], depth), pattern, _typed(value["negated"], bool))


def _read_filter(value: Mapping[str, object], depth: int) -> Filter:
    root = cast(Node, _read(value["filter"], _NODES, depth))
    bounds = _typed(value["max_clauses"], int), _typed(value["max_literals"], int)
    if not all(0 < bound <= _LARGEST_BOUND for bound in bounds):
        raise ValueError(f"a filter has the bounds {bounds[0]:.3g}, {bounds[1]:.3g}; give 1 to {_LARGEST_BOUND}")
    return Filter(root, *bounds)


def _read_predicate(value: Mapping[str, object], depth: int) -> Predicate:
    parts = _typed(value["predicate"], list)
    return Predicate(tuple(cast(Literal, _read(part, _LITERALS, depth)) for part in parts))


_READERS: Final[dict[str, Callable[[Mapping[str, object], int], Noun]]] = {
    "col": lambda value, depth: Col(_typed(value["col"], str), _type(value)),
    "const": _read_const,
    "call": _read_call,
    "in": _read_set,
    "like": _read_like,
    "compare": lambda value, depth: Comparison(
        _expr(value["left"], depth), _typed(value["compare"], str), _expr(value["right"], depth)
    ),
    "and": lambda value, depth: And(_nodes(value["and"], depth)),
    "or": lambda value, depth: Or(_nodes(value["or"], depth)),
    "constant": lambda value, depth: Constant(_typed(value["constant"], bool)),
    "predicate": _read_predicate,
    "filter": _read_filter,
}


def _key_to_json(key: Key | None) -> object:
    return {"base64": base64.b64encode(key).decode("ascii")} if isinstance(key, bytes) else key


def _key_from_json(value: object, type: str) -> Key | None:
    """A bound or a constant of a type; a bound may lie one past the type's domain."""
    kind = key_kind(type)
    if value is None:
        return None
    if kind == "bytes" and isinstance(value, Mapping):
        return base64.b64decode(_typed(value["base64"], str), validate=True)
    if (kind == "int" and _is_int(value)) or (kind == "str" and isinstance(value, str)):
        return cast(Key, value)
    raise ValueError(f"{value!r:.80} is no key of type {type!r}")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
