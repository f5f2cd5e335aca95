"""How much a blocking should care for each feature: the weights of Equation 3.1 (Sun 2017), and marginal weights."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Final

import numpy as np

from layoutopt.features.implications import Implications, single_parts
from layoutopt.model.arrays import Bits, Bytes, Floats, Ints
from layoutopt.model.feature import FeatureSet
from layoutopt.model.predicates import Comparison, InSet, Like, Literal, Node, Or, Predicate, conjuncts
from layoutopt.model.query import Query
from layoutopt.model.values import Key, ValueSet
from layoutopt.model.vectors import VectorCounts


def feature_shares(features: FeatureSet, queries: Sequence[Query]) -> Floats:
    """How much of each query's filter each feature covers: float64, shape (queries, features), from 0 to 1.

    1 where the feature subsumes the query, as ``FeatureSet.matrix`` has it; ``1 / k`` where it subsumes one of the
    *k* parts of a disjunction, which a block is skipped for when all parts have bit 0. Weights from these shares make
    the blocking care for lists that no one feature subsumes. The array is shared: it can't be written to.
    """
    return _feature_shares(features, tuple(queries))


@lru_cache(maxsize=32)
def _feature_shares(features: FeatureSet, queries: tuple[Query, ...]) -> Floats:
    """Remembered, since planning weighs the same features by the same queries at each of its stages."""
    predicates = tuple(dict.fromkeys(p for feature in features for p in feature.predicates))
    place = {predicate: i for i, predicate in enumerate(predicates)}
    relation = Implications(predicates)
    shares = np.zeros((len(queries), len(features)))
    members = [[place[p] for p in feature.predicates] for feature in features]
    single = [i for i, of_feature in enumerate(members) if len(of_feature) == 1]
    places = [members[i][0] for i in single]
    joined = [(i, of_feature) for i, of_feature in enumerate(members) if len(of_feature) > 1]
    for row, query in zip(shares, queries, strict=True):
        implied, covered = relation.implied(query.filter.root), relation.shares(query.filter.root)
        row[single] = covered[places]
        for i, of_feature in joined:
            row[i] = float(implied[of_feature].all())
    shares.setflags(write=False)
    return shares


def feature_weights(
    matrix: Bits | Floats, query_weights: Floats, selectivity: Floats | None = None, *, marginal: bool = False
) -> Floats:
    """The weight of each feature for the blocking: float64, shape (features,).

    Eq. 3.1 gives a query's whole weight to every feature that subsumes it, though a query skips a block once. With
    `marginal` its most selective feature gets the whole weight, and each next one only the share of rows that those
    before it leave.

    Args:
        matrix: shape (queries, features): bool (subsumes), or the shares of :func:`feature_shares`.
        query_weights: shape (queries,), or (partitions, queries) for weights each; 0 for queries that don't reach the
            partition at hand.
        selectivity: share of rows that match each feature, shape (features,). Needed for `marginal`.

    Raises:
        ValueError: `marginal` without `selectivity`.

    >>> both = np.array([[True, True], [False, True]])
    >>> feature_weights(both, np.ones(2)).tolist()
    [1.0, 2.0]
    >>> feature_weights(both, np.ones(2), np.array([0.25, 0.5]), marginal=True).tolist()
    [1.0, 1.25]
    """
    shares = matrix.astype(np.float64)
    if marginal:
        if selectivity is None:
            raise ValueError("marginal weights need the features' selectivity")
        shares = _marginal(shares, selectivity)
    return np.asarray(query_weights @ shares)


MARGINAL: Final = "marginal"
SUBSUMED: Final = "subsumed"
WEIGHINGS: Final = (MARGINAL, SUBSUMED)
"""What a feature counts for: what queries skip by it beyond stricter ones, or all that it subsumes (Eq. 3.1)."""


def weights_by(weighing: str, shares: Floats, query_weights: Floats, selectivity: Floats) -> Floats:
    """The weights of features, ``float64[f]``, by one of :data:`WEIGHINGS`.

    Args:
        weighing: which.
        shares: how much of each query each feature covers, ``float64[n_queries, f]``.
        query_weights: ``float64[n_queries]``, 0 for queries that don't reach the segment.
        selectivity: share of rows that match each feature, ``float64[f]``.
    """
    if weighing == SUBSUMED:
        return feature_weights(shares >= 1.0, query_weights)
    return feature_weights(shares, query_weights, selectivity, marginal=True)


def segment_weights(shares: Floats, query_weights: Floats, vectors: VectorCounts, weighing: str = MARGINAL) -> Floats:
    """As :func:`weights_by`, for rows with these vectors."""
    return weights_by(weighing, shares, query_weights, vectors.counts @ vectors.bits() / max(vectors.rows, 1))


def _marginal(shares: Floats, selectivity: Floats) -> Floats:
    order = np.argsort(selectivity, kind="stable")
    ordered = shares[:, order]
    stays = 1.0 - ordered * (1.0 - selectivity[order])
    before = np.cumprod(np.column_stack([np.ones(len(shares)), stays]), axis=1)[:, :-1]
    result = np.empty_like(shares)
    result[:, order] = ordered * before
    return result


# ----------------------------------------------------------------------------------------------------
# Filters as what a block must be skipped for, part by part.
#
# A block is skipped for ``x IN (1, 2, 3) AND y = 4`` by ``y = 4``, or where each of ``x = 1``, ``x = 2`` and ``x = 3``
# has bit 0. So what a feature helps such a filter depends on which part it covers: two features for ``x = 1`` are of no
# more use than the better of them, and without one for ``x = 3`` they are of none.

MOST_UNITS = 64
"""A filter has at most so many; of longer lists evenly spread parts stand for all."""

_MOST_FACTOR = 255


@dataclass(frozen=True, eq=False)
class Units:
    """Each filter as units: one part of each of its disjunctions and lists, together with the rest of the filter.

    A block is skipped only if all units of the filter are, so what a filter reads is the sum of what its units do. A
    filter of *k* parts has *k* units that weigh a *k*-th each; a feature with the selectivity *s* for one of the parts
    leaves the share *s* of all rows to be read for it, which is ``k * s`` of the unit's weight.

    Attributes:
        of_filter: the filter of each unit, ``int64[units]``.
        shares: of a filter, ``float64[units]``; a filter's sum to 1.
        factors: how often an item's rows count for a unit, ``uint8[units, items]``: 1 where the item subsumes the whole
            filter, *k* where it subsumes the unit's part, one of *k*, and 0 where it subsumes neither.
    """

    of_filter: Ints
    shares: Floats
    factors: Bytes


def units_of(nodes: Sequence[Node], relation: Implications, n_items: int) -> Units:
    """The units of filters, whose roots these are, over the relation's predicates.

    Of ``x IN (1, 2)`` and the items ``x = 1``, ``x = 2``, ``x IN (1, 2)`` and ``x = 3``:

    >>> from layoutopt.model.predicates import Col, InSet, Predicate
    >>> from layoutopt.model.values import ValueSet
    >>> lists = [InSet(Col("x", "int"), ValueSet.of(values)) for values in ([1], [2], [1, 2], [3])]
    >>> units = units_of([lists[2]], Implications([Predicate((one,)) for one in lists]), 4)
    >>> units.shares.tolist(), units.factors.tolist()
    ([0.5, 0.5], [[2, 0, 1, 0], [0, 2, 1, 0]])
    """
    of_filter: list[int] = []
    shares: list[float] = []
    factors: list[Bytes] = []
    for number, node in enumerate(nodes):
        disjunctions = [parts for conjunct in conjuncts(node) if len(parts := _parts(conjunct)) > 1]
        units = [_factors(node, chosen, relation) for chosen in product(*_representatives(disjunctions))]
        of_filter += [number] * len(units)
        shares += [1.0 / len(units)] * len(units)
        factors += units
    stacked = np.stack(factors) if factors else np.zeros((0, n_items), dtype=np.uint8)
    return Units(np.array(of_filter, dtype=np.int64), np.array(shares, dtype=np.float64), stacked)


def _parts(node: Node) -> Sequence[Node]:
    return node.children if isinstance(node, Or) else single_parts(node)


_Part = tuple[Node, int]
"""A part, and how many there are of it and its like."""


def _representatives(disjunctions: Sequence[Sequence[Node]]) -> list[list[_Part]]:
    """Of each disjunction so many parts, evenly spread, that their combinations are not too many."""
    counts = [len(parts) for parts in disjunctions]
    while np.prod(counts, dtype=np.float64) > MOST_UNITS:
        counts[int(np.argmax(counts))] -= 1
    return [
        [(parts[i * len(parts) // count], len(parts)) for i in range(count)]
        for parts, count in zip(disjunctions, counts, strict=True)
    ]


def _factors(node: Node, chosen: Sequence[_Part], relation: Implications) -> Bytes:
    """The factors of one unit, ``uint8[items]``: the smallest that holds."""
    factors = np.zeros_like(relation.implied(node), dtype=np.uint8)
    for part, count in sorted(chosen, key=lambda each: -each[1]):
        factors[relation.implied(part)] = min(count, _MOST_FACTOR)
    factors[relation.implied(node)] = 1
    return factors


# ----------------------------------------------------------------------------------------------------
# How selective predicates are, guessed from the workload alone, since the data need not be at hand.

_NULL_SHARE = 0.1
_COMPARISON_SHARES = {"=": 0.1, "<>": 0.9, "<": 0.5, "<=": 0.5}


def assumed_selectivity(predicates: Iterable[Predicate]) -> dict[Literal, float]:
    """The share of rows for which each literal is guessed to be TRUE, in (0, 1].

    The constants that a workload compares an expression with cut its values into cells; a literal is as selective as
    the share of cells that it holds. So ``x = 'a'`` is one in as many as there are such constants, ``x <> 'a'`` is all
    but one, and a list as many as its values. Good enough to rank; a plan measures the rows themselves.
    """
    literals = list(dict.fromkeys(literal for predicate in predicates for literal in predicate.literals))
    return {**_set_shares(literals), **_other_shares(literals)}


def share_of(predicate: Predicate, selectivity: Mapping[Literal, float]) -> float:
    """The share of rows that a predicate matches at most: its literals' together."""
    return min(1.0, sum(selectivity[literal] for literal in predicate.literals))


