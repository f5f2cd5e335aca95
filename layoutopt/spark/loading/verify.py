"""Verify tables by Spark: read their files again in tasks, and compare their rows with a source.

``verify --engine spark``: each task gets the entries of the partitions of its files, and checks a run of files in the
catalog's order. Files that have to be judged together, those of a layout of a segment, are in one run. Only verdicts
come back to the driver.

A table and its source are grouped by the partition column as it stands in the files, and joined in Spark, by rows,
column checksums and hashes of whole rows. No value is parsed or compared outside of Spark, so that an error of a load
with names can't hide one with rows. Column checksums alone can't see two rows that swapped a value.
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
from pyspark.sql.types import StructField, TimestampType

from layoutopt.catalog.entries import content_of_entries
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.snapshot import Snapshot
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.errors import SchemaError
from layoutopt.inspect.verify import (
    MOST_PROBLEMS,
    Difference,
    FileChecker,
    FileVerdict,
    Progress,
    SourceCheck,
    check_files,
)
from layoutopt.model.predicates import TRUE, Filter
from layoutopt.model.schema import Schema
from layoutopt.model.types import quote_name
from layoutopt.scan.table import Table, plan_entries_read
from layoutopt.scan.table_read import TableRead
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.sessions import check_settings
from layoutopt.spark.core.source import checksum_column, conform_columns, hash_input, measure_content, schema_of
from layoutopt.spark.core.workers import map_items
from layoutopt.spark.session.readers import read_to_dataframe
from layoutopt.sql.scans import TableScan

# Enough that a slow run delays nothing and a repeated one repeats little; each opens a part of the catalog.
_RUNS_A_CORE = 8
_SECONDS_BETWEEN_LOOKS = 0.5
_SCHEMA = "verdicts string"
_SHOWN = 80  # characters of a partition value
_MOST_NAMES = 5  # columns in a message


def spark_file_checker(spark: SparkSession) -> FileChecker:
    """Return a checker of a table's files in Spark tasks, for :func:`layoutopt.inspect.verify.verify`.

    Its progress counts tasks as they end. It raises CatalogError where a task finds the catalog damaged, and
    SettingError where workers lack layoutopt.
    """
    return partial(_check_in_tasks, spark)


def _check_in_tasks(
    spark: SparkSession, table: Table, paths: Sequence[str], progress: Progress
) -> Iterator[FileVerdict]:
    runs = _cut_runs(table, paths, _RUNS_A_CORE * spark.sparkContext.defaultParallelism)
    files = table.catalog.files.for_tasks()
    items = [(run, table.catalog.snapshot.select(keys)) for run, keys in runs]
    rows = map_items(spark, items, partial(_check_run, files), _SCHEMA)
    verdicts: dict[str, FileVerdict] = {}
    with translate_spark_errors(files.root):
        for row in _collect(rows, len(runs), progress):
            for path, blocks, n_rows, findings in json.loads(row["verdicts"]):
                problems = tuple((check, message) for check, message in findings)
                verdicts[path] = FileVerdict(path, blocks, n_rows, problems)
    yield from map(verdicts.__getitem__, paths)


def _cut_runs(table: Table, paths: Sequence[str], most: int) -> list[tuple[tuple[str, ...], frozenset[str]]]:
    """Cut the paths into about ``most`` runs of as many rows, and return each with the keys of its partitions.

    Paths stay in the catalog's order, and files of a layout of a segment together.
    """
    wanted, groups = set(paths), dict[tuple[int, int, int], list[tuple[str, str, int]]]()
    for number, source in enumerate(table.sources):
        blocks = source.blocks
        rows = np.bincount(blocks.file, blocks.rows, len(blocks.files)).astype(int).tolist()
        numbers, firsts = np.unique(blocks.file, return_index=True)
        for file, first in zip(numbers.tolist(), firsts.tolist(), strict=True):
            if blocks.files[file] in wanted:
                group = (number, int(source.segment_of[first]), int(blocks.layout[first]))
                key = source.entries[source.entry_of[first]].key
                groups.setdefault(group, []).append((blocks.files[file], key, rows[file]))
    total = sum(rows for files in groups.values() for _, _, rows in files)
    runs: list[list[tuple[str, str, int]]] = []
    done = 0
    for files in groups.values():
        if done * most >= total * len(runs):
            runs.append([])
        runs[-1] += files
        done += sum(rows for _, _, rows in files)
    return [(tuple(path for path, _, _ in run), frozenset(key for _, key, _ in run)) for run in runs]


def _check_run(files: TableFiles, item: tuple[Sequence[str], Snapshot]) -> Iterator[pa.RecordBatch]:
    """Yield the verdicts of some files, as JSON; the snapshot has the entries of their partitions alone."""
    paths, snapshot = item
    table = Table(Catalog.of_snapshot(files, snapshot))
    text = json.dumps([(v.path, v.blocks, v.rows, v.findings) for v in check_files(table, paths, workers=1)])
    yield pa.RecordBatch.from_arrays([pa.array([text])], names=["verdicts"])


def _collect(verdicts: DataFrame, tasks: int, progress: Progress) -> Iterable[Row]:
    """Collect the rows of a job, and report meanwhile how many of its tasks are done."""
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


def holds_same_rows(spark: SparkSession, rows: DataFrame, table: Table, entries: Sequence[PartitionEntry]) -> bool:
    """Whether a partition's entries, in a table at one snapshot, hold a source's rows, in any order."""
    expected = content_of_entries(entries)
    try:
        source = conform_columns(rows, table.catalog.plans[entries[-1].plan].schema)
    except SchemaError:
        return False
    content = measure_content(source, "the source")
    if content.rows != expected.rows or any(content.sums.get(name, sum) != sum for name, sum in expected.sums.items()):
        return False
    stored = rows_of_entries(spark, table, entries).select(*[quote_name(name) for name in source.columns])
    return _sum_whole_rows(source) == _sum_whole_rows(stored)


def rows_of_entries(spark: SparkSession, table: Table, entries: Sequence[PartitionEntry]) -> DataFrame:
    """Return the rows of some entries of a table's partitions."""
    return read_to_dataframe(spark, plan_entries_read(table, entries))


