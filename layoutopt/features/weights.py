"""Weigh features for a blocking: the weights of Equation 3.1 (Sun 2017), marginal weights, and filters as units."""

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

MARGINAL: Final = "marginal"
SUBSUMED: Final = "subsumed"
# How features count: by what queries skip with them beyond stricter ones, or by all that they subsume (Eq. 3.1).
WEIGHINGS: Final = (MARGINAL, SUBSUMED)
# A filter has at most so many units; for longer lists, evenly spread parts represent all.
MOST_UNITS = 64
_MAX_FACTOR = 255
# A part, and how many parts it represents.
_Part = tuple[Node, int]
_NULL_SHARE = 0.1
_COMPARISON_SHARES = {"=": 0.1, "<>": 0.9, "<": 0.5, "<=": 0.5}


def feature_shares(features: FeatureSet, queries: Sequence[Query]) -> Floats:
    """Return how much of each query's filter each feature covers, ``float64[queries, features]``, from 0 to 1.

    It is 1 where the feature subsumes the query, as ``FeatureSet.matrix`` has it, and ``1 / k`` where it subsumes one
    of the *k* parts of a disjunction, which a block is skipped for when all parts have bit 0. So lists that no single
    feature subsumes get weight. The array is shared and read-only.
    """
    return _feature_shares(features, tuple(queries))


@lru_cache(maxsize=32)
def _feature_shares(features: FeatureSet, queries: tuple[Query, ...]) -> Floats:
    """Compute the shares; cached, since each stage of planning weighs the same features by the same queries."""
    predicates = tuple(dict.fromkeys(p for feature in features for p in feature.predicates))
    place = {predicate: i for i, predicate in enumerate(predicates)}
    relation = Implications(predicates)
    shares = np.zeros((len(queries), len(features)))
    members = [[place[p] for p in feature.predicates] for feature in features]
    single = [i for i, places_of_feature in enumerate(members) if len(places_of_feature) == 1]
    places = [members[i][0] for i in single]
    several = [(i, places_of_feature) for i, places_of_feature in enumerate(members) if len(places_of_feature) > 1]
    for row, query in zip(shares, queries, strict=True):
        implied, covered = relation.implied(query.filter.root), relation.shares(query.filter.root)
        row[single] = covered[places]
        for i, places_of_feature in several:
            row[i] = float(implied[places_of_feature].all())
    shares.setflags(write=False)
    return shares


