"""cannot_match: the one skipping rule, over all blocks at once, shared by search and scan.

A node of a filter's AND/OR tree can't match a block if a feature that subsumes the node has bit 0 in the block's union
vector (Sun 2017, 3.5), or a statistic or an index of the block proves it. An AND can't match if any child can't, or if
an index of several expressions proves it for some children together. An OR can't match if all children can't.

The invariant: where the answer is TRUE, no row of the block makes the node TRUE. Whatever is missing or unknown (a
feature, a bound, a count of NULLs, an index, a kind of literal) proves nothing, so the block might match.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, reduce
from itertools import accumulate
from operator import xor
from typing import Any, NamedTuple

import numpy as np

from layoutopt.model.arrays import Bits, Packed, unpack_bits
from layoutopt.model.feature import FeatureSet
from layoutopt.model.predicates import And, Call, Const, Constant, Expr, InSet, Like, Node, Or, Predicate, columns_of
from layoutopt.model.predicates.subsume import implies
from layoutopt.model.values import Interval, Key, ValueSet
from layoutopt.skipping.block_statistics import UNKNOWN_NULLS, BlockIndex, BlockStatistics, ColumnBounds, FeatureBits
from layoutopt.skipping.derived_bounds import implied_prefix
from layoutopt.skipping.implied_literals import derive_function_literal, element_literals
from layoutopt.skipping.zone_maps import ZoneMapEvaluator, prove_cached

__all__ = [
    "UNKNOWN_NULLS",
    "BlockIndex",
    "BlockStatistics",
    "ColumnBounds",
    "FeatureBits",
    "FeatureIndex",
    "Mechanisms",
    "cannot_match",
    "cannot_match_all",
]

# An IN list of at most so many values or ranges is also tried value by value, as an OR.
_MAX_PIECES = 64


class _Steps:
    """The predicates, as bits, that have each key of a subject: between two ends of their sets all keys are alike.

    Attributes:
        ranges, sets: predicates that are one set of the subject's values, of one interval or of several.
        with_null: those of these that NULL makes TRUE, too.
    """

    def __init__(self, subject: Expr, predicates: Sequence[Predicate]) -> None:
        self.ranges = self.sets = self.with_null = 0
        others = 0  # not sets only, so that they may have any key
        having: list[tuple[int, ValueSet]] = []
        for i, predicate in enumerate(predicates):
            bit, literals = 1 << i, [x for x in predicate.literals if isinstance(x, InSet)]
            if len(literals) < len(predicate.literals):
                others |= bit
                continue
            own = [literal for literal in literals if literal.subject == subject]
            having.append((bit, reduce(ValueSet.union, [literal.values for literal in own], ValueSet.empty())))
            if len(literals) == len(own) == 1 and own[0].values.intervals:
                self.ranges |= bit * (len(own[0].values.intervals) == 1)
                self.sets |= bit * (len(own[0].values.intervals) > 1)
                self.with_null |= bit * own[0].null
        self._ends: list[Any] = sorted(
            {end for _, values in having for pair in values.intervals for end in pair if end is not None}
        )
        changes = [others] + [0] * (len(self._ends) + 1)  # below, between and above the ends
        for bit, values in having:
            for low, high in values.intervals:
                changes[self._step_after(low)] ^= bit
                changes[self._step_before(high) + 1] ^= bit
        self._having: list[int] = list(accumulate(changes, xor))

    def reached(self, values: ValueSet) -> int:
        """Return the predicates that have the first and the last of some keys: of ranges all that have every key."""
        low, high = values.intervals[0][0], values.intervals[-1][1]
        return self._having[self._step_after(low)] & self._having[self._step_before(high)]

    def having_all(self, values: ValueSet, among: int) -> int:
        """Return those of some predicates that have every one of some keys."""
        for low, high in values.intervals:
            for step in range(self._step_after(low), self._step_before(high) + 1):
                among &= self._having[step]
                if not among:
                    return 0
        return among

    def _step_after(self, low: Key | None) -> int:
        return 0 if low is None else bisect_right(self._ends, low)

    def _step_before(self, high: Key | None) -> int:
        return len(self._ends) if high is None else bisect_left(self._ends, high)


class ImpliedPredicates:
    """The predicates that follow from nodes: ``implies`` for all predicates at once, cached by node.

    Filters of one log consist of few literals, and features of few predicates. Each literal is tested once: sets of
    values against all sets together, others one by one. The answers of an AND and an OR are then a union and an
    intersection of sets, which are bits of one Python integer.

    Args:
        predicates: predicate ``i`` is bit ``i`` of every answer.
    """

    def __init__(self, predicates: Sequence[Predicate]) -> None:
        self._predicates = tuple(predicates)
        self._all = (1 << len(self._predicates)) - 1
        self._always = sum(1 << i for i, predicate in enumerate(self._predicates) if predicate.is_always_true)
        self._sharing: dict[frozenset[str], int] = {}
        self._answers: dict[Node, int] = {}
        self._steps: dict[Expr, _Steps] = {}

    def of(self, node: Node) -> int:
        """Return the predicates that are TRUE for every row for which the node is TRUE, as bits."""
        implied = self._answers.get(node)
        if implied is None:
            implied = self._answers[node] = self._find(node)
        return implied

    def _find(self, node: Node) -> int:
        sharing = self._sharing_columns(columns_of(node))
        # Predicates on other columns follow only from FALSE, or if they are always TRUE.
        unrelated = self._all if isinstance(node, Constant) and not node.value else self._always
        return (self._find_sharing(node, sharing) & sharing) | (unrelated & ~sharing)

    def _find_sharing(self, node: Node, sharing: int) -> int:
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
        candidates, implied = sharing, 0
        if isinstance(node, InSet) and not node.values.is_empty:
            steps = self._steps_of(node.subject)
            reached = sharing & steps.reached(node.values)
            implied = (reached & steps.ranges) | steps.having_all(node.values, reached & steps.sets)
            if node.null:
                implied &= steps.with_null
            candidates = reached & ~(steps.ranges | steps.sets)
        while candidates:
            lowest = candidates & -candidates
            if implies(node, self._predicates[lowest.bit_length() - 1]):
                implied |= lowest
            candidates ^= lowest
        return implied

    def _steps_of(self, subject: Expr) -> _Steps:
        steps = self._steps.get(subject)
        if steps is None:
            steps = self._steps[subject] = _Steps(subject, self._predicates)
        return steps

    def _sharing_columns(self, columns: frozenset[str]) -> int:
        """Return the predicates that read one of these columns, as bits."""
        sharing = self._sharing.get(columns)
        if sharing is None:
            sharing = sum(1 << i for i, p in enumerate(self._predicates) if not columns.isdisjoint(columns_of(p)))
            self._sharing[columns] = sharing
        return sharing


class IndexEvaluator:
    """The proofs of indexes about literals and ANDs, over all blocks at once."""

    def __init__(self, statistics: BlockStatistics) -> None:
        self.statistics = statistics
        self._zone_maps = ZoneMapEvaluator(statistics)

    def packed(self, node: Node) -> Packed:
        """Return :meth:`cannot`, eight blocks a byte; cached, since the queries of a log share many literals."""
        return prove_cached(self.statistics.proved_by_indexes, node, self.cannot)

    def cannot(self, node: Node) -> Bits:
        """Return the blocks without a row that makes the node, a literal or an AND, TRUE, ``bool[n]``.

        Indexes know values only. If NULL makes a literal TRUE too, the block must also be known to have no NULL.
        """
        proved = np.zeros(self.statistics.n, dtype=np.bool_)
        if isinstance(node, And):
            return self._cannot_all(node)
        if not isinstance(node, InSet | Like):
            return proved
        without_null = replace(node, null=False) if isinstance(node, InSet) else node
        for index in self._indexes_of(node.subject):
            proved |= index.cannot_match(without_null)
        for element_literal in element_literals(without_null):
            for index in self._indexes_of(element_literal.subject):
                proved |= index.cannot_match(element_literal)
        if isinstance(without_null, InSet):
            for index, function_literal in self._function_literals(without_null):
                proved |= index.cannot_match(function_literal)
        implied = implied_prefix(node) if isinstance(node, InSet) else None
        if implied is not None:
            proved |= self.cannot(implied)
        has_null = isinstance(node, InSet) and node.null
        return proved & self._zone_maps.without_nulls(node.subject) if has_null else proved

    def _indexes_of(self, subject: Expr) -> Iterator[BlockIndex]:
        """Yield the indexes of an expression, and those of its arguments that know its function."""
        indexes = self.statistics.indexes
        yield from indexes.get(subject, ())
        for argument in dict.fromkeys(subject.args if isinstance(subject, Call) else ()):
            if isinstance(subject, Call) and not isinstance(argument, Const):
                yield from (index for index in indexes.get(argument, ()) if subject.fn in index.functions)

    def _function_literals(self, literal: InSet) -> Iterator[tuple[BlockIndex, InSet]]:
        """Yield the indexes of functions of the literal's text, each with the literal implied for the function."""
        if literal.subject.type != "string":
            return
        for function, indexes in self.statistics.indexes.items():
            implied = None if function == literal.subject else derive_function_literal(function, literal)
            if implied is not None:
                yield from ((index, implied) for index in indexes)

    @cached_property
    def _joint(self) -> tuple[BlockIndex, ...]:
        return tuple(index for indexes in self.statistics.indexes.values() for index in indexes if index.parts)

    def _cannot_all(self, conjunction: And) -> Bits:
        """Apply the indexes of several expressions; a row in which one of these is NULL does not make the AND TRUE."""
        proved = np.zeros(self.statistics.n, dtype=np.bool_)
        literals = {
            child.subject: child for child in conjunction.children if isinstance(child, InSet) and not child.null
        }
        for index in self._joint:
            parts = [literals[part] for part in index.parts if part in literals]
            if len(parts) == len(index.parts):
                proved |= index.cannot_match_all(parts)
        return proved


