"""What a set of layouts costs: the queries' cells and tids (Sun 2017, Eq. 5.1 with 4.2), and storage (Eq. 5.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layoutopt.model.arrays import Bits, Floats
from layoutopt.model.retrieval import greedy_layouts
from layoutopt.search.candidates import Candidate, Candidates, Queries
from layoutopt.search.evaluation import Evaluator
from layoutopt.search.grouping import Group
from layoutopt.search.problem import Problem, Unit

_MOST_FAMILIES = 24
"""Families beyond these join the family that shares most columns: what is tried of them grows with their square."""


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
        self._known: dict[tuple[int, frozenset[Candidate]], float] = {}

    def query_cost(self, layouts: Candidates) -> float:
        """The cells, and tids where several layouts are read, of all queries, in the unit of reading.

        Raises:
            ValueError: a query reads a column that no layout has for it.
        """
        return sum(self._family_cost(number, layouts) for number in range(len(self._families)))

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
        for column, layout in masters.items():
            rest = 1.0 - self.evaluator.evaluate(layout).share
            total += rest * float(self.stored.cell[column])
            if rest and len(layouts) > 1 and layout not in with_rest:
                with_rest.add(layout)
                total += rest * self.stored.tid
        return total

    def _family_cost(self, number: int, layouts: Candidates) -> float:
        family = self._families[number]
        read = frozenset(d for d in layouts if d.columns & family.columns and d.served & family.queries)
        key = (number, read)
        if key not in self._known:
            in_order = sorted(read, key=lambda layout: (sorted(layout.columns), sorted(layout.served)))
            rows = (
                np.stack([self.evaluator.evaluate(d).rows[family.numbers] for d in in_order])
                if read
                else np.zeros((0, 1))
            )
            holds = np.array([[c in d.columns for c in family.positions] for d in in_order], dtype=np.bool_)
            self._known[key] = path_cost(rows, holds, self.read.cell[family.positions], self.read.tid)
        return self._known[key]


def masters_of(evaluator: Evaluator, layouts: Sequence[Candidate]) -> dict[int, Candidate]:
    """The layout in which each column is master (5.5.3): the one with the largest share of the rows, then the first."""
    found: dict[int, Candidate] = {}
    for layout in layouts:
        for column in layout.columns:
            if column not in found or evaluator.evaluate(layout).share > evaluator.evaluate(found[column]).share:
                found[column] = layout
    return found


def path_cost(rows: Floats, holds: Bits, cell: Floats, tid: float) -> float:
    """The cost of queries of one family, each along the better of the greedy path and the best single layout (5.6.3).

    With ``L(c)`` the layout that :func:`layoutopt.model.retrieval.greedy_layouts` reads column c from, a query costs::

        greedy = sum of cell(c) * rows(L(c)) over its columns + tid * sum of rows over the layouts read, if several
        single = sum of cell(c) over its columns * the fewest rows of a layout that has all of them

    A scan that compares more paths reads no more than this. Here the greedy path reads 10 + 4 cells and as many tids,
    the first layout alone 10 + 10 cells:

    >>> rows, holds = np.array([[10.0], [4.0]]), np.array([[True, True], [False, True]])
    >>> path_cost(rows, holds, cell=np.ones(2), tid=1.0), path_cost(rows, holds, cell=np.ones(2), tid=0.25)
    (20.0, 17.5)

    Args:
        rows: weighted rows, ``float64[layouts, queries]``; infinite where a layout does not serve a query.
        holds: which layout has which of the family's columns, ``bool[layouts, columns]``.
        cell: cost of a cell of each column.
        tid: cost of a tid.

    Raises:
        ValueError: a query has a column that no layout serves.
    """
    if not len(rows) or not (holds.T.astype(np.float32) @ np.isfinite(rows)).all():
        raise ValueError("a query has a column that no layout serves; give every query all its columns")
    layout = greedy_layouts(rows, holds)
    queries = np.arange(rows.shape[1])
    costs = np.zeros(len(queries))
    for price, layout_of_column in zip(cell, layout, strict=True):
        costs += price * rows[layout_of_column, queries]
    used = np.zeros(rows.shape, dtype=np.bool_)
    used[layout, queries] = True
    several = used.sum(axis=0) > 1
    costs += tid * several * np.where(used, rows, 0.0).sum(axis=0, where=np.isfinite(rows))
    whole = holds.all(axis=1)
    if whole.any():
        costs = np.minimum(costs, rows[whole].min(axis=0) * cell.sum())
    return float(costs.sum())
