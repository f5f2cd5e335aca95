"""Candidate layouts of a search for replication: columns, and the queries that are to read them there.

The text's operations (Sun 2017, 5.5.1) move features between layouts. Here a layout is told which queries it serves,
and its local features follow from these: see :mod:`layoutopt.search.evaluation`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from layoutopt.model.arrays import Bits
from layoutopt.search.grouping import Group
from layoutopt.search.problem import Problem

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