def _whole_row_sum(fields: Sequence[StructField]) -> SparkColumn:
    """Return the sum of hashes of whole rows. NULL does not change a hash, so whether values are NULL is hashed too."""
    parts: list[SparkColumn] = []
    for field in fields:
        parts += [F.col(quote_name(field.name)).isNull(), hash_input(field.name, field.dataType)]
    return F.sum(F.xxhash64(*parts).cast("decimal(38,0)"))


def _sum_whole_rows(rows: DataFrame) -> int:
    with translate_spark_errors("the rows of a partition"):
        row = rows.agg(_whole_row_sum(rows.schema.fields).alias("sum")).first()
    return 0 if row is None or row["sum"] is None else int(row["sum"])


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
    rows, by = conform_columns(rows, table.schema, "the table"), table.catalog.snapshot.partition_by
    scan = TableScan(table.name, table.name, table.schema.names, Filter.of(TRUE))
    with translate_spark_errors(repr(source)):
        counted = rows.count()
        stored = read_to_dataframe(rows.sparkSession, TableRead(table, scan, table.prune(TRUE, scan.columns)))
        sides = [
            _Sides(row["value"], row["source"], row["table"], row["columns"] or (), row["rows_agree"])
            for row in _join_sides(rows, stored, by).collect()
        ]
    problems = [problem for side in sides for problem in _find_problems(side, by, table.schema, source)]
    in_source, in_table = sum(side.source or 0 for side in sides), sum(side.table or 0 for side in sides)
    # The join has every row, unless a side was changed meanwhile: both are counted without any grouping.
    for name, compared, rows_in_all in (("the source", in_source, counted), ("the table", in_table, table.rows)):
        if compared != rows_in_all:
            message = (
                f"{compared:,} of the {rows_in_all:,} rows of {name} were compared; repeat while nothing changes it"
            )
            problems.insert(0, Difference("source-total", source, message))
    partitions = sum(side.source is not None for side in sides)
    return SourceCheck(source, counted, partitions, in_table, len(problems), tuple(problems[:MOST_PROBLEMS]))


