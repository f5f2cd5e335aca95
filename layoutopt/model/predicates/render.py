"""Filters as texts: Spark SQL rebuilt from the structure, and short descriptions for people.

The SQL fails on no row in any ANSI mode: functions are in their error-free forms and constants have the type of the
other side. It is TRUE for exactly the rows that the noun is TRUE for, else FALSE or NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import numpy as np

from layoutopt.model.predicates.nodes import (
    GET_FIELD,
    And,
    Call,
    Col,
    Comparison,
    Const,
    Constant,
    Expr,
    InSet,
    Like,
    Node,
    Opaque,
    Or,
    Predicate,
)
from layoutopt.model.predicates.normal import EXISTS_LIKE, EXISTS_WITHIN, get_element_literal
from layoutopt.model.predicates.patterns import like_text
from layoutopt.model.predicates.subsume import Filter
from layoutopt.model.types import quote_name, type_sql
from layoutopt.model.udf import called_name
from layoutopt.model.values import Interval, ValueSet, successor
from layoutopt.model.values.keys import Key, constant_sql, domain, float_key, key_to_float, short_constant, time_of

Noun = Expr | Node | Predicate | Filter
_FLOATS: Final = ("float", "double")


@dataclass(frozen=True)
class _Style:
    """How names, functions, types, fields and constants are written, and the most values of a list."""

    function: Callable[[str], str]
    type: Callable[[str], str]
    field: Callable[[str, str], str]
    identifier: Callable[[str], str]
    constant: Callable[[Key | None, str], str]
    longest_list: int | None = None


# Conditions that all hold.
_All: TypeAlias = Sequence[str]


# Fields stand in brackets: after a dot they could be columns of a table with the struct's name.
_SQL: Final = _Style(
    str, type_sql, lambda struct, name: f"{struct}[{constant_sql(name, 'string')}]", quote_name, constant_sql
)
_SHORT: Final = _Style(called_name, str, "{}.{}".format, str, short_constant, longest_list=5)


def to_sql(x: Noun) -> str:
    """Return the noun as Spark SQL, with quoted identifiers and escaped constants.

    >>> to_sql(InSet(Col("a", "int"), ValueSet.interval(1, 5)))
    '`a` BETWEEN 1 AND 4'
    """
    return _render(x, _SQL)


def describe(x: Noun) -> str:
    """Return a short text for people, not for machines.

    >>> describe(InSet(Col("a", "string"), ValueSet.point("x").complement()))
    "a <> 'x'"
    """
    return _render(x, _SHORT)


def describe_all(predicates: Sequence[Predicate]) -> str:
    """Return a short text for people of predicates that must all hold, such as a feature's.

    >>> a, b, c = (InSet(Col(name, "int"), ValueSet.point(1)) for name in "abc")
    >>> describe_all([Predicate((a,)), Predicate((b, c))])
    'a = 1 AND (b = 1 OR c = 1)'
    """
    if len(predicates) == 1:
        return describe(predicates[0])
    nodes = [predicate.node for predicate in predicates]
    return _join([_render(node, _SHORT) for node in nodes], "AND", nodes)


def _render(x: Noun, style: _Style) -> str:
    match x:
        case Col() | Const() | Call():
            return _render_expression(x, style)
        case Filter():
            return _render(x.root, style)
        case Predicate():
            return _render(x.node, style)
        case Constant():
            return str(x.value).upper()
        case And():
            return _join([_render(child, style) for child in x.children], "AND", x.children)
        case Or():
            return _join([_render(child, style) for child in x.children], "OR", x.children)
        case Comparison():
            return f"{_render_expression(x.left, style)} {x.op} {_render_expression(x.right, style)}"
        case Like():
            pattern = style.constant(like_text(x.pattern), "string")
            return f"{_render_expression(x.subject, style)} {'NOT ' * x.negated}LIKE {pattern}"
        case InSet():
            parts = _render_set(x, style)
            return " OR ".join(_join_all(part, bracketed=len(parts) > 1) for part in parts) or "FALSE"


def _join(texts: Sequence[str], connector: str, children: Sequence[Node]) -> str:
    bracketed = [
        f"({text})" if _is_compound(child, connector) else text for text, child in zip(texts, children, strict=True)
    ]
    return f" {connector} ".join(bracketed)


def _is_compound(node: Node, connector: str) -> bool:
    """Return whether the node's text needs brackets among others, also where AND binds more tightly anyway."""
    if isinstance(node, And | Or):
        return True
    parts = _render_set(node, _SHORT) if isinstance(node, InSet) else []
    return len(parts) > 1 or (connector == "OR" and any(len(part) > 1 for part in parts))


def _join_all(conditions: _All, bracketed: bool) -> str:
    text = " AND ".join(conditions)
    return f"({text})" if bracketed and len(conditions) > 1 else text


