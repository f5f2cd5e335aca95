"""From which layout a query reads each column: the retrieval path (Sun 2017, 5.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from layoutopt.model.cost import Read
from layoutopt.model.layout import Layout


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
        """What is read of each layout, for :func:`layoutopt.model.cost.query_cost`."""
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
    served = [sum(index in eligible.get(column, ()) for column in query_columns) for index in range(len(layouts))]
    chosen: dict[int, list[str]] = {}
    for column in query_columns:
        candidates = eligible.get(column, ())
        if not candidates:
            raise ValueError(f"no layout is eligible for column {column!r}; every column must be master in some layout")
        best = min(candidates, key=lambda index: (rows_per_layout[index], -served[index], index))
        chosen.setdefault(best, []).append(column)
    return RetrievalPath(tuple((layout, tuple(columns)) for layout, columns in sorted(chosen.items())))
