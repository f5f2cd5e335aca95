"""Spark's types of the expressions whose meaning DuckDB shares: the arithmetic of names like ``decimal(15,2)``.

A type is Spark's ``simpleString``. Every function answers None where the two engines might differ, so that a caller can
send the query to Spark instead.
"""

from __future__ import annotations

import re

MAX_PRECISION = 38
EXACT_DOUBLE_DIGITS = 15
"""Decimals of so many digits become doubles without a second rounding in either engine."""

INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
"""Spark's integer types from narrow to wide, with the precision that Spark gives each as a decimal."""

SCALARS = frozenset(INTEGER_DIGITS) | {
    "boolean", "float", "double", "string", "date", "timestamp", "timestamp_ntz", "binary", "void",
}  # fmt: skip

_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")


def decimal(precision: int, scale: int) -> str | None:
    """The decimal type of that precision and scale, or None where it needs more than 38 digits.

    >>> decimal(15, 2)
    'decimal(15,2)'
    """
    return f"decimal({precision},{scale})" if precision <= MAX_PRECISION else None


def decimal_parts(type_name: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal, or of the decimal that Spark makes of an integer type; else None.

    >>> decimal_parts("decimal(15,2)"), decimal_parts("int"), decimal_parts("date")
    ((15, 2), (10, 0), None)
    """
    if type_name in INTEGER_DIGITS:
        return INTEGER_DIGITS[type_name], 0
    match = _DECIMAL.fullmatch(type_name)
    return (int(match[1]), int(match[2])) if match else None


def is_integer(type_name: str) -> bool:
    """Whether the type is one of the four integer types."""
    return type_name in INTEGER_DIGITS


def is_decimal(type_name: str) -> bool:
    """Whether the type is a decimal."""
    return type_name.startswith("decimal(")


def is_number(type_name: str) -> bool:
    """Whether the type is an integer, a decimal, a float or a double."""
    return is_integer(type_name) or is_decimal(type_name) or type_name in ("float", "double")


def is_floating(type_name: str) -> bool:
    """Whether the type is a float or a double, whose grouping by NaN and -0.0 the engines do differently."""
    return type_name in ("float", "double")


def is_portable(type_name: str) -> bool:
    """Whether values of the type mean the same to both engines."""
    return type_name in SCALARS or is_decimal(type_name)


def literal_type(text: str) -> str | None:
    """Spark's type of a number written as ``text``.

    >>> literal_type("5"), literal_type("3000000000"), literal_type("0.05"), literal_type("12.5"), literal_type("1e3")
    ('int', 'bigint', 'decimal(2,2)', 'decimal(3,1)', 'double')
    >>> literal_type("2147483648"), literal_type("-2147483648")
    ('bigint', 'int')
    """
    if re.fullmatch(r"-?\d+", text):
        value = int(text)
        if -(2**31) <= value < 2**31:
            return "int"
        return "bigint" if -(2**63) <= value < 2**63 else decimal(len(str(abs(value))), 0)
    if re.fullmatch(r"-?(\d*\.\d+|\d+\.)", text):
        whole, _, fraction = text.removeprefix("-").partition(".")
        digits = (whole + fraction).lstrip("0") or "0"
        return decimal(max(len(digits), len(fraction)), len(fraction))
    return "double" if re.fullmatch(r"-?\d*\.?\d*[eE][+-]?\d+", text) else None


def common_type(left: str, right: str) -> str | None:
    """The type that both engines compare, or choose between, values of these two types in; None in doubt.

    >>> common_type("int", "decimal(15,2)"), common_type("int", "bigint"), common_type("int", "string")
    ('decimal(15,2)', 'bigint', None)
    """
    if left == right:
        return left
    if "void" in (left, right):
        return right if left == "void" else left
    if is_integer(left) and is_integer(right):
        return max(left, right, key=lambda name: INTEGER_DIGITS[name])
    if is_number(left) and is_number(right) and (is_floating(left) or is_floating(right)):
        return "double" if _exact_as_double(left) and _exact_as_double(right) else None
    first, second = decimal_parts(left), decimal_parts(right)
    if first is None or second is None:
        return None
    scale = max(first[1], second[1])
    return decimal(max(first[0] - first[1], second[0] - second[1]) + scale, scale)


def _exact_as_double(type_name: str) -> bool:
    parts = decimal_parts(type_name) if is_decimal(type_name) else None
    return parts is None or parts[0] <= EXACT_DOUBLE_DIGITS


def arithmetic_type(op: str, left: str, right: str) -> str | None:
    """Spark's type of ``left op right`` for op in ``+ - *``, or None where the engines might differ.

    >>> arithmetic_type("*", "decimal(15,2)", "decimal(16,2)")
    'decimal(32,4)'
    >>> arithmetic_type("-", "int", "decimal(15,2)")
    'decimal(16,2)'
    """
    if not (is_number(left) and is_number(right)):
        return None
    if is_floating(left) or is_floating(right):
        return common_type(left, right) if "float" not in (left, right) else None
    if is_integer(left) and is_integer(right):
        return max(left, right, "int", key=lambda name: INTEGER_DIGITS[name])
    first, second = decimal_parts(left), decimal_parts(right)
    if first is None or second is None:
        return None
    if op == "*":
        return decimal(first[0] + second[0] + 1, first[1] + second[1])
    scale = max(first[1], second[1])
    return decimal(max(first[0] - first[1], second[0] - second[1]) + scale + 1, scale)


def sum_type(argument: str) -> str | None:
    """Spark's type of ``sum`` over a column of that type, or None in doubt."""
    if is_integer(argument):
        return "bigint"
    if argument == "double":
        return "double"
    parts = decimal_parts(argument)
    return decimal(min(MAX_PRECISION, parts[0] + 10), parts[1]) if parts else None
