"""What readers of others read of a table's files: which files, and of these which row groups."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import duckdb
import numpy as np
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table import StaticTable, Table

from layoutopt.bench.files.asked import iceberg_filter
from layoutopt.model.arrays import Ints
from layoutopt.model.query import Query
from layoutopt.workload.served import said

_FORMAT: Final = ds.ParquetFileFormat()
_LAYOUTOPT: Final = "import sys; from layoutopt.cli.app import main; sys.exit(main())"


@dataclass(frozen=True)
class Reading:
    """What one query reads.

    Attributes:
        files: how many are opened.
        rows: of the row groups read.
        bytes: compressed, of the query's columns in these row groups; footers are left out.
        file_rows: of the files opened.
    """

    files: int = 0
    rows: int = 0
    bytes: int = 0
    file_rows: int = 0


@dataclass(frozen=True, eq=False)
class DataFile:
    """A file of Parquet, as Arrow's readers have it.

    Attributes:
        fragment: its footer is read once.
        rows: of each row group, int64[n].
        bytes: of each column's compressed chunks, int64[n].
    """

    fragment: Any
    rows: Ints
    bytes: Mapping[str, Ints]

    def groups(self, condition: Any) -> list[int]:
        """The row groups that Arrow's scanner reads for a filter: those that their minima and maxima leave."""
        left = self.fragment if condition is None else self.fragment.subset(condition)
        return [group.id for group in left.row_groups]

    def read(self, condition: Any, columns: Iterable[str]) -> Reading:
        """What Arrow's scanner reads of some columns for a filter."""
        groups = self.groups(condition)
        held = sum(int(self.bytes[name][groups].sum()) for name in columns)
        return Reading(1, int(self.rows[groups].sum()), held, int(self.rows.sum()))


@cache
def data_file(path: str) -> DataFile:
    """Open a file; each is opened once."""
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    chunks = [[group.column(i) for i in range(metadata.num_columns)] for group in groups]
    sizes: dict[str, Ints] = {}
    for of_column in zip(*chunks, strict=True):
        name = of_column[0].path_in_schema.partition(".")[0]
        held = np.array([chunk.total_compressed_size for chunk in of_column], dtype=np.int64)
        sizes[name] = sizes.get(name, 0) + held
    rows = np.array([group.num_rows for group in groups], dtype=np.int64)
    return DataFile(_FORMAT.make_fragment(path, LocalFileSystem()), rows, sizes)


def summed(readings: Iterable[Reading]) -> Reading:
    """Readings added up."""
    listed = list(readings)
    return Reading(*(sum(getattr(each, name) for each in listed) for name in Reading.__dataclass_fields__))


def by_iceberg(table: Table, queries: Sequence[Query]) -> list[Reading]:
    """What pyiceberg reads: the files that are planned, by whoever plans scans of the table, filtered by Arrow."""
    schema = table.schema()
    found = []
    for query in queries:
        asked = iceberg_filter(said(query.filter.root))
        tasks = table.scan(row_filter=asked, selected_fields=query.columns).plan_files()
        paths = sorted(_local(task.file.file_path) for task in tasks)
        condition = arrow_filter(asked, schema)
        found.append(summed(data_file(path).read(condition, query.columns) for path in paths))
    return found


def by_delta(location: Path, schema: IcebergSchema, queries: Sequence[Query]) -> list[Reading]:
    """What deltalake's data set reads, and with it DuckDB and Polars: by its log's statistics, then by footers."""
    table = DeltaTable(str(location))
    dataset = table.to_pyarrow_dataset()
    root = Path(unquote(table.table_uri.removeprefix("file://")))
    found = []
    for query in queries:
        condition = arrow_filter(iceberg_filter(said(query.filter.root)), schema)
        paths = sorted(fragment.path for fragment in dataset.get_fragments(filter=condition))
        read = [data_file(str(root / unquote(_local(path)))).read(condition, query.columns) for path in paths]
        found.append(summed(read))
    return found


def by_duckdb(paths: Sequence[str], texts: Sequence[str], view: str) -> list[dict[str, int]]:
    """What DuckDB says that it read of plain files: row groups of how many, and bytes once it knows the footers."""
    found = []
    with duckdb.connect() as connection:
        connection.execute("SET parquet_metadata_cache = true")
        listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
        connection.execute(f"CREATE VIEW {view} AS SELECT * FROM read_parquet([{listed}])")
        connection.execute(f"SELECT count(*) FROM {view}").fetchall()
        for text in texts:
            profile = connection.execute(f"EXPLAIN (ANALYZE, FORMAT json) {text}").fetchall()[0][1]
            found.append(_scanned(json.loads(profile)))
    return found


def _scanned(profile: Mapping[str, Any]) -> dict[str, int]:
    scans = [operator for operator in _operators(profile["operator"]) if "row_groups_scanned" in operator]
    return {
        "row_groups": sum(scan["row_groups_scanned"] for scan in scans),
        "of": sum(scan["total_row_groups_to_scan"] for scan in scans),
        "bytes": profile["io"]["total_bytes_read"],
    }


def _operators(listed: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for operator in listed:
        yield operator
        yield from _operators(operator.get("children", ()))


def arrow_filter(asked: Any, schema: IcebergSchema) -> Any:
    """A filter of Iceberg's as pyiceberg gives it to Arrow; None for one that is always TRUE."""
    bound = bind(schema, asked, case_sensitive=True)
    return None if str(bound) == "AlwaysTrue()" else expression_to_pyarrow(bound, schema)


def static_table(location: Path) -> StaticTable:
    """A published table of Iceberg's, whose scans pyiceberg plans itself by manifests."""
    return StaticTable.from_metadata(str(location))


@contextmanager
def served_at(root: Path) -> Iterator[str]:
    """The URL of `layoutopt serve` with one table, ``default.t``; it runs while the block does."""
    command = [sys.executable, "-c", _LAYOUTOPT, "serve", f"t={root}", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield json.loads(_document(server.stdout))["url"]
        finally:
            server.terminate()


@contextmanager
def served_table(root: Path) -> Iterator[Table]:
    """A table of ours as stock pyiceberg has it through `layoutopt serve`."""
    with served_at(root) as url:
        yield load_catalog("served", type="rest", uri=url).load_table("default.t")


def _document(lines: Iterable[str]) -> str:
    """The first JSON document of a stream of lines."""
    text = ""
    for line in lines:
        text += line
        try:
            json.loads(text)
        except ValueError:
            continue
        break
    return text


def _local(path: str) -> str:
    return path.removeprefix("file://")
