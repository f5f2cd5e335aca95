"""Which rows a filter holds for, on Arrow tables: exact, by keys, without an engine.

This finds the features of rows that are written (:mod:`layoutopt.writer.features`), checks the catalog (verify) and
finds the matching rows of filters that DuckDB can't evaluate as Spark does; queries themselves are answered by an
engine. Filters with function calls are left to Spark: the answer is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.keys import key_array, stored_keys
from layoutopt.indexes.expressions import is_stored, stored_values
from layoutopt.indexes.membership import flags, in_values, like_regex, texts_in
from layoutopt.model.arrays import Bits, Keys
from layoutopt.model.predicates import (
    And,
    Comparison,
    Constant,
    Expr,
    InSet,
    Like,
    Node,
    Or,
    columns_of,
)
from layoutopt.model.values import key_kind

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
