"""A table and its scans: what a user of the library holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from layoutopt.catalog.table import Catalog
from layoutopt.errors import QueryError
from layoutopt.model.feature import Settings
from layoutopt.model.predicates import Filter, Node, disjunction
from layoutopt.model.schema import Column, Schema
from layoutopt.scan.arrow_types import arrow_type, empty_table, nested_type
from layoutopt.scan.checking import decisions as shadow
from layoutopt.scan.prune import Bits, PlanBlocks, PrunedPlan, plan_blocks, prune
from layoutopt.scan.read import BATCH_ROWS, ROWS_ONLY, FileRead, LayoutRead, SegmentRead, open_parquet, read_segments
from layoutopt.scan.startup import spare_pandas
from layoutopt.skipping.cannot_match import BlockFacts, cannot_match
from layoutopt.sql.scans import TableScan, scans_of

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    from pyarrow.dataset import Dataset
    from pyspark.sql import DataFrame, SparkSession

    from layoutopt.scan.engine import EngineQuery
    from layoutopt.scan.explain import Explanation


def open_table(path: str, *, snapshot: int | None = None, as_of: str | None = None) -> Table:
    """Opens a table at its newest snapshot, at the snapshot of a number, or as of a time (ISO 8601).

    Raises:
        NotATableError: the path holds something else, or nothing.
        CatalogError: a catalog file is missing, damaged or of an unknown version.
    """
    spare_pandas()
    return Table(Catalog.open(str(path), snapshot, as_of))


@dataclass(frozen=True, eq=False)
class Table:
    """A table at one snapshot; what others commit meanwhile is not seen."""

    catalog: Catalog

    @property
    def name(self) -> str:
        """The name that SQL texts call the table by: its plan's."""
        return next((plan.table for plan in self.catalog.plans.values()), "t")

    @property
    def schema(self) -> Schema:
        """The table's columns."""
        return self.catalog.schema

    @cached_property
    def rows(self) -> int:
        """How many rows the snapshot has."""
        return self.catalog.snapshot.rows

    @cached_property
    def settings(self) -> Settings:
        """The session settings under which the embedded engine reads: those of the table's first plan."""
        return next((plan.settings for plan in self.catalog.plans.values()), Settings())

    @cached_property
    def sources(self) -> tuple[PlanBlocks, ...]:
        """The blocks, one item a plan."""
        return plan_blocks(self.catalog)

    @cached_property
    def partition_facts(self) -> BlockFacts:
        """Min, max and nulls of every partition."""
        return self.catalog.partition_facts()

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
        from layoutopt.sql.references import references_of

        found = references_of(sql)
        others = [".".join(each.parts) for each in found.tables if each.parts[-1].lower() not in found.common]
        if others:
            raise QueryError(f"the query reads {others[0]!r}, but the table is called {self.name!r}; name it so")

    def scan_under(self, sql: str, settings: Settings) -> Scan:
        """What a SQL text reads in a session with these settings; raises as :meth:`scan`."""
        reads = self.reads_under(sql, settings)
        if shadow.is_on():
            from layoutopt.scan.checking.texts import check_text

            shadow.TALLY["undecided texts"] += not check_text(sql, reads, settings)
        return Scan(self, sql, reads)

    def reads_under(self, sql: str, settings: Settings) -> tuple[TableRead, ...]:
        """The mentions of the table in a SQL text, each with what it reads; raises as :meth:`scan`."""
        mentions = merge_mentions(scans_of(sql, {self.name: self.schema}, "spark", settings=settings))
        return tuple(TableRead.of(self, scan, settings) for scan in mentions)

    def _select(self, columns: Sequence[str] | None, where: str | None) -> str:
        names = self.schema.names if columns is None else self.schema.select(columns).names
        if not names:
            raise QueryError("scan() got no columns; name at least one")
        chosen = ", ".join(_quoted(name) for name in names)
        condition = "" if where is None else f" WHERE {where}"
        return f"SELECT {chosen} FROM {_quoted(self.name)}{condition}"

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
        """What a scan of these columns under this filter reads, one item a plan; raises as :meth:`checked`."""
        return self.checked(root, self.decide(root, columns, [settings or self.settings] * len(self.sources)))

    def decide(
        self, root: Node, columns: Sequence[str], settings: Sequence[Settings] | None = None
    ) -> tuple[PrunedPlan, ...]:
        """The same with settings for each plan, and not checked."""
        sessions = settings or [self.settings] * len(self.sources)
        out = self.partitions_out(root)
        return tuple(
            prune(source, out, root, columns, session) for source, session in zip(self.sources, sessions, strict=True)
        )

    def checked(self, root: Node, pruned: tuple[PrunedPlan, ...]) -> tuple[PrunedPlan, ...]:
        """What was decided under a filter, once more compared with the rows where skipping is checked.

        Raises:
            SkippingError: a row for which the filter is TRUE would not be read.
            DataFileError: it is checked, and a data file is missing or damaged.
        """
        if shadow.is_on():
            shadow.check_decision(self, root, pruned)
        return pruned

    def partitions_out(self, root: Node) -> Bits:
        """The partitions in which no row can match, bool[n_partitions]."""
        return cannot_match(root, self.partition_facts, None)

    def files(self, layout: int = 0) -> tuple[str, ...]:
        """The paths or URLs of the snapshot's data files of one layout, sorted.

        Raises:
            QueryError: no plan of the table has such a layout.
        """
        known = max((len(plan.scheme.layouts) for plan in self.catalog.plans.values()), default=1)
        if not 0 <= layout < known:
            raise QueryError(f"there is no layout {layout}; the table's are 0 to {known - 1}")
        found = set()
        for source in self.sources:
            used = np.unique(source.blocks.file[source.blocks.layout == layout])
            found |= {source.blocks.files[index] for index in used}
        return tuple(self.catalog.files.full_path(path) for path in sorted(found))


