"""Sets of function values as sets of the column's values: the same rows."""

from __future__ import annotations

import datetime as dt
import math

from hypothesis import example, given
from hypothesis import strategies as st

from layoutopt.model.predicates import Call, Col, Const, InSet
from layoutopt.model.values import NAN_KEY, ValueSet, to_key
from layoutopt.sql.time_formats import format_time
from layoutopt.sql.types import in_set
from tests.workload.oracle import holds


@given(divisor=st.integers(1, 2**63 - 1) | st.integers(1, 5), ends=st.tuples(st.integers(-9, 9), st.integers(-9, 9)),
       value=st.integers(-(2**63), 2**63 - 1) | st.integers(-50, 50))  # fmt: skip
def test_whole_numbers_of_quotients(divisor: int, ends: tuple[int, int], value: int) -> None:
    quotient = abs(value) // divisor * (1 if value >= 0 else -1)
    low, high = sorted(ends)
    for values in (ValueSet.interval(low, high), ValueSet.interval(None, high), ValueSet.interval(low, None)):
        call = Call("div", (Col("b", "bigint"), Const(divisor, "bigint")), "bigint")
        node = in_set(call, values, False, "UTC")
        assert holds(node, {"b": value}) == values.contains(quotient)


PATTERNS = [
    "%Y",
    "%Y%mstrict",
    "%Y-%mstrict-%dstrict",
    "%Y/%mstrict",
    "%Y-%mstrict-%dstrict %Hstrict:%Mstrict:%Sstrict",
]
EDGES = st.sampled_from(["", "+", "1", "2", "2020", "2020-", "2020-02-30", "20200101", "9999-12-31 24", "\U0001f600"])


@given(
    pattern=st.sampled_from(PATTERNS),
    kind=st.sampled_from(["date", "timestamp", "timestamp_ntz", "bigint"]),
    moments=st.tuples(*[st.datetimes(dt.datetime(1590, 1, 1), dt.datetime(2050, 1, 1))] * 3)
    | st.tuples(*[st.datetimes()] * 3),
    edge=EDGES | st.none(),
)
def test_times_of_texts(
    pattern: str, kind: str, moments: tuple[dt.datetime, dt.datetime, dt.datetime], edge: str | None
) -> None:
    if kind == "date":
        moments = tuple(dt.datetime(*moment.timetuple()[:3]) for moment in moments)  # type: ignore[assignment]
    *ends, text = (format_time(moment, pattern) for moment in moments)
    low, high = sorted([ends[0], ends[1] if edge is None else edge])
    unit = {"date": 86_400_000_000, "bigint": 1_000_000}.get(kind, 1)
    key = (moments[2] - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1) // unit
    name = "from_unixtime" if kind == "bigint" else "date_format"
    call = Call(name, (Col("v", kind), Const(pattern, "string")), "string")
    for values in (ValueSet.interval(low, high), ValueSet.interval(None, high), ValueSet.interval(low, None),
                   ValueSet.point(ends[0]), ValueSet.point(text)):  # fmt: skip
        is_kept = holds(in_set(call, values, False, "UTC"), {"v": key})
        assert is_kept or not values.contains(text)
        if dt.datetime(1600, 1, 1) <= moments[2] < dt.datetime(9999, 12, 31):
            assert is_kept == values.contains(text)


@given(
    low=st.dates(),
    high=st.dates(),
    moment=st.datetimes(min_value=dt.datetime(1, 1, 2), max_value=dt.datetime(9999, 1, 1)),
)
def test_dates_of_timestamps(low: dt.date, high: dt.date, moment: dt.datetime) -> None:
    keys = sorted((to_key(low, "date"), to_key(high, "date")))
    values = ValueSet.normalised([(keys[0], keys[1])], "date")
    node = in_set(Call("try_cast", (Col("n", "timestamp_ntz"),), "date"), values, False, "Europe/Berlin")
    holds = isinstance(node, InSet) and node.values.contains(to_key(moment, "timestamp_ntz"))
    assert holds == values.contains(to_key(moment.date(), "date"))


@given(moments=st.tuples(st.datetimes(), st.datetimes()), day=st.dates())
def test_dates_as_timestamps(moments: tuple[dt.datetime, dt.datetime], day: dt.date) -> None:
    keys = sorted(to_key(moment, "timestamp_ntz") for moment in moments)
    values = ValueSet.normalised([(keys[0], keys[1])], "timestamp_ntz")
    node = in_set(Call("try_cast", (Col("d", "date"),), "timestamp_ntz"), values, False, "UTC")
    midnight = to_key(dt.datetime(day.year, day.month, day.day), "timestamp_ntz")
    assert (isinstance(node, InSet) and node.values.contains(to_key(day, "date"))) == values.contains(midnight)


WHOLE = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
DOUBLES = (
    st.floats(-(2.0**62), 2.0**62)
    | st.integers(-3, 3).map(float)
    | st.floats(-3, 3)
    | st.sampled_from([5e-324, -5e-324, -0.0, 2.0**53])
)


@given(name=st.sampled_from(["floor", "ceil"]), ends=st.tuples(WHOLE, WHOLE), value=DOUBLES, near=st.booleans())
@example(name="ceil", ends=(0, 3), value=0.0, near=True)
@example(name="floor", ends=(0, 3), value=-1.0, near=True)
def test_whole_numbers_of_doubles(name: str, ends: tuple[int, int], value: float, near: bool) -> None:
    whole = math.floor(value) if name == "floor" else math.ceil(value)
    low, high = sorted((whole, whole + ends[1] % 5 - 2) if near else ends)
    for values in (ValueSet.interval(low, high), ValueSet.interval(None, high), ValueSet.interval(low, None)):
        if not values.is_empty:
            node = in_set(Call(name, (Col("x", "double"),), "bigint"), values, False, "UTC")
            holds = isinstance(node, InSet) and node.values.contains(to_key(value, "double"))
            assert holds == values.contains(whole)
            of_nan = isinstance(node, InSet) and node.values.contains(NAN_KEY)
            assert of_nan == values.contains(0)


def test_null_is_carried_through() -> None:
    node = in_set(Call("year", (Col("d", "date"),), "int"), ValueSet.empty(), True, "UTC")
    assert node == InSet(Col("d", "date"), ValueSet.empty(), True)
