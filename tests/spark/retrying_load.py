"""A load whose tasks fail the first time, after their files were written: run by ``test_jobs`` with its own Spark.

Arguments: source, table, plan, a folder for marks.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from pyspark import TaskContext

from layoutopt.model.layout import Plan
from layoutopt.spark.core.sessions import spark_session
from layoutopt.spark.loading.load import load


def fail_once(marks: str, point: str) -> None:
    """Fail the first attempt of every task."""
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("not in a task")
    mark = Path(marks) / f"{context.partitionId()}"
    if not mark.exists():
        mark.write_text(point)
        raise RuntimeError("this attempt was made to fail")


if __name__ == "__main__":
    source, table, plan, marks = sys.argv[1:]
    spark = spark_session("retrying", **{"spark.master": "local[2,3]", "spark.driver.memory": "1g"})
    spark.sparkContext.setLogLevel("OFF")
    load(spark, source, table, Plan.loads(Path(plan).read_bytes()), in_task=partial(fail_once, marks))
    spark.stop()
