"""Local search: it keeps its promises and its counters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.model.vectors import VectorCounts, pack
from layoutopt.partitioning.local_search import State, fit_sizes, improve, refine, search_neighbourhoods
from layoutopt.partitioning.objective import (
    FeatureObjective,
    Objective,
    Partition,
    SkipSetObjective,
    derive,
)
from layoutopt.partitioning.ward import ward
from tests.partitioning.objectives import of_subsumed, skip_set_objective
from tests.partitioning.segments import Segment, check_sizes, count_scanned, random_segment, segments


@given(segment=segments(), seed=st.integers(0, 20), skip_sets=st.booleans())
def test_refining_never_scans_more_and_keeps_the_sizes(segment: Segment, seed: int, skip_sets: bool) -> None:
    vectors, min_rows = segment.vectors, segment.min_rows
    objective: Objective = skip_set_objective(segment, seed)
    if not skip_sets:
        objective = FeatureObjective.of(segment.weights, vectors.rows)
    before = ward(vectors, np.zeros(vectors.n_features), min_rows, 0)  # without weights any merge will do
    after = refine(before, vectors, objective, min_rows, seed)
    assert count_scanned(objective, after, vectors) <= count_scanned(objective, before, vectors)
    check_sizes(after, segment)


def test_a_misplaced_vector_moves_home() -> None:
    """Two blocks of like vectors, but one vector among strangers."""
    bits = np.array([[1, 0], [1, 0], [0, 1], [0, 1], [1, 0]], dtype=bool)
    vectors = VectorCounts(pack(np.c_[bits, np.eye(5, dtype=bool)]), np.full(5, 5), 7)
    weights = np.array([10.0, 10.0, 0, 0, 0, 0, 0])
    start = Partition.of(np.arange(5), np.array([0, 0, 1, 1, 1]), np.full(5, 5))
    objective = FeatureObjective.of(weights, vectors.rows)
    after = refine(start, vectors, objective, min_rows=10, seed=0)
    assert after.block.tolist() == [0, 0, 1, 1, 0]
    assert refine(start, vectors, objective, min_rows=11, seed=0).block.tolist() == [0, 0, 1, 1, 1], (
        "too few would stay"
    )
    assert refine(start, vectors, objective, min_rows=6, seed=0).block.tolist() == [0, 0, 1, 1, 1], "no room"


def test_refining_scans_less_than_moves_alone_would() -> None:
    """Where a feature leaves a block only with all who have it."""
    bits = np.array([[1, 0], [1, 0], [1, 1], [1, 1], [0, 1], [0, 1]], dtype=bool)
    vectors = VectorCounts(pack(np.c_[bits, np.eye(6, dtype=bool)]), np.array([6, 6, 1, 1, 6, 6]), 8)
    objective = FeatureObjective(np.array([1.0, 2, 0, 0, 0, 0, 0, 0]))
    start = Partition.of(np.arange(6), np.array([0, 0, 0, 0, 1, 1]), vectors.counts)
    moved = State(start, derive(objective, vectors), min_rows=10)
    assert moved.move_each(np.arange(6)) == 0
    after = refine(start, vectors, objective, min_rows=10, seed=0)
    assert count_scanned(objective, after, vectors) < count_scanned(objective, start, vectors)


@pytest.mark.parametrize("seed", range(4))
def test_no_single_move_is_left_that_would_scan_less(seed: int) -> None:
    """What a local optimum is, looked for with nothing but the objective: the search's own counters were right."""
    segment = random_segment(n_rows=500, n_features=8, seed=seed, min_rows=70)
    vectors, min_rows, objective = segment.vectors, segment.min_rows, FeatureObjective.of(segment.weights, 500)
    start = ward(vectors, np.zeros(vectors.n_features), min_rows, 0)
    after = refine(start, vectors, objective, min_rows, seed=0, max_passes=100)
    least, sizes = count_scanned(objective, after, vectors), after.sizes()
    assert least < count_scanned(objective, start, vectors)
    for share, rows in enumerate(after.rows.tolist()):
        for target in range(after.n_blocks):
            block = after.block.copy()
            block[share] = target
            moved = Partition.of(after.vector, block, after.rows)
            if sizes[after.block[share]] - rows >= min_rows and sizes[target] + rows < 2 * min_rows:
                assert count_scanned(objective, moved, vectors) >= least


def test_refining_finds_something_on_correlated_rows() -> None:
    segment = random_segment(n_rows=4_000, n_features=12, seed=3, min_rows=100)
    objective = skip_set_objective(segment, 1)
    before = ward(segment.vectors, segment.weights, segment.min_rows, 0)
    after = refine(before, segment.vectors, objective, segment.min_rows, seed=0)
    assert count_scanned(objective, after, segment.vectors) < 0.98 * count_scanned(objective, before, segment.vectors)


@given(segment=segments(max_features=5), seed=st.integers(0, 50))
def test_the_skip_set_objective_is_what_queries_read(segment: Segment, seed: int) -> None:
    objective = skip_set_objective(segment, seed)
    unions = segment.vectors.bits()
    for union, reading in zip(unions, objective.reading(unions), strict=True):
        expected = 0.0
        for query, weight in enumerate(objective.weights):
            skips = [not union[skip_set].any() for skip_set in objective.skip_sets[objective.has_skip_set[query]]]
            expected += 0.0 if any(skips) else weight
        assert reading == expected


def test_the_matrix_form_skips_by_any_feature_of_a_query() -> None:
    matrix = np.array([[1, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)
    objective = of_subsumed(matrix, np.array([1.0, 2.0, 4.0]), rows=1)
    reading = objective.reading(np.array([[1, 0, 1], [1, 1, 0], [1, 1, 1], [0, 0, 0]], dtype=bool))
    assert (reading / reading[2] * 7).round(9).tolist() == [6, 5, 7, 4]


def test_a_skip_set_skips_only_where_all_its_features_are_0() -> None:
    """An IN list of two values, features 0 and 1, of query 0; query 1 has that skip set and feature 2."""
    has_skip_set = np.array([[1, 0], [1, 1]], dtype=bool)
    objective = SkipSetObjective.from_skip_sets(
        [frozenset({0, 1}), frozenset({2})], has_skip_set, 3, np.array([1.0, 2.0]), rows=1
    )
    reading = objective.reading(np.array([[0, 0, 1], [1, 0, 0], [0, 1, 1]], dtype=bool))
    assert (reading / reading[2] * 3).round(9).tolist() == [0, 1, 3]


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
