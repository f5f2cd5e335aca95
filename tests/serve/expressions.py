"""Iceberg's expressions, generated, and which rows make them TRUE to three readers that share no code with ours.

Arrow evaluates what pyiceberg makes of an expression for it. Pyiceberg's own evaluator knows two truth values alone, as
Iceberg's in Java (NULL is not 5). DuckDB takes NaN for the largest number, as Spark does.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyiceberg.expressions
from hypothesis import strategies as st
from pyiceberg.expressions.visitors import bind, expression_evaluator
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from tests.publish.typed import NESTED, POOLS

ice: Any = pyiceberg.expressions  # whose classes take their arguments otherwise than they say

COLUMNS = [name for name in POOLS if name != "p"]
_COMPARED = {
    "=": ice.EqualTo, "<>": ice.NotEqualTo, "<": ice.LessThan, "<=": ice.LessThanOrEqual, ">": ice.GreaterThan,
    ">=": ice.GreaterThanOrEqual,
}  # fmt: skip
_WORDS = {kind: op for op, kind in _COMPARED.items()}
# Literals that the column does not hold exactly, or holds as another type.
_ODD: dict[str, list[Any]] = {
    "id": [-1, 2**31, -(2**40)],
    "big": [2**31, -5],
    "tiny": [128, -129, 300],
    "x": [1, 0, -0.0, 2**52, 0.30000000000000004, Decimal("0.1"), Decimal("-2.5")],
    "f": [0.1, 0.7, 0.5000000001, -0.0, 1, 1e-50, 16777217.0, Decimal("0.7"), Decimal("0.5")],
    "s": ["A", "a\0", "zz"],
    "price": [0.005, 1.1, 12, -1e-9],
    "wide": [0.1, 5, 12345678901234567.0],
    "raw": [b"\xff", b"ab"],
}


def literals(column: str) -> st.SearchStrategy[Any]:
    """Values that the column has, and others; no NaN, which pyiceberg refuses."""
    pool = [value for value in POOLS[column][2] if not (isinstance(value, float) and math.isnan(value))]
    return st.sampled_from([*pool, *_ODD.get(column, []) * 2])


def _leaves(column: str) -> st.SearchStrategy[Any]:
    values = literals(column)
    kinds = [
        st.builds(lambda kind, value: kind(column, value), st.sampled_from(list(_COMPARED.values())), values),
        st.builds(
            lambda kind, chosen: kind(column, chosen),
            st.sampled_from([ice.In, ice.NotIn]),
            st.lists(st.sampled_from(_alike(column)), min_size=1, max_size=4),
        ),
        st.builds(lambda kind: kind(column), st.sampled_from([ice.IsNull, ice.NotNull])),
    ]
    if column in ("x", "f"):
        kinds.append(st.builds(lambda kind: kind(column), st.sampled_from([ice.IsNaN, ice.NotNaN])))
    if column == "s":
        prefixes = st.sampled_from(["", "a", "z", "z" * 79, "\ud7ff", "\U0010ffff", "q"])
        kinds.append(
            st.builds(
                lambda kind, text: kind(column, text), st.sampled_from([ice.StartsWith, ice.NotStartsWith]), prefixes
            )
        )
    return st.one_of(kinds)


def _alike(column: str) -> list[Any]:
    """Literals of one type: what a list may have."""
    pool = [value for value in POOLS[column][2] if not (isinstance(value, float) and math.isnan(value))]
    return pool + [value for value in _ODD.get(column, []) if type(value) is type(pool[0])]


def expressions(columns: Sequence[str]) -> st.SearchStrategy[Any]:
    """Expressions of up to four predicates about some of these columns, or about one, with NOT anywhere."""
    # Numbers that are rounded, and NaN, are what readers differ in most.
    often = [name for name in ("x", "f", "price") if name in columns]
    column = st.sampled_from([*(name for name in COLUMNS if name in columns), *often * 3])
    nested = [kind(name) for name in NESTED if name in columns for kind in (ice.IsNull, ice.NotNull)]
    of_any = st.one_of(column.flatmap(_leaves), *([st.sampled_from(nested)] if nested else []))
    return st.one_of(_joined(of_any), column.flatmap(lambda name: _joined(_leaves(name))))


def _joined(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(ice.And, inner, inner), st.builds(ice.Or, inner, inner), st.builds(ice.Not, inner)
        ),
        max_leaves=4,
    )


Bits = np.ndarray[Any, Any]


class Readers:
    """The same rows as three readers have them.

    Args:
        schema: Iceberg's.
        rows: the rows.
        connection: of DuckDB; its time zone is UTC.
    """

    def __init__(self, schema: Schema, rows: pa.Table, connection: duckdb.DuckDBPyConnection) -> None:
        self._schema, self._connection, self._n = schema, connection, rows.num_rows
        self._rows = rows.append_column("_row", pa.array(range(rows.num_rows)))
        self._table = f"t{id(self)}"
        connection.register(self._table, self._rows)
        columns = [[_internal(value) for value in rows[field.name].to_pylist()] for field in schema.fields]
        self._records = [Record(*row) for row in zip(*columns, strict=True)]

    def matching(self, expression: Any) -> dict[str, Bits]:
        """Which rows make an expression TRUE, bool[n], by reader."""
        evaluate = expression_evaluator(self._schema, expression, True)
        return {
            "arrow": self._by_arrow(expression),
            "duckdb": self._by_duckdb(expression),
            "pyiceberg": np.array([bool(evaluate(record)) for record in self._records], dtype=bool),
        }

    def _by_arrow(self, expression: Any) -> Bits:
        condition = expression_to_pyarrow(bind(self._schema, expression, True), self._schema)
        return self._bits(ds.dataset(self._rows).to_table(filter=condition, columns=["_row"]))

    def _by_duckdb(self, expression: Any) -> Bits:
        values: list[Any] = []
        condition = _sql(expression, values)
        found = self._connection.sql(f"SELECT _row FROM {self._table} WHERE {condition}", params=values)
        return self._bits(found.to_arrow_table())

    def _bits(self, kept: pa.Table) -> Bits:
        return np.isin(np.arange(self._n), kept["_row"].to_numpy())


def _internal(value: Any) -> Any:
    """A value as Iceberg's evaluators have it."""
    if isinstance(value, dt.datetime):
        epoch = dt.datetime(1970, 1, 1, tzinfo=value.tzinfo)
        return (value - epoch) // dt.timedelta(microseconds=1)
    return (value - dt.date(1970, 1, 1)).days if isinstance(value, dt.date) else value


