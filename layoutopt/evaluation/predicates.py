"""Evaluate filters and feature vectors on Arrow tables, exactly, by the keys of columns and without an engine.

Feature vectors of written rows (Sun 2017, 3.4.3 and 3.4.4), ``verify``, and filters that DuckDB can't evaluate as
Spark does use this. A key decides here as it does in minima and maxima. Functions, LIKE on invalid UTF-8 and the
user's features are left to Spark: the result is None.

Most features compare stored columns that have few distinct values. Such a predicate is evaluated once for each
distinct value, so a hundred features cost little more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.evaluation.expressions import is_stored, stored_values
from layoutopt.evaluation.keys import key_array, one_chunk, stored_keys
from layoutopt.evaluation.matching import flags, in_values, like_regex, texts_in_values
from layoutopt.model.arrays import Bits, Ints, Keys, Words
from layoutopt.model.feature import Feature
from layoutopt.model.predicates import (
    And,
    Col,
    Comparison,
    Constant,
    Expr,
    InSet,
    Like,
    Node,
    Or,
    Predicate,
    columns_of,
)
from layoutopt.model.schema import word_names
from layoutopt.model.values import key_kind
from layoutopt.model.vectors import WORD_BITS, distinct, pack, project

Rows: TypeAlias = pa.Table | pa.RecordBatch

_ARROW_COMPARISONS = {"=": pc.equal, "<>": pc.not_equal, "<": pc.less, "<=": pc.less_equal}
_NUMPY_COMPARISONS = {"=": np.equal, "<>": np.not_equal, "<": np.less, "<=": np.less_equal}

_ALL_BITS: Final = ~np.uint64(0)
# Values of a column by which it counts as mostly distinct.
_PROBED_VALUES: Final = 8192
# Fewer rows are sorted directly to find distinct vectors.
_MANY_ROWS: Final = 4_000
# Vectors that show whether hashing pays, and the largest share of distinct ones with which it does.
_PROBED_VECTORS: Final = 65_536
_MAX_DISTINCT: Final = 0.75


def matching_rows(node: Node, rows: Rows | KeyedRows) -> Bits | None:
    """Return the rows for which a filter is TRUE, ``bool[n]``; None where keys can't decide it.

    That is for function calls, types without order, and LIKE on invalid UTF-8.
    """
    if not isinstance(rows, KeyedRows):
        rows = KeyedRows(rows)
    match node:
        case Constant():
            return np.full(rows.num_rows, node.value, dtype=np.bool_)
        case And() | Or():
            return combine_bits(node, [matching_rows(child, rows) for child in node.children])
        case InSet():
            return _evaluate_set(node, rows)
        case Like():
            return _evaluate_like(node, rows)
        case _:
            return _evaluate_comparison(node, rows)


def is_matched_by_keys(node: Node) -> bool:
    """Return whether :func:`matching_rows` decides the filter for any rows; never for LIKE."""
    match node:
        case Constant():
            return True
        case And() | Or():
            return all(map(is_matched_by_keys, node.children))
        case InSet(subject=subject, values=values):
            return is_stored(subject) and (values.is_all or values.is_empty or key_kind(subject.type) is not None)
        case Comparison(left=left, right=right):
            same = is_stored(left) and is_stored(right) and left.type == right.type
            return same and key_kind(left.type) is not None
        case _:
            return False


def combine_bits(node: And | Or, parts: Sequence[Bits | None]) -> Bits | None:
    """Return the AND or OR of parts, each ``bool[n]``; None if one of them is None."""
    decided = [part for part in parts if part is not None]
    if len(decided) < len(parts):
        return None
    result: Bits = (np.logical_and if isinstance(node, And) else np.logical_or).reduce(decided)
    return result


def may_match(parts: Sequence[Node], rows: Rows) -> Bits:
    """Return the rows that no part of an AND excludes, ``bool[n]``; parts about columns not in ``rows`` are ignored."""
    keyed, names = KeyedRows(rows), set(rows.schema.names)
    decided = [bits for part in parts if columns_of(part) <= names and (bits := matching_rows(part, keyed)) is not None]
    result: Bits = np.logical_and.reduce([np.ones(rows.num_rows, dtype=np.bool_), *decided])
    return result


class KeyedRows:
    """Rows for several filters, with a cache of their columns' keys."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.num_rows: int = rows.num_rows
        self._texts: dict[Expr, pa.Array] = {}
        self._keys: dict[Expr, Keys] = {}
        self._nulls: dict[Expr, Bits] = {}

    def nulls(self, subject: Expr) -> Bits:
        """Return which values of a column, or of a field of a struct, are NULL, ``bool[n]``."""
        if subject not in self._nulls:
            values = stored_values(subject, self.rows)
            self._nulls[subject] = (
                np.asarray(values.is_null()) if values.null_count else np.zeros(len(values), np.bool_)
            )
        return self._nulls[subject]

    def texts(self, subject: Expr) -> pa.Array:
        """Return the bytes of texts or binary values, as Spark compares them; invalid UTF-8 is allowed."""
        if subject not in self._texts:
            self._texts[subject] = stored_keys(stored_values(subject, self.rows), "binary")
        return self._texts[subject]

    def keys(self, subject: Expr) -> Keys:
        """Return the keys of values of another ordered type."""
        if subject not in self._keys:
            self._keys[subject] = key_array(stored_values(subject, self.rows), subject.type)
        return self._keys[subject]


