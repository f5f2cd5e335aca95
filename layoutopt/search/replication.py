"""GSOP-R: schemes whose layouts overlap, within a storage budget (Sun 2017, chapter 5)."""

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
    Candidate,
    Candidates,
    Costs,
    Evaluator,
    Family,
    Queries,
    few_families,
    joined,
    mask_of,
    masters_of,
    tidied,
)
from layoutopt.search.grouping import Group, served_by
from layoutopt.search.gsop import search_groups
from layoutopt.search.layout_operations import improve, read_by, subsumed_queries
from layoutopt.search.problem import Problem, Unit, thinned

# ----------------------------------------------------------------------------------------------------
# The coarse operation of replication: whole families of queries get copies of their columns.
#
# The text's operations move one feature of one layout at a time, and most gain nothing before the last conflict is
# gone.
# A family's queries (those of a template) share columns and filters. In a layout of its own each skips all that it can,
# reads no tids, and its features leave the layouts of the others. Copies of several families may be merged.

_NOTHING = 1e-6

Copy = frozenset[int]
"""Numbers of the families that one copy serves."""


Operation = tuple[Copy, ...]
"""The name of an operation, by which its worth is remembered: two copies (or none), then the copies made of them."""


class Figures(NamedTuple):
    """What queries read, and what is stored."""

    cost: float
    stored: float


@dataclass(frozen=True)
class CopyScheme:
    """A scheme of column groups, and copies for some families.

    Attributes:
        groups: of the columns; what no copy serves reads these.
        copies: the families of each copy.
    """

    groups: tuple[Group, ...]
    copies: frozenset[Copy] = frozenset()

    @property
    def copied(self) -> Copy:
        """The families that read a copy."""
        return frozenset(family for copy in self.copies for family in copy)