def _sql(expression: Any, values: list[Any]) -> str:
    match expression:
        case ice.AlwaysTrue() | ice.AlwaysFalse():
            return str(isinstance(expression, ice.AlwaysTrue))
        case ice.And() | ice.Or():
            left, right = _sql(expression.left, values), _sql(expression.right, values)
            return f"({left} {'AND' if isinstance(expression, ice.And) else 'OR'} {right})"
        case ice.Not():
            return f"(NOT {_sql(expression.child, values)})"
    column = expression.term.name
    match expression:
        case ice.IsNull() | ice.NotNull():
            return f'("{column}" IS {"" if isinstance(expression, ice.IsNull) else "NOT "}NULL)'
        case ice.IsNaN() | ice.NotNaN():
            return f'({"" if isinstance(expression, ice.IsNaN) else "NOT "}isnan("{column}"))'
        case ice.StartsWith() | ice.NotStartsWith():
            values.append(expression.literal.value)
            return f'({"" if isinstance(expression, ice.StartsWith) else "NOT "}starts_with("{column}", ?))'
        case ice.In() | ice.NotIn():
            texts = [_constant(column, literal, values) for literal in expression.literals]
            return f'("{column}" {"" if isinstance(expression, ice.In) else "NOT "}IN ({", ".join(texts)}))'
    return f'("{column}" {_WORDS[type(expression)]} {_constant(column, expression.literal, values)})'


def _constant(column: str, literal: Any, values: list[Any]) -> str:
    """A literal in a type that has it exactly, beside which the column is widened."""
    value = literal.value
    kind = POOLS[column][0]
    if kind == "date":
        value = dt.date(1970, 1, 1) + dt.timedelta(days=value)
    elif kind.startswith("timestamp"):
        value = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=value)
        value = value.replace(tzinfo=dt.UTC) if kind == "timestamp" else value
    values.append(str(value) if isinstance(value, Decimal) else value)
    if kind in ("int", "bigint", "tinyint"):
        return "CAST(? AS HUGEINT)"
    if kind.startswith("decimal"):
        return "CAST(? AS DECIMAL(38,10))"
    names = {
        "string": "VARCHAR",
        "binary": "BLOB",
        "timestamp": "TIMESTAMPTZ",
        "timestamp_ntz": "TIMESTAMP",
        "float": "DOUBLE",
    }
    return f"CAST(? AS {names.get(kind, kind)})"
