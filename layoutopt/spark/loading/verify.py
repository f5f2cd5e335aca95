"""A table's files read again by Spark's tasks: ``verify --engine spark``.

Each task opens the partitions of its files from the catalog and checks a run of files in the catalog's order. Files
that have to be judged together, those of a layout of a segment, are in one run. Only verdicts come back to the driver.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark import inheritable_thread_target
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StructField, TimestampType

from layoutopt.catalog.entries import content_of_entries
from layoutopt.catalog.snapshot import PartitionEntry
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.errors import SchemaError
from layoutopt.inspect.verify import (
    MOST_PROBLEMS,
    FileChecker,
    FileVerdict,
    Problem,
    Progress,
    SourceCheck,
    check_files,
)
from layoutopt.model.predicates import TRUE, Filter
from layoutopt.model.schema import Schema
from layoutopt.model.types import quoted
from layoutopt.scan.table import Table
from layoutopt.scan.table_read import TableRead
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.sessions import check_settings
from layoutopt.spark.core.source import checksum_column, conformed, hashable, measure_content, schema_of
from layoutopt.spark.core.workers import Batches, map_in_workers
from layoutopt.spark.session.readers import read_to_dataframe
from layoutopt.sql.scans import TableScan

# So many that a slow one holds up nobody and a repeated one repeats little; each opens a part of the catalog.
_RUNS_A_CORE = 8
_SECONDS_BETWEEN_LOOKS = 0.5
_SCHEMA = "run bigint, verdicts string"


@dataclass(frozen=True)
class _Run:
    """Files that one task reads: their paths, in the catalog's order, and the keys of their partitions."""

    paths: tuple[str, ...]
    keys: frozenset[str]


def in_spark(spark: SparkSession) -> FileChecker:
    """What reads a table's files for :func:`layoutopt.inspect.verify.verify` in tasks of a session.

    Its progress counts tasks, as they end. Raises CatalogError where a task finds the catalog damaged, and SettingError
    where workers lack layoutopt.
    """
    return partial(_check_in_tasks, spark)


def _check_in_tasks(
    spark: SparkSession, table: Table, paths: Sequence[str], progress: Progress
) -> Iterator[FileVerdict]:
    runs = _runs(table, paths, _RUNS_A_CORE * spark.sparkContext.defaultParallelism)
    files = table.catalog.files.for_tasks()
    task = partial(_check_run, files, table.catalog.snapshot.number, runs)
    verdicts = map_in_workers(spark.range(0, len(runs), 1, max(1, len(runs))).toDF("run"), task, _SCHEMA)
    with translate_spark_errors(files.root):
        found = [row["verdicts"] for row in _collected(verdicts, len(runs), progress)]
    of_path = {verdict.path: verdict for text in found for verdict in _read(text)}
    yield from map(of_path.__getitem__, paths)


def _runs(table: Table, paths: Sequence[str], most: int) -> list[_Run]:
    """The paths in about ``most`` runs of as many rows each; the files of a layout of a segment stay together."""
    wanted, together = set(paths), dict[tuple[int, int, int], list[tuple[str, str, int]]]()
    for number, source in enumerate(table.sources):
        blocks = source.blocks
        rows = np.bincount(blocks.file, blocks.rows, len(blocks.files)).astype(int).tolist()
        for file, first in zip(*(each.tolist() for each in np.unique(blocks.file, return_index=True)), strict=True):
            if blocks.files[file] in wanted:
                place = (number, int(source.segment_of[first]), int(blocks.layout[first]))
                key = source.entries[source.entry_of[first]].key
                together.setdefault(place, []).append((blocks.files[file], key, rows[file]))
    total = sum(rows for files in together.values() for _, _, rows in files)
    runs: list[list[tuple[str, str, int]]] = []
    done = 0
    for files in together.values():
        if done * most >= total * len(runs):
            runs.append([])
        runs[-1] += files
        done += sum(rows for _, _, rows in files)
    return [_Run(tuple(path for path, _, _ in run), frozenset(key for _, key, _ in run)) for run in runs]


def _check_run(files: TableFiles, snapshot: int, runs: Sequence[_Run], batches: Batches) -> Iterator[pa.RecordBatch]:
    """The task: the verdicts of each run whose number it gets, as JSON."""
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        run = runs[number]
        table = Table(Catalog.open_partitions(files, snapshot, run.keys))
        text = json.dumps([(v.path, v.blocks, v.rows, v.findings) for v in check_files(table, run.paths, workers=1)])
        yield pa.RecordBatch.from_arrays([pa.array([number]), pa.array([text])], names=["run", "verdicts"])


def _read(text: str) -> Iterator[FileVerdict]:
    for path, blocks, rows, findings in json.loads(text):
        yield FileVerdict(path, blocks, rows, tuple((check, message) for check, message in findings))


