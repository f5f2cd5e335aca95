"""Local features of a group of columns (Sun 2017, 4.5), and the blocks that they make on a sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layoutopt.features.weights import feature_weights
from layoutopt.model.vectors import VectorCounts, distinct, pack
from layoutopt.partitioning.balance import min_rows_for
from layoutopt.partitioning.partition import Partitioner
from layoutopt.search.problem import Bools, Floats, Ints, Problem, Sample


def local_weights(problem: Problem, served: Bools) -> Floats:
    """The worth of each feature to the queries served, ``float64[samples, features]``.

    The text's weight(G, f) counts each query once for every feature that subsumes it; these are marginal (DESIGN 8).

    Args:
        served: the queries that read the group, W^G, ``bool[queries]``.
    """
    shares = problem.shares[served]
    return np.stack(
        [feature_weights(shares, weights[served], problem.selectivity, marginal=True) for weights in problem.weights]
    )


def choose_features(problem: Problem, served: Bools) -> Ints:
    """The local features for the queries served: the most that keep distinct vectors near ``max_vectors`` (4.5).

    Ranked by weight x (1 - selectivity): a feature that most rows match fills the limit and skips nothing. Their
    number is found by bisection, counting the distinct vectors of the fullest sample.
    """
    worth = local_weights(problem, served).sum(axis=0) * (1.0 - problem.selectivity)
    candidates = np.flatnonzero(worth > 0)
    ranked = candidates[np.lexsort((candidates, -worth[candidates]))]
    low, high = min(1, len(ranked)), len(ranked)
    while low < high:
        middle = (low + high + 1) // 2
        if _most_vectors(problem, ranked[:middle]) <= problem.max_vectors:
            low = middle
        else:
            high = middle - 1
    return np.sort(ranked[:low])


def _most_vectors(problem: Problem, features: Ints) -> int:
    return max((len(np.unique(_hashes(bits, features))) for bits in problem.bits), default=0)


def _hashes(bits: Bools, features: Ints) -> npt.NDArray[np.uint64]:
    """A number for each projected vector: equal ones have equal numbers, others all but surely not. For counting."""
    factors = np.random.default_rng(0).integers(1, 2**63, size=len(features), dtype=np.uint64)
    return bits[:, features].astype(np.uint64) @ factors


def local_vectors(bits: Bools, counts: Ints, features: Ints) -> VectorCounts:
    """The distinct vectors over some features, with their rows."""
    words, inverse, _ = distinct(pack(bits[:, features]))
    summed = np.bincount(inverse, weights=counts, minlength=len(words)).astype(np.int64)
    return VectorCounts(words, summed, len(features))


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks of a sampled segment: union bits ``bool[blocks, features]`` (1 where not local), and rows of each."""

    unions: Bools
    rows: Floats


def block_sample(
    problem: Problem, sample: Sample, bits: Bools, features: Ints, weights: Floats, partitioner: Partitioner
) -> Blocks:
    """Partition one sampled segment by local features; block sizes are scaled to the sample."""
    vectors = local_vectors(bits, sample.vectors.counts, features)
    min_rows = max(1, round(min_rows_for(problem.block_rows) / sample.scale))
    partition = partitioner(vectors, weights[features], min_rows, problem.seed)
    unions = np.ones((partition.n_blocks, bits.shape[1]), dtype=np.bool_)
    unions[:, features] = VectorCounts(partition.unions(vectors), partition.sizes(), len(features)).bits()
    return Blocks(unions, partition.sizes().astype(np.float64) * sample.scale)
