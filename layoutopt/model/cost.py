"""What a query reads and what a scheme stores, in cells and tids (Sun 2017, 4.4.2 and 5.4.3).

A cell is one value of one row. A tid is charged like a cell, for every row read from a layout, but only where a query
reads several layouts: Equation 4.2. (Equation 5.1 charges tids for a single layout too, where nothing needs them.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Read:
    """What a query reads of one layout or column group.

    Attributes:
        rows: that can't be skipped there: ``r`` in Equation 4.1, ``rr`` in 5.1.
        columns: how many of the query's columns are read there.
    """

    rows: int
    columns: int


def cells_scanned(reads: Iterable[Read]) -> int:
    """Equation 4.1: the cells that a query scans, over all layouts.

    >>> cells_scanned([Read(rows=100, columns=2), Read(rows=40, columns=1)])
    240
    """
    return sum(read.rows * read.columns for read in reads)


def tids_scanned(reads: Sequence[Read]) -> int:
    """The tids that a query scans: those of all rows read, but none where it reads a single layout (4.2).

    >>> tids_scanned([Read(rows=100, columns=2), Read(rows=40, columns=1)]), tids_scanned([Read(rows=100, columns=2)])
    (140, 0)
    """
    return sum(read.rows for read in reads) if len(reads) > 1 else 0


def query_cost(reads: Sequence[Read]) -> int:
    """Equation 4.3; with layouts that overlap Equation 5.1, but for tids where a single layout is read.

    Sorting by tid costs nothing here, since rows are scattered to their places by tid.
    """
    return cells_scanned(reads) + tids_scanned(reads)