def _collected(verdicts: DataFrame, tasks: int, progress: Progress) -> Iterable[Row]:
    """The rows of a job, which tells how many of its tasks are done meanwhile."""
    context = verdicts.sparkSession.sparkContext
    group, tracker = f"layoutopt verify {uuid.uuid4().hex}", context.statusTracker()

    def collect() -> list[Row]:
        context.setJobGroup(group, "layoutopt verify", interruptOnCancel=True)
        return verdicts.collect()

    with ThreadPoolExecutor(1) as pool:
        rows: Future[list[Row]] = pool.submit(inheritable_thread_target(verdicts.sparkSession)(collect))
        try:
            while not wait([rows], _SECONDS_BETWEEN_LOOKS).done:
                jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(group))
                stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
                progress(sum(stage.numCompletedTasks for stage in stages if stage is not None), tasks)
        except BaseException:
            context.cancelJobGroup(group)
            raise
        progress(tasks, tasks)
        return rows.result()


# ----------------------------------------------------------------------------------------------------
# Whether a partition of a table holds the rows of a source: by counts and column checksums, then by whole rows.
#
# Column checksums alone can't see two rows that swapped a value; so rows that agree in them are hashed as wholes too.


def holds_same_rows(spark: SparkSession, rows: DataFrame, table: Table, entries: Sequence[PartitionEntry]) -> bool:
    """Whether a partition's rows are these, in any order.

    Args:
        spark: the session.
        rows: of the source.
        table: at one snapshot.
        entries: the partition's there.
    """
    held = content_of_entries(entries)
    try:
        source = conformed(rows, table.catalog.plans[entries[-1].plan].schema)
    except SchemaError:
        return False
    found = measure_content(source, "the source")
    if found.rows != held.rows or any(found.sums.get(name, sum) != sum for name, sum in held.sums.items()):
        return False
    there = rows_of_entries(spark, table, entries).select(*[quoted(name) for name in source.columns])
    return _sum_of_rows(source) == _sum_of_rows(there)


def rows_of_entries(spark: SparkSession, table: Table, entries: Sequence[PartitionEntry]) -> DataFrame:
    """The rows that some entries of a table's partitions have."""
    scan = TableScan(table.name, table.name, table.schema.names, Filter.of(TRUE))
    return read_to_dataframe(spark, TableRead(table, scan, table.all_rows_of(entries, scan.columns)))


def sum_of_rows(fields: Sequence[StructField]) -> SparkColumn:
    """The sum of hashes of whole rows. NULLs leave a hash as it is, so where they stand is hashed too."""
    parts: list[SparkColumn] = []
    for field in fields:
        parts += [F.col(quoted(field.name)).isNull(), hashable(field.name, field.dataType)]
    return F.sum(F.xxhash64(*parts).cast("decimal(38,0)"))


def _sum_of_rows(rows: DataFrame) -> int:
    with translate_spark_errors("the rows of a partition"):
        row = rows.agg(sum_of_rows(rows.schema.fields).alias("sum")).first()
    return 0 if row is None or row["sum"] is None else int(row["sum"])


# ----------------------------------------------------------------------------------------------------
# Whether a table holds what its source has: rows, column checksums and whole rows of every partition value.
#
# Both sides are grouped by the partition column as it stands in the files, and joined in Spark: no value is named,
# parsed
# or compared outside it, so that what a load did to names can't hide what it did to rows.

_SHOWN = 80  # characters of a partition value
_MOST_NAMES = 5  # columns of a sentence


@dataclass(frozen=True)
class _Sides:
    """One partition value on both sides; a side without it has None rows.

    Attributes:
        value: as text; None is NULL, or that the sides agree.
        source, table: rows.
        columns: the places of the columns whose checksums differ.
        rows_agree: whether the sums over whole rows do.
    """

    value: str | None
    source: int | None
    table: int | None
    columns: Sequence[int]
    rows_agree: bool


def compare_with_source(rows: DataFrame, table: Table, source: str) -> SourceCheck:
    """Compare all rows of a table, at one snapshot, with those of a source.

    Args:
        rows: of the source, as :func:`layoutopt.spark.core.source.open_source` has them.
        table: at one snapshot.
        source: names the source.

    Raises:
        SourceError: a file of the source is missing or damaged.
        SchemaError: the source has another schema than the table.
        SettingError: the session's settings are not those under which the table was loaded.
    """
    for plan in table.catalog.plans.values():
        check_settings(rows.sparkSession, plan.settings, "the table")
    _check_schema(schema_of(rows), table.schema, source)
    rows, by = conformed(rows, table.schema, "the table"), table.catalog.snapshot.partition_by
    with translate_spark_errors(repr(source)):
        counted = rows.count()
        sides = list(map(_sides, _joined(rows, _all_rows(rows.sparkSession, table), by).collect()))
    found = [problem for side in sides for problem in _problems(side, by, table.schema, source)]
    in_source, in_table = sum(side.source or 0 for side in sides), sum(side.table or 0 for side in sides)
    # What is joined has every row, unless it was changed meanwhile: counted without any grouping.
    for what, compared, has in (("the source", in_source, counted), ("the table", in_table, table.rows)):
        if compared != has:
            message = (
                f"of the {has:,} rows of {what} {compared:,} were compared; see that nobody changes it, and repeat"
            )
            found.insert(0, Problem("source-total", source, message))
    partitions = sum(side.source is not None for side in sides)
    return SourceCheck(source, counted, partitions, in_table, len(found), tuple(found[:MOST_PROBLEMS]))


