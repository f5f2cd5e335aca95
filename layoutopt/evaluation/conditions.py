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
    # Imported here because checks that decide without it need no DuckDB.
    from layoutopt.evaluation.engine import EngineQuery, EngineView, answer

    query = bits_query(schema, tuple(conditions), time_zone)
    placed = rows.append_column(_PLACE, pa.array(np.arange(rows.num_rows, dtype=np.int64)))
    view = EngineView("t", placed.schema, lambda: iter(placed.to_batches()))
    bits = answer(EngineQuery(query.sql, query.columns, (view,), time_zone, False, query.functions, query.uses_times))
    order = np.argsort(np.asarray(bits.column(0)))
    return [np.asarray(column, dtype=np.bool_)[order] for column in bits.columns[1:]]


@lru_cache(maxsize=1000)
def bits_query(schema: Schema, conditions: tuple[str, ...], time_zone: str) -> PortableSql:
    """Return a query for each row's place and whether the row makes each condition TRUE; raises QueryError."""
    bits = ", ".join(f"CASE WHEN {text} THEN TRUE ELSE FALSE END AS c{i}" for i, text in enumerate(conditions))
    schema = Schema((*schema.columns, Column(_PLACE, "bigint")))
    return portable_sql(f"SELECT {_PLACE}, {bits} FROM t", {"t": schema}, "t", time_zone)


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
