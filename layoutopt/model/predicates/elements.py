"""Elements of arrays, keys and values of maps, as what an index is of: of a row many values, or none.

``elements(xs)`` is no function of Spark's, and never the subject of a filter's literal: ``exists(xs, x -> x = 1)`` and
``exists(xs, x -> x = 2)`` may both be TRUE of a row, where no single value is 1 and 2. In filters stand calls that are
TRUE or not of an array: ``array_contains``, and :func:`some_element`'s, which Spark has as ``exists`` with a lambda.
"""

from __future__ import annotations

from typing import Final

from layoutopt.model.predicates.nodes import Call, Const, Expr, InSet, Like
from layoutopt.model.predicates.normal import like
from layoutopt.model.predicates.patterns import like_text, parse_like
from layoutopt.model.types import nested_parts
from layoutopt.model.values import ValueSet, key_kind

ELEMENTS: Final = "elements"
MAP_KEYS: Final = "map_keys"
MAP_VALUES: Final = "map_values"
EXISTS_LIKE: Final = "exists_like"
EXISTS_WITHIN: Final = "exists_within"


def elements_of(array: Expr) -> Call | None:
    """All elements of an array, of their own type; None of another type, or where elements have no order.

    >>> from layoutopt.model.predicates.nodes import Col
    >>> elements_of(Col("tags", "array<string>"))
    Call(fn='elements', args=(Col(name='tags', type='array<string>'),), type='string')
    """
    kind, parts = nested_parts(array.type)
    if kind != "array" or len(parts) != 1 or key_kind(parts[0]) is None:
        return None
    return Call(ELEMENTS, (array,), parts[0])


def array_of(expr: Expr) -> Expr | None:
    """The array whose elements an expression stands for; None of any other expression."""
    return expr.args[0] if isinstance(expr, Call) and expr.fn == ELEMENTS and len(expr.args) == 1 else None


def keys_of(of_map: Expr) -> Call | None:
    """The array of a map's keys; None of another type."""
    return _part_of_map(of_map, MAP_KEYS, 0)


def values_of(of_map: Expr) -> Call | None:
    """The array of a map's values, NULL among them; None of another type."""
    return _part_of_map(of_map, MAP_VALUES, 1)


def _part_of_map(of_map: Expr, function: str, place: int) -> Call | None:
    kind, parts = nested_parts(of_map.type)
    return Call(function, (of_map,), f"array<{parts[place]}>") if kind == "map" and len(parts) == 2 else None


def some_element(array: Expr, literal: InSet | Like) -> Call | None:
    """The call that is TRUE where some element meets a literal: a pattern, or a range with both ends; None of others.

    >>> from layoutopt.model.predicates.nodes import Col
    >>> xs, x = Col("xs", "array<int>"), Col("x", "int")
    >>> call = some_element(xs, InSet(x, ValueSet.interval(3, 6)))
    >>> call.fn, met_by_some(call, x) == InSet(x, ValueSet.interval(3, 6))
    ('exists_within', True)
    """
    if isinstance(literal, Like):
        pattern = Const(like_text(literal.pattern), "string")
        return None if literal.negated else Call(EXISTS_LIKE, (array, pattern), "boolean")
    ((low, high), *others) = literal.values.intervals or ((None, None),)
    if low is None or high is None or others or literal.null:
        return None
    # The end that is left out is a key too: of whole numbers one more than the last.
    ends = (Const(low, literal.subject.type), Const(high, literal.subject.type))
    return Call(EXISTS_WITHIN, (array, *ends), "boolean")


def met_by_some(call: Call, element: Expr) -> InSet | Like | None:
    """The literal of an element that a call of :func:`some_element` is about; None of another call."""
    keys = [arg.value for arg in call.args[1:] if isinstance(arg, Const) and arg.type == element.type]
    match call.fn, keys:
        case "exists_like", [str() as text] if element.type == "string":
            found = like(element, parse_like(text))
            return found if isinstance(found, InSet | Like) else None
        case "exists_within", [low, high] if low is not None and high is not None:
            return InSet(element, ValueSet.interval(low, high))
    return None
