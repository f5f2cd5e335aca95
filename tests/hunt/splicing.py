"""Other relations in the place of tables in a text, while every other character stays as it is."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from layoutopt.model.types import quote_name
from layoutopt.sql.dialect import parse_statement
from layoutopt.sql.scans import Span, find_span


def splice_relations(sql: str, relations: Mapping[Span, str]) -> str:
    """A text with other relations in the place of tables; each keeps the name that the text calls the table by.

    >>> splice_relations("SELECT t.a FROM t JOIN T AS u ON t.a = u.a", {(16, 17): "`v`", (23, 24): "(SELECT 1 AS a)"})
    'SELECT t.a FROM `v` AS `t` JOIN (SELECT 1 AS a) AS u ON t.a = u.a'
    """
    known = {find_span(table): table for table in parse_statement(sql, "spark").find_all(exp.Table)}
    for span, relation in sorted(relations.items(), reverse=True):
        table = known[span]
        alias = "" if table.args.get("alias") else f" AS {quote_name(table.parts[-1].name)}"
        sql = sql[: span[0]] + relation + alias + sql[span[1] :]
    return sql
