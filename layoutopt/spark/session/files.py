"""The data files of a snapshot as Spark's own Parquet reader gets them: their paths and partition values, made once."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from pyspark.sql import SparkSession

from layoutopt.catalog.keys import FLOATS
from layoutopt.catalog.snapshot import PartitionEntry
from layoutopt.model.arrays import Ints
from layoutopt.model.columns import BLOCK
from layoutopt.model.schema import Column
from layoutopt.model.types import INTEGER_BITS, decimal_digits
from layoutopt.model.values import Key
from layoutopt.scan.opened import OpenedTable
from layoutopt.spark.catalyst.rule import java_map, java_schema
from layoutopt.spark.core.parquet_reader import WHOLE_FILES

# Pages have checksums; footers, whose digests only layoutopt knows, are checked by `verify`.
# Dates are written as they are: no session's mode for files of unknown writers may move those before 1582.
STRICT: Final = {**WHOLE_FILES, "datetimeRebaseMode": "CORRECTED"}
# Parquet's reader finds 0.0 and -0.0 different in a dictionary, where Spark finds them equal.
_NO_DICTIONARIES: Final = {"parquet.filter.dictionary.enabled": "false"}
_PARTITION_TYPES: Final = frozenset({"boolean", "date", "timestamp", "timestamp_ntz", "string", *INTEGER_BITS})


def parquet_options(columns: Iterable[Column]) -> dict[str, str]:
    """Return the options under which Spark's own reader loses no row of data files with these columns."""
    return STRICT | (_NO_DICTIONARIES if any(column.type in FLOATS for column in columns) else {})


@dataclass(frozen=True, eq=False)
class SnapshotFiles:
    """The files of one snapshot.

    Attributes:
        java: the same for the optimiser rule.
        numbers: of each plan's files, in the order of its blocks' files, the numbers that ``java`` has for them.
    """

    java: Any
    numbers: tuple[Ints, ...]


def list_files(spark: SparkSession, scan: Any, table: OpenedTable) -> SnapshotFiles:
    """Return the files of a table's snapshot for a scan of the rule.

    Raises:
        CatalogError: a blocks file is damaged.
    """
    data = table.catalog.data
    paths: list[str] = []
    numbers: list[Ints] = []
    entry_of: list[Ints] = []
    for source in table.sources:
        blocks = source.blocks
        numbers.append(np.arange(len(paths), len(paths) + len(blocks.files), dtype=np.int64))
        paths += [data.full_path(path) for path in blocks.files]
        entries = np.zeros(len(blocks.files), dtype=np.int64)
        entries[blocks.file] = source.entry_of
        entry_of.append(entries)
    column = partition_column(table)
    values = [] if column is None else [_value(entry, column) for entry in table.catalog.partitions]
    known = [value for value in values if value is not None]
    if column is None or len(known) != len(values):
        column, known = None, ["n"] * len(table.catalog.partitions)
    java = scan.snapshot(
        f"{data.full_path('')}@{table.catalog.snapshot.number}",
        BLOCK,
        java_schema(spark, table.schema.columns),
        "\n".join(paths),
        None if column is None else column.name,
        ",".join(map(str, np.concatenate([np.zeros(0, dtype=np.int64), *entry_of]).tolist())),
        "\n".join(known),
        java_map(spark, parquet_options(table.schema.columns)),
    )
    return SnapshotFiles(java, tuple(numbers))


def partition_column(table: OpenedTable) -> Column | None:
    """Return the column by which Spark may prune partitions itself; None where there is none of a fitting type."""
    name = table.catalog.snapshot.partition_by
    column = None if name is None else table.schema.get(name)
    if column is None or not (column.type in _PARTITION_TYPES or decimal_digits(column.type)):
        return None
    return column


def _value(entry: PartitionEntry, column: Column) -> str | None:
    """The value that the partition column has in all rows of an entry, as Java takes it; None where it is not known."""
    bounds = entry.bounds.get(column.name)
    if bounds is None or bounds.nulls is None:
        return None
    if bounds.nulls == entry.rows:
        return "n"
    if bounds.nulls or bounds.low is None or bounds.low != bounds.high:
        return None
    return f"v{_text(bounds.low)}"


def _text(key: Key) -> str:
    return base64.b64encode(key.encode()).decode("ascii") if isinstance(key, str) else str(key)
