"""What several verbs begin with: a table, a log, a Spark session."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from layoutopt.cli.console import Session
from layoutopt.config.settings import SnapshotSettings

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from layoutopt.model.engine_costs import Calibration
    from layoutopt.model.feature import Settings
    from layoutopt.scan.table import Table
    from layoutopt.spark.core.sessions import AnySession
    from layoutopt.workload.analyze import Analysis


_RESOURCES = ("spark.driver.", "spark.executor.", "spark.local.", "spark.sql.shuffle.", "spark.ui.")


def open_at(
    session: Session, path: str, at: SnapshotSettings | None = None, *, indexed: bool = False, **how: Any
) -> Table:
    """A table with the user's functions, at the snapshot asked for or the newest; ``how`` as ``open_table`` has it.

    Args:
        session: has the functions.
        path: the table's.
        at: which snapshot.
        indexed: whether the indexes of a source will do.
        how: as ``open_table`` has it.
    """
    from layoutopt.cli.startup import start_quickly

    start_quickly()
    from layoutopt.scan.table import open_own_table, open_table

    snapshot, as_of = (None, None) if at is None else (at.snapshot, at.as_of)
    opened = open_table if indexed else open_own_table
    return opened(path, snapshot=snapshot, as_of=as_of, udfs=session.udfs(), **how)


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
    found = analyze(entries, table.schema, table.name, dialect, table.settings, table.udfs)
    if half_life is None:
        return found
    from layoutopt.config.fields import parse_age
    from layoutopt.workload.log import decayed

    return replace(found, queries=decayed(found.queries, parse_age(half_life), table.settings.time_zone))


def spark_if_needed(session: Session, settings: Settings) -> AnySession:
    """What starts :func:`start_spark`'s session when it is first asked for one, or the session where Spark is wanted.

    Spark is wanted where it runs already, where a function is to be registered, and where its properties are given,
    here or by an installation of its own, that may say what a path or a feature means: others than resources, and
    than what the features' settings say too.
    """
    from layoutopt.spark.core.sessions import is_installed_apart, is_submitted, properties_of

    given = {key: value for key, value in session.spark_properties().items() if not key.startswith(_RESOURCES)}
    if is_submitted() or is_installed_apart() or session.udfs() or not given.items() <= properties_of(settings).items():
        return start_spark(session)
    return cache(partial(start_spark, session))


def start_spark(
    session: Session, name: str = "layoutopt", *, table: str | None = None, encrypt: str | None = None
) -> SparkSession:
    """A Spark session with the configuration file's properties and the user's functions; Spark lists it by its name.

    Args:
        session: has both.
        name: its name.
        table: what is read or changed; where it is encrypted, so are the session's own files.
        encrypt: the key by which the table is to be encrypted.

    Raises:
        EncryptionKeyError: the table is encrypted, and its key can't be had.
    """
    from layoutopt.catalog.storage.filesystem import TableFiles
    from layoutopt.encryption.references import key_of

    udfs = session.udfs()  # before Spark, which takes seconds to start
    private = encrypt is not None and bool(key_of(encrypt))
    private |= table is not None and TableFiles(table, key=encrypt).keys is not None
    from layoutopt.spark.core.functions import declare
    from layoutopt.spark.core.sessions import spark_session

    spark = spark_session(name, session.debug, private, **session.spark_properties())
    declare(spark, *udfs)
    return spark
