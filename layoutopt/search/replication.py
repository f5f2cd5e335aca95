"""GSOP-R: schemes whose layouts overlap, within a storage budget (Sun 2017, chapter 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from layoutopt.model.layout import ByOrder, ByVectors, Layout, Scheme
from layoutopt.partitioning.partitioner import Partitioner
from layoutopt.search.basic import full_copies, selective
from layoutopt.search.costs import Costs, few_families, masters_of
from layoutopt.search.drafts import Draft, Drafts, Maker, mask_of, thinned
from layoutopt.search.families import Families, Replicating
from layoutopt.search.grouping import Group, served_by
from layoutopt.search.gsop import search_groups
from layoutopt.search.problem import Problem, Unit
from layoutopt.search.transform import improve

_COARSE_VECTORS = 300
_COARSE_ROWS = 10_000
"""Vectors, and rows of a sample, of the estimate on which operations are compared: they are hundreds."""


@dataclass(frozen=True)
class Replicated:
    """A scheme with what it costs.

    Attributes:
        budget: the storage that it was allowed, over that of the same table without copies.
        drafts: the layouts.
        cost: cells and tids of the training queries, in the problem's unit.
        cells: the cells stored over those of the source (5.2).
        storage: what is stored over the same table without copies, in the unit of the budget.
    """

    budget: float
    drafts: Drafts
    cost: float
    cells: float
    storage: float


class Search:
    """The search for one problem; budgets share all that was evaluated.

    Attributes:
        exact: the costs with as many vectors as a load takes.
    """

    def __init__(
        self, problem: Problem, partitioner: Partitioner, groups: tuple[Group, ...], stored: Unit | None = None
    ) -> None:
        """Start from a grouping.

        Args:
            problem: the problem.
            partitioner: that of the load.
            groups: the best column groups found.
            stored: what storing costs; cells where left out.
        """
        self.problem = problem
        self._partitioner = partitioner
        unit = stored or Unit(np.ones(len(problem.columns)), 0.0)
        self.exact = Costs(Maker(problem, partitioner), unit)
        few = replace(thinned(problem, _COARSE_ROWS), max_vectors=min(problem.max_vectors, _COARSE_VECTORS))
        self._estimate = Costs(self.exact.maker.like(few), unit)
        families = few_families(problem)
        self._replicating = Replicating(problem, families, self._estimate)
        self._families = families
        self._groups = groups
        self._regrouped: dict[frozenset[int], tuple[Group, ...]] = {}
        self.plain = self._replicating.drafts(Families(groups))
        self._found = [self.plain]
        self._unit_storage = self.exact.storage(self.plain)

    def best(self, budget: float) -> Replicated:
        """The best scheme found for a budget, by the exact costs; the groups alone are one of the candidates.

        So is what was found for other budgets: asked in ascending order, more storage never reads more.
        """
        allowed = budget * self._unit_storage
        found = list(self._found)
        for start in self._starts(allowed):
            found += [self._replicating.drafts(each) for each in (start, self._regroup(start))]
        within = [drafts for drafts in found if self.exact.storage(drafts) <= allowed]
        best = improve(self.problem, min(within, key=self._order), allowed, self._estimate, self.exact)
        self._found.append(best)
        return self.measured(best, budget)

    def selective(self, budget: float) -> Replicated:
        """The groups, and within a budget copies of what single features request (5.3.1)."""
        allowed = budget * self._unit_storage
        return self.measured(selective(self.problem, self.plain, allowed, self._estimate), budget)

    def full_copies(self, copies: int) -> Replicated:
        """So many copies of the table, each grouped for some of the queries (5.3.2)."""
        drafts = full_copies(self.problem, copies, self._partitioner, self._estimate)
        return self.measured(drafts, float(copies))

    def measured(self, drafts: Drafts, budget: float) -> Replicated:
        """The figures of some drafts."""
        cells = Costs(self.exact.maker, Unit(np.ones(len(self.problem.columns)), 0.0)).storage(drafts)
        return Replicated(
            budget=budget,
            drafts=drafts,
            cost=self.exact.query_cost(drafts),
            cells=cells / len(self.problem.columns),
            storage=self.exact.storage(drafts) / self._unit_storage,
        )

    def _order(self, drafts: Drafts) -> tuple[float, float]:
        return self.exact.query_cost(drafts), self.exact.storage(drafts)

    def _starts(self, allowed: float) -> list[Families]:
        """From the groups upwards, and from a copy for every family downwards."""
        grown = self._replicating.grow(Families(self._groups), allowed)
        every = frozenset(frozenset((family,)) for family in range(len(self._families)))
        shrunk = self._replicating.shrink(Families(self._groups, every), allowed)
        return [grown] if shrunk is None else [grown, self._replicating.grow(shrunk, allowed)]

    def _regroup(self, scheme: Families) -> Families:
        """The scheme with the columns grouped for the queries that read no copy."""
        copied = scheme.copied
        if not copied or len(copied) == len(self._families):
            return scheme
        if copied not in self._regrouped:
            reads = self.problem.reads.copy()
            for family in copied:
                reads[self._families[family].numbers] = False
            self._regrouped[copied] = search_groups(replace(self.problem, reads=reads), self._partitioner).best.groups
        return replace(scheme, groups=self._regrouped[copied])


def scheme_of_drafts(maker: Maker, drafts: Sequence[Draft], partitioner: str) -> Scheme:
    """The scheme of some drafts, in their order, with master columns (5.5.3) and the queries that each serves."""
    masters = masters_of(maker, drafts)
    return Scheme(tuple(_layout(maker, draft, masters, partitioner) for draft in drafts))


def _layout(maker: Maker, draft: Draft, masters: dict[int, Draft], partitioner: str) -> Layout:
    problem, made = maker.problem, maker.made(draft)
    columns = tuple(problem.columns[column] for column in sorted(draft.columns))
    guides = made.guides
    blocking = ByVectors(partitioner) if guides or made.features else ByOrder("input")
    if made.features is None:
        return Layout(columns, guides, columns, blocking, serves=_serves(problem, draft))
    master = tuple(problem.columns[column] for column in sorted(draft.columns) if masters[column] is draft)
    return Layout(columns, made.features, master, blocking, guides, _serves(problem, draft))


def _serves(problem: Problem, draft: Draft) -> tuple[int, ...] | None:
    """The queries, of those that the problem was made of; None where they are all that read its columns."""
    served = mask_of(draft.served, len(problem.reads))
    if np.array_equal(served, served_by(problem, draft.columns)):
        return None
    if problem.classes is None:
        return tuple(sorted(draft.served))
    return tuple(np.flatnonzero(served[problem.classes]).tolist())
