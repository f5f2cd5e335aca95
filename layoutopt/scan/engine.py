"""The embedded engine: DuckDB over the surviving row groups as Arrow.

Only texts that mean the same to DuckDB as to Spark are run (``sql.duckdb.translate``); answers come back in
Spark's types. Every mention of the table reads a view of its own, so that each scan skips by its own filter.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Final

import duckdb
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType

from layoutopt.errors import LayoutoptError, QueryError, recovered
from layoutopt.model.schema import Column
from layoutopt.model.types import double_quoted
from layoutopt.scan.arrow_types import conform, empty_table
from layoutopt.scan.table_read import TableRead
from layoutopt.sql.duckdb.expressions import PortableFunction
from layoutopt.sql.schema import is_stand_in, plain_name


@dataclass(frozen=True)
class Source:
    """What one view holds: a schema, and batches that can be asked for as often as needed."""

    view: str
    schema: pa.Schema
    batches: Callable[[], Iterator[pa.RecordBatch]]


def source_of(view: str, read: TableRead) -> Source:
    """What a mention of a table reads, under the name of a view: texts as dictionaries where all files have them so."""
    coded = read.coded
    return Source(view, read.arrow_schema(coded), partial(read.batches, coded=coded))


@dataclass(frozen=True)
class EngineQuery:
    """A text in DuckDB's dialect with the views it reads and the answer's columns in Spark's types.

    ``streams``: every view is read exactly once, so that batches can flow through without being kept. ``functions``:
    the user's functions that the text calls.
    """

    sql: str
    columns: tuple[Column, ...]
    sources: tuple[Source, ...]
    time_zone: str
    streams: bool
    functions: tuple[PortableFunction, ...] = ()


class _Failures:
    """Remembers the error of a stream that DuckDB pulls from, which would reach us as DuckDB's own."""

    def __init__(self) -> None:
        self.first: LayoutoptError | None = None

    def watch(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches; an error of ours is kept before it passes on."""
        try:
            yield from batches
        except LayoutoptError as error:
            self.first = self.first or error
            raise


def run(query: EngineQuery, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The answer, in batches of about ``batch_rows`` rows.

    Raises:
        QueryError: DuckDB gave up on the text (for example an overflow); Spark may do better.
        DataFileError: a data file is missing or damaged.
    """
    with _answering(query) as found:
        for batch in found.to_arrow_reader(batch_rows):
            yield _in_spark_types(batch.columns, batch.num_rows, query.columns)


def answer(query: EngineQuery) -> pa.Table:
    """The whole answer, which DuckDB collects with all its threads; raises as :func:`run`."""
    with _answering(query) as found:
        batches = found.to_arrow_table().to_batches()
        return (
            pa.Table.from_batches([_in_spark_types(batch.columns, batch.num_rows, query.columns) for batch in batches])
            if batches
            else empty_table(query.columns)
        )


@contextmanager
def _answering(query: EngineQuery) -> Iterator[duckdb.DuckDBPyRelation]:
    """The answer as DuckDB's own, before anything is computed; failures are ours."""
    failures = _Failures()
    # Python's functions belong to a database of their own: one that lives on would keep them as Python ends.
    with _open(query.time_zone) if query.functions else connect(query.time_zone) as connection:
        try:
            register(connection, query, failures)
            yield connection.sql(query.sql)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            if failures.first is not None:
                raise failures.first from error
            raise _gave_up(error) from error


_DATABASES: Final[dict[tuple[int, str], duckdb.DuckDBPyConnection]] = {}
_OPENING: Final = threading.Lock()
_FLOATING: Final = {"FLOAT": pa.float32(), "DOUBLE": pa.float64()}
"""Types of results that may be NaN, which DuckDB takes for NULL where a function gives it for one row."""


def connect(time_zone: str) -> duckdb.DuckDBPyConnection:
    """A connection to an in-memory DuckDB whose sessions have that time zone; close it after use.

    There is one for each zone in a process: opening one takes longer than many queries. Views, tables and settings of
    one connection are not seen by others.

    Raises:
        QueryError: DuckDB does not know the zone.
    """
    key = (os.getpid(), time_zone)  # its threads are not there after a fork
    with _OPENING:
        if key not in _DATABASES:
            _DATABASES[key] = _open(time_zone)
        return _DATABASES[key].cursor()


def _open(time_zone: str) -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    try:
        database.execute("SET GLOBAL TimeZone = ?", [time_zone])
    except duckdb.Error as error:
        database.close()
        raise QueryError(
            f"the time zone {time_zone!r} is unknown to DuckDB; run the query with --engine spark"
        ) from error
    return database


def register(connection: duckdb.DuckDBPyConnection, query: EngineQuery, failures: _Failures | None = None) -> None:
    """Makes a query's views known to a connection; each streams, or is kept as a table where it may be read twice."""
    watched = failures or _Failures()
    for function in query.functions:
        _define(connection, function)
    for source in query.sources:
        reader = _plainly_named(source.schema, watched.watch(source.batches()))
        connection.register(source.view, reader if query.streams else reader.read_all())


def _define(connection: duckdb.DuckDBPyConnection, function: PortableFunction) -> None:
    """Makes a function known to the connection's whole database, once: its name says which code and types it has."""
    handling = FunctionNullHandling.SPECIAL  # the function sees NULL, as in Spark
    call: Callable[..., Any] = function.udf.checked()
    kind = PythonUDFType.NATIVE
    if function.returns in _FLOATING:
        call, kind = _on_arrays(call, _FLOATING[function.returns]), PythonUDFType.ARROW
    with _OPENING, suppress(duckdb.CatalogException, duckdb.NotImplementedException):
        connection.create_function(
            function.name, call, [*function.parameters], function.returns, null_handling=handling, type=kind
        )


def _on_arrays(function: Callable[..., Any], type: pa.DataType) -> Callable[..., pa.Array]:
    """A function of values as one of columns, whose NaN DuckDB keeps; NaN of a function of values is NULL to it."""

    @wraps(function)  # DuckDB counts the parameters
    def of_columns(*columns: pa.ChunkedArray) -> pa.Array:
        return pa.array(list(map(function, *(column.to_pylist() for column in columns))), type)

    return of_columns


def _plainly_named(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    names = [plain_name(name) for name in schema.names]
    plain = pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
    return pa.RecordBatchReader.from_batches(plain, (batch.rename_columns(names) for batch in batches))


def relation(connection: duckdb.DuckDBPyConnection, query: EngineQuery) -> duckdb.DuckDBPyRelation:
    """The answer as a relation of the caller's connection; its views stay registered there as Arrow tables.

    Raises:
        QueryError: DuckDB gave up on the text.
        DataFileError: a data file is missing or damaged.
    """
    register(connection, query)
    try:
        answer = connection.sql(query.sql)
        # DuckDB has no empty names: such a column keeps its stand-in.
        given = [column.name or plain_name(column.name) for column in query.columns]
        renamed = len({name.lower() for name in given}) == len(given) or any(map(is_stand_in, answer.columns))
        if answer.columns == given or not renamed:
            return answer
        names = ", ".join(map(double_quoted, given))
        return connection.sql(f"SELECT * FROM ({query.sql}) AS answer({names})")
    except duckdb.Error as error:
        raise _gave_up(error) from error


def _gave_up(error: Exception) -> LayoutoptError:
    ours = recovered(str(error))  # a function of the user's failed
    if ours is not None:
        return ours
    cause = " ".join(str(error).split())[:200]
    return QueryError(f"DuckDB could not answer the query ({cause}); run it with --engine spark")


def _in_spark_types(arrays: Sequence[pa.Array], rows: int, columns: Sequence[Column]) -> pa.RecordBatch:
    schema_names = [column.name for column in columns]
    if not arrays:
        return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["_rows"])
    return pa.RecordBatch.from_arrays(conform(arrays, columns), names=schema_names)
