"""Ranges of keys, one per block, for the derivation of bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints, Keys
from layoutopt.model.types import decimal_digits
from layoutopt.model.values.keys import NAN_KEY, domain, float_keys

# Decimals of at most so many digits have int64 keys.
NARROW_DIGITS = 18
FLOATS = frozenset({"float", "double"})
_SIGN = np.int64(0x7FFF_FFFF_FFFF_FFFF)


@dataclass(frozen=True, eq=False)
class Range:
    """Bounds of an expression in each of n blocks: the key of every value that is not NULL is in ``[low, high]``.

    Attributes:
        low, high: keys, [n]; ``high`` is ``NAN_KEY`` if a float may be NaN.
        known: whether they are valid, ``bool[n]``.
        type: the Spark type.
    """

    low: Keys
    high: Keys
    known: Bits
    type: str


Ends: TypeAlias = tuple[Ints, Ints]


def has_int_keys(type: str) -> bool:
    """Return whether keys of a type are int64."""
    digits = decimal_digits(type)
    return isinstance(domain(type)[0], int) and (digits is None or digits[0] <= NARROW_DIGITS)


def limits(type: str) -> tuple[int, int]:
    """Return the smallest and the largest key of a type with int64 keys."""
    low, high = domain(type)
    assert isinstance(low, int), type
    assert isinstance(high, int), type
    return low, high


def clip(low: Ints, high: Ints, type: str) -> Ends:
    """Clip ends to a type's domain: a result beyond it is NULL, and ranges ignore NULL."""
    smallest, largest = limits(type)
    return np.clip(low, smallest, largest), np.clip(high, smallest, largest)


def keys_to_floats(keys: Ints) -> Floats:
    """Return the doubles of keys, ``float64[n]``; NaN for ``NAN_KEY``."""
    bits = np.where(keys >= 0, keys, -keys | ~_SIGN)
    floats: Floats = bits.astype(np.int64).view(np.float64).copy()
    floats[keys == NAN_KEY] = np.nan
    return floats


def to_floats(a: Range) -> tuple[Floats, Floats]:
    """Return the ends of a range of numbers as Spark casts them to double; NaN if a value may be NaN."""
    if a.type in FLOATS:
        return keys_to_floats(a.low), keys_to_floats(a.high)
    return a.low.astype(np.float64), a.high.astype(np.float64)


def float_range(low: Floats, high: Floats, known: Bits, type: str = "double") -> Range:
    """Return a range of floats by its ends."""
    return Range(float_keys(low), float_keys(high), known, type)