def _render_expression(x: Expr, style: _Style) -> str:
    if isinstance(x, Col):
        return style.identifier(x.name)
    if isinstance(x, Const):
        return style.constant(x.value, x.type)
    if isinstance(x, Opaque) and style is _SHORT:
        return x.text
    if x.fn == GET_FIELD:
        return style.field(_render_expression(x.args[0], style), str(cast(Const, x.args[1]).value))
    if x.fn in (EXISTS_LIKE, EXISTS_WITHIN) and len(x.args) > 1:
        test = get_element_literal(x, Col("x", x.args[1].type))
        if test is not None:
            return f"exists({_render_expression(x.args[0], style)}, x -> {_render(test, style)})"
    arguments = ", ".join(_render_expression(argument, style) for argument in x.args)
    if x.fn == "try_cast":
        return f"try_cast({arguments} AS {style.type(x.type)})"
    return f"{style.function(x.fn)}({arguments})"


def _render_set(x: InSet, style: _Style) -> list[_All]:
    """Return the set as an OR of ANDs; empty for the empty set."""
    subject, type = _render_expression(x.subject, style), x.subject.type
    if type == "date" and any(_is_far(key) for interval in x.values.intervals for key in interval):
        subject, type = f"{style.function('unix_date')}({subject})", "int"
    parts = _value_parts(subject, x.values, type, style)
    return [*parts, [f"{subject} IS NULL"]] if x.null else parts


def _is_far(day: Key | None) -> bool:
    """Return whether a date has no literal.

    It may lie beyond the timestamps too, where Spark takes ``try_cast(ts AS date) <= date`` for NULL (seen in 4.3:
    its optimiser compares the timestamp with the start of the next day).
    """
    return day is not None and time_of(cast(int, day), "date") is None


def _value_parts(subject: str, values: ValueSet, type: str, style: _Style) -> list[_All]:
    if values.is_empty:
        return []
    if values.is_all:
        return [[f"{subject} IS NOT NULL"]]
    if type == "boolean":
        return [[subject if values.contains(1) else f"NOT {subject}"]]
    holes = ValueSet.normalised(values.complement().intervals, type).points()
    if holes:
        return [_render_different(subject, holes, type, style)]
    points = [low for low, high in values.intervals if low is not None and high == successor(low)]
    ranges = [(low, high) for low, high in values.intervals if low is None or high != successor(low)]
    return [
        *_render_equal(subject, points, type, style),
        *(_render_range(subject, pair, type, style) for pair in ranges),
    ]


def _render_equal(subject: str, keys: Sequence[Key], type: str, style: _Style) -> list[_All]:
    # Spark looks long IN lists up by bits, which takes -0.0 and 0.0 as different: floats are compared one by one.
    if len(keys) < 2 or type in _FLOATS:
        return [[f"{subject} = {style.constant(key, type)}"] for key in keys]
    return [[f"{subject} IN ({_render_list(keys, type, style)})"]]


def _render_different(subject: str, keys: Sequence[Key], type: str, style: _Style) -> _All:
    if len(keys) < 2 or type in _FLOATS:
        return [f"{subject} <> {style.constant(key, type)}" for key in keys]
    return [f"{subject} NOT IN ({_render_list(keys, type, style)})"]


def _render_list(keys: Sequence[Key], type: str, style: _Style) -> str:
    shown = keys[: style.longest_list]
    texts = [style.constant(key, type) for key in shown]
    return ", ".join(texts) + (f", ... {len(keys) - len(shown)} more" if len(keys) > len(shown) else "")


def _render_range(subject: str, interval: Interval, type: str, style: _Style) -> _All:
    low, high = interval
    if isinstance(low, str) and low and ValueSet.prefix(low).intervals == (interval,):
        return [f"{subject} LIKE {style.constant(like_text((low,)) + '%', 'string')}"]
    first = None if low is None else _render_lower(low, type)
    last = None if high is None else _render_upper(high, type)
    if first and last and first[0] == ">=" and last[0] == "<=":
        return [f"{subject} BETWEEN {style.constant(first[1], type)} AND {style.constant(last[1], type)}"]
    return [f"{subject} {op} {style.constant(key, type)}" for op, key in filter(None, (first, last))]


def _render_lower(low: Key, type: str) -> tuple[str, Key]:
    """Return the bound as people write it: ``> 'a'`` where the lowest key is the one after 'a'."""
    if type in _FLOATS:
        before = _previous_float(cast(int, low), type)
        return (">", before) if before is not None and _is_shorter(before, cast(int, low)) else (">=", low)
    if isinstance(low, str | bytes) and low[-1:] in ("\0", b"\0"):
        return ">", low[:-1]
    return ">=", low


def _render_upper(high: Key, type: str) -> tuple[str, Key]:
    if type in _FLOATS:
        before = _previous_float(cast(int, high), type)
        return ("<=", before) if before is not None and _is_shorter(before, cast(int, high)) else ("<", high)
    if isinstance(high, int):
        return "<=", high - 1
    return ("<=", high[:-1]) if high[-1:] in ("\0", b"\0") else ("<", high)


def _previous_float(key: int, type: str) -> int | None:
    """Return the key of the next smaller number, in the type's own precision."""
    if key <= cast(int, domain(type)[0]):
        return None
    if type == "double" or key_to_float(key) != key_to_float(key):
        return key - 1
    with np.errstate(over="ignore"):  # numpy warns of the step down from infinity
        return float_key(float(np.nextafter(np.float32(key_to_float(key)), np.float32(-np.inf))))


def _is_shorter(key: int, other: int) -> bool:
    return len(repr(key_to_float(key))) < len(repr(key_to_float(other)))
