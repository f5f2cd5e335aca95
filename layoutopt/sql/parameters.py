"""Parameters of a text (``:name``, ``?``) and the literals that they stand for: what is analysed is the text with the
literals in it, what is run is the text as it was written.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from layoutopt.sql.dialect import Spark4
from layoutopt.sql.lexing.remembered import remembered
from layoutopt.sql.problems import StatementError
from layoutopt.sql.references import Span

Arguments = Mapping[str, object] | Sequence[object]


@dataclass(frozen=True)
class Bound:
    """A text with literals in the place of its parameters.

    Attributes:
        sql: the text.
        shifts: for each literal its end in ``sql``, and how many characters longer than its parameter it is.
    """

    sql: str
    shifts: tuple[tuple[int, int], ...] = ()

    def original(self, span: Span) -> Span:
        """Where a part of ``sql`` without parameters stands in the text as it was written."""
        moved = sum(more for end, more in self.shifts if end <= span[0])
        return span[0] - moved, span[1] - moved


def bind(sql: str, args: Arguments) -> Bound:
    """The text with literals for those of its parameters that a literal can stand for.

    Raises:
        StatementError: the text is not made of Spark's tokens.

    >>> bind("SELECT * FROM t WHERE a = :a AND b < ?", {"a": "it's"}).sql
    "SELECT * FROM t WHERE a =  'it\\\\'s'  AND b < ?"
    """
    tokens = _tokens(sql)
    named = args if isinstance(args, Mapping) else {}
    waiting = iter(() if isinstance(args, Mapping) else args)
    pieces, shifts, done, moved = [], [], 0, 0
    for place, token in enumerate(tokens):
        literal, span = None, (token.start, token.end + 1)
        if token.token_type is TokenType.PLACEHOLDER:
            literal = literal_of(next(waiting, _NOTHING))
        elif token.token_type is TokenType.COLON and place + 1 < len(tokens) and _touch(token, tokens[place + 1]):
            span = token.start, tokens[place + 1].end + 1
            literal = literal_of(named.get(sql[span[0] + 1 : span[1]], _NOTHING))
        if literal is None:
            continue
        literal = f" {literal} "  # "-" before "-5" would begin a comment
        pieces += [sql[done : span[0]], literal]
        done, moved = span[1], moved + len(literal) - (span[1] - span[0])
        shifts.append((span[1] + moved, len(literal) - (span[1] - span[0])))
    return Bound("".join([*pieces, sql[done:]]), tuple(shifts))


_NOTHING = object()


@remembered
def _tokens(sql: str) -> tuple[Token, ...]:
    """A text's tokens."""
    try:
        return tuple(Spark4().tokenize(sql))
    except (SqlglotError, ValueError) as error:
        raise StatementError("parse-error", f"{sql[:60]!r} can't be cut into tokens") from error


def _touch(colon: Token, token: Token) -> bool:
    return token.start == colon.end + 1


def literal_of(value: object) -> str | None:
    """The literal of the type and value that Spark gives an argument; None where no literal is surely the same.

    >>> literal_of(5), literal_of(2**40), literal_of(1.5), literal_of(float("nan"))
    ('5', '1099511627776L', '1.5D', None)
    """
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, dt.datetime):
        # What has no zone is taken in the driver's, by Python as by Spark.
        return f"TIMESTAMP '{value.astimezone(dt.UTC).isoformat(sep=' ')}'"
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    return _number(value)


def _number(value: object) -> str | None:
    if isinstance(value, int):
        if -(2**31) <= value < 2**31:
            return str(value)
        return f"{value}L" if -(2**63) <= value < 2**63 else None
    if isinstance(value, float):
        return f"{value!r}D" if math.isfinite(value) and "e" not in repr(value) else None
    if isinstance(value, Decimal) and value.is_finite() and "." in str(value) and "E" not in str(value):
        return str(value)
    return None
