"""Columns that a query does not read, in the SELECT list of what stands for its table: whoever asks for one fails.

Spark leaves out columns that nobody needs before it runs anything. Who goes on with the answer and a column that its
text did not name (`spark.sql("SELECT a FROM t").filter("b > 1")`) does need it, and must not be told NULL.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from layoutopt.model.schema import Column
from layoutopt.model.types import quoted, type_sql
from layoutopt.model.values.constants import text_sql


def absent_columns(columns: Sequence[Column]) -> list[str]:
    """Columns that fail in every row, as texts of a SELECT list."""
    return [_named(_failing(column), column) for column in columns]


def null_columns(columns: Sequence[Column]) -> list[str]:
    """Columns of a query without rows, as texts of a SELECT list.

    These must not fail: Spark puts what stands for them in conditions on the rows of others.
    """
    return [_named("NULL", column) for column in columns]


def or_absent(column: Column, present: Collection[str]) -> str:
    """A column by its name where it is there, else as one that fails."""
    return quoted(column.name) if column.name in present else absent_columns([column])[0]


def _named(value: str, column: Column) -> str:
    return f"CAST({value} AS {type_sql(column.type)}) AS {quoted(column.name)}"


def _failing(column: Column) -> str:
    sentence = f"layoutopt has not read the column {column.name!r}, which the text does not name; name it there"
    return f"raise_error({text_sql(sentence)})"
