"""The min_rows with which a partitioner's mean block is the one wanted."""

from __future__ import annotations

from collections.abc import Sequence

from layoutopt.model.arrays import Floats
from layoutopt.model.vectors import VectorCounts
from layoutopt.partitioning.balance import min_rows_for
from layoutopt.partitioning.partitioner import Partitioner

# Near enough to stop early; half of what `--block-rows` promises.
_TOLERANCE = 0.03
_ATTEMPTS = 8


def calibrate_min_rows(
    partitioner: Partitioner,
    samples: Sequence[tuple[VectorCounts, Floats]],
    block_rows: int,
    seed: int,
) -> int:
    """The ``min_rows`` with which the blocks of these segments hold ``block_rows`` rows on average.

    The mean over ``min_rows`` depends on the vectors (1.2 to 1.7 was seen on TPC-H), so it is measured: the partitioner
    runs on the samples, at most eight times, and the attempt whose mean is nearest wins, the earliest of equals.

    The samples are vectors and feature weights of some whole segments.

    Raises:
        ValueError: ``block_rows`` is below 1.
    """
    if block_rows < 1:
        raise ValueError(f"block_rows is {block_rows}; give at least 1")
    rows = sum(vectors.rows for vectors, _ in samples)
    # Sizes lie in [min_rows, 2 * min_rows): beyond these no min_rows can be right.
    too_low, too_high = (block_rows - 1) // 2, block_rows + 1
    candidate = min_rows_for(block_rows)
    errors: dict[int, float] = {}
    while rows and too_low < candidate < too_high and len(errors) < _ATTEMPTS:
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
    return min(errors, key=lambda tried: errors[tried], default=candidate)
