"""Spool what only Spark reads: one job writes its rows to Parquet, in their order, and tasks then read these by Arrow.

The rows carry what only Spark can compute: the words of some features, and values of indexed expressions. The same job
sums the rows as Spark reads them, which proves what tasks then write from the files.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.types import StructType

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.load_check import Content
from layoutopt.catalog.partition_names import PlainValue
from layoutopt.catalog.paths import CATALOG
from layoutopt.catalog.storage.exclusive import TEMPORARY
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import SourceError
from layoutopt.external.snapshot import SnapshotFile
from layoutopt.model.layout import Plan
from layoutopt.model.schema import Column, Schema
from layoutopt.scan.segments import FileRead, LayoutRead, SegmentRead, plan_file_reads
from layoutopt.sources.executor import Batches
from layoutopt.sources.source import Source, count_partition_rows
from layoutopt.sources.split import POSITION_BITS, FileSplit, Split, count_partitions
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.featurize import with_feature_words, with_index_values
from layoutopt.spark.core.sessions import limit_method_size
from layoutopt.spark.core.source import checksum_column, content_columns, content_of, escape_pattern, measure_content
from layoutopt.spark.core.versions import to_arrow
from layoutopt.spark.core.workers import SparkTasks, map_in_workers
from layoutopt.spark.session.readers import PARQUET_OPTIONS, read_in_workers
from layoutopt.writer.segment import to_stored_types

if TYPE_CHECKING:
    from layoutopt.encryption.table_keys import TableKeys

_KEY_BYTES: Final = 32
# Of rows in memory that a task writes as a row group.
_GROUP_BYTES: Final = 1 << 25
_PART: Final = "part binary"


@dataclass(frozen=True)
class _Group:
    """A row group that a task wrote: its rows by partition value, and its bytes in memory."""

    rows: int
    counts: Mapping[PlainValue, int]
    size: int


@dataclass(frozen=True)
class _Part:
    """The file that a task wrote, which is named by the number of its partition of Spark's."""

    number: int
    path: str
    groups: tuple[_Group, ...]


@dataclass(eq=False)
class SpooledSource(Source):
    """The rows of a DataFrame under a plan's columns, in the files of a spool.

    Attributes:
        rows: as Spark reads them.
        content: what the job that wrote the files has summed.
        remove: removes the files.
    """

    rows: DataFrame = field(kw_only=True)
    content: Content = field(kw_only=True)
    remove: Callable[[], None] = field(kw_only=True)

    @property
    def carries_words(self) -> bool:
        """True."""
        return True

    def sum(self) -> Content:
        """Return the content that Spark summed."""
        return self.content

    def sum_again(self) -> Content:
        """Sum by a job of its own: a task of the first that ran twice may have been summed twice."""
        return measure_content(self.rows, self.name)

    def check_unchanged(self) -> None:
        """Do nothing: nothing else writes the files."""

    def close(self) -> None:
        """Remove the files."""
        self.remove()

    def sum_written(self, files: TableFiles, plan: Plan, schema: Schema, blocks: pa.Table) -> Mapping[str, int]:
        """Read the checksums by Spark, which alone can hash these columns as it hashed the source's."""
        fields = StructType([self.rows.schema[name] for name in schema.names])
        sums = [checksum_column(field.name, field.dataType).alias(field.name) for field in fields]
        with translate_spark_errors("the files just written"):
            row = _open_written(self.rows.sparkSession, files, plan, blocks, fields).agg(*sums).first()
        return {} if row is None else {name: int(row[name]) for name in schema.names}


def _open_written(
    spark: SparkSession, files: TableFiles, plan: Plan, blocks: pa.Table, fields: StructType
) -> DataFrame:
    """Open some columns of all blocks of a layout, by Spark's own reader where it can read the files."""
    if files.is_plain:
        paths = [files.full_path(path) for path in dict.fromkeys(blocks["file"].to_pylist())]
        return spark.read.schema(fields).options(**PARQUET_OPTIONS).parquet(*map(escape_pattern, paths))
    table = BlockTable.from_arrow(blocks, plan)
    reads = plan_file_reads(table, np.lexsort((table.row_group, table.file)))
    segments = [SegmentRead("", 0, (LayoutRead(0, tuple(fields.names), (file,)),)) for file in reads]
    return read_in_workers(spark, files, segments, plan.schema.select(fields.names).columns)


