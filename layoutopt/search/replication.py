"""GSOP-R: schemes whose layouts overlap, within a storage budget (Sun 2017, chapter 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from layoutopt.model.layout import ByOrder, ByVectors, Layout, Scheme
from layoutopt.partitioning.partitioner import Partitioner
from layoutopt.search.basic import full_copies, selective
from layoutopt.search.candidates import Candidate, Candidates, mask_of
from layoutopt.search.costs import Costs, few_families, masters_of
from layoutopt.search.evaluation import Evaluator
from layoutopt.search.families import Copy, CopyScheme, CopySearch
from layoutopt.search.grouping import Group, served_by
from layoutopt.search.gsop import search_groups
from layoutopt.search.problem import Problem, Unit, thinned
from layoutopt.search.transform import improve

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
