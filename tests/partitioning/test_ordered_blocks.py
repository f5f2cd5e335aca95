"""Orders: curves against their definitions, ranges against the composite they stand for."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.errors import SettingError
from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.partitioning.ordered_blocks import (
    ORDER_KINDS,
    choose_ranges,
    dense_ranks,
    order_blocks,
    order_rows,
    range_blocks,
)


def grid(side: int, n_columns: int = 2) -> list[np.ndarray]:
    axes = np.meshgrid(*[np.arange(side)] * n_columns, indexing="ij")
    order = np.random.default_rng(1).permutation(side**n_columns)
    return [axis.ravel()[order].astype(np.int64) for axis in axes]


@pytest.mark.parametrize("kind", ORDER_KINDS)
@given(n_rows=st.integers(0, 120), n_columns=st.integers(1, 3), block_rows=st.integers(1, 40), seed=st.integers(0, 9))
def test_every_order_is_a_permutation_cut_into_blocks(
    kind: str, n_rows: int, n_columns: int, block_rows: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    keys = [dense_ranks(rng.integers(0, 12, n_rows)) for _ in range(n_columns)]
    ordering = order_rows(kind, keys, n_rows, block_rows)
    assert sorted(ordering.rank.tolist()) == list(range(n_rows))
    in_order = ordering.block[np.argsort(ordering.rank)]
    assert in_order.tolist() == sorted(in_order.tolist())
    assert set(in_order.tolist()) == set(range(ordering.n_blocks))


@pytest.mark.parametrize("kind", ["input", "sort", "zorder", "hilbert"])
def test_blocks_are_equal_and_have_the_mean_asked_for(kind: str) -> None:
    ordering = order_rows(kind, grid(50), 2_500, block_rows=101)
    sizes = np.bincount(ordering.block)
    assert len(sizes) == 25
    assert sizes.max() - sizes.min() <= 1


def test_sort_is_by_the_first_column_then_the_next_and_stable() -> None:
    keys = [dense_ranks([1, 0, 1, 0]), dense_ranks([0, 5, 0, 2])]
    assert order_rows("sort", keys, 4, 2).rank.tolist() == [2, 1, 3, 0]


def test_input_is_the_order_of_the_rows() -> None:
    ordering = order_rows("input", [], 4, 2)
    assert (ordering.rank.tolist(), ordering.block.tolist()) == ([0, 1, 2, 3], [0, 0, 1, 1])


@pytest.mark.parametrize(("side", "n_columns"), [(4, 2), (16, 2), (8, 3), (4, 4)])
def test_neighbours_on_the_hilbert_curve_are_neighbours_in_the_grid(side: int, n_columns: int) -> None:
    """What sets the Hilbert curve apart: every step goes to an adjacent cell."""
    keys = grid(side, n_columns)
    along = np.argsort(order_rows("hilbert", keys, len(keys[0]), 10).rank)
    steps = sum(np.abs(np.diff(key[along])) for key in keys)
    assert set(np.asarray(steps).tolist()) == {1}


def test_the_z_curve_interleaves_bits_of_the_first_column_first() -> None:
    keys = grid(4)
    rank = order_rows("zorder", keys, 16, 4).rank
    expected = [
        (a >> 1 & 1) << 3 | (b >> 1 & 1) << 2 | (a & 1) << 1 | (b & 1)
        for a, b in zip(*map(np.ndarray.tolist, keys), strict=True)
    ]
    assert rank.tolist() == expected


def test_curves_even_out_skew() -> None:
    """99 of 100 rows share a few values of a column with a long tail: the curve still tells those values apart."""
    rng = np.random.default_rng(0)
    skewed = np.r_[rng.integers(0, 4, 990), rng.integers(0, 10**9, 10)]
    other = rng.integers(0, 4, 1000)
    keys = [dense_ranks(skewed), dense_ranks(other)]
    ordering = order_rows("zorder", keys, 1000, 62)
    seen = [
        len({(a, b) for a, b in zip(skewed[ordering.block == k], other[ordering.block == k], strict=True) if a < 4})
        for k in range(ordering.n_blocks)
    ]
    assert np.mean(seen) < 4


def test_composite_ranges_are_those_of_range2() -> None:
    """3.7.3: dates by month, each month by region, each region by segment, each segment by quantity."""
    month, region, segment, quantity = (
        key.ravel() for key in np.meshgrid(*map(np.arange, (6, 5, 5, 50)), indexing="ij")
    )
    rng = np.random.default_rng(2)
    shuffled = rng.permutation(len(month))
    keys = [dense_ranks(key[shuffled]) for key in (month, region, segment, quantity)]
    ordering = range_blocks(keys, block_rows=10, ranges=(6, 5, 5, 5))
    leaves = np.stack([keys[0], keys[1], keys[2], keys[3] // 10])
    for block in range(ordering.n_blocks):
        assert len(np.unique(leaves[:, ordering.block == block], axis=1).T) == 1
    assert np.bincount(ordering.block).tolist() == [10] * 750


@given(st.integers(0, 300), st.lists(st.integers(1, 6), min_size=1, max_size=3), st.integers(0, 9))
def test_leaves_never_part_equal_rows(n_rows: int, ranges: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys = [dense_ranks(rng.integers(0, 7, n_rows)) for _ in ranges]
    ordering = range_blocks(keys, block_rows=1_000, ranges=ranges)
    block_of: dict[tuple[int, ...], int] = {}
    for row, block in zip(zip(*(key.tolist() for key in keys), strict=True), ordering.block.tolist(), strict=True):
        assert block_of.setdefault(row, block) == block


def test_chosen_ranges_make_leaves_of_about_block_rows() -> None:
    rng = np.random.default_rng(4)
    keys = [dense_ranks(rng.integers(0, values, 77_000)) for values in (31, 5, 5, 50)]
    ordering = order_rows("range", keys, 77_000, block_rows=700)
    assert 77_000 / ordering.n_blocks == pytest.approx(700, rel=0.15)
    assert choose_ranges(keys, 700)[1:3] == (5, 5)


def test_a_single_column_of_few_values_is_still_cut_into_blocks() -> None:
    ordering = order_rows("range", [dense_ranks(np.arange(1_000) % 2)], 1_000, block_rows=50)
    assert np.bincount(ordering.block).tolist() == [50] * 20


def test_nulls_come_first() -> None:
    values = np.array(["b", None, "a", "b"], dtype=object)
    assert dense_ranks(values, np.array([False, True, False, False])).tolist() == [2, 0, 1, 2]
    assert dense_ranks(np.array([7, 7])).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("kind", "n_columns", "ranges", "named"),
    [
        ("spiral", 1, (), "'spiral'"),
        ("sort", 0, (), "'sort'"),
        ("range", 2, (3,), r"\[3\]"),
        ("range", 1, (0,), r"\[0\]"),
        ("zorder", 1, (3,), "'zorder'"),
    ],
)
def test_orders_without_meaning_are_refused(kind: str, n_columns: int, ranges: tuple[int, ...], named: str) -> None:
    with pytest.raises(SettingError, match=named):
        order_rows(kind, [np.arange(4)] * n_columns, 4, 2, ranges)


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
