"""What the derivation of bounds works on: ranges of keys, one a block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints, Keys
from layoutopt.model.types import decimal_digits
from layoutopt.model.values.keys import NAN_KEY, domain, float_keys

NARROW_DIGITS = 18
"""Decimals of at most so many digits have int64 keys."""
FLOATS = frozenset({"float", "double"})
_SIGN = np.int64(0x7FFF_FFFF_FFFF_FFFF)


@dataclass(frozen=True, eq=False)
class Range:
    """The values of an expression in each of n blocks: every one that is not NULL has its key in ``[low, high]``.

    Attributes:
        low, high: keys, [n]; of a float that may be NaN the high key is ``NAN_KEY``.
        known: where the two mean something, ``bool[n]``.
        type: the Spark type.
    """

    low: Keys
    high: Keys
    known: Bits
    type: str


Ends: TypeAlias = tuple[Ints, Ints]


def has_int_keys(type: str) -> bool:
    """Whether keys of a type are int64."""
    digits = decimal_digits(type)
    return isinstance(domain(type)[0], int) and (digits is None or digits[0] <= NARROW_DIGITS)


def limits(type: str) -> tuple[int, int]:
    """The smallest and the largest key of a type whose keys are int64."""
    low, high = domain(type)
    assert isinstance(low, int), type
    assert isinstance(high, int), type
    return low, high


def clipped(low: Ints, high: Ints, type: str) -> Ends:
    """Ends within a type's domain: a result beyond it is NULL, and NULL is within any range."""
    smallest, largest = limits(type)
    return np.clip(low, smallest, largest), np.clip(high, smallest, largest)


def floats_of(keys: Ints) -> Floats:
    """The doubles of keys, ``float64[n]``; of ``NAN_KEY`` NaN."""
    bits = np.where(keys >= 0, keys, -keys | ~_SIGN)
    found: Floats = bits.astype(np.int64).view(np.float64).copy()
    found[keys == NAN_KEY] = np.nan
    return found


def as_floats(of: Range) -> tuple[Floats, Floats]:
    """A number's range as Spark casts it to double; NaN where a value may be NaN."""
    if of.type in FLOATS:
        return floats_of(of.low), floats_of(of.high)
    return of.low.astype(np.float64), of.high.astype(np.float64)


def float_range(low: Floats, high: Floats, known: Bits, type: str = "double") -> Range:
    """A range of doubles by its ends."""
    return Range(float_keys(low), float_keys(high), known, type)
