"""Putting views in the place of a table's mentions, leaving every other character of a text alone."""

from __future__ import annotations

from collections.abc import Mapping

from layoutopt.sql.references import Span, quoted, splice_relations


def splice_views(sql: str, views: Mapping[Span, str]) -> str:
    """A text in Spark's dialect that reads other views; each keeps the name that the text calls the table by.

    Args:
        sql: the text.
        views: the view in place of each mention of a table, by the mention's [start, end) in the text.

    Raises:
        QueryError: the text can't be parsed, or has no table in one of the places.

    >>> splice_views("SELECT t.a FROM t JOIN T AS u ON t.a = u.a", {(16, 17): "v", (23, 24): "w"})
    'SELECT t.a FROM `v` AS `t` JOIN `w` AS u ON t.a = u.a'
    """
    return splice_relations(sql, {span: quoted(view) for span, view in views.items()})
