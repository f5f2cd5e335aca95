"""Derived bounds against values computed one by one, in Python: arithmetic, remainders, casts and parts of dates."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from typing import Any
from zoneinfo import ZoneInfo

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from layoutopt.catalog.bounds import column_bounds
from layoutopt.catalog.statistics import block_statistics
from layoutopt.functions.registry import FUNCTIONS
from layoutopt.model.predicates import Call, Col, Const, Expr
from layoutopt.model.schema import Schema
from layoutopt.model.values import to_key
from layoutopt.skipping.cannot_match import BlockStatistics, ColumnBounds
from layoutopt.skipping.derived_bounds import derive_bounds
from layoutopt.sql.constant_folding import plus_months
from layoutopt.sql.types import arithmetic_type
from tests.effort import examples
from tests.skipping.falsifiable import ARROW, SCHEMA, statistics_of
from tests.skipping.falsifiable import rows as sample_rows

A, L, D, P, X = (Col(name, SCHEMA.find(name).type) for name in "aldpx")
_ROWS = sample_rows(12, 5)
SAMPLE = statistics_of(_ROWS, [np.arange(4), np.arange(4, 12)])
_INT = (-(2**31), 2**31 - 1)
_LONG = (-(2**63), 2**63 - 1)


def within(value: int, limits: tuple[int, int]) -> int | None:
    return value if limits[0] <= value <= limits[1] else None


def remainder(a: int, b: int) -> int | None:
    """Spark's: with the sign of the dividend."""
    return None if b == 0 else abs(a) % abs(b) * (1 if a >= 0 else -1)


def int_call(fn: str, constant: int, of: Col) -> Call:
    return Call(fn, (of, Const(constant, of.type)), of.type)


NUMBERS: dict[str, Callable[[int, int, tuple[int, int]], int | None]] = {
    "try_add": lambda a, b, limits: within(a + b, limits),
    "try_subtract": lambda a, b, limits: within(a - b, limits),
    "try_multiply": lambda a, b, limits: within(a * b, limits),
    "try_mod": lambda a, b, limits: remainder(a, b),
}


def check(expr: Expr, name: str, values: list[Any], expected: list[Any]) -> None:
    """Every expected value that is not None lies within what is derived of a block of the values."""
    count, column = len(values), SCHEMA.find(name)
    table = pa.table({name: pa.array(values, ARROW.field(name).type)})
    measured = block_statistics(table, np.array([0, count]), Schema((column,)))
    rows = np.array([count])
    bounds = derive_bounds(
        expr, BlockStatistics(rows, bounds={name: column_bounds(measured.field(0), rows, column.type)})
    )
    assert bounds is not None
    keys = [to_key(value, expr.type) for value in expected if value is not None]
    if bounds.known[0]:
        assert all(bounds.low[0] <= key <= bounds.high[0] for key in keys), (bounds.low, bounds.high, expected)
    if bounds.nulls[0] >= 0:
        assert bounds.nulls[0] == count - len(keys)


def test_a_function_of_the_users_is_not_taken_for_ours() -> None:
    """Declared deterministic, it may give a value for NULL."""
    rows = np.array([2])
    unknown = np.zeros(1, dtype=bool)
    only_null = ColumnBounds(np.zeros(1, np.int64), np.zeros(1, np.int64), unknown, rows, "date")
    statistics = BlockStatistics(rows, bounds={"d": only_null})
    assert derive_bounds(Call("month", (D,), "int"), statistics) is not None
    assert derive_bounds(Call("month", (D,), "boolean"), statistics) is None


@given(data=st.data())
@settings(max_examples=examples(300))
def test_calls_that_no_filter_has_are_unknown_or_harmless(data: st.DataObject) -> None:
    """A damaged document may have any function of any arguments, of any type: nothing raises."""
    columns: list[Expr] = [Col(column.name, column.type) for column in SCHEMA.columns]
    constants: list[Expr] = [
        Const(3, "int"),
        Const("WEEK", "string"),
        Const(None, "int"),
        Const(0, "date"),
        Const(1, "boolean"),
    ]
    args = data.draw(st.lists(st.sampled_from(columns + constants), max_size=4))
    fn = data.draw(st.sampled_from([*FUNCTIONS]))
    type = data.draw(st.sampled_from([column.type for column in SCHEMA.columns]))
    if fn == "try_cast":
        args = args[:1] or [A]
    derive_bounds(Call(fn, tuple(args), type), SAMPLE)


