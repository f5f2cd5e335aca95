"""The moves of :class:`layoutopt.partitioning.local_search.State`, share by share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from layoutopt.model.arrays import Counters, Floats, Ints, Singles
from layoutopt.partitioning.native import compiled, part_of_a_loop


class Shares(NamedTuple):
    """Shares, their blocks, and what reading a row of each costs (:class:`layoutopt.partitioning.local_search.State`).

    Attributes:
        min_rows: the smallest block, unless it was smaller; blocks stay below twice as many.
        rows, block: of each share, ``int64[k]``.
        largest: the shares by their rows, the largest first, ``int64[k]``.
        bits: its vector's derived features, ``int32[k, t]``.
        alone: what a row of it reads for by itself, ``float64[k]``.
        weights: of the derived features, ``float32[t]``.
        sizes: rows of each block, ``int64[b]``; 0 where a block has vanished.
        having: how many of its shares have each feature, ``int32[b, t]``.
        unions: 1 where any has, ``float32[b, t]``.
        reading: what a row of it costs, ``float64[b]``.
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


@compiled
def move_each(of: Shares, order: Ints) -> int:
    """Let each of these shares move or be exchanged once, one after another; returns how many were."""
    moved = 0
    for share in order:
        if _move_or_exchange(of, share):
            moved += 1
    return moved


@compiled
def clear_each(of: Shares, blocks: Ints, features: Ints) -> int:
    """Clear each of these blocks of each of these derived features, where that costs less; returns how often it did."""
    cleared = 0
    for block in blocks:
        members = _members(of, block)
        tried_all = False  # features that all members have would be cleared by the same moves
        for feature in features:
            having = of.having[block, feature]
            if not having or of.weights[feature] <= 0 or (tried_all and having == len(members)):
                continue
            tried_all |= having == len(members)
            if _clear(of, block, feature, members):
                cleared += 1
                members, tried_all = _members(of, block), False
    return cleared


@compiled
def dissolve(of: Shares, block: int) -> bool:
    """Move all shares out of a block, each to where it costs least; False, and no change, where one finds no room."""
    return _move_out(of, block, _members(of, block), np.inf)


@compiled
def move_to_room(of: Shares, share: int) -> bool:
    """Move a share to where it costs least, even if that costs more; False where no block has room."""
    best = _cheapest_with_room(of, _added_by(of, share), share)
    if best >= 0:
        _move(of, share, best)
    return best >= 0


@part_of_a_loop
def _members(of: Shares, block: int) -> Ints:
    """The shares of a block, the largest first."""
    members = np.empty(len(of.largest), dtype=np.int64)
    count = 0
    for share in of.largest:
        if of.block[share] == block:
            members[count] = share
            count += 1
    return members[:count]


@part_of_a_loop
def _move(of: Shares, share: int, target: int) -> None:
    """Put a share into another block."""
    source = of.block[share]
    of.block[share] = target
    of.sizes[source] -= of.rows[share]
    of.sizes[target] += of.rows[share]
    for feature in range(len(of.weights)):
        of.having[source, feature] -= of.bits[share, feature]
        of.having[target, feature] += of.bits[share, feature]
    _read_anew(of, source)
    _read_anew(of, target)


@part_of_a_loop
def _added_by(of: Shares, share: int) -> Floats:
    """What each block costs more with the share x, ``float64[b]``; infinite for its own and vanished ones.

    With ``alone`` what a row of x reads for by itself, and ``shared`` what it has of that in common with the block,
    ``reading(B with x) = reading(B) + alone - shared``.
    """
    rows, alone = of.rows[share], of.alone[share]
    weighted = np.empty(len(of.weights), dtype=np.float32)
    for feature in range(len(of.weights)):
        weighted[feature] = of.weights[feature] if of.bits[share, feature] else 0
    added = np.empty(len(of.sizes))
    for block in range(len(of.sizes)):
        added[block] = np.inf
        if of.sizes[block] > 0 and block != of.block[share]:
            shared = np.float32(0)
            for feature in range(len(weighted)):
                shared += weighted[feature] * of.unions[block, feature]
            added[block] = (of.sizes[block] + rows) * (alone - shared) + rows * of.reading[block]
    return added


