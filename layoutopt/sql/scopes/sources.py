"""What a SELECT reads from: the tree of joins and the names that it makes visible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from sqlglot import exp

from layoutopt.model.schema import Schema
from layoutopt.sql.problems import StatementError

if TYPE_CHECKING:
    from layoutopt.sql.scopes.names import Names
    from layoutopt.sql.scopes.queries import QueryBlock


@lru_cache(maxsize=256)
def _by_folded_name(names: tuple[str, ...]) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name in names:
        found[name.lower()] = (*found.get(name.lower(), ()), name)
    return found


@dataclass(eq=False)
class Leaf:
    """One thing in a FROM clause.

    Attributes:
        alias: the name that columns are qualified with.
        table: the optimised table's name, where it is one.
        schema: that table's columns.
        query: the derived table or common table expression, where it is one.
        names: visible column names; None where they are unknown (another table).
        reference: the table's reference in the text.
        frozen: a condition must not go below this reference (a sample, a pivot, another version).
        columns: names of ``schema`` (or ``names``) that have been read so far.
        conditions: the conditions above it that are about it.
    """

    alias: str
    table: str | None = None
    schema: Schema | None = None
    query: QueryBlock | None = None
    names: tuple[str, ...] | None = None
    reference: exp.Table | None = None
    frozen: bool = False
    columns: dict[str, None] = field(default_factory=dict)
    conditions: list[Placed] = field(default_factory=list)

    @property
    def qualifier(self) -> tuple[tuple[str, ...], bool]:
        """What its columns are qualified with, and whether a catalog and schema may stand before that."""
        if self.reference is None or self.reference.alias:
            return ((self.alias,) if self.alias else ()), False
        return tuple(part.name for part in self.reference.parts), True

    def has(self, name: str) -> bool | None:
        """Whether a column of that name is here; None where that is unknown."""
        if self.names is None:
            return None
        return name.lower() in _by_folded_name(self.names)

    def read(self, name: str) -> None:
        """Note that a column is read."""
        for each in _by_folded_name(self.names).get(name.lower(), ()) if self.names else (name,):
            self.columns[each] = None

    def read_all(self) -> None:
        """Note that every column is read."""
        for each in self.names or ():
            self.columns[each] = None


@dataclass(frozen=True)
class Placed:
    """A condition above a leaf.

    Attributes:
        condition: what must hold.
        names: what its columns are looked up in.
        way: ``free``: rows of the leaf for which it is not TRUE may be dropped at once; ``null-rejecting``: only if
            the condition can't be TRUE for a row of NULLs; ``blocked``: never.
    """

    condition: exp.Expr
    names: Names
    way: str


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


Source = Leaf | JoinNode

# (side above the join) -> the kinds of join below which a condition may be applied freely, or if it rejects NULLs
_FREE_LEFT = frozenset({"inner", "left", "semi", "anti"})
_FREE_RIGHT = frozenset({"inner", "right"})
_NULLABLE_LEFT = frozenset({"right", "full"})
_NULLABLE_RIGHT = frozenset({"left", "full"})
# sides that a join's own ON condition may be applied to first
_ON_LEFT = frozenset({"inner", "right", "semi"})
_ON_RIGHT = frozenset({"inner", "left", "semi", "anti"})


def leaves(source: Source | None) -> Iterator[Leaf]:
    """All leaves, left to right."""
    if isinstance(source, Leaf):
        yield source
    elif isinstance(source, JoinNode):
        yield from leaves(source.left)
        yield from leaves(source.right)


def joins(source: Source | None) -> Iterator[JoinNode]:
    """All joins, innermost first."""
    if isinstance(source, JoinNode):
        yield from joins(source.left)
        yield from joins(source.right)
        yield source


def place(source: Source | None, condition: exp.Expr, names: Names) -> None:
    """Put a condition that holds above a source on each leaf that it is about, with what limits it there.

    Below the preserved side of an outer join a condition may be applied first. Below the side that the join fills
    with NULLs it may only if it is never TRUE for NULLs: such rows would be dropped above the join anyway.
    """
    _place(source, condition, names, names.about(condition), "free")


def place_on(join: JoinNode, condition: exp.Expr, names: Names) -> None:
    """Put one conjunct of a join's ON condition on the leaves that it is about."""
    about = names.about(condition)
    _place(join.left, condition, names, about, "free" if join.kind in _ON_LEFT else "blocked")
    _place(join.right, condition, names, about, "free" if join.kind in _ON_RIGHT else "blocked")


def _place(source: Source | None, condition: exp.Expr, names: Names, about: set[Leaf], way: str) -> None:
    if isinstance(source, Leaf):
        if source in about:
            source.conditions.append(Placed(condition, names, "blocked" if source.frozen else way))
    elif isinstance(source, JoinNode):
        left = _limited(way, source.kind, _FREE_LEFT, _NULLABLE_LEFT)
        right = _limited(way, source.kind, _FREE_RIGHT, _NULLABLE_RIGHT)
        _place(source.left, condition, names, about, left)
        _place(source.right, condition, names, about, right)


def _limited(way: str, kind: str, free: frozenset[str], nullable: frozenset[str]) -> str:
    if way == "blocked" or kind in free:
        return way
    return "null-rejecting" if kind in nullable else "blocked"


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


def match_table(table: exp.Table, tables: Mapping[str, Schema], any_qualifier: bool) -> str | None:
    """The name, among ``tables``, of the table that a reference means; None for others.

    With ``any_qualifier``, ``prod.sales`` means ``sales`` too.
    """
    parts = [part.name.lower() for part in table.parts]
    for name in tables:
        wanted = name.lower().split(".")
        if parts == wanted or (any_qualifier and parts[-len(wanted) :] == wanted):
            return name
    return None