class FeatureIndex:
    """A plan's features with cached answers of ``subsumes``, shared by all queries of a table."""

    def __init__(self, features: FeatureSet) -> None:
        self.features = features
        self._answers: dict[Node, tuple[int, ...]] = {}
        self._candidates: dict[frozenset[str], tuple[tuple[int, int], ...]] = {}
        self._implied_by: dict[tuple[frozenset[str], int], tuple[int, ...]] = {}

    @cached_property
    def _columns(self) -> tuple[tuple[frozenset[str], ...], ...]:
        return tuple(tuple(columns_of(p) for p in feature.predicates) for feature in self.features)

    @cached_property
    def _predicates(self) -> dict[Predicate, int]:
        """Map the features' predicates to their bits in :attr:`_implied`'s answers."""
        predicates = dict.fromkeys(p for feature in self.features for p in feature.predicates)
        return {predicate: 1 << i for i, predicate in enumerate(predicates)}

    @cached_property
    def _implied(self) -> ImpliedPredicates:
        return ImpliedPredicates(tuple(self._predicates))

    @cached_property
    def _conjunctions(self) -> tuple[int, ...]:
        return tuple(sum(self._predicates[p] for p in set(feature.predicates)) for feature in self.features)

    def subsuming(self, node: Node) -> tuple[int, ...]:
        """Return the features that subsume the node: every row that makes the node TRUE makes them TRUE (3.3.1)."""
        answer = self._answers.get(node)
        if answer is None:
            answer = self._answers[node] = self._find(node)
        return answer

    def _find(self, node: Node) -> tuple[int, ...]:
        columns = columns_of(node)
        if columns not in self._candidates:
            # The node implies no predicate on other columns; this avoids most calls.
            self._candidates[columns] = tuple(
                (i, self._conjunctions[i])
                for i, predicate_columns in enumerate(self._columns)
                if all(columns & names for names in predicate_columns)
            )
        key = columns, self._implied.of(node)
        if key not in self._implied_by:
            missing = ~key[1]
            self._implied_by[key] = tuple(i for i, predicates in self._candidates[columns] if not predicates & missing)
        return self._implied_by[key]


