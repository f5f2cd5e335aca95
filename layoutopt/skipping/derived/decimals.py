"""Ranges of decimal arithmetic, which is exact, for Spark gives the results digits enough; and of rounding."""

from __future__ import annotations

from typing import Final

import numpy as np

from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.types import INTEGER_BITS, decimal_digits
from layoutopt.skipping.derived.ranges import Range, as_floats, float_range, has_int_keys

_SAFE: Final = 2.0**62
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
        corners = [_product(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
        fits = np.logical_and.reduce([fit for _, fit in corners])
        ends = np.array([np.where(fits, found, 0) for found, _ in corners])
        return Range(ends.min(axis=0), ends.max(axis=0), a.known & b.known & fits, type)
    powers = [digits[1] - scale for scale in scales if scale is not None]
    if not all(0 <= power <= _MOST_PLACES for power in powers):
        return None
    turned = (b.low, b.high) if sign == "+" else (-b.high, -b.low)
    scaled = zip((a.low, a.high, *turned), (powers[0], powers[0], powers[1], powers[1]), strict=True)
    parts = [_product(end, np.full_like(end, 10**power)) for end, power in scaled]
    fits = np.logical_and.reduce([fit & (np.abs(found.astype(np.float64)) < _SAFE / 2) for found, fit in parts])
    found = [np.where(fits, end, 0) for end, _ in parts]
    return Range(found[0] + found[2], found[1] + found[3], a.known & b.known & fits, type)


def divided(a: Range, b: Range, type: str) -> Range | None:
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


def _product(a: Ints, b: Ints) -> tuple[Ints, Bits]:
    fits: Bits = np.abs(a.astype(np.float64) * b.astype(np.float64)) < _SAFE
    with np.errstate(over="ignore"):
        return a * b, fits
