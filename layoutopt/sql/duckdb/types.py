"""The types whose values mean the same to DuckDB as to Spark, by Spark's names."""

from __future__ import annotations

from layoutopt.model.types import INTEGER_BITS, decimal_digits
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types import rules

_EXACT_DOUBLE_DIGITS = 15
"""Decimals of so many digits become doubles without a second rounding in either engine."""
_SCALARS = frozenset(INTEGER_BITS) | {
    "boolean", "float", "double", "string", "date", "timestamp", "timestamp_ntz", "binary", "void",
}  # fmt: skip


def is_portable(name: str) -> bool:
    """Whether values of the type mean the same to both engines."""
    return name in _SCALARS or decimal_digits(name) is not None


def common_type(left: str, right: str) -> str | None:
    """The type that both engines compare, or choose between, values of these two types in; None in doubt.

    >>> common_type("int", "decimal(15,2)"), common_type("int", "bigint"), common_type("int", "string")
    ('decimal(15,2)', 'bigint', None)
    """
    if left != right and "void" not in (left, right):
        if not (rules.is_number(left) and rules.is_number(right)):
            return None
        floating = rules.is_floating(left) or rules.is_floating(right)
        if floating and any((decimal_digits(name) or (0, 0))[0] > _EXACT_DOUBLE_DIGITS for name in (left, right)):
            return None
    try:
        return rules.common_type(left, right)
    except Unusable:
        return None


def sum_type(argument: str) -> str | None:
    """Spark's type of ``sum`` over a column of that type, or None in doubt."""
    if rules.is_integer(argument):
        return "bigint"
    digits = decimal_digits(argument)
    if digits is not None:
        return f"decimal({min(38, digits[0] + 10)},{digits[1]})"
    return argument if argument == "double" else None
