"""Of many sets of values those whose bounds enclose another set's: all that it can be a subset of."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

import numpy as np

from layoutopt.model.arrays import Ints
from layoutopt.model.values import ValueSet
from layoutopt.model.values.keys import Key


class Enclosing:
    """Finds sets by their bounds, whole arrays at once; a log has thousands of ranges of one column.

    >>> sets = [ValueSet.interval(0, 9), ValueSet.of([1, 5]), ValueSet.interval(4, None), ValueSet.empty()]
    >>> Enclosing(enumerate(sets)).enclosing(ValueSet.of([2, 4]))
    [0, 1]
    """

    def __init__(self, sets: Iterable[tuple[int, ValueSet]]) -> None:
        """Remember sets of keys of one kind, each by a number."""
        held = [(number, *bounds) for number, values in sets if (bounds := _bounds(values))]
        self._numbers: Ints = np.array([number for number, _, _ in held], dtype=np.int64)
        self._lows = sorted({low for _, low, _ in held if low is not None})
        self._highs = sorted({high for _, _, high in held if high is not None})
        self._low_ranks: Ints = np.array([self._rank_of_low(low) for _, low, _ in held], dtype=np.int64)
        self._high_ranks: Ints = np.array([self._rank_of_high(high) for _, _, high in held], dtype=np.int64)

    def enclosing(self, values: ValueSet) -> list[int]:
        """The numbers of the sets between whose lowest and highest key all these values lie.

        Of no values all sets that have some.
        """
        found, bounds = self._numbers, _bounds(values)
        if bounds is not None:
            low, high = bounds
            found = found[(self._low_ranks <= self._rank_of_low(low)) & (self._high_ranks >= self._rank_of_high(high))]
        numbers: list[int] = found.tolist()
        return numbers

    def _rank_of_low(self, low: Key | None) -> int:
        """How many of the sets' lows are at or below a low, of which no bound is the lowest."""
        return 0 if low is None else bisect_right(self._lows, low)

    def _rank_of_high(self, high: Key | None) -> int:
        """How many of the sets' highs are below a high, of which no bound is the highest."""
        return len(self._highs) if high is None else bisect_left(self._highs, high)


def _bounds(values: ValueSet) -> tuple[Key | None, Key | None] | None:
    """The least interval that holds all values; None of none."""
    return (values.intervals[0][0], values.intervals[-1][1]) if values.intervals else None
