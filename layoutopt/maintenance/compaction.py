"""Choose the entries of a partition to compact after an append, so that few remain and rows are seldom rewritten.

Small entries cost queries more per row: their blocks hold less similar rows and compress worse. Compaction works as in
size-tiered log-structured merge trees: an entry waits until the later entries together are several times as large, and
is then compacted with all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from layoutopt.catalog.deletion_vectors import Marks
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.snapshot import Snapshot, latest_snapshot
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table_root import check_is_table

# The operation of a snapshot that compacts entries.
COMPACTION: Final = "join"
# An entry with at most this share of the later rows is compacted: four entries of about one size. A larger share
# compacts sooner, so that queries read less and more is written; docs/performance.md has the measurements.
SMALL_SHARE: Final = 0.36


def first_to_join(rows: Sequence[int]) -> int | None:
    """Return the index of the entry to compact with all later ones; None if there is nothing to compact.

    The first entry, of the initial load, is never compacted. Afterwards each other entry but the last has over
    :data:`SMALL_SHARE` times the rows of all later ones. So ``n`` equal appends leave at most 3 log4(n) + 1 entries,
    and rewrite a row at most log4(n) times.

    Args:
        rows: the rows of the entries, oldest first.

    >>> first_to_join([100, 1, 1, 1]), first_to_join([100, 1, 1, 1, 1]), first_to_join([100, 4, 4, 4, 1, 1, 1, 1])
    (None, 1, 1)
    """
    later = rows[-1] if rows else 0
    first = None
    for index in range(len(rows) - 2, 0, -1):
        if rows[index] <= SMALL_SHARE * later:
            first = index
        later += rows[index]
    return first


def has_small_entries(path: str, keys: Collection[str]) -> bool:
    """Return whether some partitions of a table have entries to compact; reads no plan and no blocks file.

    Raises:
        NotATableError: there is no table at the path.
    """
    files = TableFiles(path)
    check_is_table(files)
    return bool(find_small_entries(latest_snapshot(files), keys))


def mark_replaced(entries: Collection[PartitionEntry]) -> Marks:
    """Return the marks of a commit that replaces some entries."""
    return Marks({}, {}, replaced=frozenset(entry.name for entry in entries))


def find_small_entries(snapshot: Snapshot | None, keys: Collection[str]) -> list[PartitionEntry]:
    """Return the entries of some partitions that are to be compacted."""
    small: list[PartitionEntry] = []
    for key in keys:
        entries = () if snapshot is None else snapshot.by_key.get(key, ())
        first = first_to_join([entry.live_rows for entry in entries])
        small += () if first is None else entries[first:]
    return small
