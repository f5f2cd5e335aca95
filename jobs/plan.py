"""Plan a table's layout: ``spark-submit jobs/plan.py --conf conf/tpch.toml``.

It takes the flags of ``layoutopt plan``: ``--source``, ``--features``, ``--partition-by``, ``--output``, ...
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from layoutopt.cli.jobs import run_job, say
from layoutopt.config.documents import read_features
from layoutopt.config.settings import PlanSettings
from layoutopt.spark.planning.indexes import plan_with_indexes


def run(spark: SparkSession, settings: PlanSettings) -> None:
    """Plan the layout and write the plan."""
    document = read_features(settings.features)
    plan = plan_with_indexes(spark, settings, document, say)
    settings.output.write_bytes(plan.dumps())
    say(f"planned {plan.method} with {len(plan.features)} features: plan {plan.digest} in {settings.output}")


if __name__ == "__main__":
    sys.exit(run_job("plan", PlanSettings, run))
