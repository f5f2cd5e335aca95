"""Load partitions of a source into a table: ``spark-submit jobs/load.py --conf t.toml --partition dt=2026-11-20``.

Flags are those of ``layoutopt load`` by name: ``--source``, ``--table``, ``--plan`` (the table's own when left out),
``--partition``, ``--from`` and ``--to``, ``--replace``, ``--log-json``. A load that was done before is found done.
Exit codes: 0 done, 1 failed (try again), 2 bad usage or input (don't), 3 somebody else's rows are in the way.
The package must be installed where the executors' Python runs (or shipped with ``--py-files``).
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from layoutopt.cli.jobs import run_job, teller
from layoutopt.config.settings import LoadSettings
from layoutopt.events import event_log
from layoutopt.spark.loading.load import load_by


def run(spark: SparkSession, settings: LoadSettings) -> None:
    """Load, and say what was done."""
    tell = teller(settings.log_json)
    with event_log(settings.log_json) as log:
        report = load_by(spark, settings, tell, log)
    for note in report.notes:
        tell(note)
    for key in report.already:
        tell(f"partition {key} was loaded before: nothing to do")
    for one in report.loads:
        tell(
            f"loaded {one.rows} rows into {one.blocks} blocks of {len(one.partitions)} partitions: "
            f"snapshot {one.snapshot} of {settings.table_path}"
        )


if __name__ == "__main__":
    sys.exit(run_job("load", LoadSettings, run))
