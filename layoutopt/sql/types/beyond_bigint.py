"""Decimals beyond BIGINT: what Spark makes of comparing a whole number with one.

Its analyser puts TRUE in place of ``b < 9223372036854775808`` and FALSE in place of ``b >= 9223372036854775808``, for
every row: also where ``b`` is NULL. It does so for what is a literal in the text, not for what is computed, cast or
has a plus before it; the parser here does not tell all of these apart.
"""

from __future__ import annotations

from decimal import Decimal

from layoutopt.sql.types.coerce import TypedConstant
from layoutopt.sql.types.rules import is_integer

_SMALLEST, _LARGEST = -(1 << 63), (1 << 63) - 1


def outcome_for_all(type_name: str, operator: str, constant: TypedConstant) -> bool | None:
    """What comparing any number of an integral type with the constant comes to; None where Spark looks at the number.

    >>> outcome_for_all("int", "<", TypedConstant(Decimal(2**63), "decimal(19,0)"))
    True
    >>> outcome_for_all("bigint", "=", TypedConstant(Decimal(2**63), "decimal(19,0)")) is None
    True
    """
    value = constant.value
    if not is_integer(type_name) or operator not in ("<", "<=", ">", ">=") or not isinstance(value, Decimal):
        return None
    if _SMALLEST <= value <= _LARGEST:
        return None
    return (value > 0) == (operator in ("<", "<="))
