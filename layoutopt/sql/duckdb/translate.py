"""Translate Spark SQL to DuckDB where both engines are known to give the same answer.

The engines differ in too many places to list them all (LIKE's escapes, ``float = 0.1``, division, rounding,
``dayofweek``, averages of decimals, comparisons across types, ...). So this lists what is known to be equal and refuses
anything else, with the advice to use Spark. Every expression gets Spark's type, so that answers have Spark's types.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.pushdown_projections import pushdown_projections
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, traverse_scope
from sqlglot.schema import MappingSchema
from sqlglot.tokenizer_core import TokenType

from layoutopt.errors import QueryError, UnknownTableError
from layoutopt.model.schema import Column, Schema
from layoutopt.model.udf import NO_UDFS, Udfs
from layoutopt.sql.dialect import Spark4, get_dialect, parse_statement
from layoutopt.sql.duckdb.expressions import (
    ExpressionTyper,
    PortableFunction,
    check_distinct,
    check_groups,
    is_portable,
    one_zero,
    refuse,
    rewrite_contains,
    short,
    to_duckdb_arrays,
)
from layoutopt.sql.problems import StatementError
from layoutopt.sql.schema import plain_name, replace_names, with_plain_names
from layoutopt.sql.types import is_floating

# Escapes in texts that Spark and sqlglot read alike.
_ESCAPES = re.compile(r"""\\(?:['"\\nrt%_]|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})""")
_RAW_TEXT = re.compile(r"\b[rR]['\"]")
_JOINS = frozenset({"", "INNER", "CROSS", "OUTER", "SEMI", "ANTI"})
_SELECT_PARTS = frozenset(
    {"expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset", "distinct", "with_"}
)
# The mark of a join by USING, whose keys the parser has rewritten to ON and coalesce.
_USING_MARK = "merged"


class Typer(ExpressionTyper):
    """The types of a qualified tree's columns; refuses what is not known to be portable."""

    def __init__(self, tables: Mapping[str, Schema], time_zone: str = "UTC", udfs: Udfs = NO_UDFS) -> None:
        super().__init__(time_zone, udfs)
        self._tables = tables
        self._outputs: dict[int, list[Column]] = {}
        self._scope: Scope | None = None

    def check(self, tree: exp.Expr) -> list[Column]:
        """Return the columns of the answer.

        Raises:
            QueryError: the query might mean something else to DuckDB, or names an unknown table.
        """
        for scope in traverse_scope(tree):
            self._scope = scope
            outputs = self._check_set_operation(scope) if scope.set_operation_scopes else self._check_select(scope)
            self._outputs[id(scope.expression)] = outputs
        return self._outputs[id(tree)]

    def _check_select(self, scope: Scope) -> list[Column]:
        select = scope.expression
        if not isinstance(select, exp.Select):
            raise refuse(f"{short(select.sql(dialect='spark'))!r}")
        self._check_parts(select)
        for source in scope.sources.values():
            self._check_source(source)
        seen = {select.args["from_"].this.alias_or_name} if select.args.get("from_") is not None else set()
        for join in select.args.get("joins") or []:
            seen.add(join.this.alias_or_name)
            self._check_join(join, seen)
        self._write_one_zero(select)
        for part in ("where", "having"):
            if select.args.get(part) is not None:
                self.type_of(select.args[part].this)
        self._check_grouping(select)
        outputs = [Column(item.alias_or_name, self.type_of(item.unalias())) for item in select.selects]
        if select.args.get("distinct") is not None:
            check_distinct([column.type for column in outputs])
        self._check_ordering(select, outputs)
        return outputs

    def _check_source(self, source: exp.Expr | Scope) -> None:
        if isinstance(source, Scope):
            return
        self._table_schema(source)
        present = {name for name, value in source.args.items() if value} - {"this", "alias"}
        if present or (source.args.get("alias") is not None and source.args["alias"].columns):
            raise refuse(f"{short(source.sql(dialect='spark'))!r}")

    def _table_schema(self, source: exp.Expr) -> Schema:
        schema = self._tables.get(source.name.lower())
        if schema is None:
            names = ", ".join(self._tables)
            raise UnknownTableError(f"there is no table {source.name!r}; the query can read {names}", source.name)
        return schema

    def _check_parts(self, select: exp.Select) -> None:
        present = {name for name, value in select.args.items() if value}
        if present - _SELECT_PARTS:
            raise refuse(f"the clause {sorted(present - _SELECT_PARTS)[0].strip('_')!r}")
        if select.args.get("with_") is not None and select.args["with_"].args.get("recursive"):
            raise refuse("a recursive WITH")
        if select.args.get("distinct") is not None and select.args["distinct"].args.get("on"):
            raise refuse("DISTINCT ON")
        for part in ("limit", "offset"):
            value = select.args.get(part)
            if value is not None and not isinstance(value.expression, exp.Literal):
                raise refuse(f"a computed {part.upper()}")

    def _check_join(self, join: exp.Join, seen: set[str]) -> None:
        if (join.kind or "") not in _JOINS or join.args.get("using") or join.args.get("method"):
            raise refuse(f"the join {short(join.sql(dialect='spark'))!r}")
        on = join.args.get("on")
        if on is None:
            return
        for column in on.find_all(exp.Column):
            # A source further right can't be meant; Spark may find a struct of that name.
            if self._scope is not None and column.table in self._scope.sources and column.table not in seen:
                raise refuse(f"the column {short(column.sql(dialect='spark'))!r}")
        self.type_of(on)
        for key in on.find_all(exp.EQ) if join.meta.get(_USING_MARK) else ():
            names = {self.type_of(key.this), self.type_of(key.expression)}
            if len(names) > 1 or any(is_floating(name) for name in names):
                raise refuse(f"joining by USING on a {' and a '.join(sorted(names))}")

    def _check_grouping(self, select: exp.Select) -> None:
        group = select.args.get("group")
        if group is None:
            return
        if any(value for name, value in group.args.items() if name != "expressions"):
            raise refuse(f"{short(group.sql(dialect='spark'))!r}")
        check_groups([self.type_of(item) for item in group.expressions])

    def _write_one_zero(self, select: exp.Select) -> None:
        """Group floats as Spark does, which takes -0.0 for 0.0 and shows 0.0."""
        group = select.args.get("group")
        for item in list(group.expressions) if group is not None else []:
            name = self.type_of(exp.Paren(this=item.copy()))
            if not is_floating(name):
                continue
            order = select.args.get("order")
            parts = [select.args.get("having"), group, order, *select.expressions]
            for node in [node for part in parts if part is not None for node in part.walk(prune=_is_aggregate)]:
                if node == item:
                    node.replace(one_zero(item, name))

    def _check_ordering(self, select: exp.Expr, outputs: Sequence[Column]) -> None:
        order, named = select.args.get("order"), {column.name.lower(): column.type for column in outputs}
        for item in order.expressions if order is not None else []:
            key = item.this
            is_output = isinstance(key, exp.Column) and not key.table and key.name.lower() in named
            name = named[key.name.lower()] if is_output else self.type_of(key)
            if not is_portable(name):
                raise refuse(f"ordering by a {name}")

    def _check_set_operation(self, scope: Scope) -> list[Column]:
        node = scope.expression
        sides = [self._outputs[id(side.expression)] for side in scope.set_operation_scopes]
        present = {name for name, value in node.args.items() if value}
        unknown = present - {"this", "expression", "distinct", "with_", "order", "limit", "offset"}
        if unknown or len(sides) != 2 or [c.type for c in sides[0]] != [c.type for c in sides[1]]:
            raise refuse("a set operation over columns of different types")
        if node.args.get("distinct") or not isinstance(node, exp.Union):
            check_distinct([column.type for column in sides[0]])
        self._check_ordering(node, sides[0])
        return sides[0]

    def _type_column(self, node: exp.Expr) -> str:
        qualifier, scope = node.text("table"), self._scope
        while scope is not None and not node.args.get("db"):
            source = scope.sources.get(qualifier)
            if source is not None:
                return self._source_type(source, node.name)
            if any(qualifier.lower() in self._column_names(outer) for outer in scope.sources.values()):
                break  # to Spark it is a field of that struct, not an outer query's column
            scope = scope.parent
        raise refuse(f"the column {node.name!r}")

    def _column_names(self, source: exp.Expr | Scope) -> set[str]:
        """Return the folded names of a source's columns."""
        if isinstance(source, Scope):
            return {column.name.lower() for column in self._outputs.get(id(source.expression), ())}
        schema = self._tables.get(source.name.lower())
        return {name.lower() for name in schema.names} if schema is not None else set()

    def _source_type(self, source: exp.Expr | Scope, name: str) -> str:
        if isinstance(source, Scope):
            columns: Sequence[Column] = self._outputs[id(source.expression)]
        else:
            columns = self._table_schema(source).columns
        types = [column.type for column in columns if column.name.lower() == name.lower()]
        if len(types) != 1:
            raise refuse(f"the column {name!r}")
        return types[0]

    def _type_subquery(self, node: exp.Expr) -> str:
        outputs = self._outputs.get(id(node.unnest()), [])
        if len(outputs) != 1:
            raise refuse(f"the subquery {short(node.sql(dialect='spark'))!r}")
        return outputs[0].type


def _is_aggregate(node: exp.Expr) -> bool:
    return isinstance(node, exp.AggFunc)


@dataclass(frozen=True)
class PortableSql:
    """A text for DuckDB, with views in place of tables.

    Attributes:
        sql: the text.
        columns: the columns of its answer in Spark's types.
        is_flat: whether it is a single SELECT without subqueries or CTEs, which reads each view once.
        functions: the Python functions that it calls.
        uses_times: whether it computes something of dates or times, of which DuckDB takes the last for infinity.
    """

    sql: str
    columns: tuple[Column, ...]
    is_flat: bool
    functions: tuple[PortableFunction, ...] = ()
    uses_times: bool = False


def portable_sql(
    sql: str,
    tables: Mapping[str, Schema],
    views: Mapping[int, str] | str,
    time_zone: str = "UTC",
    udfs: Udfs = NO_UDFS,
) -> PortableSql:
    """Return the DuckDB text that answers ``sql`` as Spark would.

    Args:
        sql: one SELECT statement in Spark's dialect.
        tables: schemas by table name, in any case.
        views: the view to read for each mention of a table, by the mention's position in the text; or one view for
            all. Its columns have plain names (:mod:`layoutopt.sql.schema`).
        time_zone: the session's, of both engines.
        udfs: the declared functions that the text may call.

    Raises:
        QueryError: the text is no query, names something unknown, or might mean something else to DuckDB.
    """
    query = _parse_query(sql)
    for join in query.find_all(exp.Join):
        _check_join_keys(join)
    selected = _selected_names(query)
    spellings = _find_spellings(query, tables.values())
    replace_names(query)
    rewrite_contains(query, udfs)
    tables = {plain_name(name): with_plain_names(schema) for name, schema in tables.items()}
    tree = _qualify_columns(query, sql, tables)
    typer = Typer({name.lower(): schema for name, schema in tables.items()}, time_zone, udfs)
    columns = typer.check(tree)
    names = [spellings.get(column.name.lower(), column.name) for column in columns]
    if selected is not None and len(selected) == len(names):
        names = [spark_name or name for spark_name, name in zip(selected, names, strict=True)]
    # A star was expanded in full; columns that nothing reads must not be requested of a view that lacks them.
    tree = pushdown_projections(tree)
    _replace_tables(tree, {name.lower() for name in tables}, views)
    typed = tuple(Column(name, column.type) for name, column in zip(names, columns, strict=True))
    is_flat = sum(1 for _ in tree.find_all(exp.Query)) == 1
    tree = to_duckdb_arrays(tree)
    return PortableSql(tree.sql(dialect="duckdb"), typed, is_flat, tuple(typer.functions.values()), typer.uses_times)


def _parse_query(sql: str) -> exp.Query:
    if "\\" in _ESCAPES.sub("", sql):
        raise refuse("an unusual escape in a text")
    try:
        statement = parse_statement(sql)
        if _RAW_TEXT.search(sql) and any(
            t.token_type == TokenType.RAW_STRING for t in get_dialect("spark").tokenize(sql)
        ):
            raise refuse("a raw text")
    except StatementError as error:
        raise QueryError(f"{short(sql)!r} is not one SELECT statement of Spark's ({error}); correct it") from error
    if not isinstance(statement, exp.Query):
        raise QueryError(f"{short(sql)!r} is not one SELECT statement; pass a single query")
    return statement.copy()


def _check_join_keys(join: exp.Join) -> None:
    """Refuse joins whose merged keys may differ: the parser knows neither their order nor their types.

    Unqualified keys with the left side's value are allowed; their types are compared later.
    """
    keys = {key.name.lower() for key in join.args.get("using") or ()}
    select = join.find_ancestor(exp.Select)
    if not keys and not join.args.get("method"):
        return
    sides = {(sibling.side or "").upper() for sibling in (select.args.get("joins") or ())} if select else {"?"}
    columns = select.find_all(exp.Column) if select else ()
    is_qualified = any(column.table and column.name.lower() in keys for column in columns)
    has_star = select is not None and any(projection.is_star for projection in select.expressions)
    if join.args.get("method") or not sides <= {"", "LEFT"} or is_qualified or has_star:
        raise refuse(f"the join {short(join.sql(dialect='spark'))!r} (write ON)")
    join.meta[_USING_MARK] = True


def _find_spellings(tree: exp.Query, schemas: Iterable[Schema]) -> dict[str, str]:
    """Return Spark's spellings of the answer's columns, by plain names in lower case; aliases take precedence."""
    identifiers = [identifier.this for identifier in tree.find_all(exp.Identifier)]
    columns = [name for schema in schemas for name in schema.names]
    aliases = [alias.alias for alias in tree.find_all(exp.Alias)]
    return {plain_name(name).lower(): name for name in (*identifiers, *columns, *aliases)}


def _qualify_columns(tree: exp.Query, sql: str, tables: Mapping[str, Schema]) -> exp.Expr:
    try:
        return qualify(tree, schema=_parser_schema(tuple(tables.items())), dialect=Spark4)
    except SqlglotError as error:
        message = re.sub(r"\x1b\[\d*m|\s+", " ", str(error)).strip().rstrip(".")
        raise QueryError(f"{short(sql)!r} can't be read as Spark SQL ({message}); correct the query") from error


@lru_cache(maxsize=64)
def _parser_schema(tables: tuple[tuple[str, Schema], ...]) -> MappingSchema:
    """Return the tables in sqlglot's form; cached, since building it can take as long as parsing a text."""
    columns: dict[str, object] = {
        name: {column.name: column.type if is_portable(column.type) else "binary" for column in schema.columns}
        for name, schema in tables
    }
    return MappingSchema(columns, dialect=Spark4)


def _selected_names(query: exp.Expr) -> list[str] | None:
    """Return Spark's names of the answer's columns, empty if unknown; None if there is a star."""
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
    for table in [table for table in tree.find_all(exp.Table) if _is_base_table(table, names)]:
        view = views if isinstance(views, str) else views.get(table.this.meta.get("start", -1))
        if view is None:
            raise refuse("a text with ambiguous mentions of the table")
        table.set("this", exp.to_identifier(view, quoted=True))


def _is_base_table(table: exp.Table, names: set[str]) -> bool:
    if table.name.lower() not in names:
        return False
    select = table.parent_select
    while select is not None:
        if any(cte.alias.lower() == table.name.lower() for cte in select.ctes):
            return False
        select = select.parent_select
    return True
