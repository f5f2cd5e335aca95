"""Ranges of arithmetic, of casts between numbers, and of rounding.

Integers: a result beyond its type is NULL (``try_add``), so ends are clipped to the type. Doubles: rounding keeps
order, so an operation's results lie between its results at the corners; with an infinity or a NaN the range is unknown.
Decimals: arithmetic is exact, since Spark gives the results enough digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from layoutopt.functions.ranges import (
    FLOATS,
    Ends,
    Range,
    clip,
    float_range,
    has_int_keys,
    keys_to_floats,
    limits,
    to_floats,
)
from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.model.types import INTEGER_BITS, decimal_digits
from layoutopt.model.values.keys import float_keys

_SAFE = 2.0**62
_MAX_PLACES: Final = 18
# More than the relative error of two conversions, a quotient and a product of doubles.
_RELATIVE_ERROR: Final = 1e-14
_to_python_int = np.frompyfunc(int, 1, 1)
_LEAST, _MOST = limits("bigint")


def add(a: Range, b: Range, type: str) -> Range | None:
    """Bound ``a + b``."""
    if type == "double":
        return _by_corners(np.add, a, b)
    low, high = _add_clipped(a.low, b.low), _add_clipped(a.high, b.high)
    return Range(*clip(low, high, type), a.known & b.known, type)


def subtract(a: Range, b: Range, type: str) -> Range | None:
    """Bound ``a - b``."""
    if type == "double":
        return _by_corners(np.subtract, a, b)
    low, high = _subtract_clipped(a.low, b.high), _subtract_clipped(a.high, b.low)
    return Range(*clip(low, high, type), a.known & b.known, type)


def multiply(a: Range, b: Range, type: str) -> Range | None:
    """Bound ``a * b``."""
    if type == "double":
        return _by_corners(np.multiply, a, b)
    corners = [_multiply_bounds(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    low = np.min([least for least, _ in corners], axis=0)
    high = np.max([most for _, most in corners], axis=0)
    return Range(*clip(low, high, type), a.known & b.known, type)


def divide(a: Range, b: Range, type: str) -> Range | None:
    """Bound ``a / b``, a double; NULL if b is 0."""
    if type != "double":
        return None
    quotient = _by_corners(np.divide, a, b)
    low, high = to_floats(b)
    return Range(quotient.low, quotient.high, quotient.known & ((low > 0) | (high < 0)), type)


def remainder(a: Range, b: Range, type: str) -> Range | None:
    """Bound ``a % b``, which has the sign of a and is nearer to 0 than a and b; NULL if b is 0."""
    if type in FLOATS:
        return None
    # One less than the larger |b|; computed without |b|, which overflows for the smallest integer.
    most = np.maximum(np.maximum(-(b.low + (b.low < 0)), b.low - 1), np.maximum(-(b.high + (b.high < 0)), b.high - 1))
    low, high = np.where(a.low < 0, np.maximum(a.low, -most), 0), np.where(a.high > 0, np.minimum(a.high, most), 0)
    # Between two multiples of a constant divisor it keeps order.
    is_constant, divisor = (b.low == b.high) & (b.low != 0) & (b.low != _LEAST), np.where(b.low == 0, 1, b.low)
    rests = np.fmod(a.low, divisor), np.fmod(a.high, divisor)
    same = is_constant & (a.low - rests[0] == a.high - rests[1])
    low, high = np.where(same, rests[0], low), np.where(same, rests[1], high)
    return Range(low, high, a.known & b.known, type)


def absolute_value(a: Range, type: str) -> Range | None:
    """Bound ``abs(a)`` in a type that holds it; keys of floats are symmetric around 0, as numbers are."""
    if not has_int_keys(type) or a.type != type:
        return None
    nearest = np.where((a.low <= 0) & (a.high >= 0), 0, np.minimum(_magnitude(a.low), _magnitude(a.high)))
    return Range(nearest, np.maximum(_magnitude(a.low), _magnitude(a.high)), a.known, type)


def square_root(a: Range, type: str) -> Range | None:
    """Bound ``sqrt(a)``; NaN for negative numbers."""
    low, high = to_floats(a)
    may_be_nan = (low < 0) | np.isnan(high) | np.isnan(low)
    with np.errstate(invalid="ignore"):
        ends = np.sqrt(np.maximum(low, 0)), np.where(may_be_nan, np.nan, np.sqrt(np.maximum(high, 0)))
    return float_range(*ends, a.known & ~np.isnan(low), type)


def cast_number(a: Range, type: str) -> Range | None:
    """Bound a cast between types of numbers; NULL if the type does not hold the value."""
    if not (has_int_keys(type) and has_int_keys(a.type)) or type == "float":
        return None
    if type == "double":
        return _to_double(a)
    if type in INTEGER_BITS:
        return _to_integer(a, type)
    if a.type in INTEGER_BITS and (digits := decimal_digits(type)) is not None:
        scale = np.full_like(a.low, np.int64(10 ** digits[1]))
        low, high = _multiply_bounds(a.low, scale)[0], _multiply_bounds(a.high, scale)[1]
        return Range(*clip(low, high, type), a.known, type)
    return None


def _to_double(a: Range) -> Range:
    digits = decimal_digits(a.type)
    if digits is None:
        low, high = to_floats(a)
        return float_range(low, high, a.known)
    # Division may round the last bit differently from Spark's conversion.
    power = 10.0 ** digits[1]
    return Range(float_keys(a.low / power) - 2, float_keys(a.high / power) + 2, a.known, "double")


def _to_integer(a: Range, type: str) -> Range | None:
    if a.type in INTEGER_BITS:
        return Range(*clip(a.low, a.high, type), a.known, type)
    digits = decimal_digits(a.type)
    if digits is not None:
        power = 10 ** digits[1]
        low, high = (np.sign(end) * (np.abs(end) // power) for end in (a.low, a.high))
        return Range(*clip(low, high, type), a.known, type)
    if a.type not in FLOATS:
        return None
    low, high = _truncate(keys_to_floats(a.low), -1), _truncate(keys_to_floats(a.high), 1)
    return Range(*clip(low, high, type), a.known, type)


def _truncate(values: Floats, side: int) -> Ints:
    """Return the integers that doubles are truncated to, clipped to bigint; NaN becomes the widest end of the side."""
    whole = np.trunc(np.nan_to_num(values, nan=side * np.inf, posinf=np.inf, neginf=-np.inf))
    inside = np.abs(whole) < _SAFE
    integers = np.where(inside, whole, 0).astype(np.int64)
    # Beyond 2^62, take a safe bound.
    below, above = (_LEAST, int(_SAFE)) if side < 0 else (-int(_SAFE), _MOST)
    return np.where(inside, integers, np.where(whole < 0, below, above)).astype(np.int64)


def _magnitude(keys: Ints) -> Ints:
    return np.where(keys == _LEAST, _MOST, np.abs(keys))


def _add_clipped(a: Ints, b: Ints) -> Ints:
    """Return the sum, clipped to bigint."""
    with np.errstate(over="ignore"):
        total = a + b
    overflows = ((a ^ total) & (b ^ total)) < 0
    return np.where(overflows, np.where(a < 0, _LEAST, _MOST), total).astype(np.int64)


def _subtract_clipped(a: Ints, b: Ints) -> Ints:
    with np.errstate(over="ignore"):
        difference = a - b
    overflows = ((a ^ b) & (a ^ difference)) < 0
    return np.where(overflows, np.where(a < 0, _LEAST, _MOST), difference).astype(np.int64)


def _multiply_bounds(a: Ints, b: Ints) -> Ends:
    """Return bounds of the product: itself, unless it may be beyond 2^62."""
    estimate = a.astype(np.float64) * b.astype(np.float64)
    with np.errstate(over="ignore"):
        product = a * b
    positive, negative = estimate > _SAFE, estimate < -_SAFE
    low = np.where(positive, int(_SAFE / 2), np.where(negative, _LEAST, product))
    high = np.where(positive, _MOST, np.where(negative, -int(_SAFE / 2), product))
    return low.astype(np.int64), high.astype(np.int64)


def _by_corners(operation: Callable[[Floats, Floats], Floats], a: Range, b: Range) -> Range:
    """Bound an operation on doubles that has its extremes at corners; unknown unless all ends are finite."""
    ends_a, ends_b = to_floats(a), to_floats(b)
    finite: Bits = np.all([np.isfinite(end) for end in (*ends_a, *ends_b)], axis=0)
    # Values where the range is unknown must not cause warnings.
    first, second = [np.where(finite, end, 1.0) for end in ends_a], [np.where(finite, end, 1.0) for end in ends_b]
    with np.errstate(all="ignore"):
        corners = np.array([operation(x, y) for x in first for y in second])
    known = a.known & b.known & finite & ~np.isnan(corners).any(axis=0)
    corners = np.nan_to_num(corners, nan=0.0, posinf=np.inf, neginf=-np.inf)
    return float_range(corners.min(axis=0), corners.max(axis=0), known)


def combine_decimals(sign: str, a: Range, b: Range, type: str) -> Range | None:
    """Bound ``a + b``, ``a - b`` or ``a * b`` of decimals and whole numbers; unknown if an end may exceed 64 bits."""
    digits, scales = decimal_digits(type), (_scale(a.type), _scale(b.type))
    if digits is None or scales[0] is None or scales[1] is None:
        return None
    if sign == "*":
        if digits[1] != scales[0] + scales[1]:
            return None
        corners = [_multiply_exact(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
        fits = np.logical_and.reduce([fit for _, fit in corners])
        ends = np.array([np.where(fits, product, 0) for product, _ in corners])
        return Range(ends.min(axis=0), ends.max(axis=0), a.known & b.known & fits, type)
    powers = [digits[1] - scale for scale in scales if scale is not None]
    if not all(0 <= power <= _MAX_PLACES for power in powers):
        return None
    signed = (b.low, b.high) if sign == "+" else (-b.high, -b.low)
    ends_with_powers = zip((a.low, a.high, *signed), (powers[0], powers[0], powers[1], powers[1]), strict=True)
    scaled = [_multiply_exact(end, np.full_like(end, 10**power)) for end, power in ends_with_powers]
    fits = np.logical_and.reduce([fit & (np.abs(end.astype(np.float64)) < _SAFE / 2) for end, fit in scaled])
    low_a, high_a, low_b, high_b = (np.where(fits, end, 0) for end, _ in scaled)
    return Range(low_a + low_b, high_a + high_b, a.known & b.known & fits, type)


def divide_decimals(a: Range, b: Range, type: str) -> Range | None:
    """Bound ``a / b`` of decimals and whole numbers, rounded to the places of the type; unknown if ``b`` may be 0.

    The ends are computed in doubles and widened by more than their error and Spark's rounding. If the type's keys may
    exceed 64 bits, they are Python integers.
    """
    digits, scales = decimal_digits(type), (_scale(a.type), _scale(b.type))
    if digits is None or scales[0] is None or scales[1] is None:
        return None
    known = a.known & b.known & ((b.low > 0) | (b.high < 0))
    power = 10.0 ** (digits[1] + scales[1] - scales[0])
    divisors = [np.where(known, end, 1).astype(np.float64) for end in (b.low, b.high)]
    corners = np.array([end.astype(np.float64) / divisor * power for end in (a.low, a.high) for divisor in divisors])
    low, high = corners.min(axis=0), corners.max(axis=0)
    low, high = (end + side * (np.abs(end) * _RELATIVE_ERROR + 2) for end, side in ((low, -1), (high, 1)))
    low, high = np.floor(low), np.ceil(high)
    if has_int_keys(type):  # a result with more digits is NULL or fails
        most = 10.0 ** digits[0]
        low, high = (np.clip(end, -most, most).astype(np.int64) for end in (low, high))
        return Range(low, high, known, type)
    return Range(_to_python_int(low), _to_python_int(high), known, type)


def floor_decimal(a: Range, up: bool, type: str) -> Range | None:
    """Bound ``floor(a)``, or with ``up`` ``ceil(a)``, of decimals."""
    digits = decimal_digits(a.type)
    if digits is None or decimal_digits(type) is None:
        return None
    power = 10 ** digits[1]
    low, high = (-(-end // power) if up else end // power for end in (a.low, a.high))
    return Range(low, high, a.known, type)


def round_number(a: Range, places: int, type: str) -> Range | None:
    """Bound ``round(a, places)``, half away from zero; it keeps order."""
    if a.type == type == "double":
        ends = to_floats(a)
        half = 0.5 * 10.0**-places * (1 + 1e-12)
        with np.errstate(all="ignore"):
            low, high = np.nextafter(ends[0] - half, -np.inf), np.nextafter(ends[1] + half, np.inf)
        return float_range(low, high, a.known & ~np.isnan(low))
    before, after = decimal_digits(a.type), decimal_digits(type)
    if before is None or after is None or after[1] > before[1]:
        return None
    power = 10 ** (before[1] - after[1])
    low, high = (np.sign(end) * ((np.abs(end) + power // 2) // power) for end in (a.low, a.high))
    return Range(low, high, a.known, type)


def _scale(type: str) -> int | None:
    digits = decimal_digits(type)
    return digits[1] if digits is not None else 0 if type in INTEGER_BITS else None


def _multiply_exact(a: Ints, b: Ints) -> tuple[Ints, Bits]:
    fits: Bits = np.abs(a.astype(np.float64) * b.astype(np.float64)) < _SAFE
    with np.errstate(over="ignore"):
        return a * b, fits
