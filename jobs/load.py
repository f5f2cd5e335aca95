"""Load partitions of a source into a table: ``spark-submit jobs/load.py --conf t.toml --partition dt=2026-11-20``.

It takes the flags of ``layoutopt load``: ``--source``, ``--table``, ``--plan`` (by default the table's own),
``--partition``, ``--from`` and ``--to``, ``--replace``, ``--log-json``. A repeated load does nothing.
Exit codes: 0 done, 1 failed (try again), 2 bad usage or input (do not try again), 3 conflict with other rows.
The executors' Python needs the package (installed, or shipped with ``--py-files``).
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from layoutopt.cli.jobs import run_job, teller
from layoutopt.config.settings import LoadSettings
from layoutopt.events import event_log
from layoutopt.spark.loading.load import run_load


def run(spark: SparkSession, settings: LoadSettings) -> None:
    """Load the partitions and print a summary."""
    tell = teller(settings.log_json)
    with event_log(settings.log_json) as log:
        report = run_load(spark, settings, tell, log)
    for note in report.notes:
        tell(note)
    for key in report.already:
        tell(f"partition {key} was loaded before: nothing to do")
    for load in report.loads:
        tell(
            f"loaded {load.rows} rows into {load.blocks} blocks of {len(load.partitions)} partitions: "
            f"snapshot {load.snapshot} of {settings.table_path}"
        )


if __name__ == "__main__":
    sys.exit(run_job("load", LoadSettings, run))
