"""What a condition on an array or a map asks of its elements: literals of which some element of the row makes one TRUE.

So an index of all elements of a block's rows denies such conditions to the block. Each follows from the condition, so
nothing follows from an index of elements for ``NOT array_contains``, nor for what is TRUE of NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from layoutopt.model.predicates import Call, Const, Expr, InSet, Like
from layoutopt.model.predicates.nodes import GET_FIELD
from layoutopt.model.predicates.normal import EXISTS_LIKE, EXISTS_WITHIN, elements_of, keys_of, met_by_some, values_of
from layoutopt.model.predicates.patterns import extracted
from layoutopt.model.values import Key, ValueSet

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


# ----------------------------------------------------------------------------------------------------
# What follows for functions of a text from the text's being one of a few: their values, exactly as Spark has them.
#
# So an index of a piece of a text, or of the text in lower case, is asked where a filter names whole texts (Ta-Shma
# 2020,
# IV-D, formatted).

_MOST: Final = 64


def follows_for(function: Expr, literal: InSet) -> InSet | None:
    """What a literal of a few texts says of a function of the text; None where that is not known.

    >>> from layoutopt.model.predicates import Col
    >>> text = Col("s", "string")
    >>> part = Call("split_part", (text, Const("-", "string"), Const(2, "int")), "string")
    >>> follows_for(part, InSet(text, ValueSet.of(["a-b", "c"]))).values.points()
    ('', 'b')
    """
    if not isinstance(function, Call) or function.type != "string" or literal.null:
        return None
    texts = literal.values.points()
    if texts is None or not 0 < len(texts) <= _MOST or literal.subject.type != "string":
        return None
    values = [_value(function, literal.subject, text) for text in texts]
    known = [value for value in values if value is not None]
    return InSet(function, ValueSet.of(known)) if len(known) == len(values) else None


def _value(expr: Expr, of: Expr, text: Key) -> str | None:
    """An expression's value where another has this text; None where that is not known."""
    if expr == of:
        return text if isinstance(text, str) else None
    if not isinstance(expr, Call) or expr.type != "string" or not expr.args or not expr.columns:
        return None
    given, rest = _value(expr.args[0], of, text), [arg.value for arg in expr.args[1:] if isinstance(arg, Const)]
    compute = _FUNCTIONS.get(expr.fn)
    if compute is None or given is None or len(rest) < len(expr.args) - 1:
        return None
    return compute(given, rest)


def _in_case(change: Callable[[str], str]) -> Callable[[str, list[Key | None]], str | None]:
    return lambda text, rest: change(text) if text.isascii() and not rest else None


def _split_part(text: str, rest: list[Key | None]) -> str | None:
    separator, place = rest if len(rest) == 2 else (None, None)
    if not isinstance(separator, str) or not isinstance(place, int) or not place:
        return None
    parts = text.split(separator) if separator else [text]
    inside = -len(parts) <= place <= len(parts)
    return parts[place - 1 if place > 0 else place] if inside else ""


def _regexp_extract(text: str, rest: list[Key | None]) -> str | None:
    pattern, group = rest if len(rest) == 2 else (None, None)
    known = isinstance(pattern, str) and isinstance(group, int)
    return extracted(text, str(pattern), int(group)) if known and isinstance(group, int) else None


def _left(text: str, rest: list[Key | None]) -> str | None:
    return text[: max(rest[0], 0)] if len(rest) == 1 and isinstance(rest[0], int) else None


_FUNCTIONS: Final[Mapping[str, Callable[[str, list[Key | None]], str | None]]] = MappingProxyType(
    {
        "lower": _in_case(str.lower),
        "upper": _in_case(str.upper),
        "left": _left,
        "split_part": _split_part,
        "regexp_extract": _regexp_extract,
    }
)
