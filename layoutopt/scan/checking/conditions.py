"""The rows for which a text's own condition holds, by DuckDB: the analysis of the text is not believed."""

from __future__ import annotations

from functools import lru_cache

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from layoutopt.errors import QueryError
from layoutopt.model.schema import Schema
from layoutopt.scan.engine import connect
from layoutopt.scan.matches import bits_sql, with_places

Bits = npt.NDArray[np.bool_]


@lru_cache(maxsize=1000)
def compiled_condition(schema: Schema, condition: str, zone: str) -> str | None:
    """DuckDB's text for which rows a condition holds; None where it may mean something else there."""
    try:
        return bits_sql(schema, [condition], zone)
    except QueryError:
        return None


def matching_text(schema: Schema, condition: str, rows: pa.Table, zone: str) -> Bits | None:
    """The rows for which a condition is TRUE, by DuckDB; None where it can't say what Spark would.

    Args:
        schema: the table's.
        condition: in Spark's dialect.
        rows: they have the condition's columns.
        zone: the session's time zone.
    """
    here = Schema(tuple(column for column in schema.columns if column.name in rows.column_names))
    compiled = compiled_condition(here, condition, zone)
    if compiled is None:
        return None
    with connect(zone) as connection:
        connection.register("t", with_places(rows))
        try:
            found = connection.sql(compiled).to_arrow_table()
        except duckdb.Error:  # a cast that fails on a row that no query reads
            return None
    matched = np.zeros(rows.num_rows, dtype=np.bool_)
    matched[np.asarray(found.column(0))] = np.asarray(found.column(1))
    return matched
