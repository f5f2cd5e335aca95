"""Sets of keys as sorted half-open intervals.

``x >= 1 AND x <= 2``, ``x BETWEEN 1 AND 2`` and, on whole numbers, ``x IN (1, 2)`` are all ``[1, 3)``: equal sets are
equal objects. NULL is in no set; see :class:`layoutopt.model.predicates.nodes.InSet`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, Final, cast

from layoutopt.model.records import Form, HashedOnce, Record
from layoutopt.model.types import decimal_digits
from layoutopt.model.values.keys import Key, ceil_float32, domain, exact_number, float_key, key_kind, successor, to_key

Interval = tuple[Key | None, Key | None]
_SURROGATES: Final = (0xD800, 0xDFFF)


@dataclass(frozen=True)
class ValueSet(HashedOnce, Record):
    """A set of keys of one kind.

    Attributes:
        intervals: ``[low, high)`` pairs, sorted, disjoint and not adjacent; None is unbounded. The class methods and
            :meth:`normalised` ensure this.

    >>> ValueSet.interval(1, 5).union(ValueSet.interval(5, 9)).intervals
    ((1, 9),)
    """

    intervals: tuple[Interval, ...]

    form: ClassVar = Form(bare=True)

    @property
    def is_range(self) -> bool:
        """Return whether the keys are one interval of more than a single key.

        >>> ValueSet.interval(1, None).is_range, ValueSet.point(1).is_range, ValueSet.of([1, 5]).is_range
        (True, False, False)
        """
        if len(self.intervals) != 1:
            return False
        ((low, high),) = self.intervals
        return low is None or high != successor(low)

    @classmethod
    def all(cls) -> ValueSet:
        """Return the set of every key."""
        return _ALL

    @classmethod
    def empty(cls) -> ValueSet:
        """Return the empty set."""
        return _EMPTY

    @classmethod
    def point(cls, key: Key) -> ValueSet:
        """Return the set of one key."""
        return cls(((key, successor(key)),))

    @classmethod
    def of(cls, keys: Iterable[Key]) -> ValueSet:
        """Return the set of some keys."""
        return cls(_merge_intervals((key, successor(key)) for key in keys))

    @classmethod
    def interval(cls, low: Key | None, high: Key | None) -> ValueSet:
        """Return the keys from ``low`` (included) to ``high`` (excluded); None is unbounded."""
        return cls(((low, high),)) if _is_below(low, high) else _EMPTY

    @classmethod
    def prefix(cls, text: str) -> ValueSet:
        """Return the strings that start with a text.

        >>> ValueSet.prefix("ab").intervals
        (('ab', 'ac'),)
        """
        return cls.interval(text or None, _end_of_prefix(text))

    @classmethod
    def normalised(cls, intervals: Iterable[Interval], type: str) -> ValueSet:
        """Return the values of a type in these intervals, in the form that equal sets of that type share.

        Bounds at the type's smallest or largest value become None, except that a single value there stays one
        (``boolean`` {false} is ``[0, 1)``); bounds of ``float`` are moved to values that 32 bits hold.

        >>> ValueSet.normalised([(0, 1), (1, 2)], "boolean") == ValueSet.all()
        True
        """
        smallest, largest = domain(type)
        if type == "float":
            intervals = [(_to_float32(low), _to_float32(high)) for low, high in intervals]
        return cls(_trim_intervals(_merge_intervals(intervals), smallest, largest))

    @property
    def is_all(self) -> bool:
        """Return whether every key is in the set."""
        return self.intervals == ((None, None),)

    @property
    def is_empty(self) -> bool:
        """Return whether no key is in the set."""
        return not self.intervals

    def union(self, other: ValueSet) -> ValueSet:
        """Return the keys in either set."""
        return ValueSet(_merge_intervals((*self.intervals, *other.intervals)))

    def intersect(self, other: ValueSet) -> ValueSet:
        """Return the keys in both sets."""
        intervals: list[Interval] = []
        first, second, i, j = self.intervals, other.intervals, 0, 0
        while i < len(first) and j < len(second):
            (a, b), (c, d) = first[i], second[j]
            low, high = c if _starts_by(a, c) else a, d if _reaches(b, d) else b
            if _is_below(low, high):
                intervals.append((low, high))
            if high == b:
                i += 1
            else:
                j += 1
        return ValueSet(tuple(intervals))

    def complement(self) -> ValueSet:
        """Return the keys that are not in the set; normalise it where a type's smallest or largest value matters."""
        intervals: list[Interval] = []
        low: Key | None = None
        for start, end in self.intervals:
            if start is not None:
                intervals.append((low, start))
            if end is None:
                return ValueSet(tuple(intervals))
            low = end
        return ValueSet((*intervals, (low, None)))

    def issubset(self, other: ValueSet) -> bool:
        """Return whether every key of this set is in the other."""
        j = 0
        for low, high in self.intervals:
            while j < len(other.intervals) and not _reaches(other.intervals[j][1], high):
                j += 1
            if j == len(other.intervals) or not _starts_by(other.intervals[j][0], low):
                return False
        return True

    def isdisjoint(self, other: ValueSet) -> bool:
        """Return whether no key is in both sets."""
        return self.intersect(other).is_empty

    def contains(self, key: Key) -> bool:
        """Return whether a key is in the set."""
        n_starts = bisect_right(self.intervals, False, key=lambda pair: pair[0] is not None and pair[0] > key)  # type: ignore[operator]
        if n_starts == 0:
            return False
        high = self.intervals[n_starts - 1][1]
        return high is None or key < high  # type: ignore[operator]

    def overlaps(self, low: Key, high: Key) -> bool:
        """Return whether a key from ``low`` to ``high``, both included, is in the set."""
        return not self.isdisjoint(ValueSet.interval(low, successor(high)))

    def points(self) -> tuple[Key, ...] | None:
        """Return the keys, ascending, if every interval is one key; else None.

        >>> ValueSet.of(["b", "a"]).points(), ValueSet.of([1, 2]).points()
        (('a', 'b'), None)
        """
        if all(low is not None and high == successor(low) for low, high in self.intervals):
            return tuple(cast(Key, low) for low, _ in self.intervals)
        return None


