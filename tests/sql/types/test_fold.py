"""Constants: folded and typed exactly as Spark does, or not at all."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from sqlglot import exp

from layoutopt.sql.constant_folding import fold
from layoutopt.sql.dialect import parse_statement
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types import TypedConstant, cast_constant, common_type


def folded(text: str, zone: str = "UTC") -> TypedConstant:
    select = parse_statement(f"SELECT {text}")
    assert isinstance(select, exp.Select)
    return fold(select.expressions[0].unalias(), zone)


@pytest.mark.parametrize(
    ("text", "value", "kind"),
    [
        ("5", 5, "int"),
        ("-2147483648", -2147483648, "int"),
        ("2147483648", 2147483648, "bigint"),
        ("9223372036854775808", Decimal(9223372036854775808), "decimal(19,0)"),
        ("5L", 5, "bigint"),
        ("5S", 5, "smallint"),
        ("1.50", Decimal("1.50"), "decimal(3,2)"),
        ("0.05", Decimal("0.05"), "decimal(2,2)"),
        ("1.5D", 1.5, "double"),
        ("1e2", 100.0, "double"),
        ("1.5BD", Decimal("1.5"), "decimal(2,1)"),
        ("'a'", "a", "string"),
        ("'it''s'", "it's", "string"),
        (r"r'a\n'", r"a\n", "string"),
        ("X'1FF'", b"\x01\xff", "binary"),
        ("NULL", None, "void"),
        ("7 % 3", 1, "int"),
        ("-7 % 3", -1, "int"),
        ("-7 DIV 2", -3, "bigint"),
        ("1 / 2", 0.5, "double"),
        ("0.06 - 0.01", Decimal("0.05"), "decimal(3,2)"),
        ("1.5 * 2.5", Decimal("3.75"), "decimal(5,2)"),
        ("1.0 / 8.0", Decimal("0.125000"), "decimal(8,6)"),
        ("2 + 0.5", Decimal("2.5"), "decimal(3,1)"),
        ("-2 + 0.5", Decimal("-1.5"), "decimal(3,1)"),
        ("1 * 2 + 0.5", Decimal("2.5"), "decimal(12,1)"),
        ("cast(2 AS int) + 0.5", Decimal("2.5"), "decimal(12,1)"),
        ("0.1D + 0.2D", 0.1 + 0.2, "double"),
        ("cast('12' AS int)", 12, "int"),
        ("cast(' 12 ' AS bigint)", 12, "bigint"),
        ("cast(1.995 AS decimal(5,2))", Decimal("2.00"), "decimal(5,2)"),
        ("cast(-1.9 AS int)", -1, "int"),
        ("cast(1 AS string)", "1", "string"),
        ("cast('t' AS boolean)", True, "boolean"),
        ("date '1994-1-2'", dt.date(1994, 1, 2), "date"),
        ("cast('1994-05-06T01:02' AS date)", dt.date(1994, 5, 6), "date"),
        ("to_date('1994-05-06')", dt.date(1994, 5, 6), "date"),
        ("date '1994-01-31' + interval 1 month", dt.date(1994, 2, 28), "date"),
        ("date '1994-01-01' + interval '3' year", dt.date(1997, 1, 1), "date"),
        ("interval 2 weeks + date '1994-01-01'", dt.date(1994, 1, 15), "date"),
        ("date '1994-01-01' - 1", dt.date(1993, 12, 31), "date"),
        ("date_add(date '1994-01-01', 31)", dt.date(1994, 2, 1), "date"),
        ("add_months('2000-02-29', -12)", dt.date(1999, 2, 28), "date"),
        ("concat('a', 1, 'b')", "a1b", "string"),
        ("'a' || NULL", None, "string"),
        ("coalesce(NULL, 'x')", "x", "string"),
        ("timestamp '1994-01-01 01:02:03+01:30'", dt.datetime(1993, 12, 31, 23, 32, 3, 0, dt.UTC), "timestamp"),
        ("timestamp '1994-01-01 01:02:03 -03:00'", dt.datetime(1994, 1, 1, 4, 2, 3, 0, dt.UTC), "timestamp"),
        ("timestamp '1994-01-01 01:02:03.5'", dt.datetime(1994, 1, 1, 1, 2, 3, 500000, dt.UTC), "timestamp"),
        ("timestamp_ntz '1994-01-01'", dt.datetime(1994, 1, 1), "timestamp_ntz"),
    ],
)
def test_folding(text: str, value: object, kind: str) -> None:
    constant = folded(text)
    assert (constant.value, constant.type) == (value, kind)
    assert type(constant.value) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "2147483647 + 1",
        "-(-2147483647 - 1)",
        "9223372036854775807 * 2",
        "1 % 0",
        "1 / 0",
        "1.0 / 3.0",
        "cast('1.5' AS int)",
        "cast('x' AS double)",
        "cast(300 AS tinyint)",
        "cast(1.5D AS string)",
        "date '1994-13-01'",
        "date '1994-02-30'",
        "date '9999-12-31' + 1",
        "date '1994-01-01' + interval 1 hour",
        "date '1994-01-01' + interval '1 2' day to hour",
        "'1994-01-01' + interval 1 day",
        "lower('ΑΣ')",
        "sqrt(2)",
        "to_date('01/02/94', 'MM/dd/yy')",
        "cast(1.5D AS float) + 1.5D",
        "99999999999999999999.9999999999 * 99999999999999999999.9999999999",
    ],
)
def test_what_is_not_exactly_known_is_not_folded(text: str) -> None:
    with pytest.raises(Unusable):
        folded(text)


def test_decimals_keep_all_their_digits() -> None:
    assert folded("12345678901234567890123456789.5 + 0.1").value == Decimal("12345678901234567890123456789.6")
    assert folded("-12345678901234567890123456789.5").value == Decimal("-12345678901234567890123456789.5")


def test_time_zones_of_instants() -> None:
    # in the gap time moves forward, in the overlap the earlier instant counts, as java.time has it
    gap = folded("timestamp '2024-03-31 02:30:00'", "Europe/Berlin").value
    overlap = folded("timestamp '2024-10-27 02:30:00'", "Europe/Berlin").value
    assert gap == dt.datetime(2024, 3, 31, 1, 30, tzinfo=dt.UTC)
    assert overlap == dt.datetime(2024, 10, 27, 0, 30, tzinfo=dt.UTC)
    with pytest.raises(Unusable):
        folded("timestamp '2024-03-30 02:30:00' + interval 1 day", "Europe/Berlin")


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("int", "bigint", "bigint"),
        ("int", "float", "double"),
        ("decimal(5,2)", "double", "double"),
        ("decimal(5,2)", "decimal(4,3)", "decimal(6,3)"),
        ("bigint", "decimal(5,2)", "decimal(22,2)"),
        ("string", "decimal(5,2)", "double"),
        ("string", "boolean", "boolean"),
        ("date", "timestamp", "timestamp"),
        ("timestamp_ntz", "timestamp", "timestamp"),
        ("void", "date", "date"),
    ],
)
def test_common_types_go_both_ways(left: str, right: str, expected: str) -> None:
    assert common_type(left, right) == expected
    assert common_type(right, left) == expected


@pytest.mark.parametrize(
    ("left", "right"),
    [("boolean", "int"), ("date", "int"), ("decimal(38,30)", "bigint"), ("array<int>", "int"), ("binary", "int")],
)
def test_types_without_a_common_one(left: str, right: str) -> None:
    with pytest.raises(Unusable):
        common_type(left, right)


def test_nulls_are_cast_to_anything() -> None:
    assert cast_constant(TypedConstant(None, "void"), "date", "UTC") == TypedConstant(None, "date")


def test_a_quotient_that_spark_rounds_is_not_folded() -> None:
    """Spark takes 1024 beside a decimal for one of four digits, and the quotient for one of six places."""
    with pytest.raises(Unusable, match="be computed exactly"):
        folded("1.0 / 1024")
    assert folded("1.0 / cast(1024 AS int)").value == Decimal("0.000976562500")
