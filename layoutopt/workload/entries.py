"""The entries of a query log, whatever file they came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class LogEntry:
    """One statement of a log.

    Attributes:
        id: its place in the log, from 0.
        sql: the text, without a closing ``;``.
        timestamp: as the log has it, or None.
        user: as the log has it, or None.
        count: how often the statement ran; its weight.
        problem: why the record has no usable text ("" where it has one).
        code: what kind of problem that is.
        dialect: of the text; None for the log's.
        parameters: the values that stand for the text's parameters, by place or by name; None where it has none.
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


def one_statement(sql: str) -> str:
    """A text without the ``;`` and blanks around its one statement."""
    return sql.strip().removesuffix(";").rstrip()
