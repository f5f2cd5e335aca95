"""Integer weights: exact where they can be, and never zero where they were not."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.partitioning.objective import integer_weights


@given(st.lists(st.integers(0, 5_000), min_size=1, max_size=64), st.integers(1, 10**8), st.integers(-4, 4))
def test_counts_and_their_binary_fractions_keep_their_ratios(counts: list[int], rows: int, power: int) -> None:
    weights = np.ldexp(np.array(counts, dtype=np.float64), power)
    exact = integer_weights(weights, rows)
    assert (exact == np.rint(exact)).all()
    assert (exact * weights.sum() == weights * exact.sum()).all()


@given(st.lists(st.floats(0, 1e9), max_size=64), st.integers(1, 10**9))
def test_sums_are_exact_in_the_types_that_hold_them(values: list[float], rows: int) -> None:
    weights = np.array(values, dtype=np.float64)
    exact = integer_weights(weights, rows)
    assert exact.sum() + len(exact) < 2**24
    assert 2 * rows * exact.sum() < 2**53 or exact.sum() <= len(exact)
    assert ((exact > 0) == (weights > 0)).all()
