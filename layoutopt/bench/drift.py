"""`layoutopt bench drift`: what rewrite policies cost under each kind of drift, beside the best in hindsight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from rich.table import Table

from layoutopt.bench.drift_simulation import (
    ARRIVES,
    DAYS,
    LATE_DAYS,
    LATE_SHARE,
    OLD_PARTITIONS,
    PARTITIONS,
    STREAMS,
    Policy,
    Run,
    World,
    mixes,
    simulate,
)
from layoutopt.bench.plots import plot_file
from layoutopt.bench.steps import Say
from layoutopt.evolve.when import Rule, loss_of
from layoutopt.model.arrays import Floats

# What writing a byte costs, in bytes read (alpha).
PRICES: Final = (0.1, 0.3, 1.0, 3.0, 10.0)

# What a rewrite by threshold waits for, as a share of all rows.
THRESHOLD: Final = 0.1

# Days within which the saving of a rewrite has to exceed the cost of writing.
HORIZON: Final = 7.0
OURS: Final = "ours"
ADVERSARIAL: Final = "adversarial"
ALL_STREAMS: Final = (*STREAMS, ADVERSARIAL)


def never(run: Run, price: float) -> None:
    """Load partitions once, by the first plan."""


def always(run: Run, price: float) -> None:
    """Replan and rewrite everything each night."""
    _write_all(run, _fresh(run))


def threshold(run: Run, price: float) -> None:
    """Rewrite everything once the day's queries read more than by a fresh plan, by :data:`THRESHOLD` of all rows."""
    fresh = _fresh(run)
    types = run.loads[-1].sum(axis=0)
    now, best = run.world.layouts.matrix[[run.plan, fresh]] @ types / types.sum()
    if now > best + THRESHOLD:
        _write_all(run, fresh)


def rewrite_by_rule(run: Run, price: float) -> None:
    """Replan each night, and rewrite the partitions that :class:`~layoutopt.evolve.when.Rule` chooses."""
    fresh, rule = _fresh(run), Rule()
    differences = run.differences(fresh)
    weights = 0.5 ** (np.arange(run.day)[::-1] / run.half_life)
    expected = weights @ differences / weights.sum() * HORIZON

    def acts(partition: int) -> bool:
        loss = loss_of(differences[run.since[partition] :, partition].tolist(), price)
        return rule.acts(loss, price, float(expected[partition]))

    chosen = [partition for partition in np.flatnonzero(run.day > ARRIVES).tolist() if acts(partition)]
    if chosen:
        run.plan = fresh
        run.rewrite(np.array(chosen), fresh)


POLICIES: Final[Mapping[str, Policy]] = {
    "never": never, "always": always, "threshold": threshold, OURS: rewrite_by_rule,
}  # fmt: skip


def _fresh(run: Run) -> int:
    """Return the layout of a plan for the days before, by the half-life that predicted them best."""
    return run.world.layouts.plan(run.recent(run.half_life))


def _write_all(run: Run, layout: int) -> None:
    run.plan = layout
    run.rewrite(np.flatnonzero(run.day > ARRIVES), layout)


def cheapest(run: Run, price: float) -> float:
    """Return the cost of the oracle, which knows all days, over all layouts that any policy has made.

    Each partition is a shortest path of its own: over the nights on which it is rewritten, each time into the layout
    that suits the days up to the next. A partition that arrives is written once for free, into any layout; those
    that were there before have the first one.

    The policy of the run does not matter: only its queries count.
    """
    reads = run.world.layouts.matrix
    total = 0.0
    for partition in range(PARTITIONS):
        loads = np.stack([of[partition] for of in run.loads])
        by_layout = np.concatenate([np.zeros((1, len(reads))), np.cumsum(loads @ reads.T, axis=0)])
        total += _shortest(by_layout, _late(loads.sum(axis=1), partition), price, int(ARRIVES[partition]), run)
    return total


def _shortest(by_layout: Floats, late: Floats, price: float, first: int, run: Run) -> float:
    """Return the cheapest way through a partition's days.

    Args:
        by_layout: what was read before each day in each layout, ``float64[days + 1, layouts]``.
        late: what late rows cost from one day to before another, ``float64[days + 1, days + 1]``.
        price: of writing it.
        first: its first day.
        run: has the layout on the first of all days.
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


def _late(loads: Floats, partition: int) -> Floats:
    """Return what late rows cost from one day on until a rewrite before another, ``float64[days + 1, days + 1]``."""
    ages = np.arange(DAYS) - ARRIVES[partition] + max(0, OLD_PARTITIONS - partition)
    comes = np.where((ages >= 1) & (ages <= LATE_DAYS), LATE_SHARE, 0.0)
    apart = np.concatenate([[0.0], np.cumsum(comes)])  # that have come before each day
    costs = np.zeros((DAYS + 1, DAYS + 1))
    for start in range(DAYS):
        costs[start, start + 1 :] = np.cumsum(loads[start:] * (apart[start + 1 :] - apart[start]))
    return costs


@dataclass(frozen=True)
class DriftFigure:
    """What a policy cost in sixty days.

    Attributes:
        stream, policy: the kind of drift, and the policy's name.
        price: what writing a byte costs, in bytes read.
        read, written: bytes read by queries and rewritten, in partitions.
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
        """The cost over that of the best in hindsight."""
        return self.cost / self.best

    def to_json(self) -> dict[str, object]:
        """Return the figure as JSON."""
        return {**vars(self), "cost": self.cost, "ratio": self.ratio}


