"""Comparisons with constants, as the sets of values for which Spark finds them TRUE."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Final, cast

from layoutopt.model.types import decimal_digits
from layoutopt.model.values.keys import (
    Key,
    domain,
    exact_number,
    float_key,
    key_kind,
    successor,
    to_key,
)
from layoutopt.model.values.value_sets import Interval, ValueSet

_MOST_DIGITS: Final = 38
"""Digits of Spark's widest decimal: a comparison that needs more is not done exactly there."""


def compare(op: str, value: object, column_type: str) -> ValueSet:
    """The values of a column for which Spark's comparison with a constant is TRUE.

    Against a number of another type this is Spark's comparison in their common type: exact between whole numbers and
    decimals, in doubles where one side is floating point.

    Args:
        op: one of = <> < <= > >=.
        value: int, Decimal, float, str, bytes, bool, date, or datetime (with a zone for timestamp, without for
            timestamp_ntz).
        column_type: the column's Spark type.

    Raises:
        ValueError: another operator, or the comparison can't be done exactly here.

    >>> compare(">", Decimal("5.5"), "int") == compare(">=", 6, "int")
    True
    >>> compare("=", Decimal("0.055"), "decimal(15,2)").is_empty
    True
    """
    if op not in _SIDES:
        raise ValueError(f"{op!r} is no comparison; use one of = <> < <= > >=")
    first, above = _place(value, column_type)
    intervals = _SIDES[op](first, above)
    return ValueSet.normalised(intervals, column_type)


_SIDES: Final[dict[str, Callable[[Key, Key], list[Interval]]]] = {
    "=": lambda first, above: [(first, above)],
    "<>": lambda first, above: [(None, first), (above, None)],
    "<": lambda first, above: [(None, first)],
    "<=": lambda first, above: [(None, above)],
    ">": lambda first, above: [(above, None)],
    ">=": lambda first, above: [(first, None)],
}


def _place(value: object, type: str) -> tuple[Key, Key]:
    """Where a constant stands among the keys of a type: the first key not below it, and the first above it."""
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if not is_number or key_kind(type) != "int" or type in ("boolean", "date", "timestamp", "timestamp_ntz"):
        key = to_key(value, type)
        return key, successor(key)
    number = cast("int | float | Decimal", value)
    if type in ("float", "double"):
        return _place_among_floats(number, type)
    if isinstance(number, float):
        return _place_as_doubles(number, type)
    return _place_exactly(number, type)


def _place_among_floats(value: int | float | Decimal, type: str) -> tuple[int, int]:
    """Spark casts the constant to double. A whole number against a float column depends on the ANSI mode."""
    is_ambiguous = type == "float" and isinstance(value, int)
    key = cast(int, to_key(value, type)) if is_ambiguous else float_key(_as_double(value))
    return key, key + 1


def _as_double(value: int | float | Decimal) -> float:
    try:
        return float(value)
    except OverflowError as error:
        raise ValueError(f"{value!r} is too large for a double; leave the comparison out") from error


def _place_exactly(value: int | Decimal, type: str) -> tuple[int, int]:
    exact = exact_number(value)
    if exact is None:
        raise ValueError(f"{value!r} is no number that a {type} is compared with exactly; leave the comparison out")
    digits = decimal_digits(type)
    if digits or isinstance(value, Decimal):
        _require_common_decimal(value, digits or (len(str(domain(type)[1])) + 1, 0), type)
    scaled = exact * 10 ** (digits[1] if digits else 0)
    return -(-scaled.numerator // scaled.denominator), scaled.numerator // scaled.denominator + 1


def _require_common_decimal(value: int | Decimal, digits: tuple[int, int], type: str) -> None:
    """Spark compares decimals in a type that holds both; where 38 digits are too few it rounds, or gives NULL."""
    number = Decimal(value)
    exponent = cast(int, number.as_tuple().exponent)
    scale = max(digits[1], -exponent, 0)
    whole = max(digits[0] - digits[1], number.adjusted() + 1 if number else 1)
    if whole + scale > _MOST_DIGITS:
        raise ValueError(f"{value!r} and {type} have no common decimal of 38 digits; leave the comparison out")


def _place_as_doubles(value: float, type: str) -> tuple[int, int]:
    """Spark casts the column to double, which is monotone: search the keys at which the cast passes the constant."""
    smallest, largest = cast("tuple[int, int]", domain(type))
    digits = decimal_digits(type)
    unit = 10 ** (digits[1] if digits else 0)
    if value != value:
        return largest + 1, largest + 1
    keys = range(smallest, largest + 1)
    return first_key(keys, lambda key: key / unit >= value), first_key(keys, lambda key: key / unit > value)


def first_key(keys: range, holds: Callable[[int], bool]) -> int:
    """Return the first of ascending keys for which a monotone condition holds, or one past the last."""
    low, high = keys.start, keys.stop
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
