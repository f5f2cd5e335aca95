"""PAR-n of 4.7.5: the streams' queries as joins of TPC-H's own tables, and what they read of these as plain Parquet.

A query joins the tables whose columns it reads, and those between them. A query without columns of line items and
orders joins dimensions alone, as the thesis's do (4.7.5: 40 of 100): it then has each row of a dimension once, and rows
without a line item too. :func:`join_text` with ``lines`` joins lineitem as well and so has exactly the answer of the
denormalised table.

The tables have the generator's order, in row groups of as many rows as PAR-d has. A query reads of each table the
columns that it names, keys of joins among them, in the row groups that minima and maxima do not exclude.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.bench.experiment import TEST, Experiment, size_of
from jobs.bench.steps import Json, Step, key_of
from jobs.bench.tpch import Tpch
from layoutopt.cli.demo import RAW_TABLES
from layoutopt.external.current_reads import RowGroups, read_row_groups
from layoutopt.external.snapshot import parquet_files
from layoutopt.model.query import Query
from layoutopt.skipping.cannot_match import cannot_match
from layoutopt.sql.schema import schema_from
from layoutopt.workload.analyze import analyze
from layoutopt.workload.entries import LogEntry

# The table behind each alias; the columns of the denormalised table begin with the alias.
RAW: Final[Mapping[str, str]] = {
    "l": "lineitem", "o": "orders", "c": "customer", "p": "part", "ps": "partsupp", "s": "supplier",
    "cn": "nation", "cr": "region", "sn": "nation", "sr": "region",
}  # fmt: skip

# The tables that each table may be joined to, and on what.
_JOINED: Final[Mapping[str, Mapping[str, str]]] = {
    "l": {},
    "o": {"l": "o.o_orderkey = l.l_orderkey"},
    "c": {"o": "c.c_custkey = o.o_custkey"},
    "p": {"l": "p.p_partkey = l.l_partkey", "ps": "p.p_partkey = ps.ps_partkey"},
    "ps": {"l": "ps.ps_partkey = l.l_partkey AND ps.ps_suppkey = l.l_suppkey"},
    "s": {"l": "s.s_suppkey = l.l_suppkey", "ps": "s.s_suppkey = ps.ps_suppkey"},
    "cn": {"c": "cn.n_nationkey = c.c_nationkey"},
    "cr": {"cn": "cr.r_regionkey = cn.n_regionkey"},
    "sn": {"s": "sn.n_nationkey = s.s_nationkey"},
    "sr": {"sn": "sr.r_regionkey = sn.n_regionkey"},
}

# Tables that a join may begin with, the smallest first.
_FIRST: Final = ("p", "s", "c", "ps", "o", "l")
_COLUMN: Final = re.compile(r"'[^']*'|\b(?P<alias>cn|cr|sn|sr|ps|[locps])_(?P<name>[a-z]+)\b")


def join_text(sql: str, *, lines: bool = False) -> str:
    """Return a query of the denormalised table as a join.

    Args:
        sql: as :mod:`jobs.bench.tpch_queries` draws it.
        lines: begin with lineitem even if no column of it is read.

    >>> join_text("SELECT s_name, s_address FROM tpch WHERE sn_name = 'INDIA'")
    "SELECT s.s_name AS s_name, s.s_address AS s_address FROM supplier s JOIN nation sn ON \
sn.n_nationkey = s.s_nationkey WHERE sn.n_name = 'INDIA'"
    """
    select, _, condition = sql.removeprefix("SELECT ").partition(" FROM tpch WHERE ")
    columns = ", ".join(f"{_qualify(name)} AS {name}" for name in select.split(", "))
    return f"SELECT {columns} FROM {' '.join(_from_items(sql, lines))} WHERE {_qualify(condition)}"


def has_dimensions_alone(sql: str) -> bool:
    """Return whether a query of the denormalised table joins neither line items nor orders."""
    return _from_items(sql, lines=False)[0].split()[0] not in ("lineitem", "orders")


def _qualify(text: str) -> str:
    """Return the text with each column as its table calls it, after the table's alias; quoted texts stay."""

    def qualified(match: re.Match[str]) -> str:
        alias = match["alias"]
        if not alias:
            return match[0]
        prefix = RAW[alias][0] if len(alias) == 2 and alias != "ps" else alias
        return f"{alias}.{prefix}_{match['name']}"

    return _COLUMN.sub(qualified, text)


