"""Rows of a DataFrame or an Arrow table as a source: written to Parquet in a temporary folder, and read from there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.errors import SettingError
from layoutopt.model.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A path or name of a source; or rows: a DataFrame of Spark, pandas or Polars, a table of Arrow.
AnySource: TypeAlias = Any

# Spark's writer keeps each value, and Arrow reads it.
_WRITING: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}


def is_of_spark(value: object) -> bool:
    """Return whether a value is a DataFrame or a session of Spark."""
    return type(value).__module__.startswith("pyspark.sql")


def is_on_this_machine(frame: DataFrame) -> bool:
    """Return whether the tasks of a DataFrame's session write to folders of this machine."""
    from layoutopt.spark.core.sessions import has_local_paths, start_session

    spark = start_session(frame.sparkSession)
    return str(spark.sparkContext.master).startswith("local") and has_local_paths(spark)


@contextmanager
def source_name(source: AnySource) -> Iterator[str]:
    """Yield the name of a source; rows are in files of that name while the block runs.

    Raises:
        SettingError: the value is no source; or a DataFrame's session writes to other machines.
    """
    if isinstance(source, str | Path):
        yield str(source)
        return
    with TemporaryDirectory(prefix="layoutopt-rows-") as folder:
        path = f"{folder}/rows"
        if is_of_spark(source):
            _write_spark_frame(source, path)
        else:
            Path(path).mkdir()
            pq.write_table(_to_arrow(source), f"{path}/0.parquet")
        yield path


def _write_spark_frame(frame: DataFrame, path: str) -> None:
    from layoutopt.spark.core.failures import translate_spark_errors
    from layoutopt.spark.core.sessions import override_settings

    if not is_on_this_machine(frame):
        raise SettingError(
            "a DataFrame of a cluster can't be written to a temporary folder of this machine; write it as Parquet "
            "where the cluster reads it, and give that path"
        )
    with override_settings(frame.sparkSession, _WRITING), translate_spark_errors("DataFrame"):
        frame.write.parquet(path)


def _to_arrow(source: AnySource) -> pa.Table:
    if type(source).__module__.startswith("pandas."):
        return pa.Table.from_pandas(source, preserve_index=False)
    if not hasattr(source, "__arrow_c_stream__"):
        raise SettingError(
            f"the source is a {type(source).__name__}; expected a path or name of a source, a DataFrame, or a table of "
            "Arrow"
        )
    return pa.table(source)


def read_source_schema(source: AnySource, table: str | None = None) -> Schema:
    """Return the columns of a source, of DDL, or of rows.

    Raises:
        SourceError, SchemaError: as :func:`layoutopt.external.external_tables.read_schema`.
    """
    from layoutopt.external.external_tables import read_schema

    if isinstance(source, Schema):
        return source
    if is_of_spark(source):
        from layoutopt.spark.core.source import schema_of

        return schema_of(source).writable()
    if not isinstance(source, str | Path):
        source = _to_arrow(source).slice(0, 0)
    with source_name(source) as name:
        return read_schema(name, table)
