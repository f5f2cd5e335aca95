"""A table and its scans: what a user of the library holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from layoutopt import extensions
from layoutopt.catalog.storage.filesystem import READ_THROUGH
from layoutopt.catalog.table import Catalog
from layoutopt.errors import QueryError, SettingError, SourceIndexError
from layoutopt.model.feature import Settings
from layoutopt.model.predicates import Node
from layoutopt.model.types import quoted
from layoutopt.model.udf import Udf, by_name
from layoutopt.scan import check_switch as switch
from layoutopt.scan.arrow_types import any_arrow_type
from layoutopt.scan.files import BATCH_ROWS
from layoutopt.scan.opened_table import OpenedTable
from layoutopt.scan.prune import PrunedPlan
from layoutopt.scan.shadow_check import check_decision
from layoutopt.scan.table_read import Mentions, TableRead, remembered_mentions
from layoutopt.sql.scans import TableScan
from layoutopt.sql.text_cache import remembered

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    from pyarrow.dataset import Dataset
    from pyspark.sql import DataFrame, SparkSession

    from layoutopt.scan.engine import EngineQuery
    from layoutopt.scan.explain import Explanation
    from layoutopt.sql.duckdb.translate import PortableSql


# ----------------------------------------------------------------------------------------------------
# What a filter needs of a table, compared with the rows where this process checks what it skips.


def checked(table: OpenedTable, root: Node, pruned: tuple[PrunedPlan, ...]) -> tuple[PrunedPlan, ...]:
    """What was decided under a filter, once more compared with the rows where skipping is checked.

    Raises:
        SkippingError: a row for which the filter is TRUE would not be read.
        DataFileError: it is checked, and a data file is missing or damaged.
    """
    if switch.is_on():
        check_decision(table, root, pruned)
    return pruned


def prune_checked(table: OpenedTable, root: Node, columns: Sequence[str], settings: Settings) -> tuple[PrunedPlan, ...]:
    """What a scan of these columns under this filter reads, one item a plan; raises as :func:`checked`."""
    return prune_under(table, root, columns, [settings] * len(table.sources))


def prune_under(
    table: OpenedTable, root: Node, columns: Sequence[str], settings: Sequence[Settings]
) -> tuple[PrunedPlan, ...]:
    """Return what a scan reads under settings of its own for each plan; raises as :func:`checked`."""
    return checked(table, root, table.decide(root, columns, settings))


def table_read(table: OpenedTable, scan: TableScan, settings: Settings) -> TableRead:
    """The read that one mention of a table makes in a session with these settings; raises as :func:`checked`."""
    return TableRead(table, scan, prune_checked(table, scan.filter.root, scan.columns, settings))


DUCKDB: Final = "duckdb"


def open_table(
    path: str,
    *,
    snapshot: int | None = None,
    as_of: str | None = None,
    read_through: int = READ_THROUGH,
    udfs: Sequence[Udf] = (),
    key: str | None = None,
) -> Table:
    """Opens a table at its newest snapshot, at the snapshot of a number, or as of a time (ISO 8601).

    Of a folder that ``layoutopt index`` made it opens the source, as its files are now.

    Args:
        path: a local path, or a URL as ``s3://bucket/events``.
        snapshot: its number.
        as_of: a time.
        read_through: in an object store, the most bytes between two ranges of a file that are read along with them
            rather than asking twice; what is asked is counted in ``table.catalog.files.traffic``.
        udfs: functions of yours that texts may call, declared by :func:`layoutopt.udf`.
        key: of an encrypted table, where its key is to be had: ``env:NAME`` or ``command:WORDS`` [default: as the
            environment variable ``LAYOUTOPT_KEY`` says, else as the table was made].

    Raises:
        EncryptionKeyError: the key can't be had or is another one, or one is given for a table that is not encrypted.
        NotATableError: the path holds something else, or nothing.
        CatalogError: a catalog file is missing, damaged or of an unknown version.
        SettingError: two functions have one name.
        SourceError, SchemaError: an indexed source can't be read.
    """
    try:
        catalog = Catalog.open(str(path), snapshot, as_of, read_through, key)
    except SourceIndexError as found:
        if snapshot is not None or as_of is not None:
            raise SettingError(
                f"the indexes {str(path)!r} know {found.source!r} only as it is now; leave the snapshot and time out"
            ) from found
        from layoutopt.external.indexed_source import open_indexed

        catalog = open_indexed(str(path), found.source, any_arrow_type, read_through)
    return Table(catalog, by_name(udfs))


def open_own_table(
    path: str, *, snapshot: int | None = None, as_of: str | None = None, read_through: int = READ_THROUGH,
    udfs: Sequence[Udf] = (), key: str | None = None,
) -> Table:  # fmt: skip
    """As :func:`open_table`, but a table that layoutopt wrote.

    Raises:
        SourceIndexError: the path holds the indexes of a source.
    """
    return Table(Catalog.open(str(path), snapshot, as_of, read_through, key), by_name(udfs))


@dataclass(frozen=True, eq=False)
class Table(OpenedTable):
    """A table at one snapshot; what others commit meanwhile is not seen."""

    def scan(self, sql: str | None = None, *, columns: Sequence[str] | None = None, where: str | None = None) -> Scan:
        """What a SQL text reads of the table; or the given columns (by default all) of the rows that meet a condition.

        Raises:
            QueryError: the text can't be used, reads other tables alone, or both a text and columns or a condition are
                given.
            SchemaError: a column is unknown.
        """
        if sql is not None and (columns is not None or where is not None):
            raise QueryError("scan() takes a SQL text, or columns and a condition; leave out one of them")
        scan = self.scan_under(self._select(columns, where) if sql is None else sql, self.settings)
        if not scan.reads and self.catalog.plans:
            self._check_names(scan.sql)
        return scan

    def _check_names(self, sql: str) -> None:
        """Refuse a text that names tables, but not this one."""
        from layoutopt.sql.scans import qualified_tables

        others = qualified_tables(sql)
        if others:
            raise QueryError(f"the query reads {others[0]!r}, but the table is called {self.name!r}; name it so")

    def scan_under(self, sql: str, settings: Settings) -> Scan:
        """What a SQL text reads in a session with these settings; raises as :meth:`scan`."""
        reads = self.reads_under(sql, settings)
        if switch.is_on():
            from layoutopt.scan.shadow_check_texts import check_text

            switch.TALLY["undecided texts"] += not check_text(sql, reads, settings)
        return Scan(self, sql, reads, settings)

    def reads_under(self, sql: str, settings: Settings) -> tuple[TableRead, ...]:
        """The mentions of the table in a SQL text, each with what it reads; raises as :meth:`scan`."""
        mentions = self._mentions(sql, ((self.name, self.schema),), settings, tuple(self.udfs.items()))
        return tuple(table_read(self, scan, settings) for scan in mentions)

    @cached_property
    def _mentions(self) -> Mentions:
        return remembered_mentions()

    @cached_property
    def _portable(self) -> Callable[[str, tuple[tuple[int, str], ...], str], PortableSql]:
        """DuckDB's text for a SQL text, the view of each place where it mentions the table, and a time zone."""
        from layoutopt.sql.duckdb.translate import portable_sql

        schemas, udfs = {self.name: self.schema}, self.udfs
        return remembered(lambda sql, views, zone: portable_sql(sql, schemas, dict(views), zone, udfs))

    def _select(self, columns: Sequence[str] | None, where: str | None) -> str:
        names = self.schema.names if columns is None else self.schema.select(columns).names
        if not names:
            raise QueryError("scan() got no columns; name at least one")
        chosen = ", ".join(quoted(name) for name in names)
        condition = "" if where is None else f" WHERE {where}"
        return f"SELECT {chosen} FROM {quoted(self.name)}{condition}"

    def sql(self, text: str) -> pa.Table:
        """The answer to a SQL text, by the embedded engine.

        Raises:
            QueryError: the text can't be used, or might mean something else to DuckDB than to Spark.
            DataFileError: a data file is missing or damaged.
        """
        return self.scan(text).to_arrow()

    def explain(self, text: str) -> Explanation:
        """Which blocks a SQL text reads, what skips the others, and why not more."""
        return self.scan(text).explain()

    def prune(self, root: Node, columns: Sequence[str], settings: Settings | None = None) -> tuple[PrunedPlan, ...]:
        """What a scan of these columns under this filter reads, one item a plan; raises as a scan's."""
        return prune_checked(self, root, columns, settings or self.settings)


