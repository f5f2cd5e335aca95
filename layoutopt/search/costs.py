"""Cost sets of layouts: the queries' cells and tids (Sun 2017, Eq. 5.1 with 4.2), and storage (Eq. 5.2).

The text's operations (5.5.1) move features between layouts. Here a candidate layout is given the queries that it
serves, and its local features follow from these: those that guide its blocking (4.5), and for a copy those that keep
the fewest rows that its queries need (5.4.1). The samples are partitioned as a load would, once for each set of served
queries.

A query may read a layout of some rows only where the OR of the layout's features subsumes it (5.6.1), that is where
all members of one of the query's skip sets are among them. Such covers are cross-validated: the features for one half
of the queries must serve the other half too. This excludes copies for particular constants of the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import compress
from typing import NamedTuple

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.partitioning.partitioner import Partitioner
from layoutopt.search.grouping import Group
from layoutopt.search.local import feature_choices
from layoutopt.search.problem import Problem, Unit, restrict_rows
from layoutopt.search.rows import compute_by_choices

# Query numbers of a problem.
Queries = frozenset[int]

# The least share, by weight, of the other half's queries that a cover must serve.
_MIN_SERVED = 0.95
# A copy of a larger share of the rows holds all rows: then it serves every query, at little more storage.
_MAX_COPY_SHARE = 0.8
# The local features that guide a blocking (4.5), ascending.
Guides = tuple[int, ...]
# Further families join the family that shares most columns: the operations tried grow with the square.
_MAX_FAMILIES = 24
# Cells of queries and layouts that are priced at once: the arrays take some tens of megabytes.
_CELLS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class LayoutCandidate:
    """A layout in a search.

    Attributes:
        columns: the columns that it stores.
        served: the queries that are to read it.
        copy: whether it may leave out rows that its queries don't need.
    """

    columns: Group
    served: Queries
    copy: bool = False


Candidates = tuple[LayoutCandidate, ...]


def query_mask(queries: Iterable[int], n_queries: int) -> Bits:
    """Return a set of queries as a mask, ``bool[n_queries]``."""
    mask = np.zeros(n_queries, dtype=np.bool_)
    mask[list(queries)] = True
    return mask


def merge_equal_layouts(layouts: Iterable[LayoutCandidate]) -> Candidates:
    """Merge layouts that serve the same queries (5.5.2), in the order of their first columns.

    They have the same local features, so a merge costs nothing and saves tids. Layouts without columns are dropped.
    """
    by_queries: dict[Queries, LayoutCandidate] = {}
    for layout in layouts:
        if layout.columns:
            equal = by_queries.get(layout.served, layout)
            columns = layout.columns | equal.columns
            by_queries[layout.served] = LayoutCandidate(columns, layout.served, layout.copy and equal.copy)
    return tuple(sorted(by_queries.values(), key=lambda layout: (sorted(layout.columns), sorted(layout.served))))


def drop_unread_columns(problem: Problem, layouts: Sequence[LayoutCandidate]) -> list[LayoutCandidate]:
    """Drop columns that none of a layout's queries reads, where another layout has the column."""
    columns_read = [np.flatnonzero(problem.reads[sorted(layout.served)].any(axis=0)).tolist() for layout in layouts]
    holders = Counter(column for layout in layouts for column in layout.columns)
    result = []
    for layout, used in zip(layouts, columns_read, strict=True):
        spare = {column for column in layout.columns - frozenset(used) if holders[column] > 1}
        holders.subtract(spare)
        result.append(replace(layout, columns=layout.columns - spare))
    return result


