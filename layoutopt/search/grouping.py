"""Column grouping: which columns are blocked together (Sun 2017, 4.4)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from layoutopt.search.problem import Bools, Floats, Problem
from layoutopt.search.rows import RowsRead

Group = frozenset[int]
"""Column numbers."""


@dataclass(frozen=True)
class Grouping:
    """A column grouping scheme with its objective: cells and tids of the workload, in the problem's unit (Eq. 4.4)."""

    groups: tuple[Group, ...]
    cost: float


def served_by(problem: Problem, group: Group) -> Bools:
    """W^G: the queries that read a column of the group, bool (queries,)."""
    served: Bools = np.any(problem.reads[:, sorted(group)], axis=1)
    return served


def cost_of(problem: Problem, groups: tuple[Group, ...], rows_read: RowsRead) -> float:
    """COST(W, G) of Eq. 4.1 - 4.4: cells, and tids where a query reads several groups.

    Sorting costs nothing: tids are dense, so rows are put in place by position.
    """
    rows = [rows_read(served_by(problem, group)) for group in groups]
    return _cost(problem, *_read_by_group(problem, groups), rows)


def _read_by_group(problem: Problem, groups: tuple[Group, ...]) -> tuple[Floats, Bools]:
    """Per group and query: the cost of a row's cells, and whether the query reads it; shape (groups, queries)."""
    cells = np.stack([problem.reads[:, sorted(g)] @ problem.unit.cell[sorted(g)] for g in groups])
    return cells, np.stack([served_by(problem, g) for g in groups])


def _cost(problem: Problem, cells: Floats, read: Bools, rows: list[Floats]) -> float:
    needs_tids = read.sum(axis=0) > 1
    total = 0.0
    for g, group_rows in enumerate(rows):
        a_row = cells[g] + problem.unit.tid * (read[g] & needs_tids)
        total += float((problem.weights * group_rows * a_row).sum())
    return total


def column_classes(problem: Problem) -> tuple[Group, ...]:
    """Columns that the same queries read, together: no scheme gains by separating them."""
    by_readers: dict[bytes, set[int]] = {}
    for column in range(len(problem.columns)):
        by_readers.setdefault(np.packbits(problem.reads[:, column]).tobytes(), set()).add(column)
    return tuple(sorted((frozenset(group) for group in by_readers.values()), key=min))


def merge_bottom_up(problem: Problem, estimate: RowsRead, exact: RowsRead) -> list[Grouping]:
    """All schemes that bottom-up merging passes through, from column classes to one group (4.4.4).

    Each iteration merges the pair with the least estimated objective; the objective reported, and used from then on
    for the merged group, is the exact one, so that errors of the estimate don't add up.
    """
    groups = list(column_classes(problem))
    passed = [Grouping(tuple(groups), cost_of(problem, tuple(groups), exact))]
    while len(groups) > 1:
        i, j = _best_pair(problem, groups, estimate)
        merged = groups[i] | groups[j]
        groups = [g for k, g in enumerate(groups) if k not in (i, j)] + [merged]
        passed.append(Grouping(tuple(groups), cost_of(problem, tuple(groups), exact)))
    return passed


def _best_pair(problem: Problem, groups: list[Group], estimate: RowsRead) -> tuple[int, int]:
    """The pair whose merge has the least estimated cost; pairs without a common query come last."""
    cells, read = _read_by_group(problem, tuple(groups))
    estimated = np.stack([estimate(served) for served in read])
    n_read = read.sum(axis=0)
    needs_tids = n_read > 1
    best = (np.inf, 0, 1)
    for i, j in combinations(range(len(groups)), 2):
        common = read[i] & read[j]
        change = np.inf
        if common.any():
            merged = estimate(read[i] | read[j])
            pair = [i, j]
            change = _change(problem, cells[pair], read[pair], needs_tids, n_read, estimated[pair], merged)
        if change < best[0]:
            best = (change, i, j)
    return best[1], best[2]


def _change(
    problem: Problem, cells: Floats, read: Bools, needs_tids: Bools, n_read: Floats, rows: Floats, merged: Floats
) -> float:
    """How the objective changes by merging two groups; all arrays hold the pair's two rows."""
    tid = problem.unit.tid
    either = read.any(axis=0)
    before = ((cells + tid * (read & needs_tids))[:, None, :] * rows).sum(axis=0)
    still = needs_tids & (n_read - read.sum(axis=0) + 1 > 1)
    after = (cells.sum(axis=0) + tid * (either & still)) * merged
    return float((problem.weights * (after - before)).sum())
