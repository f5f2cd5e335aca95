"""Local features of a group of columns (Sun 2017, 4.5), and the blocks that they make on a sample."""

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

_CHOICES = 5
_FEWER = 3.0
"""Each of the sets tried makes so many times fewer vectors than the one before."""


def local_weights(problem: Problem, served: Bits) -> Floats:
    """The worth of each feature to the queries served, ``float64[samples, features]``.

    The text's weight(G, f) counts a query once for every feature that subsumes it; here a query's features share it, as
    :func:`layoutopt.features.weights.feature_weights` says of marginal weights, unless the problem counts as the text.
    ``served`` are the queries that read the group, W^G, ``bool[queries]``.
    """
    weights = problem.weights[:, served]
    if problem.by_count:
        return feature_weights(problem.subsumed[served], weights)
    return feature_weights(problem.shares[served], weights, problem.selectivity, marginal=True)


def choose_features(problem: Problem, served: Bits, among: Ints | None = None) -> Ints:
    """The local features for the queries served: the most that keep distinct vectors near ``max_vectors`` (4.5).

    Ranked by weight x (1 - selectivity): a feature that most rows match fills the limit and skips nothing. Their
    number is found by counting the distinct vectors of the fullest sample. ``among`` are the features to choose from.
    """
    ranked = _ranked(problem, served)
    ranked = ranked if among is None else ranked[np.isin(ranked, among)]
    return np.sort(ranked[: _most_within(problem, ranked)])


def feature_choices(problem: Problem, served: Bits) -> list[Ints]:
    """Sets of local features to try: the most that fit (4.5), then what fits a third of the vectors, a ninth, ...

    Fewer features can skip more: a weak one (``p_brand <> 'X'``) breaks the rows of strong ones into vectors of few
    rows, which end in mixed blocks.
    """
    ranked = _ranked(problem, served)
    ranked = ranked[: _most_within(problem, ranked)]
    if problem.by_count:
        return [np.sort(ranked)]
    sizes = prefixes([sample.vectors.words for sample in problem.samples], ranked, problem.max_vectors)
    return [np.sort(ranked[:size]) for size in sizes]


def prefixes(segments: Sequence[Words], ranked: Ints, max_vectors: int) -> list[int]:
    """How many of the first features to try: all, then what makes a third of ``max_vectors``, a ninth, ...

    Args:
        segments: the vectors of each.
        ranked: the features, the best first.
        max_vectors: distinct vectors of a segment.
    """
    every = len(ranked) if segments else 0
    if not every:
        return [every]
    counts = np.max([distinct_by_prefix(words, ranked) for words in segments], axis=0)
    limits = [max_vectors / _FEWER**k for k in range(1, _CHOICES)]
    sizes = [max(1, int(np.searchsorted(counts, limit, side="right"))) for limit in limits]
    return list(dict.fromkeys([every, *sizes]))


def _ranked(problem: Problem, served: Bits) -> Ints:
    worth = local_weights(problem, served).sum(axis=0)
    worth = worth if problem.by_count else worth * (1.0 - problem.selectivity)
    candidates = np.flatnonzero(worth > 0)
    return candidates[np.lexsort((candidates, -worth[candidates]))]


def _most_within(problem: Problem, ranked: Ints) -> int:
    """How many of the first features keep every sample within the limit of vectors; one at least, if there is one."""
    most = len(ranked)
    for sample in problem.samples:
        few = min(most, WORD_BITS)  # mostly enough, and one word to sort by
        counts = distinct_by_prefix(sample.vectors.words, ranked[:few])
        if few < most and int(counts.max(initial=0)) <= problem.max_vectors:
            counts = distinct_by_prefix(sample.vectors.words, ranked[:most])
        most = min(most, int(np.searchsorted(counts, problem.max_vectors, side="right")))
    return max(most, min(1, len(ranked)))


def distinct_by_prefix(words: Words, features: Ints) -> Ints:
    """The number of distinct vectors by the first k of some features, for every k from 1; ``int64[f]``, ascending.

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
    """The number of bits up to the highest that is set, ``int64[n]``."""
    # Without the bit after the highest, no rounding makes a float of the next power of two.
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
