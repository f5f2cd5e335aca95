"""What no blocking can beat."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from layoutopt.model.vectors import Ints


def scanned_lower_bound(
    matching: Ints, segment_rows: Ints, smallest_block: int, weights: npt.NDArray[np.float64]
) -> float:
    """The fewest rows that the queries can scan: where any row matches, a whole block at least (DESIGN 8).

    Args:
        matching: matching rows of each query in each segment, ``int64[q, s]``.
        segment_rows: rows of each segment, ``int64[s]``; a smaller segment is a single block.
        smallest_block: rows of the smallest block allowed. A remainder may be smaller, so with partitioners that leave
            one this bounds all blocks but that.
        weights: of the queries, ``float64[q]``.

    Returns:
        The sum over (query, segment) with any matching row of max(matching rows there, smallest block), weighted.

    >>> scanned_lower_bound(np.array([[3, 0], [0, 250]]), np.array([1000, 1000]), 100, np.array([2.0, 1.0]))
    450.0
    """
    block = np.minimum(smallest_block, segment_rows)
    read = np.where(matching > 0, np.maximum(matching, block), 0)
    return float(weights @ read.sum(axis=1))
