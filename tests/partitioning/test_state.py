"""The state of a local search: its counters are what counting anew gives, whatever was done."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.partitioning.local_search import State, fit_sizes, improve, search_neighbourhoods
from layoutopt.partitioning.objective import count_scanned, derive
from layoutopt.partitioning.ward import ward
from tests.partitioning.objectives import skip_set_objective
from tests.partitioning.segments import Segment, random_segment, segments


def check(state: State) -> None:
    np.testing.assert_array_equal(state.sizes, np.bincount(state.block, weights=state.rows, minlength=len(state.sizes)))
    having = np.zeros_like(state.having)
    np.add.at(having, state.block, state.bits)
    np.testing.assert_array_equal(state.having, having)
    np.testing.assert_array_equal(state.unions, having > 0)
    np.testing.assert_array_equal(state.reading, (having > 0) @ state.weights.astype(np.float64))


@given(segment=segments(), seed=st.integers(0, 30), steps=st.lists(st.integers(0, 4), max_size=6))
def test_counters_stay_true(segment: Segment, seed: int, steps: list[int]) -> None:
    vectors, rng = segment.vectors, np.random.default_rng(seed)
    derived = derive(skip_set_objective(segment, seed), vectors)
    state = State(ward(vectors, np.zeros(vectors.n_features), segment.min_rows, 0), derived, segment.min_rows)
    for step in steps:
        block = int(rng.integers(len(state.sizes)))
        before, cost = state.block.copy(), state.cost
        if step == 0:
            improve(state, rng, 1)
            assert state.cost <= cost
        elif step == 1:
            search_neighbourhoods(state, rng, 5)
            assert state.cost <= cost
        elif step == 2 and not state.dissolve(block):
            np.testing.assert_array_equal(state.block, before)
        elif step == 3:
            some = np.flatnonzero(rng.random(len(state.rows)) < 0.3)
            state.assign(some, np.full(len(some), block))
        elif step == 4:
            some, allowed = rng.permutation(len(state.sizes))[:2], state.sizes_allowed()
            cleared = state.clear_each(some, rng.permutation(len(state.weights)))
            assert state.cost < cost if cleared else (state.block == before).all()
            assert state.sizes_allowed() or not allowed
        check(state)
        if step < 2 and not (state.sizes >= 2 * segment.min_rows).any():
            assert state.partition().sizes().sum() == vectors.rows


def test_two_vectors_change_places_where_neither_could_move() -> None:
    segment = random_segment(n_rows=900, n_features=8, seed=4, min_rows=60)
    objective = skip_set_objective(segment, 3)
    derived = derive(objective, segment.vectors)
    start = ward(segment.vectors, np.zeros(8), 60, 0)
    state = State(start, derived, 60)
    exchanges = 0
    for share in range(len(state.rows)):
        before = state.block.copy()
        state.move_each(np.array([share]))
        exchanges += int((state.block != before).sum() == 2)
    assert exchanges > 0
    assert state.sizes_allowed()
    assert count_scanned(objective, state.partition(), segment.vectors) < count_scanned(
        objective, start, segment.vectors
    )


def with_room(state: State, share: int) -> Bits:
    """Which blocks have room for a share, bool[b]."""
    roomy: Bits = (state.sizes > 0) & (state.sizes + state.rows[share] < 2 * state.min_rows)
    return roomy


def costs_elsewhere(state: State, share: int, of: Bits) -> Floats:
    """What all blocks cost with a share in each of some of them; infinite for others, and for its own block."""
    costs = np.full(len(state.sizes), np.inf)
    for block in np.flatnonzero(of):
        if block != state.block[share]:
            blocks = np.where(np.arange(len(state.block)) == share, block, state.block)
            having = np.zeros_like(state.having)
            np.add.at(having, blocks, state.bits)
            sizes = np.bincount(blocks, weights=state.rows, minlength=len(costs))
            costs[block] = sizes @ ((having > 0) @ state.weights.astype(np.float64))
    return costs


def unmoved(seed: int, rows: int = 900, features: int = 8) -> State:
    segment = random_segment(n_rows=rows, n_features=features, seed=seed, min_rows=60)
    start = ward(segment.vectors, np.zeros(features), 60, 0)
    return State(start, derive(skip_set_objective(segment, seed), segment.vectors), 60)


@pytest.mark.parametrize("seed", range(4))
def test_a_share_moves_to_where_it_costs_least(seed: int) -> None:
    state, count = unmoved(seed), 0
    for share in range(len(state.rows)):
        cost, source = state.cost, state.block[share]
        may_leave = state.sizes[source] - state.rows[share] >= state.min_rows
        roomy = with_room(state, share) & may_leave
        costs, costs_exchanged = costs_elsewhere(state, share, roomy), costs_elsewhere(state, share, ~roomy)
        state.move_each(np.array([share]))
        if costs.min() < cost:
            count += 1
            assert state.block[share] == costs.argmin()
            assert state.cost == costs.min()
        elif state.block[share] != source:
            assert state.block[share] == costs_exchanged.argmin()
    assert count > 0


@pytest.mark.parametrize("seed", range(4))
def test_a_block_is_dissolved_with_its_largest_share_first(seed: int) -> None:
    state = unmoved(seed)
    count = 0
    for block in range(len(state.sizes)):
        one_by_one = unmoved(seed)
        one_by_one.assign(np.arange(len(state.rows)), state.block)
        members = np.flatnonzero(state.block == block)
        for share in members[np.argsort(-state.rows[members], kind="stable")]:
            costs = costs_elsewhere(one_by_one, share, with_room(one_by_one, share))
            if costs.min() == np.inf:
                break
            one_by_one.assign(np.array([share]), np.array([costs.argmin()]))
        else:
            count += len(members)
            assert state.dissolve(block)
            np.testing.assert_array_equal(state.block, one_by_one.block)
    assert count > 0


def moved(seed: int) -> State:
    """Blocks in which no share would move alone, nor be exchanged."""
    state = unmoved(seed, rows=2_000, features=12)
    while state.move_each(np.arange(len(state.rows))):
        pass
    return state


@pytest.mark.parametrize("seed", range(6))
def test_a_block_is_cleared_of_a_feature_or_stays_as_it_is(seed: int) -> None:
    state = moved(seed)
    blocks, features = state.having.shape
    cleared = 0
    for block, feature in np.ndindex(blocks, features):
        before, cost = state.block.copy(), state.cost
        if state.clear_each(np.array([block]), np.array([feature])):
            cleared += 1
            assert state.cost < cost
            assert state.having[block, feature] == 0
        else:
            np.testing.assert_array_equal(state.block, before)
            assert state.cost == cost
        assert state.sizes_allowed()
        check(state)
    assert cleared > 0


@pytest.mark.parametrize("seed", range(6))
def test_clearing_many_is_clearing_one_after_another(seed: int) -> None:
    together, apart = moved(seed), moved(seed)
    rng = np.random.default_rng(seed)
    blocks, features = map(rng.permutation, together.having.shape)
    one_by_one = sum(apart.clear_each(np.array([b]), np.array([f])) for b in blocks for f in features)
    assert together.clear_each(blocks, features) == one_by_one > 0
    np.testing.assert_array_equal(together.block, apart.block)


def test_neighbourhoods_clear_the_blocks_that_they_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    state, cleared = moved(0), []

    def watched(self: State, blocks: Ints, features: Ints) -> int:
        cleared.append((len(blocks), clear_each(self, blocks, features)))
        return cleared[-1][1]

    clear_each = State.clear_each
    monkeypatch.setattr(State, "clear_each", watched)
    search_neighbourhoods(state, np.random.default_rng(0), 30)
    assert all(2 <= count <= 6 for count, _ in cleared)
    assert any(times for _, times in cleared)


def test_unbalanced_blocks_are_brought_into_bounds() -> None:
    segment = random_segment(n_rows=2_000, n_features=8, seed=1, min_rows=40)
    vectors = segment.vectors
    labels = np.minimum(np.arange(len(vectors)) // 3, 20)  # the last one takes all the rest
    light = vectors.counts < 40
    start = ward(vectors, segment.weights, 40, 0)
    block = np.where(light[start.vector], 1000 + labels[start.vector], start.block)
    state = State(type(start).of(start.vector, block, start.rows), derive(skip_set_objective(segment, 1), vectors), 40)
    assert not state.sizes_allowed()
    assert fit_sizes(state, start.n_blocks + 5)
    assert state.sizes_allowed()
    assert (state.sizes > 0).sum() <= start.n_blocks + 5
    check(state)