def _check_schema(found: Schema, wanted: Schema, source: str) -> None:
    columns = [(column, found.get(column.name)) for column in wanted.columns]
    wrong = [f"it lacks {column.name!r}" for column, has in columns if has is None]
    wrong += [f"{c.name!r} is {has.type} and not {c.type}" for c, has in columns if has and has.type != c.type]
    wrong += [f"{column.name!r} is not in the table" for column in found.columns if wanted.get(column.name) is None]
    if wrong:
        listed = ", ".join(wrong[:_MOST_NAMES]) + (", ..." if len(wrong) > _MOST_NAMES else "")
        raise SchemaError(
            f"the source {source!r} has another schema than the table ({listed}); give the one that it was loaded from"
        )


def _all_rows(spark: SparkSession, table: Table) -> DataFrame:
    """Everything that the table holds; nothing is skipped."""
    scan = TableScan(table.name, table.name, table.schema.names, Filter.of(TRUE))
    return read_to_dataframe(spark, TableRead(table, scan, table.prune(TRUE, scan.columns)))


def _joined(source: DataFrame, table: DataFrame, by: str | None) -> DataFrame:
    """A row for each partition value of either side, in order: what :class:`_Sides` has."""
    both = _groups(source, by, "source").join(
        _groups(table, by, "table"), F.col("_w_source_key").eqNullSafe(F.col("_w_table_key")), "full_outer"
    )
    places = F.sequence(F.lit(0), F.lit(len(source.columns) - 1))
    sums, others = F.col("_w_source_sums"), F.col("_w_table_sums")
    columns = F.filter(places, lambda i: F.get(sums, i) != F.get(others, i))
    key = F.coalesce("_w_source_key", "_w_table_key")
    type = source.schema[by].dataType if by is not None else None
    return both.orderBy(key.asc_nulls_first()).select(
        _text(key, type).alias("value"),
        F.col("_w_source_rows").alias("source"),
        F.col("_w_table_rows").alias("table"),
        columns.alias("columns"),
        F.col("_w_source_whole").eqNullSafe(F.col("_w_table_whole")).alias("rows_agree"),
    )


def _groups(rows: DataFrame, by: str | None, side: str) -> DataFrame:
    """Rows, column checksums and the sum over whole rows of every partition value."""
    key = F.lit(0) if by is None else F.col(quoted(by))
    fields = rows.schema.fields
    return rows.groupBy(key.alias(f"_w_{side}_key")).agg(
        F.count(F.lit(1)).alias(f"_w_{side}_rows"),
        F.array(*(checksum_column(field.name, field.dataType) for field in fields)).alias(f"_w_{side}_sums"),
        sum_of_rows(fields).alias(f"_w_{side}_whole"),
    )


def _text(key: SparkColumn, type: DataType | None) -> SparkColumn:
    """A partition value as it is shown; instants with their offset, since clocks show some times twice."""
    text = key.cast("string")
    if isinstance(type, TimestampType):
        text = F.concat(text, F.lit(" "), F.date_format(key, "xxx"))
    return F.substring(text, 1, _SHOWN)


def _sides(row: Row) -> _Sides:
    return _Sides(row["value"], row["source"], row["table"], row["columns"] or (), row["rows_agree"])


def _problems(side: _Sides, by: str | None, schema: Schema, source: str) -> Iterator[Problem]:
    # repr: a value of somebody else's can't give a terminal commands, and NULL is not 'NULL'
    what = "the table" if by is None else f"partition {by} = {'NULL' if side.value is None else repr(side.value)}"
    if side.table is None:
        message = f"{what} lacks all {side.source:,} rows of the source; `layoutopt load` without --partition adds them"
        yield Problem("source-missing", source, message)
    elif side.source is None:
        message = (
            f"{what} has {side.table:,} rows and the source none; as it should be if the source was moved on, else "
            "load it again from a source that has it"
        )
        yield Problem("source-extra", source, message)
    elif side.source != side.table:
        message = f"{what} has {side.table:,} rows and the source {side.source:,}; load it again with --replace"
        yield Problem("source-differs", source, message)
    elif side.columns:
        names = ", ".join(repr(schema.names[i]) for i in side.columns[:_MOST_NAMES])
        more = f" and {len(side.columns) - _MOST_NAMES} more" if len(side.columns) > _MOST_NAMES else ""
        message = f"{what} has other values of {names}{more} than the source; load it again with --replace"
        yield Problem("source-differs", source, message)
    elif not side.rows_agree:
        agree = "though the checksums of columns agree, as where values change places"
        message = f"{what} has other rows than the source {agree}; load it again with --replace"
        yield Problem("source-differs", source, message)