def near(limits: tuple[int, int]) -> st.SearchStrategy[int]:
    edges = [limits[0], limits[0] + 1, -(2**31), -1, 0, 1, 7, 2**31, 2**62, limits[1] - 1, limits[1]]
    return st.one_of(
        st.integers(-20, 20), st.sampled_from([edge for edge in edges if within(edge, limits) is not None])
    )


@pytest.mark.parametrize("fn", NUMBERS)
@given(data=st.data(), long=st.booleans())
@settings(max_examples=examples(100))
def test_arithmetic_of_integers(fn: str, data: st.DataObject, long: bool) -> None:
    column, limits = (L, _LONG) if long else (A, _INT)
    values = data.draw(st.lists(near(limits), min_size=1, max_size=4))
    constant = data.draw(near(limits))
    of = NUMBERS[fn]
    check(int_call(fn, constant, column), column.name, values, [of(value, constant, limits) for value in values])
    swapped = Call(fn, (Const(constant, column.type), column), column.type)
    check(swapped, column.name, values, [of(constant, value, limits) for value in values])


@given(values=st.lists(st.decimals(-(10**13) + 1, 10**13 - 1, places=2), min_size=1, max_size=3))
@settings(max_examples=examples(60))
def test_casts_of_decimals(values: list[Decimal]) -> None:
    check(Call("try_cast", (P,), "int"), "p", values, [within(int(value), _INT) for value in values])
    check(Call("try_cast", (P,), "double"), "p", values, [float(value) for value in values])


@given(values=st.lists(st.floats(width=64), min_size=1, max_size=3), constant=st.floats(-1e9, 1e9))
@settings(max_examples=examples(100))
def test_arithmetic_of_doubles(values: list[float], constant: float) -> None:
    with np.errstate(all="ignore"):
        of = np.array(values)
        for fn, expected in (
            ("try_add", of + constant),
            ("try_subtract", of - constant),
            ("try_multiply", of * constant),
        ):
            known = Const(to_key(constant, "double"), "double")
            check(Call(fn, (X, known), "double"), "x", values, expected.tolist())
        check(Call("sqrt", (X,), "double"), "x", values, np.sqrt(of).tolist())
        check(Call("abs", (X,), "double"), "x", values, np.abs(of).tolist())
        casts = [int(v) if np.isfinite(v) else None for v in values]
        check(Call("try_cast", (X,), "bigint"), "x", values, [v if v is None else within(v, _LONG) for v in casts])


CENTS = st.integers(-(10**15) + 1, 10**15 - 1) | st.integers(-500, 500)


@given(cents=st.lists(CENTS, min_size=1, max_size=3), digits=st.integers(-999, 999), scale=st.integers(0, 3))
@settings(max_examples=examples(150))
def test_arithmetic_of_decimals(cents: list[int], digits: int, scale: int) -> None:
    values, constant = [Decimal(each).scaleb(-2) for each in cents], Decimal(digits).scaleb(-scale)
    wide, product = f"decimal(18,{max(2, scale)})", f"decimal(19,{2 + scale})"
    known = Const(to_key(constant, f"decimal(3,{scale})"), f"decimal(3,{scale})")
    for fn, type, expected in (
        ("try_add", wide, [value + constant for value in values]),
        ("try_subtract", wide, [value - constant for value in values]),
        ("try_multiply", product, [value * constant for value in values]),
    ):
        check(Call(fn, (P, known), type), "p", values, expected)
    check(Call("try_subtract", (known, P), wide), "p", values, [constant - value for value in values])
    check(Call("try_multiply", (A, known), f"decimal(14,{scale})"), "a", [7, -3], [7 * constant, -3 * constant])


@given(
    cents=st.lists(CENTS, min_size=1, max_size=3),
    ints=st.lists(near(_INT), min_size=1, max_size=3),
    digits=st.integers(-999, 999),
    scale=st.integers(0, 3),
)
@settings(max_examples=examples(150))
def test_quotients_of_decimals(cents: list[int], ints: list[int], digits: int, scale: int) -> None:
    values, constant = [Decimal(each).scaleb(-2) for each in cents], Decimal(digits).scaleb(-scale)
    kind = f"decimal(3,{scale})"
    known = Const(to_key(constant, kind), kind)

    def quotient(a: Decimal, b: Decimal, type: str) -> Decimal | None:
        unit = Decimal(1).scaleb(-int(type[:-1].split(",")[1]))
        return Context(prec=80).divide(a, b).quantize(unit, ROUND_HALF_UP, Context(prec=80)) if b else None

    for args, type in (
        ((P, known), arithmetic_type("/", "decimal(15,2)", kind)),
        ((known, P), arithmetic_type("/", kind, "decimal(15,2)")),
    ):
        expected = [quotient(v, constant, type) if args[0] is P else quotient(constant, v, type) for v in values]
        check(Call("try_divide", args, type), "p", values, expected)
    narrow = arithmetic_type("/", "decimal(10,0)", kind)  # of at most 18 digits where the constant has few places
    check(
        Call("try_divide", (A, known), narrow), "a", ints, [quotient(Decimal(each), constant, narrow) for each in ints]
    )


