"""The policies that are compared: never, always, by a threshold, by our rule; and the best in hindsight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np

from layoutopt.bench.drift.simulation import ARRIVES, PARTITIONS, Policy, Run
from layoutopt.bench.drift.streams import DAYS, LATE_DAYS, LATE_SHARE, OLD_PARTITIONS
from layoutopt.maintenance.rewrite_policy import Loss, Rule, loss_of
from layoutopt.model.arrays import Floats, Ints


def never(run: Run, price: float) -> None:
    """Load partitions once, by the first plan."""


def always(run: Run, price: float) -> None:
    """Plan anew and write everything anew, each night."""
    _write_all(run, _fresh(run))


@dataclass(frozen=True)
class Threshold:
    """Write everything anew once the day's queries read more, by this share of all rows, than by a fresh plan."""

    most: float = 0.1

    def __call__(self, run: Run, price: float) -> None:
        """Compare the newest plan with a fresh one."""
        fresh = _fresh(run)
        types = run.loads[-1].sum(axis=0)
        now, best = run.world.layouts.matrix[[run.plan, fresh]] @ types / types.sum()
        if now > best + self.most:
            _write_all(run, fresh)


@dataclass(frozen=True)
class Ours:
    """Replan each night; rewrite the partitions that :class:`~layoutopt.maintenance.rewrite_policy.Rule` names.

    Attributes:
        rule: when to act.
        horizon: days within which what is saved has to exceed what writing costs.
    """

    rule: Rule = field(default_factory=Rule)
    horizon: float = 7.0

    def __call__(self, run: Run, price: float) -> None:
        """Decide for each partition by what its queries lost since it was written."""
        fresh = _fresh(run)
        differences = run.differences(fresh)
        weights = 0.5 ** (np.arange(run.day)[::-1] / run.half_life)
        expected = weights @ differences / weights.sum() * self.horizon
        chosen = [
            partition
            for partition in np.flatnonzero(run.day > ARRIVES).tolist()
            if self.rule.acts(_lost(run, differences, partition, price), price, float(expected[partition]))
        ]
        if chosen:
            run.plan = fresh
            run.write(np.array(chosen), fresh)


POLICIES: Final[Mapping[str, Policy]] = MappingProxyType(
    {"never": never, "always": always, "threshold": Threshold(), "ours": Ours()}
)


def _fresh(run: Run) -> int:
    """The layout of a plan for the days before, by the half-life that foretold them best."""
    return run.world.layouts.plan(run.recent(run.half_life))


def _lost(run: Run, differences: Floats, partition: int, price: float) -> Loss:
    """What was lost by a partition since it was written."""
    return loss_of(differences[run.since[partition] :, partition].tolist(), price)


def _write_all(run: Run, layout: int) -> None:
    run.plan = layout
    run.write(np.flatnonzero(run.day > ARRIVES), layout)


def cheapest(run: Run, price: float) -> float:
    """What the best costs that knows all days before, over all layouts that any policy has made (the oracle).

    Each partition is a shortest path of its own: over the nights on which it is written anew, each time into the layout
    that suits the days up to the next. A partition that arrives is written once for nothing, into any layout; those
    that were there before lie in the first one.

    Args:
        run: all days, under whatever policy: only what was asked counts.
        price: what writing a byte costs, in bytes read.
    """
    reads = run.world.layouts.matrix
    total = 0.0
    for partition in range(PARTITIONS):
        loads = np.stack([of[partition] for of in run.loads])
        by_layout = np.concatenate([np.zeros((1, len(reads))), np.cumsum(loads @ reads.T, axis=0)])
        total += _shortest(by_layout, _late(loads.sum(axis=1), partition), price, int(ARRIVES[partition]), run)
    return total


def _shortest(by_layout: Floats, late: Floats, price: float, first: int, run: Run) -> float:
    """The cheapest way through a partition's days.

    Args:
        by_layout: what was read before each day in each layout, ``float64[days + 1, layouts]``.
        late: what late rows cost from one day to before another, ``float64[days + 1, days + 1]``.
        price: of writing it.
        first: its first day.
        run: says where it lies on the first of all days.
    """
    best = np.full(DAYS + 1, np.inf)
    best[first] = 0.0
    was_there = first == 0
    for end in range(first + 1, DAYS + 1):
        starts = np.arange(first, end)
        reads = (by_layout[end] - by_layout[starts]).min(axis=1)
        paid = np.where((starts > first) | was_there, price, 0.0)
        best[end] = (best[starts] + paid + reads + late[starts, end]).min()
        if was_there:
            stays = float(by_layout[end, run.world.first] - by_layout[0, run.world.first] + late[0, end])
            best[end] = min(best[end], stays)
    return float(best[DAYS])


def _late(asked: Floats, partition: int) -> Floats:
    """What late rows cost that come from one day on and are joined before another, ``float64[days + 1, days + 1]``."""
    ages = _ages(partition)
    comes = np.where((ages >= 1) & (ages <= LATE_DAYS), LATE_SHARE, 0.0)
    apart = np.concatenate([[0.0], np.cumsum(comes)])  # that have come before each day
    found = np.zeros((DAYS + 1, DAYS + 1))
    for start in range(DAYS):
        found[start, start + 1 :] = np.cumsum(asked[start:] * (apart[start + 1 :] - apart[start]))
    return found


def _ages(partition: int) -> Ints:
    ages: Ints = np.arange(DAYS) - ARRIVES[partition] + max(0, OLD_PARTITIONS - partition)
    return ages
