"""The entries of a query log, of any file format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One statement of a log.

    Attributes:
        id: its place in the log, from 0.
        sql: the text, without a closing ``;``.
        timestamp: as in the log, or None.
        count: how often the statement ran; its weight.
        problem: why the record has no usable text ("" where it has one).
        code: the kind of that problem.
        dialect: of the text; None for the log's.
        parameters: the values of the text's parameters, by place or by name; None where it has none.
    """

    id: int
    sql: str
    timestamp: str | None = None
    user: str | None = None
    count: float = 1.0
    problem: str = ""
    code: str = "bad-record"
    dialect: str | None = None
    parameters: Sequence[object] | Mapping[str, object] | None = None


def strip_statement(sql: str) -> str:
    """Return a text without the ``;`` and blanks around its one statement."""
    return sql.strip().removesuffix(";").rstrip()
