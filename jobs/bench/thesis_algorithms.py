"""The thesis's search for overlapping layouts: Algorithms 1 and 2, on layouts of features (Sun 2017, 5.5).

A layout is its columns and its local features. From one layout for each column, the operation that lowers the
workload's cost most is applied repeatedly; the result is the best scheme passed. `gsop-r` searches otherwise by
default; this search is its reference.
``docs/thesis-deviations.md`` lists the deviations from the text.
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
from layoutopt.search.problem import Problem, restrict_rows
from layoutopt.search.rows import compute_rows_read

# Feature numbers of a problem.
Features = frozenset[int]

# The search ends after this many steps in a row without a gain.
_MAX_FAILURES = 10
_EPSILON = 1e-6


@dataclass(frozen=True)
class FeatureLayout:
    """A layout of 5.4.1 without its master columns, which follow from the other layouts.

    Attributes:
        columns: C_i.
        features: F_i: the layout has the rows for which one of them may be TRUE.
    """

    columns: Group
    features: Features


FeatureLayouts = tuple[FeatureLayout, ...]


def initial_layouts(problem: Problem) -> FeatureLayouts:
    """Return a layout for each column, with the features that the column is relevant to (5.5.1)."""
    relevant = relevant_columns(problem)
    return merge_equal_layouts(
        FeatureLayout(frozenset((column,)), frozenset(f for f, columns in enumerate(relevant) if column in columns))
        for column in range(len(problem.columns))
    )


def relevant_columns(problem: Problem) -> tuple[Group, ...]:
    """Return for each feature the columns that its subsumed queries read, rel-cols (5.2)."""
    return tuple(
        frozenset(np.flatnonzero(problem.reads[subsumed].any(axis=0)).tolist()) for subsumed in problem.subsumed.T
    )


def replicate(
    relevant: Sequence[Group], layouts: FeatureLayouts, layout: FeatureLayout, feature: int
) -> FeatureLayouts:
    """Store what the feature requests of the layout once more, and remove the feature from it; repl(L, L_i, f_j)."""
    rest = FeatureLayout(layout.columns, layout.features - {feature})
    return _replace_layouts(layouts, (layout,), (rest, _copy_requested(relevant, layout, frozenset((feature,)))))


def merge(layouts: FeatureLayouts, first: FeatureLayout, second: FeatureLayout) -> FeatureLayouts:
    """Merge the columns and the features of two layouts; merge(L, L_i, L_j)."""
    return _replace_layouts(
        layouts, (first, second), (FeatureLayout(first.columns | second.columns, first.features | second.features),)
    )


def merge_replicate(
    relevant: Sequence[Group], layouts: FeatureLayouts, first: FeatureLayout, second: FeatureLayout
) -> FeatureLayouts:
    """Merge two layouts with their common features, and copy for the rest; merge-repl(L, L_i, L_j)."""
    merged = FeatureLayout(first.columns | second.columns, first.features & second.features)
    copies = [
        _copy_requested(relevant, layout, features)
        for layout, features in ((first, first.features - second.features), (second, second.features - first.features))
        if features
    ]
    return _replace_layouts(layouts, (first, second), (merged, *copies))


def merge_equal_layouts(layouts: Iterable[FeatureLayout]) -> FeatureLayouts:
    """Merge layouts of the same features (5.5.2), in the order of their first columns."""
    by_features: dict[Features, Group] = {}
    for layout in layouts:
        by_features[layout.features] = by_features.get(layout.features, frozenset()) | layout.columns
    merged = (FeatureLayout(columns, features) for features, columns in by_features.items() if columns)
    return tuple(sorted(merged, key=lambda layout: (sorted(layout.columns), sorted(layout.features))))


def _copy_requested(relevant: Sequence[Group], layout: FeatureLayout, features: Features) -> FeatureLayout:
    columns = layout.columns & frozenset().union(*(relevant[feature] for feature in features))
    return FeatureLayout(columns, features)


def _replace_layouts(
    layouts: FeatureLayouts, old: tuple[FeatureLayout, ...], new: tuple[FeatureLayout, ...]
) -> FeatureLayouts:
    return merge_equal_layouts((*(layout for layout in layouts if layout not in old), *new))


class _Operation(NamedTuple):
    """An operation: repl of a layout's feature, merge of two layouts, or merge-repl of them with copies."""

    first: FeatureLayout
    second: FeatureLayout | None = None
    feature: int = -1
    copies: bool = False


