"""Column grouping: which columns are blocked together (Sun 2017, 4.4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layoutopt.model.arrays import Bits, Floats
from layoutopt.search.problem import Problem, Unit
from layoutopt.search.rows import RowsRead

Group = frozenset[int]
"""Column numbers."""


@dataclass(frozen=True)
class Grouping:
    """A column grouping scheme with its objective: cells and tids of the workload, in the problem's unit (Eq. 4.4)."""

    groups: tuple[Group, ...]
    cost: float


def served_by(problem: Problem, group: Group) -> Bits:
    """W^G: the queries that read a column of the group, bool (queries,)."""
    return np.asarray(np.any(problem.reads[:, sorted(group)], axis=1))


def cost_of(problem: Problem, groups: tuple[Group, ...], rows_read: RowsRead) -> float:
    """COST(W, G) of Eq. 4.1 - 4.4: cells, and tids where a query reads several groups.

    Sorting costs nothing: tids are dense, so rows are put in place by position.
    """
    read, of_row = _prices(problem, groups)
    return sum(_cost(problem, price, rows_read(served)) for price, served in zip(of_row, read, strict=True))


def full_scan(problem: Problem, unit: Unit | None = None) -> float:
    """What the workload costs where nothing is skipped, in this unit or the problem's: all rows read, and no tids."""
    rows = np.array([sample.rows for sample in problem.samples], dtype=np.float64)
    return float(rows @ problem.weights @ (problem.reads @ (unit or problem.unit).cell))


def _prices(problem: Problem, groups: tuple[Group, ...]) -> tuple[Bits, Floats]:
    """Per group and query: whether the query reads it, and what a row costs then; shape (groups, queries)."""
    cells = np.stack([problem.reads[:, sorted(g)] @ problem.unit.cell[sorted(g)] for g in groups])
    read = np.stack([served_by(problem, g) for g in groups])
    return read, cells + problem.unit.tid * (read & (read.sum(axis=0) > 1))


def _cost(problem: Problem, price: Floats, rows: Floats) -> float:
    return float((problem.weights * rows * price).sum())


def column_classes(problem: Problem) -> tuple[Group, ...]:
    """Columns that the same queries read, together: no scheme gains by separating them."""
    by_readers: dict[bytes, set[int]] = {}
    for column in range(len(problem.columns)):
        by_readers.setdefault(np.packbits(problem.reads[:, column]).tobytes(), set()).add(column)
    return tuple(sorted((frozenset(group) for group in by_readers.values()), key=min))


def cost_unless_above(
    problem: Problem, groups: tuple[Group, ...], exact: RowsRead, floor: Floats, limit: float
) -> float | None:
    """The objective, or None once what is known of it is above a limit: then not all groups are computed.

    Args:
        problem, groups: the scheme.
        exact: the rows read of a group.
        floor: rows that every group makes a query read at least, ``float64[samples, queries]``.
        limit: of the objective.
    """
    read, of_row = _prices(problem, groups)
    costs = np.array([_cost(problem, price, floor * served) for price, served in zip(of_row, read, strict=True)])
    for g in np.argsort(-costs, kind="stable").tolist():
        costs[g] = _cost(problem, of_row[g], exact(read[g]))
        if costs.sum() > limit:
            return None
    return float(costs.sum())
