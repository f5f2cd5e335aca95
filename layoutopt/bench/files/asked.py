"""Filters of queries in Iceberg's words."""

from __future__ import annotations

from typing import Any, Final

import pyiceberg.expressions

from layoutopt.model.predicates import And, Col, Constant, InSet, Node, Or
from layoutopt.model.values import Key, ValueSet, from_key

_ICE: Final[Any] = pyiceberg.expressions  # whose classes take their arguments otherwise than they say


def iceberg_filter(node: Node) -> Any:
    """A filter that :func:`layoutopt.workload.served.said` leaves as it is, as pyiceberg has it."""
    if isinstance(node, And):
        return _joined(_ICE.And, [iceberg_filter(child) for child in node.children])
    if isinstance(node, Or):
        return _joined(_ICE.Or, [iceberg_filter(child) for child in node.children])
    if isinstance(node, Constant):
        return _ICE.AlwaysTrue() if node.value else _ICE.AlwaysFalse()
    if isinstance(node, InSet) and isinstance(node.subject, Col):
        found = _among(node.subject, node.values)
        return _ICE.Or(found, _ICE.IsNull(node.subject.name)) if node.null else found
    raise AssertionError(f"Iceberg has no words for {node}")


def _joined(kind: Any, parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else kind(*parts)


def _among(column: Col, values: ValueSet) -> Any:
    if values.is_all:
        return _ICE.NotNull(column.name)
    if (points := values.points()) is not None:
        return _ICE.In(column.name, [from_key(key, column.type) for key in points])
    if (left_out := values.co_points()) is not None:
        # Readers differ in whether NULL is among the others; in SQL it is not.
        others = _ICE.NotIn(column.name, [from_key(key, column.type) for key in left_out])
        return _ICE.And(_ICE.NotNull(column.name), others)
    return _joined(_ICE.Or, [_between(column, low, high) for low, high in values.intervals])


def _between(column: Col, low: Key | None, high: Key | None) -> Any:
    ends = []
    if low is not None:
        ends.append(_ICE.GreaterThanOrEqual(column.name, from_key(low, column.type)))
    if high is not None:
        ends.append(_ICE.LessThan(column.name, from_key(high, column.type)))
    return _joined(_ICE.And, ends)
