"""Checks a text that only Spark can read: its answer from all rows, where skipping is checked.

What DuckDB reads as Spark does is checked before (``scan.checking.texts``). Here the text is run at once,
twice, and both answers are held in memory: the price of a check that believes nothing of what skips.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from layoutopt.errors import SkippingError
from layoutopt.scan.check_switch import TALLY
from layoutopt.scan.checking.texts import same_rows
from layoutopt.spark.core.variants import with_binaries

_OPEN: Final = re.compile(
    r"\b(limit|offset|tablesample|first|first_value|last|last_value|any_value|nth_value|row_number|ntile|lag|lead|"
    r"collect_list|collect_set|array_agg|listagg|string_agg|rand|randn|random|uuid|shuffle|monotonically_increasing_id|"
    r"spark_partition_id|input_file_name|current_timestamp|now|_metadata)\b",
    re.IGNORECASE,
)
"""Words by which an answer may depend on the order of rows, on files or on chance."""


def check_answer(text: str, skipping: DataFrame, whole: Callable[[], DataFrame]) -> None:
    """Compares an answer from what is not skipped with the one from all rows.

    Args:
        text: the query, as the user wrote it.
        skipping: its answer.
        whole: makes the answer from all rows.

    Raises:
        SkippingError: they differ.
    """
    if _OPEN.search(text):
        TALLY["undecided texts"] += 1
        return
    try:
        found, expected = _rows(skipping), _rows(whole())
    except (PySparkException, pa.ArrowException):  # what fails will fail for the user too, and better so
        TALLY["undecided texts"] += 1
        return
    if not same_rows(found, expected):
        raise SkippingError(
            f"Spark's answer to {text:.200} from what is not skipped ({found.num_rows} rows) is not the one from all "
            f"rows ({expected.num_rows}); run `layoutopt verify`, and report this where nothing is found"
        )
    TALLY["answers of Spark"] += 1


def _rows(answer: DataFrame) -> pa.Table:
    """The rows; names may come twice in an answer, but not in a table."""
    return with_binaries(answer.toDF(*(f"c{index}" for index in range(len(answer.columns))))).toArrow()
