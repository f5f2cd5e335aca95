"""Keys: they order as Spark orders the values, and give the values back."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from layoutopt.model.values.keys import (
    NAN_KEY,
    Key,
    ceil_float32,
    domain,
    float_key,
    float_keys,
    from_key,
    key_to_float,
    to_key,
)
from layoutopt.model.values.value_sets import compare
from tests.model.conditions import TYPES, VALUES, Compare, truth


@pytest.mark.parametrize("name", VALUES)
def test_keys_order_as_the_values_do(name: str) -> None:
    for one in VALUES[name]:
        for two in VALUES[name]:
            first, second = to_key(one, TYPES[name]), to_key(two, TYPES[name])
            assert (first < second) == truth(Compare(name, "<", two), {name: one})  # type: ignore[operator]
            assert (first == second) == truth(Compare(name, "=", two), {name: one})


@given(st.floats(), st.floats())
def test_keys_of_doubles_order_as_spark_does(a: float, b: float) -> None:
    expected = truth(Compare("d", "<", b), {"d": a})
    keys = float_keys(np.array([a, b]))
    assert (int(keys[0]) < int(keys[1])) == expected
    assert keys.tolist() == [float_key(a), float_key(b)]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_neighbouring_doubles_have_neighbouring_keys(value: float) -> None:
    assert float_key(math.nextafter(value, math.inf)) == float_key(value) + 1
    assert key_to_float(float_key(value)) == value


def test_the_ends_of_the_doubles() -> None:
    assert domain("double") == (float_key(-math.inf), NAN_KEY)
    assert float_key(math.inf) + 1 == NAN_KEY
    assert math.isnan(key_to_float(NAN_KEY))
    assert float_key(-0.0) == float_key(0.0) == 0
    assert float_keys(np.array([], dtype=np.float64)).tolist() == []


@given(st.floats(allow_nan=False))
def test_the_next_float_is_the_smallest_that_is_not_below(value: float) -> None:
    found = key_to_float(ceil_float32(float_key(value)))
    assert found >= value
    assert float(np.float32(found)) == found
    if math.isfinite(found):
        with np.errstate(over="ignore"):
            assert float(np.nextafter(np.float32(found), np.float32(-np.inf))) < value


@pytest.mark.filterwarnings("error")
@given(st.floats())
@example(1e300)
@example(-1e300)
@example(3.4028235677973366e38)
@example(1e-46)
@example(5e-324)
def test_doubles_that_no_float_reaches_draw_no_warning(value: float) -> None:
    """NumPy's are for sums that went wrong; here what lies beyond the floats has its place among them."""
    with np.errstate(all="warn"):
        assert math.isnan(value) or key_to_float(ceil_float32(float_key(value))) >= value
        for op in ("=", "<", "<=", ">", ">=", "<>"):
            compare(op, value, "float")


VALUES_OF_ALL_TYPES: list[tuple[object, str]] = [
    (True, "boolean"),
    (-(2**63), "bigint"),
    (Decimal("-12345678901234567890123456789012345.678"), "decimal(38,3)"),
    (dt.date(1, 1, 1), "date"),
    (dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC), "timestamp"),
    (dt.datetime(1, 1, 1, 0, 0, 0, 1), "timestamp_ntz"),
    ("\U0001f600", "varchar(3)"),
    (b"\0\xff", "binary"),
    (-math.inf, "float"),
]


@pytest.mark.parametrize(("value", "type"), VALUES_OF_ALL_TYPES)
def test_values_come_back(value: object, type: str) -> None:
    assert from_key(to_key(value, type), type) == value


def test_timestamps_of_other_zones_are_the_same_instants() -> None:
    zone = dt.timezone(dt.timedelta(hours=2))
    instant = dt.datetime(2024, 1, 1, 2, tzinfo=zone)
    assert to_key(instant, "timestamp") == to_key(dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "timestamp")


@pytest.mark.parametrize(
    ("value", "type"),
    [
        (128, "tinyint"),
        (True, "int"),
        (1, "boolean"),
        (Decimal("0.05"), "decimal(4,1)"),
        (Decimal("1000"), "decimal(4,1)"),
        (Decimal("0.1"), "double"),
        (0.1, "float"),
        (2**53 + 1, "double"),
        (dt.datetime(2020, 1, 1), "date"),
        (dt.datetime(2020, 1, 1), "timestamp"),
        (dt.datetime(2020, 1, 1, tzinfo=dt.UTC), "timestamp_ntz"),
        ("\udc80", "string"),
        (b"a", "string"),
        ("a", "binary"),
        ("a", "char(3)"),
        (None, "int"),
        (math.nan, "int"),
        (Decimal("1e999999"), "decimal(38,0)"),
    ],
)
def test_values_that_a_type_does_not_hold_are_refused(value: object, type: str) -> None:
    with pytest.raises(ValueError, match=r"; (give|leave)"):
        to_key(value, type)


def test_keys_that_are_none_are_refused() -> None:
    cases: list[tuple[Key, str]] = [
        (128, "tinyint"),
        ("a", "int"),
        (1, "string"),
        (True, "boolean"),
        (2**31 - 1, "date"),
    ]
    for key, type in cases:
        with pytest.raises(ValueError, match=";"):
            from_key(key, type)


@pytest.mark.parametrize("name", VALUES)
def test_keys_lie_in_the_domain(name: str) -> None:
    low, high = domain(TYPES[name])
    keys = sorted(to_key(value, TYPES[name]) for value in VALUES[name])
    assert low is not None
    for small, large in pairwise([low, *keys, *([high] if high is not None else [])]):
        assert small <= large  # type: ignore[operator]
