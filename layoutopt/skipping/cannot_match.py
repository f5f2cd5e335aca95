"""cannot_match: the one skipping rule, over all blocks at once, shared by search and scan.

A node of a filter's AND/OR tree can't match a block if a feature that subsumes the node has bit 0 in the block's union
vector (Sun 2017, 3.5), or a statistic or an index of the block proves it; for AND, if any child can't, or an index of
several expressions proves it of some of them together; for OR, if all can't.

The invariant: where the answer is TRUE, no row of the block makes the node TRUE. Whatever is missing or unknown (a
feature, a bound, a count of NULLs, an index, a kind of literal) proves nothing, so the block might match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from layoutopt.model.arrays import Bits, Packed
from layoutopt.model.feature import FeatureSet
from layoutopt.model.predicates import And, Call, Const, Constant, Expr, InSet, Like, Node, Or, Predicate, columns_of
from layoutopt.model.predicates.subsume import implies
from layoutopt.model.values import Interval, ValueSet
from layoutopt.skipping.block_statistics import UNKNOWN_NULLS, BlockIndex, BlockStatistics, ColumnBounds, FeatureBits
from layoutopt.skipping.derived_bounds import implied_beginning
from layoutopt.skipping.implied_literals import follows_for, literals_of_elements
from layoutopt.skipping.zone_maps import ZoneMapEvaluator, remembered

# ----------------------------------------------------------------------------------------------------
# Which of some predicates follow from a node, for all of them at once: ``implies``, with shared parts done once.
#
# Filters of one log are made of few literals, and features of few predicates. What a literal implies is asked once;
# of an
# AND and an OR it is then a union and an intersection of sets of predicates, which are bits of one Python integer.


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


# ----------------------------------------------------------------------------------------------------
# What indexes of blocks prove about single literals, and about several at once, over all blocks at once.


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


__all__ = [
    "UNKNOWN_NULLS",
    "BlockIndex",
    "BlockStatistics",
    "ColumnBounds",
    "FeatureBits",
    "FeatureIndex",
    "cannot_match",
]

# An IN list of so many values or ranges is also tried value by value, as the OR that it is.
_MOST_PIECES = 64


class FeatureIndex:
    """A plan's features, with the answers of ``subsumes`` remembered. One is shared by all queries of a table."""

    def __init__(self, features: FeatureSet) -> None:
        self.features = features
        self._answers: dict[Node, tuple[int, ...]] = {}
        self._about: dict[frozenset[str], tuple[tuple[int, int], ...]] = {}

    @cached_property
    def _columns(self) -> tuple[tuple[frozenset[str], ...], ...]:
        return tuple(tuple(columns_of(p) for p in feature.predicates) for feature in self.features)

    @cached_property
    def _predicates(self) -> dict[Predicate, int]:
        """The features' predicates, each with its bit in :attr:`_implied`'s answers."""
        found = dict.fromkeys(p for feature in self.features for p in feature.predicates)
        return {predicate: 1 << i for i, predicate in enumerate(found)}

    @cached_property
    def _implied(self) -> ImpliedPredicates:
        return ImpliedPredicates(tuple(self._predicates))

    @cached_property
    def _conjunctions(self) -> tuple[int, ...]:
        """Each feature as the bits of its predicates."""
        return tuple(sum(self._predicates[p] for p in set(feature.predicates)) for feature in self.features)

    def subsuming(self, node: Node) -> tuple[int, ...]:
        """The features that subsume the node: every row that makes the node TRUE makes the feature TRUE (3.3.1)."""
        if node not in self._answers:
            self._answers[node] = self._find(node)
        return self._answers[node]

    def _find(self, node: Node) -> tuple[int, ...]:
        columns = columns_of(node)
        if columns not in self._about:
            # A predicate on other columns is implied by nothing here: saves most of the calls.
            self._about[columns] = tuple(
                (i, self._conjunctions[i])
                for i, predicates in enumerate(self._columns)
                if all(columns & one for one in predicates)
            )
        lacking = ~self._implied.of(node)
        return tuple(i for i, predicates in self._about[columns] if not predicates & lacking)


