"""Other engines' readers of published tables, and filters in the words of each.

Each reader is asked for the ids of the rows that a filter keeps. What is right is what the very same engine answers on
the rows themselves, where nothing can be skipped: engines differ in what they make of NaN.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from hypothesis import strategies as st
from pyiceberg import expressions as ice
from pyiceberg.table import StaticTable

from tests.publish.typed import POOLS

COMPARED = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ICEBERG: dict[str, Any] = {
    "=": ice.EqualTo, "<>": ice.NotEqualTo, "<": ice.LessThan, "<=": ice.LessThanOrEqual, ">": ice.GreaterThan,
    ">=": ice.GreaterThanOrEqual,
}  # fmt: skip


@dataclass(frozen=True)
class Atom:
    """A comparison of a column with a constant, or whether it is NULL (``op`` is then ``null`` or ``not null``)."""

    column: str
    op: str
    value: Any = None


@dataclass(frozen=True)
class Both:
    """Two filters joined by ``and`` or ``or``."""

    word: str
    left: Filter
    right: Filter


Filter = Atom | Both


def atoms(columns: list[str]) -> st.SearchStrategy[Filter]:
    def of(column: str) -> st.SearchStrategy[Atom]:
        ops = ["=", "<>"] if column == "flag" else list(COMPARED)
        compared = st.builds(Atom, st.just(column), st.sampled_from(ops), st.sampled_from(POOLS[column][2]))
        return st.one_of(compared, st.builds(Atom, st.just(column), st.sampled_from(["null", "not null"])))

    return st.sampled_from(columns).flatmap(of)


def is_plain(filter: Filter) -> bool:
    """Whether no NaN or infinity is compared with: pyiceberg refuses the first, and takes the other for too large."""
    if isinstance(filter, Both):
        return is_plain(filter.left) and is_plain(filter.right)
    return not isinstance(filter.value, float) or math.isfinite(filter.value)


def filters(columns: list[str]) -> st.SearchStrategy[Filter]:
    """Filters over some columns of the pools, up to four comparisons deep."""
    return st.recursive(
        atoms(columns), lambda inner: st.builds(Both, st.sampled_from(["and", "or"]), inner, inner), max_leaves=4
    )


def folded(filter: Filter, atom: Callable[[Atom], Any], both: dict[str, Callable[[Any, Any], Any]]) -> Any:
    """A filter in the words of an engine."""
    if isinstance(filter, Both):
        return both[filter.word](folded(filter.left, atom, both), folded(filter.right, atom, both))
    return atom(filter)


_BITS = {"and": operator.and_, "or": operator.or_}


def as_polars(filter: Filter) -> Any:
    def atom(one: Atom) -> Any:
        column = pl.col(one.column)
        if one.op in COMPARED:
            dtype = pl.from_arrow(pa.array([], POOLS[one.column][1])).dtype  # type: ignore[union-attr]
            return COMPARED[one.op](column, pl.lit(one.value, dtype))
        return column.is_null() if one.op == "null" else column.is_not_null()

    return folded(filter, atom, _BITS)


def as_arrow(filter: Filter) -> Any:
    def atom(one: Atom) -> Any:
        column = pc.field(one.column)
        if one.op in COMPARED:
            return COMPARED[one.op](column, pa.scalar(one.value, POOLS[one.column][1]))
        return column.is_null() if one.op == "null" else column.is_valid()

    return folded(filter, atom, _BITS)


def as_iceberg(filter: Filter) -> Any:
    def atom(one: Atom) -> Any:
        if one.op in COMPARED:
            return _ICEBERG[one.op](one.column, one.value)
        kind: Any = ice.IsNull if one.op == "null" else ice.NotNull
        return kind(one.column)

    return folded(filter, atom, {"and": ice.And, "or": ice.Or})


def as_sql(filter: Filter, values: list[Any]) -> str:
    def atom(one: Atom) -> str:
        if one.op in COMPARED:
            values.append(one.value)
            return f'"{one.column}" {one.op} CAST(? AS {_duckdb_type(one.column)})'
        return f'"{one.column}" IS {one.op.upper()}'

    joined = {"and": lambda a, b: f"({a} AND {b})", "or": lambda a, b: f"({a} OR {b})"}
    return str(folded(filter, atom, joined))


def _duckdb_type(column: str) -> str:
    kind = POOLS[column][0]
    names = {"string": "VARCHAR", "binary": "BLOB", "timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP"}
    return names.get(kind, kind)


Ids = list[int]


def ids_of(table: Any) -> Ids:
    return sorted(pa.table(table)["id"].to_pylist())


def polars_ids(frame: pl.LazyFrame, filter: Filter) -> Ids:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says which planner it has
        return sorted(frame.filter(as_polars(filter)).select("id").collect()["id"].to_list())


def duckdb_ids(connection: duckdb.DuckDBPyConnection, rows: Any, filter: Filter) -> Ids:
    values: list[Any] = []
    condition = as_sql(filter, values)
    connection.execute("SET TimeZone = 'UTC'; SET threads = 1")
    connection.register("t", rows)
    return sorted(row[0] for row in connection.execute(f"SELECT id FROM t WHERE {condition}", values).fetchall())


def delta_answers(connection: duckdb.DuckDBPyConnection, location: str, filter: Filter) -> dict[str, Ids]:
    """What readers of a Delta table answer, by their names."""
    dataset = DeltaTable(location).to_pyarrow_dataset()
    return {
        "deltalake": ids_of(dataset.to_table(filter=as_arrow(filter), columns=["id"])),
        "duckdb": duckdb_ids(connection, dataset, filter),
        "polars": polars_ids(pl.scan_delta(location), filter),
    }


def iceberg_answers(table: StaticTable, filter: Filter) -> dict[str, Ids]:
    """What readers of an Iceberg table answer, by their names."""
    return {
        "pyiceberg": ids_of(table.scan(row_filter=as_iceberg(filter), selected_fields=("id",)).to_arrow()),
        "polars": polars_ids(pl.scan_iceberg(table.metadata_location), filter),
    }


def right_answers(
    connection: duckdb.DuckDBPyConnection, rows: pa.Table, files: list[str], filter: Filter
) -> dict[str, Ids]:
    """What the same engines answer on the rows, where nothing is skipped.

    Arrow is asked of the plain files: within one it skips row groups itself, and loses a NaN by ``<>``.
    """
    arrow = ids_of(ds.dataset(files, schema=rows.schema).to_table(filter=as_arrow(filter), columns=["id"]))
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return {
        "deltalake": arrow,
        "pyiceberg": arrow,
        "duckdb": duckdb_ids(connection, rows, filter),
        "polars": polars_ids(frame.lazy(), filter),
    }


def check_delta(
    connection: duckdb.DuckDBPyConnection, location: str, rows: pa.Table, files: list[str], filter: Filter
) -> None:
    """Compares every reader of a Delta table with its own engine on the rows that are right."""
    right = right_answers(connection, rows, files, filter)
    for name, found in delta_answers(connection, location, filter).items():
        assert found == right[name], name


def check_iceberg(
    connection: duckdb.DuckDBPyConnection, table: StaticTable, rows: pa.Table, files: list[str], filter: Filter
) -> None:
    """Compares every reader of an Iceberg table with its own engine on the rows that are right."""
    right = right_answers(connection, rows, files, filter)
    for name, found in iceberg_answers(table, filter).items():
        assert found == right[name], name
