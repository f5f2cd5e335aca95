"""A table that is to be changed, and the plan by which it goes on."""

from __future__ import annotations

from pyspark.sql import SparkSession

from layoutopt.errors import NotATableError
from layoutopt.inspect.status import current_plan
from layoutopt.model.layout import Plan
from layoutopt.scan.table import Table, open_own_table
from layoutopt.spark.core.functions import check_plan, declared


def open_to_change(spark: SparkSession, path: str) -> tuple[Table, Plan]:
    """A table at its newest snapshot, and its newest plan.

    Raises:
        NotATableError: there is no table, or none with a partition.
        SettingError: the session's settings or functions are not those of the table's plans.
    """
    table = open_own_table(path, udfs=tuple(declared(spark).values()))
    if not table.catalog.partitions:
        raise NotATableError(f"the table at {path!r} has no partition yet; run `layoutopt load` first")
    for plan in table.catalog.plans.values():
        check_plan(spark, plan, "the table")
    return table, current_plan(table.catalog)
