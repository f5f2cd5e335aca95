"""Functions that Spark does not have are not read as those that other dialects have by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from layoutopt.sql.dialect import _FUNCTIONS, Spark4, parse_statement
from layoutopt.sql.lexing import GRAMMAR_WORDS, SPARK_FUNCTIONS
from layoutopt.sql.problems import StatementError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OTHERS = [
    "day_of_week(d) = 0", "starts_with(s, 'a')", "`week_of_year`(d) = 0", "is_nan(x)", "iif(a > 1, b, c)",
    "array_has(xs, 1)", "timestamp_ntz('2020-01-01') < ts", "text(a) = 'x'", "strpos(s, 'a') = 1", "WEEK(d) = 1",
    "json_extract(s, 'a')", "s.day_of_week(d) = 0", "NOT (a AND day_of_week (d) = 0)",
]  # fmt: skip


@pytest.mark.parametrize("condition", OTHERS)
def test_functions_of_other_dialects_are_refused(condition: str) -> None:
    with pytest.raises(StatementError, match="is a function of other dialects") as caught:
        parse_statement(f"SELECT a FROM t WHERE {condition}")
    assert caught.value.code == "unsupported"


@pytest.mark.parametrize(
    "text",
    ["SELECT /*+ BROADCAST(t), REPARTITION(3) */ a FROM t", "SELECT CAST(a AS DECIMAL(5, 2)), b::varchar(3) FROM t",
     "SELECT a FROM t WHERE (a) IN (1) AND (b) OR (NOT (c)) UNION (SELECT a FROM t)", "SELECT my_own(a) FROM t",
     "SELECT timestampdiff(DAY, a, b), trim(BOTH 'x' FROM s), extract(DAY FROM d) FROM t",
     "SELECT day_of_week, `week` FROM t"],
)  # fmt: skip
def test_all_else_before_brackets_is_read(text: str) -> None:
    assert parse_statement(text)


@pytest.mark.spark
def test_spark_has_these_functions_and_no_other_of_the_names(spark: SparkSession) -> None:
    has = {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    parser = Spark4.parser_class
    types = {name for name, kind in Spark4.Tokenizer.KEYWORDS.items() if kind in parser.TYPE_TOKENS}
    known = {name.lower() for name in (*_FUNCTIONS, *types)}
    assert known & has == SPARK_FUNCTIONS
    assert not GRAMMAR_WORDS & has - SPARK_FUNCTIONS
