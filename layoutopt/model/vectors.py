"""Packed feature vectors: the only module that depends on bit order and polarity.

Bit ``i`` of a row is in word ``i // 64`` at position ``i % 64`` (the lowest bit is position 0), words are ``uint64``. A
bit is 0 only where its feature was evaluated and is FALSE or NULL; 1 means "may be TRUE". Bits past the last feature
are 0. A union vector is the OR of vectors (Sun 2017, 3.4.1), so a 0 in it proves that no row is TRUE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints, Words

WORD_BITS = 64
# Vectors of one round: their words stay in the second-level cache.
_CHUNK = 16_384
# With fewer vectors for each feature, grouping bit moves takes longer than moving each bit.
_ROWS_A_MOVE = 4


def words_for(n_features: int) -> int:
    """Return the number of words for a number of bits; at least one, so that every row has a vector.

    >>> [words_for(n) for n in (0, 1, 64, 65)]
    [1, 1, 1, 2]
    """
    return max(1, -(-n_features // WORD_BITS))


def pack(bits: Bits) -> Words:
    """Return bits ``bool[n, f]`` as words ``uint64[n, words_for(f)]``.

    >>> pack(np.array([[True, False, True]])).tolist()
    [[5]]
    """
    n_rows, n_features = bits.shape
    padded = np.zeros((n_rows, words_for(n_features) * WORD_BITS), dtype=np.bool_)
    padded[:, :n_features] = bits
    as_bytes = np.packbits(padded, axis=1, bitorder="little")
    return as_bytes.view("<u8").astype(np.uint64, copy=False)


def unpack(words: Words, n_features: int) -> Bits:
    """Return words ``uint64[n, w]`` as bits ``bool[n, n_features]``; the inverse of :func:`pack`."""
    _require_width(words, n_features)
    as_bytes = np.ascontiguousarray(words).astype("<u8", copy=False).view(np.uint8)
    return np.unpackbits(as_bytes, axis=1, count=n_features, bitorder="little").view(np.bool_)


def with_more_bits(words: Words, n_features: int, bits: Bits) -> Words:
    """Return vectors of ``n_features`` bits, ``uint64[n, w]``, extended by bits ``bool[n, f]``.

    >>> with_more_bits(pack(np.array([[True, False]])), 2, np.array([[True]])).tolist()
    [[5]]
    """
    first, shift = divmod(n_features, WORD_BITS)
    result = np.zeros((len(words), words_for(n_features + bits.shape[1])), dtype=np.uint64)
    width = min(words.shape[1], result.shape[1])
    result[:, :width] = words[:, :width]
    for word, added in enumerate(pack(bits).T, first):
        if word < result.shape[1]:
            result[:, word] |= added << np.uint64(shift)
        if shift and word + 1 < result.shape[1]:
            result[:, word + 1] |= added >> np.uint64(WORD_BITS - shift)
    return result


def feature_bit(words: Words, feature: int) -> Bits:
    """Return one feature's bit of every vector, ``bool[n]``."""
    _require_width(words, feature + 1)
    mask = np.uint64(1 << (feature % WORD_BITS))
    bit: Bits = (words[:, feature // WORD_BITS] & mask) != 0
    return bit


def project(words: Words, features: Sequence[int]) -> Words:
    """Return the vectors of some features: bit ``k`` of the result is bit ``features[k]`` (Sun 2017, 4.3.3 step 5)."""
    _require_width(words, max(features, default=-1) + 1)
    if len(words) < _ROWS_A_MOVE * len(features):
        return pack(unpack(words, words.shape[1] * WORD_BITS)[:, list(features)])
    moves = _group_moves(features)
    result = np.zeros((words_for(len(features)), len(words)), dtype=np.uint64)
    for start in range(0, len(words), _CHUNK):
        part, columns = result[:, start : start + _CHUNK], words[start : start + _CHUNK].T.copy()
        for (source, target, shift), mask in moves.items():
            moved = columns[source] & np.uint64(mask)
            part[target] |= moved << np.uint64(shift) if shift >= 0 else moved >> np.uint64(-shift)
    return np.ascontiguousarray(result.T)


def _group_moves(features: Sequence[int]) -> dict[tuple[int, int, int], int]:
    """Return the bits, as masks, that move between two words by one shift."""
    moves: dict[tuple[int, int, int], int] = {}
    for position, feature in enumerate(features):
        move = feature // WORD_BITS, position // WORD_BITS, position % WORD_BITS - feature % WORD_BITS
        moves[move] = moves.get(move, 0) | 1 << (feature % WORD_BITS)
    return moves


def any_of(words: Words, features: Sequence[int]) -> Bits:
    """Return which vectors have any of these features' bits, ``bool[n]``.

    >>> any_of(pack(np.array([[True, False], [False, True]])), [1]).tolist()
    [False, True]
    """
    _require_width(words, max(features, default=-1) + 1)
    masks = [0] * words.shape[1]
    for feature in features:
        masks[feature // WORD_BITS] |= 1 << (feature % WORD_BITS)
    matches = np.zeros(len(words), dtype=np.bool_)
    for word, mask in enumerate(masks):
        if mask:
            matches |= words[:, word] & np.uint64(mask) != 0
    return matches


def bit_shares(words: Words, n_features: int) -> Floats:
    """Return the share of the vectors that have each bit, ``float64[n_features]``; 0 for no vectors.

    >>> bit_shares(pack(np.array([[True, False], [True, True]])), 2).tolist()
    [1.0, 0.5]
    """
    counts = np.zeros(n_features, dtype=np.int64)
    for start in range(0, len(words), _CHUNK):
        counts += np.count_nonzero(unpack(words[start : start + _CHUNK], n_features), axis=0)
    return counts / max(1, len(words))


def union(words: Words, groups: Ints, n_groups: int) -> Words:
    """Return the union vectors of groups, ``uint64[n_groups, w]``; ``groups`` is the group of each vector, int64[n]."""
    result = np.zeros((n_groups, words.shape[1]), dtype=np.uint64)
    if len(words):
        by_group = np.argsort(groups, kind="stable")
        sorted_groups = groups[by_group]
        starts = np.flatnonzero(np.r_[True, sorted_groups[1:] != sorted_groups[:-1]])
        result[sorted_groups[starts]] = np.bitwise_or.reduceat(words[by_group], starts, axis=0)
    return result


def distinct(words: Words) -> tuple[Words, Ints, Ints]:
    """Return the distinct vectors in lexicographic order of their words, independent of the order of the rows.

    Returns:
        The vectors ``uint64[d, w]``, the index of each row's vector ``int64[n]``, and the rows of each ``int64[d]``.
    """
    if not len(words):
        return words.copy(), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    # Equal vectors may come in any order, which is several times as fast.
    by_vector = np.argsort(words[:, 0]) if words.shape[1] == 1 else np.lexsort(words.T[::-1])
    in_order = words.take(by_vector, axis=0)
    is_first = np.r_[True, (in_order[1:] != in_order[:-1]).any(axis=1)]
    inverse = np.empty(len(words), dtype=np.int64)
    inverse[by_vector] = np.cumsum(is_first) - 1
    counts = np.diff(np.r_[np.flatnonzero(is_first), len(words)]).astype(np.int64)
    return in_order[is_first], inverse, counts


def _require_width(words: Words, n_features: int) -> None:
    """Raise ValueError if the words are too few for so many features."""
    if words.ndim != 2 or words.shape[1] * WORD_BITS < n_features:
        raise ValueError(f"vectors of shape {words.shape} can't hold {n_features} features; give uint64[n, w] words")


@dataclass(frozen=True, eq=False)
class VectorCounts:
    """Distinct feature vectors with the number of rows of each: the reduced input of partitioning (Sun 2017, 3.4.3).

    Attributes:
        words: the vectors, ``uint64[d, words_for(n_features)]``, distinct.
        counts: rows of each, ``int64[d]``, positive.
        n_features: the number of used bits.
    """

    words: Words
    counts: Ints
    n_features: int

    def __post_init__(self) -> None:
        if self.words.shape != (len(self.counts), words_for(self.n_features)):
            raise ValueError(
                f"{len(self.counts)} counts and {self.n_features} features don't fit words of shape {self.words.shape}"
            )
        if len(self.counts) and int(self.counts.min()) < 1:
            raise ValueError(f"a vector's count is {int(self.counts.min())}; leave out vectors without rows")

    def __len__(self) -> int:
        """Return the number of distinct vectors."""
        return len(self.counts)

    @cached_property
    def rows(self) -> int:
        """Return the number of rows of all vectors together."""
        return int(self.counts.sum())

    def bits(self) -> Bits:
        """Return the vectors as ``bool[d, n_features]``."""
        return unpack(self.words, self.n_features)

    def rows_with_any(self, features: Sequence[int]) -> int:
        """Return the number of rows that have one of the features."""
        return int(self.counts[any_of(self.words, features)].sum())

    def scale(self, times: float) -> VectorCounts:
        """Return the vectors with so many times the rows, at least one of each."""
        return replace(self, counts=np.maximum(1, np.rint(self.counts * times)).astype(np.int64))

    def project(self, features: Sequence[int]) -> VectorCounts:
        """Return the vectors of some features only; those that become equal are merged."""
        words, inverse, _ = distinct(project(self.words, features))
        counts = np.bincount(inverse, self.counts, len(words)).astype(np.int64)
        return VectorCounts(words, counts, len(features))

    def clear_others(self, features: Sequence[int]) -> VectorCounts:
        """Return the vectors with only the bits of some features; those that become equal are merged.

        >>> VectorCounts(np.array([[0b01], [0b11]], dtype=np.uint64), np.array([2, 3]), 2).clear_others([0]).counts
        array([5])
        """
        kept = np.zeros((1, self.n_features), dtype=np.bool_)
        kept[0, list(features)] = True
        words, inverse, _ = distinct(self.words & pack(kept))
        return replace(self, words=words, counts=np.bincount(inverse, self.counts, len(words)).astype(np.int64))

    @classmethod
    def of_rows(cls, words: Words, n_features: int) -> VectorCounts:
        """Return the distinct vectors of rows ``uint64[n, w]``, in the order of :func:`distinct`."""
        vectors, _, counts = distinct(words)
        return cls(vectors, counts, n_features)
