"""Where a text names tables, and putting other relations there while every other character stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from sqlglot import exp

from layoutopt.errors import QueryError
from layoutopt.model.types import quoted
from layoutopt.sql.dialect import parse_statement
from layoutopt.sql.lexing.remembered import remembered

Span = tuple[int, int]
"""[start, end) in a text."""


class Kind(Enum):
    """What a statement is, as far as its tables are concerned."""

    QUERY = "query"
    WRITE = "write"
    """INSERT, or CREATE TABLE ... AS: it has been carried out when Spark returns."""
    VIEW = "view"
    """CREATE VIEW: Spark keeps the text, so that its tables are looked up whenever the view is read."""
    OTHER = "other"


@dataclass(frozen=True)
class Reference:
    """A place where a statement names a table.

    Attributes:
        parts: the name's parts, quotes removed.
        span: where the name stands.
        aliased: whether the text gives it another name.
        sampled: whether TABLESAMPLE follows, before which no alias can stand.
    """

    parts: tuple[str, ...]
    span: Span
    aliased: bool
    sampled: bool

    @property
    def replaceable(self) -> bool:
        """Whether another relation can be put there without changing anything else."""
        return self.aliased or not self.sampled


@dataclass(frozen=True)
class References:
    """The tables that a statement reads.

    Attributes:
        kind: what the statement is.
        tables: the references, in the order of the text, those to common tables included.
        common: the folded names of the statement's common tables (WITH).
        explicit: whether it names every column that it takes of a table: nothing depends on which others are there.
        view: of CREATE TEMPORARY VIEW, the view's name; None of a global one, and of one that stays.
        view_columns: the names that CREATE VIEW gives the columns; none where it leaves them.
    """

    kind: Kind
    tables: tuple[Reference, ...]
    common: frozenset[str]
    explicit: bool = False
    view: str | None = None
    view_columns: tuple[str, ...] = ()


@remembered
def references_of(sql: str) -> References:
    """The tables that one statement in Spark's dialect reads.

    Raises:
        StatementError: the text can't be parsed, or holds no or several statements.

    >>> [each.parts for each in references_of("SELECT * FROM a JOIN b.`c/d` AS e").tables]
    [('a',), ('b', 'c/d')]
    """
    tree = parse_statement(sql, "spark")
    kind, read = _kind(tree)
    found = [_reference(table) for table in read.find_all(exp.Table)]
    common = frozenset(entry.alias.lower() for entry in tree.find_all(exp.CTE))
    tables = tuple(sorted((each for each in found if each is not None), key=lambda each: each.span))
    explicit = _names_its_columns(read)
    if kind is not Kind.VIEW:
        return References(kind, tables, common, explicit)
    name = tree.find(exp.Table)
    columns = [] if name is None or not isinstance(name.parent, exp.Schema) else name.parent.expressions
    made = {type(each) for each in tree.find_all(exp.TemporaryProperty, exp.GlobalProperty)}
    plain = name.name if name is not None and len(name.parts) == 1 and made == {exp.TemporaryProperty} else None
    return References(kind, tables, common, explicit, plain, tuple(column.name for column in columns))


_PLAIN: Final = (exp.Select, exp.SetOperation, exp.Subquery)
"""The queries that take the columns that they name, and no others."""


def _names_its_columns(tree: exp.Expr) -> bool:
    """Whether a query, with all queries in it, has no ``*`` but in ``count(*)``, nor what implies one."""
    return not any(_takes_unnamed(node) for node in tree.walk())


def _takes_unnamed(node: exp.Expr) -> bool:
    match node:
        case exp.Select():
            return not node.expressions
        case exp.SetOperation():
            return bool(node.args.get("by_name"))
        case exp.Star():
            return not isinstance(node.parent, exp.Count)
        case exp.Join():
            return bool(node.method)  # NATURAL: by all columns that both have
        case exp.TableAlias():
            return bool(node.columns) and isinstance(node.parent, exp.Table)  # names for all, by their places
        case _:
            others = exp.Pivot | exp.Command | exp.QueryTransform
            return isinstance(node, others) or (isinstance(node, exp.Query) and not isinstance(node, _PLAIN))


def tables_named(sql: str, dialect: str = "spark") -> list[str]:
    """The tables that a statement names, without qualifiers and common tables, in alphabetical order.

    Raises:
        SettingError: unknown dialect.
        StatementError: the text can't be parsed, or holds no or several statements.
    """
    tree = parse_statement(sql, dialect)
    common = {entry.alias.lower() for entry in tree.find_all(exp.CTE)}
    return sorted({table.name for table in tree.find_all(exp.Table) if table.name.lower() not in common | {""}})


def _kind(tree: exp.Expr) -> tuple[Kind, exp.Expr]:
    """What a statement is, and the part of it that reads tables."""
    if isinstance(tree, exp.Query):
        return Kind.QUERY, tree
    if isinstance(tree, exp.Insert | exp.Create) and isinstance(tree.expression, exp.Query):
        is_view = isinstance(tree, exp.Create) and tree.kind != "TABLE"
        return (Kind.VIEW if is_view else Kind.WRITE), tree.expression
    return Kind.OTHER, tree


def span_of(table: exp.Table) -> Span | None:
    """Where a table's name stands in the text; None for table functions and the like."""
    places = [part.meta for part in table.parts if isinstance(part, exp.Identifier)]
    if len(places) < len(table.parts) or not all("start" in place and "end" in place for place in places):
        return None
    return min(place["start"] for place in places), max(place["end"] for place in places) + 1


def _reference(table: exp.Table) -> Reference | None:
    span = span_of(table)
    if span is None:
        return None
    names = tuple(part.name for part in table.parts)
    return Reference(names, span, bool(table.args.get("alias")), bool(table.args.get("sample")))


def splice_relations(sql: str, relations: Mapping[Span, str]) -> str:
    """A text with other relations in the place of tables; each keeps the name that the text calls the table by.

    Args:
        sql: one statement in Spark's dialect.
        relations: what to put there (a quoted name, or a query in parentheses), by where the table's name stands.

    Raises:
        QueryError: the text can't be parsed, or names no table in one of the places.

    >>> splice_relations("SELECT t.a FROM t JOIN T AS u ON t.a = u.a", {(16, 17): "`v`", (23, 24): "(SELECT 1 AS a)"})
    'SELECT t.a FROM `v` AS `t` JOIN (SELECT 1 AS a) AS u ON t.a = u.a'
    """
    known = {each.span: each for each in references_of(sql).tables}
    for span, relation in sorted(relations.items(), reverse=True):
        reference = known.get(span)
        if reference is None:
            raise QueryError(f"there is no table at character {span[0]} of {sql[:60]!r}; write its name out")
        alias = "" if reference.aliased else f" AS {quoted(reference.parts[-1])}"
        sql = sql[: span[0]] + relation + alias + sql[span[1] :]
    return sql
