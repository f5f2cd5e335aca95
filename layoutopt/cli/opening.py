"""What several verbs begin with: a table, a log, a Spark session."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from layoutopt.cli.console import Session
from layoutopt.config.settings import SnapshotSettings

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from layoutopt.model.engine_costs import Calibration
    from layoutopt.scan.table import Table
    from layoutopt.workload.analyze import Analysis


def open_at(path: str, at: SnapshotSettings | None = None, **how: int) -> Table:
    """A table, at the snapshot that is asked for or the newest; ``how`` as ``open_table`` takes it."""
    from layoutopt.cli.startup import start_quickly

    start_quickly()
    from layoutopt.scan.table import open_table

    return open_table(path) if at is None else open_table(path, snapshot=at.snapshot, as_of=at.as_of, **how)


def calibration_of(path: Path | None) -> Calibration | None:
    """What engines cost by a file, None without one."""
    if path is None:
        return None
    from layoutopt.config.documents import read_calibration

    return read_calibration(path)


def analysed(table: Table, log: str, column: str | None, dialect: str, half_life: str | None = None) -> Analysis:
    """What the queries of a log ask of a table; with a half-life older ones count less."""
    from layoutopt.workload.analyze import analyze
    from layoutopt.workload.log import read_log

    entries = read_log(log, column=column, dialect=dialect)
    found = analyze(entries, table.schema, table.name, dialect, table.settings)
    if half_life is None:
        return found
    from layoutopt.config.fields import parse_age
    from layoutopt.workload.decay import decayed

    return replace(found, queries=decayed(found.queries, parse_age(half_life), table.settings.time_zone))


def start_spark(session: Session, name: str = "layoutopt") -> SparkSession:
    """A Spark session with the configuration file's properties, called so in Spark's list of applications."""
    from layoutopt.spark.core.sessions import spark_session

    return spark_session(name, session.debug, **session.spark_properties())