def cannot_match(
    node: Node,
    statistics: BlockStatistics,
    features: FeatureSet | FeatureIndex | None,
    *,
    by_features: bool = True,
    by_statistics: bool = True,
    by_indexes: bool = True,
) -> Bits:
    """The blocks of which it is proved that no row makes the node TRUE, ``bool[n]``.

    Args:
        node: a filter's root, or any part of it.
        statistics: of the blocks.
        features: of the plan that the bits belong to; None if there is none. An index remembers what it found.
        by_features: whether bits are used.
        by_statistics: whether bounds and counts are used.
        by_indexes: whether indexes are used; the first use of one reads it.
    """
    index = FeatureIndex(features) if isinstance(features, FeatureSet) else features
    bits = statistics.bits if by_features else None
    zone_maps = ZoneMapEvaluator(statistics) if by_statistics else None
    indexed = IndexEvaluator(statistics) if by_indexes and statistics.indexes else None
    check = _Check(statistics.n, bits, index, zone_maps, indexed)
    return _unpacked(check.cannot(node), statistics.n)


@dataclass(frozen=True, eq=False)
class _Check:
    """One evaluation of the rule. All its answers are packed, ``uint8[ceil(n / 8)]``."""

    n: int
    bits: FeatureBits | None
    index: FeatureIndex | None
    zone_maps: ZoneMapEvaluator | None
    indexed: IndexEvaluator | None

    def cannot(self, node: Node) -> Packed:
        proved = self._by_features(node)
        match node:
            case Constant(value):
                return proved if value else np.full_like(proved, 255)
            case And(children):
                for child in children:
                    proved |= self.cannot(child)
                if self.indexed is not None:
                    proved |= self.indexed.packed(node)
            case Or(children):
                proved |= self._all_of(children)
            case _:
                if self.zone_maps is not None:
                    proved |= self.zone_maps.packed(node)
                if self.indexed is not None:
                    proved |= self.indexed.packed(node)
                if isinstance(node, InSet) and self.bits is not None and self.index is not None:
                    proved |= self._all_of(pieces(node))  # bounds have looked at all pieces already
        return proved

    def _all_of(self, nodes: tuple[Node, ...]) -> Packed:
        """Blocks that none of the nodes can match; none if there are no nodes."""
        if not nodes:
            return self._none()
        proved = self.cannot(nodes[0])
        for node in nodes[1:]:
            if not proved.any():
                break
            proved &= self.cannot(node)
        return proved

    def _by_features(self, node: Node) -> Packed:
        if self.bits is None or self.index is None:
            return self._none()
        found = self.index.subsuming(node)
        if not found:
            return self._none()
        may = self.bits.bitmap(found[0]).copy()
        for feature in found[1:]:
            may &= self.bits.bitmap(feature)
        return ~may

    def _none(self) -> Packed:
        return np.zeros(-(-self.n // 8), dtype=np.uint8)


@lru_cache(maxsize=1 << 14)
def pieces(literal: InSet) -> tuple[InSet, ...]:
    """The literals whose OR the literal is: one a key where these are few, else one an interval, and one for NULL.

    Empty if that is a single piece, or if there are too many.
    """
    intervals = _single_keys(literal.values) or literal.values.intervals
    if not 1 < len(intervals) + literal.null <= _MOST_PIECES:
        return ()
    found = [InSet(literal.subject, ValueSet((interval,))) for interval in intervals]
    if literal.null:
        found.append(InSet(literal.subject, ValueSet.empty(), null=True))
    return tuple(found)


def _single_keys(values: ValueSet) -> list[Interval]:
    """Integers that stand next to each other (1, 2 and 3 are one interval) as intervals of one key each, if few."""
    bounded = [(low, high) for low, high in values.intervals if isinstance(low, int) and isinstance(high, int)]
    if len(bounded) < len(values.intervals) or sum(high - low for low, high in bounded) > _MOST_PIECES:
        return []
    return [(key, key + 1) for low, high in bounded for key in range(low, high)]


def _unpacked(packed: Packed, n: int) -> Bits:
    return np.unpackbits(packed, count=n).view(np.bool_)