def _from_items(sql: str, lines: bool) -> list[str]:
    """Return the tables of a query's join, each after one that it is joined to."""
    aliases = sorted({match["alias"] for match in _COLUMN.finditer(sql) if match["alias"]})
    starts = [(first, [_way(alias, first) for alias in aliases]) for first in (("l",) if lines else _FIRST)]
    first, ways = next((first, ways) for first, ways in starts if all(ways))
    items = [f"{RAW[first]} {first}"]
    for way in ways:
        for alias, before in zip(way[1:], way, strict=False):
            item = f"JOIN {RAW[alias]} {alias} ON {_JOINED[alias][before]}"
            items += [item] if item not in items else []
    return items


def _way(alias: str, first: str) -> Sequence[str]:
    """Return the tables from the first one to this one, both included; none where the first does not lead there."""
    if alias == first:
        return (first,)
    joined = _JOINED[alias]
    nearest = first if first in joined else next(iter(joined), None)
    before = () if nearest is None else _way(nearest, first)
    return (*before, alias) if before else ()


def normalised_folder(tpch: Tpch, group_rows: int) -> Path:
    """Return the folder of the tables, a Parquet file each, in row groups of so many rows."""
    return tpch.data.folder / f"normalised-{group_rows}"


def normalised_step(tpch: Tpch, group_rows: int) -> Step:
    """Rewrite the generator's tables in such row groups."""
    folder, source = normalised_folder(tpch, group_rows), tpch.source

    def make() -> Json:
        folder.mkdir(parents=True, exist_ok=True)
        for table in RAW_TABLES:
            _rewrite(tpch.data.raw / f"{table}.parquet", folder / f"{table}.parquet", group_rows)
        return {"bytes": size_of(folder)}

    name = f"rewriting the normalised tables in row groups of {group_rows} rows"
    return Step(name, source.folder / f"{folder.name}.json", make, (source.made,))


def _rewrite(source: Path, target: Path, group_rows: int) -> None:
    """Rewrite one table batch by batch, so that none has to fit into memory."""
    file = pq.ParquetFile(source)
    views = {pa.string_view(): pa.string()}  # the generator's texts have a type that Parquet lacks
    schema = pa.schema([field.with_type(views.get(field.type, field.type)) for field in file.schema_arrow])
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for batch in file.iter_batches(batch_size=group_rows):
            writer.write_batch(batch.cast(schema), row_group_size=group_rows)


def joins_step(tpch: Tpch, stream: Experiment, group_rows: int) -> Step:
    """Count what the test queries read as joins.

    The product has ``evaluation`` with ``totals`` of ``rows_scanned``, ``cells_scanned``, ``tids_scanned`` (none) and
    ``bytes_scanned``, summed over the tables that each query joins, ``full_scan`` with the same without skipping,
    and how many of the queries join ``dimensions`` alone.
    """

    def make() -> Json:
        texts = [query.sql for query in stream.queries(TEST)]
        counts = count_joins(normalised_folder(tpch, group_rows), [join_text(text) for text in texts])
        return {**counts, "dimensions": sum(map(has_dimensions_alone, texts)), "planning_seconds": 0.0}

    product = f"{key_of(f'joins {stream.name}', {'group_rows': group_rows})}.json"
    name = "counting what the test queries read of the normalised tables"
    return stream.step(name, product, make, normalised_step(tpch, group_rows))


def count_joins(folder: Path, texts: Sequence[str]) -> dict[str, Any]:
    """Return what joins read of the tables in a folder, as in :func:`joins_step`."""
    scanned: Counter[str] = Counter(tids_scanned=0)
    whole: Counter[str] = Counter(tids_scanned=0)
    entries = [LogEntry(number, text) for number, text in enumerate(texts)]
    for table in RAW_TABLES:
        naming = [entry for entry in entries if f" {table} " in entry.sql]
        if not naming:
            continue
        path = str(folder / f"{table}.parquet")
        schema = schema_from(path)
        queries = analyze(naming, schema, table).queries
        groups = read_row_groups(parquet_files([path], schema), schema, queries)
        for query in queries:
            scanned.update(_rows_and_cells(groups, query, skipping=True))
            whole.update(_rows_and_cells(groups, query, skipping=False))
        scanned["bytes_scanned"] += int(groups.read(queries).sum())
        whole["bytes_scanned"] += int(groups.full(queries).sum())
    return {"evaluation": {"totals": dict(scanned)}, "full_scan": dict(whole)}


def _rows_and_cells(groups: RowGroups, query: Query, *, skipping: bool) -> dict[str, int]:
    rows = groups.statistics.rows
    if skipping:
        rows = rows[~cannot_match(query.filter.root, groups.statistics, None)]
    return {"rows_scanned": int(rows.sum()), "cells_scanned": int(rows.sum()) * len(query.columns)}
