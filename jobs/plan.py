"""Plan a table's layout: ``spark-submit jobs/plan.py --conf conf/tpch.toml``.

Flags are those of ``layoutopt plan`` by name: ``--source``, ``--features``, ``--partition-by``, ``--output``, ...
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from layoutopt.config import PlanSettings
from layoutopt.errors import PlanError
from layoutopt.model.document import FeaturesDocument
from layoutopt.spark.job import run_job, say
from layoutopt.spark.plan import plan_by


def run(spark: SparkSession, settings: PlanSettings) -> None:
    """Plan, and write the plan."""
    try:
        document = FeaturesDocument.loads(settings.features.read_bytes())
    except OSError as error:
        raise PlanError(f"{str(settings.features)!r} can't be read ({error.strerror}); analyse a log first") from error
    plan = plan_by(spark, settings, document, say)
    settings.output.write_bytes(plan.dumps())
    say(f"planned {plan.method} with {len(plan.features)} features: plan {plan.digest} in {settings.output}")


if __name__ == "__main__":
    sys.exit(run_job("layoutopt-plan", PlanSettings, run))
