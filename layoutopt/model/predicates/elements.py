"""Elements of arrays, keys and values of maps, as what an index is of: of a row many values, or none.

``elements(xs)`` is no function of Spark's, and never the subject of a filter's literal: ``exists(xs, x -> x = 1)`` and
``exists(xs, x -> x = 2)`` may both be TRUE of a row, where no single value is 1 and 2.
"""

from __future__ import annotations

from typing import Final

from layoutopt.model.predicates.nodes import Call, Expr
from layoutopt.model.types import nested_parts
from layoutopt.model.values import key_kind

ELEMENTS: Final = "elements"
MAP_KEYS: Final = "map_keys"
MAP_VALUES: Final = "map_values"


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
