"""The scans of a statement: for each reference to a table, the columns that it reads and the filter that holds there.

A scan's filter is a condition whose prior application never changes the query's answer: conjuncts of WHERE and of
inner joins' ON, and around outer joins only what surely drops no row that counts (see :mod:`.scopes.pushdown`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from sqlglot import exp

from layoutopt.errors import LayoutoptError
from layoutopt.model.feature import Settings
from layoutopt.model.predicates import TRUE, Filter, Node, conjunction
from layoutopt.model.schema import Column, Schema
from layoutopt.model.udf import NO_UDFS, Udfs
from layoutopt.sql.calls.subjects import Context
from layoutopt.sql.dialect import Spark4, dialect_named, parse_statement
from layoutopt.sql.filters import OTHER_TABLE, FilterReader
from layoutopt.sql.problems import StatementError, Unusable, UnusableCondition
from layoutopt.sql.references import Span, span_of
from layoutopt.sql.scopes.blocks import follow
from layoutopt.sql.scopes.from_items import FromItem
from layoutopt.sql.scopes.pushdown import Mode, Placed, rejects_nulls
from layoutopt.sql.scopes.scope import Scope


@dataclass(frozen=True)
class TableScan:
    """One reference to a table in a statement.

    Attributes:
        table: its name, as the caller's ``tables`` has it.
        alias: what the statement calls it.
        columns: the columns that the statement reads there, in schema order, those of the filter included.
        filter: what holds of every row that counts.
        unusable: conditions on this table alone that the filter leaves out, each with its reason.
        span: [start, end) of the table's name in the text; None where the text is not Spark's.
    """

    table: str
    alias: str
    columns: tuple[str, ...]
    filter: Filter
    unusable: tuple[UnusableCondition, ...] = ()
    span: Span | None = None

    @property
    def exact(self) -> bool:
        """Whether the filter leaves out no condition on this table alone."""
        return not self.unusable


def scans_of(
    sql: str,
    tables: Mapping[str, Schema],
    dialect: str = "spark",
    *,
    settings: Settings | None = None,
    udfs: Udfs = NO_UDFS,
    any_qualifier: bool = False,
) -> list[TableScan]:
    """The scans of the given tables in one statement, in order of appearance; none where it reads other tables.

    Args:
        sql: one query (or INSERT or CREATE TABLE ... AS with one).
        tables: the schemas of the tables to look for, by the names that the text calls them.
        dialect: the text's; what it means is Spark's in any case.
        settings: the session's, which decide what literals mean; Spark's defaults in UTC when left out.
        udfs: the deterministic functions that the user declared, by name.
        any_qualifier: whether ``prod.t`` means the table ``t`` (for logs, never for rewriting).

    Raises:
        SettingError: unknown dialect.
        StatementError: the statement can't be analysed; its ``code`` says why.
    """
    tree = parse_statement(sql, dialect)
    query = _query_of(tree)
    _refuse_columns_like_functions(query, tables.values())
    try:
        found = follow(query, tables, any_qualifier)
        spans = isinstance(dialect_named(dialect), Spark4)
        reading = settings or Settings()
        scans = [_scan(item, found.conditions.get(item, ()), reading, udfs, spans) for item in found.scans]
    except RecursionError as error:
        raise StatementError("unsupported", "the statement is nested too deeply to be followed") from error
    return sorted(scans, key=lambda scan: scan.span or (0, 0))


_LIKE_FUNCTIONS: Final[dict[type[exp.Expr], str]] = {
    exp.CurrentDate: "current_date", exp.CurrentTimestamp: "current_timestamp", exp.CurrentUser: "current_user",
    exp.SessionUser: "session_user",
}  # fmt: skip
"""What Spark calls without parentheses, unless a column has the name; the parser sees no column there."""


def _refuse_columns_like_functions(query: exp.Expr, schemas: Iterable[Schema]) -> None:
    columns = {name.lower() for schema in schemas for name in schema.names}
    kinds = [kind for kind, name in _LIKE_FUNCTIONS.items() if name in columns]
    found = query.find(*kinds) if kinds else None
    if found is not None:
        name = _LIKE_FUNCTIONS[type(found)]
        raise StatementError("unsupported", f"{name} may be a column or a function; write a table's name before it")


def _query_of(tree: exp.Expr) -> exp.Expr:
    if isinstance(tree, exp.Insert | exp.Create) and isinstance(tree.expression, exp.Query):
        return tree.expression
    if isinstance(tree, exp.Query):
        return tree
    raise StatementError("not-a-query", f"{tree.sql('spark')[:60]!r} is no query")


def _scan(item: FromItem, conditions: Sequence[Placed], settings: Settings, udfs: Udfs, spans: bool) -> TableScan:
    assert item.table is not None
    assert item.schema is not None
    unusable: list[UnusableCondition] = []
    nodes = []
    for placed in conditions:
        context = Context(partial(_column, item, item.schema, placed.scope), settings, udfs)
        node, left_out = _filter_part(placed, item, context)
        nodes.append(node)
        unusable += left_out
    return TableScan(
        table=item.table,
        alias=item.alias,
        columns=tuple(name for name in item.schema.names if name in item.columns),
        filter=Filter.of(conjunction(nodes)),
        unusable=tuple(dict.fromkeys(unusable)),
        span=span_of(item.reference) if spans and item.reference is not None else None,
    )


def _filter_part(placed: Placed, item: FromItem, context: Context) -> tuple[Node, list[UnusableCondition]]:
    """What a condition asks of the rows of a scan, and what of it is left out."""
    about_item_alone = placed.scope.about(placed.condition) == {item}
    left_out: list[UnusableCondition] = []
    if placed.mode != Mode.BLOCKED:
        reader = FilterReader(context)
        node = reader.node(placed.condition)
        if about_item_alone:  # a join condition is not this scan's to use
            left_out += reader.unusable
        if node == TRUE or placed.mode == Mode.FREE or rejects_nulls(node):
            return node, left_out
    if about_item_alone:
        code = "sampled" if item.frozen else "outer-join"
        detail = f"{placed.condition.sql('spark')} can't be applied before the rest of the query"
        left_out.append(UnusableCondition(code, detail, placed.condition.sql("spark")))
    return TRUE, left_out


def _column(item: FromItem, schema: Schema, scope: Scope, column: exp.Column) -> tuple[Column, tuple[str, ...]]:
    """The scan's column that a reference means, and the fields of it that follow.

    Raises:
        Unusable: it means none, or not surely.
    """
    try:
        found = scope.resolve(column)
    except LayoutoptError as error:
        raise Unusable("unsupported-expression", str(error)) from error
    if not found.own:
        raise Unusable("correlated", f"{column.sql('spark')} belongs to an outer query")
    if item not in [each for each, _ in found.columns]:
        raise Unusable(OTHER_TABLE, f"{column.sql('spark')} is another table's")
    holder = found.exact or found.struct
    if holder is None or holder[0] is not item:
        raise Unusable("unsupported-expression", f"{column.sql('spark')} is not surely a column of this table alone")
    known = schema.find(holder[1])
    if known.name != holder[1]:
        raise Unusable("unsupported-expression", f"{column.sql('spark')} is not surely {known.name}")
    return known, found.fields
