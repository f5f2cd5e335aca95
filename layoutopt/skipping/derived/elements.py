"""What a condition on an array or a map asks of its elements: literals of which some element of the row makes one TRUE.

So an index of all elements of a block's rows denies such conditions to the block. Each follows from the condition, so
nothing follows from an index of elements for ``NOT array_contains``, nor for what is TRUE of NULL.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from layoutopt.model.predicates import Call, Const, Expr, InSet, Like
from layoutopt.model.predicates.elements import (
    EXISTS_LIKE,
    EXISTS_WITHIN,
    elements_of,
    keys_of,
    met_by_some,
    values_of,
)
from layoutopt.model.predicates.nodes import GET_FIELD
from layoutopt.model.values import ValueSet

_ONE_OF: Final = frozenset({"get", "try_element_at", "array_max", "array_min"})
"""Functions that give an element of the array that they are called with first, or NULL."""
_SOME: Final = frozenset({"array_contains", EXISTS_LIKE, EXISTS_WITHIN})
"""Functions that say whether an array has some element."""
_PARTS: Final = frozenset({*_ONE_OF, *_SOME, GET_FIELD, "try_cast"})
"""Functions that give NULL where their first argument is NULL."""


def literals_of_elements(literal: InSet | Like) -> tuple[InSet | Like, ...]:
    """The literals of elements that follow from a literal, which NULL does not make TRUE.

    Of every row that makes the literal TRUE some element of each literal's subject (:func:`elements_of`) makes it TRUE.

    >>> from layoutopt.model.predicates import Col, describe
    >>> holds = Call("array_contains", (Col("tags", "array<string>"), Const("new", "string")), "boolean")
    >>> [describe(each) for each in literals_of_elements(InSet(holds, ValueSet.point(1)))]
    ["elements(tags) = 'new'"]
    >>> literals_of_elements(InSet(holds, ValueSet.point(0)))
    ()
    >>> value = Call("try_element_at", (Col("m", "map<string,int>"), Const("k", "string")), "int")
    >>> [describe(each) for each in literals_of_elements(InSet(value, ValueSet.point(7)))]
    ["elements(map_keys(m)) = 'k'", 'elements(map_values(m)) = 7']
    """
    if isinstance(literal, InSet) and literal.null:
        return ()
    return (*_of_keys(literal.subject), *_of_values(literal))


def _of_values(literal: InSet | Like) -> Iterator[InSet | Like]:
    """What the literal says of the elements of the array, or the values of the map, that its subject is called with."""
    subject = literal.subject
    if not isinstance(subject, Call) or not subject.args:
        return
    container = subject.args[0]
    if subject.fn in _SOME:
        yield from _some(literal, container, subject)
    elif subject.fn in _ONE_OF:
        elements = elements_of(values_of(container) or container)
        if elements is not None and elements.type == subject.type:
            yield replace(literal, subject=elements)


def _some(literal: InSet | Like, array: Expr, call: Call) -> Iterator[InSet | Like]:
    elements = elements_of(array)
    if elements is None or not isinstance(literal, InSet) or literal.values.contains(0):
        return  # FALSE makes it TRUE, of rows without the element
    if call.fn != "array_contains":
        met = met_by_some(call, elements)
        yield from () if met is None else (met,)
        return
    value = call.args[1] if len(call.args) == 2 else None
    if isinstance(value, Const) and value.value is not None and value.type == elements.type:
        yield InSet(elements, ValueSet.point(value.value))


def _of_keys(subject: Expr) -> Iterator[InSet]:
    """A map lacks no key that it is asked for: its value would be NULL, and so would every part of that."""
    while isinstance(subject, Call) and subject.fn in _PARTS and subject.args:
        keys = keys_of(subject.args[0]) if subject.fn == "try_element_at" else None
        elements = None if keys is None else elements_of(keys)
        key = subject.args[1] if len(subject.args) == 2 else None
        if elements is not None and isinstance(key, Const) and key.value is not None and key.type == elements.type:
            yield InSet(elements, ValueSet.point(key.value))
        subject = subject.args[0]
