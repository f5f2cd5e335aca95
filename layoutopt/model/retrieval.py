"""The retrieval path: the layout from which a query reads each column (Sun 2017, 5.6), and its cost.

Costs in cells and tids follow 4.4.2 and 5.4.3. A cell is one value of one row. A tid is charged like a cell for every
row read from a layout, but only where a query reads several layouts: Equation 4.2. (Equation 5.1 charges tids for a
single layout too, where nothing needs them.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Places
from layoutopt.model.layout import Layout

# The most paths that are compared exhaustively; for more the greedy path is taken.
MOST_PATHS = 4096


@dataclass(frozen=True)
class Read:
    """The rows that a query can't skip in a layout (``r`` in Equation 4.1, ``rr`` in 5.1), and its columns there."""

    rows: int
    columns: int


def cells_scanned(reads: Iterable[Read]) -> int:
    """Return the cells that a query scans, over all layouts (Equation 4.1).

    >>> cells_scanned([Read(rows=100, columns=2), Read(rows=40, columns=1)])
    240
    """
    return sum(read.rows * read.columns for read in reads)


def tids_scanned(reads: Sequence[Read]) -> int:
    """Return the tids that a query scans: those of all rows read, none for a single layout (4.2).

    >>> tids_scanned([Read(rows=100, columns=2), Read(rows=40, columns=1)]), tids_scanned([Read(rows=100, columns=2)])
    (140, 0)
    """
    return sum(read.rows for read in reads) if len(reads) > 1 else 0


def query_cost(reads: Sequence[Read]) -> int:
    """Return the cost of Equation 4.3; with overlapping layouts of 5.1, but without tids for a single layout."""
    return cells_scanned(reads) + tids_scanned(reads)


@dataclass(frozen=True)
class RetrievalPath:
    """The layouts that a query reads, by their indexes, ascending, each with its columns in the query's order.

    A query that only counts rows has no columns.
    """

    columns: tuple[tuple[int, tuple[str, ...]], ...]

    @property
    def layouts(self) -> tuple[int, ...]:
        """Return the layouts read, ascending."""
        return tuple(layout for layout, _ in self.columns)

    def reads(self, rows_per_layout: Sequence[int]) -> tuple[Read, ...]:
        """Return the rows and columns read of each layout, for :func:`query_cost`."""
        return tuple(Read(rows_per_layout[layout], len(columns)) for layout, columns in self.columns)


def choose_path(
    query_columns: Sequence[str],
    layouts: Sequence[Layout],
    rows_per_layout: Sequence[int],
    eligible: Mapping[str, Sequence[int]],
) -> RetrievalPath:
    """Return the greedy path: for each column the eligible layout with the fewest rows to read (5.6.3).

    It reads the fewest cells, and at most twice the optimum of cells and tids. Ties go to the layout that serves most
    of the query's columns, so that fewer layouts are read, then to the first. Disjoint column groups have only one
    path.

    Args:
        query_columns: the columns that the query reads; none for ``count(*)``, which reads a layout with master
            columns.
        layouts: of the scheme.
        rows_per_layout: the rows that the query can't skip in each layout, measured or estimated.
        eligible: for each column the layouts that may serve it to this query (5.6.1), at least one.
    """
    if not query_columns:
        complete = [index for index, layout in enumerate(layouts) if layout.master]
        if not complete:
            raise ValueError("no layout has master columns, so none has every row; give the layouts of a whole scheme")
        return RetrievalPath(((min(complete, key=lambda index: (rows_per_layout[index], index)), ()),))
    for column in query_columns:
        if not eligible.get(column):
            raise ValueError(f"no layout is eligible for column {column!r}; every column must be master in some layout")
    if _has_one_path(query_columns, eligible):
        chosen = [eligible[column][0] for column in query_columns]
    else:
        holds = np.array([[index in eligible[column] for column in query_columns] for index in range(len(layouts))])
        rows = np.array(rows_per_layout, dtype=np.float64)
        chosen = greedy_layouts(rows[:, None], holds)[:, 0].tolist()
    columns_by_layout: dict[int, list[str]] = {}
    for column, layout in zip(query_columns, chosen, strict=True):
        columns_by_layout.setdefault(layout, []).append(column)
    return RetrievalPath(tuple((layout, tuple(columns)) for layout, columns in sorted(columns_by_layout.items())))


def _has_one_path(query_columns: Sequence[str], eligible: Mapping[str, Sequence[int]]) -> bool:
    return all(len(eligible[column]) == 1 for column in query_columns)