def _check_schema(schema: Schema, expected: Schema, source: str) -> None:
    columns = [(column, schema.get(column.name)) for column in expected.columns]
    wrong = [f"it lacks {column.name!r}" for column, has in columns if has is None]
    wrong += [f"{c.name!r} is {has.type} and not {c.type}" for c, has in columns if has and has.type != c.type]
    wrong += [f"{column.name!r} is not in the table" for column in schema.columns if expected.get(column.name) is None]
    if wrong:
        listed = ", ".join(wrong[:_MOST_NAMES]) + (", ..." if len(wrong) > _MOST_NAMES else "")
        raise SchemaError(
            f"the source {source!r} has another schema than the table ({listed}); give the one that it was loaded from"
        )


def _join_sides(source: DataFrame, table: DataFrame, by: str | None) -> DataFrame:
    """Return a row for each partition value of either side, in order: the attributes of :class:`_Sides`."""
    both = _group(source, by, "source").join(
        _group(table, by, "table"), F.col("_w_source_key").eqNullSafe(F.col("_w_table_key")), "full_outer"
    )
    places = F.sequence(F.lit(0), F.lit(len(source.columns) - 1))
    source_sums, table_sums = F.col("_w_source_sums"), F.col("_w_table_sums")
    key = F.coalesce("_w_source_key", "_w_table_key")
    text = key.cast("string")
    if by is not None and isinstance(source.schema[by].dataType, TimestampType):
        text = F.concat(text, F.lit(" "), F.date_format(key, "xxx"))  # clocks show some times twice
    return both.orderBy(key.asc_nulls_first()).select(
        F.substring(text, 1, _SHOWN).alias("value"),
        F.col("_w_source_rows").alias("source"),
        F.col("_w_table_rows").alias("table"),
        F.filter(places, lambda i: F.get(source_sums, i) != F.get(table_sums, i)).alias("columns"),
        F.col("_w_source_whole").eqNullSafe(F.col("_w_table_whole")).alias("rows_agree"),
    )


def _group(rows: DataFrame, by: str | None, side: str) -> DataFrame:
    """Return the rows, column checksums and sum over whole rows of every partition value."""
    key = F.lit(0) if by is None else F.col(quote_name(by))
    fields = rows.schema.fields
    return rows.groupBy(key.alias(f"_w_{side}_key")).agg(
        F.count(F.lit(1)).alias(f"_w_{side}_rows"),
        F.array(*(checksum_column(field.name, field.dataType) for field in fields)).alias(f"_w_{side}_sums"),
        _whole_row_sum(fields).alias(f"_w_{side}_whole"),
    )


def _find_problems(side: _Sides, by: str | None, schema: Schema, source: str) -> Iterator[Difference]:
    # repr: a value can't send commands to a terminal, and NULL differs from 'NULL'
    name = "the table" if by is None else f"partition {by} = {'NULL' if side.value is None else repr(side.value)}"
    if side.table is None:
        message = f"{name} lacks all {side.source:,} rows of the source; `layoutopt load` without --partition adds them"
        yield Difference("source-missing", source, message)
    elif side.source is None:
        message = (
            f"{name} has {side.table:,} rows and the source none; expected if the source dropped them since, else "
            "load it again from a source that has it"
        )
        yield Difference("source-extra", source, message)
    elif side.source != side.table:
        message = f"{name} has {side.table:,} rows and the source {side.source:,}; load it again with --replace"
        yield Difference("source-differs", source, message)
    elif side.columns:
        names = ", ".join(repr(schema.names[i]) for i in side.columns[:_MOST_NAMES])
        more = f" and {len(side.columns) - _MOST_NAMES} more" if len(side.columns) > _MOST_NAMES else ""
        message = f"{name} has other values of {names}{more} than the source; load it again with --replace"
        yield Difference("source-differs", source, message)
    elif not side.rows_agree:
        agree = "though the checksums of columns agree, as where values change places"
        message = f"{name} has other rows than the source {agree}; load it again with --replace"
        yield Difference("source-differs", source, message)
