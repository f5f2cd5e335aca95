"""Cross-validation of a log: which queries are held back, to judge by what they do not know of (Sun 2017, 3.6)."""

from __future__ import annotations

from collections.abc import Container, Sequence

from layoutopt.model.predicates import columns_of
from layoutopt.model.query import Query

HELD_BACK = 0.25
"""The share of each family of queries that is held back."""

FOLDS = 5
"""Parts of a short log that are held back in turn: with fewer, methods that learn from it would be given too little."""

FEWEST = 4
"""Queries of a log that is split at all."""

ENOUGH = 100
"""Statements held back by which plans can be judged: of fewer, single ones would decide."""

Family = tuple[tuple[str, ...], frozenset[str]]
"""The columns that a family of queries reads, and those that it filters by."""

Split = tuple[tuple[Query, ...], tuple[Query, ...]]
"""Queries to train on, and queries to score by."""


def splits(queries: Sequence[Query]) -> list[Split]:
    """How to judge plans by queries that they were not made for: one split of a long log, several of a short one.

    Where the latest quarter (:func:`hold_back`) holds fewer than :data:`ENOUGH` statements, every query is held back
    once (:func:`folds`). There is no split of fewer than :data:`FEWEST` queries.
    """
    training, held = hold_back(queries)
    if sum(query.weight for query in held) >= ENOUGH:
        return [(training, held)]
    return folds(queries, min(FOLDS, len(queries))) if can_be_split(queries) else []


def can_be_split(queries: Sequence[Query]) -> bool:
    """Whether there are queries enough to judge plans by."""
    return len(queries) >= FEWEST


def folds(queries: Sequence[Query], count: int = FOLDS) -> list[Split]:
    """Cross-validation in time order: of each family one stretch of time after the other is held back.

    Families of fewer queries than there are folds are one family together.

    Args:
        queries: the analysed log, of as many queries at least.
        count: how many folds.

    Returns:
        The splits; each query is held back in one of them.
    """
    families = _families(queries)
    large = [places for places in families if len(places) >= count]
    pooled = sorted(place for places in families if len(places) < count for place in places)
    held: list[set[int]] = [set() for _ in range(count)]
    for places in (*large, _in_time(queries, pooled)):
        for i, place in enumerate(places):
            held[i * count // len(places)].add(place)
    return [_split(queries, fold) for fold in held]


def hold_back(queries: Sequence[Query], share: float = HELD_BACK) -> Split:
    """The earlier queries, to train on, and the later ones, to score by.

    A log is often a list of reports, one after the other: its later part would hold what its earlier part never asks.
    So it is cut within each family of queries that read the same columns and filter by the same ones, the latest of
    each family held back. Time is the place in the log, or the timestamp where every query has one.

    Args:
        queries: the analysed log.
        share: of each family, rounded down: a query that has no like is trained on.

    Returns:
        The training queries and those held back, each in the order given.
    """
    held: set[int] = set()
    for places in _families(queries):
        held.update(places[len(places) - int(share * len(places)) :])
    return _split(queries, held)


def _split(queries: Sequence[Query], held: Container[int]) -> Split:
    """The queries whose places are not held back, and those whose are."""
    return (
        tuple(query for place, query in enumerate(queries) if place not in held),
        tuple(query for place, query in enumerate(queries) if place in held),
    )


def family_of(query: Query) -> Family:
    """The family that a query belongs to."""
    return query.columns, columns_of(query.filter.root)


def _families(queries: Sequence[Query]) -> list[list[int]]:
    """The places of queries that read the same columns and filter by the same ones, of each family in time order."""
    families: dict[Family, list[int]] = {}
    for place, query in enumerate(queries):
        families.setdefault(family_of(query), []).append(place)
    return [_in_time(queries, places) for places in families.values()]


def _in_time(queries: Sequence[Query], places: Sequence[int]) -> list[int]:
    timed = all(query.timestamp is not None for query in queries)
    return sorted(places, key=lambda place: (queries[place].timestamp if timed else "", place))