class CopySearch:
    """Greedy search over :class:`CopyScheme`, by what an operation gains for each cell that it stores."""

    def __init__(self, problem: Problem, families: tuple[Family, ...], costs: Costs) -> None:
        self._problem = problem
        self._families = families
        self._costs = costs
        self._readers = cache(self._read_by)

    def layouts(self, scheme: CopyScheme) -> Candidates:
        """The layouts: a group loses the columns that only copies are read for, and those of equal readers are one."""
        copies = [self._copy(copy) for copy in scheme.copies]
        copied = frozenset(query for copy in copies for query in copy.served)
        groups = [Candidate(group, self._readers(group) - copied) for group in scheme.groups]
        return joined(tidied(self._problem, [*groups, *copies]))

    def grow(self, scheme: CopyScheme, budget: float) -> CopyScheme:
        """Take the operation that gains most for what it stores, within the budget, until none gains."""

        def worth(before: Figures, after: Figures) -> float:
            gain = before.cost - after.cost
            if after.stored > budget or gain <= _NOTHING * before.cost:
                return -np.inf
            # Where nothing more is stored, any gain comes before all others, the largest first.
            more = after.stored - before.stored
            return gain / more if more > _NOTHING else gain / _NOTHING

        known: dict[Operation, float] = {}
        while (better := self._best(scheme, worth, known)) is not None:
            scheme = better
        return scheme

    def shrink(self, scheme: CopyScheme, budget: float) -> CopyScheme | None:
        """Take the operation that loses least for what it frees until the budget holds; None if it never does."""

        def worth(before: Figures, after: Figures) -> float:
            freed = before.stored - after.stored
            return (before.cost - after.cost) / freed if freed > _NOTHING else -np.inf

        known: dict[Operation, float] = {}
        while self._figures(scheme).stored > budget:
            better = self._best(scheme, worth, known)
            if better is None:
                return None
            scheme = better
        return scheme

    def _best(
        self, scheme: CopyScheme, worth: Callable[[Figures, Figures], float], known: dict[Operation, float]
    ) -> CopyScheme | None:
        """The result of the worthiest operation, None if none is allowed.

        What an operation was worth before is about what it is worth now: they are tried in that order until what is
        left was worth less than the best found. ``known`` is brought up to date.
        """
        before = self._figures(scheme)
        best, found = -np.inf, None
        operations = dict(self._operations(scheme))
        for operation in sorted(operations, key=lambda each: -known.get(each, np.inf)):
            if known.get(operation, np.inf) <= best:
                break
            known[operation] = worth(before, self._figures(operations[operation]))
            if known[operation] > best:
                best, found = known[operation], operations[operation]
        return found

    def _figures(self, scheme: CopyScheme) -> Figures:
        layouts = self.layouts(scheme)
        return Figures(self._costs.query_cost(layouts), self._costs.storage(layouts))

    def _operations(self, scheme: CopyScheme) -> Iterator[tuple[Operation, CopyScheme]]:
        """Give a family a copy, let it join one, merge two copies, give one up, or let one family leave."""
        copies = sorted(scheme.copies, key=sorted)
        nothing: Copy = frozenset()

        def changed(one: Copy, other: Copy, *new: Copy) -> tuple[Operation, CopyScheme]:
            return (one, other, *new), replace(scheme, copies=scheme.copies - {one, other} | set(new))

        for family in range(len(self._families)):
            if family not in scheme.copied:
                alone = frozenset((family,))
                yield changed(nothing, nothing, alone)
                yield from (changed(copy, alone, copy | alone) for copy in copies if self._share_columns(copy, alone))
        for one, other in combinations(copies, 2):
            if self._share_columns(one, other):
                yield changed(one, other, one | other)
        for copy in copies:
            yield changed(copy, nothing)
            if len(copy) > 1:
                yield from (changed(copy, nothing, copy - {family}) for family in sorted(copy))

    def _share_columns(self, one: Copy, other: Copy) -> bool:
        """Whether a common copy could store less than two."""
        return any(self._families[i].columns & self._families[j].columns for i in one for j in other)

    def _copy(self, copy: Copy) -> Candidate:
        families = [self._families[number] for number in copy]
        columns: Group = frozenset().union(*(family.columns for family in families))
        return Candidate(columns, frozenset().union(*(family.queries for family in families)), copy=True)

    def _read_by(self, group: Group) -> Queries:
        return frozenset(np.flatnonzero(served_by(self._problem, group)).tolist())


# ----------------------------------------------------------------------------------------------------
# The two basic ways to replicate that GSOP-R is compared with (Sun 2017, 5.3): selective, and full copies.

_MOST_COPIED = 64
"""Features replicated at most."""


def selective(problem: Problem, plain: Candidates, allowed: float, costs: Costs) -> Candidates:
    """GSOP with the rows and columns that features request stored once more, one feature after the other (5.3.1).

    The feature comes next that gains most for what it stores, until no more is ``allowed``, in the unit of the costs'
    storage. Its queries leave the column groups (``plain``), which are then partitioned for the others.
    """
    layouts, left = plain, dict(subsumed_queries(problem))
    for _ in range(_MOST_COPIED):
        best = _most_worth(problem, layouts, left, allowed, costs)
        if best is None:
            break
        relieved = _relieved(layouts, best.served)
        layouts = min(((*relieved, best), (*layouts, best)), key=costs.query_cost)
        del left[best.served]
    return layouts


def _most_worth(
    problem: Problem, layouts: Candidates, left: dict[Queries, float], allowed: float, costs: Costs
) -> Candidate | None:
    """The feature's copy that gains most for each cell stored while the groups stay as they are."""
    cost, stored = costs.query_cost(layouts), costs.storage(layouts)
    found: tuple[float, Candidate] | None = None
    for queries in left:
        copy = Candidate(read_by(problem, queries), queries, copy=True)
        more = costs.storage((*layouts, copy)) - stored
        gain = cost - costs.query_cost((*layouts, copy)) if stored + more <= allowed else 0.0
        worth = gain / max(more, _NOTHING)
        if gain > _NOTHING * cost and (found is None or worth > found[0]):
            found = (worth, copy)
    return found[1] if found else None