def _evaluate_set(literal: InSet, rows: KeyedRows) -> Bits | None:
    subject, type = literal.subject, literal.subject.type
    if not is_matched_by_keys(literal):
        return None
    if literal.values.is_all or literal.values.is_empty:
        inside = np.full(rows.num_rows, literal.values.is_all)
    elif key_kind(type) in ("str", "bytes"):
        inside = texts_in_values(rows.texts(subject), literal.values)
    else:
        inside = in_values(rows.keys(subject), literal.values)
    null = rows.nulls(subject)
    return np.where(null, literal.null, inside).astype(np.bool_) if null.any() else inside


def _evaluate_like(literal: Like, rows: KeyedRows) -> Bits | None:
    if not is_stored(literal.subject) or literal.subject.type != "string":
        return None
    try:
        texts = rows.texts(literal.subject).cast(pa.large_string())
    except pa.ArrowInvalid:
        return None  # only Spark knows how LIKE treats invalid UTF-8
    try:
        matches = flags(pc.match_substring_regex(texts, like_regex(literal.pattern)))
    except UnicodeEncodeError:  # an unpaired surrogate occurs in no text
        matches = np.zeros(len(texts), np.bool_)
    except pa.ArrowInvalid:
        return None  # the pattern is too long for Arrow
    like: Bits = np.not_equal(matches, literal.negated)
    return like & ~rows.nulls(literal.subject)


def _evaluate_comparison(literal: Comparison, rows: KeyedRows) -> Bits | None:
    sides = (literal.left, literal.right)
    if not is_matched_by_keys(literal):
        return None
    if key_kind(literal.left.type) in ("str", "bytes"):
        return flags(_ARROW_COMPARISONS[literal.op](*map(rows.texts, sides)))
    left, right = map(rows.keys, sides)
    result: Bits = _NUMPY_COMPARISONS[literal.op](left, right).astype(np.bool_, copy=False)
    return result & ~(rows.nulls(sides[0]) | rows.nulls(sides[1]))


def features_left_to_spark(features: Sequence[Feature], columns: Collection[str]) -> tuple[int, ...]:
    """Return the places of the features that the keys of these columns don't decide."""
    column_set = frozenset(columns)
    return tuple(i for i, feature in enumerate(features) if not (feature.columns <= column_set and is_keyed(feature)))


def is_keyed(feature: Feature) -> bool:
    """Return whether the keys of stored columns decide the feature for any rows."""
    return all(is_matched_by_keys(predicate.node) for predicate in feature.predicates)


def segment_words(
    features: Sequence[Feature], rows: pa.Table, words_left_to_spark: Callable[[Sequence[int]], Words]
) -> Words:
    """Return the rows' feature vectors, ``uint64[n, w]``.

    ``words_left_to_spark`` finds the vectors over :func:`features_left_to_spark`, by their places.
    """
    left_features = features_left_to_spark(features, rows.column_names)
    keyed = sorted(set(range(len(features))).difference(left_features))
    by_keys = words_by_keys([features[i] for i in keyed], rows)
    return merge_words(keyed, by_keys, left_features, words_left_to_spark(left_features)) if left_features else by_keys


def read_word_columns(table: pa.Table, n_features: int) -> Words:
    """Return the feature vectors that rows carry in columns of words, ``uint64[n, words_for(n_features)]``."""
    columns = [np.asarray(table[name], dtype=np.int64) for name in word_names(n_features)]
    return np.stack(columns, axis=1).view(np.uint64)


