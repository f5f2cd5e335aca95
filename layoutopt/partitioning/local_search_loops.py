"""The moves of :class:`layoutopt.partitioning.local_search.State`, share by share, as compiled loops."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layoutopt.evaluation.native import compile_loop, compile_loop_helper
from layoutopt.model.arrays import Counters, Floats, Ints, Singles


class Shares(NamedTuple):
    """Shares, their blocks, and the cost of reading them (:class:`layoutopt.partitioning.local_search.State`).

    Attributes:
        min_rows: the smallest block, unless it was smaller; blocks stay below twice as many.
        rows, block: of each share, ``int64[k]``.
        largest: the shares by their rows, the largest first, ``int64[k]``.
        bits: its vector's derived features, ``int32[k, t]``.
        alone: the cost of a row of it in a block of its own, ``float64[k]``.
        weights: of the derived features, ``float32[t]``.
        sizes: rows of each block, ``int64[b]``; 0 where a block has vanished.
        having: how many of its shares have each feature, ``int32[b, t]``.
        unions: 1 where any has, ``float32[b, t]``.
        reading: the cost of a row of it, ``float64[b]``.
    """

    min_rows: int
    rows: Ints
    block: Ints
    largest: Ints
    bits: Counters
    alone: Floats
    weights: Singles
    sizes: Ints
    having: Counters
    unions: Singles
    reading: Floats


@compile_loop
def move_each(state: Shares, order: Ints) -> int:
    """Move or exchange each of these shares at most once; return how many were."""
    moved = 0
    for share in order:
        if _move_or_exchange(state, share):
            moved += 1
    return moved


@compile_loop
def clear_each(state: Shares, blocks: Ints, features: Ints) -> int:
    """Clear these blocks of these derived features where the cost falls; return how often it did."""
    cleared = 0
    for block in blocks:
        members = _find_members(state, block)
        tried_all = False  # all features that all members have are cleared by the same moves
        for feature in features:
            having = state.having[block, feature]
            if not having or state.weights[feature] <= 0 or (tried_all and having == len(members)):
                continue
            tried_all |= having == len(members)
            if _clear(state, block, feature, members):
                cleared += 1
                members, tried_all = _find_members(state, block), False
    return cleared


@compile_loop
def dissolve(state: Shares, block: int) -> bool:
    """Move all shares out of a block, each to where it costs least; undo and return False if one finds no room."""
    return _move_out(state, block, _find_members(state, block), np.inf)


@compile_loop
def move_to_room(state: Shares, share: int) -> bool:
    """Move a share to where it costs least, even if the cost rises; return False if no block has room."""
    best = _find_cheapest(state, _added_costs(state, share), share)
    if best >= 0:
        _move(state, share, best)
    return best >= 0


@compile_loop_helper
def _find_members(state: Shares, block: int) -> Ints:
    members = np.empty(len(state.largest), dtype=np.int64)
    count = 0
    for share in state.largest:
        if state.block[share] == block:
            members[count] = share
            count += 1
    return members[:count]


@compile_loop_helper
def _move(state: Shares, share: int, target: int) -> None:
    source = state.block[share]
    state.block[share] = target
    state.sizes[source] -= state.rows[share]
    state.sizes[target] += state.rows[share]
    for feature in range(len(state.weights)):
        state.having[source, feature] -= state.bits[share, feature]
        state.having[target, feature] += state.bits[share, feature]
    _update_reading(state, source)
    _update_reading(state, target)


@compile_loop_helper
def _added_costs(state: Shares, share: int) -> Floats:
    """Return the added cost of each block with the share x, ``float64[b]``; infinite for its own and vanished ones.

    ``reading(B with x) = reading(B) + alone - shared``, where ``shared`` is the part of ``alone`` that the block also
    reads for.
    """
    rows, alone = state.rows[share], state.alone[share]
    weighted = np.empty(len(state.weights), dtype=np.float32)
    for feature in range(len(state.weights)):
        weighted[feature] = state.weights[feature] if state.bits[share, feature] else 0
    added = np.empty(len(state.sizes))
    for block in range(len(state.sizes)):
        added[block] = np.inf
        if state.sizes[block] > 0 and block != state.block[share]:
            shared = np.float32(0)
            for feature in range(len(weighted)):
                shared += weighted[feature] * state.unions[block, feature]
            added[block] = (state.sizes[block] + rows) * (alone - shared) + rows * state.reading[block]
    return added


@compile_loop_helper
def _move_or_exchange(state: Shares, share: int) -> bool:
    source, rows = state.block[share], state.rows[share]
    remaining_rows = state.sizes[source] - rows
    saved = state.sizes[source] * state.reading[source] - remaining_rows * _reading_without(
        state, source, np.array([share])
    )
    if saved <= rows * state.alone[share]:  # a row costs at least that in any block
        return False
    may_leave = remaining_rows >= state.min_rows or state.sizes[source] < state.min_rows
    added = _added_costs(state, share)
    # The cheapest blocks for a move and for an exchange; the share's own block, which costs inf, means none.
    roomy = full = source
    for block in range(len(added)):
        if may_leave and state.sizes[block] + rows < 2 * state.min_rows:
            if added[block] < min(saved, added[roomy]):
                roomy = block
        elif added[block] < min(saved, added[full]):
            full = block
    if roomy != source:
        _move(state, share, roomy)
        return True
    return full != source and _exchange(state, share, full)


@compile_loop_helper
def _exchange(state: Shares, share: int, target: int) -> bool:
    """Exchange a share for the one of the target block with which both blocks cost least, if the cost falls.

    The cost of both after exchanging x and y is ``|A'| * reading(A without x, with y) + |B'| * reading(B without y,
    with x)``, with the new sizes.
    """
    source, rows = state.block[share], state.rows[share]
    least = state.sizes[source] * state.reading[source] + state.sizes[target] * state.reading[target]
    best = share  # for none
    for candidate in range(len(state.block)):
        if state.block[candidate] != target:
            continue
        source_size = state.sizes[source] - rows + state.rows[candidate]
        target_size = state.sizes[target] + rows - state.rows[candidate]
        if source_size < min(state.min_rows, state.sizes[source]) or target_size < min(
            state.min_rows, state.sizes[target]
        ):
            continue
        if max(source_size, target_size) >= 2 * state.min_rows:
            continue
        cost = source_size * _reading_exchanged(state, source, share, candidate)
        cost += target_size * _reading_exchanged(state, target, candidate, share)
        if cost < least:
            least, best = cost, candidate
    if best == share:
        return False
    _move(state, share, target)
    _move(state, best, source)
    return True


@compile_loop_helper
def _clear(state: Shares, block: int, feature: int, members: Ints) -> bool:
    """Move each share of a block that has a feature to where it costs least; undo and return False if the cost rises.

    The remaining shares cost less to read together, though each single move may raise the cost.
    """
    leaving = np.empty(len(members), dtype=np.int64)
    count, remaining_rows, least = 0, state.sizes[block], 0.0
    for share in members:
        if state.bits[share, feature]:
            leaving[count] = share
            count += 1
            remaining_rows -= state.rows[share]
            least += state.rows[share] * state.alone[share]  # a row costs at least that in any block
    leaving = leaving[:count]
    if 0 < remaining_rows < state.min_rows <= state.sizes[block]:
        return False
    saved = state.sizes[block] * state.reading[block] - remaining_rows * _reading_without(state, block, leaving)
    return least < saved and _move_out(state, block, leaving, saved)


@compile_loop_helper
def _move_out(state: Shares, block: int, leaving: Ints, max_cost: float) -> bool:
    """Move these shares out of a block, one after another, each to where it costs least.

    Undo and return False if one finds no room, or if together they cost as much as ``most``.
    """
    paid = 0.0
    for number, share in enumerate(leaving):
        added = _added_costs(state, share)
        best = _find_cheapest(state, added, share)
        if best >= 0:
            paid += added[best]
        if best < 0 or paid >= max_cost:
            for moved in leaving[:number]:
                _move(state, moved, block)
            return False
        _move(state, share, best)
    return True


@compile_loop_helper
def _find_cheapest(state: Shares, added: Floats, share: int) -> int:
    """Return the block with room in which a share costs least; -1 if there is none."""
    best = -1
    for block in range(len(added)):
        has_room = added[block] != np.inf and state.sizes[block] + state.rows[share] < 2 * state.min_rows
        if has_room and (best < 0 or added[block] < added[best]):
            best = block
    return best


@compile_loop_helper
def _reading_without(state: Shares, block: int, leaving: Ints) -> float:
    total = np.float32(0)
    for feature in range(len(state.weights)):
        having = state.having[block, feature]
        for share in leaving:
            having -= state.bits[share, feature]
        if having > 0:
            total += state.weights[feature]
    return float(total)


@compile_loop_helper
def _reading_exchanged(state: Shares, block: int, removed: int, added: int) -> float:
    total = np.float32(0)
    for feature in range(len(state.weights)):
        if state.having[block, feature] + state.bits[added, feature] > state.bits[removed, feature]:
            total += state.weights[feature]
    return float(total)


@compile_loop_helper
def _update_reading(state: Shares, block: int) -> None:
    total = np.float32(0)
    for feature in range(len(state.weights)):
        state.unions[block, feature] = 1 if state.having[block, feature] > 0 else 0
        total += state.unions[block, feature] * state.weights[feature]
    state.reading[block] = total