class Mechanisms(NamedTuple):
    """What may prove that a block can't match: bits of features, bounds and counts, indexes (read on first use)."""

    features: bool = True
    statistics: bool = True
    indexes: bool = True


def cannot_match(
    node: Node,
    statistics: BlockStatistics,
    features: FeatureSet | FeatureIndex | None,
    *,
    by_features: bool = True,
    by_statistics: bool = True,
    by_indexes: bool = True,
) -> Bits:
    """Return the blocks that are proved to have no row that makes the node TRUE, ``bool[n]``.

    Args:
        node: a filter's root, or any part of it.
        statistics: of the blocks.
        features: of the plan that the bits belong to, if any; a :class:`FeatureIndex` caches answers.
        by_features: whether to use bits.
        by_statistics: whether to use bounds and counts.
        by_indexes: whether to use indexes; the first use of one reads it.
    """
    mechanisms = Mechanisms(by_features, by_statistics, by_indexes)
    return unpack_bits(cannot_match_all([node], statistics, features, [mechanisms])[0, 0], statistics.n)


def cannot_match_each(nodes: Sequence[Node], statistics: BlockStatistics) -> Bits:
    """Return :func:`cannot_match` of many filters by statistics, without features, ``bool[nodes, n]``."""
    return unpack_bits(cannot_match_all(nodes, statistics, None, [Mechanisms()])[0], statistics.n)


