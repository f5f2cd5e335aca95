"""What a set of layouts costs: the queries' cells and tids (Sun 2017, Eq. 5.1 with 4.2), and storage (Eq. 5.2)."""

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
from layoutopt.search.problem import Problem, Unit, restricted
from layoutopt.search.rows import rows_by

# ----------------------------------------------------------------------------------------------------
# Candidate layouts of a search for replication: columns, and the queries that are to read them there.
#
# The text's operations (Sun 2017, 5.5.1) move features between layouts. Here a layout is told which queries it serves,
# and its local features follow from these: see :mod:`layoutopt.search.costs`.

Queries = frozenset[int]
"""Query numbers of a problem."""


@dataclass(frozen=True)
class Candidate:
    """A layout in a search.

    Attributes:
        columns: what it stores.
        served: the queries that are to read it.
        copy: whether it may leave out rows that its queries don't need.
    """

    columns: Group
    served: Queries
    copy: bool = False


Candidates = tuple[Candidate, ...]


def mask_of(queries: Iterable[int], n_queries: int) -> Bits:
    """A set of queries as a mask, ``bool[n_queries]``."""
    mask = np.zeros(n_queries, dtype=np.bool_)
    mask[list(queries)] = True
    return mask


def joined(layouts: Iterable[Candidate]) -> Candidates:
    """The automatic merge (5.5.2): layouts that serve the same queries are one, in the order of their first columns.

    They have the same local features, so a merge costs nothing and saves tids. Layouts without columns are left out.
    """
    by_queries: dict[Queries, Candidate] = {}
    for layout in layouts:
        if layout.columns:
            other = by_queries.get(layout.served, layout)
            by_queries[layout.served] = Candidate(
                layout.columns | other.columns, layout.served, layout.copy and other.copy
            )
    return tuple(sorted(by_queries.values(), key=lambda layout: (sorted(layout.columns), sorted(layout.served))))


def tidied(problem: Problem, layouts: Sequence[Candidate]) -> list[Candidate]:
    """The layouts without columns that none of their queries reads, where another layout has the column."""
    read = [frozenset(np.flatnonzero(problem.reads[sorted(d.served)].any(axis=0)).tolist()) for d in layouts]
    holders = Counter(column for layout in layouts for column in layout.columns)
    kept = []
    for layout, used in zip(layouts, read, strict=True):
        spare = {column for column in layout.columns - used if holders[column] > 1}
        holders.subtract(spare)
        kept.append(replace(layout, columns=layout.columns - spare))
    return kept


# ----------------------------------------------------------------------------------------------------
# Which rows a copy must hold: features such that every row that its queries need has one of them (Sun 2017, 5.4.1).
#
# A query may read a layout of some rows only where the OR of the layout's features subsumes it (5.6.1), which is where
# all members of one of the query's skip sets are among them. What is to hold for queries not seen yet is cross-
# validated:
# the features found for one half of the queries must serve the other half too. That rules out copies for the very
# constants of the log, and leaves general features and sets that have every constant.

_LEAST_SERVED = 0.95
"""Of the weight of the queries held back."""


