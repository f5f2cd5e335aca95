"""Several partitioners, each followed by a local search: the best by the exact objective, never worse than Ward's.

Ward's method by Equation 3.1, Ward's method by the exact objective, a qd-tree whose leaves Ward's method joins, and
balanced hypergraph partitions make seeds. Clearing blocks of features, moves, exchanges and some large neighbourhoods
improve each of them, then many more neighbourhoods the best.
Every seed has at most as many blocks as Ward's, so that smaller blocks are nobody's advantage.
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
from layoutopt.partitioning.block_sizes import split_heavy, with_heavy
from layoutopt.partitioning.local_search import State, fit, improve, join_leaves, search_neighbourhoods
from layoutopt.partitioning.objective import Derived, FeatureObjective, Objective, Partition, derive
from layoutopt.partitioning.qdtree import cut_greedily
from layoutopt.partitioning.ward import ward, ward_by

# ----------------------------------------------------------------------------------------------------
# Balanced hypergraph partitioning as a seed: vertices are vectors, nets the queries that match them.
#
# The connectivity metric counts the blocks that each net touches, which are those that the query reads. The partitioner
# is Mt-KaHyPar, from the optional package ``mtkahypar`` (the extra ``hypergraph``), with its deterministic preset.

PACKAGE = "mtkahypar"
# Integer weights of nets sum to at most this.
_MOST_WEIGHT = 1_000_000


def has_hypergraphs() -> bool:
    """Whether the optional package is installed."""
    return importlib.util.find_spec(PACKAGE) is not None


def hypergraph_labels(derived: Derived, rows: Ints, n_blocks: int, slack: float, seed: int) -> Ints:
    """A block for each vector, ``int64[n]``, that keeps the vectors of each query together.

    Args:
        derived: the objective, for these vectors: each derived feature of positive weight is a net.
        rows: of each vector, ``int64[n]``.
        n_blocks: how many blocks to make; some may stay empty.
        slack: how much a block's rows may exceed the mean, as a share of it. There is no least size.
        seed: of the partitioner.
    """
    nets = np.flatnonzero((derived.weights > 0) & (derived.bits.sum(axis=0) > 1))
    if n_blocks < 2 or not len(nets) or len(rows) <= n_blocks:
        return np.arange(len(rows), dtype=np.int64) % np.int64(max(n_blocks, 1))
    module, threads = _initialised()
    module.set_seed(seed)
    context = threads.context_from_preset(module.PresetType.DETERMINISTIC)
    context.set_partitioning_parameters(n_blocks, slack, module.Objective.KM1)
    context.logging = False
    pins = [np.flatnonzero(derived.bits[:, net]).tolist() for net in nets]
    graph = threads.create_hypergraph(
        context, len(rows), len(pins), pins, rows.tolist(), _net_weights(derived.weights[nets]).tolist()
    )
    return np.asarray(np.asarray(graph.partition(context).get_partition(), dtype=np.int64))


def _net_weights(weights: Floats) -> Ints:
    return np.asarray(np.maximum(1, np.rint(weights * (_MOST_WEIGHT / weights.sum()))).astype(np.int64))


@cache
def _initialised() -> tuple[Any, Any]:
    """The module, set up once in each process for a single thread: more would not be deterministic."""
    module = importlib.import_module(PACKAGE)
    return module, module.initialize(1, False)


Effort = Literal["low", "default", "high"]


@dataclass(frozen=True)
class Work:
    """How much a portfolio does, by counts: the same on any machine.

    Attributes:
        passes: of the local search in each seed.
        trials: large neighbourhoods looked at in each seed.
        leaf_shares: the smallest leaves of the qd-trees whose leaves are joined, as shares of ``min_rows``.
        slacks: how uneven the hypergraph partitions may be; one partition each.
        rounds: large neighbourhoods looked at in the best.
        improved: how many of the seeds are improved, the best first.
    """

    passes: int
    trials: int
    leaf_shares: tuple[float, ...]
    slacks: tuple[float, ...]
    rounds: int
    improved: int


EFFORTS: Mapping[Effort, Work] = MappingProxyType(
    {
        "low": Work(passes=4, trials=0, leaf_shares=(0.25,), slacks=(), rounds=40, improved=3),
        "default": Work(passes=8, trials=60, leaf_shares=(0.25,), slacks=(), rounds=200, improved=3),
        "high": Work(
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
    """The best of the portfolio; a :class:`layoutopt.partitioning.partitioner.Partitioner`."""
    work = EFFORTS[effort]
    first = ward(vectors, weights, min_rows, seed)
    if first.n_blocks <= 1:
        return first
    derived = derive(objective or FeatureObjective.of(weights, vectors.rows), vectors)
    best, cost = first, derived.cost(first)
    starts = [
        (number, state)
        for number, start in enumerate(_seeds(first, vectors, derived, min_rows, seed, work))
        if fit(state := State(start, derived, min_rows), first.n_blocks)
    ]
    for number, state in sorted(starts, key=lambda numbered: numbered[1].cost)[: work.improved]:
        rng = np.random.default_rng((seed, number))
        improve(state, rng, work.passes)
        search_neighbourhoods(state, rng, work.trials)
        if state.sizes_allowed() and state.cost < cost:
            best, cost = state.partition(), state.cost
    state = State(best, derived, min_rows)
    search_neighbourhoods(state, np.random.default_rng((seed, work.rounds)), work.rounds)
    return state.partition()


def _seeds(
    first: Partition, vectors: VectorCounts, derived: Derived, min_rows: int, seed: int, work: Work
) -> Iterator[Partition]:
    counts = vectors.counts
    yield first
    yield ward_by(counts, derived.bits, derived.weights, min_rows)
    light = np.flatnonzero(counts < min_rows)
    some = derived.of_some(light)
    for share in work.leaf_shares:
        leaves = cut_greedily(some, vectors.bits()[light], counts[light], max(1, round(share * min_rows)))
        labels = join_leaves(leaves, some, counts[light], min_rows)
        yield with_heavy(counts, labels, derived.bits, derived.weights, min_rows)
    if not has_hypergraphs():
        return
    n_blocks = first.n_blocks - split_heavy(counts, min_rows).n_blocks
    for number, slack in enumerate(work.slacks):
        labels = hypergraph_labels(some, counts[light], n_blocks, slack, seed + number)
        yield with_heavy(counts, labels, derived.bits, derived.weights, min_rows)
