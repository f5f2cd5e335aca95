"""Putting other relations in the place of a table's mentions, leaving every other character of a text alone."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from layoutopt.errors import QueryError
from layoutopt.workload.dialect import parse_statement


def splice_views(sql: str, views: Mapping[tuple[int, int], str]) -> str:
    """A text in Spark's dialect that reads other views; each keeps the name that the text calls the table by.

    Args:
        sql: the text.
        views: the view in place of each mention of a table, by the mention's [start, end) in the text.

    Raises:
        QueryError: the text can't be parsed, or has no table in one of the places.

    >>> splice_views("SELECT t.a FROM t JOIN T AS u ON t.a = u.a", {(16, 17): "v", (23, 24): "w"})
    'SELECT t.a FROM `v` AS `t` JOIN `w` AS u ON t.a = u.a'
    """
    mentions = {_start(table): table for table in parse_statement(sql, "spark").find_all(exp.Table)}
    for (start, end), view in sorted(views.items(), reverse=True):
        table = mentions.get(start)
        if table is None:
            raise QueryError(f"there is no table at character {start} of {sql[:60]!r}; write its name out")
        name = f"`{view}`" if table.args.get("alias") else f"`{view}` AS `{table.name}`"
        sql = sql[:start] + name + sql[end:]
    return sql


def _start(table: exp.Table) -> int:
    return min((int(part.meta.get("start", -1)) for part in table.parts), default=-1)
