"""Append late rows to a table: ``spark-submit jobs/append.py --conf t.toml --source late.parquet --batch-id monday``.

It takes the flags of ``layoutopt append``: ``--table``, ``--source``, ``--batch-id``, ``--log-json``. A batch is
appended once. Exit codes are those of ``jobs/load.py``.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from layoutopt.cli.jobs import run_job, teller
from layoutopt.config.settings import AppendSettings
from layoutopt.events import event_log
from layoutopt.spark.changes.append import append_rows


def run(spark: SparkSession, settings: AppendSettings) -> None:
    """Append the batch and print a summary."""
    tell = teller(settings.log_json)
    with event_log(settings.log_json) as log:
        report = append_rows(spark, settings, tell, log)
    if report.load is None:
        tell(f"batch {report.batch} was appended before: nothing to do")
    else:
        rows, partitions = report.load.rows, len(report.load.partitions)
        tell(f"appended {rows} rows to {partitions} partitions: snapshot {report.load.snapshot} of {report.table}")


if __name__ == "__main__":
    sys.exit(run_job("append", AppendSettings, run))
