"""Conditions with a three-valued evaluator of their own, and the rows to try them on.

Nothing of the package decides here what a condition means: values are compared as Python values by Spark's rules.
:func:`to_node` is the only bridge; it does what an analyser does (NOT taken down to the leaves).
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from layoutopt.model.predicates import (
    FALSE,
    Col,
    Comparison,
    Expr,
    Filter,
    InSet,
    Literal,
    Node,
    Predicate,
    conjunction,
    disjunction,
    like,
    negate,
    parse_like,
)
from layoutopt.model.records import from_json
from layoutopt.model.values import ValueSet, compare

NAN, INF = math.nan, math.inf
Row = Mapping[str, Any]

TYPES = {
    "t": "tinyint",
    "i": "int",
    "j": "int",
    "b": "bigint",
    "d": "double",
    "f": "float",
    "m": "decimal(4,1)",
    "s": "string",
    "r": "string",
    "x": "binary",
    "y": "date",
    "o": "boolean",
    "z": "timestamp",
}


def _float32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


_DOUBLES = [-INF, -1.5, -5e-324, -0.0, 0.0, 5e-324, 0.1, 1.0, 2.5, INF, NAN]
_TIMES = [dt.datetime(1969, 12, 31, 23, tzinfo=dt.UTC), dt.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=dt.UTC)]
_TEXTS = ["", "\0", "a", "a\0", "ab", "aba", "b", "ba", "é", "\ud7ff", "\ue000", "\uffff", "\U0001f600", "\U0010ffff"]
VALUES: dict[str, list[Any]] = {
    "t": [-128, -1, 0, 1, 2, 3, 127],
    "i": [-(2**31), -1, 0, 1, 2, 3, 4, 2**31 - 1],
    "j": [-1, 0, 1, 2, 3],
    "b": [-(2**63), 0, 1, 2**53, 2**53 + 1, 2**63 - 1],
    "d": _DOUBLES,
    "f": [_float32(value) if abs(value) > 1e-40 or value == 0 else 0.0 for value in _DOUBLES],
    "m": [Decimal("-999.9"), Decimal("-0.1"), Decimal(0), Decimal("0.1"), Decimal("1.0"), Decimal("999.9")],
    "s": _TEXTS,
    "r": ["", "a", "b"],
    "x": [b"", b"\0", b"a", b"\xff"],
    "y": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1994, 1, 1), dt.date(1994, 1, 2), dt.date(9999, 12, 31)],
    "o": [False, True],
    "z": _TIMES,
}
CONSTANTS: dict[str, list[Any]] = {
    **VALUES,
    "t": [*VALUES["t"], -129, 128, Decimal("1.5"), 2.5, NAN],
    "i": [*VALUES["i"], 2**31, Decimal("2.5"), 0.5, INF, NAN],
    "b": [*VALUES["b"], float(2**53), float(2**63), -INF, Decimal("0.5")],
    "d": [*VALUES["d"], 1, Decimal("0.1"), Decimal("2.5")],
    "f": [*VALUES["f"], 0.1, Decimal("0.1"), Decimal("2.5"), 1],
    "m": [*VALUES["m"], 0, 1, 1000, Decimal("0.05"), 0.1, 0.5, INF, NAN],
}

OPERATORS = ("=", "<>", "<", "<=", ">", ">=")


@dataclass(frozen=True)
class Compare:
    column: str
    op: str
    value: Any


@dataclass(frozen=True)
class In:
    column: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Between:
    column: str
    low: Any
    high: Any


@dataclass(frozen=True)
class Matches:
    column: str
    text: str


@dataclass(frozen=True)
class IsNull:
    column: str


@dataclass(frozen=True)
class TwoColumns:
    left: str
    op: str
    right: str


@dataclass(frozen=True)
class Not:
    part: Condition


@dataclass(frozen=True)
class Both:
    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Either:
    parts: tuple[Condition, ...]


Condition = Compare | In | Between | Matches | IsNull | TwoColumns | Not | Both | Either


# --- what a condition means: TRUE, FALSE or NULL (None) ---------------------------------------------------------


def truth(condition: Condition, row: Row) -> bool | None:
    match condition:
        case Compare(column, op, value):
            return _compared(row[column], op, value)
        case In(column, values):
            return _any(_compared(row[column], "=", value) for value in values)
        case Between(column, low, high):
            return _all([_compared(row[column], ">=", low), _compared(row[column], "<=", high)])
        case Matches(column, text):
            return None if row[column] is None else _like(row[column], text)
        case IsNull(column):
            return row[column] is None
        case TwoColumns(left, op, right):
            return _compared(row[left], op, row[right])
        case Not(part):
            inner = truth(part, row)
            return None if inner is None else not inner
        case Both(parts):
            return _all([truth(part, row) for part in parts])
        case Either(parts):
            return _any([truth(part, row) for part in parts])


def _all(values: Any) -> bool | None:
    found = list(values)
    return False if False in found else (None if None in found else True)


def _any(values: Any) -> bool | None:
    found = list(values)
    return True if True in found else (None if None in found else False)


def _compared(left: Any, op: str, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if isinstance(left, float) or isinstance(right, float):
        left, right = _double_rank(float(left)), _double_rank(float(right))
    elif isinstance(left, int | Decimal) and not isinstance(left, bool):
        left, right = Fraction(left), Fraction(right)
    elif isinstance(left, str):
        left, right = (side.encode("utf-8", "surrogatepass") for side in (left, right))
    less, same = left < right, left == right
    results = {"=": same, "<>": not same, "<": less, "<=": less or same, ">": not less and not same, ">=": not less}
    return bool(results[op])


def _double_rank(value: float) -> tuple[bool, float]:
    """NaN equals NaN and is above everything; Python has -0.0 equal to 0.0 as Spark has."""
    return (True, 0.0) if math.isnan(value) else (False, value)


def _like(text: str, pattern: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(_like(text[start:], pattern[1:]) for start in range(len(text) + 1))
    if pattern[0] == "\\":
        return text[:1] == pattern[1] and _like(text[1:], pattern[2:])
    return bool(text) and pattern[0] in ("_", text[0]) and _like(text[1:], pattern[1:])


# --- the bridge to the model ---------------------------------------------------------------------------------------


def col(name: str) -> Col:
    return Col(name, TYPES[name])


def to_node(condition: Condition, wanted: bool = True) -> Node:
    """The rows for which the condition is TRUE, or with ``wanted=False`` those for which it is FALSE."""
    match condition:
        case Not(part):
            return to_node(part, not wanted)
        case Both(parts) | Either(parts):
            nodes = [to_node(part, wanted) for part in parts]
            return conjunction(nodes) if isinstance(condition, Both) == wanted else disjunction(nodes)
        case Between(column, low, high):
            return to_node(Both((Compare(column, ">=", low), Compare(column, "<=", high))), wanted)
    literal = _literal(condition)
    if wanted:
        return conjunction([literal])
    if isinstance(literal, InSet) and literal.values.is_all:
        return FALSE  # a comparison that every value passes is NULL for NULL; only IS NOT NULL is FALSE for it
    return conjunction([negate(literal)])


def _literal(condition: Condition) -> Literal:
    match condition:
        case Compare(column, op, value):
            return InSet(col(column), compare(op, value, TYPES[column]))
        case In(column, values):
            united = ValueSet.empty()
            for value in values:
                united = united.union(compare("=", value, TYPES[column]))
            return InSet(col(column), united)
        case Matches(column, text):
            return like(col(column), parse_like(text))
        case IsNull(column):
            return InSet(col(column), ValueSet.empty(), null=True)
        case TwoColumns(left, op, right):
            if op in (">", ">="):
                left, op, right = right, {">": "<", ">=": "<="}[op], left
            return Comparison(col(left), op, col(right))
    raise AssertionError(condition)


# --- what to try -----------------------------------------------------------------------------------------------------


def rows(columns: str = "tijbdfmsrxyoz") -> st.SearchStrategy[Row]:
    return st.fixed_dictionaries({name: st.none() | st.sampled_from(VALUES[name]) for name in columns})


_PATTERNS = st.lists(st.sampled_from(["%", "_", "a", "b", "ab", "\\%", "\U0001f600", ""]), max_size=4).map("".join)


def leaves(columns: str = "tijbdfmsrxyoz") -> st.SearchStrategy[Condition]:
    def about(column: str) -> st.SearchStrategy[Condition]:
        constant = st.sampled_from(CONSTANTS[column])
        kinds: list[st.SearchStrategy[Condition]] = [
            st.builds(Compare, st.just(column), st.sampled_from(OPERATORS), constant),
            st.builds(In, st.just(column), st.lists(constant, min_size=1, max_size=4).map(tuple)),
            st.builds(Between, st.just(column), constant, constant),
            st.just(IsNull(column)),
        ]
        if column in "sr":
            kinds.append(st.builds(Matches, st.just(column), _PATTERNS))
        partner = {"i": "j", "j": "i", "s": "r", "r": "s"}.get(column)
        if partner in [*columns]:
            kinds.append(st.builds(TwoColumns, st.just(column), st.sampled_from(OPERATORS), st.just(str(partner))))
        return st.one_of(kinds)

    return st.sampled_from(columns).flatmap(about)


def conditions(columns: str = "tijbdfmsrxyoz", max_leaves: int = 6) -> st.SearchStrategy[Condition]:
    def extend(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
        several = st.lists(inner, min_size=2, max_size=3).map(tuple)
        return st.builds(Not, inner) | st.builds(Both, several) | st.builds(Either, several)

    return st.recursive(leaves(columns), extend, max_leaves=max_leaves)


def read_noun(value: object) -> Any:
    """The noun of filters, of whatever kind, that a JSON value is of; raises PlanError."""
    return from_json(Expr | Node | Predicate | Filter, value, "filter")
