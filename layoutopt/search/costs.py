"""What a set of layouts costs: the queries' cells and tids (Sun 2017, Eq. 5.1 with 4.2), and storage (Eq. 5.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np

from layoutopt.model.arrays import Bits, Floats
from layoutopt.search.candidates import Candidate, Candidates, Queries
from layoutopt.search.evaluation import Evaluator
from layoutopt.search.grouping import Group
from layoutopt.search.problem import Problem, Unit

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
