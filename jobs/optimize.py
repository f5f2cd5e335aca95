"""Rewrite partitions of a table where that pays: ``spark-submit jobs/optimize.py --conf t.toml --budget-share 0.1``.

It takes the flags of ``layoutopt optimize``: ``--table``, ``--partition``, ``--log``, ``--auto``, ``--budget-share``,
``--dry-run``, ``--log-json`` and more. A repeated run rewrites nothing again. Exit codes are those of ``jobs/load.py``.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from layoutopt.cli.jobs import run_job, teller
from layoutopt.config.settings import OptimizeSettings
from layoutopt.events import event_log
from layoutopt.report.pages import plot_regained
from layoutopt.spark.changes.optimize import optimize_table


def run(spark: SparkSession, settings: OptimizeSettings) -> None:
    """Optimize the table and print a summary."""
    tell = teller(settings.log_json)
    with event_log(settings.log_json) as log:
        report = optimize_table(spark, settings, tell, log)
    if settings.plot is not None:
        plot_regained(report.curve, settings.plot)
    tell(f"{len(report.candidates)} partitions could be rewritten, {len(report.loads)} of them were")


if __name__ == "__main__":
    sys.exit(run_job("optimize", OptimizeSettings, run))
