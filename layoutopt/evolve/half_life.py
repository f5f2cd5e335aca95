"""How fast a workload changes: the half-life by which the days before tell most of the day to come."""

from __future__ import annotations

from typing import Final

import numpy as np

from layoutopt.model.arrays import Floats

HALF_LIVES: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""What is tried, in days."""

_REMEMBERED: Final = 7.0
"""Days after which it counts half how well a half-life foretold a day."""


def best_half_life(mixes: Floats) -> float:
    """The half-life by which the days so far would have foretold each next day best, of :data:`HALF_LIVES`.

    What a half-life foretells of a day is the mix of the days before, each weighing half as much a half-life earlier.
    It is wrong by the share of the day's statements that it has elsewhere (the total variation). Days of long ago
    count less, so that a workload that becomes restless is noticed. Of half-lives that are as good the longest is
    taken, since it knows more statements.

    Args:
        mixes: of each day the shares of the families of queries, ``float64[days, families]``; each row sums to 1.
    """
    days = len(mixes)
    counts = 0.5 ** (np.arange(max(0, days - 1))[::-1] / _REMEMBERED)
    wrong = [float(counts @ _errors(mixes, half_life)) for half_life in HALF_LIVES]
    least = min(wrong)
    return max(half_life for half_life, error in zip(HALF_LIVES, wrong, strict=True) if error <= least + _NOTHING)


_NOTHING: Final = 1e-9


def _errors(mixes: Floats, half_life: float) -> Floats:
    """How wrong each day but the first was foretold, ``float64[days - 1]``, each within 0 and 1."""
    keep = 0.5 ** (1 / half_life)
    sums, weight = np.zeros(mixes.shape[1]), 0.0
    errors = np.zeros(max(0, len(mixes) - 1))
    for day in range(len(mixes) - 1):
        sums, weight = keep * sums + mixes[day], keep * weight + 1
        errors[day] = np.abs(sums / weight - mixes[day + 1]).sum() / 2
    return errors
