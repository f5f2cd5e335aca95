"""Partitions that could be written anew, and which of them, or of their layouts, a budget is spent on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Part:
    """Some layouts of a partition, which could be written alone.

    Attributes:
        level: which; parts of a higher level have those of the lower ones.
        bytes: what is written, about.
        gain: the bytes that the log's queries together read less of the partition afterwards, about.
    """

    level: int
    bytes: int
    gain: float


@dataclass(frozen=True)
class Candidate:
    """A partition that could be written anew.

    Attributes:
        key: the partition's.
        entries: the loads whose rows it has.
        older_plan: whether any of these is of another plan than it would be written by.
        bytes: what is written, about.
        gain: the bytes that the log's queries together read less of it afterwards, about; may be negative.
        read: the bytes that they read of it now.
        deleted: of the rows in its files, the share that is deleted.
        parts: what of it could be written alone.
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
    """One more thing to be written of a candidate.

    Attributes:
        key: the candidate's.
        part: some layouts; None for all of it, in the place of what was to be written before.
        bytes: that are written more than before.
        gain: that is gained more.
    """

    key: str
    part: Part | None
    bytes: int
    gain: float


def best_first(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates, the best gain for each byte written first."""
    return sorted(candidates, key=lambda one: (-one.gain / max(1, one.bytes), one.key))


def moves(candidates: Iterable[Candidate]) -> list[Move]:
    """All that could be written, the best gain for each byte first; each move of a candidate follows its others.

    Of what could be written of one candidate, that is left out which gains less than a mixture of less and more of it.

    >>> one = Candidate("a", 1, True, 50, 90.0, parts=(Part(0, 10, 50.0), Part(1, 20, 55.0)))
    >>> [(move.part and move.part.level, move.bytes, move.gain) for move in moves([one])]
    [(0, 10, 50.0), (None, 40, 40.0)]
    """
    found = [move for one in candidates for move in _moves(one)]
    return sorted(found, key=lambda move: (-move.gain / max(1, move.bytes), move.key))


def _moves(one: Candidate) -> Iterator[Move]:
    options = [(part.bytes, part.gain, part) for part in one.parts if part.bytes < one.bytes]
    hull: list[tuple[int, float, Part | None]] = [(0, 0.0, None)]
    for size, gain, part in [*sorted(options, key=lambda of: (of[0], -of[1])), (one.bytes, one.gain, None)]:
        if gain <= hull[-1][1] and (part is not None or len(hull) > 1):
            continue
        while len(hull) > 1 and _slope(hull[-1], size, gain) >= _slope(hull[-2], *hull[-1][:2]):
            hull.pop()
        hull.append((size, gain, part))
    for (size, gain, _), (more_size, more_gain, part) in pairwise(hull):
        yield Move(one.key, part, more_size - size, more_gain - gain)


def _slope(last: tuple[int, float, Part | None], size: int, gain: float) -> float:
    return (gain - last[1]) / max(1, size - last[0])


def within(candidates: Sequence[Candidate], budget: float | None, least: float = 0.0) -> Mapping[str, Part | None]:
    """The keys of the candidates that a budget is spent on, and what of each is written alone; None is all of it.

    Args:
        candidates: the best first.
        budget: the bytes that may be written; None is as many as there are. Where the next move of a candidate does not
            fit, what gains most of what does is taken in its place.
        least: where some of a candidate is written, more of it is only for a gain above this share of what is read.

    >>> one = Candidate("a", 1, True, 50, 90.0, parts=(Part(0, 10, 20.0), Part(1, 16, 80.0)))
    >>> [within([one], budget)["a"].level for budget in (10, 15, 16, 49)]
    [0, 0, 1, 1]
    """
    if budget is None:
        return dict.fromkeys(one.key for one in candidates)
    by_key = {one.key: one for one in candidates}
    taken: dict[str, Move] = {}
    left, done = budget, set()
    for move in moves(candidates):
        before = taken.get(move.key)
        if move.key in done or (before is not None and move.gain <= least * by_key[move.key].read):
            continue
        fitting: Move | None = move
        if move.bytes > left:
            done.add(move.key)
            fitting = _fitting(by_key[move.key], before, left)
        if fitting is not None:
            left -= fitting.bytes
            taken[move.key] = _sum(before, fitting)
    return {key: move.part for key, move in taken.items()}


def _fitting(one: Candidate, before: Move | None, left: float) -> Move | None:
    """What gains most of a candidate in the place of what was taken of it, for so many bytes more; None: nothing."""
    size, gain = (0, 0.0) if before is None else (before.bytes, before.gain)
    options = [Move(one.key, part, part.bytes - size, part.gain - gain) for part in one.parts if part.bytes < one.bytes]
    options.append(Move(one.key, None, one.bytes - size, one.gain - gain))
    fitting = [option for option in options if option.bytes <= left and option.gain > 0]
    return max(fitting, key=lambda option: (option.gain, -option.bytes), default=None)


def _sum(before: Move | None, more: Move) -> Move:
    return more if before is None else Move(more.key, more.part, before.bytes + more.bytes, before.gain + more.gain)


def regained(candidates: Sequence[Candidate]) -> list[tuple[int, float]]:
    """The curve of what is regained over what is written: bytes written so far, and the share of all gains by then.

    Args:
        candidates: those that gain nothing are left out.

    >>> regained([Candidate("a", 1, True, 10, 30.0), Candidate("b", 1, True, 20, 10.0)])
    [(0, 0.0), (10, 0.75), (30, 1.0)]
    """
    gaining = [move for move in moves(candidates) if move.gain > 0]
    total = sum(move.gain for move in gaining)
    curve, written, gained = [(0, 0.0)], 0, 0.0
    for move in gaining:
        written, gained = written + move.bytes, gained + move.gain
        curve.append((written, gained / total))
    return curve


# ----------------------------------------------------------------------------------------------------
# In which order layouts are written anew alone: the best gain for each byte first.

Layouts = frozenset[int]
"""Layouts of a fresh plan, by their places."""


@dataclass(frozen=True)
class Step:
    """How far a segment can be brought to a fresh plan by some of its layouts.

    Attributes:
        layouts: those that are written.
        bytes: what they take.
        read: what queries read then.
    """

    layouts: Layouts
    bytes: float
    read: float


def steps(sets: Sequence[Layouts], bytes_of: Mapping[int, float], read: Callable[[Layouts], float]) -> list[Step]:
    """Sets of layouts that are written, each with the one before in it, from none on; each reads less than the last.

    A query is often served by several layouts only, of which none helps alone, so whole sets are looked at, too.

    Args:
        sets: what may be taken at once, such as single layouts, and those that serve a family of queries together.
        bytes_of: what each layout takes.
        read: what queries read where some layouts are there.
    """
    there: Layouts = frozenset()
    found = [Step(there, 0.0, read(there))]
    while True:
        best, worth = there, 0.0
        for one in sets:
            if one <= there:
                continue
            cost = sum(bytes_of[layout] for layout in one - there)
            gain = (found[-1].read - read(there | one)) / max(1.0, cost)
            if gain > worth:
                best, worth = there | one, gain
        if best == there:
            return found
        there = best
        found.append(Step(there, sum(bytes_of[layout] for layout in there), read(there)))
