"""Which entries of a partition are joined when rows come to it: few remain, and no row is written often.

Rows of a small entry cost queries more than those of a large one: the fewer rows, the less alike they are within
blocks, and the worse these compress. Joining is as size-tiered log-structured merge trees do it: an entry waits until
those that came later are together several times as large, and is then joined with all of them at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from layoutopt.catalog.deletion_vectors import Marks
from layoutopt.catalog.snapshot import PartitionEntry, Snapshot, check_is_table, latest_snapshot
from layoutopt.catalog.storage.filesystem import TableFiles

JOIN: Final = "join"
"""The operation of a snapshot in which entries were joined."""

SMALLER: Final = 0.36
"""An entry with at most this share of the rows that came later is joined: four of one size, if they differ a little.

A larger share joins sooner, so that queries read less and more is written; docs/performance.md tells what was measured.
"""


def joined_from(rows: Sequence[int]) -> int | None:
    """The first of the entries that are joined with all later ones; None where none are.

    The oldest, what the partition was loaded with, stays as it is. Afterwards each of the others, but the last, has
    over :data:`SMALLER` times the rows of all later ones together. So of ``n`` appends of one size at most
    3 log(n) + 1 entries are left, to the base 4, and a row is written again at most log(n) times.

    Args:
        rows: of the entries, in the order in which they came.

    >>> joined_from([100, 1, 1, 1]), joined_from([100, 1, 1, 1, 1]), joined_from([100, 4, 4, 4, 1, 1, 1, 1])
    (None, 1, 1)
    """
    later = rows[-1] if rows else 0
    first = None
    for place in range(len(rows) - 2, 0, -1):
        if rows[place] <= SMALLER * later:
            first = place
        later += rows[place]
    return first


def has_small_entries(path: str, keys: Collection[str]) -> bool:
    """Whether some partitions of a table have entries to be joined: mostly not, so no plan and no block is read.

    Raises:
        NotATableError: the path holds something else, or nothing.
    """
    files = TableFiles(path)
    check_is_table(files)
    return bool(small_entries(latest_snapshot(files), keys))


def in_place_of(entries: Collection[PartitionEntry]) -> Marks:
    """What a commit says of entries whose rows it has anew."""
    return Marks({}, {}, replaced=frozenset(entry.name for entry in entries))


def small_entries(snapshot: Snapshot | None, keys: Collection[str]) -> list[PartitionEntry]:
    """The entries of some partitions that are to be joined."""
    found: list[PartitionEntry] = []
    for key in keys:
        entries = () if snapshot is None else snapshot.by_key.get(key, ())
        first = joined_from([entry.live_rows for entry in entries])
        found += () if first is None else entries[first:]
    return found
