"""The condition of a statement that reads one table and nothing else, as a text of its own."""

from __future__ import annotations

from sqlglot import exp

from layoutopt.sql.dialect import Spark4, parse_statement

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