def cannot_match_all(
    nodes: Sequence[Node],
    statistics: BlockStatistics,
    features: FeatureSet | FeatureIndex | None,
    mechanisms: Sequence[Mechanisms],
) -> Packed:
    """Return :func:`cannot_match` of many filters by several choices of mechanisms.

    Equal filters, and literals that filters share, are tested once.

    Returns:
        Eight blocks a byte, ``uint8[mechanisms, nodes, ceil(n / 8)]``.
    """
    index = FeatureIndex(features) if isinstance(features, FeatureSet) else features
    check = _Check(statistics, index, mechanisms)
    proved = np.empty((len(mechanisms), len(nodes), check.width), dtype=np.uint8)
    first: dict[Node, int] = {}
    for place, node in enumerate(nodes):
        same = first.setdefault(node, place)
        proved[:, place] = check.cannot(node) if same == place else proved[:, same]
    return proved


class _Check:
    """One evaluation of the rule; its answers are packed, ``uint8[mechanisms, width]``, and must not be changed."""

    def __init__(
        self, statistics: BlockStatistics, index: FeatureIndex | None, mechanisms: Sequence[Mechanisms]
    ) -> None:
        self.width = -(-statistics.n // 8)
        self._shape = (len(mechanisms), self.width)
        self._answers: dict[Node, Packed] = {}
        self._bits, self._index = statistics.bits, index
        self._zone_maps, self._indexed = ZoneMapEvaluator(statistics), IndexEvaluator(statistics)
        # The choices that use a mechanism, as masks of all bits; None if there are none, or nothing to use.
        used = np.array(mechanisms, dtype=np.uint8).reshape(-1, len(Mechanisms._fields)) * np.uint8(255)
        by_features, by_statistics, by_indexes = (used[:, [i]] if used[:, i].any() else None for i in range(3))
        self._by_features = None if self._bits is None or index is None else by_features
        self._by_statistics = by_statistics
        self._by_indexes = by_indexes if statistics.indexes else None

    def cannot(self, node: Node) -> Packed:
        if isinstance(node, And | Or | Constant):
            return self._find(node)
        answer = self._answers.get(node)
        if answer is None:
            answer = self._answers[node] = self._find(node)
        return answer

    def _find(self, node: Node) -> Packed:
        """Return the answer in an array of its own."""
        proved = self._prove_by_features(node)
        match node:
            case Constant(value):
                return proved if value else np.full_like(proved, 255)
            case And(children):
                for child in children:
                    proved |= self.cannot(child)
                if self._by_indexes is not None:
                    proved |= self._indexed.packed(node) & self._by_indexes
            case Or(children):
                proved |= self._cannot_any(children)
            case _:
                if self._by_statistics is not None:
                    proved |= self._zone_maps.packed(node) & self._by_statistics
                if self._by_indexes is not None:
                    proved |= self._indexed.packed(node) & self._by_indexes
                if isinstance(node, InSet) and self._by_features is not None and (parts := split_literal(node)):
                    proved |= self._cannot_any(parts) & self._by_features  # bounds were tested for the whole literal
        return proved

    def _cannot_any(self, nodes: tuple[Node, ...]) -> Packed:
        """Return the blocks that can't match any of the nodes; none if there are no nodes."""
        if not nodes:
            return self._none()
        proved = self.cannot(nodes[0])
        for node in nodes[1:]:
            if not proved.any():
                break
            proved = proved & self.cannot(node)
        return proved

    def _prove_by_features(self, node: Node) -> Packed:
        if self._by_features is None or self._bits is None or self._index is None:
            return self._none()
        features = self._index.subsuming(node)
        if not features:
            return self._none()
        may_match = self._bits.bitmap(features[0])
        for feature in features[1:]:
            may_match = may_match & self._bits.bitmap(feature)
        proved: Packed = ~may_match & self._by_features
        return proved

    def _none(self) -> Packed:
        return np.zeros(self._shape, dtype=np.uint8)


@lru_cache(maxsize=1 << 14)
def split_literal(literal: InSet) -> tuple[InSet, ...]:
    """Split a literal into an OR of literals: one per key if there are few, else one per interval; and one for NULL.

    Empty if there is a single piece, or if there are too many.
    """
    intervals = _single_keys(literal.values) or literal.values.intervals
    if not 1 < len(intervals) + literal.null <= _MAX_PIECES:
        return ()
    parts = [InSet(literal.subject, ValueSet((interval,))) for interval in intervals]
    if literal.null:
        parts.append(InSet(literal.subject, ValueSet.empty(), null=True))
    return tuple(parts)


def _single_keys(values: ValueSet) -> list[Interval]:
    """Return adjacent integers (1, 2 and 3 are one interval) as intervals of one key each, if there are few."""
    bounded = [(low, high) for low, high in values.intervals if isinstance(low, int) and isinstance(high, int)]
    if len(bounded) < len(values.intervals) or sum(high - low for low, high in bounded) > _MAX_PIECES:
        return []
    return [(key, key + 1) for low, high in bounded for key in range(low, high)]
