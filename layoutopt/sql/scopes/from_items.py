"""What a SELECT reads from: from-items (tables, queries, functions) and the joins between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Final

from sqlglot import exp

from layoutopt.model.schema import Schema
from layoutopt.sql.problems import StatementError


class Unknown(Enum):
    """In place of the names of columns that can't be known: another table's, a generator's, a pivot's."""

    UNKNOWN = "unknown"


class Every(Enum):
    """In place of the names of wanted columns: all that there are."""

    EVERY = "every"


UNKNOWN: Final = Unknown.UNKNOWN
EVERY: Final = Every.EVERY
ColumnNames = tuple[str, ...] | Unknown
"""The names of a relation's columns, in order."""
Wanted = frozenset[str] | Every
"""The folded names of the columns that are wanted of a relation."""


class QueryBlock:
    """A query whose tables can't be seen (VALUES and the like); the base of those whose can.

    Attributes:
        names: the columns that it returns.
    """

    names: ColumnNames = UNKNOWN

    def read(self, wanted: Wanted) -> None:
        """Note what is read for these columns of the result; may be called again for more."""

    def accept(self, condition: exp.Expr, called: ColumnNames) -> None:
        """Take over a condition on the result, if it may be applied to the rows first.

        Args:
            condition: names columns of the result and nothing else.
            called: what it calls them, in order.
        """


@lru_cache(maxsize=256)
def _by_folded_name(names: tuple[str, ...]) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name in names:
        found[name.lower()] = (*found.get(name.lower(), ()), name)
    return found


@dataclass(eq=False)
class FromItem:
    """One thing in a FROM clause, and which of its columns have been read so far.

    Attributes:
        alias: the name that columns are qualified with.
        table: the name of the table that is looked for, where it is one.
        schema: that table's columns.
        query: the derived table or common table expression, where it is one.
        names: its columns, as they can be named.
        reference: the table's reference in the text.
        frozen: a condition must not go below this reference (a sample, a pivot, another version).
        columns: those of ``names`` that have been read.
    """

    alias: str
    table: str | None = None
    schema: Schema | None = None
    query: QueryBlock | None = None
    names: ColumnNames = UNKNOWN
    reference: exp.Table | None = None
    frozen: bool = False
    columns: dict[str, None] = field(default_factory=dict)

    @property
    def qualifier(self) -> tuple[tuple[str, ...], bool]:
        """What its columns are qualified with, and whether a catalog and schema may stand before that."""
        if self.reference is None or self.reference.alias:
            return ((self.alias,) if self.alias else ()), False
        return tuple(part.name for part in self.reference.parts), True

    @property
    def known_names(self) -> tuple[str, ...]:
        """The names that are known."""
        return () if self.names is UNKNOWN else self.names

    def has(self, name: str) -> bool | None:
        """Whether a column of that name is here; None where that is unknown."""
        return None if self.names is UNKNOWN else name.lower() in _by_folded_name(self.names)

    def read(self, name: str) -> None:
        """Note that a column is read."""
        known = self.known_names
        for each in _by_folded_name(known).get(name.lower(), ()) if known else (name,):
            self.columns[each] = None

    def read_all(self) -> None:
        """Note that every column is read."""
        self.columns |= dict.fromkeys(self.known_names)


@dataclass(frozen=True, eq=False)
class JoinNode:
    """A join of two sources.

    Attributes:
        kind: inner, left, right, full, semi or anti.
        on: the join's condition, or None.
        using: column names of USING; empty for ON.
        natural: whether it joins on all common names.
    """

    kind: str
    left: Source
    right: Source
    on: exp.Expr | None = None
    using: tuple[str, ...] = ()
    natural: bool = False


Source = FromItem | JoinNode


def from_items(source: Source | None) -> Iterator[FromItem]:
    """All from-items, left to right."""
    if isinstance(source, FromItem):
        yield source
    elif isinstance(source, JoinNode):
        yield from from_items(source.left)
        yield from from_items(source.right)


def joins(source: Source | None) -> Iterator[JoinNode]:
    """All joins, innermost first."""
    if isinstance(source, JoinNode):
        yield from joins(source.left)
        yield from joins(source.right)
        yield source


def join_kind(join: exp.Join) -> str:
    """The kind of a join, as :class:`JoinNode` names it.

    Raises:
        StatementError: ``unsupported``: a kind of join that Spark does not have.
    """
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if kind in ("SEMI", "ANTI"):
        if side not in ("", "LEFT"):
            raise StatementError("unsupported", f"a {side} {kind} JOIN is not followed")
        return kind.lower()
    if side in ("LEFT", "RIGHT", "FULL"):
        return side.lower()
    if kind in ("", "INNER", "CROSS", "OUTER") and (join.args.get("method") or "").upper() in ("", "NATURAL"):
        return "full" if kind == "OUTER" else "inner"
    raise StatementError("unsupported", f"the join {join.sql('spark')[:60]!r} is not followed")
