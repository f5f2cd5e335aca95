"""What candidate layouts are worth: the samples partitioned as a load would, once for each set of queries served.

A layout's local features follow from the queries that it serves: those that guide its blocking as in 4.5, and for a
copy those that keep the fewest rows that its queries need (Sun 2017, 5.4.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from layoutopt.model.arrays import Bits, Floats
from layoutopt.partitioning.partitioner import Partitioner
from layoutopt.search.candidates import Candidate, Queries, mask_of
from layoutopt.search.cover import Covers
from layoutopt.search.local import feature_choices
from layoutopt.search.problem import Problem, restricted
from layoutopt.search.rows import rows_by

_MOST_COPIED = 0.8
"""A copy that would hold more of the rows holds all: it then serves every query, at little more storage."""

Guides = tuple[int, ...]
"""The local features that guide a blocking (4.5), ascending."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What a candidate layout comes to on the samples.

    Attributes:
        features: where it is a copy of some rows: any row that its queries need has one of these. None: all rows.
        share: of the rows, those that it holds whole (``|R_i| / |R|``).
        rows: what each query reads, by weight and over all samples, ``float64[queries]``; infinite if it is not served.
        guides: the local features that guide the blocking.
    """

    features: tuple[int, ...] | None
    share: float
    rows: Floats
    guides: Guides = ()


@dataclass(frozen=True, eq=False)
class _Blockings:
    """The rows that a layout holds, and what every query reads of them by each of several choices of guides."""

    features: tuple[int, ...] | None
    share: float
    choices: tuple[tuple[Floats, Guides], ...]


class Evaluator:
    """Evaluates candidate layouts, remembering all of them."""

    def __init__(self, problem: Problem, partitioner: Partitioner, few_guides: bool = True) -> None:
        """With ``few_guides`` fewer local features than fit are tried too, as :func:`feature_choices` says."""
        self.problem = problem
        self._few_guides = few_guides
        self._partitioner = partitioner
        self._covers = Covers(problem)
        self._known: dict[Candidate, Evaluation] = {}
        self._blocked = cache(self._block)
        self._restricted = cache(partial(restricted, problem))

    def evaluate(self, layout: Candidate) -> Evaluation:
        """What the layout comes to, by the guides with which its queries read least of its columns."""
        if layout not in self._known:
            found = self._blocked(layout.served, layout.copy)
            price = self._price(layout)
            costs = [float(np.where(price > 0, rows, 0.0) @ price) for rows, _ in found.choices]
            rows, guides = found.choices[int(np.argmin(costs))]
            self._known[layout] = Evaluation(found.features, found.share, rows, guides)
        return self._known[layout]

    def like(self, problem: Problem) -> Evaluator:
        """Another evaluator whose copies hold the same rows; the problems differ in their search limits alone."""
        other = Evaluator(problem, self._partitioner, self._few_guides)
        other._covers = self._covers
        return other

    def _price(self, layout: Candidate) -> Floats:
        """What a row of the layout costs each query served: its cells, and a tid where more is read elsewhere."""
        problem, columns = self.problem, sorted(layout.columns)
        price = problem.reads[:, columns] @ problem.unit.cell[columns]
        elsewhere = problem.reads.sum(axis=1) > problem.reads[:, columns].sum(axis=1)
        served = mask_of(layout.served, len(problem.reads)) & (price > 0)
        return np.asarray(np.where(served, price + problem.unit.tid * elsewhere, 0.0), dtype=np.float64)

    def _block(self, queries: Queries, copy: bool) -> _Blockings:
        served = mask_of(queries, len(self.problem.reads))
        if not queries:
            return _Blockings(None, 1.0, ((np.full(len(served), np.inf), ()),))
        if not copy:
            return _Blockings(None, 1.0, tuple(self._choices(self.problem, served)))
        features = self._covers.find(served)
        share = self._covers.share(features) if features else 1.0
        if share > _MOST_COPIED:
            return self._blocked(queries, False)
        return _Blockings(features, share, tuple(self._choices(self._restricted(features), served, features)))

    def _choices(self, problem: Problem, served: Bits, always: Guides = ()) -> Iterator[tuple[Floats, Guides]]:
        """What the queries served read by each choice of guides; ``always`` are among them in a load."""
        if not problem.samples:
            yield np.where(served, 0.0, np.inf), ()
            return
        for chosen in feature_choices(problem, served)[: None if self._few_guides else 1]:
            guides = np.union1d(chosen, np.array(always, dtype=np.int64))
            read = (rows_by(problem, served, guides, self._partitioner) * problem.weights).sum(axis=0)
            yield np.where(served, read, np.inf), tuple(guides.tolist())
