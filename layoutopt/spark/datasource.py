"""``spark.read.format("layoutopt")``: an optimised table as a data source in Python.

For those who hold DataFrames, not SQL. Spark hands over simple conditions on columns, by which blocks are skipped; it
applies all of them again, so they decide nothing but what is not read. It does not say which columns it needs: name
them with the option ``columns``. Rows travel through Python, which `spark.sql` after
:func:`layoutopt.spark.enable` spares them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import datasource as ds
from pyspark.sql.types import StructType

from layoutopt.catalog.filesystem import TableFiles
from layoutopt.errors import SettingError
from layoutopt.model.predicate import TRUE, Col, InSet, Node, conjunction, negate
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import ValueSet, compare
from layoutopt.scan import shadow
from layoutopt.scan.read import SegmentRead, read_segments
from layoutopt.scan.table import Table, open_table, segments_to_read
from layoutopt.spark.read import schema_ddl

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
_MOST_PARTITIONS: Final = 64
_COMPARED: Final = ("tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "string", "date", "timestamp")
_OPERATORS: Final[dict[type[ds.Filter], str]] = {
    ds.EqualTo: "=",
    ds.EqualNullSafe: "=",
    ds.GreaterThan: ">",
    ds.GreaterThanOrEqual: ">=",
    ds.LessThan: "<",
    ds.LessThanOrEqual: "<=",
}


def register_format(spark: SparkSession) -> None:
    """Let a session read ``spark.read.format("layoutopt").option("columns", "a,b").load("TABLE")``.

    The options are ``columns`` (by default all; a name with commas stands in backticks) and ``snapshot`` (by default
    the newest). Registering again changes nothing.
    """
    spark.conf.set(PUSHDOWN, "true")
    java: Any = spark._jsparkSession
    if java.sessionState().dataSourceManager().dataSourceExists(LayoutoptSource.name()):
        return
    # Spark looks for the name in the thread's active session, which may be another one that has it already.
    jvm: Any = spark._jvm
    jvm.SparkSession.setActiveSession(java)
    spark.dataSource.register(LayoutoptSource)


class LayoutoptSource(ds.DataSource):
    """The data source; Spark makes it from the options of one read."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = options
        known = {"path", "columns", "snapshot"}
        unknown = [key for key in options if key.casefold() not in known]
        if unknown:
            raise SettingError(f"{unknown[0]!r} is no option of the format layoutopt; they are columns and snapshot")

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
        return LayoutoptReader(table, table.schema.select(schema.names).columns)

    def _table(self) -> Table:
        path, snapshot = self.options.get("path"), self.options.get("snapshot")
        if not path:
            raise SettingError('the format layoutopt has no path; write spark.read.format("layoutopt").load("TABLE")')
        if snapshot is not None and not snapshot.isdigit():
            raise SettingError(f"snapshot = {snapshot!r} is no number; take one that `layoutopt history` lists")
        return open_table(path, snapshot=None if snapshot is None else int(snapshot))

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
    return [_unquoted(name) for name in found if name]


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if len(name) > 1 and name[0] == name[-1] == "`" else name


@dataclass(frozen=True)
class SegmentsPartition(ds.InputPartition):
    """The segments that one task reads."""

    segments: tuple[SegmentRead, ...]


class LayoutoptReader(ds.DataSourceReader):
    """Reads some columns of the rows that conditions leave over."""

    def __init__(self, table: Table, columns: Sequence[Column]) -> None:
        self._table: Table | None = table
        self._root = table.catalog.files.root
        self._columns = tuple(columns)
        self._filter: Node = TRUE
        self._checked = shadow.is_on()  # executors have an environment of their own

    def pushFilters(self, filters: list[ds.Filter]) -> Iterable[ds.Filter]:  # noqa: N802 (Spark's name)
        """Take conditions to skip by; all of them are Spark's to apply again."""
        assert self._table is not None
        schema = self._table.schema
        self._filter = conjunction([node for each in filters if (node := node_of(each, schema)) is not None])
        return filters

    def partitions(self) -> Sequence[ds.InputPartition]:
        """The surviving segments, dealt out to a bounded number of tasks."""
        segments = surviving(self._table, self._filter, [column.name for column in self._columns])
        self._table = None  # tasks need the catalog no more
        tasks = max(min(len(segments), _MOST_PARTITIONS), 1)
        return [SegmentsPartition(tuple(segments[first::tasks])) for first in range(tasks)]

    def read(self, partition: ds.InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task's segments.

        Raises:
            DataFileError: a data file is missing or damaged.
        """
        assert isinstance(partition, SegmentsPartition)
        files = TableFiles(self._root)
        yield from read_segments(
            files, partition.segments, self._columns, condition=self._filter, checked=self._checked
        )


def surviving(table: Table | None, root: Node, columns: Sequence[str]) -> list[SegmentRead]:
    """What a scan of these columns under conditions on single columns reads.

    Such conditions hold values in the column's own type and mean the same under all settings, so they may be compared
    with the features of every plan.
    """
    if table is None:
        return []
    pruned = table.checked(root, table.decide(root, columns, [source.plan.settings for source in table.sources]))
    return [segment for each in pruned for segment in segments_to_read(each)]


def node_of(condition: ds.Filter, schema: Schema) -> Node | None:
    """A condition of Spark's as one of ours; None where it has no exact form here.

    >>> node_of(ds.Not(ds.EqualNullSafe(("a",), 1)), Schema((Column("a", "int"),)))  # TRUE for NULL
    """
    if isinstance(condition, ds.Not):
        inner = None if isinstance(condition.child, ds.EqualNullSafe) else node_of(condition.child, schema)
        return negate(inner) if isinstance(inner, InSet) else None
    column = _column(condition, schema)
    if column is None:
        return None
    subject = Col(column.name, column.type)
    if isinstance(condition, ds.IsNull | ds.IsNotNull):
        is_null = isinstance(condition, ds.IsNull)
        return InSet(subject, ValueSet.empty() if is_null else ValueSet.all(), is_null)
    try:
        values = _values(condition, column.type)
    except (ValueError, TypeError, OverflowError):
        return None
    return None if values is None else InSet(subject, values)


def _column(condition: ds.Filter, schema: Schema) -> Column | None:
    """The column that a condition is about; None for fields of structs and types that are not compared here."""
    path: list[str] = list(getattr(condition, "attribute", ()))
    if len(path) != 1 or path[0] not in schema.names:
        return None
    column = schema.find(path[0])
    return column if column.type in _COMPARED or column.type.startswith("decimal(") else None


def _values(condition: ds.Filter, type_name: str) -> ValueSet | None:
    """The values for which a condition is TRUE; None where they are not known.

    Raises:
        ValueError: the comparison can't be done exactly here.
    """
    if isinstance(condition, ds.In):
        values = ValueSet.empty()
        for value in condition.value:
            values = values.union(compare("=", value, type_name)) if value is not None else values
        return values
    if isinstance(condition, ds.StringStartsWith):
        return ValueSet.prefix(condition.value)
    operator, value = _OPERATORS.get(type(condition)), getattr(condition, "value", None)
    return None if operator is None or value is None else compare(operator, value, type_name)
