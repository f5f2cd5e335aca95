"""Ranges of arithmetic and of casts between numbers.

Integers: a result beyond its type is NULL (``try_add``), so ends are cut at the type's. Doubles: rounding keeps order,
so an operation's results lie between its results at the corners; with an infinity or a NaN nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.model.types import INTEGER_BITS, decimal_digits
from layoutopt.model.values.keys import float_keys
from layoutopt.skipping.derived.ranges import (
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
