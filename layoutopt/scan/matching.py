"""Which rows a filter holds for, on Arrow tables: exact, by keys, without an engine.

This checks the catalog (verify) and finds the matching rows of filters that DuckDB can't evaluate as Spark does;
queries themselves are answered by an engine. Filters with function calls are left to Spark: the answer is None.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from layoutopt.catalog.keys import has_key, key_array
from layoutopt.model.arrays import Bits, Keys
from layoutopt.model.predicates import (
    And,
    Col,
    Comparison,
    Constant,
    InSet,
    Like,
    Node,
    Or,
    matches,
)
from layoutopt.model.values import ValueSet, key_kind


def matching_rows(node: Node, rows: pa.Table | pa.RecordBatch) -> Bits | None:
    """The rows for which a filter is TRUE, bool[n]; None where it calls a function or has a type without order.

    None too for LIKE on texts that are no UTF-8. ``rows`` has the filter's columns, in their types' Arrow forms.
    """
    match node:
        case Constant():
            return np.full(rows.num_rows, node.value, dtype=np.bool_)
        case And() | Or():
            parts = [matching_rows(child, rows) for child in node.children]
            known = [part for part in parts if part is not None]
            if len(known) < len(parts):
                return None
            combine = np.logical_and if isinstance(node, And) else np.logical_or
            result: Bits = combine.reduce(known)
            return result
        case InSet():
            return _in_set(node, rows)
        case Like():
            return _like(node, rows)
        case _:
            return _compare(node, rows)


def _in_set(literal: InSet, rows: pa.Table | pa.RecordBatch) -> Bits | None:
    if not isinstance(literal.subject, Col):
        return None
    column = rows.column(literal.subject.name)
    null = np.asarray(column.is_null())
    if literal.values.is_all or literal.values.is_empty:
        inside = np.full(len(null), literal.values.is_all)
    elif key_kind(literal.subject.type) is None:
        return None
    else:
        inside = in_values(_comparable(column, literal.subject.type), literal.values)
    return np.where(null, literal.null, inside).astype(np.bool_)


def _comparable(column: pa.Array | pa.ChunkedArray, type: str) -> Keys:
    """The column's keys, but texts as their bytes: so Spark compares them, also those that are no UTF-8."""
    return key_array(column, "binary" if key_kind(type) == "str" else type)


def in_values(keys: npt.NDArray[np.generic], values: ValueSet) -> Bits:
    """Which keys lie in a set of values, bool[n]: an odd number of its bounds lies at or below each.

    Texts may stand as their bytes, whose order is the same.

    >>> in_values(np.array([1, 2, 3]), ValueSet.interval(2, 3)).tolist()
    [False, True, False]
    """
    starts_open = bool(values.intervals) and values.intervals[0][0] is None
    ends = [end for interval in values.intervals for end in interval if end is not None]
    if len(keys) and isinstance(keys[0], bytes):
        ends = [end.encode("utf-8", "surrogatepass") if isinstance(end, str) else end for end in ends]
    if keys.dtype != object and any(isinstance(end, int) and not -(2**63) <= end < 2**63 for end in ends):
        keys = keys.astype(object)
    bounds = np.array(ends, dtype=object if keys.dtype == object else np.int64)
    below = np.searchsorted(bounds, keys, side="right")
    inside: Bits = (below + starts_open) % 2 == 1
    return inside


def _like(literal: Like, rows: pa.Table | pa.RecordBatch) -> Bits | None:
    if not isinstance(literal.subject, Col) or literal.subject.type != "string":
        return None
    column = rows.column(literal.subject.name)
    if not has_key(column, "string")[np.asarray(column.is_valid())].all():
        return None  # how LIKE takes bytes that are no UTF-8 is for Spark to say
    texts = {text: matches(literal.pattern, text) for text in column.unique().to_pylist() if text is not None}
    return np.array(
        [text is not None and texts[text] != literal.negated for text in column.to_pylist()], dtype=np.bool_
    )


def _compare(literal: Comparison, rows: pa.Table | pa.RecordBatch) -> Bits | None:
    sides = (literal.left, literal.right)
    if not all(isinstance(side, Col) for side in sides) or literal.left.type != literal.right.type:
        return None
    if key_kind(literal.left.type) is None:
        return None
    columns = [rows.column(side.name) for side in sides if isinstance(side, Col)]
    left, right = (_comparable(column, literal.left.type) for column in columns)
    holds = {"=": np.equal, "<>": np.not_equal, "<": np.less, "<=": np.less_equal}[literal.op](left, right)
    null = np.asarray(columns[0].is_null()) | np.asarray(columns[1].is_null())
    result: Bits = np.asarray(holds, dtype=np.bool_) & ~null
    return result
