"""What a tree cuts by: columns whose values are cut into ranges, and features' bits, all as small integer codes.

Code 0 of a column is NULL; code ``i`` stands for the values from threshold ``i - 2`` (included) to ``i - 1`` (left
out), below the first threshold for 1. A feature has code 1 where its bit is 0, else 2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layoutopt.model.arrays import Bits, Ints

Codes = npt.NDArray[np.int16]

Span = tuple[int, int]
"""Codes from the first on, up to the second, which is left out."""

QUANTILES = 128
"""Ranges of about equal rows into which a column is cut, unless a plan says otherwise: beside 60 queries' constants
they save 1 % of the rows read, beside 1,500 none."""

MOST_CONSTANTS = 512
"""Constants of the log that cut a column, spread evenly over those that lie among its values."""

LARGEST = 2**63 - 1
"""The largest number that a key may be."""

OF_FEATURE = 3
"""Codes of a feature, the unused 0 among them."""


@dataclass(frozen=True, eq=False)
class Thresholds:
    """Where a column is cut.

    Attributes:
        values: keys, or ranks, of which each begins a code; ``int64[t]``, ascending.
    """

    values: Ints

    @property
    def n_codes(self) -> int:
        """How many codes the column has, that of NULL among them."""
        return len(self.values) + 2

    def codes(self, values: Ints, nulls: Bits | None = None) -> Codes:
        """The code of each value, ``int16[n]``; 0 where it is NULL.

        >>> Thresholds(np.array([10, 20])).codes(np.array([5, 10, 19, 20])).tolist()
        [1, 2, 2, 3]
        """
        found = np.searchsorted(self.values, values, side="right").astype(np.int16) + np.int16(1)
        return found if nulls is None else np.where(nulls, np.int16(0), found)

    def is_low(self, code: int, values: Ints, nulls: Bits | None = None) -> Bits:
        """Which values have at most that code, ``bool[n]``; NULL has.

        >>> Thresholds(np.array([10, 20])).is_low(2, np.array([5, 10, 19, 20])).tolist()
        [True, True, True, False]
        """
        if not 0 < code <= len(self.values):
            return np.full(len(values), code > 0) if nulls is None else nulls | (code > 0)
        low: Bits = values < self.values[code - 1]
        return low if nulls is None else low | nulls

    def covered(self, low: int | None, high: int | None) -> Span:
        """The codes that hold a value from ``low`` (included) to ``high`` (left out); None is unbounded.

        >>> Thresholds(np.array([10, 20])).covered(10, 20)
        (2, 3)
        """
        first = 1 if low is None else int(np.searchsorted(self.values, low, side="right")) + 1
        last = len(self.values) + 1 if high is None else int(np.searchsorted(self.values, high, side="left")) + 1
        return first, last + 1


def choose_thresholds(
    values: Ints, constants: Iterable[int], low: int, high: int, quantiles: int = QUANTILES
) -> Thresholds:
    """Thresholds at the quantiles of a column and at constants of the log among its values.

    Cuts at constants keep the rows of a range that recurs apart from all others; those at quantiles serve ranges that
    the log has not seen. The smallest value is a threshold too, and so is what follows the largest: ranges beyond them
    have codes that no row has.

    Args:
        values: of a sample of the column's rows, NULLs left out, ``int64[m]``.
        constants: where ranges of the log begin and end.
        low, high: the smallest and the largest value of all rows.
        quantiles: into how many ranges of about equal rows the column is cut; 0 for none.
    """
    ordered = np.sort(values)
    at = np.arange(1, quantiles) * len(ordered) // max(1, quantiles)
    equal = ordered[at] if len(ordered) else ordered
    among = np.unique(np.array([c for c in constants if low < c <= high], dtype=np.int64))
    if len(among) > MOST_CONSTANTS:
        among = among[np.arange(MOST_CONSTANTS) * len(among) // MOST_CONSTANTS]
    ends = np.array([low, min(high, LARGEST - 1) + 1], dtype=np.int64)
    return Thresholds(np.unique(np.concatenate((equal, among, ends))))
