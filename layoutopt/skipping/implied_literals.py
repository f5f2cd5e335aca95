"""Literals that follow from other literals: about elements of arrays and maps, and about functions of texts.

An index of all elements of a block's rows can thus reject conditions on the array, and an index of ``lower(s)`` or of a
part of ``s`` conditions on whole texts (Ta-Shma 2020, IV-D, formatted). Each literal follows from the condition, so
nothing follows from ``NOT array_contains`` or from conditions that NULL makes TRUE.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from layoutopt.functions.registry import FUNCTIONS
from layoutopt.model.predicates import Call, Const, Expr, InSet, Like
from layoutopt.model.predicates.nodes import GET_FIELD
from layoutopt.model.predicates.normal import (
    EXISTS_LIKE,
    EXISTS_WITHIN,
    elements_of,
    get_element_literal,
    keys_of,
    values_of,
)
from layoutopt.model.values import Key, ValueSet

# Functions that return an element of their first argument, an array, or NULL.
_ELEMENT_FUNCTIONS: Final = frozenset({"get", "try_element_at", "array_max", "array_min"})
# Functions that return whether an array has some element.
_EXISTENCE_FUNCTIONS: Final = frozenset({"array_contains", EXISTS_LIKE, EXISTS_WITHIN})
# Functions that return NULL if their first argument is NULL.
_NULL_FUNCTIONS: Final = frozenset({*_ELEMENT_FUNCTIONS, *_EXISTENCE_FUNCTIONS, GET_FIELD, "try_cast"})
_MAX_TEXTS: Final = 64


def element_literals(literal: InSet | Like) -> tuple[InSet | Like, ...]:
    """Return the literals about elements that follow from a literal.

    In every row that makes the literal TRUE, some element of each returned literal's subject (:func:`elements_of`)
    makes that one TRUE.

    >>> from layoutopt.model.predicates import Col, describe
    >>> holds = Call("array_contains", (Col("tags", "array<string>"), Const("new", "string")), "boolean")
    >>> [describe(implied) for implied in element_literals(InSet(holds, ValueSet.point(1)))]
    ["elements(tags) = 'new'"]
    >>> element_literals(InSet(holds, ValueSet.point(0)))
    ()
    >>> value = Call("try_element_at", (Col("m", "map<string,int>"), Const("k", "string")), "int")
    >>> [describe(implied) for implied in element_literals(InSet(value, ValueSet.point(7)))]
    ["elements(map_keys(m)) = 'k'", 'elements(map_values(m)) = 7']
    """
    if isinstance(literal, InSet) and literal.null:
        return ()
    return (*_key_literals(literal.subject), *_value_literals(literal))


def _value_literals(literal: InSet | Like) -> Iterator[InSet | Like]:
    """Yield the literals about elements of the array, or values of the map, that the subject's function reads."""
    subject = literal.subject
    if not isinstance(subject, Call) or not subject.args:
        return
    container = subject.args[0]
    if subject.fn in _EXISTENCE_FUNCTIONS:
        yield from _existence_literals(literal, container, subject)
    elif subject.fn in _ELEMENT_FUNCTIONS:
        elements = elements_of(values_of(container) or container)
        if elements is not None and elements.type == subject.type:
            yield replace(literal, subject=elements)


def _existence_literals(literal: InSet | Like, array: Expr, call: Call) -> Iterator[InSet | Like]:
    elements = elements_of(array)
    if elements is None or not isinstance(literal, InSet) or literal.values.contains(0):
        return  # rows without the element may make it TRUE
    if call.fn != "array_contains":
        test = get_element_literal(call, elements)
        yield from () if test is None else (test,)
        return
    value = call.args[1] if len(call.args) == 2 else None
    if isinstance(value, Const) and value.value is not None and value.type == elements.type:
        yield InSet(elements, ValueSet.point(value.value))


def _key_literals(subject: Expr) -> Iterator[InSet]:
    """Yield the keys that maps must have: without its key a value is NULL, and so is every part of it."""
    while isinstance(subject, Call) and subject.fn in _NULL_FUNCTIONS and subject.args:
        keys = keys_of(subject.args[0]) if subject.fn == "try_element_at" else None
        elements = None if keys is None else elements_of(keys)
        key = subject.args[1] if len(subject.args) == 2 else None
        if elements is not None and isinstance(key, Const) and key.value is not None and key.type == elements.type:
            yield InSet(elements, ValueSet.point(key.value))
        subject = subject.args[0]


def derive_function_literal(function: Expr, literal: InSet) -> InSet | None:
    """Return the literal that a list of texts implies for a function of the text; None if unknown.

    >>> from layoutopt.model.predicates import Col
    >>> text = Col("s", "string")
    >>> part = Call("split_part", (text, Const("-", "string"), Const(2, "int")), "string")
    >>> derive_function_literal(part, InSet(text, ValueSet.of(["a-b", "c"]))).values.points()
    ('', 'b')
    """
    if not isinstance(function, Call) or function.type != "string" or literal.null:
        return None
    texts = literal.values.points()
    if texts is None or not 0 < len(texts) <= _MAX_TEXTS or literal.subject.type != "string":
        return None
    values = [_evaluate(function, literal.subject, text) for text in texts]
    known = [value for value in values if value is not None]
    return InSet(function, ValueSet.of(known)) if len(known) == len(values) else None


def _evaluate(expr: Expr, subject: Expr, text: Key) -> str | None:
    """Return an expression's value if the subject has this text, exactly as Spark computes it; None if unknown."""
    if expr == subject:
        return text if isinstance(text, str) else None
    if not isinstance(expr, Call) or expr.type != "string" or not expr.args or not expr.columns:
        return None
    first, rest = _evaluate(expr.args[0], subject, text), [arg.value for arg in expr.args[1:] if isinstance(arg, Const)]
    function = FUNCTIONS.get(expr.fn)
    if function is None or first is None or len(rest) < len(expr.args) - 1:
        return None
    value = function.evaluate([first, *rest])
    return value if isinstance(value, str) else None
