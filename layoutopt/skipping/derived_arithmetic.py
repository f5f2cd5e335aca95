"""Ranges of arithmetic and of casts between numbers.

Integers: a result beyond its type is NULL (``try_add``), so ends are cut at the type's. Doubles: rounding keeps order,
so an operation's results lie between its results at the corners; with an infinity or a NaN nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.model.types import INTEGER_BITS, decimal_digits
from layoutopt.model.values.keys import float_keys
from layoutopt.skipping.ranges import (
    FLOATS,
    Ends,
    Range,
    as_floats,
    clipped,
    float_range,
    floats_of,
    has_int_keys,
    limits,
)

_SAFE = 2.0**62
_LEAST, _MOST = limits("bigint")


def added(a: Range, b: Range, type: str) -> Range | None:
    """``a + b``."""
    if type == "double":
        return _by_corners(np.add, a, b)
    low, high = _sum(a.low, b.low), _sum(a.high, b.high)
    return Range(*clipped(low, high, type), a.known & b.known, type)


def subtracted(a: Range, b: Range, type: str) -> Range | None:
    """``a - b``."""
    if type == "double":
        return _by_corners(np.subtract, a, b)
    low, high = _difference(a.low, b.high), _difference(a.high, b.low)
    return Range(*clipped(low, high, type), a.known & b.known, type)


def multiplied(a: Range, b: Range, type: str) -> Range | None:
    """``a * b``."""
    if type == "double":
        return _by_corners(np.multiply, a, b)
    corners = [_product(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    low = np.min([least for least, _ in corners], axis=0)
    high = np.max([most for _, most in corners], axis=0)
    return Range(*clipped(low, high, type), a.known & b.known, type)


def divided(a: Range, b: Range, type: str) -> Range | None:
    """``a / b``, a double; NULL where b is 0."""
    if type != "double":
        return None
    found = _by_corners(np.divide, a, b)
    low, high = as_floats(b)
    return Range(found.low, found.high, found.known & ((low > 0) | (high < 0)), type)


def remainder(a: Range, b: Range, type: str) -> Range | None:
    """``a % b``, which has the sign of a and is nearer to 0 than a and b; NULL where b is 0."""
    if type in FLOATS:
        return None
    # One below the larger of |b|: of the smallest integer that is the largest.
    most = np.maximum(np.maximum(-(b.low + (b.low < 0)), b.low - 1), np.maximum(-(b.high + (b.high < 0)), b.high - 1))
    low, high = np.where(a.low < 0, np.maximum(a.low, -most), 0), np.where(a.high > 0, np.minimum(a.high, most), 0)
    # Between two multiples of one divisor it keeps order.
    one, divisor = (b.low == b.high) & (b.low != 0) & (b.low != _LEAST), np.where(b.low == 0, 1, b.low)
    rests = np.fmod(a.low, divisor), np.fmod(a.high, divisor)
    same = one & (a.low - rests[0] == a.high - rests[1])
    low, high = np.where(same, rests[0], low), np.where(same, rests[1], high)
    return Range(low, high, a.known & b.known, type)


def absolute(a: Range, type: str) -> Range | None:
    """``abs(a)`` of a type that holds it; keys of floats are mirrored at 0 as numbers are."""
    if not has_int_keys(type) or a.type != type:
        return None
    nearest = np.where((a.low <= 0) & (a.high >= 0), 0, np.minimum(_magnitude(a.low), _magnitude(a.high)))
    return Range(nearest, np.maximum(_magnitude(a.low), _magnitude(a.high)), a.known, type)


def square_root(a: Range, type: str) -> Range | None:
    """``sqrt(a)``; NaN of what is below 0."""
    low, high = as_floats(a)
    may_be_nan = (low < 0) | np.isnan(high) | np.isnan(low)
    with np.errstate(invalid="ignore"):
        ends = np.sqrt(np.maximum(low, 0)), np.where(may_be_nan, np.nan, np.sqrt(np.maximum(high, 0)))
    return float_range(*ends, a.known & ~np.isnan(low), type)


def cast_number(a: Range, type: str) -> Range | None:
    """A number cast to another type of numbers; NULL where that does not hold it."""
    if not (has_int_keys(type) and has_int_keys(a.type)) or type == "float":
        return None
    if type == "double":
        return _to_double(a)
    if type in INTEGER_BITS:
        return _to_integer(a, type)
    if a.type in INTEGER_BITS and (digits := decimal_digits(type)) is not None:
        scale = np.int64(10 ** digits[1])
        low, high = _product(a.low, np.full_like(a.low, scale))[0], _product(a.high, np.full_like(a.high, scale))[1]
        return Range(*clipped(low, high, type), a.known, type)
    return None


def _to_double(a: Range) -> Range:
    digits = decimal_digits(a.type)
    if digits is None:
        low, high = as_floats(a)
        return float_range(low, high, a.known)
    # Division may round a last bit otherwise than Spark's conversion does.
    power = 10.0 ** digits[1]
    return Range(float_keys(a.low / power) - 2, float_keys(a.high / power) + 2, a.known, "double")


def _to_integer(a: Range, type: str) -> Range | None:
    if a.type in INTEGER_BITS:
        return Range(*clipped(a.low, a.high, type), a.known, type)
    digits = decimal_digits(a.type)
    if digits is not None:
        power = 10 ** digits[1]
        low, high = (np.sign(end) * (np.abs(end) // power) for end in (a.low, a.high))
        return Range(*clipped(low, high, type), a.known, type)
    if a.type not in FLOATS:
        return None
    low, high = _truncated(floats_of(a.low), -1), _truncated(floats_of(a.high), 1)
    return Range(*clipped(low, high, type), a.known, type)


def _truncated(values: Floats, side: int) -> Ints:
    """The integers that doubles are cut to, at most and at least bigint's; NaN, which has none, is as far as can be."""
    whole = np.trunc(np.nan_to_num(values, nan=side * np.inf, posinf=np.inf, neginf=-np.inf))
    inside = np.abs(whole) < _SAFE
    found = np.where(inside, whole, 0).astype(np.int64)
    # Beyond 2^62 the next that is surely outside.
    below, above = (_LEAST, int(_SAFE)) if side < 0 else (-int(_SAFE), _MOST)
    return np.where(inside, found, np.where(whole < 0, below, above)).astype(np.int64)


