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

from layoutopt.errors import LayoutoptError, SettingError
from layoutopt.model.feature import Settings
from layoutopt.model.predicates import TRUE, Expr, Filter, InSet, Node, conjunction, to_sql
from layoutopt.model.schema import Column, Schema
from layoutopt.model.udf import NO_UDFS, Udf, Udfs
from layoutopt.sql.dialect import Spark4, dialect_named, parse_statement
from layoutopt.sql.filters import OTHER_TABLE, FilterReader
from layoutopt.sql.operands import Context
from layoutopt.sql.problems import StatementError, Unusable, UnusableCondition
from layoutopt.sql.scopes import FromItem, Mode, Placed, Scope, follow, rejects_nulls
from layoutopt.sql.udf_implications import implied_texts

# ----------------------------------------------------------------------------------------------------
# The condition of a statement that reads one table and nothing else, as a text of its own.

_PLAIN = frozenset({"this", "db", "catalog", "alias"})


def plain_condition(sql: str, dialect: str = "spark") -> str | None:
    """The WHERE of a SELECT from one table, in Spark's dialect, its columns without the table's name.

    None where the statement has joins, subqueries or anything else through which a condition may be about other rows
    than the table's own. It is cut out of the text, not put together from what the analyser understood of it.

    Raises:
        SettingError: unknown dialect.
        StatementError: the text can't be parsed.

    >>> plain_condition("SELECT count(*) FROM db.sales s WHERE s.price > 5 GROUP BY s.day")
    'price > 5'
    >>> plain_condition("SELECT 1 FROM a WHERE d > DATE '1995-01-01' + INTERVAL '1' DAY")
    "d > DATE '1995-01-01' + INTERVAL '1' DAY"
    >>> plain_condition("SELECT 1 FROM a WHERE s = 'it''s'")
    "s = 'it''s'"
    >>> plain_condition("SELECT 1 FROM a JOIN b ON a.x = b.x WHERE a.y = 1") is None
    True
    """
    tree = parse_statement(sql, dialect)
    if not isinstance(tree, exp.Select) or sum(1 for _ in tree.find_all(exp.Query)) != 1:
        return None
    table = _only_table(tree)
    if table is None:
        return None
    where = tree.args.get("where")
    return "TRUE" if where is None else _unqualified(where.this.copy(), table.alias_or_name)


def _only_table(select: exp.Select) -> exp.Table | None:
    clause = select.args.get("from_")
    if clause is None or select.args.get("joins") or select.args.get("laterals") or select.args.get("with_"):
        return None
    table = clause.this
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        return None
    return None if {name for name, value in table.args.items() if value} - _PLAIN else table


def _unqualified(condition: exp.Expr, alias: str) -> str | None:
    for column in list(condition.find_all(exp.Column)):
        if len(column.parts) > 2 or (column.table and column.table.lower() != alias.lower()):
            return None
        column.set("table", None)
    return condition.transform(_as_typed_literal).sql(dialect=Spark4)


def _as_typed_literal(node: exp.Expr) -> exp.Expr:
    """``DATE '1995-01-01'`` again, which the parser takes for a cast and would write as one that may fail."""
    if type(node) is exp.Cast and isinstance(node.this, exp.Literal) and node.this.is_string:
        return exp.var(f"{node.to.sql(dialect=Spark4)} {node.this.sql(dialect=Spark4)}")
    return node


# ----------------------------------------------------------------------------------------------------
# Where a text names tables, and which.

Span = tuple[int, int]
"""[start, end) in a text."""


def qualified_tables(sql: str) -> list[str]:
    """The tables that a statement in Spark's dialect names, as it qualifies them, in the order of the text.

    Raises:
        StatementError: the text can't be parsed, or holds no or several statements.
    """
    tree = parse_statement(sql, "spark")
    common = {entry.alias.lower() for entry in tree.find_all(exp.CTE)}
    tables = [table for table in tree.find_all(exp.Table) if table.name.lower() not in common | {""}]
    return [
        ".".join(part.name for part in table.parts)
        for table in sorted(tables, key=lambda each: span_of(each) or (0, 0))
    ]


def tables_named(sql: str, dialect: str = "spark") -> list[str]:
    """The tables that a statement names, without qualifiers and common tables, in alphabetical order.

    Raises:
        SettingError: unknown dialect.
        StatementError: the text can't be parsed, or holds no or several statements.
    """
    tree = parse_statement(sql, dialect)
    common = {entry.alias.lower() for entry in tree.find_all(exp.CTE)}
    return sorted({table.name for table in tree.find_all(exp.Table) if table.name.lower() not in common | {""}})


def span_of(table: exp.Table) -> Span | None:
    """Where a table's name stands in the text; None for table functions and the like."""
    places = [part.meta for part in table.parts if isinstance(part, exp.Identifier)]
    if len(places) < len(table.parts) or not all("start" in place and "end" in place for place in places):
        return None
    return min(place["start"] for place in places), max(place["end"] for place in places) + 1


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


# ----------------------------------------------------------------------------------------------------
# One expression of a table's columns, as filters would have it.


def implied_node(
    udf: Udf, operator: str | None, arguments: Sequence[Expr], value: Expr | None, schema: Schema, settings: Settings
) -> Node:
    """Return what a call of a user's function that compares so with a value implies about columns; TRUE for nothing.

    Args:
        udf: the function.
        operator: of the comparison, the call on its left side; None where the call itself is the condition.
        arguments: of the call.
        value: the constant that it is compared with.
        schema: the table's.
        settings: of the session.

    Raises:
        SettingError: what the function implies is no condition, or the call has another number of arguments.
    """
    texts = implied_texts(udf, operator, list(map(to_sql, arguments)), None if value is None else to_sql(value))
    tables = {"t": schema}
    return conjunction(
        scan.filter.root
        for text in texts
        for scan in scans_of(f"SELECT 1 FROM t WHERE {text}", tables, settings=settings)
    )


def parse_expression(text: str, schema: Schema, settings: Settings | None = None, udfs: Udfs = NO_UDFS) -> Expr:
    """A column or a function of columns, in the form in which filters of it have their subject.

    Args:
        text: in Spark's SQL.
        schema: the table's.
        settings: of the session.
        udfs: the functions of users that it may call.

    Raises:
        SettingError: the text is no such expression.

    >>> from layoutopt.model.schema import Column
    >>> parse_expression("lower(S)", Schema((Column("s", "string"),)))
    Call(fn='lower', args=(Col(name='s', type='string'),), type='string')
    """
    try:
        (scan,) = scans_of(f"SELECT 1 FROM t WHERE ({text}) IS NOT NULL", {"t": schema}, settings=settings, udfs=udfs)
    except (StatementError, ValueError) as error:
        raise SettingError(f"{text!r} is no expression of the table's columns ({error}); name a column") from error
    root = scan.filter.root
    if scan.unusable:
        raise SettingError(f"{text!r} can't be used ({scan.unusable[0].detail}); name a column")
    if not isinstance(root, InSet) or not root.values.is_all or root.null:
        raise SettingError(f"{text!r} is no expression that may be NULL; name a column")
    return root.subject