def distinct_rows(words: Words) -> tuple[Words, Ints, Ints]:
    """Return the result of :func:`~layoutopt.model.vectors.distinct`; for many rows of few vectors it is faster."""
    first = words[: min(len(words) // 4, _PROBED_VECTORS)]
    if len(words) < _MANY_ROWS or _encode_vectors(first)[1] > _MAX_DISTINCT * len(first):
        return distinct(words)
    codes, count = _encode_vectors(words)
    row_of_code = np.empty(count, dtype=np.int64)
    row_of_code[codes] = np.arange(len(codes))
    vectors, index_of_code, _ = distinct(words[row_of_code])
    inverse = index_of_code[codes]
    return vectors, inverse, np.bincount(inverse, minlength=count).astype(np.int64)


def _encode_vectors(words: Words) -> tuple[Ints, int]:
    """Return a number for each vector, equal for equal ones, and how many numbers there are."""
    codes, count = _encode(words[:, 0])
    for word in words.T[1:]:
        n_word_codes, word_codes = _encode(word)
        codes, count = _encode(
            codes * word_codes + n_word_codes
        )  # below the square of the rows, which are fewer than 2**31
    return codes, count


def _encode(values: Ints | Words) -> tuple[Ints, int]:
    coded = pa.array(values).dictionary_encode()
    return np.asarray(coded.indices, dtype=np.int64), len(coded.dictionary)


def merge_words(places: Sequence[int], words: Words, other_places: Sequence[int], other_words: Words) -> Words:
    """Return the vectors over all features from vectors over two sets of them, whose places are ascending.

    >>> merge_words([0, 2], pack(np.array([[True, True]])), [1], pack(np.array([[False]]))).tolist()
    [[5]]
    """
    first = words.shape[1] * WORD_BITS
    source = {place: k for k, place in enumerate(places)} | {place: first + k for k, place in enumerate(other_places)}
    return project(np.hstack([words, other_words]), [source[place] for place in range(len(source))])


def words_by_keys(features: Sequence[Feature], rows: pa.Table) -> Words:
    """Return the rows' vectors over keyed features (:func:`is_keyed`), ``uint64[n, w]``.

    Every bit is set until a predicate is not TRUE for the row. A predicate about one column is evaluated on its
    distinct values, unless most values are distinct.
    """
    words = np.repeat(pack(np.ones((1, len(features)), dtype=np.bool_)), rows.num_rows, axis=0)
    predicates_by_column: dict[str, list[Predicate]] = {}
    row_predicates: list[Predicate] = []
    features_by_predicate: dict[Predicate, list[int]] = {}
    for i, feature in enumerate(features):
        for predicate in feature.predicates:
            if predicate not in features_by_predicate:
                column = _find_column(predicate)
                (row_predicates if column is None else predicates_by_column.setdefault(column, [])).append(predicate)
            features_by_predicate.setdefault(predicate, []).append(i)
    cleared = {predicate: ~_pack_bits(places, len(features)) for predicate, places in features_by_predicate.items()}
    for name in [name for name in predicates_by_column if _is_mostly_distinct(rows[name])]:
        row_predicates += predicates_by_column.pop(name)
    _clear_bits(words, rows, row_predicates, cleared)
    for name, predicates in predicates_by_column.items():
        coded = one_chunk(rows[name]).dictionary_encode("encode")
        value_words = np.full((len(coded.dictionary), words.shape[1]), _ALL_BITS)
        _clear_bits(value_words, pa.table({name: coded.dictionary}), predicates, cleared)
        words &= value_words[np.asarray(coded.indices)]
    return words


def _is_mostly_distinct(column: pa.ChunkedArray) -> bool:
    first = column.slice(0, _PROBED_VALUES)
    return len(first) == _PROBED_VALUES and 2 * pc.count_distinct(first, mode="all").as_py() > _PROBED_VALUES


def _find_column(predicate: Predicate) -> str | None:
    """Return the column whose keys alone decide; None for several columns, fields of structs and arrays."""
    subjects = {literal.subject if isinstance(literal, InSet) else None for literal in predicate.literals}
    subject = next(iter(subjects))
    if len(subjects) > 1 or not isinstance(subject, Col) or key_kind(subject.type) is None:
        return None
    return subject.name


def _pack_bits(places: Iterable[int], n_features: int) -> Words:
    """Return the bits of some features, ``uint64[w]``."""
    bits: Bits = np.zeros((1, n_features), dtype=np.bool_)
    bits[0, list(places)] = True
    return pack(bits).ravel()


def _clear_bits(words: Words, rows: pa.Table, predicates: Iterable[Predicate], cleared: dict[Predicate, Words]) -> None:
    """Clear the bits of the features of which a predicate is not TRUE, row by row."""
    keyed = KeyedRows(rows)
    for predicate in predicates:
        matches = matching_rows(predicate.node, keyed)
        if matches is None:
            raise ValueError(f"keys don't decide {predicate}: leave it to Spark")
        for word in np.flatnonzero(cleared[predicate] != _ALL_BITS).tolist():
            words[:, word] &= np.where(matches, _ALL_BITS, cleared[predicate][word])
