"""Queries: what one table scan of a logged statement reads and asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from layoutopt.errors import PlanError
from layoutopt.model.predicates.cnf import Filter
from layoutopt.model.predicates.codec import Json, filter_from_json, to_json
from layoutopt.model.predicates.nodes import Node


@dataclass(frozen=True)
class Query:
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

    def to_json(self) -> Json:
        """A JSON value that :meth:`from_json` reads back."""
        value: Json = {"id": self.id, "table": self.table, "columns": list(self.columns)}
        value |= {"filter": to_json(self.filter), "weight": self.weight, "timestamp": self.timestamp}
        return value | {"user": self.user, "sql": self.sql, "exact": self.exact}

    @classmethod
    def from_json(cls, value: object) -> Query:
        """The query that :meth:`to_json` wrote.

        Raises:
            PlanError: the value is no query's JSON.
        """
        if not isinstance(value, Mapping):
            raise PlanError(f"{value!r:.80} stands where a query is due; write the document again")
        try:
            return cls(
                id=int(value["id"]),
                table=str(value["table"]),
                columns=tuple(str(name) for name in value["columns"]),
                filter=filter_from_json(value["filter"]),
                weight=float(value["weight"]),
                timestamp=_optional_text(value["timestamp"]),
                user=_optional_text(value["user"]),
                sql=str(value["sql"]),
                exact=bool(value["exact"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise PlanError(f"a query's JSON is damaged: {error!r}; write the document again") from error


def _optional_text(value: object) -> str | None:
    return None if value is None else str(value)


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
