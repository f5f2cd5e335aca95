"""What no grouping of columns into layouts can beat."""

from __future__ import annotations

import numpy as np

from layoutopt.search.problem import Problem


def cells_lower_bound(problem: Problem, min_rows: int = 0) -> float:
    """The least that the queries read of the samples, in the problem's unit, whatever the groups and blocks.

    A query reads its columns of every row that its skip sets don't exclude, and of a whole block where there is such a
    row; tids cost nothing here. A remainder below ``min_rows`` is not considered.

    Args:
        problem: the problem.
        min_rows: the smallest block, of the table; 0 where copies may be smaller than any block.
    """
    a_row = problem.reads @ problem.unit.cell
    total = 0.0
    for sample, needed in zip(problem.samples, problem.least_rows, strict=True):
        # As blocks of a sample are: whole rows of it.
        block = min(sample.rows, round(min_rows / sample.scale) * sample.scale)
        read = np.where(needed > 0, np.maximum(needed, block), 0.0)
        total += float((sample.query_weights * read * a_row).sum())
    return total
