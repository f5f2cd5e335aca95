"""Find which predicates of a list a filter implies: whole rows of the augmented matrix, node by node."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from functools import cache

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.model.feature import FeatureSet
from layoutopt.model.predicates import And, Comparison, Constant, InSet, Literal, Node, Or, Predicate, columns_of
from layoutopt.model.predicates.subsume import implies
from layoutopt.model.query import Query
from layoutopt.model.values import ValueSet
from layoutopt.model.values.keys import Key
from layoutopt.skipping.cannot_match import split_literal


class Enclosing:
    """Finds sets of values by their bounds, with whole arrays; a log has thousands of ranges of one column.

    >>> sets = [ValueSet.interval(0, 9), ValueSet.of([1, 5]), ValueSet.interval(4, None), ValueSet.empty()]
    >>> Enclosing(enumerate(sets)).enclosing(ValueSet.of([2, 4]))
    array([0, 1])
    """

    def __init__(self, sets: Iterable[tuple[int, ValueSet]]) -> None:
        """Store numbered sets of keys of one kind."""
        bounded = [(number, *bounds) for number, values in sets if (bounds := _find_bounds(values))]
        self._numbers: Ints = np.array([number for number, _, _ in bounded], dtype=np.int64)
        self._lows = sorted({low for _, low, _ in bounded if low is not None})
        self._highs = sorted({high for _, _, high in bounded if high is not None})
        self._low_ranks: Ints = np.array([self._rank_low(low) for _, low, _ in bounded], dtype=np.int64)
        self._high_ranks: Ints = np.array([self._rank_high(high) for _, _, high in bounded], dtype=np.int64)

    def enclosing(self, values: ValueSet) -> Ints:
        """Return the numbers of the sets whose bounds enclose all these values; all non-empty sets for no values."""
        numbers, bounds = self._numbers, _find_bounds(values)
        if bounds is not None:
            low, high = (self._rank_low(bounds[0]), self._rank_high(bounds[1]))
            numbers = numbers[(self._low_ranks <= low) & (self._high_ranks >= high)]
        return numbers

    def _rank_low(self, low: Key | None) -> int:
        """Return how many of the sets' lows are at or below a low; None is the lowest."""
        return 0 if low is None else bisect_right(self._lows, low)

    def _rank_high(self, high: Key | None) -> int:
        """Return how many of the sets' highs are below a high; None is the highest."""
        return len(self._highs) if high is None else bisect_left(self._highs, high)


def _find_bounds(values: ValueSet) -> tuple[Key | None, Key | None] | None:
    """Return the least interval that holds all values; None if there are none."""
    return (values.intervals[0][0], values.intervals[-1][1]) if values.intervals else None


