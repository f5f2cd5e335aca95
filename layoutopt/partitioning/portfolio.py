"""Run several partitioners, each followed by a local search, and take the best; never worse than Ward's method.

Seeds are Ward's method by Equation 3.1 and by the exact objective, qd-trees whose leaves Ward's method joins, and
balanced hypergraph partitions: vertices are vectors, nets are the queries that match them, and the metric counts the
blocks that each net touches. Hypergraphs need the optional package ``mtkahypar`` (the extra ``hypergraph``), which is
run deterministically. Every seed has at most as many blocks as Ward's, so smaller blocks are no advantage.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from layoutopt.model.arrays import Floats, Ints
from layoutopt.model.vectors import VectorCounts
from layoutopt.partitioning.block_sizes import add_heavy_blocks, split_heavy
from layoutopt.partitioning.local_search import State, fit_sizes, improve, join_leaves, search_neighbourhoods
from layoutopt.partitioning.objective import DerivedObjective, FeatureObjective, Objective, Partition, derive
from layoutopt.partitioning.qdtree import cut_greedily
from layoutopt.partitioning.ward import ward, ward_over_bits

PACKAGE = "mtkahypar"
# Integer weights of nets sum to at most this.
_MAX_NET_WEIGHT = 1_000_000

Effort = Literal["low", "default", "high"]


def has_hypergraphs() -> bool:
    """Return whether the optional package is installed."""
    return importlib.util.find_spec(PACKAGE) is not None


def hypergraph_labels(derived: DerivedObjective, rows: Ints, n_blocks: int, slack: float, seed: int) -> Ints:
    """Return a block for each vector, ``int64[d]``, that keeps the vectors of each query together.

    Each derived feature of positive weight is a net. Some blocks may stay empty. ``slack`` is how much a block's rows
    may exceed the mean, as a share of it.
    """
    nets = np.flatnonzero((derived.weights > 0) & (derived.bits.sum(axis=0) > 1))
    if n_blocks < 2 or not len(nets) or len(rows) <= n_blocks:
        return np.arange(len(rows), dtype=np.int64) % np.int64(max(n_blocks, 1))
    module, threads = _load_package()
    module.set_seed(seed)
    context = threads.context_from_preset(module.PresetType.DETERMINISTIC)
    context.set_partitioning_parameters(n_blocks, slack, module.Objective.KM1)
    context.logging = False
    pins = [np.flatnonzero(derived.bits[:, net]).tolist() for net in nets]
    scale = _MAX_NET_WEIGHT / derived.weights[nets].sum()
    net_weights = np.maximum(1, np.rint(derived.weights[nets] * scale)).astype(np.int64)
    graph = threads.create_hypergraph(context, len(rows), len(pins), pins, rows.tolist(), net_weights.tolist())
    return np.asarray(np.asarray(graph.partition(context).get_partition(), dtype=np.int64))


@cache
def _load_package() -> tuple[Any, Any]:
    """Set up the package once in each process, with one thread: several would not be deterministic."""
    module = importlib.import_module(PACKAGE)
    return module, module.initialize(1, False)


@dataclass(frozen=True)
class SearchEffort:
    """The work of a portfolio, in counts, so it is equal on any machine.

    Attributes:
        passes: of the local search in each seed.
        trials: large neighbourhoods rebuilt in each seed.
        leaf_shares: the smallest leaves of the qd-trees whose leaves are joined, as shares of ``min_rows``.
        slacks: the imbalance of each hypergraph partition.
        rounds: large neighbourhoods rebuilt in the best seed.
        improved: how many of the seeds are improved, the best first.
    """

    passes: int
    trials: int
    leaf_shares: tuple[float, ...]
    slacks: tuple[float, ...]
    rounds: int
    improved: int


EFFORTS: Mapping[Effort, SearchEffort] = MappingProxyType(
    {
        "low": SearchEffort(passes=4, trials=0, leaf_shares=(0.25,), slacks=(), rounds=40, improved=3),
        "default": SearchEffort(passes=8, trials=60, leaf_shares=(0.25,), slacks=(), rounds=200, improved=3),
        "high": SearchEffort(
            passes=20, trials=200, leaf_shares=(0.5, 0.25, 0.1), slacks=(0.1, 0.2, 0.3), rounds=1_000, improved=8
        ),
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
        for number, start in enumerate(_make_seeds(first, vectors, derived, min_rows, seed, work))
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
    first: Partition, vectors: VectorCounts, derived: DerivedObjective, min_rows: int, seed: int, work: SearchEffort
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
    if not has_hypergraphs():
        return
    n_blocks = first.n_blocks - split_heavy(counts, min_rows).n_blocks
    for number, slack in enumerate(work.slacks):
        labels = hypergraph_labels(light_derived, counts[light], n_blocks, slack, seed + number)
        yield add_heavy_blocks(counts, labels, derived.bits, derived.weights, min_rows)
