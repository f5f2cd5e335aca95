"""Group columns into layouts that are blocked together (Sun 2017, 4.4).

Groups are merged bottom-up; each step merges the pair with the least estimated objective (4.4.4). A query hardly ever
reads fewer rows of a merged group than of both its parts, since more queries then compete for its features. So the
larger number of rows of the parts is nearly a lower bound, which whole arrays give for all pairs at once. Of many
groups, only the most promising pairs by that bound are estimated.

Merging never takes a step back, so classes of columns are then moved between groups while the exact objective falls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.search.problem import Problem, Unit
from layoutopt.search.rows import RowsRead

# Column numbers.
Group = frozenset[int]

# The gain of merging pairs, from arrays: the weight of the readers of the first and of the second group; a size of
# each, which adds up when groups merge; the weight of their common readers.
Gain = Callable[[Floats, Floats, Floats, Floats, Floats], Floats]
# Groups to start merging from at most: each costs an exact computation, and so does each merge.
_MAX_START_GROUPS = 40
# With at most this many groups, all pairs are estimated.
_ALL_PAIRS_GROUPS = 24
# Pairs that are estimated in an iteration with more groups.
_MAX_ESTIMATED = 8
# Classes that may move: those with the most cells read.
_MAX_CLASSES = 24
# Groups that a class may move to: those with the most common readers, by weight.
_MAX_TARGETS = 6
# Moves that are computed exactly in a round.
_MAX_COMPUTED = 3
_MAX_ROUNDS = 6


@dataclass(frozen=True)
class Grouping:
    """A column grouping scheme with its objective: the workload's cells and tids, in the problem's unit (Eq. 4.4)."""

    groups: tuple[Group, ...]
    cost: float


def queries_reading(problem: Problem, group: Group) -> Bits:
    """Return the queries that read a column of the group (W^G), ``bool[queries]``."""
    return np.asarray(np.any(problem.reads[:, sorted(group)], axis=1))


def grouping_cost(problem: Problem, groups: tuple[Group, ...], rows_read: RowsRead) -> float:
    """Return COST(W, G) of Eq. 4.1 - 4.4: cells, and tids where a query reads several groups.

    Sorting costs nothing: tids are dense, so rows are placed by position.
    """
    is_read, price_by_group = _price_rows(problem, groups)
    return sum(
        _sum_cost(problem, price, rows_read(served)) for price, served in zip(price_by_group, is_read, strict=True)
    )


def full_scan(problem: Problem, unit: Unit | None = None) -> float:
    """Return the cost of the workload without skipping: all rows, and no tids."""
    rows = np.array([sample.rows for sample in problem.samples], dtype=np.float64)
    return float(rows @ problem.weights @ (problem.reads @ (unit or problem.unit).cell))


def _price_rows(problem: Problem, groups: tuple[Group, ...]) -> tuple[Bits, Floats]:
    """Return whether each query reads each group, and what a row costs then, ``[groups, queries]``."""
    cells = np.stack([problem.reads[:, sorted(g)] @ problem.unit.cell[sorted(g)] for g in groups])
    is_read = np.stack([queries_reading(problem, g) for g in groups])
    return is_read, cells + problem.unit.tid * (is_read & (is_read.sum(axis=0) > 1))


def _sum_cost(problem: Problem, price: Floats, rows: Floats) -> float:
    return float((problem.weights * rows * price).sum())


def column_classes(problem: Problem) -> tuple[Group, ...]:
    """Return the columns that the same queries read, together: no scheme gains by separating them."""
    by_readers: dict[bytes, set[int]] = {}
    for column in range(len(problem.columns)):
        by_readers.setdefault(np.packbits(problem.reads[:, column]).tobytes(), set()).add(column)
    return tuple(sorted((frozenset(group) for group in by_readers.values()), key=min))


def cost_unless_above(
    problem: Problem, groups: tuple[Group, ...], exact: RowsRead, floor: Floats, limit: float
) -> float | None:
    """Return the objective, or None as soon as it is known to exceed ``limit``.

    Args:
        exact: the rows read of a group.
        floor: rows that every group makes a query read at least, ``float64[samples, queries]``.
    """
    is_read, price_by_group = _price_rows(problem, groups)
    costs = np.array(
        [_sum_cost(problem, price, floor * served) for price, served in zip(price_by_group, is_read, strict=True)]
    )
    for g in np.argsort(-costs, kind="stable").tolist():
        costs[g] = _sum_cost(problem, price_by_group[g], exact(is_read[g]))
        if costs.sum() > limit:
            return None
    return float(costs.sum())


def agglomerate(
    readers: Bits, weight: Floats, size: Floats, gain: Gain, max_groups: int | None = None
) -> list[list[int]]:
    """Merge the pair that gains most, repeatedly; of equal pairs the first.

    Args:
        readers: which query reads which group, ``bool[groups, queries]``.
        weight: of the queries.
        size: of each group, ``float64[groups]``.
        gain: of merging.
        max_groups: merge until so few groups are left; None merges while that gains anything.

    Returns:
        The numbers of the merged groups, in the order of their last merge.
    """
    n = len(readers)
    slots = max(1, 2 * n - 1)  # every merge takes a new slot
    readers_by_slot = np.zeros((slots, readers.shape[1]))
    readers_by_slot[:n] = readers
    sizes = np.r_[size, np.zeros(slots - n)]
    count = readers_by_slot @ weight
    gains = np.full((slots, slots), -np.inf)
    alive = np.zeros(slots, dtype=np.bool_)
    members = {slot: [slot] for slot in range(n)}
    for slot in range(n):
        _add_slot(slot, readers_by_slot, weight, count, sizes, alive, gains, gain)
    while len(members) > (1 if max_groups is None else max(1, max_groups)):
        i, j = np.unravel_index(int(gains.argmax()), gains.shape)
        if max_groups is None and gains[i, j] <= 0:
            break
        new = n + n - len(members)
        members[new] = members.pop(int(i)) + members.pop(int(j))
        readers_by_slot[new], sizes[new] = np.maximum(readers_by_slot[i], readers_by_slot[j]), sizes[i] + sizes[j]
        count[new] = readers_by_slot[new] @ weight
        alive[[i, j]] = False
        gains[[i, j]] = -np.inf
        gains[:, [i, j]] = -np.inf
        _add_slot(new, readers_by_slot, weight, count, sizes, alive, gains, gain)
    return list(members.values())


def _add_slot(
    slot: int,
    readers_by_slot: Floats,
    weight: Floats,
    count: Floats,
    sizes: Floats,
    alive: Bits,
    gains: Floats,
    gain: Gain,
) -> None:
    earlier = np.flatnonzero(alive)
    common = readers_by_slot[earlier] @ (readers_by_slot[slot] * weight)
    gains[earlier, slot] = gain(count[earlier], np.full(len(earlier), count[slot]), sizes[earlier], sizes[slot], common)
    alive[slot] = True


def starting_groups(problem: Problem, max_groups: int = _MAX_START_GROUPS) -> tuple[Group, ...]:
    """Return the column classes; if there are more than ``max_groups``, those with similar readers are merged.

    Merging two classes saves a tid for each query that reads both, and makes each cell worse by the share of the
    group's queries that the class did not have.
    """
    classes = column_classes(problem)
    if len(classes) <= max_groups:
        return classes
    readers = np.stack([queries_reading(problem, group) for group in classes])
    weight = problem.weights.sum(axis=0)
    cells = np.array([problem.unit.cell[sorted(group)].sum() for group in classes]) * (readers @ weight)

    def gain(first: Floats, second: Floats, first_cells: Floats, second_cells: Floats, common: Floats) -> Floats:
        union = np.maximum(first + second - common, 1e-9)
        return problem.unit.tid * common - first_cells * (1 - first / union) - second_cells * (1 - second / union)

    merged = agglomerate(readers, weight, cells, gain, max_groups)
    groups = (frozenset().union(*(classes[number] for number in numbers)) for numbers in merged)
    return tuple(sorted(groups, key=min))


def merge_bottom_up(
    problem: Problem, start: tuple[Group, ...], estimate: RowsRead, exact: RowsRead, every_pair: bool = False
) -> list[Grouping]:
    """Return all schemes that bottom-up merging passes through, from ``start`` to one group (4.4.4).

    Each iteration merges the pair with the least estimated objective; the reported objective is exact.
    """
    pairs = Pairs(problem, start, estimate, every_pair)
    groupings = [Grouping(start, grouping_cost(problem, start, exact))]
    while len(pairs.groups) > 1:
        pairs.merge(*pairs.best())
        groups = tuple(pairs.groups)
        groupings.append(Grouping(groups, grouping_cost(problem, groups, exact)))
    return groupings


class Pairs:
    """Groups, and how merging two of them changes the objective; a merged group comes last."""

    def __init__(
        self, problem: Problem, groups: tuple[Group, ...], estimate: RowsRead, every_pair: bool = False
    ) -> None:
        """With ``every_pair`` all pairs are estimated for any number of groups."""
        self.groups = list(groups)
        self._every_pair = every_pair
        self._problem = problem
        self._estimate = estimate
        self._read = np.stack([problem.reads[:, sorted(group)].any(axis=1) for group in groups])
        self._cells = np.stack([problem.reads[:, sorted(g)] @ problem.unit.cell[sorted(g)] for g in groups])
        self._rows = np.stack([self._estimate_rows(read) for read in self._read])

    def merge(self, i: int, j: int) -> None:
        """Merge groups ``i`` and ``j``; the result comes last."""
        kept = [k for k in range(len(self.groups)) if k not in (i, j)]
        merged = self._read[i] | self._read[j]
        self.groups = [self.groups[k] for k in kept] + [self.groups[i] | self.groups[j]]
        self._cells = np.concatenate([self._cells[kept], self._cells[[i, j]].sum(axis=0)[None]])
        self._read = np.concatenate([self._read[kept], merged[None]])
        self._rows = np.concatenate([self._rows[kept], self._estimate_rows(merged)[None]])

    def best(self) -> tuple[int, int]:
        """Return the pair whose merge has the least estimate; pairs without a common query come last."""
        common = (self._read.astype(np.float32) @ self._read.T.astype(np.float32)) > 0
        first, second = np.nonzero(np.triu(common, 1))
        if not len(first):
            return 0, 1
        bounds = np.concatenate([self._bound_changes(i, second[first == i]) for i in np.unique(first)])
        is_partial = len(self.groups) > _ALL_PAIRS_GROUPS and not self._every_pair
        best, n_estimated = (np.inf, 0, 1), 0
        for pair in np.argsort(bounds, kind="stable").tolist() if is_partial else range(len(bounds)):
            if is_partial and (bounds[pair] >= best[0] or n_estimated == _MAX_ESTIMATED):
                break
            i, j = int(first[pair]), int(second[pair])
            best, n_estimated = min(best, (self.change(i, j), i, j)), n_estimated + 1
        return best[1], best[2]

    def change(self, i: int, j: int) -> float:
        """Return how merging two groups changes the estimated objective; see :meth:`_estimate_changes`."""
        merged = self._estimate_rows(self._read[i] | self._read[j])
        return float(self._estimate_changes(i, np.array([j]), merged[None])[0])

    def _bound_changes(self, i: int, partners: Ints) -> Floats:
        return self._estimate_changes(i, partners, np.maximum(self._rows[i], self._rows[partners]))

    def _estimate_changes(self, i: int, partners: Ints, rows_merged: Floats) -> Floats:
        """Return how merging group i with each partner j changes the objective (Eq. 4.1 to 4.4), ``float64[partners]``.

        Per query, with the rows that it reads of a group and the cells that a row of the group has for it::

            before = rows(i) * (cells(i) + tid(i)) + rows(j) * (cells(j) + tid(j))
            after  = rows(i and j merged) * (cells(i) + cells(j) + tid(merged))

        where ``tid`` is the cost of a tid if the query reads the group and, before or after, some other group too.
        Here the first query reads both columns: 10 x 2 + 20 x 2 before, and 20 x 2 after, without tids. The second
        reads 20 cells of the second column before and after.

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

        ``rows_merged`` are what each query reads of the merged group, ``float64[partners, queries]``.
        """
        tid, groups_read = self._problem.unit.tid, self._read.sum(axis=0)
        both, either = self._read[i] & self._read[partners], self._read[i] | self._read[partners]
        price = self._cells + tid * (self._read & (groups_read > 1))
        before = (price[i] * self._rows[i]).sum() + (price[partners] * self._rows[partners]).sum(axis=1)
        merged_price = self._cells[i] + self._cells[partners] + tid * (either & (groups_read - both > 1))
        return np.asarray((merged_price * rows_merged).sum(axis=1) - before)

    def _estimate_rows(self, served: Bits) -> Floats:
        """Return the weighted rows over all samples, ``float64[queries]``."""
        return np.asarray((self._problem.weights * self._estimate(served)).sum(axis=0))


def move_classes(
    problem: Problem, start: Grouping, classes: tuple[Group, ...], estimate: RowsRead, exact: RowsRead
) -> list[Grouping]:
    """Return the schemes computed on the way from ``start`` to a better one; none if no move was promising.

    Each of the classes lies in one group of the scheme. The estimate shortlists moves, the exact objective decides.
    """
    cells = problem.weights.sum(axis=0) @ problem.reads * problem.unit.cell
    heaviest = sorted(classes, key=lambda moved: (-float(cells[sorted(moved)].sum()), min(moved)))[:_MAX_CLASSES]
    best, computed_schemes, seen = start, [start], {frozenset(start.groups)}
    for _ in range(_MAX_ROUNDS):
        schemes = {
            frozenset(groups): groups for moved in heaviest for groups in _list_moves(problem, best.groups, moved)
        }
        new = [groups for key, groups in schemes.items() if key not in seen]
        new.sort(key=lambda groups: grouping_cost(problem, groups, estimate))
        computed = [Grouping(groups, grouping_cost(problem, groups, exact)) for groups in new[:_MAX_COMPUTED]]
        seen |= {frozenset(grouping.groups) for grouping in computed}
        computed_schemes += computed
        better = min([best, *computed], key=lambda grouping: grouping.cost)
        if better is best:
            break
        best = better
    return computed_schemes[1:]


def _list_moves(problem: Problem, groups: tuple[Group, ...], moved: Group) -> list[tuple[Group, ...]]:
    (source,) = [group for group in groups if moved <= group]
    other_groups = tuple(group for group in groups if group != source)
    rest = (source - moved,) if source != moved else ()
    readers = problem.weights.sum(axis=0) * queries_reading(problem, moved)
    targets = sorted(other_groups, key=lambda group: (-float(readers @ queries_reading(problem, group)), min(group)))[
        :_MAX_TARGETS
    ]
    moves = [tuple(moved | group if group == target else group for group in other_groups) + rest for target in targets]
    return moves + ([(*other_groups, *rest, moved)] if rest else [])


def cells_lower_bound(problem: Problem, min_rows: int = 0) -> float:
    """Return the least that the queries read of the samples, whatever the groups and blocks.

    A query reads its columns of every row that its skip sets don't exclude, and of a whole block where there is such a
    row; tids cost nothing here. ``min_rows`` is the smallest block of the table, 0 where copies may be smaller; a
    remainder below it is not considered.
    """
    cells_per_row = problem.reads @ problem.unit.cell
    total = 0.0
    for sample, needed in zip(problem.samples, problem.least_rows, strict=True):
        # Blocks of a sample have whole rows of it.
        block = min(sample.rows, round(min_rows / sample.scale) * sample.scale)
        read = np.where(needed > 0, np.maximum(needed, block), 0.0)
        total += float((sample.query_weights * read * cells_per_row).sum())
    return total