class Covers:
    """Finds covers for sets of queries of one problem."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._members: Bits = problem.members > 0
        self._weights: Floats = problem.weights.sum(axis=0)

    def find(self, served: Bits) -> tuple[int, ...]:
        """Return features that cover few rows and serve these queries, ``bool[queries]``, and similar ones.

        The features are ascending; there are none if there is no such set.
        """
        numbers = np.flatnonzero(served)
        if not self._hold_for_other_half(numbers):
            return ()
        return self._find_cover(numbers)

    def share(self, features: tuple[int, ...]) -> float:
        """Return the share of the rows that have one of these features, estimated from the samples."""
        rows = self._problem.rows
        return min(1.0, self._problem.rows_with_any(features) / rows) if rows else 1.0

    def serves(self, features: tuple[int, ...], queries: Ints) -> Bits:
        """Return which of the queries these features serve, ``bool[len(queries)]``."""
        inside = np.zeros(len(self._members), dtype=np.bool_)
        inside[list(features)] = True
        whole: Bits = ~np.asarray(self._members[~inside].any(axis=0), dtype=np.bool_)
        return np.asarray((self._problem.skips[queries] & whole).any(axis=1), dtype=np.bool_)

    def _hold_for_other_half(self, queries: Ints) -> bool:
        if len(queries) < 2:
            return bool(len(queries))
        for half, other_half in ((queries[::2], queries[1::2]), (queries[1::2], queries[::2])):
            weights = self._weights[other_half]
            features = self._find_cover(half)
            if not features or weights @ self.serves(features, other_half) < _MIN_SERVED * weights.sum():
                return False
        return True

    def _find_cover(self, queries: Ints) -> tuple[int, ...]:
        """Return the features of skip sets that serve all queries: one skip set for all, or several chosen greedily."""
        skips = self._problem.skips[queries]
        covers = [
            features for features in (self._cover_by_one_set(skips), self._cover_greedily(skips, queries)) if features
        ]
        return min(covers, key=lambda features: (self.share(features), features), default=())

    def _cover_by_one_set(self, skips: Bits) -> tuple[int, ...]:
        common = np.flatnonzero(skips.all(axis=0))
        if not len(common):
            return ()
        return self._members_of_sets(common[[int(np.argmin(self._set_shares[common]))]])

    def _cover_greedily(self, skips: Bits, queries: Ints) -> tuple[int, ...]:
        """Choose the skip set with most weight of newly served queries for its rows, repeatedly."""
        weights = self._weights[queries] + 1e-9
        unserved, chosen = np.ones(len(queries), dtype=np.bool_), []
        while unserved.any():
            worth = (weights[unserved] @ skips[unserved]) / np.maximum(self._set_shares, 1e-6)
            best = int(np.argmax(worth))
            if worth[best] <= 0:
                return ()
            chosen.append(best)
            unserved &= ~skips[:, best]
        return self._members_of_sets(np.array(chosen))

    def _members_of_sets(self, skip_sets: Ints) -> tuple[int, ...]:
        return tuple(np.flatnonzero(self._members[:, skip_sets].any(axis=1)).tolist())

    @cached_property
    def _set_shares(self) -> Floats:
        """Return the share of rows with a member of each skip set, ``float64[skip_sets]``."""
        return self._problem.rows_with_sets() / max(1, self._problem.rows)


@dataclass(frozen=True, eq=False)
class CandidateCosts:
    """The outcome of a candidate layout on the samples.

    Attributes:
        features: for a copy of some rows: any row that its queries need has one of these. None: all rows.
        share: the share of the rows that it holds whole (``|R_i| / |R|``).
        rows: the weighted rows that each query reads over all samples, ``float64[queries]``; infinite if not served.
        guides: the local features that guide the blocking.
    """

    features: tuple[int, ...] | None
    share: float
    rows: Floats
    guides: Guides = ()


@dataclass(frozen=True, eq=False)
class _Blockings:
    """The rows that a layout holds, and what every query reads by each choice of guides."""

    features: tuple[int, ...] | None
    share: float
    choices: tuple[tuple[Floats, Guides], ...]


class Evaluator:
    """Evaluates candidate layouts, with a cache."""

    def __init__(self, problem: Problem, partitioner: Partitioner, few_guides: bool = True) -> None:
        """With ``few_guides`` fewer local features than fit are tried too (:func:`feature_choices`)."""
        self.problem = problem
        self._few_guides = few_guides
        self._partitioner = partitioner
        self._covers = Covers(problem)
        self._evaluations: dict[LayoutCandidate, CandidateCosts] = {}
        self._cached_block = cache(self._block_samples)
        self._cached_restrict = cache(partial(restrict_rows, problem))

    def evaluate(self, layout: LayoutCandidate) -> CandidateCosts:
        """Return the outcome of a layout, by the guides with which its queries read least of its columns."""
        if layout not in self._evaluations:
            blockings = self._cached_block(layout.served, layout.copy)
            price = self._price_row(layout)
            costs = [float(np.where(price > 0, rows, 0.0) @ price) for rows, _ in blockings.choices]
            rows, guides = blockings.choices[int(np.argmin(costs))]
            self._evaluations[layout] = CandidateCosts(blockings.features, blockings.share, rows, guides)
        return self._evaluations[layout]

    def like(self, problem: Problem) -> Evaluator:
        """Return an evaluator for a problem with other search limits, whose copies hold the same rows."""
        evaluator = Evaluator(problem, self._partitioner, self._few_guides)
        evaluator._covers = self._covers
        return evaluator

    def _price_row(self, layout: LayoutCandidate) -> Floats:
        """Return the cost of a row for each served query: its cells, and a tid if the query reads other layouts."""
        problem, columns = self.problem, sorted(layout.columns)
        price = problem.reads[:, columns] @ problem.unit.cell[columns]
        elsewhere = problem.reads.sum(axis=1) > problem.reads[:, columns].sum(axis=1)
        served = query_mask(layout.served, len(problem.reads)) & (price > 0)
        return np.asarray(np.where(served, price + problem.unit.tid * elsewhere, 0.0), dtype=np.float64)

    def _block_samples(self, queries: Queries, copy: bool) -> _Blockings:
        served = query_mask(queries, len(self.problem.reads))
        if not queries:
            return _Blockings(None, 1.0, ((np.full(len(served), np.inf), ()),))
        if not copy:
            return _Blockings(None, 1.0, tuple(self._try_guides(self.problem, served)))
        features = self._covers.find(served)
        share = self._covers.share(features) if features else 1.0
        if share > _MAX_COPY_SHARE:
            return self._cached_block(queries, False)
        return _Blockings(features, share, tuple(self._try_guides(self._cached_restrict(features), served, features)))

    def _try_guides(self, problem: Problem, served: Bits, fixed_guides: Guides = ()) -> Iterator[tuple[Floats, Guides]]:
        """Yield what the served queries read by each choice of guides, to which ``fixed_guides`` are added."""
        if not problem.samples:
            yield np.where(served, 0.0, np.inf), ()
            return
        fixed = np.array(fixed_guides, dtype=np.int64)
        chosen = feature_choices(problem, served)[: None if self._few_guides else 1]
        choices = [np.union1d(features, fixed) for features in chosen]
        rows_by_choice = compute_by_choices(problem, served, choices, self._partitioner)
        for guides, rows in zip(choices, rows_by_choice, strict=True):
            yield np.where(served, (rows * problem.weights).sum(axis=0), np.inf), tuple(guides.tolist())


class Family:
    """Queries that read the same columns: in a log of templates, one template."""

    def __init__(self, columns: Group, queries: Queries) -> None:
        self.columns = columns
        self.queries = queries
        self.numbers = np.array(sorted(queries))
        self.positions = np.array(sorted(columns))


def find_families(problem: Problem) -> tuple[Family, ...]:
    """Return the families, in the order of their first queries; queries that read no column are in none."""
    numbers_by_columns: dict[bytes, list[int]] = {}
    for query, reads in enumerate(problem.reads):
        if reads.any():
            numbers_by_columns.setdefault(np.packbits(reads).tobytes(), []).append(query)
    return tuple(
        Family(frozenset(np.flatnonzero(problem.reads[queries[0]]).tolist()), frozenset(queries))
        for queries in numbers_by_columns.values()
    )


def find_few_families(problem: Problem) -> tuple[Family, ...]:
    """Return a bounded number of families: the smallest joins the one that shares most of both's columns."""
    families = list(find_families(problem))
    while len(families) > _MAX_FAMILIES:
        smallest = families.pop(min(range(len(families)), key=lambda i: (len(families[i].queries), i)))
        overlaps = [
            len(family.columns & smallest.columns) / len(family.columns | smallest.columns) for family in families
        ]
        nearest = overlaps.index(max(overlaps))
        merged = families[nearest]
        families[nearest] = Family(merged.columns | smallest.columns, merged.queries | smallest.queries)
    return tuple(families)


