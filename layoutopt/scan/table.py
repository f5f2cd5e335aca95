"""The public interface of the library: a table and its scans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa

from layoutopt import extensions
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.storage.filesystem import READ_THROUGH
from layoutopt.catalog.table import Catalog
from layoutopt.errors import QueryError, SettingError, SourceIndexError
from layoutopt.model.feature import SessionSettings
from layoutopt.model.predicates import TRUE, Filter, Node
from layoutopt.model.schema import Schema
from layoutopt.model.types import quote_name
from layoutopt.model.udf import Udf, by_name
from layoutopt.scan import check_switch as switch
from layoutopt.scan.cost_limit import check_bytes
from layoutopt.scan.files import BATCH_ROWS
from layoutopt.scan.opened_table import OpenedTable
from layoutopt.scan.prune import PrunedPlan, PrunedQueries, Question
from layoutopt.scan.shadow_check import check_decision
from layoutopt.scan.table_read import Mentions, TableRead, cached_mentions
from layoutopt.sql.scans import TableScan
from layoutopt.sql.text_cache import cache_by_text

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    from pyarrow.dataset import Dataset
    from pyspark.sql import DataFrame, SparkSession

    from layoutopt.evaluation.engine import EngineQuery
    from layoutopt.scan.explain import Explanation
    from layoutopt.sql.duckdb.translate import PortableSql


_Schemas: TypeAlias = tuple[tuple[str, Schema], ...]


def prune_checked(
    table: OpenedTable, root: Node, columns: Sequence[str], settings: SessionSettings
) -> tuple[PrunedPlan, ...]:
    """Return what a scan reads, one item per plan; raises as :func:`prune_with_settings`."""
    return prune_with_settings(table, root, columns, [settings] * len(table.sources))


def prune_with_settings(
    table: OpenedTable, root: Node, columns: Sequence[str], settings: Sequence[SessionSettings]
) -> tuple[PrunedPlan, ...]:
    """Return what a scan reads under separate settings for each plan, and check it if skipping is checked.

    Raises:
        SkippingError: a row for which the filter is TRUE would not be read.
        DataFileError: the check is on, and a data file is missing or damaged.
    """
    pruned = table.decide(root, columns, settings)
    if switch.is_on():
        check_decision(table, root, pruned)
    return pruned


def plan_read(table: OpenedTable, scan: TableScan, settings: SessionSettings) -> TableRead:
    """Return the read of one mention of a table, under these settings; raises as :func:`prune_with_settings`."""
    return TableRead(table, scan, prune_checked(table, scan.filter.root, scan.columns, settings))


def plan_entries_read(
    table: OpenedTable, entries: Sequence[PartitionEntry], columns: Sequence[str] | None = None
) -> TableRead:
    """Return the read of all live rows of some entries, in some columns or all."""
    names = table.schema.names if columns is None else tuple(columns)
    scan = TableScan(table.name, table.name, names, Filter.of(TRUE))
    return TableRead(table, scan, table.all_rows_of(entries, names))


DUCKDB: Final = "duckdb"
# Bits of one mask of a batch of queries, a byte each.
_BATCH_BITS: Final = 1 << 20
NO_TABLES: Final[Mapping[str, Table]] = MappingProxyType({})


def open_table(
    path: str,
    *,
    snapshot: int | None = None,
    as_of: str | None = None,
    read_through: int = READ_THROUGH,
    udfs: Sequence[Udf] = (),
    key: str | None = None,
) -> Table:
    """Open a table at its newest snapshot, at a snapshot number, or as of a time (ISO 8601).

    If the folder holds indexes made by ``layoutopt index``, the indexed source is opened with its current files.

    Args:
        path: a local path, or a URL such as ``s3://bucket/events``.
        read_through: for object stores, the most bytes between two ranges of a file that are read with them instead
            of sending a second request. Requests are counted in ``table.catalog.files.traffic``.
        udfs: user-defined functions that texts may call, declared by :func:`layoutopt.udf`.
        key: source of an encrypted table's key: ``env:NAME`` or ``command:WORDS`` [default: the environment variable
            ``LAYOUTOPT_KEY``, else the source with which the table was made].

    Raises:
        EncryptionKeyError: the key is missing or wrong, or a key was passed for a table that is not encrypted.
        NotATableError: the path holds no table.
        CatalogError: a catalog file is missing, damaged or of an unknown version.
        SettingError: two functions have the same name.
        SourceError, SchemaError: an indexed source can't be read.
    """
    try:
        catalog = Catalog.open(str(path), snapshot, as_of, read_through, key)
    except SourceIndexError as error:
        if snapshot is not None or as_of is not None:
            raise SettingError(
                f"{str(path)!r} holds indexes of {error.source!r}, which can only be read as it is now; remove the "
                "snapshot or time"
            ) from error
        from layoutopt.external.indexed_source import open_indexed

        catalog = open_indexed(str(path), error.source, read_through)
    return Table(catalog, by_name(udfs))


def open_source(source: str, name: str = "t", *, udfs: Sequence[Udf] = ()) -> SourceTable:
    """Open Parquet files, or a table of another format, as they are now; blocks are row groups with their statistics.

    Args:
        source: a file, a folder, or a table such as ``delta:/data/events`` or ``iceberg:sales.events@7``.
        name: the table's name in queries.
        udfs: user-defined functions that texts may call.

    Raises:
        SourceError, SchemaError: the source can't be read, or has a column of an unknown type.
        SettingError: the name is empty, or its format is not installed, or has no row groups.
    """
    from layoutopt.external.external_tables import pin_version
    from layoutopt.external.indexed_source import open_source_catalog
    from layoutopt.external.listing import canonical_name

    source = pin_version(canonical_name(source, versions=True))  # so that Spark reads the same
    return SourceTable(open_source_catalog(source, name), by_name(udfs), source)


def open_own_table(
    path: str, *, snapshot: int | None = None, as_of: str | None = None, read_through: int = READ_THROUGH,
    udfs: Sequence[Udf] = (), key: str | None = None,
) -> Table:  # fmt: skip
    """Open a table that layoutopt wrote, as :func:`open_table`; raise SourceIndexError for the indexes of a source."""
    return Table(Catalog.open(str(path), snapshot, as_of, read_through, key), by_name(udfs))


@dataclass(frozen=True, eq=False)
class Table(OpenedTable):
    """A table at one snapshot; later commits are not visible."""

    def scan(
        self, sql: str | None = None, *, columns: Sequence[str] | None = None, where: str | None = None,
        tables: Mapping[str, Table] = NO_TABLES, max_bytes: int | str | None = None,
    ) -> Scan:  # fmt: skip
        """Return what a SQL text reads, or the given columns (default: all) of rows that meet a condition.

        Args:
            sql: one SELECT statement.
            columns: the columns wanted, instead of a text.
            where: the condition on rows, instead of a text.
            tables: further tables that the text reads, by their names in it; the text has this table's settings.
            max_bytes: the most compressed bytes that the scan may read, like ``"500MB"``, by the catalog.

        Raises:
            CostLimitError: the scan would read more than ``max_bytes``.
            QueryError: the text can't be used, reads only unknown tables, or came with columns or a condition.
            SchemaError: a column is unknown.
            SettingError: two tables have the same name, or ``max_bytes`` is no number of bytes.
        """
        if sql is not None and (columns is not None or where is not None):
            raise QueryError("scan() takes either a SQL text or columns and a condition; remove one of them")
        scan = self.scan_under(self._select(columns, where) if sql is None else sql, self.settings, tables)
        if not scan.reads and self.catalog.plans:
            from layoutopt.sql.scans import qualified_tables

            names = qualified_tables(scan.sql)
            if names:
                known = " or ".join(repr(name) for name in scan.named)
                raise QueryError(f"the query reads {names[0]!r}, but the table is called {known}; use that name")
        if max_bytes is not None:
            from layoutopt.config.fields import parse_bytes

            check_bytes(scan.reads, parse_bytes(max_bytes))
        return scan

    def scan_under(self, sql: str, settings: SessionSettings, tables: Mapping[str, Table] = NO_TABLES) -> Scan:
        """Return what a SQL text reads in a session with these settings; raises as :meth:`scan`."""
        named = self._name_tables(tables)
        reads = self._plan_reads(sql, settings, named)
        if switch.checks_texts():
            from layoutopt.scan.shadow_check_texts import check_text

            switch.TALLY["undecided texts"] += not check_text(sql, reads, settings)
        return Scan(self, sql, reads, settings, named)

    def _plan_reads(self, sql: str, settings: SessionSettings, named: Mapping[str, Table]) -> tuple[TableRead, ...]:
        mentions = self._mentions(sql, _list_schemas(named), settings, tuple(self.udfs.items()))
        return tuple(plan_read(named[scan.table], scan, settings) for scan in mentions)

    def _name_tables(self, tables: Mapping[str, Table]) -> Mapping[str, Table]:
        """Return this table and others by their names in a text."""
        known: dict[str, str] = {}
        for name in (self.name, *tables):
            if known.setdefault(name.lower(), name) != name or (name == self.name and name in tables):
                raise SettingError(f"two tables are called {name!r}; give one of them another name")
        return {self.name: self, **tables}

    @cached_property
    def _mentions(self) -> Mentions:
        return cached_mentions()

    @cached_property
    def _portable(self) -> Callable[[str, _Schemas, tuple[tuple[int, str], ...], str], PortableSql]:
        """A cached translation to DuckDB, by text, schemas by name, the view of each mention, and time zone."""
        from layoutopt.sql.duckdb.translate import portable_sql

        udfs = self.udfs
        return cache_by_text(
            lambda sql, schemas, views, zone: portable_sql(sql, dict(schemas), dict(views), zone, udfs)
        )

    def _select(self, columns: Sequence[str] | None, where: str | None) -> str:
        names = self.schema.names if columns is None else self.schema.select(columns).names
        if not names:
            raise QueryError("scan() got no columns; name at least one")
        condition = "" if where is None else f" WHERE {where}"
        return f"SELECT {', '.join(map(quote_name, names))} FROM {quote_name(self.name)}{condition}"

    def sql(
        self, text: str, tables: Mapping[str, Table] = NO_TABLES, *, max_bytes: int | str | None = None
    ) -> pa.Table:
        """Return the answer to a SQL text, which may join further tables, computed by the embedded engine.

        Raises:
            CostLimitError: it would read more than ``max_bytes``, as in :meth:`scan`.
            QueryError: the text can't be used, or may mean something else in DuckDB than in Spark.
            SettingError: two tables have the same name.
            DataFileError: a data file is missing or damaged.
        """
        return self.scan(text, tables=tables, max_bytes=max_bytes).to_arrow()

    def explain(self, text: str, tables: Mapping[str, Table] = NO_TABLES) -> Explanation:
        """Explain which blocks a SQL text reads, which may join further tables, and why no more are skipped."""
        return self.scan(text, tables=tables).explain()

    def prune(
        self, root: Node, columns: Sequence[str], settings: SessionSettings | None = None
    ) -> tuple[PrunedPlan, ...]:
        """Return what a scan of some columns under a filter reads, one item per plan; raises as a scan."""
        return prune_checked(self, root, columns, settings or self.settings)

    def prune_all(self, questions: Sequence[Question]) -> Iterator[tuple[slice, tuple[PrunedQueries, ...]]]:
        """Yield what scans read (filters with columns), some at a time: their places, and one item per plan.

        Raises as a scan. Equal questions should be asked once: see :func:`layoutopt.model.query.group_queries`.
        """
        most = max(
            1, _BATCH_BITS // max(1, *(source.blocks.n for source in self.sources), len(self.catalog.partitions))
        )
        for start in range(0, len(questions), most):
            places = slice(start, min(start + most, len(questions)))
            batch = questions[places]
            pruned = self.decide_all(batch)
            if switch.is_on():
                for number, (root, _) in enumerate(batch):
                    check_decision(self, root, [plan[number] for plan in pruned])
            yield places, pruned


@dataclass(frozen=True, eq=False)
class SourceTable(Table):
    """A source's files as they were when it was opened; ``source`` is its canonical name, with its version."""

    source: str = ""


