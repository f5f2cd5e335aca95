"""Folders of Parquet as somebody else writes them, and what a stock pyiceberg reads of them through the server."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import Table

BY = ("day", "p")
"""Columns that the folders say, in their order."""


def write_by_folders(root: Path, rows: pa.Table, name: str) -> None:
    """Writes a file into each of the folders that rows belong to."""
    wanted: dict[str, list[int]] = {}
    for place, row in enumerate(rows.select(list(BY)).to_pylist()):
        wanted.setdefault("/".join(f"{column}={_as_folder(row[column])}" for column in BY), []).append(place)
    for folder, places in wanted.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        part = rows.take(places).drop_columns(list(BY))
        pq.write_table(part, root / folder / f"{name}.parquet", row_group_size=4)


def _as_folder(value: Any) -> str:
    if value is None:
        return "__HIVE_DEFAULT_PARTITION__"
    return value.isoformat() if isinstance(value, dt.date) else quote(str(value), safe="")


def unskipped(table: Table, filter: Any, tasks: Sequence[Any]) -> list[dict[str, Any]]:
    """What the client makes of a filter when it reads all files."""
    scan = table.scan(row_filter=filter)
    reader = ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter)
    return in_order(reader.to_table(tasks))


def in_order(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows by their ids, with values that can be compared."""
    found = [{name: _plain(value) for name, value in row.items()} for row in rows.to_pylist()]
    return sorted(found, key=lambda row: row["id"])


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return value
