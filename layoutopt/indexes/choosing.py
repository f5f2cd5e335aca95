"""Which indexes a log asks for, and which of them are worth their bytes (Ta-Shma 2020, IV-B)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType
from typing import Final

import numpy as np

from layoutopt.catalog.keys import FLOATS
from layoutopt.extensions import names
from layoutopt.indexes.expressions import is_stored, is_worth_indexing, point_of
from layoutopt.indexes.protocol import Index, JointIndex, functions_of, suits
from layoutopt.indexes.registry import BUILT_IN, find_index
from layoutopt.model.arrays import Bits, Floats
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import And, Call, Const, Expr, InSet, Like, Node, Or
from layoutopt.model.types import decimal_digits
from layoutopt.skipping.derived.elements import literals_of_elements

_FURTHER: Final[Mapping[str, tuple[float, ...]]] = MappingProxyType(
    {
        "bloom": (0.05, 0.2),
        "value-list": (1 << 14,),  # of keys side by side they take fewer bytes than filters, and are exact
        "prefix": (4,),
        "suffix": (4,),
        "ngrams": (0.1,),
        "geo-box": (32,),
    }
)
"""Parameters that are tried besides the types' own."""
_MOST_COORDINATES: Final = 4
"""Of one AND, that are tried in pairs."""


def candidates(filters: Iterable[Node]) -> tuple[IndexSpec, ...]:
    """The indexes, built in or installed, that could serve some literal of these filters, each once, in their order."""
    found: dict[IndexSpec, None] = {}
    nodes = dict.fromkeys(node for root in filters for node in _nodes(root))
    for node in nodes:
        for subject, kind in points_asked(node) if isinstance(node, And) else _asked(node):
            for parameter in (None, *_FURTHER.get(kind, ())):
                found[IndexSpec(subject, kind, parameter)] = None
    return tuple(found)


def _asked(node: Node) -> Iterator[tuple[Expr, str]]:
    """The indexes that could deny a literal to some block, by what they are of."""
    if not isinstance(node, InSet | Like) or (isinstance(node, InSet) and node.values.is_empty):
        return  # IS NULL: counts of NULLs say all
    for literal in forms_of(node):
        for kind in names("indexes", BUILT_IN):
            index = find_index(kind)
            if index.serves(literal):
                for subject in subjects_of(literal, index):
                    if is_worth_indexing(subject) and suits(index, subject):
                        yield subject, kind


def forms_of(literal: InSet | Like) -> tuple[InSet | Like, ...]:
    """The literals by which an index may deny a literal: itself, and what it asks of elements."""
    return (literal, *literals_of_elements(literal))


def subjects_of(literal: InSet | Like, index: Index) -> tuple[Expr, ...]:
    """The expressions whose indexes of a type are asked a literal: its own, or what that is a function of."""
    subject = literal.subject
    if not isinstance(subject, Call) or subject.fn not in functions_of(index):
        return (subject,)
    return tuple(arg for arg in subject.args if not isinstance(arg, Const))


def points_asked(conjunction: And) -> Iterator[tuple[Expr, str]]:
    """The indexes of two coordinates that ranges of both ask for: of fractions, by which most places are told."""
    ranges = [
        child.subject
        for child in conjunction.children
        if isinstance(child, InSet) and not child.null and child.values.points() is None and not child.values.is_all
    ]
    coordinates = [each for each in ranges if is_stored(each) and (each.type in FLOATS or decimal_digits(each.type))]
    for pair in combinations(coordinates[:_MOST_COORDINATES], 2):
        point = point_of(pair)
        for kind in names("indexes", BUILT_IN):
            index = find_index(kind)
            if isinstance(index, JointIndex) and suits(index, point):
                yield point, kind


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    if isinstance(node, And | Or):
        for child in node.children:
            yield from _nodes(child)


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
    """Which indexes to take: again and again the one that saves the most bytes for each of its own, then exchanges.

    Taking by bytes for bytes ends where nothing more fits, often with a small index of much that a larger one does
    better. So at the end an index is added, dropped or exchanged for another as long as more is saved by that.

    Args:
        indexes: those that there could be.
        read: the bytes that each query reads of each block without them, times its weight,
            ``float64[n_queries, n_blocks]``.
        budget: the most bytes of those taken.

    Returns:
        Their places. Each saves more bytes of blocks than queries read of it, the others given.

    >>> few, all = Judged(np.array([[True, False]]), 10.0, 10.0), Judged(np.array([[True, True]]), 30.0, 30.0)
    >>> worth_their_bytes([few, all], np.array([[50.0, 50.0]]), 100.0)
    (1,)
    >>> worth_their_bytes([few, all], np.array([[50.0, 50.0]]), 20.0)
    (0,)
    """
    search = _Search(indexes, read, budget)
    search.take_greedily()
    search.exchange()
    return tuple(search.taken)


class _Search:
    """A choice that grows and changes: ``taken``, and how many of these let each query skip each block."""

    def __init__(self, indexes: Sequence[Judged], read: Floats, budget: float) -> None:
        self.indexes, self.read, self.budget = indexes, read, budget
        self.taken: list[int] = []
        self._covered = np.zeros(read.shape, np.int32)

    def take_greedily(self) -> None:
        """Take what fits and gains, the most bytes for each of its own first."""
        while True:
            gains = {i: self._gain(i) for i in self._others() if self._fits(None, i)}
            gains = {i: gain for i, gain in gains.items() if gain > 0}
            if not gains:
                return
            self._change(None, max(gains, key=lambda i: (gains[i] / max(self.indexes[i].size, 1.0), -i)))

    def exchange(self) -> None:
        """Make the change that saves the most, as long as there is one."""
        while True:
            changes = {
                (out, to): self._saves(out, to)
                for out in (None, *self.taken)
                for to in (None, *self._others())
                if (out, to) != (None, None) and self._fits(out, to)
            }
            best = max(changes, key=lambda change: changes[change], default=None)
            if best is None or changes[best] < 0 or (changes[best] == 0 and best[1] is not None):
                return
            self._change(*best)

    def _others(self) -> list[int]:
        return [i for i in range(len(self.indexes)) if i not in self.taken]

    def _fits(self, out: int | None, to: int | None) -> bool:
        kept = [i for i in self.taken if i != out] + ([] if to is None else [to])
        return sum(self.indexes[i].size for i in kept) <= self.budget

    def _saves(self, out: int | None, to: int | None) -> float:
        """The bytes that a change saves beyond what it costs."""
        lost = 0.0 if out is None else self._worth(out)
        if out is not None:
            self._covered -= self.indexes[out].skipped
        gained = 0.0 if to is None else self._gain(to)
        if out is not None:
            self._covered += self.indexes[out].skipped
        return gained - lost

    def _gain(self, place: int) -> float:
        """What an index that is not taken would save beyond what queries read of it."""
        return float(self.read[self.indexes[place].skipped & (self._covered == 0)].sum()) - self.indexes[place].read

    def _worth(self, place: int) -> float:
        """What one that is taken saves, the others given, beyond what queries read of it."""
        alone = self.indexes[place].skipped & (self._covered == 1)
        return float(self.read[alone].sum()) - self.indexes[place].read

    def _change(self, out: int | None, to: int | None) -> None:
        if out is not None:
            self.taken.remove(out)
            self._covered -= self.indexes[out].skipped
        if to is not None:
            self.taken.append(to)
            self._covered += self.indexes[to].skipped
