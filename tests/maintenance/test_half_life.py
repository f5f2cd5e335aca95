"""The half-life that fits how fast a workload changes."""

from __future__ import annotations

import numpy as np
import pytest

from layoutopt.maintenance.rewrite_policy import HALF_LIVES, find_half_life


def test_what_never_changes_is_remembered_longest() -> None:
    assert find_half_life(np.full((30, 4), 0.25)) == HALF_LIVES[-1]


@pytest.mark.parametrize("days", [1, 2])
def test_few_days_tell_nothing(days: int) -> None:
    assert find_half_life(np.eye(2)[:days] if days == 1 else np.full((2, 2), 0.5)) == HALF_LIVES[-1]


def test_what_moves_on_is_forgotten_soon() -> None:
    share = np.linspace(0, 1, 30)
    assert find_half_life(np.stack([share, 1 - share], axis=1)) == HALF_LIVES[0]


def test_days_drawn_at_random_are_best_foretold_by_many() -> None:
    drawn = np.random.default_rng(0).multinomial(20, [0.4, 0.3, 0.2, 0.1], size=40) / 20
    assert find_half_life(drawn) >= 8
    assert find_half_life(np.eye(2)[np.arange(40) % 2]) >= 8  # today is never like yesterday
