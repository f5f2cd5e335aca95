"""Delete, update and merge rows without Spark: Arrow reads the rows, and DuckDB evaluates expressions on them.

Only expressions that mean the same to DuckDB as to Spark are evaluated (:mod:`layoutopt.evaluation.conditions`), of
tables whose plans need nothing else of Spark. Everything else raises NeedsSparkError before anything is written. The
rows that change, and those of partitions that are rewritten, are held in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.deletion_vectors import pack_positions
from layoutopt.catalog.load_check import Content, check_content
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.partition_names import PlainValue
from layoutopt.changes.affected_rows import (
    AffectedRows,
    SegmentRows,
    TableChange,
    list_segments,
    null_key_error,
    unite_content,
)
from layoutopt.errors import NeedsSparkError, NotATableError, QueryError, SchemaError, SourceError
from layoutopt.evaluation.arrow_types import any_arrow_type
from layoutopt.evaluation.conditions import can_match, evaluate_conditions, evaluate_expressions, values_query
from layoutopt.evaluation.keys import key_array
from layoutopt.external.external_tables import open_snapshot, pin_version
from layoutopt.external.formats import PARQUET, parse_table_name
from layoutopt.external.source_check import compare_columns
from layoutopt.inspect.status import current_plan
from layoutopt.loading.local_source import check_plan, check_settings
from layoutopt.loading.partition_rows import rows_in_memory
from layoutopt.model.arrays import Bits
from layoutopt.model.predicates import FALSE, Col, Filter, InSet, Node, conjunction
from layoutopt.model.requests import MergeRequest
from layoutopt.model.schema import Column, Schema
from layoutopt.model.types import decimal_digits, type_sql
from layoutopt.model.values import ValueSet
from layoutopt.model.values.keys import successor
from layoutopt.scan.read import read_segments
from layoutopt.scan.table import Table, open_own_table, plan_read
from layoutopt.scan.table_read import TableRead
from layoutopt.sources.executor import Executor, Processes
from layoutopt.sources.listing import list_source_files
from layoutopt.sources.parquet_files import resolve_local_path
from layoutopt.sources.second_reader import sum_rows
from layoutopt.sources.source import Source, list_versions, open_files, read_entries
from layoutopt.sources.split import arrow_schema, encode_partitions
from layoutopt.sql.expression_check import find_plain_columns
from layoutopt.sql.scans import TableScan
from layoutopt.sql.schema import read_files_schema

# With more distinct values of a merge's key, blocks are skipped by their range.
_MOST_VALUES: Final = 1_000
# Key types besides decimals of which Arrow joins equal values alone, as Spark does.
_KEY_TYPES: Final = frozenset({"tinyint", "smallint", "int", "bigint", "date", "string", "timestamp", "timestamp_ntz"})
# Those of them by whose values blocks are skipped.
_SKIPPING_TYPES: Final = _KEY_TYPES - {"timestamp", "timestamp_ntz"}
_PLACE: Final = "_w_place"


def open_without_spark(most_rows: int | None, path: str, check: Callable[[Table], None]) -> ArrowChange:
    """Open a table to be changed, at its newest snapshot, once ``check`` has checked the change.

    Raises:
        NeedsSparkError: table or plan need Spark.
        NotATableError: there is no table, or it has no plan.
    """
    table = open_own_table(path)
    check(table)
    if not table.catalog.plans:
        raise NotATableError(f"the table at {path!r} has no plan yet; run `layoutopt load` first")
    plan = current_plan(table.catalog)
    check_plan(plan)
    for known in table.catalog.plans.values():
        check_settings(known)
    if not table.catalog.files.is_plain:
        raise NeedsSparkError("the table is encrypted")
    if set(table.schema.names) != set(plan.schema.names):
        raise NeedsSparkError("the table has columns that its newest plan lacks")
    return ArrowChange(path, table, plan, most_rows)


@dataclass(frozen=True, eq=False)
class ArrowChange(TableChange[pa.Table]):
    """A table whose rows Arrow reads and DuckDB evaluates.

    Attributes:
        most_rows: the most rows to read; None for no limit.
    """

    most_rows: int | None = None

    @property
    def executor(self) -> Executor:
        """Return this process."""
        return Processes(1)

    def read(self, entries: Sequence[PartitionEntry]) -> pa.Table:
        """Return the live rows of some entries."""
        self._check_count(sum(entry.live_rows for entry in entries))
        schema = arrow_schema(self.table.schema)
        return pa.Table.from_batches([batch.cast(schema) for batch in read_entries(self.table, entries)], schema)

    def _check_count(self, rows: int) -> None:
        if self.most_rows is not None and rows > self.most_rows:
            raise NeedsSparkError(f"{rows} rows are to be read")

    def list_values(self, rows: pa.Table) -> tuple[PlainValue, ...]:
        """Return the distinct values of the partition column in some rows; (None,) without partitions."""
        if self.plan.partition_by is None:
            return (None,)
        return tuple(encode_partitions(rows, self.plan.partition_by).dictionary.to_pylist())

    def measure(self, rows: pa.Table, name: str) -> Content:
        """Return the content of rows."""
        return sum_rows([rows], self.plan.schema)

    def compute(self, rows: pa.Table) -> pa.Table:
        """Return the rows."""
        return rows

    def find(self, where: str, *, locate: bool) -> AffectedRows[pa.Table]:
        """Return the rows for which a condition is TRUE, with their positions."""
        test = _Condition.of(self.table.schema, where, self.plan.settings.time_zone)
        try:
            reads = self.table.scan(where=f"({where}\n)").reads
        except QueryError as error:
            raise NeedsSparkError(str(error)) from error
        read = reads[0] if reads else self._plan_read(FALSE)
        return self._locate(read, test.matches)

    def _plan_read(self, root: Node) -> TableRead:
        table = self.table
        return plan_read(table, TableScan(table.name, table.name, table.schema.names, Filter.of(root)), table.settings)

    def _locate(self, read: TableRead, matches: Callable[[pa.Table], Bits]) -> AffectedRows[pa.Table]:
        """Return the rows of a read of all columns that match."""
        self._check_count(sum(segment.live_rows for segment in read.segments))
        schema, located = self.table.schema, list[SegmentRows]()
        parts = [arrow_schema(schema).empty_table()]
        for segment in list_segments(read):
            stored = pa.schema([*arrow_schema(schema), (segment.position.name, pa.int64())])
            columns = [*schema.columns, segment.position]
            batches = read_segments(self.table.catalog.files, [segment.read], columns, condition=read.scan.filter.root)
            rows = pa.Table.from_batches([batch.cast(stored) for batch in batches], stored)
            rows = rows.filter(pa.array(matches(rows)))
            if rows.num_rows:
                places = pack_positions(np.asarray(rows[segment.position.name]))
                parts.append(rows.select(list(schema.names)))
                sums = sum_rows([parts[-1]], schema).sums
                located.append(replace(segment, rows=rows.num_rows, places=places, sums=sums))
        return AffectedRows(pa.concat_tables(parts), unite_content(located, schema.names), located)

    def exclude(self, rows: pa.Table, where: str) -> pa.Table:
        """Return the rows for which a condition is not TRUE."""
        test = _Condition.of(self.table.schema, where, self.plan.settings.time_zone)
        return rows.filter(pa.array(~test.matches(rows)))

    def parse_assignments(self, assignments: Mapping[str, str]) -> Callable[[pa.Table, str | None], pa.Table]:
        """Return a function of rows and a condition, which assigns new values where it is TRUE."""
        schema, zone = self.table.schema, self.plan.settings.time_zone
        columns = {name: _find_columns(value, schema) for name, value in assignments.items()}
        texts = [f"CAST(({value}\n) AS {type_sql(schema.find(name).type)})" for name, value in assignments.items()]
        needed = Schema(tuple(column for column in schema.columns if any(column in used for used in columns.values())))
        try:
            values_query(needed, tuple(texts), zone)
        except QueryError as error:
            raise NeedsSparkError(str(error)) from error

        def assign(rows: pa.Table, where: str | None) -> pa.Table:
            mask = np.ones(rows.num_rows, dtype=np.bool_)
            if where is not None:
                mask = _Condition.of(schema, where, zone).matches(rows)
            if not mask.any():
                return rows
            some = _select_readable(rows.filter(pa.array(mask)), needed)
            try:
                values = evaluate_expressions(needed, texts, some, zone)
            except QueryError as error:
                raise NeedsSparkError(str(error)) from error
            for name, column in zip(assignments, values.columns, strict=True):
                type = any_arrow_type(schema.find(name).type)
                old, new = rows[name].combine_chunks(), column.combine_chunks().cast(type)
                place = rows.schema.get_field_index(name)
                rows = rows.set_column(place, name, pc.replace_with_mask(old, pa.array(mask), new))
            return rows

        return assign

    def read_source(self, request: MergeRequest) -> tuple[pa.Table, pa.Table]:
        """Return the rows of a merge's source, and those of them that the table is to have afterwards."""
        name, plan = pin_version(request.source), self.plan
        schema = plan.schema if request.delete_when is None else _read_source_schema(name, plan.schema)
        by = plan.partition_by and schema.find(plan.partition_by).name
        source = open_files(name, list_versions(name, list_source_files(name, schema, by)), schema, by, self.executor)
        self._check_count(sum(source.partition_rows.values()))
        parts = [rows for split, _ in source.splits for rows, _ in split.read_rows(schema, schema.names)]
        rows = pa.concat_tables(
            [arrow_schema(schema).empty_table(), *(part.cast(arrow_schema(schema)) for part in parts)]
        )
        check_content(source.sum(), sum_rows([rows], schema), repr(name))
        upserts = rows
        if request.delete_when is not None:
            test = _Condition.of(schema, request.delete_when, plan.settings.time_zone, "--delete-when")
            upserts = rows.filter(pa.array(~test.matches(rows)))
        names = [schema.find(column).name for column in plan.schema.names]
        renamed = (part.select(names).rename_columns(list(plan.schema.names)) for part in (rows, upserts))
        all_rows, kept = renamed
        return all_rows, kept

    def find_repeated_key(self, rows: pa.Table, keys: Sequence[str], source: str) -> tuple[object, ...] | None:
        """Return a key that several rows of a source have, followed by their number; None if there is none."""
        for key in keys:
            type = self.plan.schema.find(key).type
            if type not in _KEY_TYPES and decimal_digits(type) is None:
                raise NeedsSparkError(f"the key column {key!r} is {type}")
        if any(rows[key].null_count for key in keys):
            raise null_key_error(source, keys)
        counts = rows.group_by(list(keys)).aggregate([([], "count_all")])
        repeated = counts.filter(pc.greater(counts["count_all"], 1)).slice(0, 1)
        return (
            (*(repeated[key][0].as_py() for key in keys), repeated["count_all"][0].as_py()) if len(repeated) else None
        )

    def find_keys(self, source: pa.Table, keys: Sequence[str]) -> AffectedRows[pa.Table]:
        """Return the table's rows with a key of a source, and their positions."""
        nodes = [node for key in keys if (node := self._key_condition(source, key)) is not None]
        return self._locate(self._plan_read(conjunction(nodes)), lambda rows: _has_key(rows, source, keys))

    def _key_condition(self, source: pa.Table, key: str) -> Node | None:
        """Return a condition that is TRUE for each row with a key of the source, by which blocks are skipped."""
        type = self.plan.schema.find(key).type
        if type not in _SKIPPING_TYPES:
            return None
        values = source[key].combine_chunks().unique()
        _validate(pa.table({key: values}))
        points = sorted(key_array(values, type).tolist())
        if len(points) > _MOST_VALUES:
            chosen = ValueSet.interval(points[0], successor(points[-1]))
        else:
            chosen = ValueSet.of(points)
        return InSet(Col(key, type), chosen) if points else FALSE

    def select_keys(self, rows: pa.Table, others: pa.Table, keys: Sequence[str], *, present: bool) -> pa.Table:
        """Return the rows with a key that other rows have, or (not ``present``) that these lack."""
        return rows.filter(pa.array(_has_key(rows, others, keys) == present))

    def unite(self, rows: pa.Table, others: pa.Table) -> pa.Table:
        """Return the rows of both."""
        names = list(self.plan.schema.names)
        return pa.concat_tables([rows.select(names), others.select(names)])

    def open_rows(self, rows: pa.Table, name: str) -> Source:
        """Open rows for a load by the plan."""
        return rows_in_memory(rows.select(list(self.plan.schema.names)), self.plan)

    def translate_errors(self, assignments: Sequence[str]) -> AbstractContextManager[object]:
        """Return a context that translates nothing."""
        return nullcontext()


