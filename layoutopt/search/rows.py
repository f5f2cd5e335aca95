"""Compute or estimate r_i^q, the rows that query q reads of group i (Sun 2017, 4.4.3).

A group matters only through the queries that read it: groups with the same readers have the same local features, hence
the same blocks and the same r. So results are cached by the set of queries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.partitioning.partitioner import Partitioner
from layoutopt.search.local import block_sample, choose_features, feature_choices, local_weights
from layoutopt.search.problem import Problem, Sample

Estimate = Literal["coarse", "block", "selectivity", "full"]
# From the served queries, ``bool[queries]``, to the rows each reads, ``float64[samples, queries]``; 0 for the rest.
RowsRead = Callable[[Bits], Floats]

# Vectors of the coarse estimate: enough to see conflicts, few enough to partition in milliseconds.
_COARSE_VECTORS = 300


_Result = TypeVar("_Result")


def cache_by_queries(find: Callable[[Bits], _Result]) -> Callable[[Bits], _Result]:
    """Cache a function of the served queries."""
    results: dict[bytes, _Result] = {}

    def find_cached(served: Bits) -> _Result:
        key = np.packbits(served).tobytes()
        if key not in results:
            results[key] = find(served)
        return results[key]

    return find_cached


class ComputedRows:
    """The exact rows on the samples: choose local features, partition, test the union vectors.

    Of the choices of :func:`feature_choices` the one by which the served queries read the fewest cells counts.

    Attributes:
        by_most: the same by the first choice only, as many features as fit.
    """

    def __init__(self, problem: Problem, partitioner: Partitioner) -> None:
        self._problem = problem
        self._partitioner = partitioner
        self._cached_choice = cache_by_queries(self._choose_guides)
        self.by_most: RowsRead = cache_by_queries(
            lambda served: compute_rows_read(problem, served, choose_features(problem, served), partitioner)
        )

    def __call__(self, served: Bits) -> Floats:
        """Return the rows that each served query reads."""
        return self._cached_choice(served)[1]

    def guides(self, served: Bits) -> Ints:
        """Return the local features of a group with these readers, ascending."""
        return self._cached_choice(served)[0]

    def _choose_guides(self, served: Bits) -> tuple[Ints, Floats]:
        problem = self._problem
        price = problem.weights * (problem.reads @ problem.unit.cell)
        choices = feature_choices(problem, served)
        rows_by_choice = [self.by_most(served), *compute_by_choices(problem, served, choices[1:], self._partitioner)]
        best = int(np.argmin([float((price * rows).sum()) for rows in rows_by_choice]))
        return choices[best], rows_by_choice[best]


def compute_by_choices(
    problem: Problem, served: Bits, choices: Sequence[Ints], partitioner: Partitioner
) -> list[Floats]:
    """Return :func:`compute_rows_read` for each choice of guides; the first has the features of all."""
    samples = problem.samples
    if len(choices) > 1:  # far fewer vectors differ in these features than in all
        samples = tuple(replace(one, vectors=one.vectors.clear_others(choices[0].tolist())) for one in samples)
    return [compute_rows_read(problem, served, features, partitioner, samples) for features in choices]


def compute_rows_read(
    problem: Problem, served: Bits, features: Ints, partitioner: Partitioner, samples: Sequence[Sample] | None = None
) -> Floats:
    """Return the rows that the served queries read with these guides, ``float64[samples, queries]``.

    ``samples`` are the problem's, whose vectors may lack features that don't guide.
    """
    weights = local_weights(problem, served)
    numbered = enumerate(problem.samples if samples is None else samples)
    sample_blocks = [block_sample(problem, sample, features, weights[s], partitioner) for s, sample in numbered]
    read = np.zeros((len(sample_blocks), len(served)))
    # One call for all samples, since each call looks up skip sets.
    skipped = problem.skippable(np.concatenate([blocks.unions for blocks in sample_blocks]), served)
    skipped_by_sample = np.split(skipped, np.cumsum([len(blocks.rows) for blocks in sample_blocks])[:-1])
    for s, (blocks, skipped_blocks) in enumerate(zip(sample_blocks, skipped_by_sample, strict=True)):
        read[s, served] = blocks.rows @ ~skipped_blocks
    return read


def coarse_estimate(problem: Problem, partitioner: Partitioner) -> RowsRead:
    """Return the exact computation over few local features, which is cheap: the heaviest conflicts decide a merge."""
    coarse = replace(problem, max_vectors=min(problem.max_vectors, _COARSE_VECTORS))
    return ComputedRows(coarse, partitioner).by_most


def block_estimate(problem: Problem) -> RowsRead:
    """Return the block-based estimate: rows of equal local vectors fill blocks of their own (4.4.3, step c).

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

    return cache_by_queries(rows_read)


def selectivity_estimate(problem: Problem) -> RowsRead:
    """Return the baseline estimate: the rows that no skip set excludes, as if single rows could be skipped."""
    return lambda served: np.where(served, problem.least_rows, 0.0)


def rows_estimator(problem: Problem, estimate: Estimate, partitioner: Partitioner) -> RowsRead:
    """Return the estimator of that name."""
    if estimate == "coarse":
        return coarse_estimate(problem, partitioner)
    if estimate == "block":
        return block_estimate(problem)
    if estimate == "selectivity":
        return selectivity_estimate(problem)
    return ComputedRows(problem, partitioner)