def _relieved(layouts: Candidates, queries: Queries) -> Candidates:
    """The layouts without these queries, where they are not copies for features."""
    return tuple(layout if layout.copy else replace(layout, served=layout.served - queries) for layout in layouts)


def full_copies(problem: Problem, copies: int, partitioner: Partitioner, costs: Costs) -> Candidates:
    """Whole copies of the table, each with column groups for its share of the queries (5.3.2).

    The text merges features, bottom-up and by cost, until as many clusters are left as copies. Here families of queries
    are merged, few from the start, each with the features that serve it; what a cluster costs is estimated by one
    layout for it, and every pair's merge is estimated once.
    """
    layouts: list[Candidate] = []
    clusters = _clusters(problem, copies, costs)
    for cluster in clusters + [frozenset()] * (copies - len(clusters)):
        reads = problem.reads.copy()
        reads[[query for query in range(len(reads)) if query not in cluster]] = False
        groups = search_groups(replace(problem, reads=reads), partitioner).best.groups
        layouts += [
            Candidate(group, frozenset(np.flatnonzero(reads[:, sorted(group)].any(axis=1)).tolist()))
            for group in groups
        ]
    return tuple(layouts)


def _clusters(problem: Problem, count: int, costs: Costs) -> list[Queries]:
    clusters = [family.queries for family in few_families(problem)]

    def cost(queries: Queries) -> float:
        rows = costs.evaluator.evaluate(Candidate(read_by(problem, queries), queries)).rows
        numbers = sorted(queries)
        return float((rows[numbers] * (problem.reads[numbers] @ problem.unit.cell)).sum())

    while len(clusters) > count:
        one, other = min(
            combinations(clusters, 2), key=lambda pair: cost(pair[0] | pair[1]) - cost(pair[0]) - cost(pair[1])
        )
        clusters = [cluster for cluster in clusters if cluster not in (one, other)] + [one | other]
    return clusters


_COARSE_VECTORS = 300
_COARSE_ROWS = 10_000
"""Vectors, and rows of a sample, of the estimate on which operations are compared: they are hundreds."""


