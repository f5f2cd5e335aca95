"""One table under one policy, day by day: queries by day, what the policy writes anew by night."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from layoutopt.bench.drift.layouts import Layouts
from layoutopt.bench.drift.streams import DAYS, LATE_DAYS, LATE_SHARE, OLD_PARTITIONS, Families, mixes
from layoutopt.maintenance.rewrite_policy import best_half_life
from layoutopt.model.arrays import Floats, Ints

PARTITIONS = OLD_PARTITIONS + DAYS - 1
ARRIVES = np.maximum(0, np.arange(PARTITIONS) - OLD_PARTITIONS + 1)
"""The first day on which a partition is there, ``int64[partitions]``; all have one byte, the unit of all costs."""


@dataclass(frozen=True, eq=False)
class World:
    """What all policies have in common.

    Attributes:
        families: of queries.
        layouts: that plans give.
        first: the layout in which all partitions lie at first, planned for what was asked before the first day.
    """

    families: Families
    layouts: Layouts
    first: int

    @classmethod
    def drawn(cls, seed: int) -> World:
        """A world at random."""
        families = Families.drawn(seed)
        layouts = Layouts(families, seed)
        return cls(families, layouts, layouts.plan(mixes()[0]))


@dataclass(eq=False)
class Run:
    """What has become of a table so far.

    Attributes:
        world: where it is.
        mixes: what was asked on each day, ``float64[families]`` each.
        loads: of each day, ``float64[partitions, types]`` each.
        late: the share of late rows, still apart, of each partition on each day, ``float64[partitions]`` each.
        layout: of each partition, ``int64[partitions]``.
        since: the first day on which each partition is read as it is now, ``int64[partitions]``.
        plan: the layout of partitions to come.
        read: by queries so far.
        written: anew so far.
    """

    world: World
    layout: Ints
    since: Ints
    plan: int
    mixes: list[Floats] = field(default_factory=list)
    loads: list[Floats] = field(default_factory=list)
    late: list[Floats] = field(default_factory=list)
    read: float = 0.0
    written: float = 0.0
    _half_life: tuple[int, float] = (0, 1.0)

    @property
    def ages(self) -> Ints:
        """The ages of partitions on the day to come, negative where they come later, ``int64[partitions]``."""
        return self.day - ARRIVES + np.maximum(0, OLD_PARTITIONS - np.arange(PARTITIONS))

    @classmethod
    def begin(cls, world: World) -> Run:
        """A table before the first day."""
        return cls(world, np.full(PARTITIONS, world.first), ARRIVES.copy(), world.first)

    @property
    def day(self) -> int:
        """The number of the day to come."""
        return len(self.mixes)

    def ask(self, mix: Floats) -> None:
        """Let a day pass on which a mix of families is asked."""
        self.layout[self.day == ARRIVES] = self.plan if self.day else self.world.first
        ages = self.ages
        loads = self.world.families.loads(mix, ages)
        late = self.late[-1].copy() if self.late else np.zeros(PARTITIONS)
        late[self.since == self.day] = 0.0
        late[(ages >= 1) & (ages <= LATE_DAYS)] += LATE_SHARE
        self.read += float((loads * self.world.layouts.matrix[self.layout]).sum() + loads.sum(axis=1) @ late)
        self.mixes.append(mix)
        self.loads.append(loads)
        self.late.append(late)

    def write(self, chosen: Ints, layout: int) -> None:
        """Write partitions anew by night, their late rows among the others."""
        self.layout[chosen] = layout
        self.since[chosen] = self.day
        self.written += float(len(chosen))

    @property
    def half_life(self) -> float:
        """The half-life, in days, by which the days so far foretold each other best."""
        if self._half_life[0] != self.day:
            self._half_life = self.day, best_half_life(np.stack(self.mixes))
        return self._half_life[1]

    def recent(self, half_life: float) -> Floats:
        """The mix of the days before, each weighing half as much after a half-life, ``float64[families]``."""
        weights = 0.5 ** (np.arange(len(self.mixes))[::-1] / half_life)
        return np.asarray(weights @ np.stack(self.mixes) / weights.sum())

    def differences(self, layout: int) -> Floats:
        """What each partition read more on each day than it would have in a layout, ``float64[days, partitions]``.

        Days before a partition was written as it is don't count.
        """
        reads = self.world.layouts.matrix
        more = np.stack(self.loads) * (reads[self.layout] - reads[layout])
        late = np.stack(self.loads).sum(axis=2) * np.stack(self.late)
        counts = np.arange(self.day)[:, None] >= self.since
        return np.asarray((more.sum(axis=2) + late) * counts)


Asked = Callable[[Run], Floats]
"""What is asked on the day to come, ``float64[families]``; an adversary looks at the table before."""


class Policy(Protocol):
    """What is done by night."""

    def __call__(self, run: Run, price: float) -> None:
        """Write partitions anew, or not.

        Args:
            run: the table, and all days so far.
            price: what writing a byte costs, in bytes read.
        """


def simulate(world: World, asked: Asked, policy: Policy, price: float) -> Run:
    """All days under a policy."""
    run = Run.begin(world)
    for _ in range(DAYS):
        run.ask(asked(run))
        if run.day < DAYS:
            policy(run, price)
    return run
