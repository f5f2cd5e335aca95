"""r_i^q, the rows that query q reads of group i: computed, or estimated (Sun 2017, 4.4.3).

A group matters only through the queries that read it: two groups read by the same queries have the same local
features, hence the same blocks and the same r. Everything is remembered under that set of queries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, TypeVar

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.partitioning.partitioner import Partitioner
from layoutopt.search.local import block_sample, choose_features, feature_choices, local_weights
from layoutopt.search.problem import Problem

Estimate = Literal["coarse", "block", "selectivity", "full"]
RowsRead = Callable[[Bits], Floats]
"""From the queries served, ``bool[queries]``, to the rows each reads, ``float64[samples, queries]``; 0 for others."""

_COARSE_VECTORS = 300
"""Vectors of the coarse estimate: enough to see conflicts, few enough for a partitioning in milliseconds."""


_Found = TypeVar("_Found")


def remembered(find: Callable[[Bits], _Found]) -> Callable[[Bits], _Found]:
    """The same function of the queries served, remembering every set of queries it was asked for."""
    seen: dict[bytes, _Found] = {}

    def answer(served: Bits) -> _Found:
        key = np.packbits(served).tobytes()
        if key not in seen:
            seen[key] = find(served)
        return seen[key]

    return answer


class ComputedRows:
    """The exact value on the samples: choose local features, partition, look at the union vectors.

    Of the choices of :func:`feature_choices` that which lets the queries served read least, all of their cells counted.

    Attributes:
        by_most: the same by the first choice alone, as many features as fit.
    """

    def __init__(self, problem: Problem, partitioner: Partitioner) -> None:
        """Start with nothing computed."""
        self._problem = problem
        self._partitioner = partitioner
        self._chosen = remembered(self._choose)
        self.by_most: RowsRead = remembered(
            lambda served: rows_by(problem, served, choose_features(problem, served), partitioner)
        )

    def __call__(self, served: Bits) -> Floats:
        """The rows that each of the queries served reads."""
        return self._chosen(served)[1]

    def guides(self, served: Bits) -> Ints:
        """The local features of a group that these queries read, ascending; none where there are none."""
        return self._chosen(served)[0]

    def _choose(self, served: Bits) -> tuple[Ints, Floats]:
        problem = self._problem
        price = problem.weights * (problem.reads @ problem.unit.cell)
        choices = feature_choices(problem, served)
        fewer = [rows_by(problem, served, features, self._partitioner) for features in choices[1:]]
        read = [self.by_most(served), *fewer]
        best = int(np.argmin([float((price * rows).sum()) for rows in read]))
        return choices[best], read[best]


def rows_by(problem: Problem, served: Bits, features: Ints, partitioner: Partitioner) -> Floats:
    """The rows that the queries served read where these features guide the blocking, ``float64[samples, queries]``."""
    weights = local_weights(problem, served)
    samples = enumerate(problem.samples)
    found = [block_sample(problem, sample, features, weights[s], partitioner) for s, sample in samples]
    read = np.zeros((len(found), len(served)))
    # At once, since what skips which query is looked up for each call.
    skipped = problem.skippable(np.concatenate([blocks.unions for blocks in found]), served)
    of_samples = np.split(skipped, np.cumsum([len(blocks.rows) for blocks in found])[:-1])
    for s, (blocks, of_blocks) in enumerate(zip(found, of_samples, strict=True)):
        read[s, served] = blocks.rows @ ~of_blocks
    return read


def coarse_estimate(problem: Problem, partitioner: Partitioner) -> RowsRead:
    """The exact computation over so few local features that it is cheap: the heaviest conflicts decide a merge."""
    few = replace(problem, max_vectors=min(problem.max_vectors, _COARSE_VECTORS))
    return ComputedRows(few, partitioner).by_most


def block_estimate(problem: Problem) -> RowsRead:
    """The block-based estimate: rows of equal local vectors fill blocks of their own (4.4.3, step c).

    An upper bound of the rows read: each vector that q skips spares ``floor(count / b)`` blocks of ``b`` rows.
    """

    def rows_read(served: Bits) -> Floats:
        features = choose_features(problem, served)
        read = np.zeros((len(problem.samples), len(served)))
        for s, sample in enumerate(problem.samples):
            vectors = sample.vectors.project(features.tolist())
            full_blocks = np.floor(vectors.counts * sample.scale / problem.block_rows)
            bits = np.ones((len(vectors), sample.vectors.n_features), dtype=np.bool_)
            bits[:, features] = vectors.bits()
            spared = problem.block_rows * (full_blocks @ problem.skippable(bits, served))
            read[s, served] = sample.rows - spared
        return read

    return remembered(rows_read)


def selectivity_estimate(problem: Problem) -> RowsRead:
    """The baseline: the rows that no skip set of the query excludes, as if rows could be skipped one by one."""
    return lambda served: np.where(served, problem.least_rows, 0.0)


def rows_estimator(problem: Problem, estimate: Estimate, partitioner: Partitioner) -> RowsRead:
    """The estimator of that name."""
    if estimate == "coarse":
        return coarse_estimate(problem, partitioner)
    if estimate == "block":
        return block_estimate(problem)
    if estimate == "selectivity":
        return selectivity_estimate(problem)
    return ComputedRows(problem, partitioner)
