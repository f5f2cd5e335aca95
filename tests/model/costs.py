"""The thesis's equations of cost as they stand there: what the search's faster sums are compared with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from layoutopt.model.retrieval import Read, query_cost


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
    stored = sum(layout.rows * layout.columns + layout.other_rows * layout.master_columns for layout in layouts)
    return stored / (rows * columns)
