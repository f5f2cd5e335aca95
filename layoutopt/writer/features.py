"""Feature vectors of a segment's rows from the keys of their columns, without Spark (Sun 2017, 3.4.3 and 3.4.4).

Most features compare stored columns with constants, and most such columns have few distinct values in a million rows.
There a predicate is decided once for each value, so a hundred features cost little more than one; a column of mostly
distinct values is asked row by row, as whole arrays. Spark need not evaluate them nor hand their bits over. What a key
decides here it decides in minima and maxima and in ``verify`` too. Features of functions, of LIKE and of users are left
to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.keys import one_chunk
from layoutopt.model.arrays import Bits, Ints, Words
from layoutopt.model.columns import word_names
from layoutopt.model.feature import Feature
from layoutopt.model.predicates import Col, InSet, Predicate
from layoutopt.model.values import key_kind
from layoutopt.model.vectors import WORD_BITS, distinct, pack, project
from layoutopt.writer.matching import KeyedRows, is_matched_by_keys, matching_rows

_ALL: Final = ~np.uint64(0)
_LOOKED_AT: Final = 8192
"""Values of a column that tell whether most of them are distinct."""

_MANY_ROWS: Final = 4_000
_PROBED: Final = 65_536
_MOST_DISTINCT: Final = 0.75
"""Where more of the first rows have vectors of their own, sorting all is as fast as hashing."""


def features_left_to_spark(features: Sequence[Feature], columns: Collection[str]) -> tuple[int, ...]:
    """The places of the features that the keys of these columns don't decide."""
    held = frozenset(columns)
    return tuple(i for i, feature in enumerate(features) if not (feature.columns <= held and is_keyed(feature)))


def is_keyed(feature: Feature) -> bool:
    """Whether the keys of stored columns decide the feature, whatever the rows are."""
    return all(is_matched_by_keys(predicate.node) for predicate in feature.predicates)


def segment_words(features: Sequence[Feature], rows: pa.Table, of_left: Callable[[Sequence[int]], Words]) -> Words:
    """The rows' feature vectors, ``uint64[n, w]``.

    Args:
        features: bit ``i`` is feature ``i``.
        rows: in the Arrow forms of their types.
        of_left: the vectors over those that are :func:`features_left_to_spark`, asked for by their places.
    """
    left = features_left_to_spark(features, rows.column_names)
    keyed = sorted(set(range(len(features))).difference(left))
    by_keys = words_by_keys([features[i] for i in keyed], rows)
    return merged(keyed, by_keys, left, of_left(left)) if left else by_keys


def words_of(table: pa.Table, n_features: int) -> Words:
    """The feature vectors that rows carry in columns of words, ``uint64[n, words_for(n_features)]``."""
    columns = [np.asarray(table[name], dtype=np.int64) for name in word_names(n_features)]
    return np.stack(columns, axis=1).view(np.uint64)