class Implications:
    """Relates nodes of filters to a fixed list of predicates, with a cache of nodes.

    A node's row follows its AND/OR tree, as ``implies`` does: a conjunction implies what any child implies, a
    disjunction what all children imply. So only leaves are compared with predicates, each distinct leaf once, and sets
    of values only if their bounds enclose the leaf's values.

    Attributes:
        implied: which predicates subsume a node (3.3.1), ``bool[predicates]``. False whenever unsure.
        shares: how much of a node each predicate covers, from 0 to 1, ``float64[predicates]``: 1 where the predicate
            subsumes it. A disjunction (or a list of values) of *k* parts is skipped where every part is; a predicate
            that subsumes *j* of them covers ``j / k``. Of a conjunction's parts the best covered one counts, since any
            one suffices.
    """

    def __init__(self, predicates: Sequence[Predicate]) -> None:
        self._predicates = tuple(predicates)
        self._by_columns: dict[frozenset[str], list[int]] = defaultdict(list)
        self._holds_null: Bits = np.zeros(len(self._predicates), dtype=np.bool_)
        ranges: dict[Hashable, list[tuple[int, ValueSet]]] = defaultdict(list)
        sets: dict[Hashable, list[tuple[int, ValueSet]]] = defaultdict(list)
        for i, predicate in enumerate(self._predicates):
            literal = predicate.literals[0]
            if len(predicate.literals) == 1 and isinstance(literal, InSet) and not literal.values.is_empty:
                (ranges if len(literal.values.intervals) == 1 else sets)[literal.subject].append((i, literal.values))
                self._holds_null[i] = literal.null
            else:
                self._by_columns[columns_of(predicate)].append(i)
        # A range that encloses a set's bounds has all its values; of other sets the bounds alone are compared.
        self._ranges = {subject: Enclosing(numbered) for subject, numbered in ranges.items()}
        self._sets = {subject: Enclosing(numbered) for subject, numbered in sets.items()}
        self.implied = cache(self._compute_implied)
        self.shares = cache(self._compute_shares)

    def _compute_implied(self, node: Node) -> Bits:
        if isinstance(node, And):
            return np.array(np.any([self.implied(child) for child in node.children], axis=0))
        if isinstance(node, Or):
            return np.array(np.all([self.implied(child) for child in node.children], axis=0))
        row = np.zeros(len(self._predicates), dtype=np.bool_)
        if isinstance(node, Constant):
            return row
        if isinstance(node, InSet) and node.subject in self._ranges:
            enclosing = self._ranges[node.subject].enclosing(node.values)
            row[enclosing[self._holds_null[enclosing]] if node.null else enclosing] = True
        row[[i for i in self._find_candidates(node) if implies(node, self._predicates[i])]] = True
        return row

    def _find_candidates(self, leaf: Literal) -> Iterable[int]:
        """Yield the other predicates that a leaf could imply: about its columns, and with bounds that enclose it."""
        is_set = isinstance(leaf, InSet)
        values = leaf.values if isinstance(leaf, InSet) else ValueSet.empty()
        for subject in (leaf.left, leaf.right) if isinstance(leaf, Comparison) else (leaf.subject,):
            for by_subject in (self._sets,) if is_set else (self._sets, self._ranges):
                if subject in by_subject:
                    yield from by_subject[subject].enclosing(values).tolist()
        for named, places in self._by_columns.items():
            if named & leaf.columns:
                yield from places

    def _compute_shares(self, node: Node) -> Floats:
        covered = np.zeros(len(self._predicates))
        if isinstance(node, And):
            covered = np.max([self.shares(child) for child in node.children], axis=0)
        elif len(parts := node.children if isinstance(node, Or) else single_parts(node)) > 1:
            covered = np.mean([self.shares(part) for part in parts], axis=0)
        return np.where(self.implied(node), 1.0, covered)


def find_subsumed(features: FeatureSet, queries: Sequence[Query]) -> Bits:
    """Return which features subsume each query's filter, as :meth:`~layoutopt.model.feature.FeatureSet.matrix`.

    Each distinct leaf of the filters is compared once with whole arrays of predicates.
    """
    predicates = dict.fromkeys(predicate for feature in features for predicate in feature.predicates)
    place = {predicate: i for i, predicate in enumerate(predicates)}
    members = [[place[predicate] for predicate in feature.predicates] for feature in features]
    relation = Implications(tuple(predicates))
    rows: dict[Node, Bits] = {}
    for query in queries:
        root = query.filter.root
        if root not in rows:
            if isinstance(root, Constant):  # it subsumes trivially, or not at all
                implied = np.array([implies(root, predicate) for predicate in predicates], dtype=np.bool_)
            else:
                implied = relation.implied(root)
            rows[root] = implied
    implied = np.array([rows[query.filter.root] for query in queries], dtype=np.bool_)
    implied = implied.reshape(len(queries), len(predicates))
    columns = [implied[:, places].all(axis=1) for places in members]
    return np.stack(columns, axis=1) if columns else np.zeros((len(queries), 0), dtype=np.bool_)


def single_parts(node: Node) -> tuple[InSet, ...]:
    """Return a list of values (or closed ranges) as one literal a value; nothing for other nodes and long lists.

    Neighbouring integers are values too: the parts of ``x IN (3, 7, 8)`` are 3, 7 and 8, which recur in other lists
    where ``x BETWEEN 7 AND 8`` does not. ``x <> 1`` is no list: its halves are no more likely to recur than it is.
    """
    if not isinstance(node, InSet) or any(None in interval for interval in node.values.intervals):
        return ()
    return split_literal(node)
