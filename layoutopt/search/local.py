"""Choose the local features of a group of columns (Sun 2017, 4.5), and block a sample by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layoutopt.features.weights import feature_weights
from layoutopt.model.arrays import Bits, Floats, Ints, Words
from layoutopt.model.vectors import WORD_BITS, VectorCounts, project
from layoutopt.partitioning.block_sizes import min_rows_for
from layoutopt.partitioning.partitioner import Partitioner
from layoutopt.search.problem import Problem, Sample

# Sets of features that are tried; each makes this many times fewer vectors than the one before.
_MAX_CHOICES = 5
_REDUCTION = 3.0


def local_weights(problem: Problem, served: Bits) -> Floats:
    """Return the worth of each feature to the served queries, ``float64[samples, features]``.

    The text's weight(G, f) counts a query once for every feature that subsumes it. Here a query's features share it by
    marginal weights (:func:`layoutopt.features.weights.feature_weights`), unless the problem counts as the text does.
    ``served`` are the queries that read the group, W^G, ``bool[queries]``.
    """
    weights = problem.weights[:, served]
    if problem.by_count:
        return feature_weights(problem.subsumed[served], weights)
    return feature_weights(problem.shares[served], weights, problem.selectivity, marginal=True)


def choose_features(problem: Problem, served: Bits, allowed: Ints | None = None) -> Ints:
    """Return the local features for the served queries: the most that keep vectors near ``max_vectors`` (4.5).

    They are ranked by weight x (1 - selectivity): a feature that most rows match fills the limit and skips nothing.
    Their number follows from the distinct vectors of the fullest sample. ``allowed`` limits the choice.
    """
    ranked = _rank_features(problem, served)
    ranked = ranked if allowed is None else ranked[np.isin(ranked, allowed)]
    return np.sort(ranked[: len(_count_fitting(problem, ranked))])


def feature_choices(problem: Problem, served: Bits) -> list[Ints]:
    """Return sets of local features to try: the most that fit (4.5), then a third of the vectors, a ninth, ...

    Fewer features can skip more: a weak one (``p_brand <> 'X'``) splits the rows of strong ones into vectors of few
    rows, which end in mixed blocks.
    """
    ranked = _rank_features(problem, served)
    counts = _count_fitting(problem, ranked)
    if problem.by_count:
        return [np.sort(ranked[: len(counts)])]
    sizes = _sizes_to_try(counts, problem.max_vectors) if problem.samples else [0]
    return [np.sort(ranked[:size]) for size in sizes]


def prefixes(segments: Sequence[Words], ranked: Ints, max_vectors: int) -> list[int]:
    """Return how many of the first features to try: all, then what makes a third of ``max_vectors``, a ninth, ...

    ``segments`` are the vectors of each segment, ``ranked`` the features, the best first.
    """
    n_features = len(ranked) if segments else 0
    if not n_features:
        return [n_features]
    return _sizes_to_try(np.max([distinct_by_prefix(words, ranked) for words in segments], axis=0), max_vectors)


def _sizes_to_try(counts: Ints, max_vectors: int) -> list[int]:
    """Return the sizes of :func:`prefixes`; ``counts`` are the most distinct vectors by the first k features."""
    if not len(counts):
        return [0]
    limits = [max_vectors / _REDUCTION**k for k in range(1, _MAX_CHOICES)]
    sizes = [max(1, int(np.searchsorted(counts, limit, side="right"))) for limit in limits]
    return list(dict.fromkeys([len(counts), *sizes]))


def _rank_features(problem: Problem, served: Bits) -> Ints:
    worth = local_weights(problem, served).sum(axis=0)
    worth = worth if problem.by_count else worth * (1.0 - problem.selectivity)
    candidates = np.flatnonzero(worth > 0)
    return candidates[np.lexsort((candidates, -worth[candidates]))]


def _count_fitting(problem: Problem, ranked: Ints) -> Ints:
    """Return the most vectors of a sample by the first k features, as long as they keep within the limit.

    ``int64[k]``; there is at least one, if there are features.
    """
    n_features, counts_by_sample = len(ranked), []
    for sample in problem.samples:
        n_first = min(n_features, WORD_BITS)  # mostly enough, and sorted by a single word
        counts = distinct_by_prefix(sample.vectors.words, ranked[:n_first])
        if n_first < n_features and int(counts.max(initial=0)) <= problem.max_vectors:
            counts = distinct_by_prefix(sample.vectors.words, ranked[:n_features])
        n_features = min(n_features, int(np.searchsorted(counts, problem.max_vectors, side="right")))
        counts_by_sample.append(counts)
    most = np.zeros(max(n_features, min(1, len(ranked))), dtype=np.int64)
    for counts in counts_by_sample:
        most[: len(counts)] = np.maximum(most[: len(counts)], counts[: len(most)])
    return most


def distinct_by_prefix(words: Words, features: Ints) -> Ints:
    """Return the number of distinct vectors by the first k features, for every k from 1; ``int64[f]``, ascending.

    Vectors are sorted once: two neighbours differ in the first k features if they first differ in one of these.

    >>> distinct_by_prefix(np.array([[0b001], [0b011], [0b110]], dtype=np.uint64), np.arange(3)).tolist()
    [2, 3, 3]
    """
    columns = len(features)
    if not columns or not len(words):
        return np.zeros(columns, dtype=np.int64)
    words = project(words, features[::-1].tolist()).T  # the first feature in the highest bit
    in_order = np.sort(words, axis=1) if len(words) == 1 else words[:, np.lexsort(words)]
    changed = in_order[:, 1:] ^ in_order[:, :-1]
    highest = np.zeros(changed.shape[1], dtype=np.int64)
    for number, word in enumerate(changed):  # of later words the bits are higher
        highest = np.where(word > 0, WORD_BITS * number + _bit_lengths(word), highest)
    first = columns - highest[highest > 0]
    return np.asarray(1 + np.cumsum(np.bincount(first, minlength=columns)).astype(np.int64))


def _bit_lengths(words: Words) -> Ints:
    """Return the number of bits up to the highest set bit, ``int64[n]``."""
    # Without the bit after the highest, rounding to float can't reach the next power of two.
    return np.frexp((words & ~(words >> np.uint64(1))).astype(np.float64))[1].astype(np.int64)


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks of a sampled segment: union bits ``bool[blocks, features]`` (1 where not local), and rows of each."""

    unions: Bits
    rows: Floats


def block_sample(problem: Problem, sample: Sample, features: Ints, weights: Floats, partitioner: Partitioner) -> Blocks:
    """Partition one sampled segment by local features; block sizes are scaled to the sample."""
    vectors = sample.vectors.project(features.tolist())
    min_rows = max(1, round(min_rows_for(problem.block_rows) / sample.scale))
    partition = partitioner(vectors, weights[features], min_rows, problem.seed)
    unions = np.ones((partition.n_blocks, sample.vectors.n_features), dtype=np.bool_)
    unions[:, features] = VectorCounts(partition.unions(vectors), partition.sizes(), len(features)).bits()
    return Blocks(unions, partition.sizes().astype(np.float64) * sample.scale)