def _list_schemas(named: Mapping[str, Table]) -> _Schemas:
    return tuple((name, table.schema) for name, table in named.items())


@dataclass(frozen=True, eq=False)
class Scan:
    """A SQL text over tables, each at one snapshot: what it reads, and its answer.

    Attributes:
        reads: one item for each mention of a table, in the order of the text.
        settings: the session settings, which affect both pruning and DuckDB's answer.
        named: the tables by their names in the text.
    """

    table: Table
    sql: str
    reads: tuple[TableRead, ...]
    settings: SessionSettings
    named: Mapping[str, Table]

    def explain(self) -> Explanation:
        """Explain which blocks are read, what skips the others, and why each part of the filter skips no more."""
        from layoutopt.scan.explain import explain

        return explain(self.table, self.sql, self.reads)

    def to_arrow(self, engine: str = DUCKDB) -> pa.Table:
        """Return the answer as an Arrow table.

        Args:
            engine: ``duckdb``, or an :data:`Engine` of an installed package.

        Raises:
            SettingError: the engine is unknown.
            QueryError: the text may mean something else in DuckDB than in Spark.
            DataFileError: a data file is missing or damaged.
        """
        if engine != DUCKDB:
            return extensions.find("engines", engine, _ENGINES, "engine")(self)
        from layoutopt.evaluation.engine import answer

        return answer(self._engine_query())

    def to_batches(self, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Return the answer as a stream; raises as :meth:`to_arrow`, possibly after some batches."""
        from layoutopt.evaluation.engine import run

        return run(self._engine_query(), batch_rows)

    def to_pandas(self) -> pd.DataFrame:
        """Return the answer as a pandas DataFrame (requires pandas); raises as :meth:`to_arrow`."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """Return the answer as a Polars DataFrame (requires polars); raises as :meth:`to_arrow`."""
        import polars as pl

        return pl.DataFrame(self.to_arrow())

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyRelation:
        """Return the answer as a relation of a connection with the scan's time zone; raises as :meth:`to_arrow`."""
        from layoutopt.evaluation.engine import relation

        return relation(connection, self._engine_query(prefix=f"_layoutopt_{id(self)}_", keep=True))

    def to_dataset(self) -> Dataset:
        """Return the rows that the text reads (not its answer) as a pyarrow Dataset of the surviving row groups.

        Polars (``scan_pyarrow_dataset``) and DuckDB can read the dataset. It has all matching rows and others of the
        same row groups, so apply the filter again. Rows combined from several layouts are read into memory here.

        Raises:
            QueryError: the text does not mention one table once.
            DataFileError: a data file is missing or damaged.
        """
        from layoutopt.scan.dataset import open_dataset

        return open_dataset(self.reads)

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """Return the answer as a Spark DataFrame; Spark runs the text over the surviving row groups."""
        from layoutopt.spark.session.enabling import scan_to_dataframe

        return scan_to_dataframe(spark, self.named, self.sql)

    def _engine_query(self, prefix: str = "_layoutopt_", keep: bool = False) -> EngineQuery:
        # Imported here because importing DuckDB and the SQL translator takes longer than pruning.
        from layoutopt.evaluation.engine import EngineQuery

        views = {read.start: f"{prefix}{index}" for index, read in enumerate(self.reads)}
        zone = self.settings.time_zone
        portable = self.table._portable(self.sql, _list_schemas(self.named), tuple(views.items()), zone)
        sources = tuple(read.as_view(views[read.start]) for read in self.reads)
        streams = portable.is_flat and not keep
        return EngineQuery(
            portable.sql, portable.columns, sources, zone, streams, portable.functions, portable.uses_times
        )


# Computes the answer to a scan's text, in Spark's types, from the rows that the scan has to read.
Engine = Callable[[Scan], pa.Table]
_ENGINES: Final[Mapping[str, Engine]] = MappingProxyType({DUCKDB: Scan.to_arrow})
