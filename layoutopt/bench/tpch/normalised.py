"""PAR-n of 4.7.5: TPC-H's own tables as plain Parquet, and what a stream's queries read of them as joins.

The tables are those of the generator in its order, in row groups of as many rows as the denormalised table has in
PAR-d. A query reads of each table that it joins the columns that it names, the keys of its joins among them, in the row
groups that their minima and maxima don't exclude by the conditions on this table alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.bench.steps import Json, Step, key_of
from layoutopt.bench.tpch.denormalise import RAW_TABLES
from layoutopt.bench.tpch.experiment import Bench, data_step, size_of, stream_for_testing
from layoutopt.bench.tpch.joins import join_text, of_dimensions
from layoutopt.model.query import Query
from layoutopt.skipping.cannot_match import cannot_match
from layoutopt.sources.row_groups import RowGroups, row_groups_of
from layoutopt.sources.snapshot import parquet_files
from layoutopt.sql.schema import schema_from
from layoutopt.workload.analyze import analyze
from layoutopt.workload.entries import LogEntry

CODEC: Final = "zstd"


def normalised_folder(bench: Bench, group_rows: int) -> Path:
    """Where the tables are, a Parquet file each, in row groups of so many rows."""
    return bench.data.folder / f"normalised-{group_rows}"


def normalised_step(bench: Bench, group_rows: int) -> Step:
    """Rewrite the generator's tables in such row groups."""
    folder = normalised_folder(bench, group_rows)

    def make() -> Json:
        folder.mkdir(parents=True, exist_ok=True)
        for table in RAW_TABLES:
            _rewrite(bench.data.raw / f"{table}.parquet", folder / f"{table}.parquet", group_rows)
        return {"bytes": size_of(folder)}

    name = f"rewriting the normalised tables in row groups of {group_rows} rows"
    return Step(name, bench.folder / f"{folder.name}.json", make, (data_step(bench),))


def _rewrite(source: Path, target: Path, group_rows: int) -> None:
    """One table, batch by batch: none has to fit into memory."""
    file = pq.ParquetFile(source)
    views = {pa.string_view(): pa.string()}  # as the generator notes its texts, which Parquet has no type for
    schema = pa.schema([field.with_type(views.get(field.type, field.type)) for field in file.schema_arrow])
    with pq.ParquetWriter(target, schema, compression=CODEC) as writer:
        for batch in file.iter_batches(batch_size=group_rows):
            writer.write_batch(batch.cast(schema), row_group_size=group_rows)


def joins_step(bench: Bench, stream: str, group_rows: int) -> Step:
    """Count what the test stream reads as joins.

    The product has ``evaluation`` with ``totals`` of ``rows_scanned``, ``cells_scanned``, ``tids_scanned`` (none) and
    ``bytes_scanned``, summed over the tables that each query joins, ``full_scan`` with the same without any skipping,
    and how many of the queries join ``dimensions`` alone.
    """
    key = key_of(f"joins {stream}", {"group_rows": group_rows})

    def make() -> Json:
        texts = [query.sql for query in stream_for_testing(stream)]
        read = read_of(normalised_folder(bench, group_rows), [join_text(text) for text in texts])
        return {**read, "dimensions": sum(map(of_dimensions, texts)), "planning_seconds": 0.0}

    return Step(
        f"{stream}: counting what the test stream reads of the normalised tables",
        bench.folder / f"{key}.json",
        make,
        (normalised_step(bench, group_rows),),
    )


def read_of(folder: Path, texts: Sequence[str]) -> dict[str, Any]:
    """What joins read of the tables in a folder, as :func:`joins_step` has it."""
    scanned: Counter[str] = Counter(tids_scanned=0)
    whole: Counter[str] = Counter(tids_scanned=0)
    entries = [LogEntry(number, text) for number, text in enumerate(texts)]
    for table in RAW_TABLES:
        naming = [entry for entry in entries if f" {table} " in entry.sql]
        if naming:
            _count(folder / f"{table}.parquet", table, naming, scanned, whole)
    return {"evaluation": {"totals": dict(scanned)}, "full_scan": dict(whole)}


def _count(path: Path, table: str, entries: Sequence[LogEntry], scanned: Counter[str], whole: Counter[str]) -> None:
    """Add what some queries read of one table."""
    schema = schema_from(str(path))
    queries = analyze(entries, schema, table).queries
    groups = row_groups_of(parquet_files([str(path)], schema), schema, queries)
    for query in queries:
        scanned.update(_rows_and_cells(groups, query, skipping=True))
        whole.update(_rows_and_cells(groups, query, skipping=False))
    scanned["bytes_scanned"] += int(groups.read(queries).sum())
    whole["bytes_scanned"] += int(groups.full(queries).sum())


def _rows_and_cells(groups: RowGroups, query: Query, *, skipping: bool) -> dict[str, int]:
    rows = groups.statistics.rows
    if skipping:
        rows = rows[~cannot_match(query.filter.root, groups.statistics, None)]
    return {"rows_scanned": int(rows.sum()), "cells_scanned": int(rows.sum()) * len(query.columns)}
