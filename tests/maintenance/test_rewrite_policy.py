"""The rule for rewriting is bounded against any stream of queries; half-lives follow how fast a workload changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.maintenance.rewrite_policy import HALF_LIVES, Loss, RewriteRule, find_half_life, sum_losses

COST = 1.0
RULES = st.builds(RewriteRule, trust=st.floats(0.1, 1), patience=st.floats(0, 2))
DAYS = st.lists(st.tuples(st.floats(0, 0.4), st.floats(0, 0.4), st.booleans()), max_size=120)
"""Of each day what is read in the one layout and in the other, and whether much is expected to be saved."""


def best_in_hindsight(reads: Sequence[tuple[float, float]]) -> float:
    """The least cost of a way through both layouts, from the first."""
    costs = np.array([0.0, COST])
    for day in reads:
        costs = np.minimum(costs + day, (costs + day)[::-1] + COST)
    return float(costs.min())


class Player:
    """A partition that lies in one of two layouts, by a rule that is asked each night."""

    def __init__(self, rule: RewriteRule) -> None:
        self.rule, self.at, self.cost, self.loss = rule, 0, 0.0, Loss()

    def day(self, reads: tuple[float, float], hopeful: bool) -> None:
        self.cost += reads[self.at]
        self.loss = self.loss.after(reads[self.at] - reads[1 - self.at], COST)
        if self.rule.acts(self.loss, COST, 2 * COST if hopeful else 0.0):
            self.at, self.loss, self.cost = 1 - self.at, Loss(), self.cost + COST


def check(rule: RewriteRule, reads: Sequence[tuple[float, float]], cost: float, step: float) -> None:
    least = best_in_hindsight(reads)
    assert cost <= rule.bound(step) * (least + COST) + (1 + rule.patience + step) * COST + 1e-6


@given(RULES, DAYS)
def test_no_stream_costs_more_than_the_bound(rule: RewriteRule, days: list[tuple[float, float, bool]]) -> None:
    player = Player(rule)
    for one, other, hopeful in days:
        player.day((one, other), hopeful)
    check(rule, [(one, other) for one, other, _ in days], player.cost, step=0.4)


@given(RULES, st.floats(0.001, 0.4), st.sampled_from([(True,), (False,), (True, False), (True, True, False)]))
def test_who_asks_what_the_table_is_worst_for_can_not_break_the_bound(
    rule: RewriteRule, amount: float, hopes: tuple[bool, ...]
) -> None:
    """The adversary of the proof: nothing is read in the layout where the partition does not lie."""
    player, reads = Player(rule), []
    for day in range(600):
        reads.append((amount, 0.0) if player.at == 0 else (0.0, amount))
        player.day(reads[-1], hopes[day % len(hopes)])
    check(rule, reads, player.cost, step=amount)


def test_the_bound_is_nearly_reached() -> None:
    """With small steps the adversary makes the rule pay nearly so much: the bound is not idle."""
    rule, amount = RewriteRule(trust=1.0, patience=0.0), 0.01
    player, reads = Player(rule), []
    for _ in range(20_000):
        reads.append((amount, 0.0) if player.at == 0 else (0.0, amount))
        player.day(reads[-1], True)
    assert player.cost / best_in_hindsight(reads) == pytest.approx(rule.bound(), rel=0.05)


def test_a_saving_must_be_expected_or_the_loss_be_large() -> None:
    rule = RewriteRule(trust=0.5, patience=1.0)
    some, much, overdue = (sum_losses([amount], COST) for amount in (0.4, 0.6, 2.5))
    assert not rule.acts(some, COST, expected=9.0)
    assert rule.acts(much, COST, expected=1.1)
    assert not rule.acts(much, COST, expected=0.9)
    assert rule.acts(overdue, COST, expected=0.0)
    assert not RewriteRule(patience=0.0).acts(Loss(), COST, expected=0.0)


def test_what_was_good_long_ago_is_forgotten() -> None:
    assert sum_losses([-50.0, 0.7, 0.7], COST).counted == pytest.approx(0.4)


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
