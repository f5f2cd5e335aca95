"""What all blocks of a statement share, and the blocks of queries that are made of others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from layoutopt.model.schema import Schema
from layoutopt.sql.scopes.from_items import EVERY, UNKNOWN, ColumnNames, FromItem, QueryBlock, Wanted
from layoutopt.sql.scopes.pushdown import Placed


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
    """What is found of a statement's tables; all its blocks write here.

    Attributes:
        tables: the schemas of the tables that are looked for, by name.
        any_qualifier: whether ``prod.t`` means ``t``.
        uses: how often each name (folded) stands in a FROM clause.
        scans: the from-items that are those tables, in order of appearance.
        conditions: what holds above a from-item and is about it.
    """

    tables: Mapping[str, Schema]
    any_qualifier: bool
    uses: Mapping[str, int]
    scans: list[FromItem] = field(default_factory=list)
    conditions: dict[FromItem, list[Placed]] = field(default_factory=dict)

    def table_named(self, reference: exp.Table) -> str | None:
        """The table that a reference means, by its name in ``tables``; None for others."""
        parts = [part.name.lower() for part in reference.parts]
        for name in self.tables:
            wanted = name.lower().split(".")
            if parts == wanted or (self.any_qualifier and parts[-len(wanted) :] == wanted):
                return name
        return None


class CombinedBlock(QueryBlock):
    """UNION, INTERSECT or EXCEPT of two queries, or one in parentheses with ORDER BY, LIMIT or the like outside.

    Columns correspond by place. Only UNION ALL keeps every row whatever its values are; of others every column counts.
    """

    def __init__(self, parts: tuple[QueryBlock, ...], keeps_rows: bool) -> None:
        self._parts = parts
        self._keeps_rows = keeps_rows
        self.names = parts[0].names

    def read(self, wanted: Wanted) -> None:
        """Read the columns in the places of the wanted ones."""
        for part in self._parts:
            part.read(corresponding(self.names, part.names, wanted) if self._keeps_rows else EVERY)


def corresponding(ours: ColumnNames, theirs: ColumnNames, wanted: Wanted) -> Wanted:
    """The columns, by the other's names, that stand in the places of the wanted ones."""
    if wanted is EVERY or ours is UNKNOWN or theirs is UNKNOWN or len(ours) != len(theirs):
        return EVERY
    return frozenset(their.lower() for our, their in zip(ours, theirs, strict=True) if our.lower() in wanted)
