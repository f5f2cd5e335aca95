"""`layoutopt bench drift`: what each policy costs under each kind of drift, beside the best in hindsight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from layoutopt.bench.drift.policies import POLICIES, cheapest
from layoutopt.bench.drift.simulation import ARRIVES, Asked, Run, World, simulate
from layoutopt.bench.drift.streams import STREAMS, mixes
from layoutopt.model.arrays import Floats

PRICES: Final = (0.1, 0.3, 1.0, 3.0, 10.0)
"""What writing a byte costs, in bytes read (alpha)."""

OURS: Final = "ours"
ADVERSARIAL: Final = "adversarial"
ALL_STREAMS: Final = (*STREAMS, ADVERSARIAL)


@dataclass(frozen=True)
class Figure:
    """What a policy cost in sixty days.

    Attributes:
        stream: the kind of drift.
        price: what writing a byte costs, in bytes read.
        policy: its name.
        read: bytes read by queries, in partitions.
        written: bytes written anew, in partitions.
        best: what the best in hindsight costs, read and written, in partitions.
    """

    stream: str
    price: float
    policy: str
    read: float
    written: float
    best: float

    @property
    def cost(self) -> float:
        """Read and written."""
        return self.read + self.price * self.written

    @property
    def ratio(self) -> float:
        """How many times the best in hindsight."""
        return self.cost / self.best

    def to_json(self) -> dict[str, object]:
        """The figure as JSON."""
        return {**vars(self), "cost": self.cost, "ratio": self.ratio}


def run_drift(
    seed: int = 0,
    prices: Sequence[float] = PRICES,
    streams: Sequence[str] = ALL_STREAMS,
    say: Callable[[str], None] = lambda sentence: None,
) -> list[Figure]:
    """Simulate all policies under all streams; the same seed gives the same figures.

    Args:
        seed: of the rows, the families of queries and the partitioner.
        prices: what writing a byte costs, in bytes read.
        streams: kinds of drift.
        say: told each step.
    """
    world = World.drawn(seed)
    for mix in mixes():  # the best in hindsight knows what nobody has planned yet
        world.layouts.plan(mix)
    found = []
    for price in prices:
        for stream in streams:
            say(f"{stream} drift, a byte written at {price:g} bytes read")
            found += _compared(world, stream, price)
    return found


def _compared(world: World, stream: str, price: float) -> list[Figure]:
    asked = _stream(world, stream, price)
    for mix in np.unique(asked, axis=0):
        world.layouts.plan(mix)
    runs = {name: simulate(world, _by_day(asked), policy, price) for name, policy in POLICIES.items()}
    best = cheapest(runs[OURS], price)
    return [Figure(stream, price, name, run.read, run.written, best) for name, run in runs.items()]


def _stream(world: World, stream: str, price: float) -> Floats:
    """The mixes of all days, ``float64[days, families]``; an adversary's are those that hurt our policy."""
    if stream in STREAMS:
        return STREAMS[stream]
    return np.stack(simulate(world, adversary, POLICIES[OURS], price).mixes)


def _by_day(asked: Floats) -> Asked:
    return lambda run: np.asarray(asked[run.day])


def adversary(run: Run) -> Floats:
    """Whichever mix the table is worst for on the day to come, beside the layout that is best for that mix."""
    reads = run.world.layouts.matrix
    layout = np.where(run.day == ARRIVES, run.plan, run.layout)

    def times_the_best(mix: Floats) -> float:
        loads = run.world.families.loads(mix, run.ages)
        return float((loads * reads[layout]).sum() / (reads @ loads.sum(axis=0)).min())

    return max(mixes(), key=times_the_best)
