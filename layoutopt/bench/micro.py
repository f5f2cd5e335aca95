"""Small benchmarks of single algorithms, in seconds on this machine; the figures for `layoutopt bench micro`.

Times are the best of a few runs, so that what else the machine does counts little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.predicates import And, Col, InSet, Node, Predicate
from layoutopt.model.values import ValueSet
from layoutopt.model.vectors import VectorCounts, distinct, pack
from layoutopt.partitioning.ward import ward
from layoutopt.skipping.cannot_match import BlockStatistics, FeatureBits, FeatureIndex, cannot_match

_COLUMNS = 8  # that the features of the catalog check are spread over


@dataclass(frozen=True)
class Figure:
    """One measurement beside its target.

    Attributes:
        name: what was measured.
        seconds: the best run.
        target: seconds that the project promises, on two cores.
    """

    name: str
    seconds: float
    target: float


def micro_figures() -> tuple[Figure, ...]:
    """All figures: Ward at two sizes, and the catalog check for narrow and wide filters; takes about a minute."""
    return (
        ward_figure(1_000, 15, target=1.0),
        ward_figure(10_000, 64, target=60.0),
        *catalog_figures(n_blocks=1_000_000, n_features=128),
    )


def ward_figure(n_vectors: int, n_features: int, target: float, seed: int = 0) -> Figure:
    """Ward's method on distinct vectors that scatter around some topics, counts skewed, to about 100 blocks."""
    vectors = _scattered_vectors(n_vectors, n_features, seed)
    weights = np.random.default_rng(seed).integers(1, 100, n_features).astype(np.float64)
    seconds = best_seconds(lambda: ward(vectors, weights, max(1, vectors.rows // 140), 0), runs=2)
    return Figure(f"ward, {len(vectors)} vectors x {n_features} features", seconds, target)


def catalog_figures(n_blocks: int, n_features: int, seed: int = 0) -> tuple[Figure, ...]:
    """``cannot_match`` by features over many blocks: an AND of 4 tests, one of 50, and an IN list of 50 values.

    The index of features is new in every run, so that the search for features that subsume the filter counts.
    """
    rng = np.random.default_rng(seed)
    statistics = BlockStatistics(
        rows=np.full(n_blocks, 10_000),
        bits=FeatureBits(rng.integers(0, 2**63, (n_blocks, -(-n_features // 64)), dtype=np.uint64)),
    )
    features = FeatureSet(tuple(Feature((Predicate((_test(i),)),)) for i in range(n_features)))
    filters: tuple[tuple[str, Node, float], ...] = (
        ("an AND of 4 tests", And(tuple(_test(i) for i in range(4))), 0.020),
        ("an AND of 50 tests", And(tuple(_test(i) for i in range(50))), 0.100),
        ("an IN list of 50 values", InSet(Col("c0", "string"), ValueSet.of(_value(i) for i in range(50))), 0.100),
    )
    return tuple(
        Figure(
            f"catalog check, {n_blocks} blocks x {n_features} features, {name}",
            best_seconds(lambda node=node: cannot_match(node, statistics, FeatureIndex(features)), runs=5),  # type: ignore[misc]
            target,
        )
        for name, node, target in filters
    )


def _test(number: int) -> InSet:
    return InSet(Col(f"c{number % _COLUMNS}", "string"), ValueSet.point(_value(number // _COLUMNS)))


def _value(number: int) -> str:
    return f"value {number}"


def _scattered_vectors(n_vectors: int, n_features: int, seed: int) -> VectorCounts:
    rng = np.random.default_rng(seed)
    topics = rng.random((20, n_features)) < 0.2
    bits = topics[rng.integers(0, len(topics), 4 * n_vectors)] ^ (rng.random((4 * n_vectors, n_features)) < 0.15)
    words = distinct(pack(bits))[0]
    chosen = np.sort(rng.permutation(len(words))[:n_vectors])
    counts = np.minimum(rng.pareto(1.0, len(chosen)) * 10 + 1, 5_000).astype(np.int64)
    return VectorCounts(words[chosen], counts, n_features)


def best_seconds(run: Callable[[], object], runs: int) -> float:
    """The seconds that the fastest of some runs took."""
    best = float("inf")
    for _ in range(runs):
        start = perf_counter()
        run()
        best = min(best, perf_counter() - start)
    return best
