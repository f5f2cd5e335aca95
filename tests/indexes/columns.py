"""Blocks of values for the tests of indexes: every kind of key, with NULL, NaN, edges, and letters of several bytes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa

from layoutopt.indexes.protocol import BlockColumn
from layoutopt.model.predicates import ANY_CHAR, ANY_STRING, Col, InSet, Like, canonical_pattern, matches
from layoutopt.model.values import ValueSet, to_key

TEXTS = ["", "a", "ab", "abc", "abcd", "abz", "b", "bcd", "zabc", "é", "aé", "éa", "a\0", "😀b", "\U0010ffff", "a" * 70]
POOLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int32(), [-(2**31), -7, -1, 0, 1, 2, 3, 5, 8, 100, 2**31 - 1]),
    "bigint": (pa.int64(), [-(2**63), -5, 0, 1, 2, 3, 70, 2**62, 2**63 - 1]),
    "boolean": (pa.bool_(), [False, True]),
    "double": (pa.float64(), [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 0.1, 1.0, -2.5, 5e-324]),
    "float": (pa.float32(), [float("nan"), float("inf"), -0.0, 0.0, 0.5, 1.0, -2.5, 3.25]),
    "date": (pa.date32(), [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2020, 2, 29), dt.date(9999, 12, 31)]),
    "timestamp_ntz": (pa.timestamp("us"), [dt.datetime(1969, 1, 1), dt.datetime(2020, 1, 1, 0, 0, 1)]),
    "decimal(15,2)": (pa.decimal128(15, 2), [Decimal("-1.50"), Decimal(0), Decimal("0.01"), Decimal("9999.99")]),
    "decimal(38,0)": (pa.decimal128(38, 0), [Decimal(-(10**30)), Decimal(0), Decimal(7), Decimal(10**37)]),
    "string": (pa.string(), TEXTS),
    "binary": (pa.binary(), [b"", b"a", b"ab", b"\xff", b"a\0"]),
}


@dataclass(frozen=True)
class Blocks:
    """Values of one type, block by block; None is NULL."""

    type: str
    rows: tuple[tuple[Any, ...], ...]

    @property
    def column(self) -> BlockColumn:
        flat = [value for block in self.rows for value in block]
        values = pa.chunked_array([pa.array(flat, POOLS[self.type][0])])
        return BlockColumn(values, offsets_of(self.rows), self.type)

    def holds(self, literal: InSet | Like) -> list[bool]:
        """Whether some value of each block makes the literal TRUE: value by value, by the nouns' own definitions."""
        return [any(_is_true(literal, value, self.type) for value in block) for block in self.rows]


def offsets_of(blocks: Sequence[Sequence[Any]]) -> np.ndarray[Any, Any]:
    return np.array([0, *accumulate(map(len, blocks))], dtype=np.int64)


def _is_true(literal: InSet | Like, value: Any, type: str) -> bool:
    if value is None:
        return isinstance(literal, InSet) and literal.null
    if isinstance(literal, Like):
        return matches(literal.pattern, value) != literal.negated
    return literal.values.contains(to_key(value, type))


types = st.sampled_from(sorted(POOLS))


def blocks_of(type: str) -> st.SearchStrategy[Blocks]:
    value = st.one_of(st.none(), st.sampled_from(POOLS[type][1]))
    return st.lists(st.lists(value, max_size=6).map(tuple), min_size=1, max_size=6).map(
        lambda rows: Blocks(type, tuple(rows))
    )


def literals_of(type: str, name: str = "c") -> st.SearchStrategy[InSet | Like]:
    """Points, lists, ranges and their complements; of texts LIKE too."""
    column, keys = Col(name, type), sorted({to_key(value, type) for value in POOLS[type][1]})
    points = st.lists(st.sampled_from(keys), max_size=4).map(ValueSet.of)
    ends = st.one_of(st.none(), st.sampled_from(keys))
    ranges = st.tuples(ends, ends).map(lambda pair: ValueSet.interval(*pair))
    sets = st.one_of(points, ranges, points.map(ValueSet.complement))
    if type == "string":
        sets = st.one_of(sets, st.sampled_from(TEXTS).map(ValueSet.prefix))
    in_sets = st.builds(lambda values: InSet(column, values), sets)
    if type != "string":
        return in_sets
    token = st.one_of(st.sampled_from([ANY_CHAR, ANY_STRING]), st.sampled_from(["a", "b", "abc", "bcd", "é", "zab"]))
    patterns = st.lists(token, min_size=1, max_size=4).map(canonical_pattern)
    return st.one_of(
        in_sets, st.builds(lambda pattern, negated: Like(column, pattern, negated), patterns, st.booleans())
    )
