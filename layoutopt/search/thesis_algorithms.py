"""The search for overlapping layouts as the text has it: Algorithms 1 and 2, on layouts of features (Sun 2017, 5.5).

A layout is its columns and its local features. From one layout for each column the operation that makes the workload's
cost least is applied again and again; the best scheme passed is the result. `gsop-r` searches otherwise by default
(decision 0030): this is what it is compared with. What differs from the text is in decision 0064.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.model.layout import ByOrder, ByVectors, Layout, Scheme
from layoutopt.partitioning.partitioner import Partitioner
from layoutopt.search.costs import path_costs
from layoutopt.search.grouping import Group
from layoutopt.search.local import choose_features
from layoutopt.search.problem import Problem, restricted
from layoutopt.search.rows import rows_by

Features = frozenset[int]
"""Feature numbers of a problem."""


@dataclass(frozen=True)
class FeatureLayout:
    """A layout of 5.4.1 without its master columns, which follow from the others.

    Attributes:
        columns: C_i.
        features: F_i: the layout has the rows that one of them may be TRUE for.
    """

    columns: Group
    features: Features


FeatureLayouts = tuple[FeatureLayout, ...]

_STEPS_IN_VAIN = 10
_NOTHING = 1e-6


def initial(problem: Problem) -> FeatureLayouts:
    """A layout for each column, with the features that the column is relevant to (5.5.1)."""
    relevant = relevant_columns(problem)
    return merged_alike(
        FeatureLayout(frozenset((column,)), frozenset(f for f, columns in enumerate(relevant) if column in columns))
        for column in range(len(problem.columns))
    )


def relevant_columns(problem: Problem) -> tuple[Group, ...]:
    """Of each feature the columns that the queries read which it subsumes, rel-cols (5.2)."""
    return tuple(
        frozenset(np.flatnonzero(problem.reads[subsumed].any(axis=0)).tolist()) for subsumed in problem.subsumed.T
    )


def replicate(
    relevant: Sequence[Group], layouts: FeatureLayouts, layout: FeatureLayout, feature: int
) -> FeatureLayouts:
    """repl(L, L_i, f_j): what the feature requests of the layout is stored once more, and no longer its concern."""
    rest = FeatureLayout(layout.columns, layout.features - {feature})
    return _replaced(layouts, (layout,), (rest, _requested(relevant, layout, frozenset((feature,)))))


def merge(layouts: FeatureLayouts, one: FeatureLayout, other: FeatureLayout) -> FeatureLayouts:
    """merge(L, L_i, L_j): the columns of both, and the features of both."""
    return _replaced(
        layouts, (one, other), (FeatureLayout(one.columns | other.columns, one.features | other.features),)
    )


def merge_replicate(
    relevant: Sequence[Group], layouts: FeatureLayouts, one: FeatureLayout, other: FeatureLayout
) -> FeatureLayouts:
    """merge-repl(L, L_i, L_j): the columns of both with the common features, and copies for those of one alone."""
    both = FeatureLayout(one.columns | other.columns, one.features & other.features)
    copies = [
        _requested(relevant, layout, alone)
        for layout, alone in ((one, one.features - other.features), (other, other.features - one.features))
        if alone
    ]
    return _replaced(layouts, (one, other), (both, *copies))


def merged_alike(layouts: Iterable[FeatureLayout]) -> FeatureLayouts:
    """The automatic merge (5.5.2): layouts of the same features are one, in the order of their first columns."""
    by_features: dict[Features, Group] = {}
    for layout in layouts:
        by_features[layout.features] = by_features.get(layout.features, frozenset()) | layout.columns
    found = (FeatureLayout(columns, features) for features, columns in by_features.items() if columns)
    return tuple(sorted(found, key=lambda layout: (sorted(layout.columns), sorted(layout.features))))


def _requested(relevant: Sequence[Group], layout: FeatureLayout, features: Features) -> FeatureLayout:
    columns = layout.columns & frozenset().union(*(relevant[feature] for feature in features))
    return FeatureLayout(columns, features)


def _replaced(
    layouts: FeatureLayouts, old: tuple[FeatureLayout, ...], new: tuple[FeatureLayout, ...]
) -> FeatureLayouts:
    return merged_alike((*(layout for layout in layouts if layout not in old), *new))


class _Operation(NamedTuple):
    """One of the operations: repl of a layout's feature, merge of two layouts, or merge-repl of them with copies."""

    one: FeatureLayout
    other: FeatureLayout | None = None
    feature: int = -1
    copies: bool = False