def _set_shares(literals: Sequence[Literal]) -> dict[Literal, float]:
    by_subject: dict[Hashable, list[InSet]] = defaultdict(list)
    for literal in literals:
        if isinstance(literal, InSet):
            by_subject[literal.subject].append(literal)
    shares: dict[Literal, float] = {}
    for members in by_subject.values():
        cells = _cells([member.values for member in members])
        weights = _cell_weights(cells, [member.values for member in members])
        for member, held in zip(members, cells, strict=True):
            share = float(held @ weights) * (1.0 - _NULL_SHARE) + _NULL_SHARE * member.null
            shares[member] = min(1.0, max(share, 1e-6))
    return shares


def _cells(sets: Sequence[ValueSet]) -> Bits:
    """Which elementary intervals each set holds: bool, shape (sets, cells); cells lie between all sets' bounds."""
    bounds: list[Key] = sorted({key for values in sets for pair in values.intervals for key in pair if key is not None})
    cells = np.zeros((len(sets), len(bounds) + 1), dtype=np.bool_)
    for row, values in zip(cells, sets, strict=True):
        for low, high in values.intervals:
            first = 0 if low is None else bisect_left(bounds, low) + 1
            end = len(row) if high is None else bisect_left(bounds, high) + 1
            row[first:end] = True
    return cells


def _cell_weights(cells: Bits, sets: Sequence[ValueSet]) -> Floats:
    """The cells' shares of the rows. Those that no list or closed range holds are what is left: one cell together."""
    closed = [bool(v.intervals) and all(None not in pair for pair in v.intervals) for v in sets]
    named = cells[closed].any(axis=0) if any(closed) else np.ones(cells.shape[1], dtype=np.bool_)
    weights = np.where(named, 1.0, 1.0 / max(1, int((~named).sum())))
    return np.array(weights / weights.sum())


def _other_shares(literals: Sequence[Literal]) -> dict[Literal, float]:
    patterns: dict[Hashable, set[object]] = defaultdict(set)
    for literal in literals:
        if isinstance(literal, Like):
            patterns[literal.subject].add(literal.pattern)
    shares: dict[Literal, float] = {}
    for literal in literals:
        if isinstance(literal, Like):
            share = 1.0 / max(2, len(patterns[literal.subject]))
            shares[literal] = 1.0 - share if literal.negated else share
        elif isinstance(literal, Comparison):
            shares[literal] = _COMPARISON_SHARES.get(literal.op, 0.5)
    return shares
