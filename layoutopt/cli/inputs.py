"""Open what several verbs need: a table, a log, a Spark session."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal

from layoutopt.cli.console import Session
from layoutopt.config.files import make_settings, read_values
from layoutopt.config.settings import PlanSettings, SnapshotSettings
from layoutopt.errors import SettingError, UnknownTableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from layoutopt.api.execution import Execution
    from layoutopt.config.settings import LoadSettings, QuerySettings, ShellSettings
    from layoutopt.events import Progress
    from layoutopt.model.feature import SessionSettings
    from layoutopt.model.layout import Plan
    from layoutopt.scan.table import Scan, Table
    from layoutopt.spark.core.sessions import AnySession


# Spark properties that do not change what a path or a feature means.
_RESOURCES = ("spark.driver.", "spark.executor.", "spark.local.", "spark.sql.shuffle.", "spark.ui.")


# Beginnings of properties that may change what Spark reads (the calendar of old dates, a store), and of those by which
# it has further libraries.
_READING = ("spark.sql.", "spark.hadoop.")
_LIBRARIES = ("spark.jars", "spark.driver.extra", "spark.executor.extra")


def open_at(
    session: Session, path: str, version: SnapshotSettings | None = None, *, indexed: bool = False, **options: Any
) -> Table:
    """Open a table with the user's functions, at a snapshot or the newest.

    Args:
        session: provides the functions.
        path: the table's path.
        version: the snapshot; by default the newest.
        indexed: whether the path may also hold the indexes of an external source.
        options: further arguments of ``open_table``.
    """
    from layoutopt.cli.startup import start_quickly

    start_quickly()
    from layoutopt.scan.table import open_own_table, open_table

    snapshot, as_of = (None, None) if version is None else (version.snapshot, version.as_of)
    open_path = open_table if indexed else open_own_table
    return open_path(path, snapshot=snapshot, as_of=as_of, udfs=session.udfs(), **options)


def open_further(session: Session, given: Sequence[str]) -> dict[str, Table]:
    """Open further tables of a query, each given as NAME=PATH: tables, or sources as they are now.

    Raises:
        SettingError: an item is not of that form, or a name comes twice.
        LayoutoptError: a path can't be read.
    """
    tables: dict[str, Table] = {}
    for item in given:
        name, equals, path = item.partition("=")
        if not (equals and path and name.isidentifier()):
            raise SettingError(f"--with is {item!r}, expected NAME=PATH; write it like --with users=users.parquet")
        if name.lower() in map(str.lower, tables):
            raise SettingError(f"--with names {name!r} twice; give one of them another name")
        tables[name] = _open_any(session, name, path)
    return tables


def _open_any(session: Session, name: str, path: str) -> Table:
    from layoutopt.catalog.paths import MARKER
    from layoutopt.catalog.storage.filesystem import TableFiles
    from layoutopt.external.csv_files import is_csv, to_parquet
    from layoutopt.external.formats import parse_source_name
    from layoutopt.scan.table import open_source, open_table

    if parse_source_name(path) is None:
        if is_csv(path):
            path = to_parquet(path)
        elif TableFiles(path).exists(MARKER):
            return open_table(path, udfs=session.udfs())
    return open_source(path, name, udfs=session.udfs())


def answer_scan(scan: Scan, settings: QuerySettings | ShellSettings, session: Session) -> pa.Table:
    """Return the answer of the chosen engine.

    Raises:
        UnknownTableError: the text reads a table that neither the verb nor --with names.
        LayoutoptError: the engine can't answer the text.
    """
    from layoutopt.cli.startup import freeze_objects

    if settings.engine == "spark":
        from layoutopt.spark.core.source import with_binaries
        from layoutopt.spark.core.versions import to_arrow

        return to_arrow(with_binaries(scan.to_spark(start_spark(session, table=settings.table_path))))
    freeze_objects()
    try:
        return scan.to_arrow(settings.engine)
    except UnknownTableError as error:
        raise UnknownTableError(f"{error}; add it by --with {error.name}=PATH", error.name) from error


def make_execution(
    session: Session,
    executor: Literal["auto", "local", "spark"],
    settings: SessionSettings | None = None,
    **options: Any,
) -> Execution:
    """Return what runs the tasks of a verb, by its setting ``executor``.

    Args:
        session: provides the properties of Spark and the functions.
        executor: the setting.
        settings: those of the features; by default the defaults.
        options: further arguments of :func:`start_spark`.

    Raises:
        SettingError: Spark shall not run, but the configuration sets properties that change what it would read.
    """
    from layoutopt.api.execution import LOCAL, Execution

    if executor == LOCAL and (key := find_reading_property(session)):
        raise SettingError(
            f"without Spark nothing follows {key}, which the configuration file sets; leave it out, or give "
            "--executor spark"
        )
    reads_otherwise = any(key.startswith((*_READING, *_LIBRARIES)) for key in session.spark_properties())
    start = cache(partial(start_spark, session, **options))
    return Execution(executor, start, find_spark_reason(session, settings), reads_otherwise)


def find_reading_property(session: Session) -> str | None:
    """Return a property of the configuration that may change what Spark reads; None where there is none."""
    keys = (key for key in session.spark_properties() if key.startswith(_READING))
    return next(keys, None)


def check_plan_settings(settings: LoadSettings) -> None:
    """Raise SettingError if both a plan and the features to plan by are named."""
    if settings.plan is not None and settings.plan_first is not None:
        raise SettingError(
            f"--plan {str(settings.plan)!r} and --plan-first {str(settings.plan_first)!r} are both given; leave one out"
        )


def plan_new_table(settings: LoadSettings, session: Session, execution: Execution, say: Progress) -> Plan:
    """Plan a new table from the features file of a load's settings, by ``[plan]`` in the configuration file.

    Args:
        settings: of the load, with ``plan_first``.
        session: names the configuration file.
        execution: what runs the tasks.
        say: called with a short sentence at each stage.

    Raises:
        SettingError: a setting of ``[plan]`` is invalid, or the load is of partitions and there are none.
        LayoutoptError: as :func:`~layoutopt.spark.planning.indexes.plan_with_indexes`.
    """
    from layoutopt.catalog.partition_names import PartitionNames, check_requests
    from layoutopt.config.documents import read_features
    from layoutopt.methods.interface import PlanRequest

    values = read_values(session.conf, PlanSettings) if session.conf else {}
    values |= {"source": settings.source, "features": settings.plan_first}
    plan_settings = make_settings(PlanSettings, values)
    document = read_features(plan_settings.features)
    partition_by = plan_settings.partition_by and document.schema.find(plan_settings.partition_by).name
    if partition_by is None and (settings.partition or settings.first or settings.last):
        raise SettingError("partitions are named, but the plan would have none; set partition-by in [plan] of --conf")
    names = PartitionNames.of(document.schema, partition_by)
    check_requests(names, settings.partition, settings.first, settings.last)
    plan = execution.plan(plan_settings.source, document, plan_settings.to_request(PlanRequest), say)
    say(f"planned {plan.method}: plan {plan.digest}")
    return plan


def find_spark_reason(session: Session, settings: SessionSettings | None = None) -> str | None:
    """Return why Spark is needed, whatever the source is; None if there is no reason.

    It is needed under ``spark-submit``, for user-defined functions, and for properties that may change what a
    path or a feature means: those from a separate installation, and all but resources and the features' settings.
    """
    from layoutopt.model.feature import SessionSettings
    from layoutopt.spark.core.sessions import has_own_installation, is_submitted, to_spark_properties

    if is_submitted() or has_own_installation():
        return "there is a Spark of its own"
    if session.udfs():
        return "functions are given"
    known = to_spark_properties(settings or SessionSettings()).items()
    given = ((key, value) for key, value in session.spark_properties().items() if not key.startswith(_RESOURCES))
    return next((f"the configuration file sets {key}" for key, value in given if (key, value) not in known), None)


def prepare_spark(session: Session, *, table: str, encrypt: str | None = None) -> AnySession:
    """Return a function that starts a Spark session for a table on its first call, after what it does first is checked.

    A session whose properties may change what a path means is started at once: its source can't be checked here.
    """
    start = cache(partial(start_spark, session, table=table, encrypt=encrypt))
    return start() if find_reading_property(session) else start


def start_spark(
    session: Session, name: str = "layoutopt", *, table: str | None = None, encrypt: str | None = None
) -> SparkSession:
    """Start a Spark session with the configuration file's properties and the user's functions.

    Args:
        session: provides both.
        name: the name in Spark's listings.
        table: the path of the table; if it is encrypted, the session's temporary files are too.
        encrypt: the reference to the key of a table to create.

    Raises:
        EncryptionKeyError: the table is encrypted and its key is not available.
    """
    from layoutopt.catalog.storage.filesystem import TableFiles
    from layoutopt.encryption.references import key_of

    udfs = session.udfs()  # fails before Spark starts, which takes seconds
    private = encrypt is not None and bool(key_of(encrypt))
    private |= table is not None and TableFiles(table, key=encrypt).keys is not None
    from layoutopt.spark.core.sessions import silence_failed_queries, spark_session

    spark = spark_session(name, session.debug, private, **session.spark_properties())
    if not session.debug:
        silence_failed_queries()
    from layoutopt.spark.core.functions import declare

    declare(spark, *udfs)
    return spark
