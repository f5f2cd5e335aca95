"""Which SQL texts mean the same to DuckDB as to Spark, and their DuckDB text.

The two engines differ in more places than anybody can list (LIKE's escapes, ``float = 0.1``, division, rounding,
``dayofweek``, averages of decimals, comparisons across types, ...), so this is a list of what is known to be equal:
anything else is refused, with a sentence that says to let Spark run it. Every expression gets Spark's type on the way,
so that answers come back in Spark's types.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.pushdown_projections import pushdown_projections
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema

from layoutopt.errors import QueryError
from layoutopt.model.schema import Column, Schema
from layoutopt.model.udf import NO_UDFS, Udfs
from layoutopt.sql.dialect import Spark4, parse_statement
from layoutopt.sql.duckdb import types
from layoutopt.sql.duckdb.arrays import with_duckdb_arrays, with_plain_arrays
from layoutopt.sql.duckdb.expressions import refuse, short
from layoutopt.sql.duckdb.functions import PortableFunction
from layoutopt.sql.duckdb.typer import MERGED, Typer
from layoutopt.sql.plain_names import name_plainly, plain_name, with_plain_names
from layoutopt.sql.problems import StatementError


@dataclass(frozen=True)
class PortableSql:
    """A text for DuckDB: where tables are the views that were named, and the columns of its answer in Spark's types.

    ``is_flat``: a single SELECT without subqueries or CTEs, which reads each of its views once. ``functions``: the
    user's functions that it calls.
    """

    sql: str
    columns: tuple[Column, ...]
    is_flat: bool
    functions: tuple[PortableFunction, ...] = ()


def portable_sql(
    sql: str,
    tables: Mapping[str, Schema],
    views: Mapping[int, str] | str,
    time_zone: str = "UTC",
    udfs: Udfs = NO_UDFS,
) -> PortableSql:
    """The DuckDB text that answers ``sql`` as Spark would.

    Args:
        sql: one SELECT statement in Spark's dialect.
        tables: schema per table name (any case).
        views: the view to read in place of each mention of a table, by the place in the text where the mention starts;
            or one view for all. Its columns have plain names (:mod:`layoutopt.sql.plain_names`).
        time_zone: the session's, of both engines.
        udfs: the user's functions that the text may call.

    Raises:
        QueryError: the text is no query, names something unknown, or might mean something else to DuckDB.
    """
    written = _parsed(sql)
    for join in written.find_all(exp.Join):
        _check_keys(join)
    selected = _selected_names(written)
    spelled = _spelled(written, tables.values())
    name_plainly(written)
    with_plain_arrays(written, udfs)
    tables = {plain_name(name): with_plain_names(schema) for name, schema in tables.items()}
    tree = _qualified(written, sql, tables)
    typer = Typer({name.lower(): schema for name, schema in tables.items()}, time_zone, udfs)
    columns = typer.check(tree)
    names = [spelled.get(column.name.lower(), column.name) for column in columns]
    if selected is not None and len(selected) == len(names):
        names = [given or name for given, name in zip(selected, names, strict=True)]
    # A star was spelled out in full; what nothing reads must not be asked of a view that lacks it.
    tree = pushdown_projections(tree)
    _replace_tables(tree, {name.lower() for name in tables}, views)
    typed = tuple(Column(name, column.type) for name, column in zip(names, columns, strict=True))
    is_flat = sum(1 for _ in tree.find_all(exp.Query)) == 1
    tree = with_duckdb_arrays(tree)
    return PortableSql(tree.sql(dialect="duckdb"), typed, is_flat, tuple(typer.functions.values()))


def _parsed(sql: str) -> exp.Query:
    if "\\" in sql:
        raise refuse("a text with a backslash")
    try:
        statement = parse_statement(sql)
    except StatementError as error:
        raise QueryError(f"{short(sql)!r} is not one SELECT statement of Spark's ({error}); correct it") from error
    if not isinstance(statement, exp.Query):
        raise QueryError(f"{short(sql)!r} is not one SELECT statement; pass a single query")
    return statement.copy()


def _check_keys(join: exp.Join) -> None:
    """Refuse what merged keys could make mean something else: the parser knows neither their order nor their types.

    Left are keys that are named plainly where they have the left side's value: the types are compared later.
    """
    keys = {key.name.lower() for key in join.args.get("using") or ()}
    select = join.find_ancestor(exp.Select)
    if not keys and not join.args.get("method"):
        return
    sides = {(each.side or "").upper() for each in (select.args.get("joins") or ())} if select else {"?"}
    names = select.find_all(exp.Column) if select else ()
    qualified = any(column.table and column.name.lower() in keys for column in names)
    if join.args.get("method") or not sides <= {"", "LEFT"} or qualified or _has_star(select):
        raise refuse(f"the join {short(join.sql(dialect='spark'))!r} (write ON)")
    join.meta[MERGED] = True


def _has_star(select: exp.Expr | None) -> bool:
    return select is not None and any(projection.is_star for projection in select.expressions)


def _spelled(tree: exp.Query, schemas: Iterable[Schema]) -> dict[str, str]:
    """How Spark spells the columns of an answer, by their plain names in lower case: as a table does, or an alias."""
    mentioned = [identifier.this for identifier in tree.find_all(exp.Identifier)]
    stored = [name for schema in schemas for name in schema.names]
    given = [alias.alias for alias in tree.find_all(exp.Alias)]
    return {plain_name(name).lower(): name for name in (*mentioned, *stored, *given)}


def _qualified(tree: exp.Query, sql: str, tables: Mapping[str, Schema]) -> exp.Expr:
    try:
        return qualify(tree, schema=_parser_schema(tuple(tables.items())), dialect=Spark4)
    except SqlglotError as error:
        message = re.sub(r"\x1b\[\d*m|\s+", " ", str(error)).strip().rstrip(".")
        raise QueryError(f"{short(sql)!r} can't be read as Spark SQL ({message}); correct the query") from error


@lru_cache(maxsize=64)
def _parser_schema(tables: tuple[tuple[str, Schema], ...]) -> MappingSchema:
    """The tables as the parser knows them: making this takes as long as many a text."""
    columns: dict[str, object] = {
        name: {column.name: _parser_type(column.type) for column in of.columns} for name, of in tables
    }
    return MappingSchema(columns, dialect=Spark4)


def _parser_type(name: str) -> str:
    return name if types.is_portable(name) else "binary"


def _selected_names(query: exp.Expr) -> list[str] | None:
    """The names that Spark gives the answer's columns, empty where it is not known; None where there is a star."""
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    selects = query.selects if isinstance(query, exp.Select) else []
    if any(select.is_star for select in selects if not select.find(exp.Count)):
        return None
    return [_spark_name(select) for select in selects]


def _spark_name(select: exp.Expr) -> str:
    if isinstance(select, exp.Alias | exp.Column | exp.Literal):
        return str(select.alias_or_name)
    if isinstance(select, exp.Count) and isinstance(select.this, exp.Star):
        return "count(1)"
    if isinstance(select, exp.AggFunc) and isinstance(select.this, exp.Column):
        return f"{select.key}({select.this.name})"
    return str(select.sql(dialect="spark"))


def _replace_tables(tree: exp.Expr, names: set[str], views: Mapping[int, str] | str) -> None:
    for table in [table for table in tree.find_all(exp.Table) if _is_base(table, names)]:
        view = views if isinstance(views, str) else views.get(table.this.meta.get("start", -1))
        if view is None:
            raise refuse("a text whose mentions of the table can't be told apart")
        table.set("this", exp.to_identifier(view, quoted=True))


def _is_base(table: exp.Table, names: set[str]) -> bool:
    if table.name.lower() not in names:
        return False
    select = table.parent_select
    while select is not None:
        if any(cte.alias.lower() == table.name.lower() for cte in select.ctes):
            return False
        select = select.parent_select
    return True
