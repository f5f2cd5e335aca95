"""Columns that a query does not read, in the SELECT list of what stands for its table: they are NULL."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from layoutopt.model.schema import Column
from layoutopt.model.types import quoted, type_sql


def null_columns(columns: Sequence[Column]) -> list[str]:
    """Columns that are NULL in every row, as texts of a SELECT list."""
    return [f"CAST(NULL AS {type_sql(column.type)}) AS {quoted(column.name)}" for column in columns]


def or_null(column: Column, present: Collection[str]) -> str:
    """A column by its name where it is there, else as NULL."""
    return quoted(column.name) if column.name in present else null_columns([column])[0]
