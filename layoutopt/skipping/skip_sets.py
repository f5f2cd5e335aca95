"""What lets a query skip a block, as sets of features: the search's view of ``cannot_match``.

``cannot_match`` over feature bits alone is a monotone function of the bits that are 0: a leaf is skipped by any one
feature that subsumes it, an AND by any child, an OR by all children. Its minimal satisfying sets are **clauses**: a
query skips a block where all features of any one of its clauses have bit 0. A clause behaves as one derived feature
whose bit is the OR of its members' bits, so everything that the thesis says of features (union vectors, query
vectors, Eq. 3.1) holds for clauses as it stands; a clause of one member is a feature that subsumes the query (3.5).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import product

import numpy as np

from layoutopt.model.arrays import Bits, Singles
from layoutopt.model.feature import FeatureSet
from layoutopt.model.predicates import And, Constant, InSet, Node, Or, conjunction, disjunction
from layoutopt.model.query import Query
from layoutopt.skipping.cannot_match import FeatureIndex, pieces

Clause = frozenset[int]

_MOST_CLAUSES = 64
"""Of more, a node's strictest clauses are kept: the query then skips less in the estimate, never more."""


class ClauseFinder:
    """Finds the clauses of nodes over one feature set, remembering every node it has seen."""

    def __init__(self, features: FeatureSet) -> None:
        self._index = FeatureIndex(features)
        self._seen: dict[Node, tuple[Clause, ...]] = {}

    def clauses(self, node: Node) -> tuple[Clause, ...]:
        """The minimal clauses of a node, smallest first; none where no feature can help.

        A node that no row makes TRUE has the empty clause, which holds everywhere.

        Sound: where all features of a clause are 0 in a block, no row of the block makes the node TRUE.
        """
        found = self._seen.get(node)
        if found is None:
            minimal = _minimal(self._find(node))
            if len(minimal) > _MOST_CLAUSES:
                # A pair of `x <> 'a'` and `x <> 'b'` is smaller than eight values of a list, and never 0 together.
                minimal = sorted(minimal, key=lambda clause: (self._generality(clause), len(clause)))[:_MOST_CLAUSES]
            found = self._seen[node] = tuple(sorted(minimal, key=_by_size))
        return found

    def _find(self, node: Node) -> Iterable[Clause]:
        if isinstance(node, Constant):
            if not node.value:
                yield frozenset()
            return
        yield from (frozenset((i,)) for i in self._index.subsuming(node))
        if isinstance(node, And):
            for child in node.children:
                yield from self.clauses(child)
        elif isinstance(node, Or):
            yield from self._all_of(node.children)
        elif isinstance(node, InSet) and (parts := pieces(node)):
            yield from self._all_of(parts)

    def _all_of(self, children: Sequence[Node]) -> Iterable[Clause]:
        """An OR can't match where every child can't: one clause of each child, joined."""
        choices = self._bound([self.clauses(child) for child in children])
        return (frozenset().union(*choice) for choice in product(*choices))

    def _bound(self, choices: list[tuple[Clause, ...]]) -> list[tuple[Clause, ...]]:
        """Keep the strictest clauses of each choice so that their product stays small.

        Of two features of which one is stricter, it has bit 0 wherever the other has: its clause proves more.
        """
        sizes = [len(choice) for choice in choices]
        if np.prod(sizes, dtype=np.float64) <= _MOST_CLAUSES:
            return choices
        while np.prod(sizes, dtype=np.float64) > _MOST_CLAUSES:
            sizes[int(np.argmax(sizes))] -= 1
        return [
            tuple(sorted(choice, key=lambda clause: (self._generality(clause), *_by_size(clause)))[:size])
            for choice, size in zip(choices, sizes, strict=True)
        ]

    def _generality(self, clause: Clause) -> int:
        return sum(self._stricter[feature] for feature in clause)

    @cached_property
    def _stricter(self) -> tuple[int, ...]:
        """For each feature, how many are stricter, itself among them: it is TRUE wherever one of them is."""
        counts = [0] * len(self._index.features)
        for feature in self._index.features:
            node = conjunction(disjunction(predicate.literals) for predicate in feature.predicates)
            for general in self._index.subsuming(node):
                counts[general] += 1
        return tuple(counts)


def _by_size(clause: Clause) -> tuple[int, list[int]]:
    return len(clause), sorted(clause)


def _minimal(clauses: Iterable[Clause]) -> list[Clause]:
    ordered = sorted(set(clauses), key=_by_size)
    kept: list[Clause] = []
    for clause in ordered:
        if not any(smaller <= clause for smaller in kept):
            kept.append(clause)
    return kept


def clause_table(queries: Sequence[Query], features: FeatureSet) -> tuple[tuple[Clause, ...], Bits]:
    """All clauses of a workload, and which query has which.

    Returns:
        The distinct clauses in order of (size, members), and a bool matrix of shape (queries, clauses).
    """
    finder = ClauseFinder(features)
    of_query = [finder.clauses(query.filter.root) for query in queries]
    table = sorted({c for clauses in of_query for c in clauses}, key=lambda c: (len(c), sorted(c)))
    place = {clause: i for i, clause in enumerate(table)}
    matrix = np.zeros((len(queries), len(table)), dtype=np.bool_)
    for q, clauses in enumerate(of_query):
        matrix[q, [place[c] for c in clauses]] = True
    return tuple(table), matrix


def membership(clauses: Sequence[Clause], n_features: int) -> Singles:
    """Which feature is a member of which clause: 0 or 1, shape (features, clauses).

    A product of union bits and this matrix counts the members with bit 1; a clause holds where that is 0.

    >>> membership([frozenset({0, 1}), frozenset({1})], 2).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    member = np.zeros((n_features, len(clauses)), dtype=np.float32)
    for a, clause in enumerate(clauses):
        member[sorted(clause), a] = 1.0
    return member
