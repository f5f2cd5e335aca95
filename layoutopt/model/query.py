"""Queries: the columns and the filter of one table scan of a logged statement."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from layoutopt.model.arrays import Floats, Ints
from layoutopt.model.predicates.nodes import Col, InSet, Node, columns_of, literals_of
from layoutopt.model.predicates.subsume import Filter
from layoutopt.model.records import Record


@dataclass(frozen=True)
class Query(Record):
    """One scan of the optimised table.

    Attributes:
        id: the statement's position in the log, from 0.
        columns: the columns that the scan reads, including its filter's, in the schema's order and spelling.
        weight: the number of such statements in the log, positive.
        timestamp, user: when and by whom it was run, in the log's form.
        sql: the statement's text.
        exact: whether the filter is the whole condition; else it is weaker.
    """

    id: int
    table: str
    columns: tuple[str, ...]
    filter: Filter
    weight: float = 1.0
    timestamp: str | None = None
    user: str | None = None
    sql: str = ""
    exact: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.weight < float("inf"):
            raise ValueError(f"query {self.id} has the weight {self.weight!r}; give a positive number")


def weight_of(queries: Iterable[Query]) -> float:
    """Return the queries' total weight: their number of statements in the log."""
    return math.fsum(query.weight for query in queries)


def draw_by_weight(weights: Floats, most: int) -> tuple[Ints, Floats]:
    """Draw at most so many queries by weight, one of each part of a log; return their places and weights.

    The total weight is kept. The share of queries with any property is about the same, see :func:`sampling_error`.
    Each part's query is drawn at random, as logs have periods; the same log gives the same draw.

    Args:
        weights: of the log's queries, positive, ``float64[n]``.

    >>> places, weights = draw_by_weight(np.array([6.0, 1.0, 1.0, 1.0, 1.0]), 2)
    >>> places.tolist(), weights.tolist()
    ([0, 1], [5.0, 5.0])
    """
    if len(weights) <= most:
        return np.arange(len(weights)), weights
    ends = np.cumsum(weights)
    each = float(ends[-1]) / most
    places = np.searchsorted(ends, (np.arange(most) + np.random.default_rng(most).random(most)) * each, side="right")
    drawn, counts = np.unique(np.minimum(places, len(weights) - 1), return_counts=True)
    return drawn.astype(np.int64), counts.astype(np.float64) * each


def sampling_error(drawn: int, properties: int) -> float:
    """Return by how much a share of the queries may differ in a sample: in 95 of 100 samples, for all properties.

    The bound is Hoeffding's (1963), for draws that are independent.

    >>> round(sampling_error(5_000, 250), 3)
    0.03
    """
    return math.sqrt(math.log(2 * max(1, properties) / 0.05) / (2 * drawn))


def filtered_columns(queries: Iterable[Query]) -> frozenset[str]:
    """Return the columns that some query filters."""
    return frozenset().union(*(columns_of(query.filter.root) for query in queries))


def column_literals(query: Query) -> Iterator[InSet]:
    """Yield the literals of a query's filter that are sets of values of single columns."""
    for literal in literals_of(query.filter.root):
        if isinstance(literal, InSet) and isinstance(literal.subject, Col):
            yield literal


def group_queries(queries: Iterable[Query]) -> list[Query]:
    """Return one query for each filter and set of columns, with the total weight of such queries.

    Queries of a class read and skip the same blocks, so computing the first one is enough.
    """
    representatives: dict[tuple[Node, tuple[str, ...]], Query] = {}
    weights: dict[tuple[Node, tuple[str, ...]], float] = {}
    for query in queries:
        key = (query.filter.root, query.columns)
        representatives.setdefault(key, query)
        weights[key] = weights.get(key, 0.0) + query.weight
    return [replace(query, weight=weights[key]) for key, query in representatives.items()]
