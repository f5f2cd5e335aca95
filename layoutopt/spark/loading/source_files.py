"""Which files of a source hold which partitions: what tells a retry of a load from a load of new content.

A partition's *fingerprint* is a digest of its files' paths, sizes and times of change. Nothing but the partition column
is read for it, and nothing at all where partitions are folders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.errors import SettingError, SourceError
from layoutopt.model.schema import Schema
from layoutopt.model.types import quoted
from layoutopt.sources.external_tables import open_snapshot
from layoutopt.sources.snapshot import SourceFile, SourcePartition, ending, path_of, source_name
from layoutopt.sources.whole_files import check_row_counts
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.partition_values import null_first, of_partitions, partition_column
from layoutopt.spark.core.source import FILE, as_no_pattern, open_source, parquet_reader, rename_columns, snapshot_rows
from layoutopt.sql.schema import values_in_folders


def source_partitions(
    rows: DataFrame, source: str, partition_by: str | None, condition: SparkColumn | None = None
) -> tuple[SourcePartition, ...]:
    """The partitions that a source has, sorted by value, NULL first.

    Args:
        rows: the source, read from files; of a table of another format at a version it is read anew.
        source: names it in messages.
        partition_by: the partition column, None for none.
        condition: keeps the partitions that are wanted; None keeps all.

    Raises:
        SourceError: a file is damaged, or Spark does not read all of its rows.
    """
    name = source_name(source)
    if name is None:
        file = rows.metadataColumn("_metadata")
        held = [file["file_path"], file["file_size"], F.unix_micros(file["file_modification_time"])]
    else:
        rows = snapshot_rows(rows.sparkSession, open_snapshot(name), with_file=True)
        held = [F.col(column) for column in FILE]
    # A condition on folders leaves out whole files; under any other, the rows of all files are counted.
    uris = None if name is not None or condition is None else _files_where(rows, partition_by, condition)
    kept, wanted = rows, F.lit(True)
    if uris is not None and condition is not None:
        kept = rows.where(condition)
    elif condition is not None:
        wanted = F.coalesce(condition, F.lit(False))
    named = [column.alias(name) for column, name in zip(held, ("uri", "size", "modified"), strict=True)]
    listed = kept.select(partition_column(rows, partition_by).alias("value"), wanted.alias("wanted"), *named)
    with translate_spark_errors(repr(source)):
        every = listed.groupBy(*listed.columns).agg(F.count(F.lit(1)).alias("rows")).collect()
    if name is None:
        deleted = dict.fromkeys(map(path_of, rows.inputFiles() if uris is None else uris), 0)
    else:
        deleted = {file.path: file.deleted_rows for file in open_snapshot(name).files}
    _check_whole_files(every, deleted)
    found = [row for row in every if row["wanted"]]
    files: dict[PlainValue, list[SourceFile]] = {}
    rows_of: dict[PlainValue, int] = {}
    for row in found:
        value = row["value"]
        files.setdefault(value, []).append(SourceFile(row["uri"], row["size"], row["modified"]))
        rows_of[value] = rows_of.get(value, 0) + row["rows"]
    by_uri = {value: tuple(sorted(held, key=lambda file: file.uri)) for value, held in files.items()}
    return tuple(SourcePartition(value, by_uri[value], rows_of[value]) for value in sorted(files, key=null_first))


def _files_where(rows: DataFrame, partition_by: str | None, condition: SparkColumn) -> list[str] | None:
    """The files whose folders' names meet a condition on the partition column; None where files have the column."""
    said, key = {uri: _said_by_folders(uri) for uri in rows.inputFiles()}, str(partition_by).lower()
    if partition_by is None or not all(key in values for values in said.values()):
        return None
    of_uri = {uri: values[key] for uri, values in said.items()}
    texts = rows.sparkSession.createDataFrame([(text,) for text in set(of_uri.values())], "_w_text string")
    typed = texts.withColumn(partition_by, F.col("_w_text").cast(rows.schema[partition_by].dataType))
    wanted = {row["_w_text"] for row in typed.where(condition).collect()}
    return [uri for uri, text in of_uri.items() if text in wanted]


def _said_by_folders(uri: str) -> dict[str, str | None]:
    """The values that the names of a file's folders say, by column in lower case."""
    return {name.lower(): value for name, value in values_in_folders(unquote(uri)).items()}


def _check_whole_files(counted: Sequence[Row], deleted: Mapping[str, int]) -> None:
    """Refuse files of which Spark did not read all rows, as where a damaged size puts a row group behind the end.

    Args:
        counted: the ``rows`` that were read, by ``uri`` and whatever else.
        deleted: by path of each file how many of its rows do not count.
    """
    read: dict[str, int] = {}
    for row in counted:
        key = ending(unquote(row["uri"].partition("#")[0]))
        read[key] = read.get(key, 0) + row["rows"]
    check_row_counts({path: read.get(ending(path), 0) + gone for path, gone in deleted.items()})