def distinct_rows(words: Words) -> tuple[Words, Ints, Ints]:
    """What :func:`~layoutopt.model.vectors.distinct` gives; of many rows of few vectors these alone are sorted."""
    first = words[: min(len(words) // 4, _PROBED)]
    if len(words) < _MANY_ROWS or _vector_codes(first)[1] > _MOST_DISTINCT * len(first):
        return distinct(words)
    codes, count = _vector_codes(words)
    one_of = np.empty(count, dtype=np.int64)
    one_of[codes] = np.arange(len(codes))
    vectors, of_code, _ = distinct(words[one_of])
    inverse = of_code[codes]
    return vectors, inverse, np.bincount(inverse, minlength=count).astype(np.int64)


def _vector_codes(words: Words) -> tuple[Ints, int]:
    """A number for each vector, the same for equal ones, below how many there are, which is the second."""
    codes, count = _codes(words[:, 0])
    for word in words.T[1:]:
        further, of_word = _codes(word)
        codes, count = _codes(codes * of_word + further)  # below the square of the rows, which are fewer than 2**31
    return codes, count


def _codes(values: Ints | Words) -> tuple[Ints, int]:
    coded = pa.array(values).dictionary_encode()
    return np.asarray(coded.indices, dtype=np.int64), len(coded.dictionary)


def merged(some: Sequence[int], words: Words, others: Sequence[int], of_others: Words) -> Words:
    """The vectors over all features from those over some and those over the others.

    Args:
        some: the places of some of the features, rising.
        words: vectors over these, ``uint64[n, w]``.
        others: the places of all others, rising.
        of_others: vectors over those.

    >>> merged([0, 2], pack(np.array([[True, True]])), [1], pack(np.array([[False]]))).tolist()
    [[5]]
    """
    first = words.shape[1] * WORD_BITS
    source = {place: k for k, place in enumerate(some)} | {place: first + k for k, place in enumerate(others)}
    return project(np.hstack([words, of_others]), [source[place] for place in range(len(source))])


def words_by_keys(features: Sequence[Feature], rows: pa.Table) -> Words:
    """The rows' vectors over features that are keyed (:func:`is_keyed`), ``uint64[n, w]``.

    Every bit is set until a predicate is not TRUE for the row. A predicate about one column is asked of the column's
    distinct values, unless most are distinct.

    Args:
        features: bit ``i`` is feature ``i``.
        rows: in the Arrow forms of their types.
    """
    words = np.repeat(pack(np.ones((1, len(features)), dtype=np.bool_)), rows.num_rows, axis=0)
    of_column: dict[str, list[Predicate]] = {}
    of_rows: list[Predicate] = []
    having: dict[Predicate, list[int]] = {}
    for i, feature in enumerate(features):
        for predicate in feature.predicates:
            if predicate not in having:
                column = _column_of(predicate)
                (of_rows if column is None else of_column.setdefault(column, [])).append(predicate)
            having.setdefault(predicate, []).append(i)
    cleared = {predicate: ~_set_bits(places, len(features)) for predicate, places in having.items()}
    for name in [name for name in of_column if _is_mostly_distinct(rows[name])]:
        of_rows += of_column.pop(name)
    _clear(words, rows, of_rows, cleared)
    for name, predicates in of_column.items():
        coded = one_chunk(rows[name]).dictionary_encode("encode")
        of_values = np.full((len(coded.dictionary), words.shape[1]), _ALL)
        _clear(of_values, pa.table({name: coded.dictionary}), predicates, cleared)
        words &= of_values[np.asarray(coded.indices)]
    return words


def _is_mostly_distinct(column: pa.ChunkedArray) -> bool:
    """Whether a column has too many values for a dictionary to be worth its memory, by its first ones."""
    first = column.slice(0, _LOOKED_AT)
    return len(first) == _LOOKED_AT and 2 * pc.count_distinct(first, mode="all").as_py() > _LOOKED_AT


def _column_of(predicate: Predicate) -> str | None:
    """The column whose values alone decide, and can be told apart; None for several, fields of structs and arrays."""
    subjects = {literal.subject if isinstance(literal, InSet) else None for literal in predicate.literals}
    subject, *others = subjects
    if others or not isinstance(subject, Col) or key_kind(subject.type) is None:
        return None
    return subject.name


def _set_bits(places: Iterable[int], n_features: int) -> Words:
    """The bits of some features, ``uint64[w]``."""
    bits: Bits = np.zeros((1, n_features), dtype=np.bool_)
    bits[0, list(places)] = True
    return pack(bits).ravel()


def _clear(words: Words, rows: pa.Table, predicates: Iterable[Predicate], cleared: dict[Predicate, Words]) -> None:
    """Take from each row the bits of the features of which a predicate is not TRUE for it."""
    keyed = KeyedRows(rows)
    for predicate in predicates:
        held = matching_rows(predicate.node, keyed)
        if held is None:
            raise ValueError(f"{predicate} is not decided by keys; leave it to Spark")
        for word in np.flatnonzero(cleared[predicate] != _ALL).tolist():
            words[:, word] &= np.where(held, _ALL, cleared[predicate][word])
