"""Parse SQL texts: a text of any dialect becomes a syntax tree of Spark's dialect.

sqlglot drops or changes some parts of a text whose meaning Spark keeps; such texts are refused (``unsupported``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Final

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from layoutopt.errors import SettingError, expected_names
from layoutopt.sql.dialect_meaning import to_spark_meaning
from layoutopt.sql.functions import DATE_TRUNC_UNITS, SUFFIXED
from layoutopt.sql.lexing import is_spark_function, without_comments
from layoutopt.sql.pipes import remove_pipes
from layoutopt.sql.problems import StatementError

_OTHER_DIALECTS = ("postgres", "mysql", "tsql", "bigquery", "snowflake", "oracle", "clickhouse", "duckdb", "trino")
_MOST_SHOWN: Final = 60  # characters of a text in a message
_COMPARISONS = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_PREDICATES = (exp.Between, exp.In, exp.Is, exp.Like, exp.ILike, exp.RegexpLike)
# Dialects of Spark's own SQL: its functions have their names, arguments and meanings there.
_SPARK_LIKE: Final = frozenset({"databricks", "spark2"})
# Spark's units of ``trunc`` and ``date_trunc``; the value is NULL for others.
_UNITS: Final = DATE_TRUNC_UNITS | {"MILLISECOND", "MICROSECOND"}
_OPERANDS: Final = frozenset(
    {TokenType.NUMBER, TokenType.STRING, TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.VAR, TokenType.IDENTIFIER}
)
# Keywords that can't be names where an expression may follow.
_RESERVED: Final = frozenset(
    {"SELECT", "DISTINCT", "ALL", "FROM", "WHERE", "ON", "AND", "OR", "NOT", "HAVING", "QUALIFY", "BY", "CASE", "WHEN"}
    | {"THEN", "ELSE", "BETWEEN", "IN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "IS", "DIV", "LIMIT", "OFFSET", "VALUES"}
    | {"INTERVAL", "ESCAPE", "SET"}
)


class Spark4(Spark):
    """Spark's dialect as Spark 4 reads it: ``'it''s'`` is one string with a quote in it, not two strings.

    The parser is sqlglot's own: compiled (``sqlglot[c]``), its class can't be inherited from.
    """

    class Tokenizer(Spark.Tokenizer):
        """Spark's tokens, with doubled quotes as an escape."""

        STRING_ESCAPES = ["'", "\\", '"']  # noqa: RUF012 (sqlglot's convention; it writes strings with the first)

    def tokenize(self, sql: str, dialect: str | Dialect | type[Dialect] | None = None) -> list[Token]:
        """Return the tokens of a text, with comments where Spark finds them."""
        return super().tokenize(without_comments(sql), dialect)


# The names that sqlglot parses as functions of its own.
_FUNCTIONS: Final = frozenset({*Spark4.parser_class.FUNCTIONS, *Spark4.parser_class.FUNCTION_PARSERS})
_PARSING: ContextVar[bool] = ContextVar("parsing", default=False)
logging.getLogger("sqlglot").addFilter(lambda _: not _PARSING.get())


@contextmanager
def _silence_sqlglot() -> Iterator[None]:
    """Silence sqlglot's logger in this thread; the caller gets the error instead."""
    token = _PARSING.set(True)
    try:
        yield
    finally:
        _PARSING.reset(token)


def get_dialect(name: str) -> Dialect:
    """Return the dialect of that name; ``spark`` means Spark 4.

    Raises:
        SettingError: there is no such dialect.
    """
    if name.casefold() in ("spark", "spark4"):
        return Spark4()
    try:
        return Dialect.get_or_raise(name.casefold())
    except ValueError as error:
        raise SettingError(f"unknown SQL dialect {name!r}: {expected_names(name, sorted(Dialect.classes))}") from error


def parse_statement(sql: str, dialect: str = "spark") -> exp.Expr:
    """Return the tree of the one statement in a text, in Spark's dialect.

    A text of another dialect is translated to Spark's first, so that a filter has one meaning, Spark's. Texts of a log
    only propose features, they never decide what is skipped. Trees are cached and shared: copy one before changing it.

    Raises:
        SettingError: unknown dialect.
        StatementError: the text can't be parsed (``parse-error``), holds no or several statements, or sqlglot and Spark
            read it differently (``unsupported``).
    """
    return _parse_cached(sql, dialect)  # one cache key, whether or not the dialect is passed


