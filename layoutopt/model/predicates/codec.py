"""Filters as JSON and back, exactly: data, never code.

Each noun is an object that one member tells from the others: ``{"col": "a", "type": "int"}``, ``{"in": {"col": ...},
"values": [[1, 5]], "null": false}``, ``{"and": [...]}``. Keys are numbers or strings, bytes ``{"base64": "..."}``.
"""

from __future__ import annotations

from typing import cast

from layoutopt.model import records
from layoutopt.model.predicates.cnf import Filter
from layoutopt.model.predicates.nodes import Expr, Node, Predicate
from layoutopt.model.records import to_json

__all__ = ["from_json", "to_json"]

Noun = Expr | Node | Predicate | Filter


def from_json(value: object) -> Noun:
    """The noun that :func:`to_json` wrote, of whatever kind; ``Filter.from_json`` and the like read only their own.

    >>> from_json({"in": {"col": "a", "type": "int"}, "values": [[1, 5]], "null": False}).values
    ValueSet(intervals=((1, 5),))

    Raises:
        PlanError: the value is not what :func:`to_json` writes.
    """
    return cast(Noun, records.from_json(Noun, value, "filter"))
