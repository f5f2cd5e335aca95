"""Comparisons of two expressions of a row, as both readers build them: the one of SQL texts and that of Catalyst."""

from __future__ import annotations

from typing import Final

from layoutopt.model.predicates import Comparison, Node, simplified
from layoutopt.model.values import key_kind
from layoutopt.sql.calls.subjects import Subject, explicit_cast
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types.preimage import is_whole_of_double
from layoutopt.sql.types.rules import is_integer

OPPOSITE: Final = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
"""The operator that is TRUE where another one is FALSE."""
MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
"""The operator that means the same with the sides exchanged."""


def compare_subjects(left: Subject, operator: str, right: Subject) -> Node:
    """Return the rows for which two subjects of one type compare so.

    Raises:
        Unusable: their type has no order here, or one of them may fail.
    """
    if is_whole_of_double(left.expr) or is_whole_of_double(right.expr):
        raise Unusable("can-fail", "floor or ceil of a double is followed beside constants only")
    first, second = left.expr, right.expr  # whole numbers compare alike in any width
    if not (is_integer(first.type) and is_integer(second.type)):
        first, second = explicit_cast(left), explicit_cast(right)
        if first.type != second.type or key_kind(first.type) is None:
            raise Unusable("unordered-type", f"{first.type} and {second.type} are not compared here")
    if operator in (">", ">="):
        first, second, operator = second, first, MIRRORED[operator]
    return simplified(Comparison(first, operator, second))