@dataclass(frozen=True, eq=False)
class TableRead:
    """One mention of the table in a text: its columns, its filter, and what pruning leaves of the blocks."""

    table: Table
    scan: TableScan
    pruned: tuple[PrunedPlan, ...]

    @classmethod
    def of(cls, table: Table, scan: TableScan, settings: Settings) -> TableRead:
        """The read that a scan makes in a session with these settings."""
        return cls(table, scan, table.prune(scan.filter.root, scan.columns, settings))

    @property
    def start(self) -> int:
        """Where the text mentions the table."""
        return self.scan.span[0] if self.scan.span is not None else -1

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns read, in schema order."""
        wanted = set(self.scan.columns)
        return tuple(column for column in self.table.schema.columns if column.name in wanted)

    @property
    def segments(self) -> list[SegmentRead]:
        """What is to be read, in the table's order."""
        return [segment for pruned in self.pruned for segment in segments_to_read(pruned)]

    def batches(self, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """The surviving rows: all that match the filter, and others of the same blocks.

        Where rows are put together from several layouts, those are left out that one layout's columns exclude.

        Raises:
            DataFileError: a data file is missing or damaged.
        """
        condition = self.scan.filter.root
        return read_segments(self.table.catalog.files, self.segments, self.columns, batch_rows, condition)

    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of the batches; nested types are looked up in a data file."""
        if not self.columns:
            return pa.schema([pa.field(ROWS_ONLY, pa.int8())])
        unknown = [column for column in self.columns if arrow_type(column.type) is None]
        schema = empty_table(self.columns).schema
        layouts = (
            {name: layout for s in self.segments for layout in s.layouts for name in layout.columns} if unknown else {}
        )
        for column in unknown:
            if column.name not in layouts:  # no row is left, or the column came after all plans whose rows are
                schema = _with_field(schema, pa.field(column.name, nested_type(column.type)))
                continue
            file = layouts[column.name].files[0]
            with open_parquet(self.table.catalog.files, file.path, file.footer) as parquet:
                schema = _with_field(schema, parquet.schema_arrow.field(column.name))
        return schema


@dataclass(frozen=True, eq=False)
class Scan:
    """A SQL text over the table at one snapshot: what it reads, and its answer.

    ``reads`` has one item for each mention of the table, in the order of the text.
    """

    table: Table
    sql: str
    reads: tuple[TableRead, ...]

    def explain(self) -> Explanation:
        """Which blocks are read, what skips the others, and for each part of the filter why it skips no more."""
        from layoutopt.scan.explain import explain

        return explain(self)

    def to_arrow(self) -> pa.Table:
        """The answer as an Arrow table.

        Raises:
            QueryError: the text might mean something else to DuckDB than to Spark.
            DataFileError: a data file is missing or damaged.
        """
        from layoutopt.scan.engine import run

        query = self._engine_query()
        batches = list(run(query, BATCH_ROWS))
        return pa.Table.from_batches(batches) if batches else empty_table(query.columns)

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
        """The answer as a relation of your connection, whose time zone should be the table's; raises as above."""
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

        return dataset_of(self)

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """The answer as a Spark DataFrame; Spark itself runs the text over the surviving row groups."""
        from layoutopt.spark.session.read import scan_to_dataframe

        return scan_to_dataframe(spark, self)

    def _engine_query(self, prefix: str = "_layoutopt_", keep: bool = False) -> EngineQuery:
        # Only now: DuckDB and the typing of whole texts take longer to import than pruning takes.
        from layoutopt.scan.engine import EngineQuery, Source
        from layoutopt.sql.duckdb.translate import portable_sql

        views = {read.start: f"{prefix}{index}" for index, read in enumerate(self.reads)}
        zone = self.table.settings.time_zone
        portable = portable_sql(self.sql, {self.table.name: self.table.schema}, views, zone)
        sources = tuple(Source(views[read.start], read.arrow_schema(), read.batches) for read in self.reads)
        return EngineQuery(portable.sql, portable.columns, sources, zone, portable.is_flat and not keep)


def merge_mentions(scans: Sequence[TableScan]) -> list[TableScan]:
    """Scans with one item for each mention of a table, in the order of the text.

    A mention inside a CTE that is used several times is scanned several times, perhaps under different filters: one
    reading then serves all, with the columns of all and the rows of any.
    """
    merged: dict[tuple[int, int] | None, TableScan] = {}
    for scan in sorted(scans, key=lambda scan: scan.span or (-1, -1)):
        other = merged.get(scan.span)
        merged[scan.span] = scan if other is None else _merge(other, scan)
    return list(merged.values())


def _merge(first: TableScan, second: TableScan) -> TableScan:
    return replace(
        first,
        columns=tuple(dict.fromkeys((*first.columns, *second.columns))),
        filter=Filter.of(disjunction([first.filter.root, second.filter.root])),
        unusable=tuple(dict.fromkeys((*first.unusable, *second.unusable))),
    )


def segments_to_read(pruned: PrunedPlan) -> list[SegmentRead]:
    """The surviving row groups of a plan's blocks, by segment, layout and file."""
    source, blocks = pruned.source, pruned.source.blocks
    chosen = np.flatnonzero(pruned.read)
    order = chosen[np.lexsort((blocks.row_group[chosen], blocks.file[chosen], source.segment_of[chosen]))]
    segments = []
    for members in _runs(order, source.segment_of[order]):
        first = members[0]
        layouts = [_layout_read(pruned, members, index) for index in range(len(pruned.choice))]
        partition = source.entries[source.entry_of[first]].key
        segments.append(SegmentRead(partition, int(blocks.segment[first]), tuple(layouts)))
    return segments


def _layout_read(pruned: PrunedPlan, members: Any, index: int) -> LayoutRead:
    blocks, choice = pruned.source.blocks, pruned.choice[index]
    mine = members[blocks.layout[members] == choice.layout]
    files = tuple(
        FileRead(
            blocks.files[blocks.file[run[0]]],
            tuple(blocks.row_group[run].tolist()),
            tuple(blocks.rows[run].tolist()),
            blocks.footers[blocks.file[run[0]]],
        )
        for run in _runs(mine, blocks.file[mine])
    )
    return LayoutRead(choice.layout, choice.columns, files)


def _runs(values: Any, labels: Any) -> list[Any]:
    """``values`` cut where ``labels`` (equally long) change."""
    if not len(values):
        return []
    return np.split(values, np.flatnonzero(labels[1:] != labels[:-1]) + 1)


def _with_field(schema: pa.Schema, field: pa.Field) -> pa.Schema:
    return schema.set(schema.get_field_index(field.name), pa.field(field.name, field.type))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
