"""Scans of a statement: for each reference to a table, the columns that it reads and the filter that holds there.

A scan's filter can be applied first without changing the query's answer: conjuncts of WHERE and of inner joins' ON,
and around outer joins only conditions that drop no row that counts (see :mod:`layoutopt.sql.query_blocks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from sqlglot import exp

from layoutopt.errors import LayoutoptError, SettingError
from layoutopt.model.feature import SessionSettings
from layoutopt.model.predicates import TRUE, Expr, Filter, InSet, Node, conjunction, to_sql
from layoutopt.model.schema import Column, Schema
from layoutopt.model.udf import NO_UDFS, Udf, Udfs
from layoutopt.sql.dialect import Spark4, get_dialect, parse_statement
from layoutopt.sql.dialect_checks import plain_text
from layoutopt.sql.equalities import holds_across_types
from layoutopt.sql.filters import OTHER_TABLE, FilterReader
from layoutopt.sql.operands import Context
from layoutopt.sql.problems import StatementError, Unusable, UnusableCondition
from layoutopt.sql.query_blocks import Mode, PlacedCondition, find_table, rejects_nulls, trace_tables
from layoutopt.sql.scopes import PSEUDO_COLUMNS, FromItem, Scope
from layoutopt.sql.statements import list_queries
from layoutopt.sql.udf_implications import implied_texts

# [start, end) in a text.
Span = tuple[int, int]


@dataclass(frozen=True)
class TableScan:
    """One reference to a table in a statement.

    Attributes:
        table: its name in the caller's ``tables``.
        alias: its name in the statement.
        columns: the columns that the statement reads there, in schema order, including those of the filter.
        filter: holds for every row that counts.
        unusable: conditions on this table alone that the filter leaves out, each with its reason.
        span: [start, end) of the table's name in the text; None if the text is not Spark's.
    """

    table: str
    alias: str
    columns: tuple[str, ...]
    filter: Filter
    unusable: tuple[UnusableCondition, ...] = ()
    span: Span | None = None

    @property
    def exact(self) -> bool:
        """Return whether the filter leaves out no condition on this table alone."""
        return not self.unusable


def find_scans(
    sql: str,
    tables: Mapping[str, Schema],
    dialect: str = "spark",
    *,
    settings: SessionSettings | None = None,
    udfs: Udfs = NO_UDFS,
    any_qualifier: bool = False,
) -> list[TableScan]:
    """Return the scans of the given tables in one statement, in order of appearance.

    Args:
        sql: one query, or a statement that has some (:mod:`layoutopt.sql.statements`).
        tables: the schemas of the tables to look for, by their names in the text.
        dialect: the text's; the meaning is Spark's in any case.
        settings: the session's, which decide the meaning of literals; by default Spark's defaults in UTC.
        udfs: the declared deterministic functions, by name.
        any_qualifier: whether ``prod.t`` means the table ``t`` (for logs, never for rewriting).

    Raises:
        SettingError: unknown dialect.
        StatementError: the statement can't be analysed; its ``code`` says why.
    """
    has_spans = isinstance(get_dialect(dialect), Spark4)
    settings = settings or SessionSettings()

    def read(part: PlacedCondition, item: FromItem) -> ReadCondition:
        return read_condition(part, item, condition_context(part, item, settings, udfs))

    try:
        placed = place_scans(parse_statement(sql, dialect), tables, any_qualifier)
        return [build_scan(item, [read(part, item) for part in conditions], has_spans) for item, conditions in placed]
    except RecursionError as error:
        raise StatementError("unsupported", "the statement is nested too deeply") from error


def place_scans(
    tree: exp.Expr, tables: Mapping[str, Schema], any_qualifier: bool = False
) -> list[tuple[FromItem, Sequence[PlacedCondition]]]:
    """Return the scans of the given tables in a statement's tree, in order of appearance, with their conditions.

    Raises:
        StatementError: the statement can't be analysed.
    """
    placed: list[tuple[FromItem, Sequence[PlacedCondition]]] = []
    for query in list_queries(tree, lambda table: find_table(table, tables, any_qualifier) is not None):
        _refuse_columns_like_functions(query, tables.values())
        statement = trace_tables(query, tables, any_qualifier)
        placed += [(item, statement.conditions.get(item, ())) for item in statement.scans]
    return sorted(placed, key=lambda scan: _span_of(scan[0]) or (0, 0))


def _span_of(item: FromItem) -> Span | None:
    return None if item.reference is None else find_span(item.reference)


# Functions that Spark calls without parentheses unless a column has the name; the parser finds no column there.
_LIKE_FUNCTIONS: Final[dict[type[exp.Expr], str]] = {
    exp.CurrentDate: "current_date", exp.CurrentTimestamp: "current_timestamp", exp.CurrentUser: "current_user",
    exp.SessionUser: "session_user",
}  # fmt: skip


def _refuse_columns_like_functions(query: exp.Expr, schemas: Iterable[Schema]) -> None:
    columns = {name.lower() for schema in schemas for name in schema.names}
    kinds = [kind for kind, name in _LIKE_FUNCTIONS.items() if name in columns]
    call = query.find(*kinds) if kinds else None
    if call is not None:
        name = _LIKE_FUNCTIONS[type(call)]
        raise StatementError("unsupported", f"{name} may be a column or a function; write a table's name before it")


# The filter that a condition implies for the rows of a scan, and the parts that it leaves out.
ReadCondition: TypeAlias = tuple[Node, tuple[UnusableCondition, ...]]


def build_scan(item: FromItem, conditions: Sequence[ReadCondition], has_span: bool) -> TableScan:
    """Return a scan from its conditions."""
    assert item.table is not None
    assert item.schema is not None
    unusable = tuple(dict.fromkeys(part for _, omitted in conditions for part in omitted))
    return TableScan(
        table=item.table,
        alias=item.alias,
        columns=tuple(name for name in item.schema.names if name in item.columns),
        filter=Filter.of(conjunction(node for node, _ in conditions)),
        unusable=unusable,
        span=_span_of(item) if has_span else None,
    )


def condition_context(placed: PlacedCondition, item: FromItem, settings: SessionSettings, udfs: Udfs) -> Context:
    """Return the context that a condition of a scan is read in."""
    assert item.schema is not None
    return Context(partial(_resolve_column, item, item.schema, placed.scope), settings, udfs)


def read_condition(placed: PlacedCondition, item: FromItem, context: Context) -> ReadCondition:
    """Return what a condition implies for the rows of a scan."""
    node, omitted = _read_condition(placed, item, context)
    return node, tuple(omitted)


def _read_condition(placed: PlacedCondition, item: FromItem, context: Context) -> tuple[Node, list[UnusableCondition]]:
    """Return the filter that a condition implies for the rows of a scan, and the parts that it leaves out."""
    # A join condition is not this scan's alone, and the text has no inferred one.
    is_local = placed.items == {item} and not placed.is_inferred
    omitted: list[UnusableCondition] = []
    if placed.mode != Mode.BLOCKED:
        reader = FilterReader(context)
        node = reader.read(placed.condition)
        if placed.crosses_types and not holds_across_types(node, context.settings.time_zone):
            return TRUE, []
        if is_local:
            omitted += reader.unusable
        if node == TRUE or placed.mode == Mode.FREE or rejects_nulls(node):
            return node, omitted
    if is_local:
        code = "sampled" if item.frozen else "outer-join"
        detail = f"{placed.condition.sql('spark')} can't be applied before the rest of the query"
        omitted.append(UnusableCondition(code, plain_text(detail), plain_text(placed.condition.sql("spark"))))
    return TRUE, omitted


def _resolve_column(item: FromItem, schema: Schema, scope: Scope, column: exp.Column) -> tuple[Column, tuple[str, ...]]:
    """Return the scan's column that a reference means, and the fields of it that follow.

    Raises:
        Unusable: it means none, or it is uncertain.
    """
    try:
        resolution = scope.resolve(column)
    except LayoutoptError as error:
        raise Unusable("unsupported-expression", str(error)) from error
    if not resolution.is_own:
        raise Unusable("correlated", f"{column.sql('spark')} belongs to an outer query")
    if item not in [source for source, _ in resolution.columns]:
        raise Unusable(OTHER_TABLE, f"{column.sql('spark')} belongs to another table")
    match = resolution.exact or resolution.struct
    if match is None and column.name.lower() in PSEUDO_COLUMNS:
        raise Unusable(
            "pseudo-column", f"{column.sql('spark')} is a pseudo column, which the table's files do not have"
        )
    if match is None or match[0] is not item:
        raise Unusable("unsupported-expression", f"{column.sql('spark')} is not certainly a column of this table alone")
    schema_column = schema.find(match[1])
    if schema_column.name != match[1]:
        raise Unusable("unsupported-expression", f"{column.sql('spark')} is not certainly {schema_column.name}")
    return schema_column, resolution.fields


def implied_node(
    udf: Udf,
    operator: str | None,
    arguments: Sequence[Expr],
    value: Expr | None,
    schema: Schema,
    settings: SessionSettings,
) -> Node:
    """Return what a UDF's call, compared with a value, implies about columns; TRUE if it implies nothing.

    The call is on the comparison's left side; without operator and value it is the condition itself.

    Raises:
        SettingError: the function's implication is no condition, or the call has the wrong number of arguments.
    """
    texts = implied_texts(udf, operator, list(map(to_sql, arguments)), None if value is None else to_sql(value))
    tables = {"t": schema}
    return conjunction(
        scan.filter.root
        for text in texts
        for scan in find_scans(f"SELECT 1 FROM t WHERE {text}", tables, settings=settings)
    )


def parse_expression(text: str, schema: Schema, settings: SessionSettings | None = None, udfs: Udfs = NO_UDFS) -> Expr:
    """Return a column or a function of columns, in the form that filters use as a subject.

    Raises:
        SettingError: the text is no such expression.

    >>> from layoutopt.model.schema import Column
    >>> parse_expression("lower(S)", Schema((Column("s", "string"),)))
    Call(fn='lower', args=(Col(name='s', type='string'),), type='string')
    """
    try:
        (scan,) = find_scans(f"SELECT 1 FROM t WHERE ({text}) IS NOT NULL", {"t": schema}, settings=settings, udfs=udfs)
    except (StatementError, ValueError) as error:
        raise SettingError(f"{text!r} is not an expression of the table's columns ({error}); name a column") from error
    root = scan.filter.root
    if scan.unusable:
        raise SettingError(f"{text!r} can't be used ({scan.unusable[0].detail}); name a column")
    if not isinstance(root, InSet) or not root.values.is_all or root.null:
        raise SettingError(f"{text!r} can't be NULL; name a column")
    return root.subject


def qualified_tables(sql: str) -> list[str]:
    """Return the tables that a statement in Spark's dialect names, with its qualifiers, in the order of the text.

    Raises:
        StatementError: the text can't be parsed, or holds no or several statements.
    """
    tables = sorted(_find_tables(parse_statement(sql, "spark")), key=lambda table: find_span(table) or (0, 0))
    return [".".join(part.name for part in table.parts) for table in tables]


def table_names(sql: str, dialect: str = "spark") -> list[str]:
    """Return the tables that a statement names, without qualifiers and common tables, in alphabetical order.

    Raises:
        SettingError: unknown dialect.
        StatementError: the text can't be parsed, or holds no or several statements.
    """
    return sorted({name for _, name in qualified_names(sql, dialect)})


def qualified_names(sql: str, dialect: str = "spark") -> list[tuple[str, str]]:
    """Return the schema, empty without one, and the name of each table of a statement; raises as table_names."""
    return sorted({(table.db, table.name) for table in _find_tables(parse_statement(sql, dialect))})


def _find_tables(tree: exp.Expr) -> list[exp.Table]:
    common = {entry.alias.lower() for entry in tree.find_all(exp.CTE)}
    return [table for table in tree.find_all(exp.Table) if table.name.lower() not in common | {""}]


def find_span(table: exp.Table) -> Span | None:
    """Return the span of a table's name in the text; None for table functions and the like."""
    positions = [part.meta for part in table.parts if isinstance(part, exp.Identifier)]
    if len(positions) < len(table.parts) or not all("start" in meta and "end" in meta for meta in positions):
        return None
    return min(meta["start"] for meta in positions), max(meta["end"] for meta in positions) + 1


