"""Advise by a Spark session, which reads the sources that Arrow can't: see :mod:`layoutopt.planning.advise`.

As for plans, a function that starts a session may stand for it, and PySpark is imported only for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote

from layoutopt.advice import Advice
from layoutopt.catalog.storage.filesystem import is_url
from layoutopt.events import Progress
from layoutopt.external.external_tables import open_snapshot
from layoutopt.external.formats import parse_table_name
from layoutopt.external.snapshot import SnapshotFile, parquet_files, strip_scheme
from layoutopt.methods.interface import PlanRequest
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.requests import AdviseRequest
from layoutopt.model.types import quote_name
from layoutopt.model.udf import Udf
from layoutopt.planning import advise as planning
from layoutopt.planning.advise import AdvisedSource, Tell, ignore_estimate
from layoutopt.planning.rows import SourceRows
from layoutopt.sources.door import Door
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.sessions import has_local_paths, start_early, start_session
from layoutopt.spark.core.versions import file_metadata

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from layoutopt.spark.core.sessions import AnySession


def advise(
    spark: AnySession,
    request: AdviseRequest,
    progress: Progress | None = None,
    udfs: Sequence[Udf] = (),
    tell: Tell = ignore_estimate,
    *,
    by_arrow: bool = True,
) -> Advice:
    """Advise as :func:`layoutopt.planning.advise.advise`.

    Args:
        spark: the session; or a function that starts one, called only where Arrow can't read the source.
        request, progress, udfs, tell, by_arrow: as there; with functions of the user's Spark reads the rows.
    """
    by_arrow &= not udfs
    if not callable(spark):
        by_arrow &= has_local_paths(spark)
    elif not by_arrow or is_url(request.source):
        spark = start_early(spark)  # while the log is read
    # Few rows alone are not worth starting Spark.
    return planning.advise(
        partial(open_frame_source, spark), request, progress, udfs, tell,
        by_arrow=by_arrow, include_small=callable(spark),
    )  # fmt: skip


def open_frame_source(spark: AnySession, name: str) -> AdvisedSource:
    """Open a source by Spark.

    Raises:
        SourceError, SchemaError: Spark can't read it.
    """
    session = start_session(spark)  # first: it may raise that PySpark is not installed
    from layoutopt.spark.core.functions import check_features
    from layoutopt.spark.core.source import check_partition_column, open_source, schema_of
    from layoutopt.spark.planning.frame_rows import FrameRows

    frame = open_source(session, name)
    schema, table = schema_of(frame).writable(), parse_table_name(name)
    files = parquet_files(frame.inputFiles(), schema) if table is None else open_snapshot(table).files

    def open_rows(
        some: Sequence[SnapshotFile], columns: Sequence[str], document: FeaturesDocument, request: PlanRequest
    ) -> SourceRows:
        check_partition_column(frame, request.partition_by)
        check_features(session, document.features, "the log")
        rows = frame if len(some) == len(files) else select_file_rows(frame, name, some)
        narrow = rows.select(*map(quote_name, columns))
        errors = partial(translate_spark_errors, repr(name))
        return Door(lambda _: FrameRows(narrow, request.partition_by), errors=errors)

    return AdvisedSource(schema, files, open_rows)


def select_file_rows(rows: DataFrame, source: str, files: Sequence[SnapshotFile]) -> DataFrame:
    """Return the rows of some of a source's files."""
    from layoutopt.spark.core.source import snapshot_rows

    name = parse_table_name(source)
    if name is not None:
        return snapshot_rows(rows.sparkSession, open_snapshot(name), only=[file.path for file in files])
    endings = {strip_scheme(file.path) for file in files}
    uris = [uri for uri in rows.inputFiles() if strip_scheme(unquote(uri)) in endings]
    uris += [uri.replace("file:///", "file:/") for uri in uris]  # Spark spells local ones in two ways
    return rows.where(file_metadata(rows)["file_path"].isin(uris))
