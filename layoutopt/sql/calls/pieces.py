"""Pieces of texts and of arrays: ``split_part``, ``regexp_extract``, ``get_json_object``, ``array_max``."""

from __future__ import annotations

import re
from typing import Final

from sqlglot import exp

from layoutopt.model.predicates import Call, Const
from layoutopt.model.predicates.templates import template_groups
from layoutopt.model.types import INTEGER_BITS, VARIANT, decimal_digits, nested_parts
from layoutopt.model.values import key_kind
from layoutopt.sql.calls.subjects import Context, Reader, Subject, constant_of, typed
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types.coerce import TypedConstant

_KEY: Final = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)
_VARIANT_PATH: Final = re.compile(r"\$(?:\.[A-Za-z_]\w{0,63}|\[\d{1,9}\]){0,50}", re.ASCII)
_OF_VARIANTS: Final = frozenset({*INTEGER_BITS, "boolean", "float", "double", "string", "date"})
_SYNONYMS: Final = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}


def split_part(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """``split_part(text, ',', 2)``: NULL only for NULL, and '' where there are fewer parts."""
    place = _whole(read, node.args["part_index"])
    if place == 0:
        raise Unusable("can-fail", f"{node.sql('spark')} asks for part 0, which Spark refuses")
    return _piece("split_part", node, "delimiter", place, context, read)


def substring_index(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """``substring_index(text, '.', 2)``."""
    return _piece("substring_index", node, "delimiter", _whole(read, node.args["count"]), context, read)


def regexp_extract(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """``regexp_extract(text, 'a(.)', 1)`` by a template: '' where it is not found."""
    if any(node.args.get(name) for name in ("position", "occurrence", "parameters")):
        raise Unusable("unsupported-function", f"{node.sql('spark')} has an argument that is not followed here")
    pattern = str(constant_of(read(node.expression), str, node.sql("spark")))
    group = _whole(read, node.args["group"]) if node.args.get("group") is not None else 1
    groups = template_groups(pattern)
    if groups is None or not 0 <= group <= groups:
        raise Unusable("can-fail", f"{pattern!r} may not be a pattern that Java takes, with a group {group}")
    return _piece("regexp_extract", node, "expression", group, context, read)


def get_json_object(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """``get_json_object(text, '$.a.b[0]')``, of plain keys and places: NULL where the text is no JSON or has none."""
    path = node.expression
    parts = path.expressions if isinstance(path, exp.JSONPath) else []
    written = "".join(map(_step, parts[1:]))
    if not parts or not isinstance(parts[0], exp.JSONPathRoot) or not written:
        raise Unusable("unsupported-expression", f"{node.sql('spark')} has a path that is not followed here")
    text = typed(read(node.this), "string", context)
    return Subject(Call("get_json_object", (text, Const(f"${written}", "string")), "string"), "string")


def try_variant_get(node: exp.Expr, context: Context, read: Reader) -> Subject:
    """``try_variant_get(v, '$.a.b[0]', 'int')``, of plain keys and places: NULL where there is none that can be cast.

    ``variant_get`` is not followed: it fails on values of other types.
    """
    arguments = node.expressions
    if len(arguments) != 3:
        raise Unusable("unsupported-expression", f"{node.sql('spark')} has other arguments than are followed here")
    variant = read(arguments[0])
    if isinstance(variant, TypedConstant) or variant.type != VARIANT:
        raise Unusable("coercion", f"{node.sql('spark')} is asked of {variant.type}")
    path, wanted = (str(constant_of(read(each), str, node.sql("spark"))) for each in arguments[1:])
    type = _SYNONYMS.get(wanted.strip().lower(), wanted.strip().lower())
    if not _VARIANT_PATH.fullmatch(path) or not (type in _OF_VARIANTS or decimal_digits(type)):
        raise Unusable("unsupported-expression", f"{node.sql('spark')} has a path or type that is not followed here")
    return Subject(Call("try_variant_get", (variant.expr, Const(path, "string"), Const(type, "string")), type), type)


def _step(part: exp.Expr) -> str:
    name = part.this
    if isinstance(part, exp.JSONPathKey) and isinstance(name, str) and _KEY.fullmatch(name):
        return f".{name}"
    if isinstance(part, exp.JSONPathSubscript) and isinstance(name, int) and 0 <= name < 1 << 31:
        return f"[{name}]"
    raise Unusable("unsupported-expression", "a path is followed for plain keys and places only")


def end_of_array(name: str, array: Subject, text: str) -> Subject:
    """``array_max(values)`` or ``array_min(values)``: the last or first of the elements that are not NULL."""
    kind, parts = nested_parts(array.type)
    if kind != "array" or len(parts) != 1 or key_kind(parts[0]) is None or "collate" in parts[0] or "char" in parts[0]:
        raise Unusable("unordered-type", f"{text} is asked of {array.type}")
    return Subject(Call(name, (array.expr,), parts[0]), parts[0])


def _whole(read: Reader, node: exp.Expr) -> int:
    value = constant_of(read(node), int, node.sql("spark"))
    assert isinstance(value, int), "asked for above"
    if not -(1 << 31) <= value < 1 << 31:
        raise Unusable("inexact", f"{value} is no int")
    return value


def _piece(name: str, node: exp.Expr, by: str, place: int, context: Context, read: Reader) -> Subject:
    separator = str(constant_of(read(node.args[by]), str, node.sql("spark")))
    given = read(node.this)
    if given.type == "binary":
        raise Unusable("coercion", f"{node.sql('spark')} is of binary, where functions of strings mean something else")
    args = (typed(given, "string", context), Const(separator, "string"), Const(place, "int"))
    return Subject(Call(name, args, "string"), "string")
