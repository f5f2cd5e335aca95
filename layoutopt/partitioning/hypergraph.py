"""Balanced hypergraph partitioning as a seed: vertices are vectors, nets the queries that match them.

The connectivity metric counts the blocks that each net touches, which are those that the query reads. The partitioner
is Mt-KaHyPar, from the optional package ``mtkahypar`` (the extra ``hypergraph``), with its deterministic preset.
"""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache
from typing import Any

import numpy as np

from layoutopt.model.arrays import Floats, Ints
from layoutopt.partitioning.derived import Derived

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
