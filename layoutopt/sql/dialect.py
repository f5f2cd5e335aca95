"""SQL texts in and out: every text becomes a syntax tree of Spark's dialect, whatever dialect it was written in."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Final

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from layoutopt.errors import SettingError
from layoutopt.sql.functions import DATE_TRUNC_UNITS
from layoutopt.sql.lexing import is_sparks, without_comments
from layoutopt.sql.problems import StatementError

_OTHER_DIALECTS = ("postgres", "mysql", "tsql", "bigquery", "snowflake", "oracle", "clickhouse", "duckdb", "trino")
_CLASS = re.compile(r" for <class '[^']*'>")  # sqlglot's own, of which nobody else knows
_COMPARISONS = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_PREDICATES = (exp.Between, exp.In, exp.Is, exp.Like, exp.ILike, exp.RegexpLike)
_UNITS: Final = DATE_TRUNC_UNITS | {"MILLISECOND", "MICROSECOND"}
"""Spark's units of ``trunc`` and ``date_trunc``; of others the value is NULL."""
_OPERANDS: Final = frozenset(
    {TokenType.NUMBER, TokenType.STRING, TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.VAR, TokenType.IDENTIFIER}
)
_NO_NAMES: Final = frozenset(
    {"SELECT", "DISTINCT", "ALL", "FROM", "WHERE", "ON", "AND", "OR", "NOT", "HAVING", "QUALIFY", "BY", "CASE", "WHEN"}
    | {"THEN", "ELSE", "BETWEEN", "IN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "IS", "DIV", "LIMIT", "OFFSET", "VALUES"}
    | {"INTERVAL", "ESCAPE", "SET"}
)
"""Keywords that no name can be where an expression may follow."""


class Spark4(Spark):
    """Spark's dialect as Spark 4 reads it: ``'it''s'`` is one string with a quote in it, not two strings.

    Its parser is Spark's as it stands: where sqlglot is compiled (``sqlglot[c]``), nobody can inherit from that.
    """

    class Tokenizer(Spark.Tokenizer):
        """Spark's tokens, with doubled quotes as an escape."""

        STRING_ESCAPES = ["'", "\\", '"']  # noqa: RUF012 (sqlglot's own way; the first is how strings are written)

    def tokenize(self, sql: str, dialect: str | Dialect | type[Dialect] | None = None) -> list[Token]:
        """The tokens of a text, comments being where Spark finds them."""
        return super().tokenize(without_comments(sql), dialect)


_FUNCTIONS: Final = frozenset({*Spark4.parser_class.FUNCTIONS, *Spark4.parser_class.FUNCTION_PARSERS})
"""The names that sqlglot takes for functions of its own."""

_PARSING: ContextVar[bool] = ContextVar("parsing", default=False)
logging.getLogger("sqlglot").addFilter(lambda _: not _PARSING.get())


@contextmanager
def _quietly() -> Iterator[None]:
    """No word in the host's log on what is no query, from this thread: whoever asked is told."""
    before = _PARSING.set(True)
    try:
        yield
    finally:
        _PARSING.reset(before)


def dialect_named(name: str) -> Dialect:
    """The dialect of that name; ``spark`` means Spark 4.

    Raises:
        SettingError: sqlglot knows no such dialect.
    """
    if name.casefold() in ("spark", "spark4"):
        return Spark4()
    try:
        return Dialect.get_or_raise(name.casefold())
    except ValueError as error:
        raise SettingError(
            f"{name!r} is not a SQL dialect that sqlglot reads; try spark, postgres or duckdb"
        ) from error


def parse_statement(sql: str, dialect: str = "spark") -> exp.Expr:
    """The tree of the one statement in a text, in Spark's dialect.

    A text of another dialect is translated to Spark's first: a filter then has one meaning, Spark's, and what
    came from a log in any dialect only ever proposes features, it never decides what is skipped. A text that
    comes again is not parsed again: its readers share one tree, so whoever changes a tree copies it first.

    Raises:
        SettingError: unknown dialect.
        StatementError: the text can't be parsed (``parse-error``), holds no or several statements, or would be taken
            for something else than Spark takes it for (``unsupported``).
    """
    return _statement(sql, dialect)


@lru_cache(maxsize=64)
def _statement(sql: str, dialect: str) -> exp.Expr:
    source = dialect_named(dialect)
    tree, tokens = _parse(sql, source)
    _refuse_pipes(tokens)
    if isinstance(source, Spark4):
        _refuse_misread(tokens)
        _refuse_other_precedence(tree)
        _refuse_other_names(tree)
        return tree
    try:
        translated = tree.sql(dialect=Spark4, unsupported_level=ErrorLevel.IGNORE)
    except (SqlglotError, ValueError, RecursionError) as error:
        raise StatementError(
            "parse-error", f"the text can't be translated to Spark's SQL: {_first_line(error)}"
        ) from error
    return _parse(translated, Spark4())[0]


def _parse(sql: str, dialect: Dialect) -> tuple[exp.Expr, list[Token]]:
    """The tree of the one statement in a text, and the tokens that it was made of."""
    try:
        with _quietly():
            tokens = dialect.tokenize(sql)
            trees = [tree for tree in dialect.parser().parse(tokens, sql) if tree is not None]
    except RecursionError as error:
        raise StatementError("parse-error", "the text is nested too deeply to be parsed") from error
    except (SqlglotError, ValueError) as error:
        raise StatementError("parse-error", f"the text can't be parsed: {_first_line(error)}") from error
    if not trees:
        raise StatementError("empty", "the text holds no statement")
    if len(trees) > 1:
        raise StatementError("several-statements", f"the text holds {len(trees)} statements; give one at a time")
    if isinstance(dialect, Spark4):
        _resolve_lambdas(trees[0])
    return trees[0], tokens


def _resolve_lambdas(tree: exp.Expr) -> None:
    """Spark finds the variables of lambdas, before any column, in whatever case they stand; sqlglot only as spelled."""
    for function in reversed(list(tree.find_all(exp.Lambda))):  # those within others first: theirs hide others'
        variables = {variable.name.lower(): variable for variable in function.expressions}
        for column in list(function.this.find_all(exp.Column)):
            variable = variables.get(column.parts[0].name.lower())
            if variable is not None:
                fields = [part.copy() for part in column.parts[1:]]
                column.replace(exp.Dot.build([variable.copy(), *fields]) if fields else variable.copy())


def is_readable(sql: str, dialect: str = "spark") -> bool:
    """Whether a text is one statement to a dialect's parser.

    Raises:
        SettingError: unknown dialect.
    """
    try:
        parse_statement(sql, dialect)
    except StatementError as problem:
        return problem.code == "unsupported"
    return True


def guess_dialect(texts: Sequence[str]) -> str | None:
    """The dialect, other than Spark's, in which most of the texts can be read; None where there is none.

    >>> guess_dialect(["SELECT TOP 5 [a] FROM [dbo].[t]"])
    'tsql'
    """
    readable = {name: sum(is_readable(text, name) for text in texts) for name in _OTHER_DIALECTS}
    best = max(_OTHER_DIALECTS, key=readable.__getitem__)
    return best if readable[best] else None


def _refuse_pipes(tokens: Sequence[Token]) -> None:
    """Pipes are applied one after the other; sqlglot makes one SELECT of them, in which WHERE comes before LIMIT."""
    if any(token.token_type is TokenType.PIPE_GT for token in tokens):
        raise StatementError("unsupported", "the text has pipes (|>), whose order is not followed")


def _refuse_misread(tokens: Sequence[Token]) -> None:
    """Refuse texts of which sqlglot drops something that Spark goes by, or takes a function for another.

    A plus sign before a number makes of it an expression, whose type in arithmetic of decimals is another. The units of
    ``trunc`` and ``date_trunc`` are replaced: abbreviations that Spark does not have by those that it has, and columns
    by units of their names.

    Raises:
        StatementError: ``unsupported``.
    """
    for place, token in enumerate(tokens):
        if token.token_type is TokenType.PLUS and (place == 0 or not _may_be_operand(tokens[place - 1])):
            raise StatementError("unsupported", "the text has a plus sign that adds nothing; leave it out")
        if place + 1 < len(tokens) and tokens[place + 1].token_type is TokenType.L_PAREN:
            _refuse_other_function(tokens, place)


def _refuse_other_function(tokens: Sequence[Token], place: int) -> None:
    """Refuse the name at a place, behind which a bracket opens, if it is no function to Spark, or has another unit."""
    token, name = tokens[place], tokens[place].text.upper()
    if name in ("TRUNC", "DATE_TRUNC") and not _is_unit(_arguments(tokens[place + 2 :]), last=name == "TRUNC"):
        raise StatementError("unsupported", f"{name} has a unit that is none of Spark's, or no text")
    known = name in _FUNCTIONS or token.token_type in Spark4.parser_class.TYPE_TOKENS
    if known and not is_sparks(name):
        raise StatementError(
            "unsupported",
            f"{token.text!r} is a function of other dialects, not of Spark's; a user's needs another name",
        )


def _may_be_operand(token: Token) -> bool:
    """Whether a value may end there: names may be those of keywords."""
    return token.token_type in _OPERANDS or (token.text.isidentifier() and token.text.upper() not in _NO_NAMES)


def _arguments(tokens: Sequence[Token]) -> list[list[Token]]:
    """What stands between the commas up to the closing bracket."""
    arguments: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        if token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET):
            depth += 1
        elif token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET):
            depth -= 1
            if depth < 0:
                break
        if depth == 0 and token.token_type is TokenType.COMMA:
            arguments.append([])
        else:
            arguments[-1].append(token)
    return arguments