@dataclass(frozen=True, eq=False)
class _FeatureRows:
    """The rows read of a layout of some features on the samples.

    Attributes:
        read: by weight and over all samples, what each query reads, ``float64[queries]``; of all rows where no feature
            subsumes it.
        subsumed: whether a feature subsumes the query, which then finds all its rows in R_i, ``bool[queries]``.
    """

    read: Floats
    subsumed: Bits


class FeatureCosts:
    """The costs of such layouts: Equation 5.1 along greedy paths or one layout alone, and Equation 5.2.

    Tids are counted where a query reads several layouts (Equation 4.2).
    """

    def __init__(self, problem: Problem, partitioner: Partitioner) -> None:
        self.problem = problem
        self._partitioner = partitioner
        self._rows = cache(self._compute_rows)
        self.share = cache(self._compute_share)

    def query_cost(self, layouts: FeatureLayouts) -> float:
        """Return the cost of all queries in the unit of the problem (5.1)."""
        return float(self.query_costs(layouts, np.arange(len(self.problem.reads))).sum())

    def query_costs(self, layouts: FeatureLayouts, queries: Ints) -> Floats:
        """Return the cost of each of some queries, ``float64[len(queries)]``."""
        problem, masters = self.problem, self.masters(layouts)
        # A query that a feature subsumes may read every column of the layout, any other its master columns (5.6.1).
        rows = np.empty((2, len(layouts), len(queries)))
        holds = np.zeros((2, len(layouts), len(problem.columns)), dtype=np.bool_)
        for place, layout in enumerate(layouts):
            layout_rows = self._rows(layout.features)
            read, subsumed = layout_rows.read[queries], layout_rows.subsumed[queries]
            rows[:, place] = np.where(subsumed, read, np.inf), np.where(subsumed, np.inf, read)
            holds[0, place, list(layout.columns)] = True
            holds[1, place, list(masters[layout])] = True
        shape = (2 * len(layouts), -1)
        reads, unit = problem.reads[queries], problem.unit
        return path_costs(rows.reshape(shape), holds.reshape(shape), reads, unit.cell, unit.tid)

    def storage(self, layouts: FeatureLayouts) -> float:
        """Return the cells stored over those of the table (5.2), without tids."""
        masters, cells = self.masters(layouts), 0.0
        for layout in layouts:
            share = self.share(layout.features)
            cells += share * len(layout.columns) + (1.0 - share) * len(masters[layout])
        return cells / len(self.problem.columns)

    def masters(self, layouts: FeatureLayouts) -> dict[FeatureLayout, Group]:
        """Return M_i: a column is master in the layout with the largest share, of equals the first (5.5.3)."""
        master_layouts: dict[int, FeatureLayout] = {}
        for layout in sorted(layouts, key=lambda layout: -self.share(layout.features)):
            for column in layout.columns:
                master_layouts.setdefault(column, layout)
        return {layout: frozenset(c for c in layout.columns if master_layouts[c] == layout) for layout in layouts}

    def _compute_share(self, features: Features) -> float:
        """Return the share of the rows that have one of the features, ``|R_i| / |R|``."""
        return min(1.0, self.problem.rows_with_any(sorted(features)) / max(1, self.problem.rows))

    def _compute_rows(self, features: Features) -> _FeatureRows:
        """Block R_i by the heaviest of the features, as many as fit (4.5)."""
        problem, numbers = self.problem, np.array(sorted(features), dtype=np.int64)
        subsumed = np.asarray(problem.subsumed[:, numbers].any(axis=1))
        segment_rows = np.array([[sample.rows] for sample in problem.samples], dtype=np.float64)
        scanned = (problem.weights * segment_rows).sum(axis=0)
        part = restrict_rows(problem, sorted(features))
        if not part.samples:
            return _FeatureRows(np.where(subsumed, 0.0, scanned), subsumed)
        guides = choose_features(part, subsumed, numbers)
        read = (compute_rows_read(part, subsumed, guides, self._partitioner) * part.weights).sum(axis=0)
        return _FeatureRows(np.where(subsumed, read, scanned), subsumed)


