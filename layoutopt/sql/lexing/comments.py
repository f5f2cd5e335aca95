"""Comments as Spark's lexer finds them: what it leaves out of a text, nobody else may read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_BEGINS: Final = re.compile(
    r"""(?<!\w)[rR](?:'[^']*'|"[^"]*")"""  # in raw strings a backslash is a character
    r"""|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`"""
    r"|(?P<line>--(?:\\\n|[^\r\n])*)"  # a backslash at its end makes the next line a part of it
    r"|(?P<block>/\*(?!\+))",
    re.DOTALL,
)
_NESTS: Final = re.compile(r"/\*(?!\+)|\*/")
_SHOWN: Final = re.compile(r"[^\r\n]")


def without_comments(sql: str) -> str:
    r"""The text with blanks in the place of comments, so that all else stays where it is; hints are no comments.

    A comment that is never closed stays: no parser takes the text.

    >>> without_comments("SELECT '--', a /* b /* c */ d */ FROM t -- e \\\n WHERE f = 1")
    "SELECT '--', a                   FROM t       \n            "
    """
    if "--" not in sql and "/*" not in sql:
        return sql
    pieces, done = [], 0
    for start, end in _comments(sql):
        pieces += [sql[done:start], _SHOWN.sub(" ", sql[start:end])]
        done = end
    return "".join([*pieces, sql[done:]])


def _comments(sql: str) -> Iterator[tuple[int, int]]:
    """Where comments begin, and what follows them begins."""
    found = _BEGINS.search(sql)
    while found is not None:
        end = found.end()
        if found["block"]:
            closed = _end_of_block(sql, end)
            if closed is None:
                return
            end = closed
        if found["block"] or found["line"]:
            yield found.start(), end
        found = _BEGINS.search(sql, end)


def _end_of_block(sql: str, start: int) -> int | None:
    """Where a comment with brackets ends whose content begins at ``start``; None where nothing closes it."""
    depth = 1
    for found in _NESTS.finditer(sql, start):
        depth += -1 if found[0] == "*/" else 1
        if not depth:
            return found.end()
    return None