def _magnitude(keys: Ints) -> Ints:
    return np.where(keys == _LEAST, _MOST, np.abs(keys))


def _sum(a: Ints, b: Ints) -> Ints:
    """The sum, or the end of bigint that it is beyond."""
    with np.errstate(over="ignore"):
        found = a + b
    beyond = ((a ^ found) & (b ^ found)) < 0
    return np.where(beyond, np.where(a < 0, _LEAST, _MOST), found).astype(np.int64)


def _difference(a: Ints, b: Ints) -> Ints:
    with np.errstate(over="ignore"):
        found = a - b
    beyond = ((a ^ b) & (a ^ found)) < 0
    return np.where(beyond, np.where(a < 0, _LEAST, _MOST), found).astype(np.int64)


def _product(a: Ints, b: Ints) -> Ends:
    """What the product is at least and at most: itself, unless it may be beyond 2^62."""
    rough = a.astype(np.float64) * b.astype(np.float64)
    with np.errstate(over="ignore"):
        found = a * b
    positive, negative = rough > _SAFE, rough < -_SAFE
    low = np.where(positive, int(_SAFE / 2), np.where(negative, _LEAST, found))
    high = np.where(positive, _MOST, np.where(negative, -int(_SAFE / 2), found))
    return low.astype(np.int64), high.astype(np.int64)


def _by_corners(operation: Callable[[Floats, Floats], Floats], a: Range, b: Range) -> Range:
    """The range of an operation on doubles whose extremes are at corners, where all ends are finite."""
    ends_a, ends_b = as_floats(a), as_floats(b)
    finite: Bits = np.all([np.isfinite(end) for end in (*ends_a, *ends_b)], axis=0)
    # Whatever stands where nothing is known must not warn.
    first, second = [np.where(finite, end, 1.0) for end in ends_a], [np.where(finite, end, 1.0) for end in ends_b]
    with np.errstate(all="ignore"):
        corners = np.array([operation(x, y) for x in first for y in second])
    known = a.known & b.known & finite & ~np.isnan(corners).any(axis=0)
    corners = np.nan_to_num(corners, nan=0.0, posinf=np.inf, neginf=-np.inf)
    return float_range(corners.min(axis=0), corners.max(axis=0), known)


