"""Confidence intervals for figures that are measured on a log.

A log is treated as a sample of independent statements of the workload. Where a few programs repeat their statements,
they are less independent, and the true intervals are wider.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import betaincinv

from layoutopt.model.arrays import Floats

# The default probability that an interval contains the true value.
CONFIDENCE = 0.95
RESAMPLES = 400
# Counts that are drawn at a time, which bounds the memory.
_MOST_DRAWN = 1 << 22


class Interval(NamedTuple):
    """An interval from a lower to an upper bound."""

    low: float
    high: float


def share_interval(part: float, whole: float, confidence: float = CONFIDENCE) -> Interval:
    """Return the confidence interval of a share of which ``part`` of ``whole`` was sampled (Clopper and Pearson 1934).

    It contains the true share with at least this confidence, also for small samples and shares of 0 and 1.

    Args:
        part: at most ``whole``; may be fractional, as weights are.
        whole: the sample size, not negative; 0 gives the interval [0, 1].
        confidence: 0 to 1.

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
    """Return the bootstrap confidence interval of a ratio of two sums over a log's statements.

    Args:
        over: the numerator of each kind of statement, ``float64[n]``.
        under: the denominator, ``float64[n]``; resamples in which its sum is 0 are left out.
        weights: the number of statements of each kind, ``float64[n]``, positive.
        confidence: 0 to 1.
    """
    sums = np.stack([over, under], axis=1)
    generator, statements = np.random.default_rng(seed), max(1, round(float(weights.sum())))
    most = max(1, _MOST_DRAWN // max(1, len(weights)))
    parts = [
        generator.multinomial(statements, weights / weights.sum(), size=min(most, RESAMPLES - start)) @ sums
        for start in range(0, RESAMPLES, most)
    ]
    above, below = np.concatenate(parts).T
    valid = below > 0
    if not valid.any():
        return Interval(0.0, 0.0)
    ratios = above[valid] / below[valid]
    tail = (1 - confidence) / 2
    low, high = np.quantile(ratios, [tail, 1 - tail])
    return Interval(float(low), float(high))
