"""Find the files of a source that hold each partition, so that a retry of a load differs from a load of new content.

A partition's *fingerprint* is a digest of its files' paths, sizes and times of change. It takes a read of the partition
column alone, and none at all where partitions are folders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from urllib.parse import unquote

from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType

from layoutopt.catalog.partition_names import PlainValue, no_partition_range, null_first_key
from layoutopt.errors import SettingError, SourceError
from layoutopt.external.external_tables import open_snapshot
from layoutopt.external.formats import PARQUET, parse_path, parse_table_name
from layoutopt.external.snapshot import SourceFile, SourcePartition, strip_scheme, uri_to_path
from layoutopt.external.whole_files import check_row_counts
from layoutopt.model.schema import Schema
from layoutopt.model.types import quote_name
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.partition_values import filter_partitions, is_one_of, partition_column
from layoutopt.spark.core.source import FILE, escape_pattern, open_source, read_files, rename_columns, snapshot_rows
from layoutopt.spark.core.versions import file_metadata, try_cast
from layoutopt.sql.schema import folder_values


def source_partitions(
    rows: DataFrame, source: str, partition_by: str | None, condition: SparkColumn | None = None
) -> tuple[SourcePartition, ...]:
    """Return the partitions that a source has, sorted by value, NULL first.

    Args:
        rows: the source, read from files; a table of another format is read again at its version.
        source: names it in messages.
        partition_by: the partition column, None for none.
        condition: selects partitions; None selects all.

    Raises:
        SourceError: a file is damaged, or Spark does not read all of its rows.
    """
    name = parse_table_name(source)
    if name is None:
        file = file_metadata(rows)
        file_columns = [file["file_path"], file["file_size"], F.unix_micros(file["file_modification_time"])]
    else:
        rows = snapshot_rows(rows.sparkSession, open_snapshot(name), with_file=True)
        file_columns = [F.col(column) for column in FILE]
    # A condition on folders leaves out whole files; under any other, the rows of all files are counted.
    uris = None if name is not None or condition is None else _select_files(rows, partition_by, condition)
    kept, wanted = rows, F.lit(True)
    if uris is not None and condition is not None:
        kept = rows.where(condition)
    elif condition is not None:
        wanted = F.coalesce(condition, F.lit(False))
    named = [column.alias(name) for column, name in zip(file_columns, ("uri", "size", "modified"), strict=True)]
    listed = kept.select(partition_column(rows, partition_by).alias("value"), wanted.alias("wanted"), *named)
    with translate_spark_errors(repr(source)):
        counted = listed.groupBy(*listed.columns).agg(F.count(F.lit(1)).alias("rows")).collect()
    if name is None:
        deleted = dict.fromkeys(map(uri_to_path, rows.inputFiles() if uris is None else uris), 0)
    else:
        deleted = {file.path: file.deleted_rows for file in open_snapshot(name).files}
    format = parse_path(source).format if name is None else PARQUET
    _check_whole_files(counted, deleted, format.count_rows)
    files: dict[PlainValue, list[SourceFile]] = {}
    rows_by_value: dict[PlainValue, int] = {}
    for row in counted:
        if row["wanted"]:
            value = row["value"]
            files.setdefault(value, []).append(SourceFile(row["uri"], row["size"], row["modified"]))
            rows_by_value[value] = rows_by_value.get(value, 0) + row["rows"]
    return tuple(
        SourcePartition(value, tuple(sorted(files[value], key=lambda file: file.uri)), rows_by_value[value])
        for value in sorted(files, key=null_first_key)
    )


def count_each(
    rows: DataFrame, source: str, partition_by: str, condition: SparkColumn
) -> tuple[SourcePartition, ...] | None:
    """Return the partitions that a condition selects, each read by itself; one that can't be read has its problem.

    None where partitions are no folders: then which partitions a file has is known only to who reads it.
    """
    folders = _type_folders(rows, partition_by)
    if folders is None:
        return None
    named = folders[0].where(condition).select(partition_column(folders[0], partition_by).alias("value")).distinct()
    partitions: list[SourcePartition] = []
    for value in sorted((row["value"] for row in named.collect()), key=null_first_key):
        try:
            partitions += source_partitions(rows, source, partition_by, is_one_of(rows, partition_by, [value]))
        except SourceError as error:
            partitions.append(SourcePartition(value, (), problem=error))
    return tuple(partitions)


def _type_folders(rows: DataFrame, partition_by: str | None) -> tuple[DataFrame, dict[str, str | None]] | None:
    """Return the partition column's values in folders' names, as text and typed, and the text of each file by its URI.

    None if files have the column.
    """
    key = str(partition_by).lower()
    in_folders = {
        uri: {name.lower(): value for name, value in folder_values(unquote(uri)).items()} for uri in rows.inputFiles()
    }
    if partition_by is None or not all(key in values for values in in_folders.values()):
        return None
    texts = {uri: values[key] for uri, values in in_folders.items()}
    distinct = rows.sparkSession.createDataFrame([(text,) for text in set(texts.values())], "_w_text string")
    return distinct.withColumn(partition_by, F.col("_w_text").cast(rows.schema[partition_by].dataType)), texts


def _select_files(rows: DataFrame, partition_by: str | None, condition: SparkColumn) -> list[str] | None:
    """Select the files whose folders' names meet a condition on the partition column; None if files have the column."""
    folders = _type_folders(rows, partition_by)
    if folders is None:
        return None
    typed, texts = folders
    wanted = {row["_w_text"] for row in typed.where(condition).collect()}
    return [uri for uri, text in texts.items() if text in wanted]