# ----------------------------------------------------------------------------------------------------
# Ranges of decimal arithmetic, which is exact, for Spark gives the results digits enough; and of rounding.

_SAFE_DIGITS: Final = 2.0**62
_MOST_PLACES: Final = 18
_MISSED: Final = 1e-14
"""More than the share by which two conversions, a quotient and a product of doubles are off."""
_whole = np.frompyfunc(int, 1, 1)


def exact(sign: str, a: Range, b: Range, type: str) -> Range | None:
    """``a + b``, ``a - b`` or ``a * b`` of decimals and whole numbers; unknown where 64 bits may not hold the ends."""
    digits, scales = decimal_digits(type), (_scale(a.type), _scale(b.type))
    if digits is None or scales[0] is None or scales[1] is None:
        return None
    if sign == "*":
        if digits[1] != scales[0] + scales[1]:
            return None
        corners = [_multiply_decimals(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
        fits = np.logical_and.reduce([fit for _, fit in corners])
        ends = np.array([np.where(fits, found, 0) for found, _ in corners])
        return Range(ends.min(axis=0), ends.max(axis=0), a.known & b.known & fits, type)
    powers = [digits[1] - scale for scale in scales if scale is not None]
    if not all(0 <= power <= _MOST_PLACES for power in powers):
        return None
    turned = (b.low, b.high) if sign == "+" else (-b.high, -b.low)
    scaled = zip((a.low, a.high, *turned), (powers[0], powers[0], powers[1], powers[1]), strict=True)
    parts = [_multiply_decimals(end, np.full_like(end, 10**power)) for end, power in scaled]
    fits = np.logical_and.reduce([fit & (np.abs(found.astype(np.float64)) < _SAFE_DIGITS / 2) for found, fit in parts])
    found = [np.where(fits, end, 0) for end, _ in parts]
    return Range(found[0] + found[2], found[1] + found[3], a.known & b.known & fits, type)


def divide_decimals(a: Range, b: Range, type: str) -> Range | None:
    """``a / b`` of decimals and whole numbers, rounded to the places of the type; unknown where ``b`` may be 0.

    Doubles find the ends, widened by more than what they and Spark's rounding miss. Where the type's keys may be beyond
    64 bits, they are Python's whole numbers.
    """
    digits, scales = decimal_digits(type), (_scale(a.type), _scale(b.type))
    if digits is None or scales[0] is None or scales[1] is None:
        return None
    known = a.known & b.known & ((b.low > 0) | (b.high < 0))
    power = 10.0 ** (digits[1] + scales[1] - scales[0])
    below = [np.where(known, end, 1).astype(np.float64) for end in (b.low, b.high)]
    corners = np.array([end.astype(np.float64) / other * power for end in (a.low, a.high) for other in below])
    low, high = corners.min(axis=0), corners.max(axis=0)
    low, high = (end + side * (np.abs(end) * _MISSED + 2) for end, side in ((low, -1), (high, 1)))
    low, high = np.floor(low), np.ceil(high)
    if has_int_keys(type):  # what takes more digits is NULL or fails
        most = 10.0 ** digits[0]
        low, high = (np.clip(end, -most, most).astype(np.int64) for end in (low, high))
        return Range(low, high, known, type)
    return Range(_whole(low), _whole(high), known, type)


def floored(a: Range, up: bool, type: str) -> Range | None:
    """``floor(a)``, or with ``up`` ``ceil(a)``, of decimals."""
    digits = decimal_digits(a.type)
    if digits is None or decimal_digits(type) is None:
        return None
    power = 10 ** digits[1]
    low, high = (-(-end // power) if up else end // power for end in (a.low, a.high))
    return Range(low, high, a.known, type)


def rounded(a: Range, places: int, type: str) -> Range | None:
    """``round(a, places)``, half away from zero; it keeps order."""
    if a.type == type == "double":
        ends = as_floats(a)
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


def _multiply_decimals(a: Ints, b: Ints) -> tuple[Ints, Bits]:
    fits: Bits = np.abs(a.astype(np.float64) * b.astype(np.float64)) < _SAFE_DIGITS
    with np.errstate(over="ignore"):
        return a * b, fits
