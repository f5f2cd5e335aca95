"""Tables of other formats as Spark's rows, by Spark's own Parquet reader: no jars are needed.

The files of a snapshot are read under the columns that they have; rows that were deleted are left out by an anti-join
on file and row, and values that only the table's metadata has are joined by file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from typing import Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType

from layoutopt.model.types import quoted, type_sql
from layoutopt.sources.snapshot import SnapshotFile, SourceSnapshot, ending
from layoutopt.spark.core.parquet_reader import parquet_reader
from layoutopt.spark.core.patterns import as_no_pattern

FILE: Final = ("_w_uri", "_w_size", "_w_modified")
"""Columns that tell a row's file, if asked for: its URI, its bytes, and microseconds since 1970 when it was changed.

After the URI comes a # and a digest of the positions of deleted rows, where there are some: with others gone it counts
as another file.
"""
_KEY, _FILE, _ROW, _MARK, _CONSTANT = "_w_key", "_w_file", "_w_row", "_w_mark", "_w_constant"
_SCHEME: Final = re.compile("^[A-Za-z][A-Za-z0-9+.-]*:/*")


def snapshot_rows(
    spark: SparkSession, snapshot: SourceSnapshot, *, with_file: bool = False, only: Collection[str] | None = None
) -> DataFrame:
    """The rows of a snapshot.

    Args:
        spark: the session.
        snapshot: what to read.
        with_file: add the columns :data:`FILE`.
        only: the URIs of the files to read, as :data:`FILE` has them; None reads all.
    """
    wanted = None if only is None else {ending(unquote(uri.partition("#")[0])) for uri in only}
    groups: dict[tuple[object, ...], list[SnapshotFile]] = {}
    for file in snapshot.files:
        if wanted is None or ending(file.path) in wanted:
            groups.setdefault((file.stored, *sorted(file.constants)), []).append(file)
    parts = [_rows_of(spark, snapshot, files, with_file) for files in groups.values()]
    if not parts:
        parts = [_no_rows(spark, snapshot, with_file)]
    rows = parts[0]
    for part in parts[1:]:
        rows = rows.unionAll(part)
    return rows


def _no_rows(spark: SparkSession, snapshot: SourceSnapshot, with_file: bool) -> DataFrame:
    columns = [f"{quoted(column.name)} {type_sql(column.type)}" for column in snapshot.schema.columns]
    files = [f"{FILE[0]} string", f"{FILE[1]} bigint", f"{FILE[2]} bigint"] if with_file else []
    return spark.createDataFrame([], ", ".join([*columns, *files]))


def _rows_of(
    spark: SparkSession, snapshot: SourceSnapshot, files: Sequence[SnapshotFile], with_file: bool
) -> DataFrame:
    """The rows of files that have the same columns."""
    stored, constants = files[0].stored, sorted(files[0].constants)
    types = [spark.createDataFrame([], f"x {type_sql(type)}").schema[0].dataType for type in snapshot.stored_types]
    fields = [StructField(name, type) for name, type in zip(stored, types, strict=True) if name is not None]
    rows = parquet_reader(spark).schema(StructType(fields)).parquet(*(as_no_pattern(file.path) for file in files))
    file = rows.metadataColumn("_metadata")
    found = rows.select(
        *(F.col(quoted(field.name)) for field in fields),
        file["file_path"].alias(FILE[0]),
        file["row_index"].alias(_ROW),
        file["file_size"].alias(FILE[1]),
        F.unix_micros(file["file_modification_time"]).alias(FILE[2]),
    )
    if constants or any(file.deleted is not None for file in files):
        found = _with_numbers(spark, found, snapshot, files, rows.inputFiles())
        found = _without_deleted(spark, found, files).withColumn(FILE[0], F.concat(FILE[0], _MARK))
    columns = []
    for column, name in zip(snapshot.schema.columns, stored, strict=True):
        value = F.lit(None) if name is None else F.col(quoted(name))
        if column.name in constants:
            value = F.when(F.col(_FILE) >= 0, F.col(f"{_CONSTANT}{constants.index(column.name)}"))
        columns.append(value.cast(type_sql(column.type)).alias(column.name))
    return found.select(*columns, *(FILE if with_file else ()))


def _with_numbers(
    spark: SparkSession, rows: DataFrame, snapshot: SourceSnapshot, files: Sequence[SnapshotFile], uris: Sequence[str]
) -> DataFrame:
    """The rows with the number of their file among ``files``, and the values that metadata says of it.

    Spark spells a file's URI in two ways, so schemes are left out. A row of an unknown file fails the reading: taken
    for one of a file without deleted rows it would come back.
    """
    places = {ending(file.path): number for number, file in enumerate(files)}
    keys = [_SCHEME.sub("", uri) for uri in uris]
    numbers = [places[ending(unquote(uri))] for uri in uris]
    names = sorted(files[0].constants)
    columns = [pa.array(keys), pa.array(numbers, pa.int32()), pa.array([_mark(files[number]) for number in numbers])]
    for name in names:
        held = [files[number].constants[name] for number in numbers]
        columns.append(pa.array([None if value is None else str(value) for value in held], pa.string()))
    labels = [_KEY, _FILE, _MARK, *(f"{_CONSTANT}{place}" for place in range(len(names)))]
    known = spark.createDataFrame(pa.table(columns, names=labels))
    keyed = rows.withColumn(_KEY, F.regexp_replace(FILE[0], _SCHEME.pattern, ""))
    unknown = F.raise_error(F.concat(F.lit(f"{snapshot.name} has no file "), F.col(FILE[0])))
    number = F.when(F.col(_FILE).isNull(), unknown.cast("int")).otherwise(F.col(_FILE))
    return keyed.join(F.broadcast(known), _KEY, "left").withColumn(_FILE, number)


def _mark(file: SnapshotFile) -> str:
    return "" if file.deleted is None else f"#{hashlib.sha256(file.deleted.tobytes()).hexdigest()[:16]}"


def _without_deleted(spark: SparkSession, rows: DataFrame, files: Sequence[SnapshotFile]) -> DataFrame:
    deleted = [(number, file.deleted) for number, file in enumerate(files) if file.deleted is not None]
    if not deleted:
        return rows
    of_file = np.repeat([number for number, _ in deleted], [len(positions) for _, positions in deleted])
    positions = np.concatenate([positions for _, positions in deleted])
    table = pa.table({_FILE: pa.array(of_file, pa.int32()), _ROW: pa.array(positions, pa.int64())})
    return rows.join(spark.createDataFrame(table), [_FILE, _ROW], "left_anti")
