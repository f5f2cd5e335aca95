"""Proof that an engine did not read a block: its bytes are gone, and the answer is still right."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from layoutopt.model.schema import TID
from layoutopt.scan.table import Scan


def without_bytes_of_other_blocks(scan: Scan) -> int:
    """Destroys the column chunks of every row group that a scan skips; returns how many. Footers stay as they are."""
    destroyed = 0
    for read in scan.reads:
        for pruned in read.pruned:
            blocks = pruned.source.blocks
            for index in np.flatnonzero(~pruned.read).tolist():
                path = Path(scan.table.catalog.files.full_path(blocks.files[blocks.file[index]]))
                destroy(path, int(blocks.row_group[index]))
                destroyed += 1
    return destroyed


def without_values_of_rows(scan: Scan, layout: int, but: Collection[int]) -> int:
    """Destroys the values, not the tids, of row groups of a layout that hold none of some tids; returns how many."""
    destroyed = 0
    for path in map(Path, scan.table.files(layout)):
        tids = [
            pq.ParquetFile(path).read_row_group(i, columns=[TID]) for i in range(pq.read_metadata(path).num_row_groups)
        ]
        for group, rows in enumerate(tids):
            if not set(but) & set(rows[TID].to_pylist()):
                destroy(path, group, spared=(TID,))
                destroyed += 1
    return destroyed


def destroy(path: Path, row_group: int, spared: Collection[str] = ()) -> None:
    """Destroys the column chunks of a row group but for some columns'; the footer stays as it is."""
    group = pq.read_metadata(path).row_group(row_group)
    with path.open("r+b") as file:
        for place in range(group.num_columns):
            chunk = group.column(place)
            if chunk.path_in_schema in spared:
                continue
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            file.seek(start)
            file.write(b"\xff" * chunk.total_compressed_size)