def _check_whole_files(counted: Sequence[Row], deleted: Mapping[str, int], count_rows: Callable[[str], int]) -> None:
    """Raise SourceError for files of which Spark did not read all rows, as where a damaged size hides a row group.

    Args:
        counted: the ``rows`` that were read, by ``uri``.
        deleted: by path of each file, its deleted rows.
        count_rows: counts the rows of a file by its footer.
    """
    read: dict[str, int] = {}
    for row in counted:
        key = strip_scheme(unquote(row["uri"].partition("#")[0]))
        read[key] = read.get(key, 0) + row["rows"]
    check_row_counts({path: read.get(strip_scheme(path), 0) + gone for path, gone in deleted.items()}, count_rows)


def check_reachable(rows: DataFrame, source: str, partition_by: str, partitions: Sequence[SourcePartition]) -> None:
    """Check that the partitions' values, as they were read, select all of the rows that were counted.

    Raises:
        SourceError: rows would be left out: a text that is no UTF-8, or a source that changes meanwhile.
    """
    counted = sum(partition.rows for partition in partitions)
    with translate_spark_errors(repr(source)):
        selected = filter_partitions(rows, partition_by, [partition.value for partition in partitions]).count()
    if selected != counted:
        raise SourceError(
            f"{source!r} has {counted} rows in the partitions to load, but their values of {partition_by} select "
            f"{selected}; load from a source that does not change meanwhile, whose texts are UTF-8"
        )


def between(rows: DataFrame, partition_by: str | None, first: str | None, last: str | None) -> SparkColumn:
    """Return the condition that a partition's value lies in ``[first, last]``; None leaves an end open.

    Raises:
        SettingError: there are no partitions, or an end is no value of the column's type.
    """
    if partition_by is None:
        raise no_partition_range()
    column, type = F.col(quote_name(partition_by)), rows.schema[partition_by].dataType
    condition = column.isNotNull()
    for flag, text in (("--from", first), ("--to", last)):
        if text is None:
            continue
        row = rows.sparkSession.range(1).select(try_cast(text, type).isNull().alias("wrong")).first()
        if row is None or row["wrong"]:
            raise SettingError(f"{flag} is {text!r}, which is no {type.simpleString()}; write a {partition_by}")
        end = F.lit(text).cast(type)
        condition &= column >= end if flag == "--from" else column <= end
    return condition


def read_partition(
    spark: SparkSession, source: str, rows: DataFrame, partition_by: str, partition: SourcePartition, schema: Schema
) -> DataFrame:
    """Return the rows of one partition, under the columns of its own files.

    A source's newer files may have columns that older ones lack; Spark would take the schema of any file for all.
    A column of ``schema``, the plan's, that only other partitions' files have is NULL. ``rows`` are the whole source.
    """
    name = parse_table_name(source)
    if name is not None:
        partition_rows = snapshot_rows(spark, open_snapshot(name), only=[file.uri for file in partition.files])
        return filter_partitions(rename_columns(partition_rows, schema), partition_by, [partition.value])
    paths = [escape_pattern(unquote(file.uri)) for file in partition.files]
    with translate_spark_errors(repr(source)):
        try:
            partition_rows = _read_files(spark, source, rows, paths)
        except (AnalysisException, IllegalArgumentException):
            # A single file or a pattern has no folder of partitions below it.
            partition_rows = open_source(spark, source)
    lower = {name.lower() for name in partition_rows.columns}
    missing = [column.name.lower() for column in schema.columns if column.name.lower() not in lower]
    if missing:
        fields = {field.name.lower(): field for field in open_source(spark, source).schema.fields}
        known = [fields[name] for name in missing if name in fields]
        partition_rows = partition_rows.select(
            "*", *(F.lit(None).cast(field.dataType).alias(field.name) for field in known)
        )
    return filter_partitions(rename_columns(partition_rows, schema), partition_by, [partition.value])


def _read_files(spark: SparkSession, source: str, rows: DataFrame, paths: Sequence[str]) -> DataFrame:
    """Read some files under their merged schema, and columns of folders in the types of the whole source.

    Spark guesses the types of these from the folders that it lists, and might guess another type from one folder.
    """
    files = parse_path(source)
    guessed = read_files(spark, files.format, paths, merged=True, basePath=files.path)
    by_folder = {f.name.lower(): f for f in rows.schema.fields if f"/{f.name}=".lower() in paths[0].lower()}
    fields = [StructField(f.name, by_folder.get(f.name.lower(), f).dataType) for f in guessed.schema.fields]
    if fields == [StructField(f.name, f.dataType) for f in guessed.schema.fields]:
        return guessed
    return read_files(spark, files.format, paths, schema=StructType(fields), basePath=files.path)
