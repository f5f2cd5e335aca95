"""Which rows a filter holds for, on Arrow tables: exact, by keys, without an engine.

This checks the catalog (verify) and finds the matching rows of filters that DuckDB can't evaluate as Spark does;
queries themselves are answered by an engine. Filters with function calls are left to Spark: the answer is None.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.keys import key_array, stored_keys
from layoutopt.model.arrays import Bits, Keys
from layoutopt.model.predicates import (
    ANY_CHAR,
    ANY_STRING,
    And,
    Col,
    Comparison,
    Constant,
    InSet,
    Like,
    Node,
    Or,
    Pattern,
)
from layoutopt.model.values import Key, ValueSet, key_kind

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


def combined(node: And | Or, parts: Sequence[Bits | None]) -> Bits | None:
    """What holds for an AND or an OR of parts, each bool[n]; None where it is not known of one of them."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    result: Bits = (np.logical_and if isinstance(node, And) else np.logical_or).reduce(known)
    return result


class KeyedRows:
    """Rows that are asked for several filters: the keys of their columns are made once.

    Args:
        rows: the columns, in their types' Arrow forms.
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.num_rows: int = rows.num_rows
        self._texts: dict[str, pa.Array] = {}
        self._keys: dict[tuple[str, str], Keys] = {}
        self._nulls: dict[str, Bits] = {}

    def nulls(self, name: str) -> Bits:
        """Which values of a column are NULL, bool[n]."""
        if name not in self._nulls:
            column = self.rows.column(name)
            self._nulls[name] = np.asarray(column.is_null()) if column.null_count else np.zeros(len(column), np.bool_)
        return self._nulls[name]

    def texts(self, name: str) -> pa.Array:
        """The bytes of a column of texts or binary, as Spark compares them, also those that are no UTF-8."""
        if name not in self._texts:
            self._texts[name] = stored_keys(self.rows.column(name), "binary")
        return self._texts[name]

    def keys(self, name: str, type: str) -> Keys:
        """The keys of a column of another ordered type."""
        if (name, type) not in self._keys:
            self._keys[name, type] = key_array(self.rows.column(name), type)
        return self._keys[name, type]


def _in_set(literal: InSet, rows: KeyedRows) -> Bits | None:
    if not isinstance(literal.subject, Col):
        return None
    name, type = literal.subject.name, literal.subject.type
    if literal.values.is_all or literal.values.is_empty:
        inside = np.full(rows.num_rows, literal.values.is_all)
    elif key_kind(type) is None:
        return None
    elif key_kind(type) in ("str", "bytes"):
        inside = _texts_in(rows.texts(name), literal.values)
    else:
        inside = in_values(rows.keys(name, type), literal.values)
    null = rows.nulls(name)
    return np.where(null, literal.null, inside).astype(np.bool_) if null.any() else inside


def _texts_in(texts: pa.Array, values: ValueSet) -> Bits:
    """Which texts, as their bytes, lie in a set of values, bool[n]; where one is NULL, anything."""
    inside = np.zeros(len(texts), np.bool_)
    points = []
    for low, high in values.intervals:
        start, end = _bytes(low), _bytes(high)
        if start is not None and end == start + b"\0":
            points.append(start)
            continue
        above = True if start is None else _flags(pc.greater_equal(texts, pa.scalar(start, texts.type)))
        inside |= above & (True if end is None else _flags(pc.less(texts, pa.scalar(end, texts.type))))
    if len(points) == 1:
        inside |= _flags(pc.equal(texts, pa.scalar(points[0], texts.type)))
    elif points:
        inside |= _flags(pc.is_in(texts, pa.array(points, texts.type)))
    return inside


def _bytes(end: Key | None) -> bytes | None:
    return end.encode("utf-8", "surrogatepass") if isinstance(end, str) else end  # type: ignore[return-value]


def _flags(booleans: pa.BooleanArray) -> Bits:
    """Arrow's booleans as bool[n], FALSE where null."""
    return np.asarray(booleans.fill_null(False) if booleans.null_count else booleans)


def in_values(keys: npt.NDArray[np.generic], values: ValueSet) -> Bits:
    """Which keys lie in a set of values, bool[n].

    >>> in_values(np.array([1, 2, 3]), ValueSet.interval(2, 3)).tolist()
    [False, True, False]
    """
    if len(values.intervals) == 1 and keys.dtype == np.int64:
        return _between(keys, *values.intervals[0])
    # An odd number of the set's bounds lies at or below each of its keys.
    starts_open = bool(values.intervals) and values.intervals[0][0] is None
    ends = [end for interval in values.intervals for end in interval if end is not None]
    if keys.dtype != object and any(isinstance(end, int) and not -(2**63) <= end < 2**63 for end in ends):
        keys = keys.astype(object)
    bounds = np.array(ends, dtype=object if keys.dtype == object else np.int64)
    below = np.searchsorted(bounds, keys, side="right")
    inside: Bits = (below + starts_open) % 2 == 1
    return inside


def _between(keys: npt.NDArray[np.generic], low: Key | None, high: Key | None) -> Bits:
    """Which of int64 keys lie in ``[low, high)``; None is unbounded."""
    if isinstance(high, int) and keys.dtype == np.int64 and isinstance(low, int) and high == low + 1:
        point: Bits = np.equal(keys, low)
        return point
    inside: Bits = np.greater_equal(keys, low) if low is not None else np.ones(len(keys), np.bool_)
    if high is not None:
        inside &= np.less(keys, high)
    return inside


def _like(literal: Like, rows: KeyedRows) -> Bits | None:
    if not isinstance(literal.subject, Col) or literal.subject.type != "string":
        return None
    name = literal.subject.name
    try:
        texts = rows.texts(name).cast(pa.large_string())
    except pa.ArrowInvalid:
        return None  # how LIKE takes bytes that are no UTF-8 is for Spark to say
    try:
        found = _flags(pc.match_substring_regex(texts, _regex(literal.pattern)))
    except UnicodeEncodeError:  # half of a surrogate pair: no text has it
        found = np.zeros(len(texts), np.bool_)
    like: Bits = np.not_equal(found, literal.negated)
    return like & ~rows.nulls(name)


def _regex(pattern: Pattern) -> str:
    """A pattern as Arrow's (RE2's) regular expressions have it: of the whole text, and a point takes any character."""
    parts = {ANY_CHAR: ".", ANY_STRING: ".*"}
    body = "".join(re.escape(token) if isinstance(token, str) else parts[token] for token in pattern)
    return f"(?s)\\A(?:{body})\\z"


def _compare(literal: Comparison, rows: KeyedRows) -> Bits | None:
    sides = (literal.left, literal.right)
    if not all(isinstance(side, Col) for side in sides) or literal.left.type != literal.right.type:
        return None
    if key_kind(literal.left.type) is None:
        return None
    names = [side.name for side in sides if isinstance(side, Col)]
    if key_kind(literal.left.type) in ("str", "bytes"):
        return _flags(_OF_ARROW[literal.op](*map(rows.texts, names)))
    left, right = (rows.keys(name, literal.left.type) for name in names)
    result: Bits = _OF_NUMPY[literal.op](left, right).astype(np.bool_, copy=False)
    return result & ~(rows.nulls(names[0]) | rows.nulls(names[1]))
