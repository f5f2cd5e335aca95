"""Bind a log's texts: replace ``CURRENT_DATE`` and the like by the time of the run, and parameters by their values.

A log's text only proposes features, it never decides what is skipped. Unbound, `day > CURRENT_DATE - 7` is another
condition each day, and proposes no feature.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from sqlglot import exp
from sqlglot.optimizer.simplify import simplify

from layoutopt.sql.dialect import Spark4, parse_statement
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types import zone_of

_DAY_FUNCTIONS = re.compile(r"current_?date|\btoday\b", re.IGNORECASE)
_TIME_FUNCTIONS = re.compile(
    r"current_?(date|time|timestamp)|\b(now|getdate|sysdate|today|localtimestamp|systimestamp)\b", re.IGNORECASE
)
_NOW = (exp.CurrentTimestamp, exp.CurrentTimestampLTZ, exp.CurrentDatetime, exp.Localtimestamp, exp.Systimestamp)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def bind_text(
    sql: str,
    dialect: str,
    timestamp: str | None,
    parameters: Sequence[object] | Mapping[str, object] | None = None,
    time_zone: str = "UTC",
) -> tuple[str, str]:
    """Return a text, and its dialect, with literals for the time of its run and for its parameters.

    Texts without either are returned unchanged.

    Args:
        timestamp: the time of the run, in ISO 8601, in ``time_zone`` unless it has a zone. None or an invalid time
            binds no time.
        parameters: the values, by position or by name.

    Raises:
        SettingError: unknown dialect.
        StatementError: the text can't be parsed.

    >>> bind_text("SELECT a FROM t WHERE d > CURRENT_DATE - 7", "spark", "2026-11-22T10:00:00")[0]
    "SELECT a FROM t WHERE d > CAST('2026-11-22' AS DATE) - 7"
    >>> bind_text("SELECT a FROM t WHERE b = ? AND c = ?", "spark", None, ["5", "it's"])[0]
    "SELECT a FROM t WHERE b = 5 AND c = 'it''s'"
    """
    now = _parse_local_time(timestamp, time_zone) if _TIME_FUNCTIONS.search(sql) else None
    if now is None and not parameters:
        return sql, dialect
    if now is not None and not _TIME_FUNCTIONS.search(_DAY_FUNCTIONS.sub("", sql)):
        now = dt.datetime.combine(now, dt.time())
    tree = parse_statement(sql, dialect) if now is None else _bind_time(sql, dialect, now)
    if parameters:
        values = iter(() if isinstance(parameters, Mapping) else parameters)
        named = parameters if isinstance(parameters, Mapping) else {}
        tree = tree.transform(lambda node: _replace_parameter(node, values, named))
    return tree.sql(dialect=Spark4), "spark"


@lru_cache(maxsize=2_000)
def _bind_time(sql: str, dialect: str, now: dt.datetime) -> exp.Expr:
    """Return a text's tree with literals for the time of its run; it is shared, as the same texts run every day."""
    tree = parse_statement(sql, dialect).transform(lambda node: _replace_time(node, now))
    bound: exp.Expr = simplify(tree, dialect=Spark4())
    return bound


def _parse_local_time(timestamp: str | None, time_zone: str) -> dt.datetime | None:
    try:
        time = dt.datetime.fromisoformat(timestamp or "")
        return time if time.tzinfo is None else time.astimezone(zone_of(time_zone)).replace(tzinfo=None)
    except (ValueError, Unusable):
        return None


def _replace_time(node: exp.Expr, now: dt.datetime) -> exp.Expr:
    name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    if isinstance(node, exp.CurrentDate) or name in ("today", "curdate"):
        return exp.cast(exp.Literal.string(now.date().isoformat()), "date")
    if isinstance(node, _NOW) or name in ("getdate", "sysdate", "now"):
        return exp.cast(exp.Literal.string(now.isoformat(" ")), "timestamp")
    return node


def _replace_parameter(node: exp.Expr, values: object, named: Mapping[str, object]) -> exp.Expr:
    if not isinstance(node, exp.Placeholder | exp.Parameter):
        return node
    name = node.name or (node.this.name if isinstance(node.this, exp.Expr) else "")
    if name in named:
        return _to_literal(named[name])
    if name in ("", "?") and not named:
        value = next(values, None)  # type: ignore[call-overload]  # an iterator
        return node if value is None else _to_literal(value)
    return node


def _to_literal(value: object) -> exp.Expr:
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    text = str(value)
    if _NUMBER.fullmatch(text):
        return exp.Literal.number(text)
    if len(text) > 1 and text[0] == text[-1] == "'":  # already a literal, as in Athena's logs
        text = text[1:-1].replace("''", "'")
    return exp.Literal.string(text)
