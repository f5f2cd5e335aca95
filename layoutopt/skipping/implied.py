"""Which of some predicates follow from a node, for all of them at once: ``implies``, with shared parts done once.

Filters of one log are made of few literals, and features of few predicates. What a literal implies is asked once; of an
AND and an OR it is then a union and an intersection of sets of predicates, which are bits of one Python integer.
"""

from __future__ import annotations

from collections.abc import Sequence

from layoutopt.model.predicates import And, Constant, Node, Or, Predicate, columns_of
from layoutopt.model.predicates.subsume import implies


class ImpliedPredicates:
    """The predicates that follow from nodes, remembered for every node it has seen.

    Args:
        predicates: predicate ``i`` is bit ``i`` of every answer.
    """

    def __init__(self, predicates: Sequence[Predicate]) -> None:
        self._predicates = tuple(predicates)
        self._all = (1 << len(self._predicates)) - 1
        self._always = sum(1 << i for i, predicate in enumerate(self._predicates) if predicate.is_always_true)
        self._sharing: dict[frozenset[str], int] = {}
        self._answers: dict[Node, int] = {}

    def of(self, node: Node) -> int:
        """The predicates that are TRUE of every row for which the node is TRUE, as bits: what ``implies`` says."""
        found = self._answers.get(node)
        if found is None:
            found = self._answers[node] = self._find(node)
        return found

    def _find(self, node: Node) -> int:
        sharing = self._sharing_columns(columns_of(node))
        # On other columns a predicate follows only where that has nothing to do with columns.
        others = self._all if isinstance(node, Constant) and not node.value else self._always
        return (self._of_parts(node, sharing) & sharing) | (others & ~sharing)

    def _of_parts(self, node: Node, sharing: int) -> int:
        if isinstance(node, And):
            union = 0
            for child in node.children:
                union |= self.of(child)
            return union
        if isinstance(node, Or):
            common = self._all
            for child in node.children:
                common &= self.of(child)
            return common
        candidates = (i for i in range(sharing.bit_length()) if sharing >> i & 1)
        return sum(1 << i for i in candidates if implies(node, self._predicates[i]))

    def _sharing_columns(self, columns: frozenset[str]) -> int:
        """The predicates that read one of these columns."""
        found = self._sharing.get(columns)
        if found is None:
            found = sum(1 << i for i, p in enumerate(self._predicates) if not columns.isdisjoint(columns_of(p)))
            self._sharing[columns] = found
        return found
