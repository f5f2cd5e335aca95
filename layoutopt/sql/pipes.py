"""Queries with pipes, ``FROM t |> WHERE a = 1 |> SELECT b``, as nested queries without.

sqlglot merges the operators into one SELECT, in which WHERE comes before LIMIT. Here each operator reads the result of
those before it, as in Spark. An operator without such a form is refused, and so is a qualified name behind operators
that hide the relations of a join in a nested query.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from layoutopt.sql.problems import StatementError

_NAME: Final = r"(?:[A-Za-z_]\w*|`[^`]+`)"
_ONE_TABLE: Final = re.compile(rf"(?:{_NAME}\s*\.\s*)*({_NAME})(?:\s+(?:AS\s+)?({_NAME}))?", re.IGNORECASE)
_OPERATOR: Final = re.compile(
    r"WHERE|SELECT|EXTEND|DROP|AS|LIMIT|OFFSET|ORDER\s+BY|AGGREGATE|(?:UNION|INTERSECT|EXCEPT)(?:\s+(?:ALL|DISTINCT))?"
    r"|(?:(?:INNER|CROSS|LEFT|RIGHT|FULL|OUTER|SEMI|ANTI)\s+)*JOIN",
    re.IGNORECASE,
)
_KEY: Final = re.compile(rf"(.*?)(?:\s+AS\s+({_NAME}))?", re.IGNORECASE | re.DOTALL)
_NO_KEY: Final = re.compile(r"\d+|ALL|(?:ROLLUP|CUBE|GROUPING)\b.*", re.IGNORECASE | re.DOTALL)
_QUALIFIED: Final = re.compile(r"[A-Za-z_`]\w*\s*\.")

# A part of the new text and where it begins in the old one; -1 for new words.
_Piece: TypeAlias = tuple[str, int]
_ALL: Final = (("*", -1),)


@dataclass(frozen=True)
class _Query:
    """The query so far: ``SELECT * FROM source WHERE where``.

    Attributes:
        alias: the qualifier of its columns; empty for none or several.
        is_join: whether there are several relations, whose names are lost in a nested query.
        is_hidden: whether the names of relations have been lost.
        whole: the source without its parentheses, as the query that it is.
        is_sorted: whether that query ends with ORDER BY, which LIMIT may follow.
    """

    source: tuple[_Piece, ...]
    where: tuple[_Piece, ...] = ()
    alias: str = ""
    is_join: bool = False
    is_hidden: bool = False
    whole: tuple[_Piece, ...] = ()
    is_sorted: bool = False

    def select(self, projection: Sequence[_Piece] = _ALL, *after: _Piece) -> tuple[_Piece, ...]:
        """Return the pieces of a SELECT from this query."""
        if projection == _ALL and not after and not self.where and self.whole:
            return self.whole
        return (("SELECT ", -1), *projection, (" FROM ", -1), *self.source, *self.where, (" ", -1), *after)

    def nest(self, pieces: tuple[_Piece, ...], keeps_names: bool = True) -> _Query:
        """Return the query of these pieces, which were made of this one."""
        alias = self.alias if keeps_names else ""
        source = (("(", -1), *pieces, (f") AS {alias}" if alias else ")", -1))
        return _Query(source, (), alias, False, keeps_names and (self.is_join or self.is_hidden), pieces)


@dataclass(frozen=True)
class Unpiped:
    """A text without pipes.

    Attributes:
        sql: the text.
        starts: where its pieces begin, in order.
        places: where each piece begins in the text with pipes; -1 for new words.
    """

    sql: str
    starts: tuple[int, ...]
    places: tuple[int, ...]

    def restore_positions(self, tree: exp.Expr) -> None:
        """Set the positions of names in a tree of this text to those in the text with pipes."""
        for node in tree.find_all(exp.Identifier):
            if "start" in node.meta:
                piece = bisect_right(self.starts, node.meta["start"]) - 1
                shift = self.places[piece] - self.starts[piece]
                node.meta.update(start=node.meta["start"] + shift, end=node.meta["end"] + shift)


def remove_pipes(sql: str, tokens: Sequence[Token]) -> Unpiped | None:
    """Return a text without its pipes; None for a text without any.

    Raises:
        StatementError: ``unsupported``.

    >>> from layoutopt.sql.dialect import get_dialect
    >>> def show(sql):
    ...     return " ".join(remove_pipes(sql, get_dialect("spark").tokenize(sql)).sql.split())
    >>> show("FROM t |> LIMIT 3 |> WHERE a = 1")
    'SELECT * FROM (SELECT * FROM t LIMIT 3 ) AS t WHERE (a = 1 )'
    >>> show("FROM t |> WHERE a = 1 |> AGGREGATE sum(c) AS s GROUP BY b AS k")
    'SELECT b AS k , sum(c) AS s FROM t WHERE (a = 1 ) GROUP BY b'
    """
    ends = _find_pipes(tokens)
    if not ends:
        return None
    query = _read_start(sql[: ends[0]])
    for start, end in zip(ends, [*ends[1:], len(sql)], strict=True):
        query = _apply(query, _cut(sql[start + 2 : end], start + 2))
    pieces = query.select()
    starts = [0]
    for text, _ in pieces:
        starts.append(starts[-1] + len(text))
    return Unpiped("".join(text for text, _ in pieces), tuple(starts[:-1]), tuple(place for _, place in pieces))


def _find_pipes(tokens: Sequence[Token]) -> list[int]:
    """Return where the pipes stand."""
    places, depth = [], 0
    for token in tokens:
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if token.token_type is TokenType.PIPE_GT:
            if depth:
                raise StatementError("unsupported", "pipes (|>) within parentheses are not supported")
            places.append(token.start)
    return places


def _cut(text: str, place: int) -> _Piece:
    """Return a text without blanks around it; a new line ends a comment in it."""
    return text.strip() + "\n", place + len(text) - len(text.lstrip())


def _read_start(sql: str) -> _Query:
    text, place = _cut(sql, 0)
    word = text.split(None, 1)[0].upper() if text.strip() else ""
    if word == "FROM":
        source = _cut(text[4:], place + 4)
        table = _ONE_TABLE.fullmatch(source[0].strip())
        return _Query((source,), alias=(table[2] or table[1]) if table else "", is_join=table is None)
    if word in ("SELECT", "WITH"):
        return _Query(()).nest(((text, place),))
    raise StatementError("unsupported", f"a query with pipes (|>) begins with {word!r}: expected FROM, SELECT or WITH")


def _apply(query: _Query, operator: _Piece) -> _Query:
    """Return a query with one more operator."""
    text, place = operator
    match = _OPERATOR.match(text)
    if match is None or text[match.end() : match.end() + 1].isalnum():
        raise StatementError("unsupported", f"the operator '|> {text[:40].strip()}' of a pipe is not supported")
    if query.is_hidden and _QUALIFIED.search(text):
        raise StatementError(
            "unsupported", f"a name in '|> {text[:40].strip()}' may mean a relation of an earlier join"
        )
    argument = _cut(text[match.end() :], place + match.end())
    name = match[0].upper().split()[0]
    if name == "WHERE":
        return replace(query, where=(*query.where, (" AND (" if query.where else " WHERE (", -1), argument, (")", -1)))
    if name == "SELECT":
        return query.nest(query.select((argument,)), keeps_names=False)
    if name == "AGGREGATE":
        return query.nest(_aggregate(query, argument), keeps_names=False)
    if name == "AS":
        named = replace(query, alias=argument[0].strip(), is_join=False, is_hidden=False)
        return named.nest(query.select())
    if name == "EXTEND":
        return query.nest(query.select((("*, ", -1), argument)))
    if name == "DROP":
        return query.nest(query.select((("* EXCEPT (", -1), argument, (")", -1))))
    if name in ("LIMIT", "OFFSET", "ORDER"):
        is_merged = query.is_sorted and name != "ORDER" and not query.where
        nested = query.nest((*query.whole, (" ", -1), operator) if is_merged else query.select(_ALL, operator))
        return replace(nested, is_sorted=name == "ORDER")
    if name in ("UNION", "INTERSECT", "EXCEPT"):
        return query.nest((("(", -1), *query.select(), (") ", -1), operator), keeps_names=False)
    nested = query.nest(query.select()) if query.where else query
    if nested.is_hidden:
        raise StatementError("unsupported", f"'|> {text[:40].strip()}' follows a condition on a join")
    return replace(
        nested, source=(*nested.source, (" ", -1), operator), alias="", is_join=True, whole=(), is_sorted=False
    )


def _aggregate(query: _Query, argument: _Piece) -> tuple[_Piece, ...]:
    text, place = argument
    halves = _split(text, re.compile(r"\bGROUP\s+BY\b", re.IGNORECASE))
    values = [_cut(text[slice(*halves[0])], place)] if text[slice(*halves[0])].strip() else []
    if len(halves) == 1:
        return query.select(values)
    start, end = halves[1]
    projection, keys = [], []
    for first, last in _split(text[start:end], re.compile(",")):
        match = _KEY.fullmatch(text[start + first : start + last].strip())
        if match is None or _NO_KEY.fullmatch(match[1]):
            raise StatementError("unsupported", f"the grouping {text[start:end].strip()[:40]!r} is not supported")
        key = _cut(text[start + first : start + last], place + start + first)
        keys += [(", ", -1), (match[1] + "\n", key[1])]
        projection += [(", ", -1), key]
    projection += [piece for value in values for piece in ((", ", -1), value)]
    return query.select(projection[1:], ("GROUP BY ", -1), *keys[1:])


def _split(text: str, separator: re.Pattern[str]) -> list[tuple[int, int]]:
    """Return the parts between separators outside of parentheses and quotes."""
    hidden = re.sub(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`", lambda match: "_" * len(match[0]), text)
    while (inner := re.sub(r"\([^()]*\)", lambda match: "_" * len(match[0]), hidden)) != hidden:
        hidden = inner
    matches = list(separator.finditer(hidden))
    return list(zip([0, *(m.end() for m in matches)], [*(m.start() for m in matches), len(text)], strict=True))