class _LayoutInfo(NamedTuple):
    number: int
    order: tuple[list[int], list[int]]
    serving: list[bool]


class Costs:
    """The costs of layouts, cached by family: an operation changes what few families read.

    Attributes:
        stored: the cost of a stored cell of each column and of a stored tid; the unit of a budget.
        read: the cost of reading them.
    """

    def __init__(self, evaluator: Evaluator, stored: Unit, read: Unit | None = None) -> None:
        self.evaluator = evaluator
        self.stored = stored
        self.read = read or evaluator.problem.unit
        self._families = find_families(evaluator.problem)
        self._info: dict[LayoutCandidate, _LayoutInfo] = {}
        self._family_cost: dict[tuple[int, tuple[int, ...]], float] = {}

    def query_cost(self, layouts: Candidates) -> float:
        """Return the cost of all queries: cells, and tids where several layouts are read.

        Raises:
            ValueError: a query reads a column that no layout has for it.
        """
        in_order = sorted(((self._layout_info(d), d) for d in layouts), key=lambda pair: pair[0].order)
        shape = (len(in_order), len(self._families))
        serving = np.array([info.serving for info, _ in in_order], dtype=np.bool_).reshape(shape)
        numbers = [info.number for info, _ in in_order]
        keys = [(f, tuple(compress(numbers, serves))) for f, serves in enumerate(serving.T.tolist())]
        missing = [f for f, key in enumerate(keys) if key not in self._family_cost]
        for families in self._batch_families(missing, len(in_order)):
            costs = self._cost_families(families, [layout for _, layout in in_order])
            self._family_cost.update(zip((keys[f] for f in families), costs, strict=True))
        return sum(self._family_cost[key] for key in keys)

    def storage(self, layouts: Candidates) -> float:
        """Return what the layouts store for each row of the table, in the unit of the budget (5.2).

        A layout stores its columns for its share of the rows. A column that no layout stores for all rows is stored
        for the rest too, in the layout with the largest share: there it is master (5.5.3).
        """
        total = 0.0
        with_rest: set[LayoutCandidate] = set()
        masters = master_layouts(self.evaluator, layouts)
        for layout in layouts:
            share = self.evaluator.evaluate(layout).share
            total += share * float(self.stored.cell[sorted(layout.columns)].sum())
            if len(layouts) > 1:
                total += share * self.stored.tid
        rests = {layout: 1.0 - self.evaluator.evaluate(layout).share for layout in set(masters.values())}
        for column, layout in masters.items():
            rest = rests[layout]
            total += rest * float(self.stored.cell[column])
            if rest and len(layouts) > 1 and layout not in with_rest:
                with_rest.add(layout)
                total += rest * self.stored.tid
        return total

    def _layout_info(self, layout: LayoutCandidate) -> _LayoutInfo:
        if layout not in self._info:
            serving = [
                not (layout.columns.isdisjoint(f.columns) or layout.served.isdisjoint(f.queries))
                for f in self._families
            ]
            order = (sorted(layout.columns), sorted(layout.served))
            self._info[layout] = _LayoutInfo(len(self._info), order, serving)
        return self._info[layout]

    def _batch_families(self, numbers: Sequence[int], layouts: int) -> Iterator[list[int]]:
        """Yield families to cost together: at least one, and few enough for small arrays."""
        batch: list[int] = []
        cells = 0
        for number in numbers:
            family = self._families[number]
            family_cells = layouts * len(family.numbers) * len(family.columns)
            if batch and cells + family_cells > _CELLS_AT_ONCE:
                yield batch
                batch, cells = [], 0
            batch.append(number)
            cells += family_cells
        if batch:
            yield batch

    def _cost_families(self, numbers: Sequence[int], layouts: Sequence[LayoutCandidate]) -> list[float]:
        problem = self.evaluator.problem
        query_numbers = [self._families[number].numbers for number in numbers]
        queries = np.concatenate(query_numbers)
        rows = np.array([self.evaluator.evaluate(d).rows[queries] for d in layouts]).reshape(len(layouts), len(queries))
        holds = np.zeros((len(layouts), len(problem.columns)), dtype=np.bool_)
        for place, layout in enumerate(layouts):
            holds[place, list(layout.columns)] = True
        costs = path_costs(rows, holds, problem.reads[queries], self.read.cell, self.read.tid)
        ends = np.cumsum([len(family) for family in query_numbers])[:-1]
        return [float(family.sum()) for family in np.split(costs, ends)]