@dataclass(frozen=True, eq=False)
class _Rows:
    """What a layout of some features comes to on the samples.

    Attributes:
        read: by weight and over all samples, what each query reads, ``float64[queries]``; of all rows where no feature
            subsumes it.
        subsumed: whether a feature subsumes the query, which then finds all its rows in R_i, ``bool[queries]``.
    """

    read: Floats
    subsumed: Bits


class FeatureCosts:
    """The costs of such layouts: Equation 5.1 along greedy paths or one layout alone, and Equation 5.2.

    Tids are counted where a query reads several layouts, as Equation 4.2 has it.
    """

    def __init__(self, problem: Problem, partitioner: Partitioner) -> None:
        self.problem = problem
        self._partitioner = partitioner
        self._rows = cache(self._find_rows)
        self.share = cache(self._share)

    def query_cost(self, layouts: FeatureLayouts) -> float:
        """The cells, and tids where several layouts are read, of all queries, in the unit of the problem (5.1)."""
        return float(self.query_costs(layouts, np.arange(len(self.problem.reads))).sum())

    def query_costs(self, layouts: FeatureLayouts, queries: Ints) -> Floats:
        """The same of some queries, each, ``float64[len(queries)]``."""
        problem, masters = self.problem, self.masters(layouts)
        # A query that a feature subsumes may read every column of the layout, any other its master columns (5.6.1).
        rows = np.empty((2, len(layouts), len(queries)))
        holds = np.zeros((2, len(layouts), len(problem.columns)), dtype=np.bool_)
        for place, layout in enumerate(layouts):
            found = self._rows(layout.features)
            read, subsumed = found.read[queries], found.subsumed[queries]
            rows[:, place] = np.where(subsumed, read, np.inf), np.where(subsumed, np.inf, read)
            holds[0, place, list(layout.columns)] = True
            holds[1, place, list(masters[layout])] = True
        shape = (2 * len(layouts), -1)
        reads, unit = problem.reads[queries], problem.unit
        return path_costs(rows.reshape(shape), holds.reshape(shape), reads, unit.cell, unit.tid)

    def storage(self, layouts: FeatureLayouts) -> float:
        """The cells stored over those of the table (5.2); tids are not counted."""
        masters, cells = self.masters(layouts), 0.0
        for layout in layouts:
            share = self.share(layout.features)
            cells += share * len(layout.columns) + (1.0 - share) * len(masters[layout])
        return cells / len(self.problem.columns)

    def masters(self, layouts: FeatureLayouts) -> dict[FeatureLayout, Group]:
        """M_i: a column is master in the layout that has the largest share of the rows, of equals the first (5.5.3)."""
        found: dict[int, FeatureLayout] = {}
        for layout in sorted(layouts, key=lambda each: -self.share(each.features)):
            for column in layout.columns:
                found.setdefault(column, layout)
        return {layout: frozenset(c for c in layout.columns if found[c] == layout) for layout in layouts}

    def _share(self, features: Features) -> float:
        """The share of the rows that have one of the features, ``|R_i| / |R|``."""
        return min(1.0, self.problem.rows_with_any(sorted(features)) / max(1, self.problem.rows))

    def _find_rows(self, features: Features) -> _Rows:
        """R_i blocked by the heaviest of the features, as many as fit (4.5)."""
        problem, numbers = self.problem, np.array(sorted(features), dtype=np.int64)
        subsumed = np.asarray(problem.subsumed[:, numbers].any(axis=1))
        weights, every = problem.weights, np.array([[sample.rows] for sample in problem.samples], dtype=np.float64)
        scanned = (weights * every).sum(axis=0)
        part = restricted(problem, sorted(features))
        if not part.samples:
            return _Rows(np.where(subsumed, 0.0, scanned), subsumed)
        guides = choose_features(part, subsumed, numbers)
        read = (rows_by(part, subsumed, guides, self._partitioner) * part.weights).sum(axis=0)
        return _Rows(np.where(subsumed, read, scanned), subsumed)


