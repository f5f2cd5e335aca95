"""Spark's types of a whole query: of the columns of each SELECT in it, and of its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from layoutopt.errors import QueryError
from layoutopt.model.schema import Column, Schema
from layoutopt.model.udf import NO_UDFS, Udfs
from layoutopt.sql.duckdb import types
from layoutopt.sql.duckdb.expressions import ExpressionTyper, check_groups, refuse, short
from layoutopt.sql.types.rules import is_floating

_JOINS = frozenset({"", "INNER", "CROSS", "OUTER", "SEMI", "ANTI"})
_SELECT_PARTS = frozenset(
    {"expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset", "distinct", "with_"}
)
MERGED = "merged"
"""Marks a join by USING, whose keys the parser has written as ON and coalesce."""


class Typer(ExpressionTyper):
    """Finds the types of a qualified tree's columns, refusing what is not known to be portable."""

    def __init__(self, tables: Mapping[str, Schema], time_zone: str = "UTC", udfs: Udfs = NO_UDFS) -> None:
        super().__init__(time_zone, udfs)
        self._tables = tables
        self._outputs: dict[int, list[Column]] = {}
        self._scope: Scope | None = None

    def check(self, tree: exp.Expr) -> list[Column]:
        """The columns of the answer.

        Raises:
            QueryError: the query might mean something else to DuckDB, or names an unknown table.
        """
        for scope in traverse_scope(tree):
            self._scope = scope
            outputs = self._set_operation(scope) if scope.set_operation_scopes else self._select(scope)
            self._outputs[id(scope.expression)] = outputs
        return self._outputs[id(tree)]

    def _select(self, scope: Scope) -> list[Column]:
        select = scope.expression
        if not isinstance(select, exp.Select):
            raise refuse(f"{short(select.sql(dialect='spark'))!r}")
        self._check_parts(select)
        for source in scope.sources.values():
            self._check_source(source)
        seen = {select.args["from_"].this.alias_or_name} if select.args.get("from_") is not None else set()
        for join in select.args.get("joins") or []:
            seen.add(join.this.alias_or_name)
            self._join(join, seen)
        for part in ("where", "having"):
            if select.args.get(part) is not None:
                self.type_of(select.args[part].this)
        self._grouping(select)
        outputs = [Column(item.alias_or_name, self.type_of(item.unalias())) for item in select.selects]
        if select.args.get("distinct") is not None:
            check_groups([column.type for column in outputs])
        self._ordering(select, outputs)
        return outputs

    def _check_source(self, source: exp.Expr | Scope) -> None:
        if isinstance(source, Scope):
            return
        present = {name for name, value in source.args.items() if value} - {"this", "alias"}
        if present or (source.args.get("alias") is not None and source.args["alias"].columns):
            raise refuse(f"{short(source.sql(dialect='spark'))!r}")

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

    def _join(self, join: exp.Join, seen: set[str]) -> None:
        if (join.kind or "") not in _JOINS or join.args.get("using") or join.args.get("method"):
            raise refuse(f"the join {short(join.sql(dialect='spark'))!r}")
        on = join.args.get("on")
        if on is None:
            return
        for column in on.find_all(exp.Column):
            # What stands further right can't be meant; Spark may find a struct of that name.
            if column.table in self._sources() and column.table not in seen:
                raise refuse(f"the column {short(column.sql(dialect='spark'))!r}")
        self.type_of(on)
        for key in on.find_all(exp.EQ) if join.meta.get(MERGED) else ():
            names = {self.type_of(key.this), self.type_of(key.expression)}
            if len(names) > 1 or any(is_floating(name) for name in names):
                raise refuse(f"joining by USING on a {' and a '.join(sorted(names))}")

    def _sources(self) -> Mapping[str, exp.Expr | Scope]:
        return self._scope.sources if self._scope is not None else {}

    def _grouping(self, select: exp.Select) -> None:
        group = select.args.get("group")
        if group is None:
            return
        if any(value for name, value in group.args.items() if name != "expressions"):
            raise refuse(f"{short(group.sql(dialect='spark'))!r}")
        check_groups([self.type_of(item) for item in group.expressions])

    def _ordering(self, select: exp.Expr, outputs: Sequence[Column]) -> None:
        order, named = select.args.get("order"), {column.name.lower(): column.type for column in outputs}
        for item in order.expressions if order is not None else []:
            key = item.this
            is_output = isinstance(key, exp.Column) and not key.table and key.name.lower() in named
            name = named[key.name.lower()] if is_output else self.type_of(key)
            if not types.is_portable(name):
                raise refuse(f"ordering by a {name}")

    def _set_operation(self, scope: Scope) -> list[Column]:
        node = scope.expression
        sides = [self._outputs[id(side.expression)] for side in scope.set_operation_scopes]
        present = {name for name, value in node.args.items() if value}
        unknown = present - {"this", "expression", "distinct", "with_", "order", "limit", "offset"}
        if unknown or len(sides) != 2 or [c.type for c in sides[0]] != [c.type for c in sides[1]]:
            raise refuse("a set operation over columns of different types")
        if node.args.get("distinct") or not isinstance(node, exp.Union):
            check_groups([column.type for column in sides[0]])
        self._ordering(node, sides[0])
        return sides[0]

    def _column(self, node: exp.Expr) -> str:
        qualifier, scope = node.text("table"), self._scope
        while scope is not None and not node.args.get("db"):
            source = scope.sources.get(qualifier)
            if source is not None:
                return self._source_type(source, node.name)
            if any(qualifier.lower() in self._columns_of(each) for each in scope.sources.values()):
                break  # to Spark it is a field of that struct, not an outer query's column
            scope = scope.parent
        raise refuse(f"the column {node.name!r}")

    def _columns_of(self, source: exp.Expr | Scope) -> set[str]:
        """The folded names of a source's columns."""
        if isinstance(source, Scope):
            return {column.name.lower() for column in self._outputs.get(id(source.expression), ())}
        schema = self._tables.get(source.name.lower())
        return {name.lower() for name in schema.names} if schema is not None else set()

    def _source_type(self, source: exp.Expr | Scope, name: str) -> str:
        if isinstance(source, Scope):
            columns: Sequence[Column] = self._outputs[id(source.expression)]
        else:
            schema = self._tables.get(source.name.lower())
            if schema is None:
                raise QueryError(f"there is no table {source.name!r}; the query can read {', '.join(self._tables)}")
            columns = schema.columns
        found = [column.type for column in columns if column.name.lower() == name.lower()]
        if len(found) != 1:
            raise refuse(f"the column {name!r}")
        return found[0]

    def _subquery(self, node: exp.Expr) -> str:
        outputs = self._outputs.get(id(node.unnest()), [])
        if len(outputs) != 1:
            raise refuse(f"the subquery {short(node.sql(dialect='spark'))!r}")
        return outputs[0].type
