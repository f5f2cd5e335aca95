"""Layouts in a search for replication: what the queries that are to read a layout make of it.

The text's operations (Sun 2017, 5.5.1) move features between layouts. Here a layout is told which queries it serves,
and its features follow: those that guide its blocking as in 4.5, and for a copy the fewest rows that its queries need.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from layoutopt.model.arrays import Bits, Floats
from layoutopt.model.vectors import VectorCounts
from layoutopt.partitioning.partitioner import Partitioner
from layoutopt.search.cover import Covers
from layoutopt.search.grouping import Group
from layoutopt.search.local import feature_choices
from layoutopt.search.problem import Problem, Sample
from layoutopt.search.rows import rows_by

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
        guides: the local features that guide the blocking (4.5).
    """

    features: tuple[int, ...] | None
    share: float
    rows: Floats
    guides: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class _Tried:
    """A layout's blocks by several choices of guides: for each what every query reads, and the guides."""

    features: tuple[int, ...] | None
    share: float
    choices: tuple[tuple[Floats, tuple[int, ...]], ...]


class Maker:
    """Partitions the samples as a load would, once for each set of queries served."""

    def __init__(self, problem: Problem, partitioner: Partitioner, few_guides: bool = True) -> None:
        """Start with nothing made.

        Args:
            problem: the problem.
            partitioner: that of the load.
            few_guides: whether fewer local features than fit are tried too, as :func:`feature_choices` says.
        """
        self.problem = problem
        self._few_guides = few_guides
        self._partitioner = partitioner
        self._covers = Covers(problem)
        self._tried: dict[tuple[Queries, bool], _Tried] = {}
        self._made: dict[Draft, Made] = {}
        self._restricted: dict[tuple[int, ...], Problem] = {}

    def made(self, draft: Draft) -> Made:
        """What the draft comes to, by the guides with which its queries read least of its columns."""
        if draft not in self._made:
            tried = self._try(draft.served, draft.copy)
            price = self._price(draft)
            costs = [float(np.where(price > 0, rows, 0.0) @ price) for rows, _ in tried.choices]
            rows, guides = tried.choices[int(np.argmin(costs))]
            self._made[draft] = Made(tried.features, tried.share, rows, guides)
        return self._made[draft]

    def like(self, problem: Problem) -> Maker:
        """Another maker whose copies hold the same rows; the problems differ in their search limits alone."""
        other = Maker(problem, self._partitioner, self._few_guides)
        other._covers = self._covers
        return other

    def _price(self, draft: Draft) -> Floats:
        """What a row of the draft costs each query served: its cells, and a tid where more is read elsewhere."""
        problem, columns = self.problem, sorted(draft.columns)
        price = problem.reads[:, columns] @ problem.unit.cell[columns]
        elsewhere = problem.reads.sum(axis=1) > problem.reads[:, columns].sum(axis=1)
        served = mask_of(draft.served, len(problem.reads)) & (price > 0)
        return np.asarray(np.where(served, price + problem.unit.tid * elsewhere, 0.0), dtype=np.float64)

    def _try(self, served: Queries, copy: bool) -> _Tried:
        key = (served, copy)
        if key not in self._tried:
            self._tried[key] = self._make(served, copy)
        return self._tried[key]

    def _make(self, queries: Queries, copy: bool) -> _Tried:
        served = mask_of(queries, len(self.problem.reads))
        if not queries:
            return _Tried(None, 1.0, ((np.full(len(served), np.inf), ()),))
        if copy and (features := self._covers.find(served)):
            share = self._covers.share(features)
            if share <= _MOST_COPIED:
                return _Tried(features, share, tuple(self._blocked(self._problem(features), served, features)))
        if copy:
            return self._try(queries, copy=False)
        return _Tried(None, 1.0, tuple(self._blocked(self.problem, served)))

    def _blocked(
        self, problem: Problem, served: Bits, always: tuple[int, ...] = ()
    ) -> Iterator[tuple[Floats, tuple[int, ...]]]:
        """What the queries served read by each choice of guides; ``always`` are among them in a load."""
        if not problem.samples:
            yield np.where(served, 0.0, np.inf), ()
            return
        for chosen in feature_choices(problem, served)[: None if self._few_guides else 1]:
            guides = np.union1d(chosen, np.array(always, dtype=np.int64))
            read = (rows_by(problem, served, guides, self._partitioner) * problem.weights).sum(axis=0)
            yield np.where(served, read, np.inf), tuple(guides.tolist())

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


def mask_of(queries: Iterable[int], n_queries: int) -> Bits:
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
