"""Which indexes a log asks for, and which of them are worth their bytes (Ta-Shma 2020, IV-B)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

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


def worth_their_bytes(skipped: Sequence[Bits], read: Floats, sizes: Sequence[float], budget: float) -> tuple[int, ...]:
    """Which indexes to take: again and again the one that saves the most bytes for each of its own.

    Args:
        skipped: of each index the blocks that it lets a query skip, ``bool[n_queries, n_blocks]``.
        read: the bytes that each query reads of each block without them, times its weight, ``float64`` of that shape.
        sizes: the bytes of each.
        budget: the most bytes of those taken.

    Returns:
        Their places, in the order of taking. One that saves no more than it takes is not taken.

    >>> skipped = np.array([[True, False]]), np.array([[False, True]]), np.array([[True, True]])
    >>> worth_their_bytes(skipped, np.array([[50.0, 50.0]]), [10.0, 60.0, 30.0], 100.0)
    (2,)
    >>> worth_their_bytes(skipped[:1], np.array([[50.0, 50.0]]), [60.0], 100.0)
    ()
    """
    taken: list[int] = []
    given_up: set[int] = set()
    while True:
        spent = sum(sizes[i] for i in taken)
        left = np.where(_any_of(skipped, taken, read), 0.0, read)
        gains = [float(left[of].sum()) for of in skipped]
        open_ = [i for i, size in enumerate(sizes) if i not in taken and spent + size <= budget and gains[i] > size]
        open_ = [i for i in open_ if i not in given_up]
        if not open_:
            return tuple(taken)
        taken.append(max(open_, key=lambda i: (gains[i] / max(sizes[i], 1.0), -i)))
        # What a later one does too is not paid for twice.
        for i in taken[:-1]:
            others = _any_of(skipped, [other for other in taken if other != i], read)
            if float(read[skipped[i] & ~others].sum()) <= sizes[i]:
                taken.remove(i)
                given_up.add(i)


def _any_of(skipped: Sequence[Bits], which: Sequence[int], read: Floats) -> Bits:
    """What some of these indexes let queries skip, ``bool[n_queries, n_blocks]``."""
    found = np.zeros(read.shape, np.bool_)
    for i in which:
        found |= skipped[i]
    return found
