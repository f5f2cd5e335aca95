"""What lets a query skip a block, as sets of features: the search's view of ``cannot_match``.

``cannot_match`` over feature bits alone is a monotone function of the bits that are 0: a leaf is skipped by any one
feature that subsumes it, an AND by any child, an OR by all children. Its minimal satisfying sets are **skip sets**: a
query skips a block where all features of any one of its skip sets have bit 0. A skip set behaves as one derived feature
whose bit is the OR of its members' bits, so everything that the thesis says of features (union vectors, query
vectors, Eq. 3.1) holds for skip sets as it stands; a skip set of one member is a feature that subsumes the query (3.5).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, cached_property, lru_cache
from itertools import product

import numpy as np

from layoutopt.model.arrays import Bits, Singles
from layoutopt.model.feature import FeatureSet
from layoutopt.model.predicates import And, Constant, InSet, Node, Or
from layoutopt.model.query import Query
from layoutopt.skipping.cannot_match import FeatureIndex, pieces

SkipSet = frozenset[int]

_MOST_SKIP_SETS = 64
"""Of more, a node's strictest skip sets are kept: the query then skips less in the estimate, never more."""


class SkipSetFinder:
    """Finds the skip sets of nodes over one feature set, remembering every node it has seen.

    Attributes:
        skip_sets: of a node its minimal skip sets, smallest first; none where no feature can help. A node that no row
            makes TRUE has the empty skip set, which holds everywhere. Sound: where all features of a skip set are 0 in
            a block, no row of the block makes the node TRUE.
    """

    def __init__(self, features: FeatureSet) -> None:
        self._index = FeatureIndex(features)
        self.skip_sets = cache(self._skip_sets)

    def _skip_sets(self, node: Node) -> tuple[SkipSet, ...]:
        minimal = _minimal(self._find(node))
        if len(minimal) > _MOST_SKIP_SETS:
            # A pair of `x <> 'a'` and `x <> 'b'` is smaller than eight values of a list, and never 0 together.
            strictest = sorted(minimal, key=lambda skip_set: (self._generality(skip_set), len(skip_set)))
            minimal = strictest[:_MOST_SKIP_SETS]
        return tuple(sorted(minimal, key=_by_size))

    def _find(self, node: Node) -> Iterable[SkipSet]:
        if isinstance(node, Constant):
            if not node.value:
                yield frozenset()
            return
        yield from (frozenset((i,)) for i in self._index.subsuming(node))
        if isinstance(node, And):
            for child in node.children:
                yield from self.skip_sets(child)
        elif isinstance(node, Or):
            yield from self._all_of(node.children)
        elif isinstance(node, InSet) and (parts := pieces(node)):
            yield from self._all_of(parts)

    def _all_of(self, children: Sequence[Node]) -> Iterable[SkipSet]:
        """An OR can't match where every child can't: one skip set of each child, joined."""
        choices = self._bound([self.skip_sets(child) for child in children])
        return (frozenset().union(*choice) for choice in product(*choices))

    def _bound(self, choices: list[tuple[SkipSet, ...]]) -> list[tuple[SkipSet, ...]]:
        """Keep the strictest skip sets of each choice so that their product stays small.

        A stricter feature is TRUE of fewer rows, so it has bit 0 in every block where a more general one has, and in
        others: its skip set skips more.
        """
        sizes = [len(choice) for choice in choices]
        if np.prod(sizes, dtype=np.float64) <= _MOST_SKIP_SETS:
            return choices
        while np.prod(sizes, dtype=np.float64) > _MOST_SKIP_SETS:
            sizes[int(np.argmax(sizes))] -= 1
        return [
            tuple(sorted(choice, key=lambda skip_set: (self._generality(skip_set), *_by_size(skip_set)))[:size])
            for choice, size in zip(choices, sizes, strict=True)
        ]

    def _generality(self, skip_set: SkipSet) -> int:
        return sum(self._stricter[feature] for feature in skip_set)

    @cached_property
    def _stricter(self) -> tuple[int, ...]:
        """For each feature, how many are stricter, itself among them: it is TRUE wherever one of them is."""
        counts = [0] * len(self._index.features)
        for feature in self._index.features:
            for general in self._index.subsuming(feature.node):
                counts[general] += 1
        return tuple(counts)


def _by_size(skip_set: SkipSet) -> tuple[int, list[int]]:
    return len(skip_set), sorted(skip_set)


def _minimal(skip_sets: Iterable[SkipSet]) -> list[SkipSet]:
    ordered = sorted(set(skip_sets), key=_by_size)
    kept: list[SkipSet] = []
    for skip_set in ordered:
        if not any(smaller <= skip_set for smaller in kept):
            kept.append(skip_set)
    return kept


def skip_set_table(queries: Sequence[Query], features: FeatureSet) -> tuple[tuple[SkipSet, ...], Bits]:
    """All skip sets of a workload, and which query has which.

    Returns:
        The distinct skip sets in order of (size, members), and a bool matrix of shape (queries, skip sets).
    """
    finder = _finder(features)
    of_query = [finder.skip_sets(query.filter.root) for query in queries]
    table = sorted({c for skip_sets in of_query for c in skip_sets}, key=lambda c: (len(c), sorted(c)))
    place = {skip_set: i for i, skip_set in enumerate(table)}
    matrix = np.zeros((len(queries), len(table)), dtype=np.bool_)
    for q, skip_sets in enumerate(of_query):
        matrix[q, [place[c] for c in skip_sets]] = True
    return tuple(table), matrix


@lru_cache(maxsize=16)
def _finder(features: FeatureSet) -> SkipSetFinder:
    """Remembered, since a process routes many segments of one plan, and searches ask of the same features again."""
    return SkipSetFinder(features)


def membership(skip_sets: Sequence[SkipSet], n_features: int) -> Singles:
    """Which feature is a member of which skip set: 0 or 1, shape (features, skip sets).

    A product of union bits and this matrix counts the members with bit 1; a skip set holds where that is 0.

    >>> membership([frozenset({0, 1}), frozenset({1})], 2).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    member = np.zeros((n_features, len(skip_sets)), dtype=np.float32)
    for a, skip_set in enumerate(skip_sets):
        member[sorted(skip_set), a] = 1.0
    return member
