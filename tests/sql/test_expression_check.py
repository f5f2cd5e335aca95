"""Conditions that are refused before Spark starts, and those that are left to it."""

from __future__ import annotations

import pytest

from layoutopt.errors import SettingError
from layoutopt.model.schema import Column, Schema
from layoutopt.sql.expression_check import check_condition

SCHEMA = Schema((Column("s", "string"), Column("n", "int")))


@pytest.mark.parametrize("text", ["s rlike r'abc.'", "s = r'a-'", "s = 'a='", 's = "and"', "n IN (1, 2)", "f(s) = 1"])
def test_what_spark_may_take_is_left_to_it(text: str) -> None:
    check_condition("--where", text, SCHEMA)


@pytest.mark.parametrize("text", ["n =", "n = 1 AND", "s = 'a", "(n = 1", "n = 1)", "m = 1", "n", ""])
def test_what_spark_surely_refuses_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="--where"):
        check_condition("--where", text, SCHEMA)
