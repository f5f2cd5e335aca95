"""Run several partitioners, each followed by a local search, and take the best; never worse than Ward's method.

Seeds are Ward's method by Equation 3.1 and by the exact objective, and qd-trees whose leaves Ward's method joins. Every
seed has at most as many blocks as Ward's, so smaller blocks are no advantage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from layoutopt.model.arrays import Floats
from layoutopt.model.vectors import VectorCounts
from layoutopt.partitioning.block_sizes import add_heavy_blocks
from layoutopt.partitioning.local_search import State, fit_sizes, improve, join_leaves, search_neighbourhoods
from layoutopt.partitioning.objective import DerivedObjective, FeatureObjective, Objective, Partition, derive
from layoutopt.partitioning.qdtree import cut_greedily
from layoutopt.partitioning.ward import ward, ward_over_bits

Effort = Literal["low", "default", "high"]


@dataclass(frozen=True)
class SearchEffort:
    """The work of a portfolio, in counts, so it is equal on any machine.

    Attributes:
        passes: of the local search in each seed.
        trials: large neighbourhoods rebuilt in each seed.
        leaf_shares: the smallest leaves of the qd-trees whose leaves are joined, as shares of ``min_rows``.
        rounds: large neighbourhoods rebuilt in the best seed.
        improved: how many of the seeds are improved, the best first.
    """

    passes: int
    trials: int
    leaf_shares: tuple[float, ...]
    rounds: int
    improved: int


EFFORTS: Mapping[Effort, SearchEffort] = MappingProxyType(
    {
        "low": SearchEffort(passes=4, trials=0, leaf_shares=(0.25,), rounds=40, improved=3),
        "default": SearchEffort(passes=8, trials=60, leaf_shares=(0.25,), rounds=200, improved=3),
        "high": SearchEffort(passes=20, trials=200, leaf_shares=(0.5, 0.25, 0.1), rounds=1_000, improved=8),
    }
)


def portfolio(
    vectors: VectorCounts,
    weights: Floats,
    min_rows: int,
    seed: int,
    objective: Objective | None = None,
    effort: Effort = "default",
) -> Partition:
    """Return the best of the portfolio; a :class:`layoutopt.partitioning.partitioner.Partitioner`."""
    work = EFFORTS[effort]
    first = ward(vectors, weights, min_rows, seed)
    if first.n_blocks <= 1:
        return first
    derived = derive(objective or FeatureObjective.of(weights, vectors.rows), vectors)
    best, cost = first, derived.cost(first)
    starts = [
        (number, state)
        for number, start in enumerate(_make_seeds(first, vectors, derived, min_rows, work))
        if fit_sizes(state := State(start, derived, min_rows), first.n_blocks)
    ]
    for number, state in sorted(starts, key=lambda start: start[1].cost)[: work.improved]:
        rng = np.random.default_rng((seed, number))
        improve(state, rng, work.passes)
        search_neighbourhoods(state, rng, work.trials)
        if state.sizes_allowed() and state.cost < cost:
            best, cost = state.partition(), state.cost
    state = State(best, derived, min_rows)
    search_neighbourhoods(state, np.random.default_rng((seed, work.rounds)), work.rounds)
    return state.partition()


def _make_seeds(
    first: Partition, vectors: VectorCounts, derived: DerivedObjective, min_rows: int, work: SearchEffort
) -> Iterator[Partition]:
    counts = vectors.counts
    yield first
    yield ward_over_bits(counts, derived.bits, derived.weights, min_rows)
    light = np.flatnonzero(counts < min_rows)
    light_derived = derived.select(light)
    for share in work.leaf_shares:
        leaves = cut_greedily(light_derived, vectors.bits()[light], counts[light], max(1, round(share * min_rows)))
        labels = join_leaves(leaves, light_derived, counts[light], min_rows)
        yield add_heavy_blocks(counts, labels, derived.bits, derived.weights, min_rows)
