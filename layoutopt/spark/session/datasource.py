"""``spark.read.format("layoutopt")``: an optimised table as a data source in Python.

For those who hold DataFrames, not SQL. It reads every row of the columns that the option ``columns`` names, and takes
no conditions of Spark's: Spark 4.3.0 keeps what the last pushed condition left with what was loaded, so that all other
uses of it, in the same query or later, would read that too and lose rows. What skips is `spark.sql` after
:func:`layoutopt.spark.enable`, whose rows don't travel through Python either, and ``table.scan(...).to_spark(spark)``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import datasource as ds
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from layoutopt.errors import SettingError
from layoutopt.foreign.source_files import SourceFiles
from layoutopt.model.predicates import TRUE
from layoutopt.model.schema import Column, Schema, schema_ddl
from layoutopt.model.types import VARIANT, unquoted
from layoutopt.scan.read import read_segments
from layoutopt.scan.segments import SegmentRead, by_file, segments_to_read
from layoutopt.scan.table import Table, open_table
from layoutopt.spark.core.workers import own_python

_MOST_PARTITIONS: Final = 64


def register_format(spark: SparkSession) -> None:
    """Let a session read ``spark.read.format("layoutopt").option("columns", "a,b").load("TABLE")``.

    The options are ``columns`` (by default all; a name with commas stands in backticks) and ``snapshot`` (by default
    the newest). Registering again changes nothing.
    """
    java: Any = spark._jsparkSession
    if java.sessionState().dataSourceManager().dataSourceExists(LayoutoptSource.name()):
        return
    # Spark looks for the name in the thread's active session, which may be another one that has it already.
    jvm: Any = spark._jvm
    jvm.SparkSession.setActiveSession(java)
    with own_python(spark):
        spark.dataSource.register(LayoutoptSource)


class LayoutoptSource(ds.DataSource):
    """The data source; Spark makes it from the options of one read."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = options
        if "owner" in options:  # Spark 4.3.0 makes a catalog's table so, and forgets the path
            raise SettingError(
                "a catalog's table of the format layoutopt would have no path; write CREATE TEMPORARY VIEW name USING "
                "layoutopt OPTIONS (path 'TABLE')"
            )
        known = {"path", "columns", "snapshot", "key"}
        unknown = [key for key in options if key.casefold() not in known]
        if unknown:
            raise SettingError(
                f"{unknown[0]!r} is no option of the format layoutopt; they are columns, snapshot and key"
            )

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "layoutopt"

    def schema(self) -> str:
        """The columns that were asked for, in that order."""
        return schema_ddl(self._columns(self._table().schema))

    def reader(self, schema: StructType) -> LayoutoptReader:
        """What reads the columns of a schema."""
        table = self._table()
        return LayoutoptReader(table, table.schema.select(schema.names).columns, schema)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Refuse: rows are laid out by a plan, which no writer of a DataFrame has.

        Raises:
            SettingError: always.
        """
        raise SettingError("the format layoutopt only reads; write rows by `layoutopt load` or `layoutopt append`")

    def _table(self) -> Table:
        path, snapshot = self.options.get("path"), self.options.get("snapshot")
        if not path:
            raise SettingError('the format layoutopt has no path; write spark.read.format("layoutopt").load("TABLE")')
        if snapshot is not None and not snapshot.isdigit():
            raise SettingError(f"snapshot = {snapshot!r} is no number; take one that `layoutopt history` lists")
        number = None if snapshot is None else int(snapshot)
        return open_table(path, snapshot=number, key=self.options.get("key"))

    def _columns(self, schema: Schema) -> tuple[Column, ...]:
        given = self.options.get("columns")
        if given is None:
            return schema.columns
        return schema.select(_names_in(given)).columns


def _names_in(text: str) -> list[str]:
    """Names between commas; one that has commas, quotes or spaces at its ends stands in backticks, doubled inside.

    >>> _names_in("a, b.c, `d,``e` ")
    ['a', 'b.c', 'd,`e']
    """
    found = re.findall(r"\s*(`(?:[^`]|``)*`|[^,]*?)\s*(?:,|$)", text)
    return [unquoted(name) for name in found if name]


@dataclass(frozen=True)
class SegmentsPartition(ds.InputPartition):
    """The segments that one task reads."""

    segments: tuple[SegmentRead, ...]


class LayoutoptReader(ds.DataSourceReader):
    """Reads some columns of all rows."""

    def __init__(self, table: Table, columns: Sequence[Column], schema: StructType) -> None:
        self._table: Table | None = table
        self._segments: list[SegmentRead] = []
        self._files = table.catalog.data.for_tasks()
        self._columns = tuple(columns)
        self._schema = schema
        if isinstance(self._files, SourceFiles):  # whose listing, held in memory, does not travel
            self._segments, self._table = by_file(_segments_of(table, columns)), None

    def partitions(self) -> Sequence[ds.InputPartition]:
        """The segments, dealt out to a bounded number of tasks."""
        segments = self._segments if self._table is None else _segments_of(self._table, self._columns)
        self._table = None  # tasks need the catalog no more
        tasks = max(min(len(segments), _MOST_PARTITIONS), 1)
        return [SegmentsPartition(tuple(segments[first::tasks])) for first in range(tasks)]

    def read(self, partition: ds.InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task's segments.

        Raises:
            DataFileError: a data file is missing or damaged.
        """
        assert isinstance(partition, SegmentsPartition)
        batches = read_segments(self._files, partition.segments, self._columns)
        if any(VARIANT in column.type for column in self._columns):
            marked = to_arrow_schema(self._schema, timezone="UTC")
            batches = (pa.record_batch(_Under(marked, batch)) for batch in batches)
        yield from batches


@dataclass(frozen=True)
class _Under:
    """A batch under another schema, by which Spark knows variants: names and buffers are the same."""

    schema: pa.Schema
    batch: pa.RecordBatch

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self.schema.__arrow_c_schema__(), self.batch.__arrow_c_array__()[1]


def _segments_of(table: Table, columns: Sequence[Column]) -> list[SegmentRead]:
    """All segments, as some columns are read of them."""
    pruned = table.prune(TRUE, [column.name for column in columns])
    return [segment for each in pruned for segment in segments_to_read(each)]
