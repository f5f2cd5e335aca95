"""Check what a scan in Spark skips: Spark itself counts the rows that its condition finds with and without skipping.

What the predicates of a condition say is checked against the rows in ``scan.checking``. Here Spark's own condition is
asked, so that the translation of the condition is checked, too.
"""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from layoutopt.errors import SkippingError
from layoutopt.scan.check_switch import TALLY
from layoutopt.scan.checking.texts import whole_read
from layoutopt.scan.reads import TableRead
from layoutopt.spark.catalyst.rule import frame_of, optimized
from layoutopt.spark.session.read import read_to_dataframe


def check_scan(spark: SparkSession, read: TableRead, scan: Any, plan: Any) -> None:
    """Compare how many rows a scan's condition finds in what is read, and in all rows.

    Args:
        spark: the session.
        read: what is left of the table.
        scan: the rule's scan.
        plan: what stands in its place.

    Raises:
        SkippingError: they differ.
    """
    if not scan.isPlain():
        TALLY["undecided scans"] += 1
        return
    try:
        whole = scan.over(optimized(read_to_dataframe(spark, whole_read(read))))
        expected, found = (frame_of(spark, scan.ofUse(rows)).count() for rows in (whole, plan))
    except PySparkException:  # what fails will fail for the user, too
        TALLY["undecided scans"] += 1
        return
    if expected != found:
        raise SkippingError(
            f"{found} rows of {read.table.name!r} are read under a condition that {expected} rows meet; "
            "run `layoutopt verify`, and report this where nothing is found"
        )
    TALLY["scans of Spark"] += 1
