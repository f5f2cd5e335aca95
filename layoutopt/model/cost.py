"""What a query reads and what a scheme stores, in cells and tids (Sun 2017, 4.4.2 and 5.4.3).

A cell is one value of one row. A tid is charged like a cell, for every row read from a layout, but only where a query
reads several layouts: Equation 4.2. (Equation 5.1 charges tids for a single layout too, where nothing needs them.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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


def cells(rows: int, columns: int) -> int:
    """The cells in some rows of some columns."""
    return rows * columns


def cells_scanned(reads: Iterable[Read]) -> int:
    """Equation 4.1: the cells that a query scans, over all layouts.

    >>> cells_scanned([Read(rows=100, columns=2), Read(rows=40, columns=1)])
    240
    """
    return sum(cells(read.rows, read.columns) for read in reads)


def tids_scanned(reads: Sequence[Read]) -> int:
    """The tids that a query scans: those of all rows read, but none where it reads a single layout (4.2).

    >>> tids_scanned([Read(rows=100, columns=2), Read(rows=40, columns=1)]), tids_scanned([Read(rows=100, columns=2)])
    (140, 0)
    """
    return sum(read.rows for read in reads) if len(reads) > 1 else 0


def no_sort(rows: int) -> float:
    """What sorting by tid costs here: nothing, since rows are scattered to their places by tid."""
    return 0.0


def overhead(reads: Sequence[Read], sort: Callable[[int], float] = no_sort) -> float:
    """Equation 4.2: what putting rows together again costs, in cells.

    Args:
        reads: of one query.
        sort: the cost of sorting so many values by tid.
    """
    return tids_scanned(reads) + (sum(sort(read.rows) for read in reads) if len(reads) > 1 else 0.0)


def query_cost(reads: Sequence[Read], sort: Callable[[int], float] = no_sort) -> float:
    """Equation 4.3; with layouts that overlap Equation 5.1, but for tids where a single layout is read."""
    return cells_scanned(reads) + overhead(reads, sort)


def workload_cost(queries: Iterable[tuple[Sequence[Read], float]]) -> float:
    """Equation 4.4: the cost of all queries, each given as its reads and its weight."""
    return sum(weight * query_cost(reads) for reads, weight in queries)


@dataclass(frozen=True)
class Stored:
    """What one layout stores of some rows (Table 5.1).

    Attributes:
        rows: in R_i, with all columns of the layout.
        columns: how many columns the layout has, C_i.
        other_rows: the rows outside R_i.
        master_columns: how many columns hold those too, M_i.
    """

    rows: int
    columns: int
    other_rows: int = 0
    master_columns: int = 0


def storage_cost(layouts: Iterable[Stored], rows: int, columns: int) -> float:
    """Equation 5.2: the cells stored over the cells of the source; tids are not counted.

    Args:
        layouts: of the scheme.
        rows: of the source.
        columns: of the source.

    Raises:
        ValueError: the source has no cells.

    >>> storage_cost([Stored(4, 3), Stored(2, 2, other_rows=2, master_columns=1)], rows=4, columns=4)
    1.125
    """
    if rows * columns == 0:
        raise ValueError(
            f"a source of {rows} rows and {columns} columns has no cells to compare with; give one that has"
        )
    stored = sum(
        cells(layout.rows, layout.columns) + cells(layout.other_rows, layout.master_columns) for layout in layouts
    )
    return stored / (rows * columns)