class ThesisSearch:
    """Algorithm 1: greedy from one layout for each column, by operations of Algorithm 2.

    The text tries every operation in every step, until none is left. Here operations are tried in the order of their
    last known gains, until the rest gained less than the best found. A few steps in a row without a gain end the
    search.
    """

    def __init__(self, costs: FeatureCosts) -> None:
        self._costs = costs
        self._relevant = relevant_columns(costs.problem)

    @cached_property
    def start(self) -> FeatureLayouts:
        """Return the initial scheme, after automatic merges."""
        return initial_layouts(self._costs.problem)

    def passed(self, budget: float) -> list[FeatureLayouts]:
        """Return the schemes that were better than all before them, the best first and the initial one last.

        All are within the budget, of cells over the table's. The search ends, since each operation reduces the
        features summed over layouts, or splits a layout's.
        """
        layouts, improving = self.start, [self.start]
        total_gain = best_gain = 0.0
        failures = 0
        last_gains: dict[_Operation, float] = {}
        while failures < _MAX_FAILURES and (step := self._apply_best(layouts, budget, last_gains)) is not None:
            gain, layouts = step
            total_gain += gain
            failures += 1
            if total_gain > best_gain + _EPSILON * best_gain:
                best_gain, failures = total_gain, 0
                improving.append(layouts)
        return improving[::-1]

    def _apply_best(
        self, layouts: FeatureLayouts, budget: float, last_gains: dict[_Operation, float]
    ) -> tuple[float, FeatureLayouts] | None:
        """Return the gain of the best operation and its result (Algorithm 2); None if there is none.

        ``last_gains`` is updated.
        """
        before = self._costs.query_costs(layouts, np.arange(len(self._costs.problem.reads)))
        best: tuple[float, FeatureLayouts] | None = None
        fits = fits_budget(self._costs, budget)
        for operation in sorted(
            self._list_operations(layouts), key=lambda operation: -last_gains.get(operation, np.inf)
        ):
            if best is not None and last_gains.get(operation, np.inf) <= best[0]:
                break
            changed = self._apply(layouts, operation)
            if not fits(changed):  # a merge with a copy may store more
                continue
            last_gains[operation] = self._compute_gain(before, layouts, changed)
            if best is None or last_gains[operation] > best[0]:
                best = last_gains[operation], changed
        return best

    def _compute_gain(self, before: Floats, layouts: FeatureLayouts, changed: FeatureLayouts) -> float:
        touched = frozenset().union(*(layout.columns for layout in {*layouts} ^ {*changed}))
        # Queries that read none of these columns cost what they did.
        queries = np.flatnonzero(self._costs.problem.reads[:, sorted(touched)].any(axis=1))
        return float((before[queries] - self._costs.query_costs(changed, queries)).sum())

    def _list_operations(self, layouts: FeatureLayouts) -> Iterator[_Operation]:
        for layout in layouts:
            if len(layout.features) > 1:
                yield from (_Operation(layout, feature=feature) for feature in sorted(layout.features))
        for first, second in combinations(layouts, 2):
            if first.features & second.features:
                yield _Operation(first, second)
                yield _Operation(first, second, copies=True)

    def _apply(self, layouts: FeatureLayouts, operation: _Operation) -> FeatureLayouts:
        first, second = operation.first, operation.second
        if second is None:
            return replicate(self._relevant, layouts, first, operation.feature)
        if operation.copies:
            return merge_replicate(self._relevant, layouts, first, second)
        return merge(layouts, first, second)


def fits_budget(costs: FeatureCosts, budget: float) -> Callable[[FeatureLayouts], bool]:
    """Return a function that tests layouts against a budget; the initial scheme is within any."""
    return lambda layouts: costs.storage(layouts) <= budget + _EPSILON


def thesis_scheme(costs: FeatureCosts, layouts: FeatureLayouts, partitioner: str) -> Scheme:
    """Return the scheme of some layouts, with their features, master columns and blocking."""
    masters = costs.masters(layouts)
    return Scheme(tuple(_to_layout(costs, layout, masters[layout], partitioner) for layout in layouts))


def _to_layout(costs: FeatureCosts, layout: FeatureLayout, master: Group, partitioner: str) -> Layout:
    names = costs.problem.columns
    columns, masters = (tuple(names[column] for column in sorted(numbers)) for numbers in (layout.columns, master))
    if not layout.features:
        return Layout(columns, (), masters, ByOrder("input"))
    return Layout(columns, tuple(sorted(layout.features)), masters, ByVectors(partitioner))