class Covers:
    """Finds covers for sets of queries of one problem."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._members: Bits = problem.members > 0
        self._weights: Floats = problem.weights.sum(axis=0)

    def find(self, served: Bits) -> tuple[int, ...]:
        """Few rows' features, by which all these queries and, by cross-validation, others like them are served.

        Of the queries ``bool[queries]``; feature numbers, ascending, none where there is no such set.
        """
        numbers = np.flatnonzero(served)
        if not self._hold_for_others(numbers):
            return ()
        return self._cover(numbers)

    def share(self, features: tuple[int, ...]) -> float:
        """The share of the sampled rows that have one of these features, weighed by what the samples stand for."""
        rows = self._problem.rows
        return min(1.0, self._problem.rows_with_any(features) / rows) if rows else 1.0

    def serves(self, features: tuple[int, ...], queries: Ints) -> Bits:
        """Which of the queries these features serve, ``bool[len(queries)]``."""
        inside = np.zeros(len(self._members), dtype=np.bool_)
        inside[list(features)] = True
        whole: Bits = ~np.asarray(self._members[~inside].any(axis=0), dtype=np.bool_)
        return np.asarray((self._problem.skips[queries] & whole).any(axis=1), dtype=np.bool_)

    def _hold_for_others(self, queries: Ints) -> bool:
        if len(queries) < 2:
            return bool(len(queries))
        for half, other in ((queries[::2], queries[1::2]), (queries[1::2], queries[::2])):
            weights = self._weights[other]
            features = self._cover(half)
            if not features or weights @ self.serves(features, other) < _LEAST_SERVED * weights.sum():
                return False
        return True

    def _cover(self, queries: Ints) -> tuple[int, ...]:
        """The features of skip sets that serve all queries: one skip set for all, or several chosen greedily."""
        skips = self._problem.skips[queries]
        found = [features for features in (self._common(skips), self._greedy(skips, queries)) if features]
        return min(found, key=lambda features: (self.share(features), features), default=())

    def _common(self, skips: Bits) -> tuple[int, ...]:
        common = np.flatnonzero(skips.all(axis=0))
        if not len(common):
            return ()
        return self._features(common[[int(np.argmin(self._shares[common]))]])

    def _greedy(self, skips: Bits, queries: Ints) -> tuple[int, ...]:
        """By most weight of queries newly served for the rows of a skip set."""
        weights = self._weights[queries] + 1e-9
        open_, chosen = np.ones(len(queries), dtype=np.bool_), []
        while open_.any():
            worth = (weights[open_] @ skips[open_]) / np.maximum(self._shares, 1e-6)
            best = int(np.argmax(worth))
            if worth[best] <= 0:
                return ()
            chosen.append(best)
            open_ &= ~skips[:, best]
        return self._features(np.array(chosen))

    def _features(self, skip_sets: Ints) -> tuple[int, ...]:
        return tuple(np.flatnonzero(self._members[:, skip_sets].any(axis=1)).tolist())

    @cached_property
    def _shares(self) -> Floats:
        """The share of rows with a member of each skip set, ``float64[skip_sets]``."""
        return self._problem.rows_with_sets() / max(1, self._problem.rows)


# ----------------------------------------------------------------------------------------------------
# What candidate layouts are worth: the samples partitioned as a load would, once for each set of queries served.
#
# A layout's local features follow from the queries that it serves: those that guide its blocking as in 4.5, and for a
# copy those that keep the fewest rows that its queries need (Sun 2017, 5.4.1).

_MOST_COPIED = 0.8
"""A copy that would hold more of the rows holds all: it then serves every query, at little more storage."""

Guides = tuple[int, ...]
"""The local features that guide a blocking (4.5), ascending."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What a candidate layout comes to on the samples.

    Attributes:
        features: where it is a copy of some rows: any row that its queries need has one of these. None: all rows.
        share: of the rows, those that it holds whole (``|R_i| / |R|``).
        rows: what each query reads, by weight and over all samples, ``float64[queries]``; infinite if it is not served.
        guides: the local features that guide the blocking.
    """

    features: tuple[int, ...] | None
    share: float
    rows: Floats
    guides: Guides = ()


@dataclass(frozen=True, eq=False)
class _Blockings:
    """The rows that a layout holds, and what every query reads of them by each of several choices of guides."""

    features: tuple[int, ...] | None
    share: float
    choices: tuple[tuple[Floats, Guides], ...]


class Evaluator:
    """Evaluates candidate layouts, remembering all of them."""

    def __init__(self, problem: Problem, partitioner: Partitioner, few_guides: bool = True) -> None:
        """With ``few_guides`` fewer local features than fit are tried too, as :func:`feature_choices` says."""
        self.problem = problem
        self._few_guides = few_guides
        self._partitioner = partitioner
        self._covers = Covers(problem)
        self._known: dict[Candidate, Evaluation] = {}
        self._blocked = cache(self._block)
        self._restricted = cache(partial(restricted, problem))

    def evaluate(self, layout: Candidate) -> Evaluation:
        """What the layout comes to, by the guides with which its queries read least of its columns."""
        if layout not in self._known:
            found = self._blocked(layout.served, layout.copy)
            price = self._price(layout)
            costs = [float(np.where(price > 0, rows, 0.0) @ price) for rows, _ in found.choices]
            rows, guides = found.choices[int(np.argmin(costs))]
            self._known[layout] = Evaluation(found.features, found.share, rows, guides)
        return self._known[layout]

    def like(self, problem: Problem) -> Evaluator:
        """Another evaluator whose copies hold the same rows; the problems differ in their search limits alone."""
        other = Evaluator(problem, self._partitioner, self._few_guides)
        other._covers = self._covers
        return other

    def _price(self, layout: Candidate) -> Floats:
        """What a row of the layout costs each query served: its cells, and a tid where more is read elsewhere."""
        problem, columns = self.problem, sorted(layout.columns)
        price = problem.reads[:, columns] @ problem.unit.cell[columns]
        elsewhere = problem.reads.sum(axis=1) > problem.reads[:, columns].sum(axis=1)
        served = mask_of(layout.served, len(problem.reads)) & (price > 0)
        return np.asarray(np.where(served, price + problem.unit.tid * elsewhere, 0.0), dtype=np.float64)

    def _block(self, queries: Queries, copy: bool) -> _Blockings:
        served = mask_of(queries, len(self.problem.reads))
        if not queries:
            return _Blockings(None, 1.0, ((np.full(len(served), np.inf), ()),))
        if not copy:
            return _Blockings(None, 1.0, tuple(self._choices(self.problem, served)))
        features = self._covers.find(served)
        share = self._covers.share(features) if features else 1.0
        if share > _MOST_COPIED:
            return self._blocked(queries, False)
        return _Blockings(features, share, tuple(self._choices(self._restricted(features), served, features)))

    def _choices(self, problem: Problem, served: Bits, always: Guides = ()) -> Iterator[tuple[Floats, Guides]]:
        """What the queries served read by each choice of guides; ``always`` are among them in a load."""
        if not problem.samples:
            yield np.where(served, 0.0, np.inf), ()
            return
        for chosen in feature_choices(problem, served)[: None if self._few_guides else 1]:
            guides = np.union1d(chosen, np.array(always, dtype=np.int64))
            read = (rows_by(problem, served, guides, self._partitioner) * problem.weights).sum(axis=0)
            yield np.where(served, read, np.inf), tuple(guides.tolist())


_MOST_FAMILIES = 24
"""Families beyond these join the family that shares most columns: what is tried of them grows with their square."""

_CELLS = 1 << 22
"""So many cells of queries and layouts are priced at once: their arrays take some tens of megabytes."""


class Family:
    """Queries that read the same columns: in a log of templates, one template."""

    def __init__(self, columns: Group, queries: Queries) -> None:
        self.columns = columns
        self.queries = queries
        self.numbers = np.array(sorted(queries))
        self.positions = np.array(sorted(columns))


def families_of(problem: Problem) -> tuple[Family, ...]:
    """The families, in the order of their first queries; queries that read no column are in none."""
    found: dict[bytes, list[int]] = {}
    for query, reads in enumerate(problem.reads):
        if reads.any():
            found.setdefault(np.packbits(reads).tobytes(), []).append(query)
    return tuple(
        Family(frozenset(np.flatnonzero(problem.reads[queries[0]]).tolist()), frozenset(queries))
        for queries in found.values()
    )


def few_families(problem: Problem) -> tuple[Family, ...]:
    """At most so many families: the smallest joins the one with which it shares most of the columns of both."""
    left = list(families_of(problem))
    while len(left) > _MOST_FAMILIES:
        smallest = left.pop(min(range(len(left)), key=lambda i: (len(left[i].queries), i)))
        nearest = max(range(len(left)), key=lambda i: (_overlap(left[i], smallest), -i))
        other = left[nearest]
        left[nearest] = Family(other.columns | smallest.columns, other.queries | smallest.queries)
    return tuple(left)


def _overlap(one: Family, other: Family) -> float:
    return len(one.columns & other.columns) / len(one.columns | other.columns)


class _Known(NamedTuple):
    """What is known of a layout: its number, its place among others, and which families may read it."""

    number: int
    order: tuple[list[int], list[int]]
    serving: list[bool]


class Costs:
    """The costs of layouts, remembered by what they depend on: an operation changes what few families read.

    Attributes:
        evaluator: partitions the samples.
        stored: what a stored cell of each column and a stored tid cost; a budget is in this unit.
        read: what reading them costs.
    """

    def __init__(self, evaluator: Evaluator, stored: Unit, read: Unit | None = None) -> None:
        self.evaluator = evaluator
        self.stored = stored
        self.read = read or evaluator.problem.unit
        self._families = families_of(evaluator.problem)
        self._of_layout: dict[Candidate, _Known] = {}
        self._known: dict[tuple[int, tuple[int, ...]], float] = {}

    def query_cost(self, layouts: Candidates) -> float:
        """The cells, and tids where several layouts are read, of all queries, in the unit of reading.

        Raises:
            ValueError: a query reads a column that no layout has for it.
        """
        in_order = sorted(((self._layout(d), d) for d in layouts), key=lambda known: known[0].order)
        shape = (len(in_order), len(self._families))
        serving = np.array([known.serving for known, _ in in_order], dtype=np.bool_).reshape(shape)
        numbers = [known.number for known, _ in in_order]
        keys = [(f, tuple(compress(numbers, of))) for f, of in enumerate(serving.T.tolist())]
        missing = [f for f, key in enumerate(keys) if key not in self._known]
        for some in self._few_cells(missing, len(in_order)):
            costs = self._family_costs(some, [layout for _, layout in in_order])
            self._known.update(zip((keys[f] for f in some), costs, strict=True))
        return sum(self._known[key] for key in keys)

    def storage(self, layouts: Candidates) -> float:
        """What the layouts store for each row of the table, in the unit of the budget (5.2).

        A layout stores its columns for its share of the rows. A column that no layout stores for all rows is stored for
        the rest of them too, in the layout that has the largest share: there it is master (5.5.3).
        """
        total = 0.0
        with_rest: set[Candidate] = set()
        masters = masters_of(self.evaluator, layouts)
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

    def _layout(self, layout: Candidate) -> _Known:
        if layout not in self._of_layout:
            serving = [
                not (layout.columns.isdisjoint(f.columns) or layout.served.isdisjoint(f.queries))
                for f in self._families
            ]
            order = (sorted(layout.columns), sorted(layout.served))
            self._of_layout[layout] = _Known(len(self._of_layout), order, serving)
        return self._of_layout[layout]

    def _few_cells(self, numbers: Sequence[int], layouts: int) -> Iterator[list[int]]:
        """Families whose costs are found together: few enough for the arrays to be small, one at least."""
        some: list[int] = []
        cells = 0
        for number in numbers:
            family = self._families[number]
            more = layouts * len(family.numbers) * len(family.columns)
            if some and cells + more > _CELLS:
                yield some
                some, cells = [], 0
            some.append(number)
            cells += more
        if some:
            yield some

    def _family_costs(self, numbers: Sequence[int], layouts: Sequence[Candidate]) -> list[float]:
        """The costs of some families, whose queries are looked at together."""
        problem = self.evaluator.problem
        of = [self._families[number].numbers for number in numbers]
        queries = np.concatenate(of)
        rows = np.array([self.evaluator.evaluate(d).rows[queries] for d in layouts]).reshape(len(layouts), len(queries))
        holds = np.zeros((len(layouts), len(problem.columns)), dtype=np.bool_)
        for place, layout in enumerate(layouts):
            holds[place, list(layout.columns)] = True
        costs = path_costs(rows, holds, problem.reads[queries], self.read.cell, self.read.tid)
        ends = np.cumsum([len(each) for each in of])[:-1]
        return [float(each.sum()) for each in np.split(costs, ends)]


def masters_of(evaluator: Evaluator, layouts: Sequence[Candidate]) -> dict[int, Candidate]:
    """The layout in which each column is master (5.5.3): the one with the largest share of the rows, then the first."""
    found: dict[int, tuple[float, Candidate]] = {}
    for layout in layouts:
        share = evaluator.evaluate(layout).share
        for column in layout.columns:
            if column not in found or share > found[column][0]:
                found[column] = (share, layout)
    return {column: layout for column, (_, layout) in found.items()}


def path_costs(rows: Floats, holds: Bits, reads: Bits, cell: Floats, tid: float) -> Floats:
    """The cost of each query, along the better of the greedy path and the best single layout (5.6.3).

    With ``L(c)`` the layout that :func:`layoutopt.model.retrieval.choose_path` reads column c from, a query costs::

        greedy = sum of cell(c) * rows(L(c)) over its columns + tid * sum of rows over the layouts read, if several
        single = sum of cell(c) over its columns * the fewest rows of a layout that has all of them

    A scan that compares more paths reads no more than this. Here the greedy path reads 10 + 4 cells and as many tids,
    the first layout alone 10 + 10 cells:

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
    query, column = np.nonzero(reads)  # of every cell that is read, query by query
    readable = np.where(holds[:, column], rows[:, query], np.inf)
    fewest = readable.min(axis=0, initial=np.inf)
    if not np.isfinite(fewest).all():
        raise ValueError("a query has a column that no layout serves; give every query all its columns")
    held = holds.astype(np.float32) @ reads.T.astype(np.float32)
    # Of layouts with equally few rows that with most of the query's columns, then the first.
    layout = np.where(readable == fewest, held[:, query], -1.0).argmax(axis=0)
    costs = np.bincount(query, cell[column] * fewest, len(reads)).astype(np.float64)  # of nothing numpy counts integers
    used = np.zeros(rows.shape, dtype=np.bool_)
    used[layout, query] = True
    costs += tid * (used.sum(axis=0) > 1) * np.where(used, rows, 0.0).sum(axis=0)
    whole = held == reads.sum(axis=1)
    of_cells = np.bincount(query, cell[column], len(reads))  # no matrix product: its last bits depend on other queries
    alone = np.where(whole & (of_cells > 0), rows, np.inf).min(axis=0, initial=np.inf)
    return np.asarray(np.minimum(costs, alone * np.where(of_cells > 0, of_cells, 1.0)))
