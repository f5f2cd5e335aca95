"""A statement moved onto other relations, and into another engine's dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError

from layoutopt.errors import QueryError
from layoutopt.workload.dialect import Spark4, dialect_named, parse_statement


def to_engine_sql(sql: str, replacements: Mapping[str, str], read: str = "spark", write: str = "duckdb") -> str:
    """The statement with tables replaced, in an engine's dialect.

    Args:
        sql: one query.
        replacements: table name -> the view to read instead. Names are compared without regard to case; a name
            that the query itself defines (WITH) is left alone. The view keeps the table's alias.
        read: the text's dialect.
        write: the engine's dialect.

    Raises:
        QueryError: the text can't be parsed, or the engine's dialect can't say it.
        SettingError: unknown dialect.
    """
    tree = parse_statement(sql, read).copy()
    wanted = {tuple(name.casefold().split(".")): view for name, view in replacements.items()}
    for table in list(tree.find_all(exp.Table)):
        view = wanted.get(tuple(part.name.casefold() for part in table.parts))
        if view is not None and not _is_common_table(table):
            _replace(table, view)
    if write == "duckdb":
        tree = _for_duckdb(tree)
    try:
        engine = Spark4() if write == "spark" else dialect_named(write)
        return tree.sql(dialect=engine, unsupported_level=ErrorLevel.RAISE)
    except (SqlglotError, ValueError) as error:
        raise QueryError(
            f"{write} can't answer this query ({str(error).splitlines()[0]}); use another engine"
        ) from error


def _is_common_table(table: exp.Table) -> bool:
    """Whether a WITH clause in force at this place defines the name."""
    name, node = table.name.casefold(), cast(exp.Expr, table)
    while len(table.parts) == 1 and node.parent is not None:
        if any(entry.alias.casefold() == name for entry in _entries_in_force(node.parent, node)):
            return True
        node = node.parent
    return False


def _entries_in_force(parent: exp.Expr, child: exp.Expr) -> list[exp.Expr]:
    """The entries of a WITH clause at ``parent`` that its part ``child`` may name."""
    if isinstance(parent, exp.With):
        place = next(index for index, entry in enumerate(parent.expressions) if entry is child)
        return list(parent.expressions[: place + bool(parent.args.get("recursive"))])
    clause = parent.args.get("with_")
    return list(clause.expressions) if clause is not None and clause is not child else []


def _replace(table: exp.Table, view: str) -> None:
    alias = table.alias_or_name
    scope = table.find_ancestor(exp.Select)
    if scope is not None:
        for column in scope.find_all(exp.Column):
            if column.args.get("db") and column.table.casefold() == alias.casefold():
                column.set("db", None)
                column.set("catalog", None)
    quoted = table.this.args.get("quoted", False) if isinstance(table.this, exp.Identifier) else False
    if not table.args.get("alias"):
        table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=quoted or None)))
    table.set("this", exp.to_identifier(view, quoted=True))
    table.set("db", None)
    table.set("catalog", None)


def _for_duckdb(tree: exp.Expr) -> exp.Expr:
    """What DuckDB would otherwise read differently from Spark."""
    return tree.transform(_duckdb_node)


def _duckdb_node(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Like | exp.ILike) and not isinstance(node.parent, exp.Escape):
        return _with_escape(node)
    if isinstance(node, exp.IsNan):
        return exp.Coalesce(this=exp.IsNan(this=node.this), expressions=[exp.false()])
    if isinstance(node, exp.TryCast) and not node.args.get("safe"):
        return exp.Cast(this=node.this, to=node.args["to"])  # Spark's CAST fails, with ANSI on, as DuckDB's does
    return node


def _with_escape(node: exp.Expr) -> exp.Expr:
    """LIKE with Spark's backslash escapes said aloud: DuckDB has none by default."""
    pattern = node.expression
    if isinstance(pattern, exp.Literal) and "\\" not in pattern.name:
        return node
    if isinstance(pattern, exp.Any | exp.All):
        return node
    return exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))
