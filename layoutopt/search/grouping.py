"""Column grouping: which columns are blocked together (Sun 2017, 4.4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints
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


# ----------------------------------------------------------------------------------------------------
# Merging groups of columns by who reads them, on whole arrays: a wide table has a hundred thousand pairs.

Gain = Callable[[Floats, Floats, Floats, Floats, Floats], Floats]
"""What merging pairs gains, from arrays: the readers of the one and of the other, by weight; a size of both, which adds
up when groups merge; the readers that both have."""


def agglomerate(readers: Bits, weight: Floats, size: Floats, gain: Gain, most: int | None = None) -> list[list[int]]:
    """Merge the pair that gains most, again and again; of equal pairs the first.

    Args:
        readers: which query reads which group, ``bool[groups, queries]``.
        weight: of the queries.
        size: of each group, ``float64[groups]``.
        gain: of merging.
        most: merge until so few groups are left; None merges while that gains anything.

    Returns:
        The numbers of the groups that were merged into one, in the order of their last merge.
    """
    n = len(readers)
    slots = max(1, 2 * n - 1)  # every merge takes a new one
    read = np.zeros((slots, readers.shape[1]))
    read[:n] = readers
    sizes = np.r_[size, np.zeros(slots - n)]
    count = read @ weight
    gains = np.full((slots, slots), -np.inf)
    alive = np.zeros(slots, dtype=np.bool_)
    members = {slot: [slot] for slot in range(n)}
    for slot in range(n):
        _meet(slot, read, weight, count, sizes, alive, gains, gain)
    while len(members) > (1 if most is None else max(1, most)):
        i, j = np.unravel_index(int(gains.argmax()), gains.shape)
        if most is None and gains[i, j] <= 0:
            break
        new = n + n - len(members)
        members[new] = members.pop(int(i)) + members.pop(int(j))
        read[new], sizes[new] = np.maximum(read[i], read[j]), sizes[i] + sizes[j]
        count[new] = read[new] @ weight
        alive[[i, j]] = False
        gains[[i, j]] = -np.inf
        gains[:, [i, j]] = -np.inf
        _meet(new, read, weight, count, sizes, alive, gains, gain)
    return list(members.values())


def _meet(
    slot: int, read: Floats, weight: Floats, count: Floats, sizes: Floats, alive: Bits, gains: Floats, gain: Gain
) -> None:
    """Compare a new slot with all before it, and let it live."""
    others = np.flatnonzero(alive)
    common = read[others] @ (read[slot] * weight)
    gains[others, slot] = gain(count[others], np.full(len(others), count[slot]), sizes[others], sizes[slot], common)
    alive[slot] = True


# ----------------------------------------------------------------------------------------------------
# Bottom-up merging of column groups: each step merges the pair with the least estimated objective (Sun 2017, 4.4.4).
#
# Estimating what queries read of a merged group takes most of the time. A query hardly ever reads fewer rows of a
# merged
# group than of both its parts, since more queries then compete for its features. So the larger number of rows of the
# two
# parts is nearly a lower bound, and whole arrays give it for all pairs at once. Where there are many groups, pairs are
# estimated in the order of that bound until no other can be better, and a few at most; where there are few, all are.

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


# ----------------------------------------------------------------------------------------------------
# After merging: single column classes moved from one group to another while the exact objective falls.
#
# Merging never takes a step back: a class that went with the first group that took it may do better elsewhere once the
# groups are large. All moves are estimated; of each round the most promising few are computed. Bounded by work.

_MOST_CLASSES = 24
"""Classes that may move: those with the most cells read."""
_TARGETS = 6
"""Groups that a class may move to: those with the most readers in common, by weight."""
_COMPUTED = 3
"""Moves computed exactly in a round."""
_ROUNDS = 6


def move_classes(
    problem: Problem, start: Grouping, classes: tuple[Group, ...], estimate: RowsRead, exact: RowsRead
) -> list[Grouping]:
    """The schemes computed on the way from ``start`` to a better one; none where no move was worth computing.

    Each of the classes lies in one group of the scheme. The estimate shortlists moves, the exact objective decides.
    """
    cells = problem.weights.sum(axis=0) @ problem.reads * problem.unit.cell
    heaviest = sorted(classes, key=lambda moved: (-float(cells[sorted(moved)].sum()), min(moved)))[:_MOST_CLASSES]
    best, passed, seen = start, [start], {frozenset(start.groups)}
    for _ in range(_ROUNDS):
        found = {frozenset(groups): groups for moved in heaviest for groups in _moves(problem, best.groups, moved)}
        new = [groups for key, groups in found.items() if key not in seen]
        new.sort(key=lambda groups: cost_of(problem, groups, estimate))
        computed = [Grouping(groups, cost_of(problem, groups, exact)) for groups in new[:_COMPUTED]]
        seen |= {frozenset(grouping.groups) for grouping in computed}
        passed += computed
        better = min([best, *computed], key=lambda grouping: grouping.cost)
        if better is best:
            break
        best = better
    return passed[1:]


def _moves(problem: Problem, groups: tuple[Group, ...], moved: Group) -> list[tuple[Group, ...]]:
    """The schemes with a class in another group, and in one of its own."""
    (source,) = [group for group in groups if moved <= group]
    others = tuple(group for group in groups if group != source)
    rest = (source - moved,) if source != moved else ()
    readers = problem.weights.sum(axis=0) * served_by(problem, moved)
    targets = sorted(others, key=lambda group: (-float(readers @ served_by(problem, group)), min(group)))[:_TARGETS]
    into = [tuple(moved | group if group == target else group for group in others) + rest for target in targets]
    return into + ([(*others, *rest, moved)] if rest else [])


# ----------------------------------------------------------------------------------------------------
# What no grouping of columns into layouts can beat.


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
