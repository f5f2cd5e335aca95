"""Load a source into a table by a plan: ``spark-submit jobs/load.py --conf conf/tpch.toml``.

Flags are those of ``layoutopt load`` by name: ``--source``, ``--table``, ``--plan``, ``--partition o_year=1994``.
The package must be installed where the executors' Python runs (or shipped with ``--py-files``).
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from layoutopt.config import LoadSettings
from layoutopt.errors import PlanError
from layoutopt.model.layout import Plan
from layoutopt.spark.job import run_job, say
from layoutopt.spark.load import load


def run(spark: SparkSession, settings: LoadSettings) -> None:
    """Load, and say what was done."""
    try:
        plan = Plan.loads(settings.plan.read_bytes())
    except OSError as error:
        raise PlanError(f"the plan {str(settings.plan)!r} can't be read ({error.strerror}); make one first") from error
    report = load(spark, settings.source, settings.table_path, plan, settings.partition or None, say)
    for note in report.notes:
        say(note)
    say(
        f"loaded {report.rows} rows into {report.blocks} blocks of {len(report.partitions)} partitions: "
        f"snapshot {report.snapshot} of {settings.table_path}"
    )


if __name__ == "__main__":
    sys.exit(run_job("layoutopt-load", LoadSettings, run))
