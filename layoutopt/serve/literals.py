"""Literals of Iceberg's filters as keys of a column's type, as exactly as every reader would take them.

Engines differ in what a literal means that the column can't hold: 0.1 beside a 32-bit float, more digits than a decimal
has, -0.0. Such a literal is a range that holds whatever it may mean; see :class:`Keys`.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final

import numpy as np

from layoutopt.model.types import INTEGER_BITS, decimal_digits
from layoutopt.model.values import Key, key_kind, to_key
from layoutopt.model.values.keys import exact_number, float_key

_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2})*", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?\d{1,80}(?:\.\d{0,80})?(?:[eE][+-]?\d{1,4})?", re.ASCII)


@dataclass(frozen=True)
class Keys:
    """Where a literal stands among the keys of its column's type.

    Attributes:
        low, high: the smallest and the largest key that it may mean, both included.
        none_below, none_above: whether no reader takes a value with one of these keys for smaller, or for larger, than
            the literal.
    """

    low: Key
    high: Key
    none_below: bool = True
    none_above: bool = True

    @property
    def exact(self) -> bool:
        """Whether every reader takes the literal for one key, and every value of that key for equal to it."""
        return self.none_below and self.none_above


def literal_keys(value: object, type: str) -> Keys | None:
    """The keys of a literal as JSON has it, for a column of a Spark type; None where that can't be said.

    Numbers beyond the type's range have keys beyond its domain, which compare as they should.

    >>> date, decimal = literal_keys("2024-02-29", "date"), literal_keys(1.005, "decimal(9,2)")
    >>> (date.low, date.high, date.exact), (decimal.low, decimal.high, decimal.exact)
    ((19782, 19782, True), (100, 101, False))
    >>> literal_keys("soon", "date") is None
    True
    """
    if isinstance(value, bool):
        return Keys(int(value), int(value)) if type == "boolean" else None
    if type in INTEGER_BITS:
        return Keys(value, value) if isinstance(value, int) else None
    if type in ("float", "double"):
        return _float_keys(value, type)
    digits = decimal_digits(type)
    if digits:
        return _decimal_keys(value, digits[1])
    if type in ("date", "timestamp", "timestamp_ntz"):
        return _time_keys(value, type)
    if isinstance(value, str) and key_kind(type) in ("str", "bytes"):
        return _text_keys(value, type)
    return None


def _number(value: object) -> int | float | Decimal | None:
    """A number, or what a text says, as which pyiceberg sends the 0.1 of "price > 0.1"; None for anything else."""
    try:
        if isinstance(value, str):
            return Decimal(value) if _NUMBER.fullmatch(value) else None
    except InvalidOperation:
        return None
    return value if isinstance(value, int | float | Decimal) else None


def _float_keys(value: object, type: str) -> Keys | None:
    number = _number(value)
    if number is None:
        return None
    exact = Decimal(number)
    double = float(exact)
    if math.isnan(double) or (isinstance(value, int) and double != value):
        return None
    with np.errstate(over="ignore", under="ignore"):
        nearest = float(np.float32(double)) if type == "float" else double
    meant = [double, nearest]
    if type == "float" and Decimal(double) != exact:  # a text that is read as a float at once is rounded only once
        meant += [float(np.nextafter(np.float32(nearest), np.float32(end))) for end in (-math.inf, math.inf)]
    low, high = min(map(float_key, meant)), max(map(float_key, meant))
    is_exact = low == high and Decimal(double) == exact  # to some 0.1 is less than the double that is nearest to it
    # The format orders -0.0 before 0.0, which have one key; of a text not all readers keep the sign.
    is_zero, is_negative = double == 0, math.copysign(1, double) < 0
    is_exact = is_exact and not (is_zero and isinstance(value, str))
    return Keys(low, high, is_exact and (not is_zero or is_negative), is_exact and not (is_zero and is_negative))


def _decimal_keys(value: object, scale: int) -> Keys | None:
    """Engines round what has more digits, each in its way."""
    number = _number(value)
    exact = None if number is None else exact_number(number)
    if exact is None:
        return None
    scaled = exact * 10**scale
    # A float literal stands for its shortest text to some, for its exact value to others.
    is_exact = scaled.denominator == 1
    return Keys(math.floor(scaled), math.ceil(scaled), is_exact, is_exact)


def _time_keys(value: object, type: str) -> Keys | None:
    if isinstance(value, int):  # days or microseconds since 1970
        return Keys(value, value)
    if not isinstance(value, str):
        return None
    zone = _TIME.fullmatch(value)
    try:
        if type == "date":
            key = to_key(dt.date.fromisoformat(value), type) if _DATE.fullmatch(value) else None
        elif zone is None or (type == "timestamp_ntz" and zone[1]):
            return None
        else:
            moment = dt.datetime.fromisoformat(value)
            # pyiceberg writes instants without their zone, which is UTC.
            utc = dt.UTC if type == "timestamp" and not zone[1] else moment.tzinfo
            key = to_key(moment.replace(tzinfo=utc), type)
    except ValueError:
        return None
    return None if key is None else Keys(key, key)


def _text_keys(value: str, type: str) -> Keys | None:
    if key_kind(type) == "bytes":
        if not _HEX.fullmatch(value):
            return None
        return Keys(bytes.fromhex(value), bytes.fromhex(value))
    try:
        key = to_key(value, type)
    except ValueError:  # half of a surrogate pair
        return None
    return Keys(key, key)