class SearchAsWritten:
    """Algorithm 1: the greedy way from one layout a column, by operations of Algorithm 2.

    The text tries every operation in every step. Here what an operation gained when it was tried last says what it may
    gain now: they are tried in that order until what is left gained less than the best found. And the text goes on
    until no operation is left; here a few steps in a row that gain nothing are the last.
    """

    def __init__(self, costs: FeatureCosts) -> None:
        self._costs = costs
        self._relevant = relevant_columns(costs.problem)

    @cached_property
    def start(self) -> FeatureLayouts:
        """The initial scheme, after automatic merges."""
        return initial(self._costs.problem)

    def passed(self, budget: float) -> list[FeatureLayouts]:
        """The schemes passed that were better than all before them, the best first and the initial one last.

        All are within the budget, of cells over the table's. The search ends: each operation makes less of the features
        summed over layouts, or splits a layout's.
        """
        layouts, better = self.start, [self.start]
        gained = most = 0.0
        in_vain = 0
        known: dict[_Operation, float] = {}
        while in_vain < _STEPS_IN_VAIN and (found := self._next(layouts, budget, known)) is not None:
            gain, layouts = found
            gained += gain
            in_vain += 1
            if gained > most + _NOTHING * most:
                most, in_vain = gained, 0
                better.append(layouts)
        return better[::-1]

    def _next(
        self, layouts: FeatureLayouts, budget: float, known: dict[_Operation, float]
    ) -> tuple[float, FeatureLayouts] | None:
        """What the best operation gains and its result (Algorithm 2); None where there is no operation.

        ``known`` is brought up to date.
        """
        before = self._costs.query_costs(layouts, np.arange(len(self._costs.problem.reads)))
        best: tuple[float, FeatureLayouts] | None = None
        fits = within(self._costs, budget)
        for operation in sorted(self._operations(layouts), key=lambda each: -known.get(each, np.inf)):
            if best is not None and known.get(operation, np.inf) <= best[0]:
                break
            changed = self._result(layouts, operation)
            if not fits(changed):  # a merge with a copy may store more, too
                continue
            known[operation] = self._gain(before, layouts, changed)
            if best is None or known[operation] > best[0]:
                best = known[operation], changed
        return best

    def _gain(self, before: Floats, layouts: FeatureLayouts, changed: FeatureLayouts) -> float:
        touched = frozenset().union(*(layout.columns for layout in {*layouts} ^ {*changed}))
        # Queries that read none of these columns cost what they did.
        queries = np.flatnonzero(self._costs.problem.reads[:, sorted(touched)].any(axis=1))
        return float((before[queries] - self._costs.query_costs(changed, queries)).sum())

    def _operations(self, layouts: FeatureLayouts) -> Iterator[_Operation]:
        for layout in layouts:
            if len(layout.features) > 1:
                yield from (_Operation(layout, feature=feature) for feature in sorted(layout.features))
        for one, other in combinations(layouts, 2):
            if one.features & other.features:
                yield _Operation(one, other)
                yield _Operation(one, other, copies=True)

    def _result(self, layouts: FeatureLayouts, operation: _Operation) -> FeatureLayouts:
        one, other = operation.one, operation.other
        if other is None:
            return replicate(self._relevant, layouts, one, operation.feature)
        if operation.copies:
            return merge_replicate(self._relevant, layouts, one, other)
        return merge(layouts, one, other)


def within(costs: FeatureCosts, budget: float) -> Callable[[FeatureLayouts], bool]:
    """Whether layouts are within a budget by these costs; the initial scheme is within any."""
    return lambda layouts: costs.storage(layouts) <= budget + _NOTHING


def scheme_as_written(costs: FeatureCosts, layouts: FeatureLayouts, partitioner: str) -> Scheme:
    """The scheme of some layouts: each with its features, its master columns and what blocks its rows."""
    masters = costs.masters(layouts)
    return Scheme(tuple(_layout(costs, layout, masters[layout], partitioner) for layout in layouts))


def _layout(costs: FeatureCosts, layout: FeatureLayout, master: Group, partitioner: str) -> Layout:
    names = costs.problem.columns
    columns, masters = (tuple(names[column] for column in sorted(some)) for some in (layout.columns, master))
    if not layout.features:
        return Layout(columns, (), masters, ByOrder("input"))
    return Layout(columns, tuple(sorted(layout.features)), masters, ByVectors(partitioner))
