"""Folders of Parquet as somebody else writes them, and indexes of these."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.external.listing import canonical_name
from layoutopt.external.refresh import RefreshReport, refresh
from layoutopt.indexes.choosing import parse_indexes
from layoutopt.scan.table import Table, open_table

INDEXES = ("id:bloom", "kind:value-list", "lower(kind):ngrams", "price:gap-list", "day:hybrid", "score:bloom")


def write(path: Path, rows: pa.Table, row_group_size: int = 10, **how: Any) -> None:
    """Writes a file, in its folder, over what is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, row_group_size=row_group_size, **how)


def index(folder: Path, into: Path, indexes: Sequence[str] | None = INDEXES, **how: Any) -> RefreshReport:
    """Indexes a source under the name t; None brings up to date what there is."""
    choose = None if indexes is None else lambda schema, trial: parse_indexes(indexes, schema)
    source = canonical_name(str(folder))
    return refresh(str(into), source, None if indexes is None else "t", choose, **how)


def opened(into: Path) -> Table:
    """The source as it is now."""
    return open_table(str(into))


def blocks_read(table: Table, sql: str) -> tuple[int, int]:
    """Of so many row groups, so many that a query reads."""
    (read,) = table.scan(sql).explain().reads
    return read.total.blocks, read.read.blocks
