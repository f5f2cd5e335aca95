"""The order of blocks: a permutation, no longer than the order that was given, and good where it is known."""

from __future__ import annotations

from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.partitioning.ordered_blocks import order_blocks


def length(unions: Bits, weights: Floats, order: Ints) -> float:
    """The weight of all features that change from a block to the next."""
    return float((np.abs(np.diff(unions[order].astype(int), axis=0)) @ weights).sum())


@st.composite
def blocks(draw: st.DrawFn, most: int) -> tuple[Bits, Floats]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, f = draw(st.integers(0, most)), draw(st.integers(0, 8))
    return rng.random((n, f)) < draw(st.floats(0, 1)), rng.choice([0.0, 0.5, 1.0, 3.0], f)


@given(blocks(40))
def test_it_is_a_permutation_that_no_reversed_beginning_shortens(given_blocks: tuple[Bits, Floats]) -> None:
    unions, weights = given_blocks
    order = order_blocks(unions, weights)
    assert sorted(order.tolist()) == list(range(len(unions)))
    assert order.tolist() == order_blocks(unions, weights).tolist()
    if len(order) >= 3:
        found = length(unions, weights, order)
        for i in range(1, len(order)):
            turned = np.r_[order[:i][::-1], order[i:]]
            assert found <= length(unions, weights, turned) + 1e-6


def test_few_blocks_are_nearly_in_the_best_order() -> None:
    found = best = 0.0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        unions, weights = rng.random((6, 5)) < 0.5, rng.random(5)
        found += length(unions, weights, order_blocks(unions, weights))
        best += min(length(unions, weights, np.array(order)) for order in permutations(range(6)))
    assert found <= 1.05 * best


def test_ranges_that_were_shuffled_are_found_again() -> None:
    ranges = np.array([[start <= block < start + 10 for start in range(0, 60, 5)] for block in range(60)])
    shuffled = np.random.default_rng(1).permutation(60)
    order = order_blocks(ranges[shuffled], np.ones(12))
    assert length(ranges[shuffled], np.ones(12), order) == length(ranges, np.ones(12), np.arange(60))


def test_too_many_blocks_stay_as_they_are() -> None:
    unions = np.zeros((5000, 1), dtype=np.bool_)
    assert order_blocks(unions, np.ones(1)).tolist() == list(range(5000))
