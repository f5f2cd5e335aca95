"""Open sources for planning: by Arrow in tasks, or by a Spark session where Arrow can't read them.

The tasks are those of the session. A function that starts a session may stand for it: then they are processes of this
machine, and it is called only for what Arrow can't read. PySpark, which takes a second to import, is imported only
then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from layoutopt.events import Progress, silent
from layoutopt.external.source_check import check_source
from layoutopt.methods.interface import PlanRequest
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.planning.plain_rows import open_plain_rows
from layoutopt.planning.rows import Rows, SourceRows
from layoutopt.sources.door import Door
from layoutopt.spark.core.failures import translate_spark_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from layoutopt.spark.core.sessions import AnySession
    from layoutopt.spark.planning.frame_rows import FrameRows


def open_source_rows(
    spark: AnySession,
    source: DataFrame | str | Path,
    document: FeaturesDocument,
    request: PlanRequest,
    say: Progress = silent,
) -> SourceRows:
    """Open the source's rows under the document's columns, by Arrow where that can read them, or by Spark.

    Raises:
        SettingError, SchemaError, SourceError: as :func:`layoutopt.planning.plan.make_plan`.
    """
    if callable(spark) and isinstance(source, str):
        check_source(source, document.schema, "the features file")
    is_local, tasks = isinstance(source, str | Path), None
    if not callable(spark):
        from layoutopt.spark.core.functions import check_features
        from layoutopt.spark.core.sessions import has_local_paths
        from layoutopt.spark.core.workers import SparkTasks

        check_features(spark, document.features, "the features file")
        is_local, tasks = is_local and has_local_paths(spark), SparkTasks(spark)
    openers: list[Callable[[object], Rows]] = [lambda _: open_by_spark(spark, source, document, request.partition_by)]
    if is_local:
        openers.insert(0, lambda _: open_plain_rows(str(source), document, request, tasks))
    rows = Door(*openers, say=say, errors=partial(translate_spark_errors, name_source(source)))
    rows.source  # noqa: B018 - errors of opening it come first
    return rows


def name_source(source: DataFrame | str | Path) -> str:
    """Return a source's name in messages."""
    return repr(str(source)) if isinstance(source, str | Path) else "DataFrame"


def open_by_spark(
    spark: AnySession, source: DataFrame | str | Path, document: FeaturesDocument, partition_by: str | None
) -> FrameRows:
    """Open the source's rows under the document's columns, by Spark.

    Raises:
        SettingError, SchemaError, SourceError: as :func:`layoutopt.planning.plan.make_plan`.
    """
    from layoutopt.spark.core.sessions import start_session

    session = start_session(spark)  # first: it may raise that PySpark is not installed
    from layoutopt.spark.core.functions import check_features
    from layoutopt.spark.core.source import check_partition_column, conform_columns, open_source
    from layoutopt.spark.planning.frame_rows import FrameRows

    check_features(session, document.features, "the features file")
    rows = conform_columns(open_source(session, source), document.schema, "the features file")
    check_partition_column(rows, partition_by)
    return FrameRows(rows, partition_by)
