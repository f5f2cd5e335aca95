"""Splits of files that tests have written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from layoutopt.catalog.deletion_vectors import pack_positions
from layoutopt.external.snapshot import SnapshotFile
from layoutopt.scan.segments import FileRead
from layoutopt.sources.split import FileSplit


def split_of(path: Path, low: int = 0, groups: Sequence[int] | None = None, deleted: Sequence[int] = ()) -> FileSplit:
    """A split of a file's row groups, without deleted rows (places in the file)."""
    footer = pq.read_metadata(path)
    counts = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
    bitmaps = []
    for start, count in zip(np.cumsum([0, *counts]).tolist(), counts, strict=False):
        places = [place - start for place in deleted if start <= place < start + count]
        bitmaps.append(pack_positions(np.array(places)) if places else None)
    read = FileRead(str(path), tuple(range(len(counts))), tuple(counts), deleted=tuple(bitmaps) if any(bitmaps) else ())
    names = tuple(footer.schema.to_arrow_schema().names)
    return FileSplit(SnapshotFile(str(path), names), read if groups is None else read.only(groups), low, 1)