@lru_cache(maxsize=64)
def _parse_cached(sql: str, dialect: str) -> exp.Expr:
    source = get_dialect(dialect)
    unpiped = remove_pipes(sql, _tokenize(sql, source)) if "|>" in sql else None
    tree, tokens = _parse(unpiped.sql if unpiped else sql, source)
    if unpiped:
        unpiped.restore_positions(tree)
    if isinstance(source, Spark4):
        _refuse_misread(tokens)
        _refuse_other_precedence(tree)
        _refuse_hidden_columns(tree)
        _refuse_versions(tree)
        return tree
    _refuse_versions(tree)
    name = dialect.casefold()
    if name not in _SPARK_LIKE:
        words = frozenset(token.text.upper() for token in tokens)
        tree = to_spark_meaning(tree, name, _FUNCTIONS, words)
    try:
        translated = tree.sql(dialect=Spark4, unsupported_level=ErrorLevel.IGNORE)
    except (SqlglotError, ValueError, RecursionError) as error:
        raise StatementError("parse-error", "the text can't be translated to Spark's SQL") from error
    return _parse(translated, Spark4())[0]


def _parse(sql: str, dialect: Dialect) -> tuple[exp.Expr, list[Token]]:
    try:
        with _silence_sqlglot():
            tokens = dialect.tokenize(sql)
            trees = [tree for tree in dialect.parser().parse(tokens, sql) if tree is not None]
    except RecursionError as error:
        raise StatementError("parse-error", "the text is nested too deeply to be parsed") from error
    except (SqlglotError, ValueError) as error:
        raise StatementError("parse-error", f"the text can't be parsed {_describe_place(error)}") from error
    if not trees:
        raise StatementError("empty", "the text holds no statement")
    if len(trees) > 1:
        raise StatementError("several-statements", f"the text holds {len(trees)} statements; give one at a time")
    if isinstance(dialect, Spark4):
        _resolve_lambdas(trees[0])
        if "::" not in sql:
            for cast in trees[0].find_all(exp.TryCast):
                cast.meta[SUFFIXED] = "format" not in cast.args and isinstance(cast.this, exp.Literal)
    return trees[0], tokens


def _tokenize(sql: str, dialect: Dialect) -> list[Token]:
    try:
        return dialect.tokenize(sql)
    except (SqlglotError, ValueError) as error:
        raise StatementError("parse-error", f"the text can't be parsed {_describe_place(error)}") from error


def _resolve_lambdas(tree: exp.Expr) -> None:
    """Replace columns by the lambda variables that Spark finds first, ignoring case; sqlglot matches spellings."""
    for function in reversed(list(tree.find_all(exp.Lambda))):  # inner lambdas first: their variables hide outer ones
        variables = {variable.name.lower(): variable for variable in function.expressions}
        for column in list(function.this.find_all(exp.Column)):
            variable = variables.get(column.parts[0].name.lower())
            if variable is not None:
                fields = [part.copy() for part in column.parts[1:]]
                column.replace(exp.Dot.build([variable.copy(), *fields]) if fields else variable.copy())


def is_readable(sql: str, dialect: str = "spark") -> bool:
    """Return whether a dialect's parser reads a text as one statement.

    Raises:
        SettingError: unknown dialect.
    """
    try:
        parse_statement(sql, dialect)
    except StatementError as problem:
        return problem.code == "unsupported"
    return True


def guess_dialect(texts: Sequence[str]) -> str | None:
    """Return the dialect, other than Spark's, that reads most of the texts; None if there is none.

    >>> guess_dialect(["SELECT TOP 5 [a] FROM [dbo].[t]"])
    'tsql'
    """
    readable = {name: sum(is_readable(text, name) for text in texts) for name in _OTHER_DIALECTS}
    best = max(_OTHER_DIALECTS, key=readable.__getitem__)
    return best if readable[best] else None


def _refuse_versions(tree: exp.Expr) -> None:
    """Refuse ``t@v3``, a version of a table, which sqlglot takes for an alias."""
    for alias in tree.find_all(exp.TableAlias):
        if isinstance(alias.this, exp.Parameter):
            raise StatementError("unsupported", "a table's version (@) is not supported; query the current version")


def _refuse_misread(tokens: Sequence[Token]) -> None:
    """Refuse texts from which sqlglot drops a part that matters to Spark, or in which it confuses functions.

    To Spark a number with a plus sign is an expression, which has another type in decimal arithmetic. sqlglot replaces
    units of ``trunc`` and ``date_trunc``: abbreviations that Spark lacks by ones it has, and columns by units of the
    same name.
    """
    for place, token in enumerate(tokens):
        if token.token_type is TokenType.PLUS and (place == 0 or not _may_be_operand(tokens[place - 1])):
            raise StatementError("unsupported", "the text has a unary plus sign; leave it out")
        is_action = token.token_type is TokenType.INSERT  # of MERGE: Spark has no function of that name
        if not is_action and place + 1 < len(tokens) and tokens[place + 1].token_type is TokenType.L_PAREN:
            _refuse_foreign_function(tokens, place)


