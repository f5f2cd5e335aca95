"""What every query block offers, and what all blocks of one statement share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from layoutopt.model.schema import Schema
from layoutopt.sql.scopes.sources import Leaf


@dataclass(eq=False)
class CommonTable:
    """One entry of a WITH clause.

    Attributes:
        query: its text.
        environment: the entries that its text may name.
        columns: its alias columns, if any.
        shared: whether it is named more than once: then one block serves all, and no condition enters it.
        block: that one block, once it is built.
    """

    query: exp.Expr
    environment: Mapping[str, CommonTable]
    columns: tuple[str, ...]
    shared: bool
    block: QueryBlock | None = None


Environment = Mapping[str, CommonTable]


@dataclass(eq=False)
class Statement:
    """What all blocks of one statement share.

    Attributes:
        tables: the schemas of the tables that are looked for, by name.
        any_qualifier: whether ``prod.t`` means ``t``.
        uses: how often each name (folded) stands in a FROM clause.
        scans: the leaves over those tables, in order of appearance.
    """

    tables: Mapping[str, Schema]
    any_qualifier: bool = False
    uses: dict[str, int] = field(default_factory=dict)
    scans: list[Leaf] = field(default_factory=list)


class QueryBlock:
    """A query whose tables can't be seen (VALUES and the like); the base of those whose can."""

    names: tuple[str, ...] | None = None
    """The names of the columns that it returns; None where they are unknown."""

    def read(self, required: frozenset[str] | None) -> None:
        """Note what is read for these output columns (folded names; None: all). May be called again for more."""

    def accept(self, condition: exp.Expr, names: tuple[str, ...] | None) -> bool:
        """Take over a condition on the result (which it calls ``names``), if it may be applied to the rows first."""
        return False


class UnionBlock(QueryBlock):
    """UNION, INTERSECT or EXCEPT of two queries."""

    def __init__(self, sides: tuple[QueryBlock, QueryBlock], keeps_rows: bool) -> None:
        self._sides = sides
        self._keeps_rows = keeps_rows
        self.names = sides[0].names

    def read(self, required: frozenset[str] | None) -> None:
        """Columns correspond by place; where equal rows are dropped, every column counts."""
        for side in self._sides:
            side.read(self._corresponding(side, required) if self._keeps_rows else None)

    def _corresponding(self, side: QueryBlock, required: frozenset[str] | None) -> frozenset[str] | None:
        if required is None or self.names is None or side.names is None or len(self.names) != len(side.names):
            return None
        pairs = zip(self.names, side.names, strict=True)
        return frozenset(theirs.lower() for ours, theirs in pairs if ours.lower() in required)


class ClosedBlock(QueryBlock):
    """A query in parentheses with ORDER BY, LIMIT or the like outside of them: all its columns may matter."""

    def __init__(self, inner: QueryBlock) -> None:
        self._inner = inner
        self.names = inner.names

    def read(self, required: frozenset[str] | None) -> None:
        """Read every column."""
        self._inner.read(None)
