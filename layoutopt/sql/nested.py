"""Parts of nested values in conditions: fields of structs, keys and values of maps, elements of arrays.

Each is a call that fails on no row: ``get_field`` (of a struct and a field's name), ``try_element_at`` and ``get``,
which give NULL where a map lacks the key or an array the place. Spark without ANSI mode gives NULL there too; in ANSI
mode it may fail, and then the condition is TRUE for no such row either.
"""

from __future__ import annotations

from typing import Final

from layoutopt.model.predicates import Call, Const, Expr
from layoutopt.model.predicates.elements import keys_of, values_of
from layoutopt.model.predicates.nodes import GET_FIELD
from layoutopt.model.types import INTEGER_BITS, nested_parts
from layoutopt.sql.calls.subjects import const
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types.coerce import TypedConstant
from layoutopt.sql.types.rules import is_integer

_COMPARED: Final = frozenset({"boolean", "date", "timestamp", "timestamp_ntz", "float", "double"})
"""Types of elements that are compared with constants of the very same type, beside texts and whole numbers."""


def field_of(struct: Expr, name: str, text: str) -> Call:
    """A field of a struct, found as Spark finds it, without regard to case.

    Raises:
        Unusable: the expression is no struct, or has not just one field of that name.
    """
    kind, inner = _parts(struct.type, text)
    fields = [part.partition(":") for part in inner] if kind == "struct" else []
    found = [(field, type) for field, _, type in fields if field.lower() == name.lower()]
    if len(found) != 1:
        raise Unusable("unsupported-expression", f"{text} is not surely one field of a struct")
    ((field, type),) = found
    return Call(GET_FIELD, (struct, Const(field, "string")), comparable(type, text))


def element_of(container: Expr, key: TypedConstant, from_one: bool, text: str) -> Call:
    """A map's value of a key, an array's element at a place (from 0, or ``from_one``), or a struct's field by its name.

    Raises:
        Unusable: the expression is none of these, or the key has another type.
    """
    kind, inner = _parts(container.type, text)
    if kind == "struct" and isinstance(key.value, str) and not from_one:
        return field_of(container, key.value, text)
    if kind == "map":
        return Call("try_element_at", (container, _constant(key, inner[0], text)), comparable(inner[1], text))
    if kind == "array" and is_integer(key.type) and not (from_one and key.value == 0):
        place = _constant(key, "int", text)
        return Call("try_element_at" if from_one else "get", (container, place), comparable(inner[0], text))
    raise Unusable("unsupported-expression", f"{text} is an element of {container.type} by a {key.type}")


def contains(array: Expr, value: TypedConstant, text: str) -> Call:
    """Whether an array has an element; NULL where it is NULL, or has a NULL and not the element.

    Raises:
        Unusable: the expression is no array, or its elements are of another type than the value.
    """
    kind, inner = _parts(array.type, text)
    if kind != "array":
        raise Unusable("unsupported-expression", f"{text} is asked of {array.type}, which is no array")
    same_type = value.type == inner[0] and value.type in _COMPARED
    return Call("array_contains", (array, const(value) if same_type else _constant(value, inner[0], text)), "boolean")


def part_of_map(of_map: Expr, values: bool, text: str) -> Call:
    """A map's keys or its values, as an array; NULL where it is NULL.

    Raises:
        Unusable: the expression is no map, or its keys or values do not compare byte by byte.
    """
    found = values_of(of_map) if values else keys_of(of_map)
    if found is None:
        raise Unusable("unsupported-expression", f"{text} is asked of {of_map.type}, which is no map")
    comparable(nested_parts(found.type)[1][0], text)
    return found


def comparable(type: str, text: str) -> str:
    """The type of a part, if values of it compare byte by byte or are parts of others.

    Raises:
        Unusable: it is CHAR, or has a collation.
    """
    if type.startswith(("char", "varchar")) or "collate" in type:
        raise Unusable("unordered-type", f"{text} is {type}, which is not compared byte by byte")
    return type


def _parts(type: str, text: str) -> tuple[str, list[str]]:
    kind, inner = nested_parts(type)
    if not inner:
        raise Unusable("unsupported-expression", f"{text} is a part of {type}, which has none")
    return kind, inner


def _constant(given: TypedConstant, type: str, text: str) -> Const:
    """A key or an element of just that type: a text, or a whole number that fits."""
    value = given.value
    if type == "string" and given.type == "string" and isinstance(value, str):
        return Const(value, "string")
    if is_integer(type) and is_integer(given.type) and isinstance(value, int) and _fits(value, type):
        return Const(value, type)
    raise Unusable(
        "coercion",
        f"{text} compares {type} with {given.type}; only texts, whole numbers and values of the very type are",
    )


def _fits(value: int, type: str) -> bool:
    half = 1 << (INTEGER_BITS[type] - 1)
    return -half <= value < half
