"""Reasons why a statement or a condition can't be used: stable codes that users and tests can count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from layoutopt.errors import QueryError, expected_names

# Reason code of a skipped statement -> its meaning.
STATEMENT_REASONS = {
    "bad-record": "the log's record is damaged: not JSON, or without a SQL text",
    "empty": "there is no statement in the text",
    "no-table": "the statement reads other tables only",
    "not-a-query": "the statement is not a query",
    "parse-error": "the text can't be parsed",
    "several-statements": "the record holds more than one statement",
    "unknown-column": "the statement names a column that the table does not have",
    "unsupported": "the statement uses a construct that the analyser does not support",
}

# Reason code of a condition that a filter leaves out -> its meaning. ``scan/REASONS.md`` lists the same.
CONDITION_REASONS = {
    "can-fail": "the expression can fail on some row and has no error-free form that is known to be exact",
    "coercion": "Spark's types of the two sides have no common type that is compared exactly",
    "correlated": "the condition compares with a column of an outer query",
    "dialect": "the expression is not proved to mean in Spark what it means in the log's dialect",
    "inexact": "the constant can't be computed exactly as Spark would",
    "non-deterministic": "the value may differ from run to run or row to row",
    "outer-join": "applied early, the condition could change what an outer, semi or anti join returns",
    "pseudo-column": "only another system has that column, as BigQuery has _PARTITIONTIME",
    "sampled": "the rows of the table are sampled, pivoted or taken from another version before the condition applies",
    "subquery": "the condition needs the result of a subquery",
    "unordered-type": "values of that type are not compared here (nested, CHAR or collated columns)",
    "unsupported-expression": "the analyser knows no exact meaning of the expression",
    "unsupported-function": "the function is not on the list of functions known to be deterministic and never to fail",
}


class StatementError(QueryError):
    """A statement that can't be analysed.

    Attributes:
        code: a key of :data:`STATEMENT_REASONS`.
        detail: one sentence that names the offending text.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class UnknownColumnError(StatementError):
    """A statement that names a column which no table has.

    Attributes:
        column: as the statement spells it, with qualifiers.
    """

    def __init__(self, column: str, name: str, known: Sequence[str]) -> None:
        super().__init__("unknown-column", f"there is no column {column!r}: {expected_names(name, known)}")
        self.column = column


class Unusable(Exception):  # noqa: N818 (a signal inside this package, never an error that a user sees)
    """A signal that a condition has no exact translation, so that the filter leaves it out."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


@dataclass(frozen=True)
class UnusableCondition:
    """A condition that a scan's filter leaves out: TRUE replaces it, which is weaker and so sound.

    Attributes:
        code: a key of :data:`CONDITION_REASONS`.
        detail: one sentence that names the offending expression.
        sql: the condition's text, in Spark's dialect.
    """

    code: str
    detail: str
    sql: str
