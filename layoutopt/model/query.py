"""Queries: what one table scan of a logged statement reads and asks for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from layoutopt.model.predicates.nodes import Col, InSet, Node, columns_of, literals_of
from layoutopt.model.predicates.subsume import Filter
from layoutopt.model.records import Record


@dataclass(frozen=True)
class Query(Record):
    """One scan of the optimised table.

    Attributes:
        id: the statement's place in the log, from 0.
        table: the table's name.
        columns: the columns that the scan reads, those of its filter included, as the schema names and orders them.
        filter: what the scan asks of rows.
        weight: how many such statements the log holds.
        timestamp: when it ran, as the log has it.
        user: who ran it, as the log has it.
        sql: the statement's text.
        exact: whether the filter is the whole condition; else it is weaker.

    Raises:
        ValueError: the weight is not positive.
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
    """How many statements of the log these are."""
    return math.fsum(query.weight for query in queries)


def filtered_columns(queries: Iterable[Query]) -> frozenset[str]:
    """The columns that some query filters."""
    return frozenset().union(*(columns_of(query.filter.root) for query in queries))


def column_literals(query: Query) -> Iterator[InSet]:
    """What the query's filter says of values of single columns, whatever it says beside that."""
    for literal in literals_of(query.filter.root):
        if isinstance(literal, InSet) and isinstance(literal.subject, Col):
            yield literal


def classes(queries: Iterable[Query]) -> list[Query]:
    """One query for each filter and set of columns, with the weights of all such queries added up.

    The first query of each class stands for it, in order of appearance. Equal filters and columns are read and skipped
    alike, so whatever is computed for queries need only be computed for classes.
    """
    first: dict[tuple[Node, tuple[str, ...]], Query] = {}
    weights: dict[tuple[Node, tuple[str, ...]], float] = {}
    for query in queries:
        key = (query.filter.root, query.columns)
        first.setdefault(key, query)
        weights[key] = weights.get(key, 0.0) + query.weight
    return [replace(query, weight=weights[key]) for key, query in first.items()]
