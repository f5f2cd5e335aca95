"""Read a table again on the executors and compare it with its catalog: ``spark-submit jobs/verify.py --table TABLE``.

Flags are those of ``layoutopt verify``: ``--table``, ``--sample``, ``--snapshot``, ``--as-of``. Each problem is a
line of its own; exit code 1 where there are any.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from layoutopt.cli.jobs import run_job, say
from layoutopt.config.settings import VerifySettings
from layoutopt.errors import DataFileError, SettingError
from layoutopt.inspect.status import verify_path
from layoutopt.report.texts import printable
from layoutopt.spark.loading.verify import in_spark


def run(spark: SparkSession, settings: VerifySettings) -> None:
    """Read it, and say what is wrong."""
    if settings.queries is not None or settings.source is not None:
        raise SettingError("--queries and --source are checks of the command line; run `layoutopt verify` with them")
    report = verify_path(
        settings.table_path, settings.sample, snapshot=settings.snapshot, as_of=settings.as_of, checker=in_spark(spark)
    )
    for problem in report.problems:
        say(printable(f"{problem.check}: {problem.file}: {problem.message}"))
    for text in report.unchecked:
        say(f"not checked: {text}")
    if not report.ok:
        raise DataFileError(f"{len(report.problems)} problems in {settings.table_path!r}; load those partitions again")
    say(f"{report.files} files, {report.blocks} blocks, {report.rows} rows read; all as it should be")


if __name__ == "__main__":
    sys.exit(run_job("verify", VerifySettings, run))
