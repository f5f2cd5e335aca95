"""When to write a partition anew: a rule that is good where the future is like the past, and bounded where it is not.

There are two choices for a partition, to leave it as it is or to write it anew, and with each day the queries tell what
the one would have read more than the other. Nobody knows how long that lasts: it is the ski-rental problem, and over
many changes a metrical task system of two states (Borodin, Linial and Saks 1992), which OReO (Rong et al. 2024)
uses for layouts. The rule counts what was lost since the partition was written. It acts once that comes to a part of
what writing costs, if more is expected to be saved within the horizon than writing costs; without such an expectation
it waits until more was lost than the cost.

Whatever is asked, and whoever asks it, :meth:`Rule.bound` says how many times as much the rule costs at most as the
best that could have been done by somebody who knew all days before. That is proved beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from layoutopt.model.arrays import Floats


@dataclass(frozen=True)
class Loss:
    """What was lost by leaving a partition as it is, since it was written; all in the units of the cost.

    Attributes:
        counted: what its queries read more than they would have if it were written anew, less what they read less.
            It is kept within the cost on either side: what it was good for long ago is no reason to keep it.
        overdue: what was lost more than that, on days when the count stood at the cost.
    """

    counted: float = 0.0
    overdue: float = 0.0

    @property
    def total(self) -> float:
        """What was lost, within the cost and beyond it."""
        return self.counted + self.overdue

    def after(self, difference: float, cost: float) -> Loss:
        """The loss one day later.

        Args:
            difference: what the day's queries read more than they would have if the partition were written anew.
            cost: of writing it, positive.
        """
        total = self.counted + difference
        return Loss(min(cost, max(-cost, total)), self.overdue + max(0.0, total - cost))


@dataclass(frozen=True)
class Rule:
    """When to act.

    Attributes:
        trust: the share of the cost that must have been lost where the saving expected exceeds the cost; within 0
            and 1. The less, the sooner the rule follows what the days before say of those to come.
        patience: how many times the cost may be lost beyond the cost where no such saving is expected.
    """

    trust: float = 1.0
    patience: float = 1.0

    def acts(self, loss: Loss, cost: float, expected: float) -> bool:
        """Whether to write the partition anew now.

        Args:
            loss: since it was written.
            cost: of writing it, positive.
            expected: what is expected to be saved within the horizon.
        """
        if expected > cost:
            return loss.counted >= self.trust * cost
        return loss.overdue >= max(self.patience * cost, _NOTHING)

    def bound(self, step: float = 0.0) -> float:
        """How many times the best in hindsight the rule costs at most, but for a constant number of costs.

        Between two acts the queries lose S, at least ``trust`` of the cost C, and at most ``patience`` C + C and a day
        beyond it; then C is paid. All of what is lost up to C raises the least cost at which either state can be
        reached, of which the best in hindsight has at least half. So it pays S / 2 where the rule pays
        S + (1 + patience + step) C, which is the most where S is ``trust`` C.

        Args:
            step: the most that one day can lose, in times the cost: a rule that is asked each night comes so late.
        """
        return 2 + 2 * (1 + self.patience + step) / self.trust


_NOTHING = 1e-12


def loss_of(differences: Iterable[float], cost: float) -> Loss:
    """What was lost over some days, the oldest first.

    >>> loss_of([0.4, 0.3, -0.2], cost=1.0).counted, loss_of([0.8, 0.7], cost=1.0)
    (0.49999999999999994, Loss(counted=1.0, overdue=0.5))
    """
    loss = Loss()
    for difference in differences:
        loss = loss.after(difference, cost)
    return loss


# ----------------------------------------------------------------------------------------------------
# How fast a workload changes: the half-life by which the days before tell most of the day to come.

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
    return max(half_life for half_life, error in zip(HALF_LIVES, wrong, strict=True) if error <= least + _NO_HALF_LIFE)


_NO_HALF_LIFE: Final = 1e-9


def _errors(mixes: Floats, half_life: float) -> Floats:
    """How wrong each day but the first was foretold, ``float64[days - 1]``, each within 0 and 1."""
    keep = 0.5 ** (1 / half_life)
    sums, weight = np.zeros(mixes.shape[1]), 0.0
    errors = np.zeros(max(0, len(mixes) - 1))
    for day in range(len(mixes) - 1):
        sums, weight = keep * sums + mixes[day], keep * weight + 1
        errors[day] = np.abs(sums / weight - mixes[day + 1]).sum() / 2
    return errors
