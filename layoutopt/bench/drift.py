"""`layoutopt bench drift`: what rewrite policies cost under each kind of drift, beside the best in hindsight.

A table is simulated for sixty days: queries by day, what a policy rewrites by night. Queries come in families whose mix
changes. What they read of a partition is measured on a sample of rows, which the product's partitioner puts into blocks
by a plan for some mix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
from rich.table import Table

from layoutopt.bench.plots import plot_file
from layoutopt.bench.steps import Say
from layoutopt.maintenance.rewrite_policy import RewriteRule, find_half_life, sum_losses
from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.model.vectors import VectorCounts, distinct, pack
from layoutopt.partitioning.objective import FeatureObjective, assign_rows
from layoutopt.partitioning.registry import DEFAULT, find_partitioner

DAYS: Final = 60

# A partition a day had arrived before the first day; one more arrives on each day after it.
OLD_PARTITIONS: Final = 30
PARTITIONS: Final = OLD_PARTITIONS + DAYS - 1

# The first day on which a partition is there, ``int64[partitions]``. Each has one byte, the unit of all costs.
ARRIVES: Final = np.maximum(0, np.arange(PARTITIONS) - OLD_PARTITIONS + 1)

FAMILIES: Final = 16

# A family's queries differ in a constant; each constant makes a type of queries.
CONSTANTS: Final = 4
QUERIES_A_DAY: Final = 300.0

# The share of a partition's rows that comes late on each of so many days after its own.
LATE_SHARE: Final = 0.003
LATE_DAYS: Final = 7

ROWS: Final = 6_000
BLOCK_ROWS: Final = 60

# Features that guide a plan's blocks, the heaviest; all are measured.
GUIDES: Final = 24
_ATTRIBUTES: Final = 8
_VALUES: Final = 24

# What writing a byte costs, in bytes read (alpha).
PRICES: Final = (0.1, 0.3, 1.0, 3.0, 10.0)

# What a rewrite by threshold waits for, as a share of all rows.
THRESHOLD: Final = 0.1

# Days within which the saving of a rewrite has to exceed the cost of writing.
HORIZON: Final = 7.0
OURS: Final = "ours"
ADVERSARIAL: Final = "adversarial"


@dataclass(frozen=True, eq=False)
class Families:
    """Families of queries.

    Attributes:
        of_type: the family of each type of queries, ``int64[types]``.
        shares: of a type in its family, ``float64[types]``.
        days_back: how many of the newest partitions a family's queries read, ``int64[families]``.
        columns: the share of a partition's bytes that are of the columns that they read, ``float64[families]``.
    """

    of_type: Ints
    shares: Floats
    days_back: Ints
    columns: Floats

    @classmethod
    def drawn(cls, seed: int) -> Families:
        """Draw families."""
        rng = np.random.default_rng(seed)
        skewed = 1.0 / np.arange(1, CONSTANTS + 1)
        return cls(
            np.repeat(np.arange(FAMILIES), CONSTANTS),
            np.tile(skewed / skewed.sum(), FAMILIES),
            rng.choice([2, 7, 30, DAYS + OLD_PARTITIONS], FAMILIES, p=[0.2, 0.3, 0.3, 0.2]),
            rng.uniform(0.1, 0.5, FAMILIES),
        )

    def loads(self, mix: Floats, ages: Ints) -> Floats:
        """Return the load of each partition on a day, in full scans of the partition, ``float64[partitions, types]``.

        Args:
            mix: of the families, ``float64[families]``.
            ages: of the partitions in days, ``int64[partitions]``; negative where it has not come yet.
        """
        reached = (ages[:, None] >= 0) & (ages[:, None] < self.days_back[None, :])
        by_family = QUERIES_A_DAY * mix * self.columns * reached
        return np.asarray(by_family[:, self.of_type] * self.shares)


def mixes() -> Floats:
    """Return four mixes of eight families, of which neighbours share a half, ``float64[4, families]``."""
    weights_of = np.zeros((4, FAMILIES))
    for number in range(4):
        weights = 1.0 / np.arange(1, FAMILIES // 2 + 1) ** 0.5
        weights_of[number, (4 * number + np.arange(FAMILIES // 2)) % FAMILIES] = weights / weights.sum()
    return weights_of


def _abrupt() -> Floats:
    """Replace half of the families overnight, twice."""
    return np.asarray(mixes()[np.repeat([0, 1, 2], DAYS // 3)])


def _gradual() -> Floats:
    """Replace all families little by little, over forty days."""
    first, _, last, _ = mixes()
    share = np.clip((np.arange(DAYS) - 10) / 40, 0, 1)[:, None]
    return np.asarray((1 - share) * first + share * last)


def _seasonal() -> Floats:
    """Replace half of the families in the last ten days of each month."""
    return np.asarray(mixes()[np.where(np.arange(DAYS) % 30 < 20, 0, 1)])


# The mix of each day by kind of drift, ``float64[days, families]``; an adversary's mixes depend on the policy.
STREAMS: Final[Mapping[str, Floats]] = {"abrupt": _abrupt(), "gradual": _gradual(), "seasonal": _seasonal()}


class Layouts:
    """The layouts of plans for different mixes, each made once.

    Attributes:
        bits: whether a row of the sample meets the filter of each type of queries, ``bool[rows, types]``.
        reads: what each type reads of a partition in each layout so far, a share of the bytes of its columns.
    """

    def __init__(self, families: Families, seed: int) -> None:
        self._families, self._seed = families, seed
        self.bits = _rows(seed)
        self.reads: list[Floats] = []
        self._known: dict[bytes, int] = {}

    def plan(self, mix: Floats) -> int:
        """Return the number of the layout for a mix of families, ``float64[families]``: its place in ``reads``."""
        of_type = self._families.of_type
        weights = np.round(mix[of_type] * self._families.columns[of_type], 6) * self._families.shares
        key = weights.tobytes()
        if key not in self._known:
            self._known[key] = len(self.reads)
            self.reads.append(self._read_by(weights))
        return self._known[key]

    @property
    def matrix(self) -> Floats:
        """The reads of all layouts so far, ``float64[layouts, types]``."""
        return np.stack(self.reads)

    @cached_property
    def matching(self) -> Floats:
        """The share of rows that each type matches, ``float64[types]``; no layout reads less."""
        return np.asarray(self.bits.mean(axis=0))

    def _read_by(self, weights: Floats) -> Floats:
        worth = weights * (1 - self.matching)
        guides = np.sort(np.argsort(-worth, kind="stable")[:GUIDES])
        words, of_row, counts = distinct(pack(self.bits[:, guides]))
        vectors = VectorCounts(words, counts, GUIDES)
        objective = FeatureObjective.of(weights[guides], ROWS)
        partition = find_partitioner(DEFAULT)(vectors, weights[guides], BLOCK_ROWS, self._seed, objective)
        block = assign_rows(partition, of_row)
        by_block = np.argsort(block, kind="stable")
        sizes = partition.sizes()
        unions = np.logical_or.reduceat(self.bits[by_block], np.concatenate([[0], np.cumsum(sizes)[:-1]]))
        return np.asarray(sizes @ unions / ROWS)


def _rows(seed: int) -> Bits:
    """Draw rows with skewed, partly correlated attributes; a family filters by a value of one or two of them."""
    rng = np.random.default_rng(seed)
    base = rng.zipf(1.3, (ROWS, _ATTRIBUTES)) % _VALUES
    bits = np.zeros((ROWS, FAMILIES * CONSTANTS), dtype=np.bool_)
    for family in range(FAMILIES):
        first, second = rng.choice(_ATTRIBUTES, 2, replace=False)
        for constant in range(CONSTANTS):
            met = base[:, first] == (family + constant) % 12 + 1
            if family % 3 == 0:
                met &= base[:, second] < 8
            bits[:, family * CONSTANTS + constant] = met
    return bits


@dataclass(frozen=True, eq=False)
class World:
    """What all policies have in common: families, layouts, and the number of the first layout of all partitions."""

    families: Families
    layouts: Layouts
    first: int

    @classmethod
    def drawn(cls, seed: int) -> World:
        """Draw a world."""
        families = Families.drawn(seed)
        layouts = Layouts(families, seed)
        return cls(families, layouts, layouts.plan(mixes()[0]))


@dataclass(eq=False)
class Run:
    """The history of a table so far.

    Attributes:
        world: the families and layouts.
        mixes: of each day, ``float64[families]`` each.
        loads: of each day, ``float64[partitions, types]`` each.
        late: the share of late rows, not yet rewritten, of each partition on each day, ``float64[partitions]`` each.
        layout: of each partition, ``int64[partitions]``.
        since: the first day of each partition in its present layout, ``int64[partitions]``.
        plan: the layout of partitions to come.
        read, written: bytes read by queries, and rewritten, so far.
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
        """Return a table before the first day."""
        return cls(world, np.full(PARTITIONS, world.first), ARRIVES.copy(), world.first)

    @property
    def day(self) -> int:
        """The number of the day to come."""
        return len(self.mixes)

    def pass_day(self, mix: Floats) -> None:
        """Let a day pass with a mix of families."""
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

    def rewrite(self, chosen: Ints, layout: int) -> None:
        """Rewrite partitions by night, with their late rows."""
        self.layout[chosen] = layout
        self.since[chosen] = self.day
        self.written += float(len(chosen))

    @property
    def half_life(self) -> float:
        """The half-life, in days, by which the days so far predicted each other best."""
        if self._half_life[0] != self.day:
            self._half_life = self.day, find_half_life(np.stack(self.mixes))
        return self._half_life[1]

    def recent(self, half_life: float) -> Floats:
        """Return the mix of the days before, which weigh half as much after a half-life, ``float64[families]``."""
        weights = 0.5 ** (np.arange(len(self.mixes))[::-1] / half_life)
        return np.asarray(weights @ np.stack(self.mixes) / weights.sum())

    def differences(self, layout: int) -> Floats:
        """Return what each partition read more on each day than in a layout, ``float64[days, partitions]``.

        Days before a partition was written as it is don't count.
        """
        reads = self.world.layouts.matrix
        more = np.stack(self.loads) * (reads[self.layout] - reads[layout])
        late = np.stack(self.loads).sum(axis=2) * np.stack(self.late)
        counts = np.arange(self.day)[:, None] >= self.since
        return np.asarray((more.sum(axis=2) + late) * counts)


# Gives the mix of the day to come, ``float64[families]``; an adversary looks at the table before.
MixOfDay = Callable[[Run], Floats]

# Rewrites partitions of a table by night, or none, given what writing a byte costs, in bytes read.
Policy = Callable[[Run, float], None]


def simulate(world: World, mix_of_day: MixOfDay, policy: Policy, price: float) -> Run:
    """Return the history of all days under a policy."""
    run = Run.begin(world)
    for _ in range(DAYS):
        run.pass_day(mix_of_day(run))
        if run.day < DAYS:
            policy(run, price)
    return run


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
    """Replan each night; rewrite what :class:`~layoutopt.maintenance.rewrite_policy.RewriteRule` names."""
    fresh, rule = _fresh(run), RewriteRule()
    differences = run.differences(fresh)
    weights = 0.5 ** (np.arange(run.day)[::-1] / run.half_life)
    expected = weights @ differences / weights.sum() * HORIZON

    def acts(partition: int) -> bool:
        loss = sum_losses(differences[run.since[partition] :, partition].tolist(), price)
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
    streams: Sequence[str] = (*STREAMS, ADVERSARIAL),
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
