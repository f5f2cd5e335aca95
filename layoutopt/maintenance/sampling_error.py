"""What a sample of a log can't tell: intervals in which figures of the whole log lie.

A log that is looked at is taken for a sample of what people ask: statements drawn independently. Where a few programs
repeat theirs, statements are less independent than that, and the true intervals wider.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import betaincinv

from layoutopt.model.arrays import Floats

CONFIDENCE = 0.95
"""How surely an interval holds what it is of."""

RESAMPLES = 400


class Interval(NamedTuple):
    """From a lower to an upper bound."""

    low: float
    high: float


def share_interval(part: float, whole: float, confidence: float = CONFIDENCE) -> Interval:
    """The interval of a share, of which a sample of ``whole`` has ``part`` (Clopper and Pearson 1934).

    It holds the true share at least as surely as ``confidence`` says, for small samples and shares of 0 and 1 too.

    Args:
        part: at most ``whole``; weights of statements may make it no whole number.
        whole: the sample's size, not negative. Of an empty one nothing is known.
        confidence: within 0 and 1.

    >>> [round(bound, 3) for bound in share_interval(0, 100)], share_interval(0, 0)
    ([0.0, 0.036], Interval(low=0.0, high=1.0))
    """
    tail = (1 - confidence) / 2
    low = float(betaincinv(part, whole - part + 1, tail)) if part > 0 else 0.0
    high = float(betaincinv(part + 1, whole - part, 1 - tail)) if part < whole else 1.0
    return Interval(low, high)


def ratio_interval(
    over: Floats, under: Floats, weights: Floats, seed: int = 0, confidence: float = CONFIDENCE
) -> Interval:
    """The interval of a ratio of two sums over a log's statements, by resampling them (the bootstrap).

    Args:
        over: what is summed above, of each kind of statement, ``float64[n]``.
        under: what is summed below, ``float64[n]``; resamples in which it is 0 tell nothing.
        weights: how many statements of the sample are of each kind, ``float64[n]``, positive.
        seed: of the draws.
        confidence: within 0 and 1.
    """
    draws = np.random.default_rng(seed).multinomial(
        max(1, round(float(weights.sum()))), weights / weights.sum(), size=RESAMPLES
    )
    below = draws @ under
    told = below > 0
    if not told.any():
        return Interval(0.0, 0.0)
    ratios = (draws @ over)[told] / below[told]
    tail = (1 - confidence) / 2
    low, high = np.quantile(ratios, [tail, 1 - tail])
    return Interval(float(low), float(high))