def _is_unit(arguments: Sequence[Sequence[Token]], last: bool) -> bool:
    unit = arguments[-1 if last else 0]
    return len(unit) == 1 and unit[0].token_type is TokenType.STRING and unit[0].text.upper() in _UNITS


def _refuse_other_precedence(tree: exp.Expr) -> None:
    """Where sqlglot and Spark put the parentheses of a text elsewhere.

    Spark reads ``||`` as strongly as ``+``, and all comparisons alike, each from left to right; its LIKE, IN and
    BETWEEN take whole comparisons.
    """
    for node in tree.find_all(*_COMPARISONS, exp.DPipe):
        left, right = node.this, node.expression
        if isinstance(node, exp.DPipe):
            wrong = isinstance(right, exp.Add | exp.Sub)
        else:
            wrong = isinstance(right, (*_COMPARISONS, *_PREDICATES)) or isinstance(left, _PREDICATES)
        if wrong:
            text = node.sql("spark")[:80]
            raise StatementError("unsupported", f"{text!r} has operators in a row; write parentheses around some")


def _refuse_other_names(tree: exp.Expr) -> None:
    """What sqlglot takes for a function, or for nothing, where Spark may take it for a column of that name."""
    if isinstance(tree, exp.Insert | exp.Create) and tree.args.get("with_") is not None:
        raise StatementError("unsupported", "WITH stands before INSERT; write it after, before SELECT")
    for node in tree.find_all(exp.Anonymous, exp.Count):
        named = isinstance(node, exp.Anonymous) and node.name.casefold() == "identifier"
        starred = isinstance(node, exp.Count) and isinstance(node.this, exp.Star) and bool(node.expressions)
        if named or starred:
            raise StatementError("unsupported", f"{node.sql('spark')[:80]!r} takes columns that it does not name")


