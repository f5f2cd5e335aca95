"""Check conditions and expressions of users before Spark starts: refuse only what Spark surely refuses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from layoutopt.errors import SchemaError, SettingError
from layoutopt.model.schema import Column, Schema
from layoutopt.model.types import unquote_name
from layoutopt.sql.dialect import get_dialect, parse_statement
from layoutopt.sql.problems import StatementError, UnknownColumnError
from layoutopt.sql.scans import find_scans

_OPENING: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE})
_CLOSING: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE})
# No expression ends so.
_OPEN_END: Final = re.compile(r"(?:[=<>+\-/%|&^,.(]|\b(?:AND|OR|NOT|LIKE|IN|BETWEEN)\s*)$", re.IGNORECASE)
# Names without brackets that are no columns to Spark: functions, units of time, and hidden columns.
_OTHER_NAMES: Final = frozenset(
    {"user", "current_user", "session_user", "current_date", "current_time", "current_timestamp", "localtimestamp"}
    | {"current_catalog", "current_database", "current_schema", "grouping__id", "_metadata"}
    | {"year", "years", "yearofweek", "quarter", "month", "months", "week", "weeks", "day", "days", "dayofweek"}
    | {"dayofyear", "dow", "doy", "hour", "hours", "minute", "minutes", "second", "seconds", "millisecond"}
    | {"microsecond", "nanosecond"}
)


def check_expression(flag: str, text: str, schema: Schema) -> None:
    """Check an expression of a table's columns.

    Args:
        flag: names the setting in messages.
        text: in Spark's SQL.
        schema: the columns that the text may name.

    Raises:
        SettingError: brackets or quotes are not closed, the text ends within an expression, or a column is unknown.
    """
    problem = _find_open_end(text)
    if problem is not None:
        raise SettingError(f"{flag} {text!r} is no expression: {problem}")
    try:
        find_scans(f"SELECT 1 FROM t WHERE ({text}\n) IS NULL", {"t": schema})
    except UnknownColumnError as error:
        if error.column.lower() not in _OTHER_NAMES and re.fullmatch(r"\w+", error.column):
            raise SettingError(f"{flag} {text!r} names an unknown column: {error}") from error
    except StatementError:
        return  # Spark may know better


def check_condition(flag: str, text: str, schema: Schema) -> None:
    """Check a condition on a table's columns.

    Raises:
        SettingError: as :func:`check_expression`, or the text is only a column that is not boolean.
    """
    check_expression(flag, text, schema)
    try:
        tree = parse_statement(f"SELECT ({text}\n)").expressions[0].unnest()
    except StatementError:
        return
    column = schema.get(tree.name) if isinstance(tree, exp.Column) and len(tree.parts) == 1 else None
    if column is not None and column.type != "boolean":
        raise SettingError(f"{flag} {text!r} is no condition but {column.type}; compare it, as in {text} = 1")


def _find_open_end(text: str) -> str | None:
    """Return what surely is wrong with the text as a whole; None where nothing is."""
    try:
        tokens: Sequence[Token] = get_dialect("spark").tokenize(text)
    except SqlglotError:
        return None if "\\" in text else "a quote or a comment is not closed"
    depth = 0
    for token in tokens:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth < 0:
            return "it closes a bracket that it does not open"
    if depth:
        return "it opens a bracket that it does not close"
    if not tokens:
        return "it is empty"
    last = tokens[-1]
    is_name = last.token_type in (TokenType.IDENTIFIER, TokenType.VAR, TokenType.NUMBER)
    is_name |= last.token_type.name.endswith("STRING")
    return f"a value is missing behind {last.text!r}" if not is_name and _OPEN_END.search(last.text) else None


def split_assignments(texts: Sequence[str], schema: Schema, partition_by: str | None) -> Mapping[str, str]:
    """Return the expressions of assignments ``column = expression``, by the names of the assigned columns.

    Raises:
        SettingError: a text is no assignment, or it assigns an unknown column, the partition column, or a column twice.
    """
    assignments: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise SettingError(f"--set {text!r} is not an assignment: expected 'column = expression'")
        column = find_column("--set", unquote_name(name.strip()), schema)
        if column.name == partition_by:
            raise SettingError(
                f"--set can't assign {column.name!r}, the partition column; use `layoutopt merge`, which moves rows "
                "between partitions"
            )
        if column.name in assignments:
            raise SettingError(f"--set assigns {column.name!r} twice; remove one of the assignments")
        assignments[column.name] = value
    return MappingProxyType(assignments)


def find_column(flag: str, name: str, schema: Schema) -> Column:
    """Return the column that a flag names; raise SettingError where there is none."""
    try:
        return schema.find(name)
    except SchemaError as error:
        raise SettingError(f"{flag}: {error}") from error


def find_plain_columns(text: str, schema: Schema) -> tuple[Column, ...] | None:
    """Return the columns of an expression of a row's own values; None where it may be something else to Spark.

    ``text`` has passed :func:`check_expression`. Subqueries, aggregates and qualified names are something else.

    >>> schema = Schema((Column("id", "int"), Column("kind", "string")))
    >>> find_plain_columns("id = 7 AND id > 2", schema), find_plain_columns("t.id = 7", schema)
    ((Column(name='id', type='int', nullable=True),), None)
    """
    try:
        tree = parse_statement(f"SELECT ({text}\n)")
    except StatementError:
        return None
    (item,) = tree.expressions
    if not isinstance(item, exp.Paren) or item.find(exp.Query, exp.Subquery, exp.AggFunc, exp.Window, exp.Star):
        return None
    names = {column.name.lower() for column in item.find_all(exp.Column)}
    if any(len(column.parts) > 1 for column in item.find_all(exp.Column)):
        return None
    columns = tuple(column for column in schema.columns if column.name.lower() in names)
    return columns if len(columns) == len(names) else None