def test_functions_follow_quotients_of_few_digits() -> None:
    quotient = Call("try_divide", (A, Const(3, "decimal(1,0)")), "decimal(16,6)")
    whole = Call("try_cast", (quotient,), "int")
    check(whole, "a", [7, 700], [2, 233])
    check(Call("try_mod", (whole, Const(7, "int")), "int"), "a", [7, 700], [2, 2])


@given(cents=st.lists(CENTS, min_size=1, max_size=3), places=st.integers(0, 4))
@settings(max_examples=examples(100))
def test_rounding_of_decimals(cents: list[int], places: int) -> None:
    values, scale = [Decimal(each).scaleb(-2) for each in cents], min(places, 2)
    rounded = [value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP) for value in values]
    check(Call("round", (P, Const(places, "int")), f"decimal({14 + scale},{scale})"), "p", values, rounded)
    for fn, mode in (("floor", ROUND_FLOOR), ("ceil", ROUND_CEILING)):
        whole = [value.quantize(Decimal(1), mode) for value in values]
        check(Call(fn, (P,), "decimal(14,0)"), "p", values, whole)


@given(values=st.lists(st.floats(width=64) | st.floats(-9, 9), min_size=1, max_size=3), places=st.integers(0, 20))
@settings(max_examples=examples(150))
def test_rounding_of_doubles(values: list[float], places: int) -> None:
    unit, context = Decimal(1).scaleb(-places), Context(prec=400, rounding=ROUND_HALF_UP)
    expected = [float(context.quantize(Decimal(repr(v)), unit)) if np.isfinite(v) else v for v in values]
    check(Call("round", (X, Const(places, "int")), "double"), "x", values, expected)


def in_zone(moment: dt.datetime, zone: str, days: int, months: int) -> dt.datetime:
    """Moved in a zone's local time, as Spark moves timestamps by days and months."""
    local = moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    moved = plus_months(local, months) + dt.timedelta(days=days)
    assert isinstance(moved, dt.datetime)
    return moved.replace(tzinfo=ZoneInfo(zone)).astimezone(dt.UTC)


@given(data=st.data(), days=st.integers(-400, 400), months=st.integers(-30, 30))
@settings(max_examples=examples(150))
def test_dates_and_times_that_are_moved(data: st.DataObject, days: int, months: int) -> None:
    start = data.draw(st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1)))
    steps = data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=3))
    dates = [start + dt.timedelta(days=step) for step in steps]
    by_days, by_months = Const(days, "int"), (Const(0, "int"), Const(months, "int"))
    month = Call("make_ym_interval", by_months, "interval year to month")
    day = Call("make_dt_interval", (by_days,), "interval day to second")
    check(Call("date_add", (D, by_days), "date"), "d", dates, [each + dt.timedelta(days=days) for each in dates])
    check(Call("try_add", (D, month), "date"), "d", dates, [plus_months(each, months) for each in dates])
    zone = data.draw(st.sampled_from(["UTC", "America/New_York", "Pacific/Apia", "Asia/Kolkata", "Asia/Manila"]))
    moments = [dt.datetime(each.year, each.month, each.day, 3, 30, tzinfo=dt.UTC) for each in dates]
    ts, local = Col("ts", "timestamp"), Col("n", "timestamp_ntz")
    for step, expected in (
        (day, [in_zone(each, zone, days, 0) for each in moments]),
        (month, [in_zone(each, zone, 0, months) for each in moments]),
    ):
        check(Call("try_add", (ts, step), "timestamp"), "ts", moments, expected)
    plain = [each.replace(tzinfo=None) for each in moments]
    moved = [each + dt.timedelta(days=days) for each in plain]
    check(Call("try_add", (local, day), "timestamp_ntz"), "n", plain, moved)
