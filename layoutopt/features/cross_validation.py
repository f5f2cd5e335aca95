"""Split a log for cross-validation: into training queries and a hold-out set (Sun 2017, 3.6)."""

from __future__ import annotations

from collections.abc import Container, Sequence

from layoutopt.model.predicates import columns_of
from layoutopt.model.query import Query

# The share of each family of queries in the hold-out set.
HOLD_OUT_SHARE = 0.25

# Folds of a short log: with fewer, methods would learn from too little.
FOLDS = 5

# The fewest queries of a log that is split.
MIN_QUERIES = 4

# The fewest statements of a hold-out set: with fewer, single ones would decide.
MIN_HELD_OUT = 100

# The columns that a family of queries reads, and those that it filters by.
Family = tuple[tuple[str, ...], frozenset[str]]

# Queries to train on, and queries to score by.
Split = tuple[tuple[Query, ...], tuple[Query, ...]]


def splits(queries: Sequence[Query]) -> list[Split]:
    """Return the splits by which plans are judged: one for a long log, several for a short one.

    Where the latest quarter (:func:`hold_out`) has fewer than :data:`MIN_HELD_OUT` statements, every query is held out
    once (:func:`folds`). A log of fewer than :data:`MIN_QUERIES` queries has no split.
    """
    training, held_out = hold_out(queries)
    if sum(query.weight for query in held_out) >= MIN_HELD_OUT:
        return [(training, held_out)]
    return folds(queries, min(FOLDS, len(queries))) if can_be_split(queries) else []


def can_be_split(queries: Sequence[Query]) -> bool:
    """Return whether there are enough queries to judge plans by."""
    return len(queries) >= MIN_QUERIES


def folds(queries: Sequence[Query], count: int = FOLDS) -> list[Split]:
    """Split in time order: each fold holds out one stretch of time of each family, every query once.

    Families of fewer queries than folds are pooled. The log has at least ``count`` queries.
    """
    families = _group_families(queries)
    large_families = [places for places in families if len(places) >= count]
    pooled = sorted(place for places in families if len(places) < count for place in places)
    fold_places: list[set[int]] = [set() for _ in range(count)]
    for places in (*large_families, _sort_by_time(queries, pooled)):
        for i, place in enumerate(places):
            fold_places[i * count // len(places)].add(place)
    return [_split_queries(queries, fold) for fold in fold_places]


def hold_out(queries: Sequence[Query], share: float = HOLD_OUT_SHARE) -> Split:
    """Return the earlier queries, to train on, and the later ones, to score by; both in the given order.

    A log is often a list of reports, so its later part may have other queries than its earlier part. So each family of
    queries that read and filter by the same columns is split, and its latest ``share`` held out, rounded down. Time is
    the place in the log, or the timestamp where every query has one.
    """
    held_out: set[int] = set()
    for places in _group_families(queries):
        held_out.update(places[len(places) - int(share * len(places)) :])
    return _split_queries(queries, held_out)


def _split_queries(queries: Sequence[Query], held_out: Container[int]) -> Split:
    return (
        tuple(query for place, query in enumerate(queries) if place not in held_out),
        tuple(query for place, query in enumerate(queries) if place in held_out),
    )


def query_family(query: Query) -> Family:
    """Return the family that a query belongs to."""
    return query.columns, columns_of(query.filter.root)


def _group_families(queries: Sequence[Query]) -> list[list[int]]:
    families: dict[Family, list[int]] = {}
    for place, query in enumerate(queries):
        families.setdefault(query_family(query), []).append(place)
    return [_sort_by_time(queries, places) for places in families.values()]


def _sort_by_time(queries: Sequence[Query], places: Sequence[int]) -> list[int]:
    all_timed = all(query.timestamp is not None for query in queries)
    return sorted(places, key=lambda place: (queries[place].timestamp if all_timed else "", place))
