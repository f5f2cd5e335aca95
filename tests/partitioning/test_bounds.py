"""The lower bound is below what any blocking scans, and reached by the best one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.partitioning.bounds import scanned_lower_bound


@given(st.integers(1, 4), st.integers(1, 40), st.integers(0, 99))
def test_no_blocking_scans_less(n_blocks: int, block_rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = n_blocks * block_rows
    matches = rng.random((3, rows)) < rng.random((3, 1)) / 4
    weights = rng.integers(1, 4, 3).astype(np.float64)
    read = matches.reshape(3, n_blocks, block_rows).any(axis=2).sum(axis=1) * block_rows
    bound = scanned_lower_bound(matches.sum(axis=1)[:, None], np.array([rows]), block_rows, weights)
    assert bound <= weights @ read


def test_a_segment_smaller_than_a_block_is_a_block() -> None:
    assert scanned_lower_bound(np.array([[1]]), np.array([30]), 100, np.ones(1)) == 30
