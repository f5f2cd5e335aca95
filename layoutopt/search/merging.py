"""Bottom-up merging of column groups: each step merges the pair with the least estimated objective (Sun 2017, 4.4.4).

Estimating what queries read of a merged group takes most of the time. A query hardly ever reads fewer rows of a merged
group than of both its parts, since more queries then compete for its features. So the larger number of rows of the two
parts is nearly a lower bound, and whole arrays give it for all pairs at once. Where there are many groups, pairs are
estimated in the order of that bound until no other can be better, and a few at most; where there are few, all are.
"""

from __future__ import annotations

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.search.agglomerate import agglomerate
from layoutopt.search.grouping import Group, Grouping, column_classes, cost_of, served_by
from layoutopt.search.problem import Problem
from layoutopt.search.rows import RowsRead

_MOST_STARTING = 40
"""Groups to start merging from: each costs an exact computation, and so does each merge."""
_EVERY_PAIR = 24
"""So many groups, and all pairs are estimated."""
_MOST_ESTIMATED = 8
"""Pairs estimated in an iteration where there are more groups."""


def starting_groups(problem: Problem, most: int = _MOST_STARTING) -> tuple[Group, ...]:
    """The column classes; where there are more than ``most``, classes with nearly the same readers are one group.

    Merging two classes saves a tid for each query that reads both, and makes each cell worse by the share of the
    group's queries that the class did not have.
    """
    classes = column_classes(problem)
    if len(classes) <= most:
        return classes
    readers = np.stack([served_by(problem, group) for group in classes])
    weight = problem.weights.sum(axis=0)
    cells = np.array([problem.unit.cell[sorted(group)].sum() for group in classes]) * (readers @ weight)

    def gain(one: Floats, other: Floats, cells: Floats, others_cells: Floats, common: Floats) -> Floats:
        union = np.maximum(one + other - common, 1e-9)
        return problem.unit.tid * common - cells * (1 - one / union) - others_cells * (1 - other / union)

    merged = agglomerate(readers, weight, cells, gain, most)
    groups = (frozenset().union(*(classes[number] for number in numbers)) for numbers in merged)
    return tuple(sorted(groups, key=min))


def merge_bottom_up(
    problem: Problem, start: tuple[Group, ...], estimate: RowsRead, exact: RowsRead, every_pair: bool = False
) -> list[Grouping]:
    """All schemes that bottom-up merging passes through, from the groups given to one (4.4.4).

    Each iteration merges the pair with the least estimated objective, of ``every_pair`` or of the most promising ones;
    the objective reported is the exact one, computed once an iteration.
    """
    pairs = Pairs(problem, start, estimate, every_pair)
    passed = [Grouping(start, cost_of(problem, start, exact))]
    while len(pairs.groups) > 1:
        pairs.merge(*pairs.best())
        groups = tuple(pairs.groups)
        passed.append(Grouping(groups, cost_of(problem, groups, exact)))
    return passed


