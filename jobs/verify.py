"""Compare a table with its catalog on the executors: ``spark-submit jobs/verify.py --table TABLE``.

It takes the flags of ``layoutopt verify``: ``--table``, ``--sample``, ``--snapshot``, ``--as-of``. It prints a line
for each problem and exits with 1 if there are any.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from layoutopt.cli.jobs import run_job, say
from layoutopt.config.settings import VerifySettings
from layoutopt.errors import DataFileError, SettingError
from layoutopt.inspect.status import verify_path
from layoutopt.report.texts import printable
from layoutopt.spark.loading.verify import spark_file_checker


def run(spark: SparkSession, settings: VerifySettings) -> None:
    """Check the files and print the problems."""
    if settings.queries is not None or settings.source is not None:
        raise SettingError("this job does not support --queries and --source; use `layoutopt verify`")
    report = verify_path(
        settings.table_path,
        settings.sample,
        snapshot=settings.snapshot,
        as_of=settings.as_of,
        checker=spark_file_checker(spark),
    )
    for problem in report.problems:
        say(printable(f"{problem.check}: {problem.file}: {problem.message}"))
    for text in report.unchecked:
        say(f"not checked: {text}")
    if not report.ok:
        raise DataFileError(f"{len(report.problems)} problems in {settings.table_path!r}; load those partitions again")
    say(f"{report.files} files, {report.blocks} blocks, {report.rows} rows read; no problems")


if __name__ == "__main__":
    sys.exit(run_job("verify", VerifySettings, run))
