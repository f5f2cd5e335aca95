"""The rules of falsifiable expressions, each by its number in Edara 2021, 5.3: what they prove, and what they must not.

That they prove nothing wrong, Spark is asked in ``tests/spark/test_falsifiable.py``; here is that they prove something.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import partial
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from layoutopt.indexes.gap_list import GapList
from layoutopt.indexes.protocol import BlockColumn
from layoutopt.indexes.stored import StoredIndex
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import Call, Col, Expr
from layoutopt.model.schema import Column, Schema
from layoutopt.skipping.cannot_match import BlockStatistics, cannot_match
from layoutopt.sql.scans import find_scans
from tests.skipping.falsifiable import ARROW, SCHEMA, statistics_of


def blocks(**values: list[list[Any]]) -> BlockStatistics:
    """Blocks of the values of some columns; all others are NULL."""
    given = [list(chain.from_iterable(of_column)) for of_column in values.values()]
    sizes = [len(block) for block in next(iter(values.values()))]
    columns = dict(zip(values, given, strict=True))
    table = pa.table(
        {name: pa.array(columns.get(name, [None] * sum(sizes)), ARROW.field(name).type) for name in ARROW.names}
    )
    ends = np.cumsum([0, *sizes])
    return statistics_of(table, [np.arange(a, b) for a, b in pairwise(ends)])


def skipped(condition: str, statistics: BlockStatistics) -> list[bool]:
    (scan,) = find_scans(f"SELECT a FROM r WHERE {condition}", {"r": SCHEMA})
    assert not scan.unusable, scan.unusable
    found: list[bool] = cannot_match(scan.filter.root, statistics, None).tolist()
    return found


NUMBERS = {"a": [[1, 5], [10, 20], [100, 200]], "b": [[1, 2], [1, 2], [150, 300]]}
DAYS = {
    "d": [
        [dt.date(2020, 1, 3), dt.date(2020, 1, 30)],
        [dt.date(2020, 2, 1), dt.date(2020, 3, 31)],
        [dt.date(2019, 12, 1), dt.date(2021, 2, 1)],
    ]
}


def at(day: str) -> dt.datetime:
    return dt.datetime.fromisoformat(day).replace(tzinfo=dt.UTC)


TIMES = {"ts": [[at("2020-01-10"), at("2020-01-20")], [at("2020-03-10"), at("2020-05-20")]]}
TEXTS = {"s": [["apple", "apricot"], ["banana", "cherry"], [None, "cider"]]}
MONEY = {"p": [[Decimal("1.05"), Decimal("1.95")], [Decimal("20.00"), Decimal("30.00")]]}
ONE_DAY = {"d": [[dt.date(2020, 5, 4)] * 2, [dt.date(2020, 4, 1)] * 2]}
ONE_TEXT = {"s": [["a", "a", None], ["b-", "b-"], ["b-c"], ["a", "b"]]}
ONE_NUMBER = {"a": [[12, 12], [10, 10]]}
FLOATS = {"x": [[1.0, 2.0], [3.0, float("nan")], [-4.0, 4.0], [float("-inf"), 5.0]]}


@pytest.mark.parametrize(
    ("rule", "condition", "values", "expected"),
    [
        ("5.3.1 trivial", "weekofyear(d) = 3", DAYS, [False, False, False]),
        ("5.3.2 conjunctions", "a + 1 > 15 AND b * 2 < 100", NUMBERS, [True, False, True]),
        ("5.3.3 disjunctions", "a + 1 > 150 OR b * 2 > 100", NUMBERS, [True, True, False]),
        ("5.3.4 one variable", "a + 1 > 15", NUMBERS, [True, False, False]),
        ("5.3.4 one variable", "a * 3 = 31", NUMBERS, [True, False, True]),
        ("5.3.4 several variables", "a + b > 100", NUMBERS, [True, True, False]),
        ("5.3.4 several variables", "a < b + 5", NUMBERS, [False, True, False]),
        ("5.3.4 several variables", "a - b = 0", NUMBERS, [False, True, False]),
        ("5.3.5 between", "a * 2 BETWEEN 21 AND 30", NUMBERS, [True, False, True]),
        ("5.3.5 lists", "a - 1 IN (7, 8, 50)", NUMBERS, [True, True, True]),
        ("5.3.6 monotonic functions", "trunc(d, 'MM') = date'2020-03-01'", DAYS, [True, False, False]),
        ("5.3.6 monotonic functions", "last_day(d) < date'2020-01-31'", DAYS, [True, True, False]),
        ("5.3.6 monotonic functions", "date_trunc('MONTH', ts) = timestamp'2020-01-01 00:00:00'", TIMES, [False, True]),
        ("5.3.6 monotonic functions", "left(s, 1) = 'b'", TEXTS, [True, False, True]),
        ("5.3.6 monotonic functions", "concat('x', s) < 'xb'", TEXTS, [False, True, True]),
        ("5.3.6 monotonic functions", "cast(x as int) > 2", FLOATS, [True, False, False, False]),
        ("5.3.6 monotonic functions", "sqrt(x) > 1.5D", FLOATS, [True, False, False, False]),
        ("5.3.7 conditionally monotonic", "month(d) = 1", DAYS, [False, True, False]),
        ("5.3.7 conditionally monotonic", "day(d) > 30", DAYS, [True, False, False]),
        ("5.3.7 conditionally monotonic", "10 / x > 100", FLOATS, [True, False, False, False]),
        ("5.3.7 conditionally monotonic", "x * 2 > 9", FLOATS, [True, False, True, False]),
        ("5.3.6 monotonic functions", "floor(p) = 1", MONEY, [False, True]),
        ("5.3.6 monotonic functions", "floor(x) = 4", FLOATS, [True, False, False, False]),
        ("5.3.6 monotonic functions", "ceil(x) <= 0", FLOATS, [True, False, False, False]),
        ("5.3.6 monotonic functions", "ceil(x) < 0", FLOATS, [True, True, False, False]),
        ("5.3.7 conditionally monotonic", "p / 4 > 5", MONEY, [True, False]),
        ("5.3.7 conditionally monotonic", "10 / p < 1", MONEY, [True, False]),
        ("5.3.4 several variables", "p / p > 30", MONEY, [True, True]),
        ("5.3.6 monotonic functions", "ceil(p) = 2", MONEY, [False, True]),
        ("5.3.6 monotonic functions", "round(p, 1) < 10", MONEY, [False, True]),
        ("5.3.6 monotonic functions", "round(x, 1) > 4.1D", FLOATS, [True, False, True, False]),
        ("5.3.6 monotonic functions", "p + 1 > 20.5", MONEY, [True, False]),
        ("5.3.6 monotonic functions", "p * 1.1 < 2", MONEY, [False, True]),
        ("5.3.6 monotonic functions", "p * p > 10", MONEY, [True, False]),
        ("5.3.6 monotonic functions", "p * 0.5D > 2", MONEY, [True, False]),
        ("5.3.6 monotonic functions", "add_months(d, 1) < date'2020-03-01'", DAYS, [False, True, False]),
        ("5.3.7 conditionally monotonic", "d + INTERVAL 1 MONTH = date'2020-02-29'", DAYS, [False, True, False]),
        ("5.3.9 arithmetic", "date_sub(d, 30) < date'2020-01-01'", DAYS, [False, True, False]),
        ("5.3.9 arithmetic", "ts + INTERVAL 1 DAY > timestamp'2020-02-01 00:00:00'", TIMES, [True, False]),
        ("5.3.9 arithmetic", "ts - INTERVAL 90 MINUTES < timestamp'2020-03-09 00:00:00'", TIMES, [False, True]),
        ("5.3.9 choices", "CASE WHEN a > 50 THEN b ELSE 0 END = 2", NUMBERS, [True, True, True]),
        ("5.3.9 choices", "CASE WHEN a > 5 THEN b ELSE a END > 120", NUMBERS, [True, True, False]),
        ("5.3.9 choices", "nullif(a, 3) > 100", NUMBERS, [True, True, False]),
        ("5.3.9 choices", "if(s < 'b', 1, 2) = 1", TEXTS, [False, True, True]),
        ("5.3.11 same value in the block", "month(d) = 4", ONE_DAY, [True, False]),
        ("5.3.11 same value in the block", "a % 7 = 3", ONE_NUMBER, [True, False]),
        ("5.3.11 same value in the block", "a <> 10", ONE_NUMBER, [False, True]),
        ("5.3.11 same value in the block", "upper(s) = 'A'", ONE_TEXT, [False, True, True, False]),
        ("5.3.11 same value in the block", "s LIKE '%-_'", ONE_TEXT, [True, True, False, False]),
        ("5.3.11 same value in the block", "s NOT LIKE 'b%-%'", ONE_TEXT, [False, True, True, False]),
        ("5.3.11 same value in the block", "length(s) = 3 OR instr(s, '-') = 1", ONE_TEXT, [True, True, False, False]),
        ("5.3.11 same value in the block", "dayofweek(d) = 2 AND weekofyear(d) = 19", ONE_DAY, [False, True]),
        ("5.3.11 same value in the block", "split_part(s, '-', 2) > 'b'", ONE_TEXT, [True, True, False, False]),
        ("of several arguments", "greatest(a, b) < 150", NUMBERS, [False, False, True]),
        ("of several arguments", "least(a, b) > 50", NUMBERS, [True, True, False]),
        ("5.3.9 negations", "NOT (a + 1 <= 15)", NUMBERS, [True, False, False]),
        ("5.3.9 negations", "NOT (lower(s) IS NOT NULL)", TEXTS, [True, True, False]),
        ("5.3.9 arithmetic", "a - 3 > 8", NUMBERS, [True, False, False]),
        ("5.3.9 arithmetic", "datediff(d, date'2020-01-01') < 20", DAYS, [False, True, False]),
        ("5.3.9 beginnings", "s RLIKE '^ap+l.*'", TEXTS, [False, True, True]),
        ("5.3.9 beginnings", "startswith(s, 'b')", TEXTS, [True, False, True]),
        ("of several arguments", "coalesce(b, a) > 250", NUMBERS, [True, True, False]),
        ("of several arguments", "abs(a - b) > 30", NUMBERS, [True, True, False]),
        ("of several arguments", "a % 7 > 6", NUMBERS, [True, True, True]),
        ("5.3.7 conditionally monotonic", "a % 30 = 3", NUMBERS, [False, True, False]),
    ],
)
def test_a_rule_proves_what_it_should(rule: str, condition: str, values: dict[str, Any], expected: list[bool]) -> None:
    assert skipped(condition, blocks(**values)) == expected, rule


def _given(stored: pa.Array) -> pa.Array:
    return stored


def test_5_3_8_arrays_are_asked_by_their_largest_and_smallest_element() -> None:
    """Of which indexes are kept: minima and maxima of blocks are of columns alone."""
    elements = {"array_max": [[3, 5], [7, 8], [1, 4]], "array_min": [[2, 4], [1, 7], [0, 1]]}
    schema, offsets = Schema((Column("arr", "array<int>"),)), np.array([0, 2, 4, 6])
    indexes: dict[Expr, list[StoredIndex]] = {}
    for name, blocks_of_ends in elements.items():
        ends = pa.chunked_array([pa.array(chain.from_iterable(blocks_of_ends), pa.int32())])
        subject, kind = Call(name, (Col("arr", "array<int>"),), "int"), GapList()
        stored = kind.measure(BlockColumn(ends, offsets, "int"), 16)
        indexes[subject] = [StoredIndex(IndexSpec(subject, "gap-list"), kind, 3, partial(_given, stored))]
    known = BlockStatistics(np.diff(offsets), indexes=indexes)
    for condition, expected in [
        ("exists(arr, e -> e > 5)", [True, False, True]),
        ("exists(arr, e -> 0 >= e)", [True, True, False]),
        ("array_max(arr) = 6", [True, True, True]),
    ]:
        (scan,) = find_scans(f"SELECT arr FROM r WHERE {condition}", {"r": schema})
        assert cannot_match(scan.filter.root, known, None).tolist() == expected


def test_overflow_is_null_and_nothing_is_lost_at_the_edges() -> None:
    edges = blocks(l=[[2**63 - 1, 1], [-(2**63)], [2**62, 2**62 + 1]])
    assert skipped("l + 1 > 0", edges) == [False, True, False]
    assert skipped("l + 1 < 0", edges) == [True, False, True]
    assert skipped("l * 4 = 4", edges) == [False, True, True]
    ints = blocks(a=[[2**31 - 1], [5]])
    assert skipped("a + 1 < 0", ints) == [True, True]
    assert skipped("cast(a as tinyint) = 5", ints) == [True, False]


def test_nulls_of_functions_are_those_of_their_argument() -> None:
    statistics = blocks(s=[["a", "b"], [None, None], ["a", None]])
    assert skipped("upper(s) IS NULL", statistics) == [True, False, False]
    assert skipped("upper(s) = 'A'", statistics) == [False, True, False]
    assert skipped("length(s) IS NOT NULL", statistics) == [False, True, False]
    numbers = blocks(a=[[1], [None]])
    assert skipped("a + 1 IS NULL", numbers) == [False, False]  # it may overflow
    assert skipped("a + 1 IS NOT NULL", numbers) == [False, True]
    assert skipped("coalesce(a, 0) IS NULL", numbers) == [True, True]


def test_a_function_of_an_unknown_column_is_unknown() -> None:
    statistics = BlockStatistics(np.array([5, 5]))
    for condition in ("a + 1 > 5", "trunc(d, 'MM') = date'2020-03-01'", "coalesce(a, b) = 3", "s RLIKE '^a'"):
        assert skipped(condition, statistics) == [False, False]
