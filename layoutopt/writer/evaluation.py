"""Which rows a filter holds for, on Arrow tables: exact, by keys, without an engine.

This finds the features of rows that are written (:mod:`layoutopt.writer.evaluation`), checks the catalog (verify) and
finds the matching rows of filters that DuckDB can't evaluate as Spark does; queries themselves are answered by an
engine. Filters with function calls are left to Spark: the answer is None.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.keys import key_array, one_chunk, stored_keys
from layoutopt.indexes.expressions import is_stored, stored_values
from layoutopt.indexes.lists import flags, in_values, like_regex, texts_in
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

_OF_ARROW = {"=": pc.equal, "<>": pc.not_equal, "<": pc.less, "<=": pc.less_equal}
_OF_NUMPY = {"=": np.equal, "<>": np.not_equal, "<": np.less, "<=": np.less_equal}


def matching_rows(node: Node, rows: Rows | KeyedRows) -> Bits | None:
    """The rows for which a filter is TRUE, bool[n]; None where it calls a function or has a type without order.

    None too for LIKE on texts that are no UTF-8. ``rows`` has the filter's columns, in their types' Arrow forms.
    """
    if not isinstance(rows, KeyedRows):
        rows = KeyedRows(rows)
    match node:
        case Constant():
            return np.full(rows.num_rows, node.value, dtype=np.bool_)
        case And() | Or():
            return combined(node, [matching_rows(child, rows) for child in node.children])
        case InSet():
            return _in_set(node, rows)
        case Like():
            return _like(node, rows)
        case _:
            return _compare(node, rows)


def is_matched_by_keys(node: Node) -> bool:
    """Whether :func:`matching_rows` answers whatever the rows are: of stored columns whose types have keys.

    Never of LIKE, which Arrow can't match on texts that are no UTF-8.
    """
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


def combined(node: And | Or, parts: Sequence[Bits | None]) -> Bits | None:
    """What holds for an AND or an OR of parts, each bool[n]; None where it is not known of one of them."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    result: Bits = (np.logical_and if isinstance(node, And) else np.logical_or).reduce(known)
    return result


def may_match(parts: Sequence[Node], rows: Rows) -> Bits:
    """The rows that no part of an AND is known to leave out, bool[n]; none by one about columns not in ``rows``."""
    keyed, names = KeyedRows(rows), set(rows.schema.names)
    found = [matching_rows(part, keyed) for part in parts if columns_of(part) <= names]
    known = [part for part in found if part is not None]
    result: Bits = np.logical_and.reduce([np.ones(rows.num_rows, dtype=np.bool_), *known])
    return result


class KeyedRows:
    """Rows that are asked for several filters: the keys of their columns are made once.

    Args:
        rows: the columns, in their types' Arrow forms.
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.num_rows: int = rows.num_rows
        self._texts: dict[Expr, pa.Array] = {}
        self._keys: dict[Expr, Keys] = {}
        self._nulls: dict[Expr, Bits] = {}

    def nulls(self, subject: Expr) -> Bits:
        """Which values of a column, or of a field of a struct, are NULL, bool[n]."""
        if subject not in self._nulls:
            found = stored_values(subject, self.rows)
            self._nulls[subject] = np.asarray(found.is_null()) if found.null_count else np.zeros(len(found), np.bool_)
        return self._nulls[subject]

    def texts(self, subject: Expr) -> pa.Array:
        """The bytes of texts or binary, as Spark compares them, also those that are no UTF-8."""
        if subject not in self._texts:
            self._texts[subject] = stored_keys(stored_values(subject, self.rows), "binary")
        return self._texts[subject]

    def keys(self, subject: Expr) -> Keys:
        """The keys of values of another ordered type."""
        if subject not in self._keys:
            self._keys[subject] = key_array(stored_values(subject, self.rows), subject.type)
        return self._keys[subject]


def _in_set(literal: InSet, rows: KeyedRows) -> Bits | None:
    subject, type = literal.subject, literal.subject.type
    if not is_matched_by_keys(literal):
        return None
    if literal.values.is_all or literal.values.is_empty:
        inside = np.full(rows.num_rows, literal.values.is_all)
    elif key_kind(type) in ("str", "bytes"):
        inside = texts_in(rows.texts(subject), literal.values)
    else:
        inside = in_values(rows.keys(subject), literal.values)
    null = rows.nulls(subject)
    return np.where(null, literal.null, inside).astype(np.bool_) if null.any() else inside


def _like(literal: Like, rows: KeyedRows) -> Bits | None:
    if not is_stored(literal.subject) or literal.subject.type != "string":
        return None
    try:
        texts = rows.texts(literal.subject).cast(pa.large_string())
    except pa.ArrowInvalid:
        return None  # how LIKE takes bytes that are no UTF-8 is for Spark to say
    try:
        found = flags(pc.match_substring_regex(texts, like_regex(literal.pattern)))
    except UnicodeEncodeError:  # half of a surrogate pair: no text has it
        found = np.zeros(len(texts), np.bool_)
    except pa.ArrowInvalid:
        return None  # longer than Arrow's expressions may be
    like: Bits = np.not_equal(found, literal.negated)
    return like & ~rows.nulls(literal.subject)


def _compare(literal: Comparison, rows: KeyedRows) -> Bits | None:
    sides = (literal.left, literal.right)
    if not is_matched_by_keys(literal):
        return None
    if key_kind(literal.left.type) in ("str", "bytes"):
        return flags(_OF_ARROW[literal.op](*map(rows.texts, sides)))
    left, right = map(rows.keys, sides)
    result: Bits = _OF_NUMPY[literal.op](left, right).astype(np.bool_, copy=False)
    return result & ~(rows.nulls(sides[0]) | rows.nulls(sides[1]))


# ----------------------------------------------------------------------------------------------------
# Feature vectors of a segment's rows from the keys of their columns, without Spark (Sun 2017, 3.4.3 and 3.4.4).
#
# Most features compare stored columns with constants, and most such columns have few distinct values in a million rows.
# There a predicate is decided once for each value, so a hundred features cost little more than one; a column of mostly
# distinct values is asked row by row, as whole arrays. Spark need not evaluate them nor hand their bits over. What a
# key
# decides here it decides in minima and maxima and in ``verify`` too. Features of functions, of LIKE and of users are
# left
# to Spark.

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
