"""What indexes of blocks prove about single literals, and about several at once, over all blocks at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np

from layoutopt.model.arrays import Bits, Packed
from layoutopt.model.predicates import And, Call, Const, Expr, InSet, Like, Node
from layoutopt.skipping.block_statistics import BlockIndex, BlockStatistics
from layoutopt.skipping.derived.elements import literals_of_elements
from layoutopt.skipping.derived.pieces import follows_for
from layoutopt.skipping.derived.texts import implied_beginning
from layoutopt.skipping.zone_maps import ZoneMapEvaluator, remembered


class IndexEvaluator:
    """What the indexes of literals' subjects prove, ``bool[n]`` each."""

    def __init__(self, statistics: BlockStatistics) -> None:
        self.statistics = statistics
        self._zone_maps = ZoneMapEvaluator(statistics)

    def packed(self, node: Node) -> Packed:
        """As :meth:`cannot`, eight blocks a byte; remembered, since the queries of a log share many literals."""
        return remembered(self.statistics.proved_by_indexes, node, self.cannot)

    def cannot(self, node: Node) -> Bits:
        """The blocks that hold no row which makes the node, a literal or some children of an AND, TRUE.

        Indexes speak of values. Where NULL makes a literal TRUE too, the block must also be known to have none.
        """
        proved = np.zeros(self.statistics.n, dtype=np.bool_)
        if isinstance(node, And):
            return self._cannot_all(node)
        if not isinstance(node, InSet | Like):
            return proved
        of_values = replace(node, null=False) if isinstance(node, InSet) else node
        for index in self._of(node.subject):
            proved |= index.cannot_match(of_values)
        for of_elements in literals_of_elements(of_values):
            for index in self._of(of_elements.subject):
                proved |= index.cannot_match(of_elements)
        if isinstance(of_values, InSet):
            for index, following in self._following(of_values):
                proved |= index.cannot_match(following)
        implied = implied_beginning(node) if isinstance(node, InSet) else None
        if implied is not None:
            proved |= self.cannot(implied)
        has_null = isinstance(node, InSet) and node.null
        return proved & self._zone_maps.without_nulls(node.subject) if has_null else proved

    def _of(self, subject: Expr) -> Iterator[BlockIndex]:
        """The indexes of an expression, and those of what it is a function of, where they know that function."""
        indexes = self.statistics.indexes
        yield from indexes.get(subject, ())
        for argument in dict.fromkeys(subject.args if isinstance(subject, Call) else ()):
            if isinstance(subject, Call) and not isinstance(argument, Const):
                yield from (index for index in indexes.get(argument, ()) if subject.fn in index.functions)

    def _following(self, literal: InSet) -> Iterator[tuple[BlockIndex, InSet]]:
        """The indexes of functions of the literal's text, each with what follows for the function."""
        if literal.subject.type != "string":
            return
        for function, indexes in self.statistics.indexes.items():
            following = None if function == literal.subject else follows_for(function, literal)
            if following is not None:
                yield from ((index, following) for index in indexes)

    @cached_property
    def _joint(self) -> tuple[BlockIndex, ...]:
        return tuple(index for of_one in self.statistics.indexes.values() for index in of_one if index.parts)

    def _cannot_all(self, conjunction: And) -> Bits:
        """By indexes of several expressions: a row in which one of these is NULL does not make the AND TRUE."""
        proved = np.zeros(self.statistics.n, dtype=np.bool_)
        literals = {each.subject: each for each in conjunction.children if isinstance(each, InSet) and not each.null}
        for index in self._joint:
            asked = [literals[part] for part in index.parts if part in literals]
            if len(asked) == len(index.parts):
                proved |= index.cannot_match_all(asked)
        return proved
