"""Partitions that could be written anew, and which of them a budget is spent on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


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
    """

    key: str
    entries: int
    older_plan: bool
    bytes: int
    gain: float
    read: float = 0.0
    deleted: float = 0.0


def best_first(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates, the best gain for each byte written first."""
    return sorted(candidates, key=lambda one: (-one.gain / max(1, one.bytes), one.key))


def within(candidates: Sequence[Candidate], budget: float | None) -> tuple[str, ...]:
    """The keys of the candidates that a budget is spent on, in their order; one that does not fit is passed over.

    Args:
        candidates: the best first.
        budget: the bytes that may be written; None is as many as there are.
    """
    chosen, written = [], 0
    for one in candidates:
        if budget is None or written + one.bytes <= budget:
            chosen.append(one.key)
            written += one.bytes
    return tuple(chosen)


def regained(candidates: Sequence[Candidate]) -> list[tuple[int, float]]:
    """The curve of what is regained over what is written: bytes written so far, and the share of all gains by then.

    Args:
        candidates: the best first; those that gain nothing are left out.

    >>> regained([Candidate("a", 1, True, 10, 30.0), Candidate("b", 1, True, 20, 10.0)])
    [(0, 0.0), (10, 0.75), (30, 1.0)]
    """
    gaining = [one for one in candidates if one.gain > 0]
    total = sum(one.gain for one in gaining)
    curve, written, gained = [(0, 0.0)], 0, 0.0
    for one in gaining:
        written, gained = written + one.bytes, gained + one.gain
        curve.append((written, gained / total))
    return curve