class Pairs:
    """Groups, and what merging two of them would change.

    Attributes:
        groups: the groups, in order; a merged one comes last.
    """

    def __init__(
        self, problem: Problem, groups: tuple[Group, ...], estimate: RowsRead, every_pair: bool = False
    ) -> None:
        """With ``every_pair`` all pairs are estimated, however many groups there are."""
        self.groups = list(groups)
        self._every_pair = every_pair
        self._problem = problem
        self._estimate = estimate
        self._read = np.stack([problem.reads[:, sorted(group)].any(axis=1) for group in groups])
        self._cells = np.stack([problem.reads[:, sorted(g)] @ problem.unit.cell[sorted(g)] for g in groups])
        self._rows = np.stack([self._estimated(read) for read in self._read])

    def merge(self, i: int, j: int) -> None:
        """Put groups ``i`` and ``j`` together, at the end."""
        kept = [k for k in range(len(self.groups)) if k not in (i, j)]
        merged = self._read[i] | self._read[j]
        self.groups = [self.groups[k] for k in kept] + [self.groups[i] | self.groups[j]]
        self._cells = np.concatenate([self._cells[kept], self._cells[[i, j]].sum(axis=0)[None]])
        self._read = np.concatenate([self._read[kept], merged[None]])
        self._rows = np.concatenate([self._rows[kept], self._estimated(merged)[None]])

    def best(self) -> tuple[int, int]:
        """The pair whose merge has the least estimate of those looked at; pairs without a common query come last."""
        common = (self._read.astype(np.float32) @ self._read.T.astype(np.float32)) > 0
        first, second = np.nonzero(np.triu(common, 1))
        if not len(first):
            return 0, 1
        bounds = np.concatenate([self._bounds(i, second[first == i]) for i in np.unique(first)])
        some = len(self.groups) > _EVERY_PAIR and not self._every_pair
        best, looked = (np.inf, 0, 1), 0
        for pair in np.argsort(bounds, kind="stable").tolist() if some else range(len(bounds)):
            if some and (bounds[pair] >= best[0] or looked == _MOST_ESTIMATED):
                break
            i, j = int(first[pair]), int(second[pair])
            best, looked = min(best, (self.change(i, j), i, j)), looked + 1
        return best[1], best[2]

    def change(self, i: int, j: int) -> float:
        """How the estimated objective changes by merging two groups; see :meth:`_changes`."""
        merged = self._estimated(self._read[i] | self._read[j])
        return float(self._changes(i, np.array([j]), merged[None])[0])

    def _bounds(self, i: int, others: Ints) -> Floats:
        return self._changes(i, others, np.maximum(self._rows[i], self._rows[others]))

    def _changes(self, i: int, others: Ints, rows_merged: Floats) -> Floats:
        """How the objective (Eq. 4.1 to 4.4) changes by merging group i with each of the others, ``float64[others]``.

        Per query, with the rows that it reads of a group and the cells that a row of the group has for it::

            before = rows(i) * (cells(i) + tid(i)) + rows(j) * (cells(j) + tid(j))
            after  = rows(i and j merged) * (cells(i) + cells(j) + tid(merged))

        where ``tid`` is the cost of a tid if the query reads the group and, before or after, some other group too.
        Here the first query reads both columns: 10 x 2 + 20 x 2 before, and 20 x 2 after, when it reads no tids. The
        second reads 20 cells of the second column before and after.

        >>> from layoutopt.model.vectors import VectorCounts
        >>> from layoutopt.search.problem import Sample, Unit
        >>> vectors = VectorCounts(np.zeros((1, 1), dtype=np.uint64), np.array([100]), 1)
        >>> problem = Problem(
        ...     columns=("a", "b"), reads=np.array([[True, True], [False, True]]), shares=np.zeros((2, 1)),
        ...     members=np.zeros((1, 0), dtype=np.float32), skips=np.zeros((2, 0), dtype=bool),
        ...     samples=(Sample(vectors, 100, np.ones(2)),), unit=Unit.cells(2), block_rows=10, max_vectors=10,
        ... )
        >>> estimate = lambda served: 10.0 * served.sum() * served[None]
        >>> Pairs(problem, (frozenset({0}), frozenset({1})), estimate).change(0, 1)
        -20.0

        Args:
            i: a group.
            others: the groups j.
            rows_merged: what each query reads of the merged group, ``float64[others, queries]``.
        """
        tid, groups_read = self._problem.unit.tid, self._read.sum(axis=0)
        both, either = self._read[i] & self._read[others], self._read[i] | self._read[others]
        of_row = self._cells + tid * (self._read & (groups_read > 1))
        before = (of_row[i] * self._rows[i]).sum() + (of_row[others] * self._rows[others]).sum(axis=1)
        of_row_merged = self._cells[i] + self._cells[others] + tid * (either & (groups_read - both > 1))
        return np.asarray((of_row_merged * rows_merged).sum(axis=1) - before)

    def _estimated(self, served: Bits) -> Floats:
        """Rows over all samples, weighted, ``float64[queries]``."""
        return np.asarray((self._problem.weights * self._estimate(served)).sum(axis=0))
