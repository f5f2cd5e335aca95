"""Read Parquet files by DuckDB: the second reader that proves what Arrow read and wrote."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from layoutopt.catalog.load_check import Content
from layoutopt.catalog.partition_names import PlainValue
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import NeedsSparkError
from layoutopt.indexes.murmur3 import hash_words
from layoutopt.model.arrays import Hashes
from layoutopt.model.schema import Column, Schema
from layoutopt.model.types import double_quote_name
from layoutopt.sources.parquet_files import arrow_schema, cast_columns, plain_type
from layoutopt.sources.splits import LocalFile
from layoutopt.writer.checksum import value_hashes

if TYPE_CHECKING:
    import duckdb

_ROWS_AT_ONCE: Final = 1 << 16


def sum_rows(batches: Iterable[pa.Table], schema: Schema) -> Content:
    """Return the content of rows under a schema's columns."""
    return _sum(batches, schema, by_row=False)[0]


def sum_whole_rows(batches: Iterable[pa.Table], schema: Schema) -> tuple[Content, int]:
    """Return the content of rows, and the sum of 64-bit hashes of whole rows, in which values that swap places show."""
    return _sum(batches, schema, by_row=True)


def _sum(batches: Iterable[pa.Table], schema: Schema, by_row: bool) -> tuple[Content, int]:
    rows, sums, whole = 0, dict.fromkeys(schema.names, 0), 0
    for batch in batches:
        rows += batch.num_rows
        words: list[Hashes] = []
        for column in schema.columns:
            hashes = value_hashes(batch[column.name], column.type)
            assert hashes is not None, "tables with other columns are refused"
            sums[column.name] += int(hashes.sum(dtype=np.int64))
            if by_row:  # NULL hashes as some value does
                words += [np.asarray(batch[column.name].is_null(), dtype=np.uint32), hashes]
        if by_row:
            high, low = hash_words(words).astype(np.uint64), hash_words(words[::-1])
            whole += int(((high << np.uint64(32)) | low).sum(dtype=np.uint64))
    return Content(rows, sums), whole % (1 << 64)


def sum_written(files: TableFiles, schema: Schema, paths: Iterable[str]) -> Mapping[str, int]:
    """Return the checksums of some columns of a table's files.

    Raises:
        NeedsSparkError: the files are encrypted.
    """
    if not files.is_plain:
        raise NeedsSparkError(f"the column {schema.names[0]!r} of an encrypted table is nested")
    written = (LocalFile(Path(files.full_path(path)), None) for path in paths)
    return sum_rows((rows for file in written for rows in read_by_duckdb(file, schema)), schema).sums


def read_by_duckdb(
    file: LocalFile, schema: Schema, partition: Column | None = None, wanted: Collection[PlainValue] | None = None
) -> Iterator[pa.Table]:
    """Yield a file's rows under a schema's columns.

    Args:
        file: a file of Parquet.
        schema: the columns.
        partition: the partition column, None for none.
        wanted: the partitions whose rows are read; None for all.

    Raises:
        NeedsSparkError: DuckDB can't read the file, as where a text is no UTF-8.
    """
    import duckdb  # takes longer to import than a small file to read

    columns, folder = arrow_schema(schema), file.folder
    stored = [name for name in schema.names if folder is None or partition is None or name != partition.name]
    condition, values = "true", list[object]()
    if partition is not None and wanted is not None and folder is None:
        condition, values = _select_partitions(partition, wanted)
    elif folder is not None and wanted is not None and folder[0] not in wanted:
        return
    rows_of_file = "FROM read_parquet(?, hive_partitioning = false)"
    # DuckDB takes a path for a pattern.
    path = re.sub(r"([\[*?])", r"[\1]", str(file.path))
    try:
        with _open_database(os.getpid()).cursor() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            in_file = set(connection.sql(rows_of_file, params=[path]).columns)  # others are NULL
            names = ", ".join(double_quote_name(name) for name in stored if name in in_file) or "NULL AS none"
            relation = connection.sql(f"SELECT {names} {rows_of_file} WHERE {condition}", params=[path, *values])
            reader: pa.RecordBatchReader = relation.to_arrow_reader(_ROWS_AT_ONCE)
            for batch in reader:
                rows = pa.Table.from_batches([batch])
                if folder is not None and partition is not None and partition.name in schema.names:
                    value = pa.scalar(folder[0], plain_type(columns.field(partition.name).type))
                    rows = rows.append_column(partition.name, pa.repeat(value, rows.num_rows))
                yield cast_columns(rows, columns)
    except (duckdb.Error, pa.ArrowException, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise NeedsSparkError(
            f"DuckDB, which reads a source a second time, can't read {str(file.path)!r} ({reason})"
        ) from error


@lru_cache(maxsize=1)
def _open_database(process: int) -> duckdb.DuckDBPyConnection:
    """Open an empty database for a process's reads, which takes longer than to read a small file; it caches no file."""
    import duckdb

    return duckdb.connect(config={"threads": 1, "enable_external_file_cache": False})


def _select_partitions(partition: Column, wanted: Collection[PlainValue]) -> tuple[str, list[object]]:
    """Return DuckDB's condition for the rows of some partitions, and its parameters."""
    name, known = double_quote_name(partition.name), [value for value in wanted if value is not None]
    value = "DATE '1970-01-01' + CAST(? AS INTEGER)" if partition.type == "date" else "?"
    tests = [f"{name} IN ({', '.join([value] * len(known))})"] if known else []
    tests += [f"{name} IS NULL"] if len(known) < len(wanted) else []
    return " OR ".join(tests) or "false", list(known)
