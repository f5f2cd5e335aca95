"""What several verbs begin with: a document, a table, a log, a Spark session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from layoutopt.cli.console import Session
from layoutopt.config.settings import SnapshotSettings
from layoutopt.errors import PlanError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from layoutopt.scan.table import Table
    from layoutopt.workload.analyze import Analysis

Document = TypeVar("Document")


def read_document(path: Path, maker: str, loads: Callable[[bytes], Document]) -> Document:
    """A plan or features document.

    Args:
        path: of its file.
        maker: the command that makes such a file.
        loads: what reads its bytes.

    Raises:
        PlanError: the file can't be read, or holds something else; the message names the file.
    """
    try:
        return loads(path.read_bytes())
    except OSError as error:
        raise PlanError(f"{str(path)!r} can't be read ({error.strerror}); make it with `{maker}`") from error


def open_at(path: str, at: SnapshotSettings | None = None) -> Table:
    """A table, at the snapshot that is asked for or the newest."""
    from layoutopt.scan.startup import start_quickly

    start_quickly()
    from layoutopt.scan.table import open_table

    return open_table(path) if at is None else open_table(path, snapshot=at.snapshot, as_of=at.as_of)


def analysed(table: Table, log: str, column: str | None, dialect: str) -> Analysis:
    """What the queries of a log ask of a table."""
    from layoutopt.workload.analyze import analyze
    from layoutopt.workload.log import read_log

    entries = read_log(log, column=column, dialect=dialect)
    return analyze(entries, table.schema, table.name, dialect, table.settings)


def start_spark(session: Session) -> SparkSession:
    """A Spark session with the configuration file's properties."""
    from layoutopt.spark.core.sessions import spark_session

    return spark_session("layoutopt", session.debug, **session.spark_properties())
