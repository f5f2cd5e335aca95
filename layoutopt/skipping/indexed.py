"""What indexes of blocks prove about single literals, over all blocks at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from layoutopt.model.arrays import Bits, Packed
from layoutopt.model.predicates import InSet, Like, Node
from layoutopt.skipping.block_statistics import BlockStatistics
from layoutopt.skipping.derived.texts import implied_beginning
from layoutopt.skipping.zone_maps import ZoneMapEvaluator, remembered


class IndexEvaluator:
    """What the indexes of literals' subjects prove, ``bool[n]`` each."""

    def __init__(self, statistics: BlockStatistics) -> None:
        self.statistics = statistics
        self._zone_maps = ZoneMapEvaluator(statistics)

    def packed(self, literal: Node) -> Packed:
        """As :meth:`cannot`, eight blocks a byte; remembered, since the queries of a log share many literals."""
        return remembered(self.statistics.proved_by_indexes, literal, self.cannot)

    def cannot(self, literal: Node) -> Bits:
        """The blocks that hold no row which makes the literal TRUE.

        Indexes speak of values. Where NULL makes a literal TRUE too, the block must also be known to have none.
        """
        proved = np.zeros(self.statistics.n, dtype=np.bool_)
        if not isinstance(literal, InSet | Like):
            return proved
        of_values = replace(literal, null=False) if isinstance(literal, InSet) else literal
        for index in self.statistics.indexes.get(literal.subject, ()):
            proved |= index.cannot_match(of_values)
        implied = implied_beginning(literal) if isinstance(literal, InSet) else None
        if implied is not None:
            proved |= self.cannot(implied)
        has_null = isinstance(literal, InSet) and literal.null
        return proved & self._zone_maps.without_nulls(literal.subject) if has_null else proved