_PLAIN_KEYS = frozenset({"this", "db", "catalog", "alias"})


def plain_condition(sql: str, dialect: str = "spark") -> str | None:
    """Return the WHERE of a SELECT from one table, in Spark's dialect, without qualifiers of columns.

    The condition is cut out of the text, not rebuilt from the analyser's filter. None if the statement has joins,
    subqueries or anything else that relates a condition to rows of other tables.

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
    table = _find_only_table(tree)
    if table is None:
        return None
    where = tree.args.get("where")
    return "TRUE" if where is None else _without_qualifiers(where.this.copy(), table.alias_or_name)


def _find_only_table(select: exp.Select) -> exp.Table | None:
    clause = select.args.get("from_")
    if clause is None or select.args.get("joins") or select.args.get("laterals") or select.args.get("with_"):
        return None
    table = clause.this
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        return None
    return None if {name for name, value in table.args.items() if value} - _PLAIN_KEYS else table


def _without_qualifiers(condition: exp.Expr, alias: str) -> str | None:
    for column in list(condition.find_all(exp.Column)):
        if len(column.parts) > 2 or (column.table and column.table.lower() != alias.lower()):
            return None
        column.set("table", None)
    return condition.transform(_as_typed_literal).sql(dialect=Spark4)


def _as_typed_literal(node: exp.Expr) -> exp.Expr:
    """Restore ``DATE '1995-01-01'``, which the parser represents as a cast and would print as one that may fail."""
    if type(node) is exp.Cast and isinstance(node.this, exp.Literal) and node.this.is_string:
        return exp.var(f"{node.to.sql(dialect=Spark4)} {node.this.sql(dialect=Spark4)}")
    return node