@dataclass(frozen=True)
class ReplicatedScheme:
    """A scheme with what it costs.

    Attributes:
        budget: the storage that it was allowed, over that of the same table without copies.
        layouts: the layouts.
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
    """The search for one problem; budgets share all that was evaluated.

    Attributes:
        exact: the costs with as many vectors as a load takes.
    """

    def __init__(
        self, problem: Problem, partitioner: Partitioner, groups: tuple[Group, ...], stored: Unit | None = None
    ) -> None:
        """Start from the best column groups found; ``stored`` is what storing costs, cells where left out."""
        self.problem = problem
        self._partitioner = partitioner
        unit = stored or Unit(np.ones(len(problem.columns)), 0.0)
        self.exact = Costs(Evaluator(problem, partitioner), unit)
        few = replace(thinned(problem, _COARSE_ROWS), max_vectors=min(problem.max_vectors, _COARSE_VECTORS))
        self._estimate = Costs(self.exact.evaluator.like(few), unit)
        families = few_families(problem)
        self._copy_search = CopySearch(problem, families, self._estimate)
        self._families = families
        self._groups = groups
        self._regrouped = cache(self._groups_without)
        self.plain = self._copy_search.layouts(CopyScheme(groups))
        self._unit_storage = self.exact.storage(self.plain)

    def best(self, budget: float) -> ReplicatedScheme:
        """The best scheme found for a budget, by the exact costs; the groups alone are one of the candidates."""
        return self.curve([budget])[0]

    def curve(self, budgets: Sequence[float]) -> list[ReplicatedScheme]:
        """The best for each budget, ascending; what was found for smaller ones is a candidate for larger ones.

        So more storage never reads more.
        """
        passed, schemes = [self.plain], []
        for budget in budgets:
            allowed = budget * self._unit_storage
            found = list(passed)
            for start in self._starts(allowed):
                found += [self._copy_search.layouts(each) for each in (start, self._regroup(start))]
            within = [layouts for layouts in found if self.exact.storage(layouts) <= allowed]
            best = improve(self.problem, min(within, key=self._order), allowed, self._estimate, self.exact)
            passed.append(best)
            schemes.append(self.measured(best, budget))
        return schemes

    def selective(self, budget: float) -> ReplicatedScheme:
        """The groups, and within a budget copies of what single features request (5.3.1)."""
        allowed = budget * self._unit_storage
        return self.measured(selective(self.problem, self.plain, allowed, self._estimate), budget)

    def full_copies(self, copies: int) -> ReplicatedScheme:
        """So many copies of the table, each grouped for some of the queries (5.3.2)."""
        layouts = full_copies(self.problem, copies, self._partitioner, self._estimate)
        return self.measured(layouts, float(copies))

    def measured(self, layouts: Candidates, budget: float) -> ReplicatedScheme:
        """The figures of some layouts."""
        cells = Costs(self.exact.evaluator, Unit(np.ones(len(self.problem.columns)), 0.0)).storage(layouts)
        return ReplicatedScheme(
            budget=budget,
            layouts=layouts,
            cost=self.exact.query_cost(layouts),
            cells=cells / len(self.problem.columns),
            storage=self.exact.storage(layouts) / self._unit_storage,
        )

    def _order(self, layouts: Candidates) -> tuple[float, float]:
        return self.exact.query_cost(layouts), self.exact.storage(layouts)

    def _starts(self, allowed: float) -> list[CopyScheme]:
        """From the groups upwards, and from a copy for every family downwards."""
        grown = self._copy_search.grow(CopyScheme(self._groups), allowed)
        every = frozenset(frozenset((family,)) for family in range(len(self._families)))
        shrunk = self._copy_search.shrink(CopyScheme(self._groups, every), allowed)
        return [grown] if shrunk is None else [grown, self._copy_search.grow(shrunk, allowed)]

    def _regroup(self, scheme: CopyScheme) -> CopyScheme:
        """The scheme with the columns grouped for the queries that read no copy."""
        copied = scheme.copied
        if not copied or len(copied) == len(self._families):
            return scheme
        return replace(scheme, groups=self._regrouped(copied))

    def _groups_without(self, families: Copy) -> tuple[Group, ...]:
        reads = self.problem.reads.copy()
        for family in families:
            reads[self._families[family].numbers] = False
        return search_groups(replace(self.problem, reads=reads), self._partitioner).best.groups


def scheme_of_layouts(evaluator: Evaluator, layouts: Sequence[Candidate], partitioner: str) -> Scheme:
    """The scheme of some layouts, in their order, with master columns (5.5.3) and the queries that each serves."""
    masters = masters_of(evaluator, layouts)
    return Scheme(tuple(_layout(evaluator, layout, masters, partitioner) for layout in layouts))


def _layout(evaluator: Evaluator, layout: Candidate, masters: dict[int, Candidate], partitioner: str) -> Layout:
    problem, evaluation = evaluator.problem, evaluator.evaluate(layout)
    columns = tuple(problem.columns[column] for column in sorted(layout.columns))
    guides = evaluation.guides
    blocking = ByVectors(partitioner) if guides or evaluation.features else ByOrder("input")
    if evaluation.features is None:
        return Layout(columns, guides, columns, blocking, serves=_serves(problem, layout))
    master = tuple(problem.columns[column] for column in sorted(layout.columns) if masters[column] is layout)
    return Layout(columns, evaluation.features, master, blocking, guides, _serves(problem, layout))


def _serves(problem: Problem, layout: Candidate) -> tuple[int, ...] | None:
    """The queries, of those that the problem was made of; None where they are all that read its columns."""
    served = mask_of(layout.served, len(problem.reads))
    if np.array_equal(served, served_by(problem, layout.columns)):
        return None
    if problem.classes is None:
        return tuple(sorted(layout.served))
    return tuple(np.flatnonzero(served[problem.classes]).tolist())