def only_path(
    query_columns: Sequence[str], layouts: Sequence[Layout], eligible: Mapping[str, Sequence[int]]
) -> RetrievalPath | None:
    """Return the path of :func:`cheapest_path` if it is the same whatever rows are read, else None.

    That is so for the disjoint column groups of most schemes, and wherever there is a single layout.
    """
    if not _has_one_path(query_columns, eligible) or (not query_columns and len(layouts) > 1):
        return None
    return choose_path(query_columns, layouts, [0] * len(layouts), eligible)


def greedy_layouts(rows: Floats, holds: Bits) -> Places:
    """Return the greedy choice of :func:`choose_path` for many queries of the same columns, for scans and the search.

    Args:
        rows: the rows a query reads of each layout, ``float64[layouts, queries]``; infinite for ineligible layouts.
        holds: which layout has which of the queries' columns, ``bool[layouts, columns]``.

    Returns:
        The layout that each column is read from, ``intp[columns, queries]``; arbitrary where no layout has the column.

    >>> greedy_layouts(np.array([[9.0, 5.0], [5.0, 5.0]]), np.array([[True, True], [False, True]])).tolist()
    [[0, 0], [1, 0]]
    """
    by_columns = np.argsort(-holds.sum(axis=1), kind="stable")  # of equally few rows the layout with most columns
    readable = np.where(holds[by_columns, :, None], rows[by_columns, None, :], np.inf)
    return np.asarray(by_columns[readable.argmin(axis=0)])


@dataclass(frozen=True)
class PathChoice:
    """The chosen path with its cells and tids (Equation 5.1, no tids where one layout is read), and its alternatives.

    Attributes:
        greedy: the greedy path's cost.
        other: the cheapest of the other paths with its cost; None if there is none, or too many to compare.
        compared: the number of compared paths.
        exhaustive: whether they include all that could be the cheapest.
    """

    path: RetrievalPath
    cost: float
    greedy: float
    other: tuple[RetrievalPath, float] | None
    compared: int
    exhaustive: bool = True


def cheapest_path(
    query_columns: Sequence[str],
    layouts: Sequence[Layout],
    rows_per_layout: Sequence[int],
    eligible: Mapping[str, Sequence[int]],
    most_paths: int = MOST_PATHS,
) -> PathChoice:
    """Return the cheapest path by brute force for at most ``most_paths`` paths, else the greedy one (5.6.3).

    On some cheapest path columns with the same eligible layouts are read from the same one, so other paths are left
    out. Ties go to the greedy path, then to the first. Beyond the limit the paths of a single layout are compared too.
    """
    greedy = choose_path(query_columns, layouts, rows_per_layout, eligible)
    greedy_cost = query_cost(greedy.reads(rows_per_layout))
    if _has_one_path(query_columns, eligible):
        return PathChoice(greedy, greedy_cost, greedy_cost, None, 1, most_paths > 0)
    column_classes: dict[tuple[int, ...], list[str]] = {}
    for column in query_columns:
        column_classes.setdefault(tuple(sorted(set(eligible[column]))), []).append(column)
    exhaustive = prod(map(len, column_classes)) <= most_paths
    paths = _list_paths(query_columns, column_classes, exhaustive)
    costs = {path: query_cost(path.reads(rows_per_layout)) for path in paths}
    costs.setdefault(greedy, greedy_cost)
    ranked = sorted(costs, key=lambda path: (costs[path], path != greedy, path.columns))
    other = (ranked[1], costs[ranked[1]]) if len(ranked) > 1 else None
    return PathChoice(ranked[0], costs[ranked[0]], greedy_cost, other, len(costs), exhaustive)


# Columns by the layouts that may serve them.
_ColumnClasses = Mapping[tuple[int, ...], Sequence[str]]


def _list_paths(columns: Sequence[str], column_classes: _ColumnClasses, exhaustive: bool) -> Iterator[RetrievalPath]:
    """Yield the paths to compare, each once: all, or those of a single layout."""
    order = {column: place for place, column in enumerate(columns)}
    common = set.intersection(*map(set, column_classes))
    choices = product(*column_classes) if exhaustive else ((layout,) * len(column_classes) for layout in sorted(common))
    for choice in choices:
        read: dict[int, list[str]] = {}
        for layout, class_columns in zip(choice, column_classes.values(), strict=True):
            read.setdefault(layout, []).extend(class_columns)
        yield RetrievalPath(
            tuple((layout, tuple(sorted(read[layout], key=order.__getitem__))) for layout in sorted(read))
        )