def split_statements(text: str, dialect: str = "spark") -> list[str]:
    """The statements of a text, cut at each ``;`` that is in no string, name or comment; empty ones left out.

    Where the text as a whole can't be read (a string never closed), it is cut at each ``;`` that ends a line, so
    that one broken statement costs no other.

    >>> split_statements("SELECT ';' ; -- ;" + chr(10) + "SELECT 2;")
    ["SELECT ';'", 'SELECT 2']

    Raises:
        SettingError: unknown dialect.
    """
    try:
        tokens = dialect_named(dialect).tokenize(text)
    except (SqlglotError, ValueError):
        pieces = [piece.strip().removesuffix(";").strip() for piece in text.split(";\n")]
        return [piece for piece in pieces if piece]
    statements: list[str] = []
    current: list[Token] = []
    for token in tokens:
        if token.token_type is not TokenType.SEMICOLON:
            current.append(token)
        elif current:
            statements.append(_slice(text, current))
            current = []
    return statements + ([_slice(text, current)] if current else [])


def _slice(text: str, tokens: list[Token]) -> str:
    return text[tokens[0].start : tokens[-1].end + 1]


def _first_line(error: Exception) -> str:
    line = str(error).strip().split("\n")[0].rstrip(".")
    return _CLASS.sub("", line)