def check_reachable(rows: DataFrame, source: str, partition_by: str, partitions: Sequence[SourcePartition]) -> None:
    """Prove that the partitions' values select all of their rows, before anything is loaded by them.

    Args:
        rows: the source.
        source: names it in messages.
        partition_by: the partition column.
        partitions: as they were counted, by the values that the rows really have.

    Raises:
        SourceError: rows would be left out: a text that is no UTF-8, or a source that changes meanwhile.
    """
    counted = sum(partition.rows for partition in partitions)
    with translate_spark_errors(repr(source)):
        selected = of_partitions(rows, partition_by, [partition.value for partition in partitions]).count()
    if selected != counted:
        raise SourceError(
            f"{source!r} has {counted} rows in the partitions to load, but {selected} can be told by their value of "
            f"{partition_by}; load from a source that nobody changes meanwhile, whose texts are UTF-8"
        )


def between(rows: DataFrame, partition_by: str | None, first: str | None, last: str | None) -> SparkColumn:
    """The condition that a partition's value lies in ``[first, last]``; None leaves an end open.

    Raises:
        SettingError: there are no partitions, or an end is no value of the column's type.
    """
    if partition_by is None:
        raise SettingError("the plan has no partitions, but a range of them was asked for; leave --from and --to out")
    column, type = F.col(quoted(partition_by)), rows.schema[partition_by].dataType
    condition = column.isNotNull()
    for flag, text in (("--from", first), ("--to", last)):
        if text is None:
            continue
        row = rows.sparkSession.range(1).select(F.lit(text).try_cast(type).isNull().alias("wrong")).first()
        if row is None or row["wrong"]:
            raise SettingError(f"{flag} is {text!r}, which is no {type.simpleString()}; write a {partition_by}")
        end = F.lit(text).cast(type)
        condition &= column >= end if flag == "--from" else column <= end
    return condition


def read_partition(
    spark: SparkSession, source: str, rows: DataFrame, partition_by: str, partition: SourcePartition, schema: Schema
) -> DataFrame:
    """The rows of one partition, under the columns that its own files have.

    A source's newer files may have columns that older ones lack; Spark would take the schema of any file for all.
    A column of ``schema`` that only other partitions' files have is NULL.

    Args:
        spark: the session.
        source: the path.
        rows: the whole source.
        partition_by: the partition column.
        partition: what to read.
        schema: of the plan.
    """
    name = source_name(source)
    if name is not None:
        found = snapshot_rows(spark, open_snapshot(name), only=[file.uri for file in partition.files])
        return of_partitions(rename_columns(found, schema), partition_by, [partition.value])
    paths = [as_no_pattern(unquote(file.uri)) for file in partition.files]
    with translate_spark_errors(repr(source)):
        try:
            found = _of_files(spark, source, rows, paths)
        except (
            AnalysisException,
            IllegalArgumentException,
        ):  # a single file or a pattern has no folder of partitions below it
            found = open_source(spark, source)
    missing = [column for column in schema.columns if column.name.lower() not in _folded(found)]
    if missing:
        everywhere = open_source(spark, source).schema
        types = {field.name.lower(): field for field in everywhere.fields}
        known = [types[column.name.lower()] for column in missing if column.name.lower() in types]
        found = found.select("*", *(F.lit(None).cast(field.dataType).alias(field.name) for field in known))
    return of_partitions(rename_columns(found, schema), partition_by, [partition.value])


def _folded(df: DataFrame) -> set[str]:
    return {name.lower() for name in df.columns}


def _of_files(spark: SparkSession, source: str, rows: DataFrame, paths: Sequence[str]) -> DataFrame:
    """Some files under their merged schema; columns that folders stand for as the whole source has them.

    Spark guesses the types of these from the folders that it sees, and would guess another from one folder alone.
    """
    guessed = parquet_reader(spark, merged=True).option("basePath", source).parquet(*paths)
    by_folder = {f.name.lower(): f for f in rows.schema.fields if f"/{f.name}=".lower() in paths[0].lower()}
    fields = [StructField(f.name, by_folder.get(f.name.lower(), f).dataType) for f in guessed.schema.fields]
    if fields == [StructField(f.name, f.dataType) for f in guessed.schema.fields]:
        return guessed
    return parquet_reader(spark).option("basePath", source).schema(StructType(fields)).parquet(*paths)
