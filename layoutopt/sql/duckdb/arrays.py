"""Conditions on elements of arrays, and on keys and values of maps, as DuckDB has them.

Where no element is known to meet a condition and one is NULL, Spark's answer is NULL; DuckDB's functions say FALSE. So
each becomes a CASE that counts the elements that are not NULL.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from layoutopt.model.types import INTEGER_BITS, nested_parts
from layoutopt.model.udf import Udfs
from layoutopt.sql.elements import without_lambda
from layoutopt.sql.problems import Unusable

MAP_PARTS: Final = {"map_keys": 0, "map_values": 1}
_LAMBDA_FREE: Final = (exp.ArrayContains, exp.Or)
_ENDS: Final[dict[type[exp.Expr], str]] = {
    exp.GT: "list_max", exp.GTE: "list_max", exp.LT: "list_min", exp.LTE: "list_min"
}  # fmt: skip


def with_plain_arrays(tree: exp.Expr, udfs: Udfs) -> None:
    """Write what says whether an array has an element as ``array_contains``, in the tree.

    Other conditions of elements stay as they are.
    """
    for node in list(tree.find_all(exp.MapContainsKey, exp.Exists, exp.Anonymous)):
        if isinstance(node, exp.Anonymous) and node.name.casefold() in udfs:
            continue
        plain = _plain(node)
        if plain is not None:
            node.replace(exp.Paren(this=plain))


def _plain(node: exp.Expr) -> exp.Expr | None:
    if isinstance(node, exp.MapContainsKey):
        keys = exp.MapKeys(this=node.this.copy())
        return exp.ArrayContains(this=keys, expression=node.args["key"].copy())
    try:
        found = without_lambda(node, truth=True)
    except Unusable:
        return None
    return found if isinstance(found, _LAMBDA_FREE) else None  # others are TRUE of the same rows, but not FALSE


def compared_end(node: exp.Expr) -> exp.Expr | None:
    """``exists(xs, x -> x > 5)`` as a comparison of the largest (smallest) element; None of another condition."""
    try:
        found = without_lambda(node, truth=True)
    except Unusable:
        return None
    return found if type(found) in _ENDS else None


def element_type(array: str) -> str | None:
    """The type of an array's elements, if both engines find and order them alike; None in doubt.

    >>> element_type("array<string>"), element_type("array<double>"), element_type("string")
    ('string', None, None)
    """
    kind, parts = nested_parts(array)
    known = kind == "array" and len(parts) == 1 and (parts[0] == "string" or parts[0] in INTEGER_BITS)
    return parts[0] if known else None


def part_of_map(name: str, of_map: str) -> str | None:
    """The type of a map's keys or values as an array; None of another type."""
    kind, parts = nested_parts(of_map)
    return f"array<{parts[MAP_PARTS[name]]}>" if kind == "map" and len(parts) == 2 else None


def fits(text: str, type: str) -> bool:
    """Whether digits, with or without a sign, are a value of a whole-number type."""
    half = 1 << (INTEGER_BITS[type] - 1)
    return text.removeprefix("-").isdecimal() and -half <= int(text) < half


def with_duckdb_arrays(tree: exp.Expr) -> exp.Expr:
    """A tree that was found to mean the same, with DuckDB's functions in place of Spark's."""
    return tree.transform(_for_duckdb, copy=False)


def _for_duckdb(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.ArrayContains):
        return _known(_call("list_contains", node.this, node.expression), node.this)
    if isinstance(node, exp.Exists):
        compared = compared_end(node)
        if compared is not None:
            largest = _call(_ENDS[type(compared)], node.this)
            return _known(type(compared)(this=largest, expression=compared.expression), node.this)
    return node


def _known(met: exp.Expr, array: exp.Expr) -> exp.Expr:
    """TRUE where an element is known to meet a condition, FALSE where all are known not to."""
    without_null = exp.EQ(this=_call("list_count", array), expression=_call("len", array))
    branches = [exp.If(this=met, true=exp.true()), exp.If(this=without_null, true=exp.false())]
    return exp.Case(ifs=branches)


def _call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=[each.copy() for each in arguments])