_ALL: Final = ValueSet(((None, None),))
_EMPTY: Final = ValueSet(())


def _is_below(low: Key | None, high: Key | None) -> bool:
    return low is None or high is None or low < high  # type: ignore[operator]


def _starts_by(low: Key | None, other: Key | None) -> bool:
    """Return whether a lower bound is at or below another one."""
    return low is None or (other is not None and low <= other)  # type: ignore[operator]


def _reaches(high: Key | None, other: Key | None) -> bool:
    """Return whether an upper bound is at or above another one."""
    return high is None or (other is not None and high >= other)  # type: ignore[operator]


def _merge_intervals(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Return intervals sorted, with overlapping and adjacent ones merged and empty ones dropped."""
    kept = [pair for pair in intervals if _is_below(*pair)]
    kept.sort(key=lambda pair: (pair[0] is not None, pair[0]) if pair[0] is not None else (False,))
    merged: list[Interval] = []
    for low, high in kept:
        if merged and (merged[-1][1] is None or low is None or low <= merged[-1][1]):  # type: ignore[operator]
            merged[-1] = (merged[-1][0], high if _reaches(high, merged[-1][1]) else merged[-1][1])
        else:
            merged.append((low, high))
    return tuple(merged)


def _trim_intervals(merged: tuple[Interval, ...], smallest: Key | None, largest: Key | None) -> tuple[Interval, ...]:
    """Return merged intervals with bounds at the ends of the domain in their canonical form."""
    trimmed: list[Interval] = []
    for low, high in merged:
        if smallest is not None:
            if high is not None and high <= smallest:  # type: ignore[operator]
                continue
            low = None if low is None or low <= smallest else low  # type: ignore[operator]
        if largest is not None:
            if low is not None and low > largest:  # type: ignore[operator]
                continue
            high = None if high is None or high > largest else high  # type: ignore[operator]
        trimmed.append(_keep_edge_point(low, high, smallest, largest))
    return tuple(trimmed)


def _keep_edge_point(low: Key | None, high: Key | None, smallest: Key | None, largest: Key | None) -> Interval:
    if low is None and smallest is not None and high == successor(smallest):
        return smallest, high
    if high is None and largest is not None and low == largest:
        return low, successor(largest)
    return low, high


def _to_float32(key: Key | None) -> Key | None:
    if not isinstance(key, int):
        return None
    smallest, largest = domain("float")
    return key if key <= cast(int, smallest) or key > cast(int, largest) else ceil_float32(key)


def _end_of_prefix(text: str) -> str | None:
    """Return the smallest string above all strings that start with a text; None where there is none."""
    stem = text.rstrip("\U0010ffff")
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    if _SURROGATES[0] <= following <= _SURROGATES[1]:
        following = _SURROGATES[1] + 1
    return stem[:-1] + chr(following)


# Digits of Spark's widest decimal: comparisons that need more are not exact there.
_MOST_DIGITS: Final = 38


def compare(op: str, value: object, column_type: str) -> ValueSet:
    """Return the values of a column for which Spark's comparison with a constant is TRUE.

    A number of another type is compared in Spark's common type: exactly between whole numbers and decimals, in doubles
    where one side is floating point. The constant's Python type is as for :func:`to_key`.

    Raises:
        ValueError: another operator than = <> < <= > >=, or the comparison can't be evaluated exactly.

    >>> compare(">", Decimal("5.5"), "int") == compare(">=", 6, "int")
    True
    >>> compare("=", Decimal("0.055"), "decimal(15,2)").is_empty
    True
    """
    if op not in _SIDES:
        raise ValueError(f"{op!r} is no comparison; use one of = <> < <= > >=")
    first, above = _locate(value, column_type)
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


def _locate(value: object, type: str) -> tuple[Key, Key]:
    """Return the first key of a type that is not below a constant, and the first above it."""
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if not is_number or key_kind(type) != "int" or type in ("boolean", "date", "timestamp", "timestamp_ntz"):
        key = to_key(value, type)
        return key, successor(key)
    number = cast("int | float | Decimal", value)
    if type in ("float", "double"):
        return _locate_among_floats(number, type)
    if isinstance(number, float):
        return _locate_among_doubles(number, type)
    return _locate_exactly(number, type)


def _locate_among_floats(value: int | float | Decimal, type: str) -> tuple[int, int]:
    """Locate a constant cast to double, like Spark. An integer against a float column depends on the ANSI mode."""
    is_ambiguous = type == "float" and isinstance(value, int)
    key = cast(int, to_key(value, type)) if is_ambiguous else float_key(_to_double(value))
    return key, key + 1


def _to_double(value: int | float | Decimal) -> float:
    try:
        return float(value)
    except OverflowError as error:
        raise ValueError(f"{value!r} is too large for a double; leave the comparison out") from error


def _locate_exactly(value: int | Decimal, type: str) -> tuple[int, int]:
    exact = exact_number(value)
    if exact is None:
        raise ValueError(f"{value!r} is no number that a {type} is compared with exactly; leave the comparison out")
    digits = decimal_digits(type)
    if digits or isinstance(value, Decimal):
        _require_common_decimal(value, digits or (len(str(domain(type)[1])) + 1, 0), type)
    scaled = exact * 10 ** (digits[1] if digits else 0)
    return -(-scaled.numerator // scaled.denominator), scaled.numerator // scaled.denominator + 1


def _require_common_decimal(value: int | Decimal, digits: tuple[int, int], type: str) -> None:
    """Refuse decimals without a common type of 38 digits, for which Spark rounds or returns NULL."""
    number = Decimal(value)
    exponent = cast(int, number.as_tuple().exponent)
    scale = max(digits[1], -exponent, 0)
    whole = max(digits[0] - digits[1], number.adjusted() + 1 if number else 1)
    if whole + scale > _MOST_DIGITS:
        raise ValueError(f"{value!r} and {type} have no common decimal of 38 digits; leave the comparison out")


def _locate_among_doubles(value: float, type: str) -> tuple[int, int]:
    """Locate a double by binary search: Spark casts the column to double, which is monotone."""
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