def feature_weights(
    matrix: Bits | Floats, query_weights: Floats, selectivity: Floats | None = None, *, marginal: bool = False
) -> Floats:
    """Return the weight of each feature for the blocking, ``float64[features]``.

    Eq. 3.1 gives a query's whole weight to every feature that subsumes it, though a query skips a block once. With
    ``marginal`` its most selective feature gets the whole weight, and each next one only the share of rows that those
    before it leave.

    Args:
        matrix: ``[queries, features]``: bool (subsumes), or the shares of :func:`feature_shares`.
        query_weights: ``[queries]``, or ``[partitions, queries]`` for weights each; 0 for queries that don't reach the
            partition.
        selectivity: share of rows that match each feature, ``[features]``; needed for ``marginal``.

    Raises:
        ValueError: ``marginal`` without ``selectivity``.

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
        shares = _apply_marginal(shares, selectivity)
    return np.asarray(query_weights @ shares)


def weigh_features(weighing: str, shares: Floats, query_weights: Floats, selectivity: Floats) -> Floats:
    """Return the weights of features, ``float64[f]``, by one of :data:`WEIGHINGS`; see :func:`feature_weights`."""
    if weighing == SUBSUMED:
        return feature_weights(shares >= 1.0, query_weights)
    return feature_weights(shares, query_weights, selectivity, marginal=True)


def segment_weights(shares: Floats, query_weights: Floats, vectors: VectorCounts, weighing: str = MARGINAL) -> Floats:
    """Return the weights of :func:`weigh_features` for rows with these vectors."""
    return weigh_features(weighing, shares, query_weights, vectors.counts @ vectors.bits() / max(vectors.rows, 1))


def _apply_marginal(shares: Floats, selectivity: Floats) -> Floats:
    order = np.argsort(selectivity, kind="stable")
    ordered = shares[:, order]
    stays = 1.0 - ordered * (1.0 - selectivity[order])
    before = np.cumprod(np.column_stack([np.ones(len(shares)), stays]), axis=1)[:, :-1]
    result = np.empty_like(shares)
    result[:, order] = ordered * before
    return result


@dataclass(frozen=True, eq=False)
class Units:
    """Each filter as units: one part of each of its disjunctions and lists, together with the rest of the filter.

    A block is skipped for ``x IN (1, 2, 3) AND y = 4`` by ``y = 4``, or where each of ``x = 1``, ``x = 2`` and ``x =
    3`` has bit 0. So the value of a feature depends on the part that it covers. A block is skipped only if all units
    of the filter are, so a filter reads the sum of what its units read. A filter of *k* parts has *k* units that weigh
    a *k*-th each; a feature with the selectivity *s* for one of the parts leaves the share *s* of all rows to be read
    for it, which is ``k * s`` of the unit's weight.

    Attributes:
        filter_of_unit: the filter of each unit, ``int64[units]``.
        shares: of a filter, ``float64[units]``; a filter's sum to 1.
        factors: how often an item's rows count for a unit, ``uint8[units, items]``: 1 where the item subsumes the
            whole filter, *k* where it subsumes the unit's part, one of *k*, and 0 where it subsumes neither.
    """

    filter_of_unit: Ints
    shares: Floats
    factors: Bytes


def make_units(nodes: Sequence[Node], relation: Implications, n_items: int) -> Units:
    """Return the units of filters with these roots, over the relation's predicates.

    For ``x IN (1, 2)`` and the items ``x = 1``, ``x = 2``, ``x IN (1, 2)`` and ``x = 3``:

    >>> from layoutopt.model.predicates import Col, InSet, Predicate
    >>> from layoutopt.model.values import ValueSet
    >>> lists = [InSet(Col("x", "int"), ValueSet.of(values)) for values in ([1], [2], [1, 2], [3])]
    >>> units = make_units([lists[2]], Implications([Predicate((literal,)) for literal in lists]), 4)
    >>> units.shares.tolist(), units.factors.tolist()
    ([0.5, 0.5], [[2, 0, 1, 0], [0, 2, 1, 0]])
    """
    filter_of_unit: list[int] = []
    shares: list[float] = []
    factors: list[Bytes] = []
    for number, node in enumerate(nodes):
        split = [part.children if isinstance(part, Or) else single_parts(part) for part in conjuncts(node)]
        disjunctions = [parts for parts in split if len(parts) > 1]
        units = [_unit_factors(node, chosen, relation) for chosen in product(*_sample_parts(disjunctions))]
        filter_of_unit += [number] * len(units)
        shares += [1.0 / len(units)] * len(units)
        factors += units
    stacked = np.stack(factors) if factors else np.zeros((0, n_items), dtype=np.uint8)
    return Units(np.array(filter_of_unit, dtype=np.int64), np.array(shares, dtype=np.float64), stacked)


def _sample_parts(disjunctions: Sequence[Sequence[Node]]) -> list[list[_Part]]:
    """Return evenly spread parts of each disjunction, so few that their combinations are not too many."""
    counts = [len(parts) for parts in disjunctions]
    while np.prod(counts, dtype=np.float64) > MOST_UNITS:
        counts[int(np.argmax(counts))] -= 1
    return [
        [(parts[i * len(parts) // count], len(parts)) for i in range(count)]
        for parts, count in zip(disjunctions, counts, strict=True)
    ]


def _unit_factors(node: Node, chosen: Sequence[_Part], relation: Implications) -> Bytes:
    """Return the factors of one unit, ``uint8[items]``: the smallest that holds."""
    factors = np.zeros_like(relation.implied(node), dtype=np.uint8)
    for part, count in sorted(chosen, key=lambda part: -part[1]):
        factors[relation.implied(part)] = min(count, _MAX_FACTOR)
    factors[relation.implied(node)] = 1
    return factors


def assumed_selectivity(predicates: Iterable[Predicate]) -> dict[Literal, float]:
    """Return the guessed share of rows for which each literal is TRUE, in (0, 1], from the workload alone.

    The constants that a workload compares an expression with cut its values into cells; a literal is as selective as
    the share of cells that it holds. So ``x = 'a'`` is one in as many as there are such constants, ``x <> 'a'`` is all
    but one, and a list as many as its values. This is good enough to rank; a plan measures the rows.
    """
    literals = list(dict.fromkeys(literal for predicate in predicates for literal in predicate.literals))
    return {**_estimate_sets(literals), **_estimate_others(literals)}


def predicate_share(predicate: Predicate, selectivity: Mapping[Literal, float]) -> float:
    """Return the share of rows that a predicate matches at most: the sum of its literals' shares."""
    return min(1.0, sum(selectivity[literal] for literal in predicate.literals))


def _estimate_sets(literals: Sequence[Literal]) -> dict[Literal, float]:
    by_subject: dict[Hashable, list[InSet]] = defaultdict(list)
    for literal in literals:
        if isinstance(literal, InSet):
            by_subject[literal.subject].append(literal)
    shares: dict[Literal, float] = {}
    for members in by_subject.values():
        cells = _held_cells([member.values for member in members])
        weights = _weigh_cells(cells, [member.values for member in members])
        for member, held in zip(members, cells, strict=True):
            share = float(held @ weights) * (1.0 - _NULL_SHARE) + _NULL_SHARE * member.null
            shares[member] = min(1.0, max(share, 1e-6))
    return shares


def _held_cells(sets: Sequence[ValueSet]) -> Bits:
    """Return which cells between all sets' bounds each set holds, ``bool[sets, cells]``."""
    bounds: list[Key] = sorted({key for values in sets for pair in values.intervals for key in pair if key is not None})
    cells = np.zeros((len(sets), len(bounds) + 1), dtype=np.bool_)
    for row, values in zip(cells, sets, strict=True):
        for low, high in values.intervals:
            first = 0 if low is None else bisect_left(bounds, low) + 1
            end = len(row) if high is None else bisect_left(bounds, high) + 1
            row[first:end] = True
    return cells


def _weigh_cells(cells: Bits, sets: Sequence[ValueSet]) -> Floats:
    """Return the cells' shares of the rows; cells outside all lists and closed ranges count as one cell together."""
    closed = [bool(v.intervals) and all(None not in pair for pair in v.intervals) for v in sets]
    named = cells[closed].any(axis=0) if any(closed) else np.ones(cells.shape[1], dtype=np.bool_)
    weights = np.where(named, 1.0, 1.0 / max(1, int((~named).sum())))
    return np.array(weights / weights.sum())


def _estimate_others(literals: Sequence[Literal]) -> dict[Literal, float]:
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