def master_layouts(evaluator: Evaluator, layouts: Sequence[LayoutCandidate]) -> dict[int, LayoutCandidate]:
    """Return the layout in which each column is master (5.5.3): that with the largest share, of equals the first."""
    masters: dict[int, tuple[float, LayoutCandidate]] = {}
    for layout in layouts:
        share = evaluator.evaluate(layout).share
        for column in layout.columns:
            if column not in masters or share > masters[column][0]:
                masters[column] = (share, layout)
    return {column: layout for column, (_, layout) in masters.items()}


def path_costs(rows: Floats, holds: Bits, reads: Bits, cell: Floats, tid: float) -> Floats:
    """Return the cost of each query, by the better of the greedy path and the best single layout (5.6.3).

    With ``L(c)`` the layout from which :func:`layoutopt.model.retrieval.choose_path` reads column c::

        greedy = sum of cell(c) * rows(L(c)) over its columns + tid * sum of rows over the layouts read, if several
        single = sum of cell(c) over its columns * the fewest rows of a layout that has all of them

    A scan that compares more paths reads no more. Here the greedy path reads 10 + 4 cells and as many tids, the first
    layout alone 10 + 10 cells:

    >>> rows, holds = np.array([[10.0], [4.0]]), np.array([[True, True], [False, True]])
    >>> [path_costs(rows, holds, np.ones((1, 2), bool), np.ones(2), tid).tolist() for tid in (1.0, 0.25)]
    [[20.0], [17.5]]

    Args:
        rows: weighted rows, ``float64[layouts, queries]``; infinite where a layout does not serve a query.
        holds: which layout has which column, ``bool[layouts, columns]``.
        reads: which query reads which column, ``bool[queries, columns]``.
        cell: cost of a cell of each column.
        tid: cost of a tid.

    Raises:
        ValueError: a query has a column that no layout serves.
    """
    query, column = np.nonzero(reads)  # of every (query, column) that is read
    readable = np.where(holds[:, column], rows[:, query], np.inf)
    fewest = readable.min(axis=0, initial=np.inf)
    if not np.isfinite(fewest).all():
        raise ValueError("a query has a column that no layout serves: expected every query to find all its columns")
    held_columns = holds.astype(np.float32) @ reads.T.astype(np.float32)
    # Of layouts with equally few rows, the one with most of the query's columns, then the first.
    layout = np.where(readable == fewest, held_columns[:, query], -1.0).argmax(axis=0)
    costs = np.bincount(query, cell[column] * fewest, len(reads)).astype(
        np.float64
    )  # for empty input numpy returns integers
    used = np.zeros(rows.shape, dtype=np.bool_)
    used[layout, query] = True
    costs += tid * (used.sum(axis=0) > 1) * np.where(used, rows, 0.0).sum(axis=0)
    has_all = held_columns == reads.sum(axis=1)
    cells_per_row = np.bincount(
        query, cell[column], len(reads)
    )  # a matrix product's last bits would depend on the other queries
    alone = np.where(has_all & (cells_per_row > 0), rows, np.inf).min(axis=0, initial=np.inf)
    return np.asarray(np.minimum(costs, alone * np.where(cells_per_row > 0, cells_per_row, 1.0)))
