"""GSOP-R: schemes of overlapping layouts within a storage budget (Sun 2017, chapter 5).

The text's operations move one feature of one layout at a time, and most gain nothing before the last conflict is gone.
So whole families of queries get copies first: queries of a template share columns and filters. In a layout of its own,
a family skips all that it can, reads no tids, and its features leave the other layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from typing import NamedTuple

import numpy as np

from layoutopt.model.layout import ByOrder, ByVectors, Layout, Scheme
from layoutopt.partitioning.partitioner import Partitioner
from layoutopt.search.costs import (
    Candidates,
    Costs,
    Evaluator,
    Family,
    LayoutCandidate,
    drop_unread_columns,
    find_few_families,
    master_layouts,
    merge_equal_layouts,
    query_mask,
)
from layoutopt.search.grouping import Group, queries_reading
from layoutopt.search.gsop import search_groups
from layoutopt.search.layout_operations import improve
from layoutopt.search.problem import Problem, Unit, thin_samples

# Smaller relative gains, and smaller amounts of storage, count as nothing.
_EPSILON = 1e-6

# Numbers of the families that one copy serves.
Copy = frozenset[int]


# The key of an operation, by which its worth is cached: two copies (or none), then the copies made of them.
Operation = tuple[Copy, ...]

# Vectors, and rows of a sample, of the estimate that compares operations, of which there are hundreds.
_COARSE_VECTORS = 300
# Vectors, and rows of a sample, of the estimate on which operations are compared: they are hundreds.
_COARSE_ROWS = 10_000


class LayoutCosts(NamedTuple):
    """The cost of the queries, and of storage."""

    cost: float
    stored: float


@dataclass(frozen=True)
class CopyScheme:
    """Column groups, and copies for some families of queries.

    Attributes:
        groups: the groups of columns, for queries without a copy.
        copies: the families of each copy.
    """

    groups: tuple[Group, ...]
    copies: frozenset[Copy] = frozenset()

    @property
    def copied(self) -> Copy:
        """Return the families that read a copy."""
        return frozenset(family for copy in self.copies for family in copy)


class CopySearch:
    """Greedy search over :class:`CopyScheme`, by the gain of an operation for each cell that it stores."""

    def __init__(self, problem: Problem, families: tuple[Family, ...], costs: Costs) -> None:
        self._problem = problem
        self._families = families
        self._costs = costs
        self._readers = cache(lambda group: frozenset(np.flatnonzero(queries_reading(problem, group)).tolist()))

    def layouts(self, scheme: CopyScheme) -> Candidates:
        """Return the layouts: groups lose columns that only copies are read for, and equal readers share a layout."""
        copies = [self._to_candidate(copy) for copy in scheme.copies]
        copied = frozenset(query for copy in copies for query in copy.served)
        groups = [LayoutCandidate(group, self._readers(group) - copied) for group in scheme.groups]
        return merge_equal_layouts(drop_unread_columns(self._problem, [*groups, *copies]))

    def grow(self, scheme: CopyScheme, budget: float) -> CopyScheme:
        """Repeat the operation that gains most for what it stores, within the budget, until none gains."""

        def worth(before: LayoutCosts, after: LayoutCosts) -> float:
            gain = before.cost - after.cost
            if after.stored > budget or gain <= _EPSILON * before.cost:
                return -np.inf
            # Gains without more storage come first, the largest first.
            added = after.stored - before.stored
            return gain / added if added > _EPSILON else gain / _EPSILON

        last_worth: dict[Operation, float] = {}
        while (better := self._find_best(scheme, worth, last_worth)) is not None:
            scheme = better
        return scheme

    def shrink(self, scheme: CopyScheme, budget: float) -> CopyScheme | None:
        """Repeat the operation that loses least for what it frees until the budget holds; None if it never does."""

        def worth(before: LayoutCosts, after: LayoutCosts) -> float:
            freed = before.stored - after.stored
            return (before.cost - after.cost) / freed if freed > _EPSILON else -np.inf

        last_worth: dict[Operation, float] = {}
        while self._cost_scheme(scheme).stored > budget:
            better = self._find_best(scheme, worth, last_worth)
            if better is None:
                return None
            scheme = better
        return scheme

    def _find_best(
        self, scheme: CopyScheme, worth: Callable[[LayoutCosts, LayoutCosts], float], last_worth: dict[Operation, float]
    ) -> CopyScheme | None:
        """Return the result of the worthiest operation, None if none is allowed.

        Operations are tried in the order of their last known worth, until the rest was worth less than the best found.
        ``last_worth`` is updated.
        """
        before = self._cost_scheme(scheme)
        best, best_scheme = -np.inf, None
        operations = dict(self._list_operations(scheme))
        for operation in sorted(operations, key=lambda operation: -last_worth.get(operation, np.inf)):
            if last_worth.get(operation, np.inf) <= best:
                break
            last_worth[operation] = worth(before, self._cost_scheme(operations[operation]))
            if last_worth[operation] > best:
                best, best_scheme = last_worth[operation], operations[operation]
        return best_scheme

    def _cost_scheme(self, scheme: CopyScheme) -> LayoutCosts:
        layouts = self.layouts(scheme)
        return LayoutCosts(self._costs.query_cost(layouts), self._costs.storage(layouts))

    def _list_operations(self, scheme: CopyScheme) -> Iterator[tuple[Operation, CopyScheme]]:
        copies = sorted(scheme.copies, key=sorted)
        nothing: Copy = frozenset()

        def change(first: Copy, second: Copy, *new: Copy) -> tuple[Operation, CopyScheme]:
            return (first, second, *new), replace(scheme, copies=scheme.copies - {first, second} | set(new))

        for family in range(len(self._families)):
            if family not in scheme.copied:
                new = frozenset((family,))
                yield change(nothing, nothing, new)
                yield from (change(copy, new, copy | new) for copy in copies if self._share_columns(copy, new))
        for first, second in combinations(copies, 2):
            if self._share_columns(first, second):
                yield change(first, second, first | second)
        for copy in copies:
            yield change(copy, nothing)
            if len(copy) > 1:
                yield from (change(copy, nothing, copy - {family}) for family in sorted(copy))

    def _share_columns(self, first: Copy, second: Copy) -> bool:
        """Return whether a common copy could store less than two."""
        return any(self._families[i].columns & self._families[j].columns for i in first for j in second)

    def _to_candidate(self, copy: Copy) -> LayoutCandidate:
        families = [self._families[number] for number in copy]
        columns: Group = frozenset().union(*(family.columns for family in families))
        return LayoutCandidate(columns, frozenset().union(*(family.queries for family in families)), copy=True)


@dataclass(frozen=True)
class ReplicatedScheme:
    """A scheme with its costs.

    Attributes:
        budget: the allowed storage, over that of the same table without copies.
        cost: cells and tids of the training queries, in the problem's unit.
        cells: the cells stored over those of the source (5.2).
        storage: what is stored over the same table without copies, in the unit of the budget.
    """

    budget: float
    layouts: Candidates
    cost: float
    cells: float
    storage: float


class ReplicationSearch:
    """The search for one problem; all budgets share its caches.

    Attributes:
        exact: the costs with as many vectors as a load takes.
        estimate: the costs with fewer, which compare operations.
        plain: the column groups without copies.
        unit_storage: what these store.
    """

    def __init__(
        self, problem: Problem, partitioner: Partitioner, groups: tuple[Group, ...], stored: Unit | None = None
    ) -> None:
        """Start from the best column groups; ``stored`` is the cost of storage, cells by default."""
        self.problem = problem
        self._partitioner = partitioner
        unit = stored or Unit(np.ones(len(problem.columns)), 0.0)
        self.exact = Costs(Evaluator(problem, partitioner), unit)
        coarse = replace(thin_samples(problem, _COARSE_ROWS), max_vectors=min(problem.max_vectors, _COARSE_VECTORS))
        self.estimate = Costs(self.exact.evaluator.like(coarse), unit)
        families = find_few_families(problem)
        self._copy_search = CopySearch(problem, families, self.estimate)
        self._families = families
        self._groups = groups
        self._cached_groups = cache(self._groups_without)
        self.plain = self._copy_search.layouts(CopyScheme(groups))
        self.unit_storage = self.exact.storage(self.plain)

    def best(self, budget: float) -> ReplicatedScheme:
        """Return the best scheme for a budget, by the exact costs; the groups alone are one of the candidates."""
        return self.curve([budget])[0]

    def curve(self, budgets: Sequence[float]) -> list[ReplicatedScheme]:
        """Return the best scheme for each budget, ascending.

        Results for smaller budgets are candidates for larger ones, so more storage never reads more.
        """
        known_layouts, schemes = [self.plain], []
        for budget in budgets:
            allowed = budget * self.unit_storage
            candidates = list(known_layouts)
            for copies in self._start_schemes(allowed):
                candidates += [self._copy_search.layouts(scheme) for scheme in (copies, self._regroup(copies))]
            affordable = [layouts for layouts in candidates if self.exact.storage(layouts) <= allowed]
            start = min(affordable, key=lambda layouts: (self.exact.query_cost(layouts), self.exact.storage(layouts)))
            best = improve(self.problem, start, allowed, self.estimate, self.exact)
            known_layouts.append(best)
            schemes.append(self.measured(best, budget))
        return schemes

    def measured(self, layouts: Candidates, budget: float) -> ReplicatedScheme:
        """Return the figures of some layouts."""
        cells = Costs(self.exact.evaluator, Unit(np.ones(len(self.problem.columns)), 0.0)).storage(layouts)
        return ReplicatedScheme(
            budget=budget,
            layouts=layouts,
            cost=self.exact.query_cost(layouts),
            cells=cells / len(self.problem.columns),
            storage=self.exact.storage(layouts) / self.unit_storage,
        )

    def _start_schemes(self, allowed: float) -> list[CopyScheme]:
        grown = self._copy_search.grow(CopyScheme(self._groups), allowed)
        all_copies = frozenset(frozenset((family,)) for family in range(len(self._families)))
        shrunk = self._copy_search.shrink(CopyScheme(self._groups, all_copies), allowed)
        return [grown] if shrunk is None else [grown, self._copy_search.grow(shrunk, allowed)]

    def _regroup(self, scheme: CopyScheme) -> CopyScheme:
        copied = scheme.copied
        if not copied or len(copied) == len(self._families):
            return scheme
        return replace(scheme, groups=self._cached_groups(copied))

    def _groups_without(self, families: Copy) -> tuple[Group, ...]:
        reads = self.problem.reads.copy()
        for family in families:
            reads[self._families[family].numbers] = False
        return search_groups(replace(self.problem, reads=reads), self._partitioner).best.groups


def scheme_from_layouts(evaluator: Evaluator, layouts: Sequence[LayoutCandidate], partitioner: str) -> Scheme:
    """Return the scheme of some layouts, in their order, with master columns (5.5.3) and served queries."""
    masters = master_layouts(evaluator, layouts)
    return Scheme(tuple(_to_layout(evaluator, layout, masters, partitioner) for layout in layouts))


def _to_layout(
    evaluator: Evaluator, layout: LayoutCandidate, masters: dict[int, LayoutCandidate], partitioner: str
) -> Layout:
    problem, evaluation = evaluator.problem, evaluator.evaluate(layout)
    columns = tuple(problem.columns[column] for column in sorted(layout.columns))
    guides = evaluation.guides
    blocking = ByVectors(partitioner) if guides or evaluation.features else ByOrder("input")
    if evaluation.features is None:
        return Layout(columns, guides, columns, blocking, serves=_served_queries(problem, layout))
    master = tuple(problem.columns[column] for column in sorted(layout.columns) if masters[column] is layout)
    return Layout(columns, evaluation.features, master, blocking, guides, _served_queries(problem, layout))


def _served_queries(problem: Problem, layout: LayoutCandidate) -> tuple[int, ...] | None:
    """Return the numbers of the original queries; None where the layout serves all that read its columns."""
    served = query_mask(layout.served, len(problem.reads))
    if np.array_equal(served, queries_reading(problem, layout.columns)):
        return None
    if problem.classes is None:
        return tuple(sorted(layout.served))
    return tuple(np.flatnonzero(served[problem.classes]).tolist())
