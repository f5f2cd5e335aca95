"""From which layout a query reads each column: the retrieval path (Sun 2017, 5.6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Places
from layoutopt.model.engine_costs import Read, query_cost
from layoutopt.model.layout import Layout

MOST_PATHS = 4096
"""Paths that are all compared; where there are more, the greedy one is taken."""


@dataclass(frozen=True)
class RetrievalPath:
    """An assignment of a query's columns to layouts.

    Attributes:
        columns: of each layout read, by its index in the scheme and in that order, the columns read from it in the
            order of the query; no columns for a query that only counts rows.
    """

    columns: tuple[tuple[int, tuple[str, ...]], ...]

    @property
    def layouts(self) -> tuple[int, ...]:
        """The layouts read, ascending."""
        return tuple(layout for layout, _ in self.columns)

    def reads(self, rows_per_layout: Sequence[int]) -> tuple[Read, ...]:
        """What is read of each layout, for :func:`layoutopt.model.engine_costs.query_cost`."""
        return tuple(Read(rows_per_layout[layout], len(columns)) for layout, columns in self.columns)


def choose_path(
    query_columns: Sequence[str],
    layouts: Sequence[Layout],
    rows_per_layout: Sequence[int],
    eligible: Mapping[str, Sequence[int]],
) -> RetrievalPath:
    """For each column the eligible layout with the fewest rows to read (5.6.3, greedy).

    The fewest cells are read, and cells and tids together are at most twice the optimum. Of layouts with equally few
    rows, the one that serves most of the query's columns is taken, so that fewer layouts are read; then the first.
    Where column groups are disjoint there is no choice, and the path is the only one.

    Args:
        query_columns: what the query reads; may be empty (``count(*)``).
        layouts: of the scheme. A query without columns reads one that has every row, that is, one with master columns.
        rows_per_layout: the rows that the query can't skip in each layout, measured or estimated.
        eligible: for each column the layouts that may serve it to this query (5.6.1).

    Raises:
        ValueError: no layout is eligible for a column, or none has every row.
    """
    if not query_columns:
        whole = [index for index, layout in enumerate(layouts) if layout.master]
        if not whole:
            raise ValueError("no layout has master columns, so none has every row; give the layouts of a whole scheme")
        return RetrievalPath(((min(whole, key=lambda index: (rows_per_layout[index], index)), ()),))
    for column in query_columns:
        if not eligible.get(column):
            raise ValueError(f"no layout is eligible for column {column!r}; every column must be master in some layout")
    holds = np.array([[index in eligible[column] for column in query_columns] for index in range(len(layouts))])
    rows = np.array(rows_per_layout, dtype=np.float64)
    chosen: dict[int, list[str]] = {}
    for column, (layout,) in zip(query_columns, greedy_layouts(rows[:, None], holds).tolist(), strict=True):
        chosen.setdefault(layout, []).append(column)
    return RetrievalPath(tuple((layout, tuple(columns)) for layout, columns in sorted(chosen.items())))


def greedy_layouts(rows: Floats, holds: Bits) -> Places:
    """The greedy choice of :func:`choose_path` for many queries of the same columns, by which scans go.

    The search prices paths by the same rule.

    Args:
        rows: what a query reads of each layout, ``float64[layouts, queries]``; infinite where it may not read it.
        holds: which layout has which of the queries' columns, ``bool[layouts, columns]``.

    Returns:
        The layout that each column is read from, ``intp[columns, queries]``; any where no layout has the column.

    Of two layouts the second has fewer rows to read for the first query, and as many for the second query:

    >>> greedy_layouts(np.array([[9.0, 5.0], [5.0, 5.0]]), np.array([[True, True], [False, True]])).tolist()
    [[0, 0], [1, 0]]
    """
    by_columns = np.argsort(-holds.sum(axis=1), kind="stable")  # of equally few rows the layout with most columns
    readable = np.where(holds[by_columns, :, None], rows[by_columns, None, :], np.inf)
    return np.asarray(by_columns[readable.argmin(axis=0)])


@dataclass(frozen=True)
class PathChoice:
    """The path taken, and what it was compared with.

    Attributes:
        path: the path taken.
        cost: its cells and tids (Equation 5.1, no tids where one layout is read).
        greedy: the greedy path's cost.
        other: the cheapest of the other paths with its cost; None if there is none, or too many to look at.
        compared: how many paths were compared.
        exhaustive: whether those were all that could be the cheapest.
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
    """The cheapest path by brute force where the paths are few, else the greedy one (5.6.3).

    Columns with the same eligible layouts are read from the same one on some cheapest path, so paths that part them
    are left out. Of equally cheap paths the greedy one is taken, then the first.

    Args:
        query_columns, layouts, rows_per_layout, eligible: as for :func:`choose_path`.
        most_paths: with more paths, only the greedy one and those of a single layout are compared.

    Raises:
        ValueError: as :func:`choose_path`.
    """
    greedy = choose_path(query_columns, layouts, rows_per_layout, eligible)
    alike = _alike(query_columns, eligible)
    exhaustive = prod(map(len, alike)) <= most_paths
    found = {path: query_cost(path.reads(rows_per_layout)) for path in _paths(query_columns, alike, exhaustive)}
    greedy_cost = query_cost(greedy.reads(rows_per_layout))
    found.setdefault(greedy, greedy_cost)
    ranked = sorted(found, key=lambda path: (found[path], path != greedy, path.columns))
    other = (ranked[1], found[ranked[1]]) if len(ranked) > 1 else None
    return PathChoice(ranked[0], found[ranked[0]], greedy_cost, other, len(found), exhaustive)


_Alike = Mapping[tuple[int, ...], Sequence[str]]
"""Columns by the layouts that may serve them."""


def _alike(columns: Sequence[str], eligible: Mapping[str, Sequence[int]]) -> _Alike:
    alike: dict[tuple[int, ...], list[str]] = {}
    for column in columns:
        alike.setdefault(tuple(sorted(set(eligible[column]))), []).append(column)
    return alike


def _paths(columns: Sequence[str], alike: _Alike, exhaustive: bool) -> Iterator[RetrievalPath]:
    """The paths to compare, each once: all, or those of a single layout."""
    order = {column: place for place, column in enumerate(columns)}
    every = set.intersection(*map(set, alike)) if alike else set()
    choices = product(*alike) if exhaustive else ((layout,) * len(alike) for layout in sorted(every))
    for choice in choices if alike else ():
        read: dict[int, list[str]] = {}
        for layout, of_class in zip(choice, alike.values(), strict=True):
            read.setdefault(layout, []).extend(of_class)
        yield RetrievalPath(
            tuple((layout, tuple(sorted(read[layout], key=order.__getitem__))) for layout in sorted(read))
        )
