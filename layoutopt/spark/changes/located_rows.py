"""Rows of a table with their positions in their segments, as Spark selects them from what skipping leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from layoutopt.catalog.deletion_vectors import pack_positions, unite_vectors
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.changes.affected_rows import SegmentRows, list_segments
from layoutopt.errors import SettingError
from layoutopt.model.predicates import Node
from layoutopt.model.schema import PLACE, Column, schema_ddl
from layoutopt.model.types import quote_name
from layoutopt.scan import check_switch as switch
from layoutopt.scan.read import read_segments
from layoutopt.scan.segments import SegmentRead
from layoutopt.scan.table_read import TableRead
from layoutopt.sources.executor import Batches
from layoutopt.spark.core.failures import plain_message, translate_spark_errors
from layoutopt.spark.core.source import hash_column
from layoutopt.spark.core.versions import to_arrow
from layoutopt.spark.core.workers import map_in_workers, map_items
from layoutopt.spark.session.readers import group_segments

# The column with the index of a row's segment among those that are read.
SEGMENT_NUMBER: Final = "_w_segment"
_MATCHES: Final = "segment int, rows bigint, places binary, sums array<bigint>"
_VALUE: Final = "_w_value"
_DATA_EXCEPTION: Final = "22"  # the class of SQL states


@dataclass(frozen=True, eq=False)
class LocatedRows:
    """Rows of a table with their positions.

    Attributes:
        read: the read that returned them.
        segments: the segments of the read.
        numbered: the rows' columns, the index of each row's segment, and its position there.
    """

    read: TableRead
    segments: Sequence[SegmentRows]
    numbered: DataFrame

    @property
    def rows(self) -> DataFrame:
        """Return the rows without their positions."""
        return self.numbered.select(*map(quote_name, self.read.table.schema.names))

    def transform(self, function: Callable[[DataFrame], DataFrame]) -> LocatedRows:
        """Return the rows that a function selects."""
        return replace(self, numbered=function(self.numbered).select(*map(quote_name, self.numbered.columns)))

    def checkpoint(self) -> LocatedRows:
        """Compute the rows now, so that each read returns the same ones.

        Raises:
            DataFileError: a data file is missing or damaged.
        """
        with translate_spark_errors(repr(self.read.table.catalog.files.root)):
            return replace(self, numbered=self.numbered.localCheckpoint())

    def collect(self) -> list[SegmentRows]:
        """Return the rows' positions and checksums, an item for each segment that has any.

        Raises:
            DataFileError: a data file is missing or damaged.
        """
        names = self.read.table.schema.names
        fields = [field for field in self.numbered.schema.fields if field.name in names]
        hashes = [hash_column(field.name, field.dataType).alias(f"_w_hash_{i}") for i, field in enumerate(fields)]
        results = map_in_workers(self.numbered.select(SEGMENT_NUMBER, PLACE, *hashes), _sum_by_segment, _MATCHES)
        with translate_spark_errors(repr(self.read.table.catalog.files.root)):
            parts = to_arrow(results).to_pylist()
        by_segment: dict[int, list[dict[str, Any]]] = {}
        for part in parts:
            by_segment.setdefault(part["segment"], []).append(part)
        return [
            replace(
                self.segments[number],
                rows=sum(part["rows"] for part in segment_parts),
                places=unite_vectors([part["places"] for part in segment_parts]),
                sums={name: sum(part["sums"][i] for part in segment_parts) for i, name in enumerate(names)},
            )
            for number, segment_parts in sorted(by_segment.items())
        ]


def locate_rows(spark: SparkSession, read: TableRead) -> LocatedRows:
    """Return all rows in the blocks of a read of all columns, with their positions."""
    segments = list_segments(read)
    return LocatedRows(read, segments, _number_rows(spark, read, segments))


def _number_rows(spark: SparkSession, read: TableRead, segments: Sequence[SegmentRows]) -> DataFrame:
    """Return the rows of some segments with the segment's index and the position."""
    columns = list(read.columns)
    schema = schema_ddl([*columns, Column(PLACE, "bigint"), Column(SEGMENT_NUMBER, "int")])
    if not segments:
        return spark.createDataFrame([], schema)
    reads = [segment.read for segment in segments]
    positions = [segment.position for segment in segments]
    items = [(first, group, positions[first : first + len(group)]) for first, group in group_segments(spark, reads)]
    # executors have an environment of their own
    task = partial(_read_located, read.table.catalog.files.for_tasks(), columns, read.scan.filter.root, switch.is_on())
    return map_items(spark, items, task, schema)


def _read_located(
    files: TableFiles,
    columns: Sequence[Column],
    condition: Node,
    checked: bool,
    item: tuple[int, Sequence[SegmentRead], Sequence[Column]],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some segments with the segments' indexes, from the first one's on, and positions."""
    first, segments, positions = item
    names = [*(column.name for column in columns), PLACE, SEGMENT_NUMBER]
    for number, (segment, position) in enumerate(zip(segments, positions, strict=True), first):
        for rows in read_segments(files, [segment], [*columns, position], condition=condition, checked=checked):
            numbers = pa.array(np.full(rows.num_rows, number, dtype=np.int32))
            yield pa.RecordBatch.from_arrays([*rows.columns, numbers], names=names)


def _sum_by_segment(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Count rows, collect positions and sum hashes of each segment; runs in tasks."""
    rows: dict[int, int] = {}
    places: dict[int, bytes] = {}
    sums: dict[int, np.ndarray] = {}
    for batch in batches:
        segments = batch.column(0).to_numpy()
        hashes = np.array([column.to_numpy() for column in batch.columns[2:]], dtype=np.int64)
        for number in np.unique(segments).tolist():
            mask = segments == number
            rows[number] = rows.get(number, 0) + int(mask.sum())
            positions = pack_positions(batch.column(1).to_numpy()[mask])
            places[number] = unite_vectors([places[number], positions]) if number in places else positions
            sums[number] = sums.get(number, 0) + hashes[:, mask].sum(axis=1)
    if rows:
        yield pa.RecordBatch.from_pydict(
            {
                "segment": pa.array(list(rows), pa.int32()),
                "rows": pa.array(list(rows.values()), pa.int64()),
                "places": pa.array([places[number] for number in rows], pa.binary()),
                "sums": pa.array([sums[number].tolist() for number in rows], pa.list_(pa.int64())),
            }
        )


@contextmanager
def translate_expression_errors(flag: str, text: str, *, parsed: bool = False) -> Iterator[None]:
    """Raise Spark's errors about an expression as SettingError.

    Args:
        parsed: whether Spark has parsed it, so that only data exceptions, such as a failed cast, are about it.
    """
    try:
        yield
    except PySparkException as error:
        if parsed and not (error.getSqlState() or "").startswith(_DATA_EXCEPTION):
            raise
        problem, message = "fails on a row" if parsed else "is invalid", plain_message(error)
        if ")" not in text:  # Spark parses the text within brackets
            message = message.replace("at or near ')'", "at or near its end")
        raise SettingError(f"{flag} {text!r} {problem}: {message}") from error


def is_true(condition: str) -> SparkColumn:
    """Return whether a condition is TRUE, as a column that is never NULL."""
    return F.coalesce(F.expr(f"({condition})"), F.lit(False))