@part_of_a_loop
def _move_or_exchange(of: Shares, share: int) -> bool:
    source, rows = of.block[share], of.rows[share]
    left = of.sizes[source] - rows
    saved = of.sizes[source] * of.reading[source] - left * _reading_without(of, source, np.array([share]))
    if saved <= rows * of.alone[share]:  # a row costs at least that wherever it is
        return False
    may_leave = left >= of.min_rows or of.sizes[source] < of.min_rows
    added = _added_by(of, share)
    # Where it would cost least, moved or exchanged for another; its own block, where it costs inf, stands for none.
    roomy = full = source
    for block in range(len(added)):
        if may_leave and of.sizes[block] + rows < 2 * of.min_rows:
            if added[block] < min(saved, added[roomy]):
                roomy = block
        elif added[block] < min(saved, added[full]):
            full = block
    if roomy != source:
        _move(of, share, roomy)
        return True
    return full != source and _exchange(of, share, full)


@part_of_a_loop
def _exchange(of: Shares, share: int, target: int) -> bool:
    """Exchange a share for the one of the target block with which both blocks cost least, if that is less than now.

    The cost of both with x and y exchanged is
    ``|A'| * reading(A without x, with y) + |B'| * reading(B without y, with x)``, with the sizes after it.
    """
    source, rows = of.block[share], of.rows[share]
    least = of.sizes[source] * of.reading[source] + of.sizes[target] * of.reading[target]
    best = share  # for none
    for other in range(len(of.block)):
        if of.block[other] != target:
            continue
        source_size = of.sizes[source] - rows + of.rows[other]
        target_size = of.sizes[target] + rows - of.rows[other]
        if source_size < min(of.min_rows, of.sizes[source]) or target_size < min(of.min_rows, of.sizes[target]):
            continue
        if max(source_size, target_size) >= 2 * of.min_rows:
            continue
        cost = source_size * _reading_exchanged(of, source, share, other)
        cost += target_size * _reading_exchanged(of, target, other, share)
        if cost < least:
            least, best = cost, other
    if best == share:
        return False
    _move(of, share, target)
    _move(of, best, source)
    return True


@part_of_a_loop
def _clear(of: Shares, block: int, feature: int, members: Ints) -> bool:
    """Move each share of a block that has a feature to where it costs least; False, and no change, if that costs more.

    The shares left cost less to read together, and each may move alone at a loss: so many small steps up lead down.
    """
    leaving = np.empty(len(members), dtype=np.int64)
    count, left, least = 0, of.sizes[block], 0.0
    for share in members:
        if of.bits[share, feature]:
            leaving[count] = share
            count += 1
            left -= of.rows[share]
            least += of.rows[share] * of.alone[share]  # a row costs at least that wherever it is
    leaving = leaving[:count]
    if 0 < left < of.min_rows <= of.sizes[block]:
        return False
    saved = of.sizes[block] * of.reading[block] - left * _reading_without(of, block, leaving)
    return least < saved and _move_out(of, block, leaving, saved)


@part_of_a_loop
def _move_out(of: Shares, block: int, leaving: Ints, most: float) -> bool:
    """Move these shares out of a block, one after another, each to where it costs least.

    False, and no change, where one finds no room, or together they cost as much as ``most``.
    """
    paid = 0.0
    for number, share in enumerate(leaving):
        added = _added_by(of, share)
        best = _cheapest_with_room(of, added, share)
        if best >= 0:
            paid += added[best]
        if best < 0 or paid >= most:
            for moved in leaving[:number]:
                _move(of, moved, block)
            return False
        _move(of, share, best)
    return True


@part_of_a_loop
def _cheapest_with_room(of: Shares, added: Floats, share: int) -> int:
    """The block in which a share costs least, of those with room for it; -1 where there is none."""
    best = -1
    for block in range(len(added)):
        has_room = added[block] != np.inf and of.sizes[block] + of.rows[share] < 2 * of.min_rows
        if has_room and (best < 0 or added[block] < added[best]):
            best = block
    return best


@part_of_a_loop
def _reading_without(of: Shares, block: int, leaving: Ints) -> float:
    """What a row of a block costs without these of its shares."""
    total = np.float32(0)
    for feature in range(len(of.weights)):
        having = of.having[block, feature]
        for share in leaving:
            having -= of.bits[share, feature]
        if having > 0:
            total += of.weights[feature]
    return float(total)


@part_of_a_loop
def _reading_exchanged(of: Shares, block: int, gone: int, come: int) -> float:
    total = np.float32(0)
    for feature in range(len(of.weights)):
        if of.having[block, feature] + of.bits[come, feature] > of.bits[gone, feature]:
            total += of.weights[feature]
    return float(total)


@part_of_a_loop
def _read_anew(of: Shares, block: int) -> None:
    """What its counters say of a block."""
    total = np.float32(0)
    for feature in range(len(of.weights)):
        of.unions[block, feature] = 1 if of.having[block, feature] > 0 else 0
        total += of.unions[block, feature] * of.weights[feature]
    of.reading[block] = total
