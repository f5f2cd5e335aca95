"""Where a text names tables, and which."""

from __future__ import annotations

from sqlglot import exp

from layoutopt.sql.dialect import parse_statement

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
