"""Random search problems: samples of rows, queries with skip sets and the columns they read."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from layoutopt.model.arrays import Bits
from layoutopt.model.vectors import VectorCounts, pack
from layoutopt.partitioning.partitioner import Partitioner
from layoutopt.partitioning.registry import find_partitioner
from layoutopt.search.costs import Candidates, Costs, Evaluator, find_families
from layoutopt.search.gsop import search_groups, single_columns
from layoutopt.search.problem import Problem, Sample, Unit
from layoutopt.search.replication import CopyScheme, CopySearch, ReplicationSearch
from layoutopt.skipping.skip_sets import SkipSet, membership_matrix

WARD: Partitioner = find_partitioner("ward")


def bits_of(problem: Problem) -> tuple[Bits, ...]:
    """Each sample's vectors as ``bool[distinct vectors, features]``."""
    return tuple(sample.vectors.bits() for sample in problem.samples)


def random_problem(
    seed: int,
    *,
    n_columns: int = 4,
    n_features: int = 4,
    n_queries: int = 5,
    n_samples: int = 1,
    block_rows: int = 10,
    max_vectors: int = 1000,
    scale: int = 1,
    least_rows: int = 1,
    in_bytes: bool = False,
) -> Problem:
    """A problem of this shape, everything else by chance; each vector has at least ``least_rows`` rows."""
    rng = np.random.default_rng(seed)
    skip_sets = tuple(sorted({_skip_set(rng, n_features) for _ in range(2 * n_features)}, key=sorted))
    skips = rng.random((n_queries, len(skip_sets))) < 0.3
    samples = []
    for _ in range(n_samples):
        bits = rng.random((int(rng.integers(1, 200)), n_features)) < rng.random(n_features)
        found = VectorCounts.of_rows(pack(bits), n_features)
        vectors = VectorCounts(found.words, found.counts + least_rows - 1, n_features)
        weights = rng.integers(0, 4, n_queries).astype(np.float64)
        samples.append(Sample(vectors, vectors.rows * scale, weights))
    unit = Unit(rng.integers(1, 30, n_columns) / 4, 0.75) if in_bytes else Unit.cells(n_columns)
    return Problem(
        columns=tuple(f"c{i}" for i in range(n_columns)),
        reads=rng.random((n_queries, n_columns)) < 0.5,
        shares=shares_of(skip_sets, skips, n_features),
        members=membership_matrix(skip_sets, n_features),
        skips=skips,
        samples=tuple(samples),
        unit=unit,
        block_rows=block_rows,
        max_vectors=max_vectors,
    )


def _skip_set(rng: np.random.Generator, n_features: int) -> SkipSet:
    size = min(n_features, int(rng.integers(1, 4)))
    return frozenset(rng.choice(n_features, size, replace=False).tolist())


def shares_of(skip_sets: tuple[SkipSet, ...], skips: Bits, n_features: int) -> np.ndarray:
    """A feature covers a query by one over the size of the smallest of its skip sets that it is in."""
    shares = np.zeros((len(skips), n_features))
    for q, c in zip(*np.nonzero(skips), strict=True):
        for feature in skip_sets[c]:
            shares[q, feature] = max(shares[q, feature], 1 / len(skip_sets[c]))
    return shares


@st.composite
def problems(draw: st.DrawFn, *, least_rows: int = 1, max_vectors: int | None = None) -> Problem:
    return random_problem(
        draw(st.integers(0, 10_000)),
        n_columns=draw(st.integers(1, 6)),
        n_features=draw(st.integers(1, 6)),
        n_queries=draw(st.integers(1, 7)),
        n_samples=draw(st.integers(1, 2)),
        block_rows=draw(st.integers(1, 40)),
        max_vectors=draw(st.sampled_from([2, 5, 1000])) if max_vectors is None else max_vectors,
        scale=draw(st.sampled_from([1, 7])),
        least_rows=least_rows,
        in_bytes=draw(st.booleans()),
    )


def queries_of(problem: Problem, numbers: list[int]) -> Bits:
    """A set of queries as a mask."""
    served = np.zeros(len(problem.reads), dtype=np.bool_)
    served[[number % len(served) for number in numbers]] = True
    return served


@st.composite
def overlapping(draw: st.DrawFn) -> tuple[Problem, Candidates]:
    """Column groups, and copies for some of the families."""
    problem = draw(problems())
    families = find_families(problem)
    numbers = range(len(families))
    copies = draw(st.lists(st.frozensets(st.sampled_from(numbers), min_size=1), max_size=3)) if families else []
    disjoint: list[frozenset[int]] = []
    for copy in copies:
        if not any(copy & other for other in disjoint):
            disjoint.append(copy)
    copy_search = CopySearch(problem, families, Costs(Evaluator(problem, WARD), cells(problem)))
    return problem, copy_search.layouts(CopyScheme(single_columns(problem), frozenset(disjoint)))


def cells(problem: Problem) -> Unit:
    return Unit(np.ones(len(problem.columns)), 0.0)


def found_by(problem: Problem, *, stored: Unit | None = None) -> tuple[float, ReplicationSearch]:
    best = search_groups(problem, WARD).best
    return best.cost, ReplicationSearch(problem, WARD, best.groups, stored)


def problem_of(vectors: VectorCounts, reads: Bits, *, block_rows: int, skips: Bits | None = None) -> Problem:
    """A problem of one sample; skip set i is feature i, and the only one of query i unless told."""
    n = vectors.n_features
    skips = np.eye(n, dtype=np.bool_) if skips is None else skips
    return Problem(
        columns=tuple("abcd"[: reads.shape[1]]),
        reads=reads,
        shares=skips.astype(np.float64),
        members=np.eye(n, dtype=np.float32),
        skips=skips,
        samples=(Sample(vectors, vectors.rows, np.ones(len(reads))),),
        unit=Unit.cells(reads.shape[1]),
        block_rows=block_rows,
        max_vectors=100,
    )


def two_families(*reads: tuple[bool, bool, bool, bool]) -> Problem:
    """Two families of four queries that want the rows cut in different ways, and read these columns.

    Blocks have 40 rows at least: four vectors, all of a row or all of a column of the square of 16 vectors.
    """
    bits = np.array([[i % 4 == k for k in range(4)] + [i // 4 == k for k in range(4)] for i in range(16)])
    vectors = VectorCounts(pack(bits), np.full(16, 10), 8)
    return problem_of(vectors, np.repeat(np.array(reads), 4, axis=0), block_rows=56)


def crossing() -> Problem:
    """Two families that want column ``b`` cut in different ways, and read nothing else in common."""
    return two_families((True, True, False, False), (False, True, True, False))