@dataclass(frozen=True)
class _Condition:
    """A condition that DuckDB evaluates as Spark does, and the columns that it reads."""

    text: str
    schema: Schema
    time_zone: str

    @classmethod
    def of(cls, schema: Schema, text: str, time_zone: str, flag: str = "--where") -> _Condition:
        """Return a condition on some columns; raise NeedsSparkError where DuckDB may evaluate it otherwise."""
        condition = cls(f"({text}\n)", Schema(_find_columns(text, schema)), time_zone)
        if not can_match(condition.schema, condition.text, time_zone):
            raise NeedsSparkError(f"only Spark surely knows the rows of {flag} {text!r}")
        return condition

    def matches(self, rows: pa.Table) -> Bits:
        """Return the rows for which it is TRUE, bool[n]."""
        if not rows.num_rows:
            return np.zeros(0, dtype=np.bool_)
        try:
            return evaluate_conditions(self.schema, [self.text], _select_readable(rows, self.schema), self.time_zone)[0]
        except QueryError as error:
            raise NeedsSparkError(str(error)) from error


def _read_source_schema(source: str, wanted: Schema) -> Schema:
    """Return the columns of a merge's source, which has the wanted ones and perhaps others."""
    table = parse_table_name(source)
    try:
        schema = (
            read_files_schema(resolve_local_path(source), "Parquet", PARQUET.read_columns)
            if table is None
            else open_snapshot(table).schema
        )
    except (SchemaError, SourceError) as error:
        raise NeedsSparkError(str(error)) from error
    compare_columns(schema, wanted, "the table", f"the source {source!r}", more=True)
    return schema


def _find_columns(text: str, schema: Schema) -> tuple[Column, ...]:
    columns = find_plain_columns(text, schema)
    if columns is None:
        raise NeedsSparkError(f"{text!r} is not an expression of columns alone")
    return columns


def _select_readable(rows: pa.Table, schema: Schema) -> pa.Table:
    """Return the columns of a schema; raise NeedsSparkError for a text that is no UTF-8."""
    return _validate(rows.select(list(schema.names)))


def _validate(rows: pa.Table) -> pa.Table:
    try:
        rows.validate(full=True)
    except pa.ArrowInvalid as error:
        raise NeedsSparkError(f"a text is no UTF-8 ({error})") from error
    return rows


def _has_key(rows: pa.Table, others: pa.Table, keys: Sequence[str]) -> Bits:
    """Return which rows have a key that other rows have, bool[n]; NULL equals nothing."""
    numbered = rows.select(list(keys)).append_column(_PLACE, pa.array(np.arange(rows.num_rows)))
    places = numbered.join(others.select(list(keys)), list(keys), join_type="left semi")[_PLACE]
    mask = np.zeros(rows.num_rows, dtype=np.bool_)
    mask[np.asarray(places)] = True
    return mask
