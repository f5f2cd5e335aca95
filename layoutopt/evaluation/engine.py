"""Run SQL on the embedded engine: DuckDB over the surviving row groups as Arrow.

Only texts that mean the same in DuckDB as in Spark are run (``sql.duckdb.translate``). Answers have Spark's types.
Every mention of the table reads a view of its own, so that each scan skips by its own filter.
"""

from __future__ import annotations

import atexit
import datetime as dt
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from duckdb.func import FunctionNullHandling, PythonUDFType

from layoutopt.errors import LayoutoptError, QueryError, decode_error
from layoutopt.evaluation.arrow_types import any_arrow_type, conform, empty_table
from layoutopt.evaluation.keys import one_chunk
from layoutopt.model.schema import Column
from layoutopt.model.types import double_quote_name
from layoutopt.sql.duckdb.expressions import PortableFunction
from layoutopt.sql.schema import is_stand_in, plain_name


@dataclass(frozen=True)
class EngineView:
    """The content of one view: a schema, and a function that returns its batches and can be called repeatedly."""

    view: str
    schema: pa.Schema
    batches: Callable[[], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class EngineQuery:
    """A text in DuckDB's dialect, the views that it reads, and the answer's columns in Spark's types.

    ``streams``: every view is read exactly once, so that batches need not be kept. ``uses_times``: the text computes
    something of dates or times, which DuckDB does in the years 1 to 9999 alone as Spark does.
    """

    sql: str
    columns: tuple[Column, ...]
    sources: tuple[EngineView, ...]
    time_zone: str
    streams: bool
    functions: tuple[PortableFunction, ...] = ()
    uses_times: bool = False


class _Failures:
    """Keeps the first error of a stream that DuckDB reads, since DuckDB would raise it as its own."""

    def __init__(self) -> None:
        self.first: LayoutoptError | None = None

    def watch(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the same batches and keep the first error."""
        try:
            yield from batches
        except LayoutoptError as error:
            self.first = self.first or error
            raise


def run(query: EngineQuery, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the answer in batches; raise QueryError if DuckDB fails, for example by an overflow that Spark has not."""
    with _execute(query) as result:
        for batch in result.to_arrow_reader(batch_rows):
            yield _to_spark_types(batch.columns, batch.num_rows, query.columns)


def answer(query: EngineQuery) -> pa.Table:
    """Return the whole answer, which DuckDB collects with all its threads; raises as :func:`run`."""
    with _execute(query) as result:
        batches = result.to_arrow_table().to_batches()
        converted = [_to_spark_types(batch.columns, batch.num_rows, query.columns) for batch in batches]
        return pa.Table.from_batches(converted) if converted else empty_table(query.columns)


@contextmanager
def _execute(query: EngineQuery) -> Iterator[duckdb.DuckDBPyRelation]:
    """Yield the answer as DuckDB's relation and translate failures."""
    failures = _Failures()
    # User-defined functions get a database of their own: a shared one would keep them until Python exits.
    is_user_defined = any(function.column_type is None for function in query.functions)
    opened = _open(query.time_zone) if is_user_defined else connect(query.time_zone, query.functions)
    with opened as connection:
        try:
            register(connection, query, failures, define=is_user_defined)
            yield connection.sql(query.sql)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            if failures.first is not None:
                raise failures.first from error
            raise _to_query_error(error) from error


_DATABASES: Final[dict[tuple[int, str], duckdb.DuckDBPyConnection]] = {}
_OPEN_LOCK: Final = threading.RLock()


@atexit.register
def _close_databases() -> None:
    """Close the databases, which otherwise report their functions as leaked when Python exits."""
    for database in _DATABASES.values():
        database.close()
    _DATABASES.clear()


# Result types that may be NaN, which DuckDB converts to NULL if a function returns it for a single row.
_FLOATING: Final = {"FLOAT": pa.float32(), "DOUBLE": pa.float64()}


def connect(time_zone: str, functions: Sequence[PortableFunction] = ()) -> duckdb.DuckDBPyConnection:
    """Connect to an in-memory DuckDB whose sessions have that time zone; close the connection after use.

    A process has one database per zone, since opening one takes longer than many queries. Connections don't see each
    other's views, tables and settings. Raises QueryError if DuckDB does not know the zone.
    """
    key = (os.getpid(), time_zone)  # a fork does not copy DuckDB's threads
    with _OPEN_LOCK:
        if key not in _DATABASES:
            _DATABASES[key] = _open(time_zone)
        for function in functions:
            _define_function(_DATABASES[key], function)  # DuckDB frees those of a cursor when it closes
        return _DATABASES[key].cursor()


def _open(time_zone: str) -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    try:
        database.execute("SET GLOBAL TimeZone = ?", [time_zone])
    except duckdb.Error as error:
        database.close()
        raise QueryError(
            f"DuckDB does not know the time zone {time_zone!r}; run the query with --engine spark"
        ) from error
    return database


def register(
    connection: duckdb.DuckDBPyConnection, query: EngineQuery, failures: _Failures | None = None, define: bool = True
) -> None:
    """Register a query's views with a connection; each is streamed, or kept as a table if it may be read twice.

    ``define`` also registers its functions.
    """
    failures = failures or _Failures()
    if define:
        for function in query.functions:
            _define_function(connection, function)
    for source in query.sources:
        batches = map(_check_times, source.batches()) if query.uses_times else source.batches()
        reader = _rename_columns(source.schema, failures.watch(batches))
        connection.register(source.view, reader if query.streams else reader.read_all())


_FIRST_TIME: Final = dt.datetime(1, 1, 1)
_LAST_TIME: Final = dt.datetime.max


def _check_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch; raise QueryError for dates and times of other years, which DuckDB may take for infinity."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not pa.types.is_date(field.type) and not pa.types.is_timestamp(field.type):
            continue
        is_date = pa.types.is_date(field.type)
        low, high = (
            pa.scalar(end.date() if is_date else end, pa.date32() if is_date else pa.timestamp("us")).cast(field.type)
            for end in (_FIRST_TIME, _LAST_TIME)
        )
        if pc.any(pc.or_(pc.less(column, low), pc.greater(column, high))).as_py():
            raise QueryError(
                f"{field.name!r} has values outside the years 1 to 9999, which DuckDB may compute differently; run the "
                "query with --engine spark"
            )
    return batch


def _define_function(connection: duckdb.DuckDBPyConnection, function: PortableFunction) -> None:
    """Register a function with the connection's database, once: its name identifies its code and types."""
    handling = FunctionNullHandling.SPECIAL  # the function sees NULL, as in Spark
    call, kind = function.call, PythonUDFType.NATIVE
    if function.column_type is not None:
        call, kind = _to_column(call, function.column_type), PythonUDFType.ARROW
    elif function.returns in _FLOATING:
        call, kind = _vectorise(call, _FLOATING[function.returns]), PythonUDFType.ARROW
    with _OPEN_LOCK, suppress(duckdb.CatalogException, duckdb.NotImplementedException):
        connection.create_function(
            function.name, call, [*function.parameters], function.returns, null_handling=handling, type=kind
        )


def _to_column(function: Callable[..., Any], type: str) -> Callable[..., pa.Array]:
    """Return a function of columns whose values become a column of a Spark type."""
    stored = {"date": pa.int32(), "timestamp": pa.int64(), "timestamp_ntz": pa.int64()}

    @wraps(function)
    def call(*columns: pa.ChunkedArray) -> pa.Array:
        wanted, values = any_arrow_type(type), function(*columns)
        if isinstance(values, list):
            values = pa.array(values, stored.get(type, wanted))
        return one_chunk(values.cast(wanted))

    return call


def _vectorise(function: Callable[..., Any], type: pa.DataType) -> Callable[..., pa.Array]:
    """Return a function of columns for one of values, since DuckDB keeps NaN only from functions of columns."""

    @wraps(function)  # DuckDB counts the parameters
    def call(*columns: pa.ChunkedArray) -> pa.Array:
        return pa.array(list(map(function, *(column.to_pylist() for column in columns))), type)

    return call


def _rename_columns(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    names = [plain_name(name) for name in schema.names]
    plain = pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
    return pa.RecordBatchReader.from_batches(plain, (batch.rename_columns(names) for batch in batches))


def relation(connection: duckdb.DuckDBPyConnection, query: EngineQuery) -> duckdb.DuckDBPyRelation:
    """Return the answer as a relation of the caller's connection; its views stay registered. Raises as :func:`run`."""
    register(connection, query)
    try:
        answer = connection.sql(query.sql)
        # DuckDB has no empty names: such a column keeps its stand-in.
        names = [column.name or plain_name(column.name) for column in query.columns]
        renamed = len({name.lower() for name in names}) == len(names) or any(map(is_stand_in, answer.columns))
        if answer.columns == names or not renamed:
            return answer
        return connection.sql(f"SELECT * FROM ({query.sql}) AS answer({', '.join(map(double_quote_name, names))})")
    except duckdb.Error as error:
        raise _to_query_error(error) from error


def _to_query_error(error: Exception) -> LayoutoptError:
    function_error = decode_error(str(error))  # raised by a user-defined function
    if function_error is not None:
        return function_error
    cause = " ".join(str(error).split())[:200]
    return QueryError(f"DuckDB could not answer the query ({cause}); run it with --engine spark")


def _to_spark_types(arrays: Sequence[pa.Array], rows: int, columns: Sequence[Column]) -> pa.RecordBatch:
    if not arrays:
        return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["_rows"])
    return pa.RecordBatch.from_arrays(conform(arrays, columns), names=[column.name for column in columns])
