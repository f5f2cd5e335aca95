"""Choose which partitions, or which of their layouts, to rewrite within a budget: the best gain per byte first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Part:
    """A possible partial rewrite: some layouts of a partition.

    Attributes:
        level: higher levels include the layouts of the lower ones.
        bytes: about how much is written.
        gain: about how many bytes less the log's queries read afterwards.
    """

    level: int
    bytes: int
    gain: float


@dataclass(frozen=True)
class Candidate:
    """A partition that could be rewritten.

    Attributes:
        key: the partition's key.
        entries: the number of its entries.
        older_plan: whether an entry has another plan than the wanted one.
        bytes: about how much is written.
        gain: about how many bytes less the log's queries read afterwards; may be negative.
        read: the bytes that they read now.
        deleted: the share of deleted rows.
        parts: its possible partial rewrites.
    """

    key: str
    entries: int
    older_plan: bool
    bytes: int
    gain: float
    read: float = 0.0
    deleted: float = 0.0
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Move:
    """A step from what is to be written of a candidate to more of it.

    Attributes:
        key: the candidate's key.
        part: what is to be written then; None for the whole partition.
        bytes: the additional bytes written.
        gain: the additional gain.
    """

    key: str
    part: Part | None
    bytes: int
    gain: float


def sort_by_gain(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates by falling gain per byte."""
    return sorted(candidates, key=lambda candidate: (-candidate.gain / max(1, candidate.bytes), candidate.key))


def list_moves(candidates: Iterable[Candidate]) -> list[Move]:
    """Return all moves by falling gain per byte; the moves of a candidate are in order.

    Parts below the convex hull of a candidate's (bytes, gain) points are left out.

    >>> one = Candidate("a", 1, True, 50, 90.0, parts=(Part(0, 10, 50.0), Part(1, 20, 55.0)))
    >>> [(move.part and move.part.level, move.bytes, move.gain) for move in list_moves([one])]
    [(0, 10, 50.0), (None, 40, 40.0)]
    """
    moves = [move for candidate in candidates for move in _list_candidate_moves(candidate)]
    return sorted(moves, key=lambda move: (-move.gain / max(1, move.bytes), move.key))


def _list_options(candidate: Candidate) -> list[tuple[int, float, Part | None]]:
    """Return the bytes and gain of each part that is less than the whole, by rising bytes, and of the whole last."""
    parts = [part for part in candidate.parts if part.bytes < candidate.bytes]
    ordered = sorted(parts, key=lambda part: (part.bytes, -part.gain))
    return [*((part.bytes, part.gain, part) for part in ordered), (candidate.bytes, candidate.gain, None)]


def _list_candidate_moves(candidate: Candidate) -> Iterator[Move]:
    hull: list[tuple[int, float, Part | None]] = [(0, 0.0, None)]
    for size, gain, part in _list_options(candidate):
        if gain <= hull[-1][1] and (part is not None or len(hull) > 1):
            continue
        while len(hull) > 1 and _slope(hull[-1], size, gain) >= _slope(hull[-2], *hull[-1][:2]):
            hull.pop()
        hull.append((size, gain, part))
    for (size, gain, _), (more_size, more_gain, part) in pairwise(hull):
        yield Move(candidate.key, part, more_size - size, more_gain - gain)


def _slope(last: tuple[int, float, Part | None], size: int, gain: float) -> float:
    return (gain - last[1]) / max(1, size - last[0])


def spend_budget(
    candidates: Sequence[Candidate], budget: float | None, least: float = 0.0
) -> Mapping[str, Part | None]:
    """Return the keys of the candidates to rewrite, each with its part; None means the whole partition.

    Args:
        candidates: by falling gain per byte.
        budget: the most bytes to write; None is no limit. Where the next move of a candidate does not fit, the option
            with the largest gain that fits is taken instead.
        least: a part is extended only for an additional gain above this share of the bytes read.

    >>> one = Candidate("a", 1, True, 50, 90.0, parts=(Part(0, 10, 20.0), Part(1, 16, 80.0)))
    >>> [spend_budget([one], budget)["a"].level for budget in (10, 15, 16, 49)]
    [0, 0, 1, 1]
    """
    if budget is None:
        return dict.fromkeys(candidate.key for candidate in candidates)
    by_key = {candidate.key: candidate for candidate in candidates}
    taken: dict[str, Move] = {}
    remaining, finished = budget, set()
    for move in list_moves(candidates):
        before = taken.get(move.key, Move(move.key, None, 0, 0.0))
        if move.key in finished or (move.key in taken and move.gain <= least * by_key[move.key].read):
            continue
        option: Move | None = move
        if move.bytes > remaining:
            finished.add(move.key)
            option = _find_fitting_move(by_key[move.key], before, remaining)
        if option is not None:
            remaining -= option.bytes
            taken[move.key] = Move(move.key, option.part, before.bytes + option.bytes, before.gain + option.gain)
    return {key: move.part for key, move in taken.items()}


def _find_fitting_move(candidate: Candidate, before: Move, budget: float) -> Move | None:
    """Return the move with the largest gain that fits, from what was taken before; None if there is none."""
    moves = [
        Move(candidate.key, part, size - before.bytes, gain - before.gain)
        for size, gain, part in _list_options(candidate)
    ]
    fitting = [move for move in moves if move.bytes <= budget and move.gain > 0]
    return max(fitting, key=lambda move: (move.gain, -move.bytes), default=None)


def gain_curve(candidates: Sequence[Candidate]) -> list[tuple[int, float]]:
    """Return the gain curve: bytes written so far, and the share of all gains by then; moves without gain are left out.

    >>> gain_curve([Candidate("a", 1, True, 10, 30.0), Candidate("b", 1, True, 20, 10.0)])
    [(0, 0.0), (10, 0.75), (30, 1.0)]
    """
    gaining = [move for move in list_moves(candidates) if move.gain > 0]
    total = sum(move.gain for move in gaining)
    curve, size, gain = [(0, 0.0)], 0, 0.0
    for move in gaining:
        size, gain = size + move.bytes, gain + move.gain
        curve.append((size, gain / total))
    return curve


# Layouts of a fresh plan, by their indexes.
Layouts = frozenset[int]


@dataclass(frozen=True)
class Step:
    """A set of a fresh plan's layouts to write.

    Attributes:
        layouts: the set.
        bytes: the size of these layouts.
        read: the bytes that queries read then.
    """

    layouts: Layouts
    bytes: float
    read: float


def plan_steps(sets: Sequence[Layouts], bytes_of: Mapping[int, float], read: Callable[[Layouts], float]) -> list[Step]:
    """Return growing sets of layouts, from the empty set on, each of which reads less than the one before.

    A query may need several layouts together, so whole sets are tried besides single layouts.

    Args:
        sets: what may be added at once, such as a single layout, or all layouts that serve a query family.
        bytes_of: the size of each layout.
        read: returns the bytes that queries read with some layouts.
    """
    layouts: Layouts = frozenset()
    steps = [Step(layouts, 0.0, read(layouts))]
    while True:
        best, best_gain = layouts, 0.0
        for addition in sets:
            if addition <= layouts:
                continue
            cost = sum(bytes_of[layout] for layout in addition - layouts)
            gain = (steps[-1].read - read(layouts | addition)) / max(1.0, cost)
            if gain > best_gain:
                best, best_gain = layouts | addition, gain
        if best == layouts:
            return steps
        layouts = best
        steps.append(Step(layouts, sum(bytes_of[layout] for layout in layouts), read(layouts)))
