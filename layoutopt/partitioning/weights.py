"""Floats as integers, so that losses are exact in floating point and ties are ties on every machine."""

from __future__ import annotations

import math

import numpy as np

from layoutopt.model.arrays import Floats

# Sums of integers below 2**24 are exact in float32, in whatever order BLAS adds them.
_LARGEST_TOTAL_BITS = 23
# A loss is at most 2 * rows * total, and must stay below 2**53 to be exact in float64.
_LARGEST_LOSS_BITS = 52


def integer_weights(weights: Floats, rows: int) -> Floats:
    """The weights times one power of two, rounded to integers, the largest that keeps losses exact.

    Counts of queries and binary fractions of them keep their ratios exactly; others to about one in eight million of
    the total. What is positive stays positive.

    Args:
        weights: not negative, ``float64[f]``.
        rows: how many rows are partitioned together.

    Returns:
        Integers as ``float64[f]``. Sums of them are exact in float32, and times ``2 * rows`` in float64.

    >>> integer_weights(np.array([1.0, 0.5, 0.0]), rows=4).tolist()
    [4194304.0, 2097152.0, 0.0]
    """
    exact: Floats = np.rint(np.ldexp(weights, exponent_of(weights, rows)))
    return np.where((weights > 0) & (exact == 0), 1.0, exact)


def exponent_of(weights: Floats, rows: int) -> int:
    """The power of two that :func:`integer_weights` multiplies with.

    >>> exponent_of(np.array([1.0, 0.5, 0.0]), rows=4)
    22
    """
    bits = min(_LARGEST_TOTAL_BITS, _LARGEST_LOSS_BITS - math.ceil(math.log2(max(rows, 1))))
    return bits - math.frexp(float(weights.sum()))[1]
