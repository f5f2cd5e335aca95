"""Large neighbourhoods: take a few like blocks apart, put them together anew by Ward's method, keep what is better."""

from __future__ import annotations

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.partitioning.state import State
from layoutopt.partitioning.ward import cluster

# Blocks taken apart at once, at least and at most.
_FEWEST, _MOST = 2, 6
# They are drawn from so many of those that are most like the first.
_CANDIDATES = 12
# The search ends after so many rounds in vain, or a sixth of all if that is more; of few blocks after so many for each.
_IN_VAIN, _IN_VAIN_A_BLOCK = 20, 2
# Ward's method sees each weight times a number drawn from this one to 1, so that it puts the same blocks together in
# more than one way.
_LEAST_WEIGHT = 0.5
# Shares taken apart at once: the work of a round grows with their square.
_MOST_SHARES = 1_200


def search_neighbourhoods(state: State, rng: np.random.Generator, rounds: int) -> None:
    """Take blocks apart at most so many times, the ones that lose most by mixing more often.

    No round raises the cost or the number of blocks, or leaves a second block too small.
    """
    in_vain = 0
    for _ in range(rounds):
        mixed = _mixed(state)
        if in_vain >= min(max(_IN_VAIN, rounds // 6), _IN_VAIN_A_BLOCK * mixed.sum()):
            return
        wasted = np.where(mixed, _wasted(state), 0.0)
        if not wasted.any():
            return
        first = int(rng.choice(len(wasted), p=wasted / wasted.sum()))
        costs = np.where(mixed, state.costs_of_merging(first), np.inf)
        like = np.argsort(costs, kind="stable")[:_CANDIDATES]
        like = like[np.isfinite(costs[like])]
        count = min(int(rng.integers(_FEWEST, _MOST + 1)) - 1, len(like))
        better = _rebuild(state, rng, np.append(rng.choice(like, count, replace=False), first))
        in_vain = 0 if better else in_vain + 1


def _mixed(state: State) -> Bits:
    """The blocks without a vector that fills a block by itself: the rows of such a one lie well already."""
    mixed = state.sizes > 0
    mixed[state.block[state.rows >= state.min_rows]] = False
    return mixed


def _wasted(state: State) -> Floats:
    """Rows of each block that queries read only for other rows there, weighted, ``float64[b]``."""
    needed = np.bincount(state.block, weights=state.rows * state.alone, minlength=len(state.sizes))
    return np.maximum(state.sizes * state.reading - needed, 0.0)


def _rebuild(state: State, rng: np.random.Generator, blocks: Ints) -> bool:
    """Cluster the shares of these blocks anew, improve these, and take all back if that costs no less."""
    # In an order of chance, by which Ward's method breaks ties.
    shares = rng.permutation(np.flatnonzero(np.isin(state.block, blocks)))
    if len(shares) > _MOST_SHARES:
        return False
    weights = np.rint(state.weights * rng.uniform(_LEAST_WEIGHT, 1, len(state.weights)))
    labels = cluster(state.bits[shares] > 0, state.rows[shares], weights, state.min_rows)
    names, compact = np.unique(labels, return_inverse=True)
    if len(names) > len(blocks) + 1:
        return False
    before, cost = state.block.copy(), state.cost
    by_size = np.argsort(-np.bincount(compact, weights=state.rows[shares]), kind="stable")
    slots = np.empty(len(names), dtype=np.int64)
    slots[by_size] = np.append(blocks, blocks[-1])[: len(names)]  # one too many, the smallest, joins the next
    state.assign(shares, slots[compact])
    state.clear_each(blocks, rng.permutation(len(weights)))
    state.move_each(shares)
    if state.cost < cost and state.sizes_allowed():
        return True
    changed = np.flatnonzero(state.block != before)
    state.assign(changed, before[changed])
    return False
