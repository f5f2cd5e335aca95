"""What keeps block sizes in ``[min_rows, 2 * min_rows)``: heavy vectors, the remainder, and min_rows itself."""

from __future__ import annotations

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.partitioning.partition import Partition

# The mean block over min_rows: between 1 and 2; measured on TPC-H segments of 100 blocks.
MEAN_OVER_MIN = 1.4


def min_rows_for(block_rows: int) -> int:
    """The ``min_rows`` with which blocks hold about ``block_rows`` rows on average.

    >>> min_rows_for(700)
    500
    """
    return max(1, round(block_rows / MEAN_OVER_MIN))


def split_heavy(counts: Ints, min_rows: int) -> Partition:
    """Blocks of one vector each for the vectors of at least ``min_rows`` rows.

    A vector's rows (``counts``, ``int64[d]``) are dealt evenly to as many blocks as bring their size nearest to the
    usual mean, all in ``[min_rows, 2 * min_rows)``.
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
    """Join the block below ``min_rows``, if there is one, to the block that loses least, where the sizes allow it.

    Args:
        partition: at most one block of it has fewer than ``min_rows`` rows.
        bits: of every vector, ``bool[d, f]``.
        weights: of the features, ``float64[f]``.
        min_rows: the smallest block.
    """
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


def with_heavy(counts: Ints, labels: Ints, bits: Bits, weights: Floats, min_rows: int) -> Partition:
    """The blocks of the heavy vectors, and those of the others by their labels, a remainder joined where it fits.

    Args:
        counts: rows of every vector, ``int64[d]``.
        labels: of the vectors below ``min_rows`` rows, in order.
        bits, weights, min_rows: as for :func:`join_remainder`.
    """
    heavy, light = split_heavy(counts, min_rows), np.flatnonzero(counts < min_rows)
    partition = Partition.of(
        np.r_[heavy.vector, light], np.r_[heavy.block, heavy.n_blocks + labels], np.r_[heavy.rows, counts[light]]
    )
    several_small = np.count_nonzero(partition.sizes() < min_rows) > 1
    return partition if several_small else join_remainder(partition, bits, weights, min_rows)
