"""Read Parquet files by DuckDB: the second reader that proves what Arrow read and wrote."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from layoutopt.catalog.load_check import Content
from layoutopt.catalog.partition_names import PlainValue
from layoutopt.catalog.storage.filesystem import TableFiles, is_url
from layoutopt.errors import NeedsSparkError
from layoutopt.evaluation.checksum import value_hashes
from layoutopt.evaluation.murmur3 import hash_words
from layoutopt.external.listing import UNNAMED
from layoutopt.external.snapshot import SnapshotFile
from layoutopt.external.source_files import file_of_source, stored_names, to_source_columns
from layoutopt.model.arrays import Hashes
from layoutopt.model.schema import Column, Schema
from layoutopt.model.types import double_quote_name
from layoutopt.sources.split import partition_value

if TYPE_CHECKING:
    import duckdb

_ROWS_AT_ONCE: Final = 1 << 16
_ROW_NUMBER: Final = "file_row_number"


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
    written = (SnapshotFile(files.full_path(path), UNNAMED) for path in paths)
    return sum_rows((rows for file in written for rows in read_by_duckdb(file, schema)), schema).sums


def read_by_duckdb(
    file: SnapshotFile,
    schema: Schema,
    names: Sequence[str] | None = None,
    partition: Column | None = None,
    wanted: Collection[PlainValue] | None = None,
) -> Iterator[pa.Table]:
    """Yield a file's live rows.

    Args:
        file: a file of Parquet.
        schema: the columns of its source.
        names: those that are read; None for all.
        partition: the partition column, None for none.
        wanted: the partitions whose rows are read; None for all.

    Raises:
        NeedsSparkError: DuckDB can't read the file, as where a text is no UTF-8.
    """
    import duckdb  # takes longer to import than a small file to read

    names = schema.names if names is None else names
    numbered, numbers = ("", ()) if file.deleted is None else (", file_row_number = true", (_ROW_NUMBER,))
    source = f"FROM read_parquet(?, hive_partitioning = false{numbered})"
    try:
        with _local_pattern(file, schema) as path, _open_database(os.getpid()).cursor() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            in_file = [name for name in connection.sql(source, params=[path]).columns if name not in numbers]
            stored = stored_names(file, schema, in_file)  # others are NULL
            condition, values = "true", list[object]()
            if partition is not None and wanted is not None:
                if partition.name in stored:
                    condition, values = _select_partitions(stored[partition.name], partition.type, wanted)
                elif (partition_value(file, schema, partition.name) or (None,))[0] not in wanted:
                    return
            read = [double_quote_name(stored[name]) for name in names if name in stored]
            columns = ", ".join([*read, *numbers]) or "NULL AS none"
            relation = connection.sql(f"SELECT {columns} {source} WHERE {condition}", params=[path, *values])
            reader: pa.RecordBatchReader = relation.to_arrow_reader(_ROWS_AT_ONCE)
            for batch in reader:
                rows = pa.Table.from_batches([batch])
                if file.deleted is not None:
                    rows = rows.filter(pa.array(~np.isin(np.asarray(rows[_ROW_NUMBER]), file.deleted)))
                yield to_source_columns(rows, schema, names, stored, file.constants)
    except (duckdb.Error, pa.ArrowException, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise NeedsSparkError(
            f"DuckDB, which reads a source a second time, can't read {file.path!r} ({reason})"
        ) from error


@contextmanager
def _local_pattern(file: SnapshotFile, schema: Schema) -> Iterator[str]:
    """Yield a pattern of DuckDB that matches a local file alone: a copy of one in a store, all of which is read."""
    if is_url(file.path):
        with TemporaryDirectory() as folder:
            copy = Path(folder, "rows.parquet")
            file_of_source(file, schema).download(file.path, copy)
            yield str(copy)
    else:
        yield re.sub(r"([\[*?])", r"[\1]", file.path)


@lru_cache(maxsize=1)
def _open_database(process: int) -> duckdb.DuckDBPyConnection:
    """Open an empty database for a process's reads, which takes longer than to read a small file; it caches no file."""
    import duckdb

    return duckdb.connect(config={"threads": 1, "enable_external_file_cache": False})


def _select_partitions(name: str, type: str, wanted: Collection[PlainValue]) -> tuple[str, list[object]]:
    """Return DuckDB's condition for the rows of some partitions, and its parameters."""
    quoted, known = double_quote_name(name), [value for value in wanted if value is not None]
    value = "DATE '1970-01-01' + CAST(? AS INTEGER)" if type == "date" else "?"
    tests = [f"{quoted} IN ({', '.join([value] * len(known))})"] if known else []
    tests += [f"{quoted} IS NULL"] if len(known) < len(wanted) else []
    return " OR ".join(tests) or "false", list(known)
