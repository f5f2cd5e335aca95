"""Remove the files of a job of Spark that failed."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager

from pyspark.sql import SparkSession

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.spark.core.workers import SparkTasks
from layoutopt.writer.load_ids import remove_on_failure


def discard_files_after(
    failures: tuple[type[BaseException], ...], spark: SparkSession, files: TableFiles, load_id: str, keys: Iterable[str]
) -> AbstractContextManager[None]:
    """Remove files as :func:`~layoutopt.writer.load_ids.remove_on_failure`, once the writing tasks have ended."""
    return remove_on_failure(failures, files, load_id, keys, SparkTasks(spark).wait)
