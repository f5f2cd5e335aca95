"""The coarse operation of replication: whole families of queries get copies of their columns.

The text's operations move one feature of one layout at a time, and most gain nothing before the last conflict is gone.
A family's queries (those of a template) share columns and filters. In a layout of its own each skips all that it can,
reads no tids, and its features leave the layouts of the others. Copies of several families may be merged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from typing import NamedTuple

import numpy as np

from layoutopt.search.candidates import Candidate, Candidates, Queries, joined, tidied
from layoutopt.search.costs import Costs, Family
from layoutopt.search.grouping import Group, served_by
from layoutopt.search.problem import Problem

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
