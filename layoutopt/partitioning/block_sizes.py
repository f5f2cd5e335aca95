"""Keep block sizes in ``[min_rows, 2 * min_rows)``: heavy vectors, the remainder, and ``min_rows`` itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.model.vectors import VectorCounts
from layoutopt.partitioning.objective import DerivedObjective, Partition, SkipSetObjective, derive
from layoutopt.partitioning.partitioner import Partitioner

# The mean block over min_rows, between 1 and 2; measured on TPC-H segments of 100 blocks.
MEAN_OVER_MIN = 1.4

# Vectors that are compared with all at once.
_CHUNK = 512
# With more vectors, pairs are not compared, and the bound is weaker.
_MAX_COMPARED = 6_000
# An error of the mean block that ends the calibration; half of what ``--block-rows`` promises.
_TOLERANCE = 0.03
_MAX_ATTEMPTS = 8


def min_rows_for(block_rows: int) -> int:
    """Return the ``min_rows`` with which blocks hold about ``block_rows`` rows on average.

    >>> min_rows_for(700)
    500
    """
    return max(1, round(block_rows / MEAN_OVER_MIN))


def split_heavy(counts: Ints, min_rows: int) -> Partition:
    """Return blocks of one vector each for the vectors of at least ``min_rows`` rows.

    A vector's rows (``counts``, ``int64[d]``) are dealt evenly to as many blocks as bring their size nearest to the
    usual mean, within ``[min_rows, 2 * min_rows)``.
    """
    heavy = np.flatnonzero(counts >= min_rows)
    rows = counts[heavy]
    wanted = np.rint(rows / (min_rows * MEAN_OVER_MIN)).astype(np.int64)
    n_blocks = np.clip(wanted, -(-rows // (2 * min_rows - 1)), rows // min_rows)
    vector = np.repeat(heavy, n_blocks)
    position = np.arange(len(vector)) - np.repeat(np.cumsum(n_blocks) - n_blocks, n_blocks)
    share = np.repeat(rows // n_blocks, n_blocks) + (position < np.repeat(rows % n_blocks, n_blocks))
    return Partition.of(vector, np.arange(len(vector)), share)


def join_remainder(partition: Partition, bits: Bits, weights: Floats, min_rows: int) -> Partition:
    """Join the one block below ``min_rows``, if any, to the block that loses least, where sizes allow it."""
    sizes = partition.sizes()
    small = np.flatnonzero(sizes < min_rows)
    if len(small) == 0:
        return partition
    remainder = int(small[0])
    unions = np.zeros((partition.n_blocks, bits.shape[1]), dtype=np.bool_)
    np.logical_or.at(unions, partition.block, bits[partition.vector])
    shared = (unions & unions[remainder]) @ weights
    totals = unions @ weights
    losses = sizes[remainder] * (totals - shared) + sizes * (totals[remainder] - shared)
    losses[(sizes + sizes[remainder] >= 2 * min_rows) | (np.arange(len(sizes)) == remainder)] = np.inf
    target = int(losses.argmin())
    if not np.isfinite(losses[target]):
        return partition
    block = np.where(partition.block == remainder, target, partition.block)
    return Partition.of(partition.vector, block, partition.rows)


def add_heavy_blocks(counts: Ints, labels: Ints, bits: Bits, weights: Floats, min_rows: int) -> Partition:
    """Return the blocks of heavy vectors, and of light ones by ``labels``; a remainder is joined if it fits."""
    heavy, light = split_heavy(counts, min_rows), np.flatnonzero(counts < min_rows)
    partition = Partition.of(
        np.r_[heavy.vector, light], np.r_[heavy.block, heavy.n_blocks + labels], np.r_[heavy.rows, counts[light]]
    )
    several_small = np.count_nonzero(partition.sizes() < min_rows) > 1
    return partition if several_small else join_remainder(partition, bits, weights, min_rows)


def blocking_lower_bound(objective: SkipSetObjective, vectors: VectorCounts, min_rows: int) -> float:
    """Return the fewest weighted rows that queries scan with any blocks of at least ``min_rows`` rows.

    The result is the larger of two bounds. By queries: a query reads every row that its skip sets don't exclude, and
    at least one block if there is such a row. By vectors: the block around a row holds ``min_rows`` rows, so it costs
    at least as much as the row's vector together with the cheapest vectors that fill it up.
    """
    derived = derive(objective, vectors)
    reading = objective.reading(vectors.bits())
    by_vectors = float(vectors.counts @ reading)
    if derived.exact and len(vectors) <= _MAX_COMPARED:
        by_vectors += float(vectors.counts @ _added_costs_bound(derived, vectors.counts, min_rows))
    needed = vectors.counts @ ~objective.skipped(vectors.bits())
    read_rows = np.where(needed > 0, np.maximum(needed, min(min_rows, vectors.rows)), 0)
    return max(by_vectors, float(objective.weights @ read_rows))


def _added_costs_bound(derived: DerivedObjective, counts: Ints, min_rows: int) -> Floats:
    """Return the least cost that a row adds in any block compared with one of its own, ``float64[d]``."""
    added_by_row = np.zeros(len(counts))
    light = np.flatnonzero(counts < min_rows)
    bits = derived.bits.astype(np.float32)
    weighted = bits * derived.weights.astype(np.float32)
    for start in range(0, len(light), _CHUNK):
        chunk = light[start : start + _CHUNK]
        added = derived.alone - weighted[chunk] @ bits.T  # by each vector, to a block with this one
        nearest = np.argsort(added, axis=1, kind="stable")
        filled = np.cumsum(counts[nearest], axis=1) >= min(min_rows, int(counts.sum()))
        last = np.take_along_axis(nearest, filled.argmax(axis=1)[:, None], axis=1)
        added_by_row[chunk] = np.take_along_axis(added, last, axis=1)[:, 0]
    return np.ldexp(added_by_row, -derived.exponent)


def calibrate_min_rows(
    partitioner: Partitioner, samples: Sequence[tuple[VectorCounts, Floats]], block_rows: int, seed: int
) -> int:
    """Return the ``min_rows`` with which the blocks of these segments hold ``block_rows`` rows on average.

    The ratio depends on the vectors (1.2 to 1.7 on TPC-H), so the partitioner runs on the samples, at most eight
    times; the attempt whose mean is nearest wins, the earliest of equals. ``samples`` are vectors and feature weights
    of whole segments.

    Raises:
        ValueError: ``block_rows`` is below 1.
    """
    if block_rows < 1:
        raise ValueError(f"block_rows is {block_rows}: expected at least 1")
    rows = sum(vectors.rows for vectors, _ in samples)
    # Sizes lie in [min_rows, 2 * min_rows), which bounds min_rows.
    too_low, too_high = (block_rows - 1) // 2, block_rows + 1
    candidate = min_rows_for(block_rows)
    errors: dict[int, float] = {}
    while rows and too_low < candidate < too_high and len(errors) < _MAX_ATTEMPTS:
        blocks = sum(partitioner(vectors, weights, candidate, seed).n_blocks for vectors, weights in samples)
        ratio = rows / blocks / block_rows
        errors[candidate] = abs(ratio - 1)
        if errors[candidate] <= _TOLERANCE:
            break
        if ratio < 1:
            too_low = candidate
        else:
            too_high = candidate
        candidate = round(candidate / ratio)
        if not too_low < candidate < too_high:
            candidate = (too_low + too_high) // 2
    return min(errors, key=lambda min_rows: errors[min_rows], default=candidate)
