"""Decide when to rewrite a partition, by a rule with a bounded cost for every workload.

Each day's queries show how much more they read from a partition than after a rewrite. How long this lasts is unknown:
this is the ski-rental problem, and over many changes a metrical task system of two states (Borodin, Linial and Saks
1992), which OReO (Rong et al. 2024) uses for layouts. The rule counts the loss since the partition was written. If the
expected saving exceeds the cost of writing, it acts once the loss is a given share of that cost. Otherwise it waits
until more was lost than the cost. :meth:`RewriteRule.bound` gives the competitive ratio and its proof.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from layoutopt.model.arrays import Floats

_MIN_LOSS: Final = 1e-12


@dataclass(frozen=True)
class Loss:
    """The loss by not rewriting a partition, since it was written, in the units of the cost.

    Attributes:
        counted: what its queries read more than after a rewrite, minus what they read less; clipped to [-cost, cost],
            so that old savings don't count forever.
        overdue: the loss above that limit.
    """

    counted: float = 0.0
    overdue: float = 0.0

    @property
    def total(self) -> float:
        """Return the whole loss."""
        return self.counted + self.overdue

    def after(self, difference: float, cost: float) -> Loss:
        """Return the loss one day later.

        Args:
            difference: what the day's queries read more than they would after a rewrite.
            cost: the cost of the rewrite, positive.
        """
        total = self.counted + difference
        return Loss(min(cost, max(-cost, total)), self.overdue + max(0.0, total - cost))


@dataclass(frozen=True)
class RewriteRule:
    """The rule when to rewrite.

    Attributes:
        trust: the loss at which to act if the expected saving exceeds the cost, as a share of the cost, 0 to 1; smaller
            values follow forecasts sooner.
        patience: the overdue loss at which to act otherwise, in multiples of the cost.
    """

    trust: float = 1.0
    patience: float = 1.0

    def acts(self, loss: Loss, cost: float, expected: float) -> bool:
        """Return whether to rewrite the partition now.

        Args:
            loss: the loss since it was written.
            cost: the cost of the rewrite, positive.
            expected: the expected saving within the horizon.
        """
        if expected > cost:
            return loss.counted >= self.trust * cost
        return loss.overdue >= max(self.patience * cost, _MIN_LOSS)

    def bound(self, step: float = 0.0) -> float:
        """Return the competitive ratio: the most that the rule costs, relative to the best decisions in hindsight.

        It holds up to a constant number of rewrites. Between two rewrites the queries lose S: at least ``trust`` times
        the cost C, and at most (``patience`` + 1) C plus the last day's loss; then C is paid. The loss up to C raises
        the least cost at which either state can be reached, and the best in hindsight pays at least half of this. So
        the best pays S / 2 while the rule pays at most S + (1 + patience + step) C. The ratio is largest at
        S = ``trust`` C.

        Args:
            step: the largest loss of one day, in multiples of the cost; a rule applied once a day acts that much later.
        """
        return 2 + 2 * (1 + self.patience + step) / self.trust


def sum_losses(differences: Iterable[float], cost: float) -> Loss:
    """Return the loss over some days, oldest first.

    >>> sum_losses([0.4, 0.3, -0.2], cost=1.0).counted, sum_losses([0.8, 0.7], cost=1.0)
    (0.49999999999999994, Loss(counted=1.0, overdue=0.5))
    """
    loss = Loss()
    for difference in differences:
        loss = loss.after(difference, cost)
    return loss


# The half-lives to try, in days.
HALF_LIVES: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
# The half-life, in days, of the weights of forecast errors.
_ERROR_HALF_LIFE: Final = 7.0
_TOLERANCE: Final = 1e-9


def find_half_life(mixes: Floats) -> float:
    """Return the value of :data:`HALF_LIVES` that predicts each day best from the days before.

    The forecast of a day is the mean of the earlier days' mixes, whose weights halve each half-life. Its error is the
    total variation distance. Older errors weigh less, so that a workload that starts to change faster is noticed. Among
    equally good half-lives the longest wins, since it uses more statements.

    Args:
        mixes: each day's shares of the query families, ``float64[days, families]``; each row sums to 1.
    """
    weights = 0.5 ** (np.arange(max(0, len(mixes) - 1))[::-1] / _ERROR_HALF_LIFE)
    errors = [float(weights @ _forecast_errors(mixes, half_life)) for half_life in HALF_LIVES]
    limit = min(errors) + _TOLERANCE
    return max(half_life for half_life, error in zip(HALF_LIVES, errors, strict=True) if error <= limit)


def _forecast_errors(mixes: Floats, half_life: float) -> Floats:
    """Return the error of each day's forecast but the first, ``float64[days - 1]``, within 0 and 1."""
    keep = 0.5 ** (1 / half_life)
    sums, weight = np.zeros(mixes.shape[1]), 0.0
    errors = np.zeros(max(0, len(mixes) - 1))
    for day in range(len(mixes) - 1):
        sums, weight = keep * sums + mixes[day], keep * weight + 1
        errors[day] = np.abs(sums / weight - mixes[day + 1]).sum() / 2
    return errors
