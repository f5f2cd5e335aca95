"""Which columns' filters Spark may push to Parquet without losing a row.

Spark compares pushed filters with minima and maxima, which leave NaN out, though Spark orders NaN last.
"""

from __future__ import annotations

from collections.abc import Iterable

from layoutopt.catalog.keys import FLOATS
from layoutopt.model.schema import Column
from layoutopt.model.types import quoted
from layoutopt.scan.opened import OpenedTable


def is_pushable(table: OpenedTable, column: Column, layouts: Iterable[int]) -> bool:
    """Whether a filter on the column may be pushed: it holds no floats, or surely no NaN in these layouts."""
    if column.type in FLOATS:
        return not any(table.may_hold_nans(column, layout) for layout in layouts)
    return not ("struct<" in column.type and any(each in column.type for each in FLOATS))


def readable(table: OpenedTable, column: Column, layouts: Iterable[int]) -> str:
    """A column of these layouts as a text for Spark: itself, where need be in an expression that is not pushed."""
    name = quoted(column.name)
    if is_pushable(table, column, layouts):
        return name
    if column.type in FLOATS:
        return f"nanvl({name}, {name}) AS {name}"
    return f"CASE WHEN {name} IS NOT NULL THEN {name} END AS {name}"