def spool(
    rows: DataFrame, plan: Plan, name: str, beside: TableFiles, *, partition_by: str | None = None
) -> SpooledSource:
    """Write rows to files, and return them as a source that removes these when it is closed.

    Args:
        rows: under the plan's columns, or some of them.
        name: names them in messages.
        partition_by: a further column of the rows, by which the source has its partitions instead of the plan's.
        beside: the table's files. The spool is encrypted where these are, and on their file system unless all tasks
            run on this machine.

    Raises:
        BoundError, SourceError, TableError: as :func:`~layoutopt.spark.core.failures.translate_spark_errors`.
    """
    spark = rows.sparkSession
    files, remove = _make_folder(spark, beside)
    partition_by = partition_by or plan.partition_by
    schema = Schema(tuple(column for column in plan.schema.columns if column.name in rows.columns))
    try:
        with translate_spark_errors(name), limit_method_size(spark):
            observation = Observation()
            observed = rows.observe(observation, *content_columns(rows))
            featurised = with_index_values(with_feature_words(observed, plan.features.features), plan.indexes)
            names = featurised.columns
            by_place = featurised.toDF(*(f"c{place}" for place in range(len(names))))
            task = partial(_write_part, files, tuple(names), partition_by)
            written = to_arrow(map_in_workers(by_place, task, _PART))
            content = content_of(observation.get, schema.names)
    except BaseException:
        SparkTasks(spark).wait()
        remove()
        raise
    parts: list[_Part] = sorted(map(cloudpickle.loads, written["part"].to_pylist()), key=lambda part: part.number)
    splits = tuple(split for part in parts for split in _list_splits(files, part, names))
    computed = [Column(f.name, f.dataType.simpleString()) for f in featurised.schema if f.name not in schema.names]
    return SpooledSource(
        name, Schema((*schema.columns, *computed)), partition_by, (), splits, SparkTasks(spark),
        count_partition_rows(splits), rows=rows, content=content, remove=remove,
    )  # fmt: skip


def _make_folder(spark: SparkSession, beside: TableFiles) -> tuple[TableFiles, Callable[[], None]]:
    """Make a folder that the tasks can write, and return its files, and what removes it."""
    keys: tuple[TableKeys, ...] = ()
    if beside.keys is not None:
        from layoutopt.encryption.table_keys import TableKeys  # slow to import

        keys = (TableKeys(os.urandom(_KEY_BYTES)),)
    if _runs_here(spark):
        folder = TemporaryDirectory(prefix="layoutopt-", ignore_cleanup_errors=True)
        return TableFiles(folder.name, lent=keys), folder.cleanup
    path = f"{CATALOG}/spool-{secrets.token_hex(8)}"
    return TableFiles(beside.full_path(path), lent=keys), partial(beside.delete_folder, path)


def _runs_here(spark: SparkSession) -> bool:
    return str(spark.sparkContext.master).startswith("local")


def _list_splits(
    files: TableFiles, part: _Part, names: Sequence[str]
) -> Iterator[tuple[Split, Mapping[PlainValue, int]]]:
    """Yield a split for each row group, with its rows by partition value."""
    file, low = SnapshotFile(part.path, tuple(names)), part.number << POSITION_BITS
    for number, group in enumerate(part.groups):
        yield FileSplit(file, FileRead(part.path, (number,), (group.rows,)), low, group.size, files), group.counts
        low += group.rows


def _write_part(
    files: TableFiles, names: Sequence[str], partition_by: str | None, batches: Batches
) -> Iterator[pa.RecordBatch]:
    """Write the rows of a partition of Spark's to a file, and yield the pickled :class:`_Part`; nothing for no rows."""
    context = TaskContext.get()
    assert context is not None, "tasks of Spark have a context"
    # Vacuum removes files of this name if the driver was killed.
    path = f"{TEMPORARY}{context.partitionId()}-{secrets.token_hex(4)}.parquet"
    tables = _combine_batches(batches, names)
    first = next(tables, None)
    if first is None:
        return
    groups = []
    encryption = files.encryption(path)
    with (
        files.create(path) as file,
        pq.ParquetWriter(
            file, first.schema, compression="lz4", use_dictionary=False, write_statistics=False,
            encryption_properties=encryption,
        ) as writer,
    ):  # fmt: skip
        table: pa.Table | None = first
        while table is not None:
            writer.write_table(table, row_group_size=table.num_rows)
            groups.append(_Group(table.num_rows, _count_rows(table, partition_by), table.nbytes))
            table = next(tables, None)
    value: bytes = cloudpickle.dumps(_Part(context.partitionId(), path, tuple(groups)))  # type: ignore[no-untyped-call]
    yield pa.RecordBatch.from_pydict({"part": pa.array([value], pa.binary())})


def _combine_batches(batches: Batches, names: Sequence[str]) -> Iterator[pa.Table]:
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            pending.append(batch.rename_columns(list(names)))
            size += batch.nbytes
        if size >= _GROUP_BYTES:
            yield to_stored_types(pa.Table.from_batches(pending))
            pending, size = [], 0
    if pending:
        yield to_stored_types(pa.Table.from_batches(pending))


def _count_rows(rows: pa.Table, partition_by: str | None) -> dict[PlainValue, int]:
    if partition_by is None:
        return {None: rows.num_rows}
    try:
        return count_partitions(rows, partition_by)
    except UnicodeDecodeError as error:
        raise SourceError(
            f"a text of the partition column {partition_by!r} is no UTF-8; write it as UTF-8 and load again"
        ) from error