def run_drift(
    seed: int = 0,
    prices: Sequence[float] = PRICES,
    streams: Sequence[str] = ALL_STREAMS,
    say: Say = lambda sentence: None,
) -> list[DriftFigure]:
    """Simulate all policies under all streams at each price; the same seed gives the same figures."""
    world = World.drawn(seed)
    for mix in mixes():  # the best in hindsight may use layouts that no policy has planned yet
        world.layouts.plan(mix)
    figures = []
    for price in prices:
        for stream in streams:
            say(f"{stream} drift, a byte written at {price:g} bytes read")
            figures += _compare(world, stream, price)
    return figures


def _compare(world: World, stream: str, price: float) -> list[DriftFigure]:
    by_day = _mixes_by_day(world, stream, price)
    for mix in np.unique(by_day, axis=0):
        world.layouts.plan(mix)
    runs = {
        name: simulate(world, lambda run: np.asarray(by_day[run.day]), policy, price)
        for name, policy in POLICIES.items()
    }
    best = cheapest(runs[OURS], price)
    return [DriftFigure(stream, price, name, run.read, run.written, best) for name, run in runs.items()]


def _mixes_by_day(world: World, stream: str, price: float) -> Floats:
    """Return the mixes of all days, ``float64[days, families]``; an adversary's are those that hurt our policy."""
    if stream in STREAMS:
        return STREAMS[stream]
    return np.stack(simulate(world, adversary, POLICIES[OURS], price).mixes)


def adversary(run: Run) -> Floats:
    """Return the mix that the table is worst for on the day to come, beside the best layout for that mix."""
    reads = run.world.layouts.matrix
    layout = np.where(run.day == ARRIVES, run.plan, run.layout)

    def times_the_best(mix: Floats) -> float:
        loads = run.world.families.loads(mix, run.ages)
        return float((loads * reads[layout]).sum() / (reads @ loads.sum(axis=0)).min())

    return max(mixes(), key=times_the_best)


def drift_report(figures: Sequence[DriftFigure]) -> Table:
    """Tabulate what each policy costs by stream and price, and altogether, as multiples of the best in hindsight."""
    table = Table(title="bytes read + price x bytes written, over the best in hindsight", title_justify="left")
    table.add_column("drift")
    for name in ("price", *POLICIES, "best: partitions"):
        table.add_column(name, justify="right")
    for stream, price in dict.fromkeys((figure.stream, figure.price) for figure in figures):
        of_both = [figure for figure in figures if (figure.stream, figure.price) == (stream, price)]
        ratios = {figure.policy: f"{figure.ratio:.2f}" for figure in of_both}
        table.add_row(stream, f"{price:g}", *(ratios[name] for name in POLICIES), f"{of_both[0].best:,.0f}")
    totals = total_ratios(figures)
    table.add_row("all together", "", *(f"{totals[name]:.2f}" for name in POLICIES), "")
    return table


def total_ratios(figures: Sequence[DriftFigure]) -> dict[str, float]:
    """Return what each policy costs over all streams and prices, as a multiple of the best in hindsight."""
    best = sum(figure.best for figure in figures) / len(POLICIES)
    return {name: sum(figure.cost for figure in figures if figure.policy == name) / best for name in POLICIES}


def plot_drift(figures: Sequence[DriftFigure], path: Path) -> None:
    """Plot the ratios over the price, one panel for each stream, into an image file."""
    streams = list(dict.fromkeys(figure.stream for figure in figures))
    with plot_file(path, 3.2 * len(streams), 3.2, len(streams)) as panels:
        for axes, stream in zip(panels, streams, strict=True):
            for name in POLICIES:
                of_policy = [figure for figure in figures if (figure.stream, figure.policy) == (stream, name)]
                prices, ratios = ([getattr(each, field) for each in of_policy] for field in ("price", "ratio"))
                axes.plot(prices, ratios, marker="o", label=name)
            axes.set(xscale="log", xlabel="price of a byte written", title=stream)
            axes.spines[["top", "right"]].set_visible(False)
        panels[0].set(ylabel="cost over the best in hindsight")
        panels[0].legend(frameon=False)
