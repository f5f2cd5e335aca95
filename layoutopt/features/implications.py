"""Which of a list of predicates a filter implies: whole rows of the augmented matrix, node by node."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from functools import cache

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.model.predicates import And, Comparison, Constant, InSet, Literal, Node, Or, Predicate, columns_of
from layoutopt.model.predicates.subsume import implies
from layoutopt.model.values import ValueSet
from layoutopt.model.values.keys import Key
from layoutopt.skipping.cannot_match import pieces

# ----------------------------------------------------------------------------------------------------
# Of many sets of values those whose bounds enclose another set's: all that it can be a subset of.


class Enclosing:
    """Finds sets by their bounds, whole arrays at once; a log has thousands of ranges of one column.

    >>> sets = [ValueSet.interval(0, 9), ValueSet.of([1, 5]), ValueSet.interval(4, None), ValueSet.empty()]
    >>> Enclosing(enumerate(sets)).enclosing(ValueSet.of([2, 4]))
    [0, 1]
    """

    def __init__(self, sets: Iterable[tuple[int, ValueSet]]) -> None:
        """Remember sets of keys of one kind, each by a number."""
        held = [(number, *bounds) for number, values in sets if (bounds := _bounds(values))]
        self._numbers: Ints = np.array([number for number, _, _ in held], dtype=np.int64)
        self._lows = sorted({low for _, low, _ in held if low is not None})
        self._highs = sorted({high for _, _, high in held if high is not None})
        self._low_ranks: Ints = np.array([self._rank_of_low(low) for _, low, _ in held], dtype=np.int64)
        self._high_ranks: Ints = np.array([self._rank_of_high(high) for _, _, high in held], dtype=np.int64)

    def enclosing(self, values: ValueSet) -> list[int]:
        """The numbers of the sets between whose lowest and highest key all these values lie.

        Of no values all sets that have some.
        """
        found, bounds = self._numbers, _bounds(values)
        if bounds is not None:
            low, high = bounds
            found = found[(self._low_ranks <= self._rank_of_low(low)) & (self._high_ranks >= self._rank_of_high(high))]
        numbers: list[int] = found.tolist()
        return numbers

    def _rank_of_low(self, low: Key | None) -> int:
        """How many of the sets' lows are at or below a low, of which no bound is the lowest."""
        return 0 if low is None else bisect_right(self._lows, low)

    def _rank_of_high(self, high: Key | None) -> int:
        """How many of the sets' highs are below a high, of which no bound is the highest."""
        return len(self._highs) if high is None else bisect_left(self._highs, high)


def _bounds(values: ValueSet) -> tuple[Key | None, Key | None] | None:
    """The least interval that holds all values; None of none."""
    return (values.intervals[0][0], values.intervals[-1][1]) if values.intervals else None


class Implications:
    """Relates nodes of filters to a fixed list of predicates, remembering every node it has seen.

    A node's row follows its AND/OR tree, as ``implies`` does: a conjunction implies what any child implies, a
    disjunction what all children imply. So only leaves are compared with predicates, each distinct leaf once, and of
    the predicates that are a set of values only with those between whose bounds the leaf's values lie.

    Attributes:
        implied: of a node, which predicates subsume it (3.3.1), ``bool[predicates]``. FALSE whenever unsure.
        shares: of a node, how much of it each predicate covers, from 0 to 1, ``float64[predicates]``: 1 where the
            predicate subsumes it. A disjunction (or a list of values) of *k* parts is skipped where every part is; a
            predicate that subsumes *j* of them covers ``j / k``. Of a conjunction's parts the best covered one counts,
            since any one suffices.
    """

    def __init__(self, predicates: Sequence[Predicate]) -> None:
        self._predicates = tuple(predicates)
        self._by_columns: dict[frozenset[str], list[int]] = defaultdict(list)
        sets: dict[Hashable, list[tuple[int, ValueSet]]] = defaultdict(list)
        for i, predicate in enumerate(self._predicates):
            literal = predicate.literals[0]
            if len(predicate.literals) == 1 and isinstance(literal, InSet) and not literal.values.is_empty:
                sets[literal.subject].append((i, literal.values))
            else:
                self._by_columns[columns_of(predicate)].append(i)
        self._sets = {subject: Enclosing(of_subject) for subject, of_subject in sets.items()}
        self.implied = cache(self._implied)
        self.shares = cache(self._shares)

    def _implied(self, node: Node) -> Bits:
        if isinstance(node, And):
            return np.array(np.any([self.implied(child) for child in node.children], axis=0))
        if isinstance(node, Or):
            return np.array(np.all([self.implied(child) for child in node.children], axis=0))
        row = np.zeros(len(self._predicates), dtype=np.bool_)
        if not isinstance(node, Constant):
            row[[i for i in self._about(node) if implies(node, self._predicates[i])]] = True
        return row

    def _about(self, leaf: Literal) -> Iterable[int]:
        """The predicates that could follow from a leaf: none about other columns alone, nor sets too small for it."""
        for subject in (leaf.left, leaf.right) if isinstance(leaf, Comparison) else (leaf.subject,):
            if subject in self._sets:
                yield from self._sets[subject].enclosing(leaf.values if isinstance(leaf, InSet) else ValueSet.empty())
        for named, places in self._by_columns.items():
            if named & leaf.columns:
                yield from places

    def _shares(self, node: Node) -> Floats:
        covered = np.zeros(len(self._predicates))
        if isinstance(node, And):
            covered = np.max([self.shares(child) for child in node.children], axis=0)
        elif len(parts := node.children if isinstance(node, Or) else single_parts(node)) > 1:
            covered = np.mean([self.shares(part) for part in parts], axis=0)
        return np.where(self.implied(node), 1.0, covered)


def single_parts(node: Node) -> tuple[InSet, ...]:
    """A list of values (or closed ranges) as one literal a value; nothing for other nodes and for long lists.

    Integers that stand next to each other are values too: of ``x IN (3, 7, 8)`` the parts are 3, 7 and 8, which recur
    in other lists where ``x BETWEEN 7 AND 8`` does not. ``x <> 1`` is no list: its halves are no more likely to recur
    than it is.
    """
    if not isinstance(node, InSet) or any(None in interval for interval in node.values.intervals):
        return ()
    return pieces(node)
