"""Layouts in a search for replication: what the queries that are to read a layout make of it.

The text's operations (Sun 2017, 5.5.1) move features between layouts. Here a layout is told which queries it serves,
and its features follow: those that guide its blocking as in 4.5, and for a copy the fewest rows that its queries need.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from layoutopt.model.vectors import VectorCounts
from layoutopt.partitioning.partition import Partitioner
from layoutopt.search.cover import Covers
from layoutopt.search.grouping import Group
from layoutopt.search.local import choose_features
from layoutopt.search.problem import Bools, Floats, Problem, Sample
from layoutopt.search.rows import computed

Queries = frozenset[int]
"""Query numbers of a problem."""

_MOST_COPIED = 0.8
"""A copy that would hold more of the rows holds all: it then serves every query, at little more storage."""


@dataclass(frozen=True)
class Draft:
    """A layout in a search.

    Attributes:
        columns: what it stores.
        served: the queries that are to read it.
        copy: whether it may leave out rows that its queries don't need.
    """

    columns: Group
    served: Queries
    copy: bool = False


Drafts = tuple[Draft, ...]


@dataclass(frozen=True, eq=False)
class Made:
    """What a draft comes to on the samples.

    Attributes:
        features: where it is a copy of some rows: any row that its queries need has one of these. None: all rows.
        share: of the rows, those that it holds whole (``|R_i| / |R|``).
        rows: what each query reads, by weight and over all samples, ``float64[queries]``; infinite if it is not served.
    """

    features: tuple[int, ...] | None
    share: float
    rows: Floats


class Maker:
    """Partitions the samples as a load would, once for each set of queries served."""

    def __init__(self, problem: Problem, partitioner: Partitioner) -> None:
        self.problem = problem
        self._partitioner = partitioner
        self._covers = Covers(problem)
        self._made: dict[tuple[Queries, bool], Made] = {}
        self._restricted: dict[tuple[int, ...], Problem] = {}

    def made(self, draft: Draft) -> Made:
        """What the draft comes to."""
        key = (draft.served, draft.copy)
        if key not in self._made:
            self._made[key] = self._make(draft)
        return self._made[key]

    def guides(self, draft: Draft) -> tuple[int, ...]:
        """The local features that guide its blocking (4.5), chosen on the rows that it holds."""
        if not draft.served:
            return ()
        problem = self._problem(self.made(draft).features)
        if not problem.samples:
            return ()
        return tuple(choose_features(problem, mask_of(draft.served, len(problem.reads))).tolist())

    def like(self, problem: Problem) -> Maker:
        """Another maker whose copies hold the same rows; the problems differ in their search limits alone."""
        other = Maker(problem, self._partitioner)
        other._covers = self._covers
        return other

    def _make(self, draft: Draft) -> Made:
        served = mask_of(draft.served, len(self.problem.reads))
        rows = np.full(len(served), np.inf)
        if not draft.served:
            return Made(None, 1.0, rows)
        if draft.copy and (features := self._covers.find(served)):
            share = self._covers.share(features)
            if share <= _MOST_COPIED:
                return Made(features, share, self._rows(self._problem(features), served))
            if (draft.served, False) in self._made:
                return self._made[draft.served, False]
        return Made(None, 1.0, self._rows(self.problem, served))

    def _rows(self, problem: Problem, served: Bools) -> Floats:
        if not problem.samples:
            return np.where(served, 0.0, np.inf)
        read = computed(problem, self._partitioner)(served)
        return np.where(served, (read * problem.weights).sum(axis=0), np.inf)

    def _problem(self, features: tuple[int, ...] | None) -> Problem:
        """The problem over the rows that have one of the features."""
        if features is None:
            return self.problem
        if features not in self._restricted:
            self._restricted[features] = restricted(self.problem, features)
        return self._restricted[features]


def restricted(problem: Problem, features: Sequence[int]) -> Problem:
    """The same problem over the rows that have one of these features alone; samples without any are left out."""
    samples = []
    for sample, bits in zip(problem.samples, problem.bits, strict=True):
        kept = bits[:, list(features)].any(axis=1)
        if not kept.any():
            continue
        vectors = VectorCounts(sample.vectors.words[kept], sample.vectors.counts[kept], sample.vectors.n_features)
        samples.append(Sample(vectors, round(vectors.rows * sample.scale), sample.query_weights))
    return replace(problem, samples=tuple(samples))


def thinned(problem: Problem, rows: int) -> Problem:
    """The same problem over about so many rows of each sample, taken at even distances."""
    samples = []
    for sample in problem.samples:
        step = max(1.0, sample.vectors.rows / rows)
        ends = np.floor(np.cumsum(sample.vectors.counts) / step + 0.5).astype(np.int64)
        counts = np.diff(np.concatenate(([0], ends)))
        kept = counts > 0
        vectors = VectorCounts(sample.vectors.words[kept], counts[kept], sample.vectors.n_features)
        samples.append(Sample(vectors, sample.rows, sample.query_weights))
    return replace(problem, samples=tuple(samples))


def mask_of(queries: Iterable[int], n_queries: int) -> Bools:
    """A set of queries as a mask, ``bool[n_queries]``."""
    mask = np.zeros(n_queries, dtype=np.bool_)
    mask[list(queries)] = True
    return mask


def joined(drafts: Iterable[Draft]) -> Drafts:
    """The automatic merge (5.5.2): drafts that serve the same queries are one, in the order of their first columns.

    They have the same local features, so a merge costs nothing and saves tids. Drafts without columns are left out.
    """
    by_queries: dict[Queries, Draft] = {}
    for draft in drafts:
        if draft.columns:
            other = by_queries.get(draft.served, draft)
            by_queries[draft.served] = Draft(draft.columns | other.columns, draft.served, draft.copy and other.copy)
    return tuple(sorted(by_queries.values(), key=lambda draft: (sorted(draft.columns), sorted(draft.served))))


def tidied(problem: Problem, drafts: Sequence[Draft]) -> list[Draft]:
    """The drafts without columns that none of their queries reads, where another draft has the column."""
    read = [frozenset(np.flatnonzero(problem.reads[sorted(d.served)].any(axis=0)).tolist()) for d in drafts]
    holders = Counter(column for draft in drafts for column in draft.columns)
    kept = []
    for draft, used in zip(drafts, read, strict=True):
        spare = {column for column in draft.columns - used if holders[column] > 1}
        holders.subtract(spare)
        kept.append(replace(draft, columns=draft.columns - spare))
    return kept
