"""In which order layouts are written anew alone: the best gain for each byte first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

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
