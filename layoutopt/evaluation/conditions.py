"""Evaluate conditions of a text on Arrow rows by DuckDB, where it evaluates them as Spark does."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from layoutopt.errors import QueryError
from layoutopt.model.arrays import Bits
from layoutopt.model.schema import Column, Schema
from layoutopt.sql.duckdb.translate import PortableSql, portable_sql

# The column of a row's position among those evaluated.
_PLACE: Final = "_place"


def evaluate_conditions(schema: Schema, conditions: Sequence[str], rows: pa.Table, time_zone: str) -> list[Bits]:
    """Return for each condition in Spark's dialect the rows that make it TRUE, bool[rows], by DuckDB.

    Args:
        schema: of the rows.
        conditions: on these columns.
        rows: the rows.
        time_zone: of the session.

    Raises:
        QueryError: DuckDB may differ from Spark, or fails on a row, perhaps on one that no query reads.
    """
    values = _evaluate(bits_query(schema, tuple(conditions), time_zone), rows, time_zone)
    return [np.asarray(column, dtype=np.bool_) for column in values.columns]


def evaluate_expressions(schema: Schema, expressions: Sequence[str], rows: pa.Table, time_zone: str) -> pa.Table:
    """Return the values of expressions in Spark's dialect, in Spark's types; as :func:`evaluate_conditions`."""
    return _evaluate(values_query(schema, tuple(expressions), time_zone), rows, time_zone)


def _evaluate(query: PortableSql, rows: pa.Table, time_zone: str) -> pa.Table:
    # Imported here because checks that decide without it need no DuckDB.
    from layoutopt.evaluation.engine import EngineQuery, EngineView, answer

    places = pa.array(np.arange(rows.num_rows, dtype=np.int64))
    placed = pa.table([*rows.columns, places], [*rows.column_names, _PLACE])
    view = EngineView("t", placed.schema, lambda: iter(placed.to_batches()))
    values = answer(EngineQuery(query.sql, query.columns, (view,), time_zone, False, query.functions, query.uses_times))
    return values.take(pa.array(np.argsort(np.asarray(values.column(0))))).drop_columns([_PLACE])


def bits_query(schema: Schema, conditions: tuple[str, ...], time_zone: str) -> PortableSql:
    """Return a query for each row's place and whether the row makes each condition TRUE; raises QueryError."""
    return values_query(
        schema, tuple(f"CASE WHEN {condition} THEN TRUE ELSE FALSE END" for condition in conditions), time_zone
    )


@lru_cache(maxsize=1000)
def values_query(schema: Schema, expressions: tuple[str, ...], time_zone: str) -> PortableSql:
    """Return a query for each row's place and the values of expressions there; raises QueryError."""
    values = ", ".join(f"{text} AS c{i}" for i, text in enumerate(expressions))
    schema = Schema((*schema.columns, Column(_PLACE, "bigint")))
    return portable_sql(f"SELECT {_PLACE}, {values} FROM t", {"t": schema}, "t", time_zone)


@lru_cache(maxsize=1000)
def can_match(schema: Schema, condition: str, zone: str) -> bool:
    """Return whether DuckDB evaluates a condition in Spark's dialect as Spark does."""
    try:
        bits_query(schema, (condition,), zone)
    except QueryError:
        return False
    return True


def match_condition(schema: Schema, condition: str, rows: pa.Table, zone: str) -> Bits | None:
    """Return the rows for which a condition in Spark's dialect is TRUE; None if DuckDB may differ from Spark."""
    columns = tuple(column for column in schema.columns if column.name in rows.column_names)
    try:
        return evaluate_conditions(Schema(columns), [condition], rows, zone)[0]
    except QueryError:  # for example a cast that fails on a row that no query reads
        return None
