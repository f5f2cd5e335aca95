"""Some of a table's files that stand for all: whole segments of a load, spread evenly along the table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from layoutopt.model.sequences import spread
from layoutopt.sources.snapshot import SnapshotFile

MOST_RUNS: Final = 2
"""Of a table without partitions so many segments are taken."""
MOST_PARTITIONS: Final = 6
"""Of a table with partitions so many, of each the files of one segment."""


def some_files(
    files: Sequence[SnapshotFile], rows: float, partition_by: str | None, segment_rows: int
) -> tuple[SnapshotFile, ...]:
    """Files that hold whole segments; all where they are few, or where partitions don't lie in files of their own.

    Args:
        files: the table's, in the order in which they are read.
        rows: how many rows a file has on average.
        partition_by: the column whose every value is a partition, None for none.
        segment_rows: the most rows of a segment.
    """
    length = max(1, math.ceil(segment_rows / max(1.0, rows)))
    if partition_by is None:
        return _runs(files, length, MOST_RUNS)
    if any(partition_by not in file.constants for file in files):
        return tuple(files)
    by_value: dict[object, list[SnapshotFile]] = {}
    for file in files:
        by_value.setdefault(file.constants[partition_by], []).append(file)
    in_order = sorted(by_value, key=lambda value: (value is not None, str(value)))
    return tuple(file for value in spread(in_order, MOST_PARTITIONS) for file in _runs(by_value[value], length, 1))


def _runs(files: Sequence[SnapshotFile], length: int, count: int) -> tuple[SnapshotFile, ...]:
    """So many runs of neighbouring files, spread evenly; all files where they are no more."""
    if len(files) <= length * count:
        return tuple(files)
    starts = [round((i + 0.5) * len(files) / count - length / 2) for i in range(count)]
    return tuple(file for start in starts for file in files[start : start + length])
