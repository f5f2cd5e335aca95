"""Intervals hold what they are of as often as they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.maintenance.sampling_error import CONFIDENCE, ratio_interval, share_interval


@given(st.integers(1, 400), st.floats(0, 1))
def test_an_interval_holds_the_share_that_was_seen(whole: int, share: float) -> None:
    part = round(share * whole)
    low, high = share_interval(part, whole)
    assert 0 <= low <= part / whole <= high <= 1
    wider = share_interval(part, whole, 0.999)
    assert wider.low <= low
    assert high <= wider.high


@pytest.mark.parametrize("share", [0.002, 0.05, 0.5, 0.97])
def test_the_true_share_is_in_as_many_intervals_as_said(share: float) -> None:
    seen = np.random.default_rng(0).binomial(200, share, size=1000).tolist()
    held = sum(low <= share <= high for low, high in (share_interval(part, 200) for part in seen))
    assert held >= 1000 * CONFIDENCE - 15


def test_the_true_ratio_is_in_most_intervals() -> None:
    rng = np.random.default_rng(0)
    read, full = rng.uniform(0, 5, 40), rng.uniform(5, 20, 40)
    chances = rng.dirichlet(np.ones(40))
    truth = float(chances @ read) / float(chances @ full)
    held = 0
    for seed in range(200):
        counts = rng.multinomial(300, chances).astype(float)
        seen = counts > 0
        low, high = ratio_interval(read[seen], full[seen], counts[seen], seed)
        held += low <= truth <= high
    assert held >= 180


def test_a_ratio_of_nothing_is_nothing() -> None:
    assert ratio_interval(np.zeros(2), np.zeros(2), np.ones(2)) == (0.0, 0.0)
