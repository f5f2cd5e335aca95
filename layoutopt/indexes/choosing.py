"""Which indexes a log asks for, and which of them are worth their bytes (Ta-Shma 2020, IV-B)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from layoutopt.errors import SettingError
from layoutopt.indexes.bloom import points_of
from layoutopt.indexes.expressions import is_indexable
from layoutopt.indexes.registry import check_index
from layoutopt.model.arrays import Bits, Floats
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import And, InSet, Like, Node, Or
from layoutopt.model.values import key_kind

_EQUALITY = (("bloom", None), ("bloom", 0.05), ("value-list", None), ("hybrid", None))
_RANGES = (("gap-list", None), ("value-list", None))
_TEXT_RANGES = (("prefix", None), ("prefix", 4), ("value-list", None))
_BEGINNINGS = (("prefix", None), ("prefix", 4), ("ngrams", None))
_ENDS = (("suffix", None), ("suffix", 4), ("ngrams", None))
_WORDS = (("ngrams", None), ("ngrams", 0.1), ("value-list", None))


def candidates(filters: Iterable[Node]) -> tuple[IndexSpec, ...]:
    """The built-in indexes that could serve some literal of these filters, each once, in the order of the filters."""
    found: dict[IndexSpec, None] = {}
    for root in filters:
        for literal in _literals(root):
            if is_indexable(literal.subject):
                for kind, parameter in _kinds_for(literal):
                    found[IndexSpec(literal.subject, kind, parameter)] = None
    return tuple(spec for spec in found if _is_possible(spec))


def _literals(node: Node) -> Iterator[InSet | Like]:
    if isinstance(node, And | Or):
        for child in node.children:
            yield from _literals(child)
    elif isinstance(node, InSet | Like):
        yield node


def _kinds_for(literal: InSet | Like) -> Sequence[tuple[str, float | None]]:
    if isinstance(literal, Like):
        if literal.negated:
            return ()
        first, last = literal.pattern[0], literal.pattern[-1]
        begins = _BEGINNINGS if isinstance(first, str) else ()
        return (*begins, *(_ENDS if isinstance(last, str) else ()), *_WORDS)
    if literal.values.is_all or literal.values.is_empty:
        return ()
    if points_of(literal) is not None:
        return _EQUALITY
    return _TEXT_RANGES if key_kind(literal.subject.type) == "str" else _RANGES


def _is_possible(spec: IndexSpec) -> bool:
    try:
        check_index(spec)
    except SettingError:
        return False
    return True


@dataclass(frozen=True, eq=False)
class Judged:
    """What an index did for some queries.

    Attributes:
        skipped: the blocks that it lets each query skip, ``bool[n_queries, n_blocks]``.
        size: its bytes.
        read: how many bytes of it the queries read, by their weights.
    """

    skipped: Bits
    size: float
    read: float


def worth_their_bytes(indexes: Sequence[Judged], read: Floats, budget: float) -> tuple[int, ...]:
    """Which indexes to take: again and again the one that saves the most bytes for each of its own.

    Args:
        indexes: those that there could be.
        read: the bytes that each query reads of each block without them, times its weight,
            ``float64[n_queries, n_blocks]``.
        budget: the most bytes of those taken.

    Returns:
        Their places, in the order of taking. Each saves more bytes of blocks than queries read of it, the others given.

    >>> few, all = Judged(np.array([[True, False]]), 10.0, 10.0), Judged(np.array([[True, True]]), 30.0, 30.0)
    >>> worth_their_bytes([few, all], np.array([[50.0, 50.0]]), 100.0)
    (1,)
    >>> worth_their_bytes([few, all], np.array([[50.0, 50.0]]), 20.0)
    (0,)
    """
    taken: list[int] = []
    given_up: set[int] = set()
    while True:
        spent = sum(indexes[i].size for i in taken)
        left = np.where(_any_of(indexes, taken, read), 0.0, read)
        gains = {
            i: float(left[one.skipped].sum()) - one.read
            for i, one in enumerate(indexes)
            if i not in taken and i not in given_up and spent + one.size <= budget
        }
        gains = {i: gain for i, gain in gains.items() if gain > 0}
        if not gains:
            return tuple(taken)
        taken.append(max(gains, key=lambda i: (gains[i] / max(indexes[i].size, 1.0), -i)))
        # What a later one does too is not paid for twice.
        for i in taken[:-1]:
            others = _any_of(indexes, [other for other in taken if other != i], read)
            if float(read[indexes[i].skipped & ~others].sum()) <= indexes[i].read:
                taken.remove(i)
                given_up.add(i)


def _any_of(indexes: Sequence[Judged], which: Sequence[int], read: Floats) -> Bits:
    """What some of these indexes let queries skip, ``bool[n_queries, n_blocks]``."""
    found = np.zeros(read.shape, np.bool_)
    for i in which:
        found |= indexes[i].skipped
    return found
