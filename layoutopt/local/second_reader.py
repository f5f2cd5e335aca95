"""Read Parquet files by DuckDB: the second reader that proves what Arrow read and wrote."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.load_check import Content
from layoutopt.catalog.partition_names import PlainValue
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import NeedsSparkError
from layoutopt.indexes.murmur3 import hash_words
from layoutopt.local.parquet_files import arrow_schema, cast_columns, plain_partition_values, plain_type
from layoutopt.local.splits import LocalFile
from layoutopt.model.arrays import Hashes
from layoutopt.model.layout import Plan
from layoutopt.model.schema import Schema
from layoutopt.writer.checksum import is_hashable, value_hashes

_ROWS_AT_ONCE: Final = 1 << 16


def sum_file(file: LocalFile, schema: Schema, partition_by: str | None, wanted: Collection[PlainValue]) -> Content:
    """Return the content of a file's rows of some partitions, as DuckDB reads them.

    Raises:
        NeedsSparkError: DuckDB can't read the file, as where a text is no UTF-8.
    """
    return sum_rows(read_by_duckdb(file, schema, partition_by, wanted), schema)


def sum_rows(batches: Iterable[pa.Table], schema: Schema) -> Content:
    """Return the content of rows under a schema's columns."""
    rows, sums = 0, dict.fromkeys(schema.names, 0)
    for batch in batches:
        rows += batch.num_rows
        for column in schema.columns:
            hashes = value_hashes(batch[column.name], column.type)
            assert hashes is not None, "tables with other columns are refused"
            sums[column.name] += int(hashes.sum(dtype=np.int64))
    return Content(rows, sums)


def sum_written(files: TableFiles, plan: Plan, blocks: pa.Table) -> dict[str, int]:
    """Return the checksums of nested columns, which blocks do not have, by reading the files just written.

    Raises:
        NeedsSparkError: the files are encrypted.
    """
    nested = {column.name: column for column in plan.schema.columns if not is_hashable(column.type)}
    if nested and not files.is_plain:
        raise NeedsSparkError(f"the column {next(iter(nested))!r} of an encrypted table is nested")
    sums = dict.fromkeys(nested, 0)
    for number, layout in enumerate(plan.scheme.layouts):
        own = [nested.pop(name) for name in layout.master if name in nested]
        if not own:
            continue
        written = blocks.filter(pc.equal(blocks["layout"], number))["file"]
        for path in dict.fromkeys(written.to_pylist()):
            file = LocalFile(Path(files.full_path(path)), None)
            sums_of_file = sum_rows(read_by_duckdb(file, Schema(tuple(own)), None, ()), Schema(tuple(own))).sums
            sums |= {name: sums[name] + sum for name, sum in sums_of_file.items()}
    return sums


def sum_whole_rows(batches: Iterable[pa.Table], schema: Schema) -> int:
    """Return the sum of 64-bit hashes of whole rows, in which values that change places show, modulo 2**64."""
    total = 0
    for batch in batches:
        words: list[Hashes] = []
        for column in schema.columns:
            hashes = value_hashes(batch[column.name], column.type)
            assert hashes is not None, "tables with other columns are refused"
            # NULL hashes as some value does.
            words += [np.asarray(batch[column.name].is_null(), dtype=np.uint32), hashes]
        high, low = hash_words(words).astype(np.uint64), hash_words(words[::-1])
        total += int(((high << np.uint64(32)) | low).sum(dtype=np.uint64))
    return total % (1 << 64)


def read_by_duckdb(
    file: LocalFile, schema: Schema, partition_by: str | None, wanted: Collection[PlainValue]
) -> Iterator[pa.Table]:
    """Yield a file's rows of some partitions, under a schema's columns; raises NeedsSparkError as :func:`sum_file`."""
    import duckdb  # takes longer to import than a small file to read

    columns = arrow_schema(schema)
    stored = [name for name in schema.names if file.folder is None or name != partition_by]
    names = ", ".join(f'"{name.replace(chr(34), chr(34) * 2)}"' for name in stored)
    try:
        with duckdb.connect(config={"threads": 1}) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            query = f"SELECT {names} FROM read_parquet(?, hive_partitioning = false)"
            reader: pa.RecordBatchReader = connection.sql(query, params=[str(file.path)]).to_arrow_reader(_ROWS_AT_ONCE)
            for batch in reader:
                rows = pa.Table.from_batches([batch])
                if file.folder is not None:
                    value = pa.scalar(file.folder[0], plain_type(columns.field(partition_by).type))
                    rows = rows.append_column(partition_by, pa.repeat(value, rows.num_rows))
                rows = cast_columns(rows, columns)
                if file.folder is None and partition_by is not None:
                    values = plain_partition_values(rows, partition_by)
                    rows = rows.filter(pc.is_in(values, value_set=pa.array(list(wanted), values.type)))
                yield rows
    except (duckdb.Error, pa.ArrowException, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise NeedsSparkError(
            f"DuckDB, which reads a source a second time, can't read {str(file.path)!r} ({reason})"
        ) from error