def _refuse_foreign_function(tokens: Sequence[Token], place: int) -> None:
    token, name = tokens[place], tokens[place].text.upper()
    if name in ("TRUNC", "DATE_TRUNC") and not _is_unit(_split_arguments(tokens[place + 2 :]), last=name == "TRUNC"):
        raise StatementError("unsupported", f"the unit of {name} is not a text, or not one of Spark's units")
    known = name in _FUNCTIONS or token.token_type in Spark4.parser_class.TYPE_TOKENS
    if known and not is_spark_function(name):
        raise StatementError(
            "unsupported",
            f"{token.text!r} is a function of other dialects, not of Spark's; a UDF needs another name",
        )


def _may_be_operand(token: Token) -> bool:
    """Return whether an operand may end with the token; names may be keywords."""
    return token.token_type in _OPERANDS or (token.text.isidentifier() and token.text.upper() not in _RESERVED)


def _split_arguments(tokens: Sequence[Token]) -> list[list[Token]]:
    """Split tokens at commas, up to the closing bracket."""
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
    """Refuse texts whose operators sqlglot and Spark group differently.

    To Spark, ``||`` has the precedence of ``+``, all comparisons have the same one, and each groups from left to right.
    The operands of its LIKE, IN and BETWEEN may be comparisons.
    """
    for node in tree.find_all(*_COMPARISONS, exp.DPipe):
        left, right = node.this, node.expression
        if isinstance(node, exp.DPipe):
            differs = isinstance(right, exp.Add | exp.Sub)
        else:
            differs = isinstance(right, (*_COMPARISONS, *_PREDICATES)) or isinstance(left, _PREDICATES)
        if differs:
            text = node.sql("spark")[:80]
            raise StatementError("unsupported", f"the operators of {text!r} have an unclear order; add parentheses")


def _refuse_hidden_columns(tree: exp.Expr) -> None:
    """Refuse texts in which Spark may read columns where sqlglot reads a function, or nothing."""
    for node in tree.find_all(exp.Anonymous, exp.Count):
        is_identifier = isinstance(node, exp.Anonymous) and node.name.casefold() == "identifier"
        is_star_list = isinstance(node, exp.Count) and isinstance(node.this, exp.Star) and bool(node.expressions)
        if is_identifier or is_star_list:
            raise StatementError("unsupported", f"{node.sql('spark')[:80]!r} reads columns that it does not name")


def split_statements(text: str, dialect: str = "spark") -> list[str]:
    """Split a text at each ``;`` outside strings, names and comments, without empty statements.

    If the text can't be tokenized (a string never closed), split it at each ``;`` that ends a line, so that a broken
    statement does not affect others.

    >>> split_statements("SELECT ';' ; -- ;" + chr(10) + "SELECT 2;")
    ["SELECT ';'", 'SELECT 2']

    Raises:
        SettingError: unknown dialect.
    """
    source = get_dialect(dialect)
    if not any(mark in text for mark in _find_marks(source)):
        plain = text.split(";")
        if all(piece.count("'") % 2 == 0 for piece in plain):
            return [piece for piece in map(str.strip, plain) if piece]
    try:
        tokens = source.tokenize(text)
    except (SqlglotError, ValueError):
        pieces = [piece.strip().removesuffix(";").strip() for piece in text.split(";\n")]
        return [piece for piece in pieces if piece]
    statements: list[str] = []
    current: list[Token] = []
    for token in tokens:
        if token.token_type is not TokenType.SEMICOLON:
            current.append(token)
        elif current:
            statements.append(_cut_text(text, current))
            current = []
    return statements + ([_cut_text(text, current)] if current else [])


def _find_marks(dialect: Dialect) -> list[str]:
    """Return what begins comments, escapes and quotes but ``'``; texts without any need no lexer to be split."""
    comments = [comment if isinstance(comment, str) else comment[0] for comment in dialect.tokenizer_class.COMMENTS]
    return ["\\", "$", "[", '"', "`", *comments]


def _cut_text(text: str, tokens: list[Token]) -> str:
    return text[tokens[0].start : tokens[-1].end + 1]


def _describe_place(error: Exception) -> str:
    """Return where a text can't be parsed: at the last words that were read."""
    places = error.errors if isinstance(error, ParseError) else []
    if not places or not places[0]["highlight"]:
        return "since a quote, a bracket or a comment is not closed"
    before = str(places[0]["start_context"]).split()[-1:]
    return f"at {' '.join([*before, str(places[0]['highlight'])])[-_MOST_SHOWN:]!r}"