@dataclass(frozen=True, eq=False)
class Scan:
    """A SQL text over the table at one snapshot: what it reads, and its answer.

    Attributes:
        table: that is read.
        sql: the text.
        reads: one item for each mention of the table, in the order of the text.
        settings: of the session; they decide what is read and what DuckDB answers.
    """

    table: Table
    sql: str
    reads: tuple[TableRead, ...]
    settings: Settings

    def explain(self) -> Explanation:
        """Which blocks are read, what skips the others, and for each part of the filter why it skips no more."""
        from layoutopt.scan.explain import explain

        return explain(self.table, self.sql, self.reads)

    def to_arrow(self, engine: str = DUCKDB) -> pa.Table:
        """The answer as an Arrow table.

        Args:
            engine: what computes it: ``duckdb``, or an :data:`Engine` of a package that is installed.

        Raises:
            SettingError: there is no such engine.
            QueryError: the text might mean something else to DuckDB than to Spark.
            DataFileError: a data file is missing or damaged.
        """
        if engine != DUCKDB:
            return extensions.find("engines", engine, _ENGINES, "engine")(self)
        from layoutopt.scan.engine import answer

        return answer(self._engine_query())

    def to_batches(self, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """The answer as a stream; raises as :meth:`to_arrow`, perhaps after some batches."""
        from layoutopt.scan.engine import run

        return run(self._engine_query(), batch_rows)

    def to_pandas(self) -> pd.DataFrame:
        """The answer as a pandas DataFrame, which needs pandas; raises as :meth:`to_arrow`."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """The answer as a Polars DataFrame, which needs polars; raises as :meth:`to_arrow`."""
        import polars as pl

        return pl.DataFrame(self.to_arrow())

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyRelation:
        """The answer as a relation of your connection, whose time zone should be the scan's; raises as above."""
        from layoutopt.scan.engine import relation

        return relation(connection, self._engine_query(prefix=f"_layoutopt_{id(self)}_", keep=True))

    def to_dataset(self) -> Dataset:
        """The rows that the text reads, not its answer, as a pyarrow Dataset of the surviving row groups.

        Polars (``scan_pyarrow_dataset``) and DuckDB take it as it is. It has every row that matches and others of the
        same row groups, so filter again. Rows put together from several layouts are read into memory here.

        Raises:
            QueryError: the text mentions the table several times.
            DataFileError: a data file is missing or damaged.
        """
        from layoutopt.scan.dataset import dataset_of

        return dataset_of(self.table.catalog.data, self.table.name, self.reads)

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """The answer as a Spark DataFrame; Spark itself runs the text over the surviving row groups."""
        from layoutopt.spark.session.enabling import scan_to_dataframe

        return scan_to_dataframe(spark, self.table, self.sql)

    def _engine_query(self, prefix: str = "_layoutopt_", keep: bool = False) -> EngineQuery:
        # Only now: DuckDB and the typing of whole texts take longer to import than pruning takes.
        from layoutopt.scan.engine import EngineQuery, source_of

        views = {read.start: f"{prefix}{index}" for index, read in enumerate(self.reads)}
        zone = self.settings.time_zone
        portable = self.table._portable(self.sql, tuple(views.items()), zone)
        sources = tuple(source_of(views[read.start], read) for read in self.reads)
        streams = portable.is_flat and not keep
        return EngineQuery(portable.sql, portable.columns, sources, zone, streams, portable.functions)


Engine = Callable[[Scan], pa.Table]
"""Computes the answer to a scan's text, in Spark's types, reading what the scan has left of the table."""
_ENGINES: Final[Mapping[str, Engine]] = MappingProxyType({DUCKDB: Scan.to_arrow})
