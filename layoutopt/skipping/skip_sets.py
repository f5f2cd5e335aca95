"""Skip sets: the sets of features that let a query skip a block; the search's view of ``cannot_match``.

``cannot_match`` over feature bits alone is a monotone function of the bits that are 0: a leaf is skipped by any one
feature that subsumes it, an AND by any child, an OR by all children. Its minimal satisfying sets are **skip sets**: a
query skips a block if all features of any one of its skip sets have bit 0. A skip set behaves like one derived feature
whose bit is the OR of its members' bits, so the thesis's statements on features (union vectors, query vectors, Eq. 3.1)
hold for skip sets; a skip set with one member is a feature that subsumes the query (3.5).
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
from layoutopt.skipping.cannot_match import FeatureIndex, split_literal

SkipSet = frozenset[int]

# Of more, a node's strictest skip sets are kept: the estimate of skipped blocks gets lower, never higher.
_MAX_SKIP_SETS = 64


class SkipSetFinder:
    """The skip sets of nodes over one feature set, cached by node.

    Attributes:
        skip_sets: returns a node's minimal skip sets, smallest first; none if no feature helps. A node that is TRUE for
            no row has the empty skip set, which holds everywhere. Sound: if all features of a skip set are 0 in a
            block, no row of the block makes the node TRUE.
    """

    def __init__(self, features: FeatureSet) -> None:
        self._index = FeatureIndex(features)
        self.skip_sets = cache(self._find_minimal)

    def _find_minimal(self, node: Node) -> tuple[SkipSet, ...]:
        minimal = _keep_minimal(self._find(node))
        if len(minimal) > _MAX_SKIP_SETS:
            # Size is a poor criterion: `x <> 'a'` and `x <> 'b'` are a small set, but never 0 together.
            strictest = sorted(minimal, key=lambda skip_set: (self._generality(skip_set), len(skip_set)))
            minimal = strictest[:_MAX_SKIP_SETS]
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
            yield from self._find_for_or(node.children)
        elif isinstance(node, InSet) and (parts := split_literal(node)):
            yield from self._find_for_or(parts)

    def _find_for_or(self, children: Sequence[Node]) -> Iterable[SkipSet]:
        """Return the unions of one skip set of each child: an OR can't match if every child can't."""
        choices = self._limit([self.skip_sets(child) for child in children])
        return (frozenset().union(*choice) for choice in product(*choices))

    def _limit(self, choices: list[tuple[SkipSet, ...]]) -> list[tuple[SkipSet, ...]]:
        """Keep the strictest skip sets of each choice so that their product stays small.

        A stricter feature is TRUE for fewer rows, so it has bit 0 in all blocks where a more general one has, and in
        more: its skip set skips more.
        """
        sizes = [len(choice) for choice in choices]
        if np.prod(sizes, dtype=np.float64) <= _MAX_SKIP_SETS:
            return choices
        while np.prod(sizes, dtype=np.float64) > _MAX_SKIP_SETS:
            sizes[int(np.argmax(sizes))] -= 1
        return [
            tuple(sorted(choice, key=lambda skip_set: (self._generality(skip_set), *_by_size(skip_set)))[:size])
            for choice, size in zip(choices, sizes, strict=True)
        ]

    def _generality(self, skip_set: SkipSet) -> int:
        return sum(self._stricter[feature] for feature in skip_set)

    @cached_property
    def _stricter(self) -> tuple[int, ...]:
        """Return for each feature the number of features that imply it, including itself."""
        counts = [0] * len(self._index.features)
        for feature in self._index.features:
            for general in self._index.subsuming(feature.node):
                counts[general] += 1
        return tuple(counts)


def _by_size(skip_set: SkipSet) -> tuple[int, list[int]]:
    return len(skip_set), sorted(skip_set)


def _keep_minimal(skip_sets: Iterable[SkipSet]) -> list[SkipSet]:
    ordered = sorted(set(skip_sets), key=_by_size)
    kept: list[SkipSet] = []
    for skip_set in ordered:
        if not any(smaller <= skip_set for smaller in kept):
            kept.append(skip_set)
    return kept


def skip_set_table(queries: Sequence[Query], features: FeatureSet) -> tuple[tuple[SkipSet, ...], Bits]:
    """Return the skip sets of a workload, ordered by (size, members), and a bool matrix (queries, skip sets)."""
    finder = _cached_finder(features)
    query_skip_sets = [finder.skip_sets(query.filter.root) for query in queries]
    table = sorted({skip_set for skip_sets in query_skip_sets for skip_set in skip_sets}, key=_by_size)
    positions = {skip_set: i for i, skip_set in enumerate(table)}
    matrix = np.zeros((len(queries), len(table)), dtype=np.bool_)
    for q, skip_sets in enumerate(query_skip_sets):
        matrix[q, [positions[skip_set] for skip_set in skip_sets]] = True
    return tuple(table), matrix


# Cached, since a process routes many segments of one plan, and searches repeat feature sets.
_cached_finder = lru_cache(maxsize=16)(SkipSetFinder)


def membership_matrix(skip_sets: Sequence[SkipSet], n_features: int) -> Singles:
    """Return which feature is a member of which skip set: 0 or 1, shape (features, skip sets).

    A product of union bits and this matrix counts the members with bit 1; a skip set holds if that is 0.

    >>> membership_matrix([frozenset({0, 1}), frozenset({1})], 2).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    member = np.zeros((n_features, len(skip_sets)), dtype=np.float32)
    for a, skip_set in enumerate(skip_sets):
        member[sorted(skip_set), a] = 1.0
    return member
