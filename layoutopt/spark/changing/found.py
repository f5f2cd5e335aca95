"""The rows that a change concerns, by their places in the segments of a table, and what they hold: in one pass.

Spark chooses them of what skipping leaves, as in any query. A row's place is its tid where the plan has
several layouts, else its place among the rows of the segment's row groups that are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from layoutopt.catalog.deletes import packed, united
from layoutopt.catalog.snapshot import PartitionEntry
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.model.columns import PLACE, TID
from layoutopt.model.predicates import Node
from layoutopt.model.schema import Column, schema_ddl
from layoutopt.model.types import quoted
from layoutopt.scan import check_switch as switch
from layoutopt.scan.prune import PlanBlocks, PrunedPlan
from layoutopt.scan.read import read_segments
from layoutopt.scan.reads import TableRead
from layoutopt.scan.segments import SegmentRead, segments_to_read
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.source import hash_column
from layoutopt.spark.core.workers import Batches, Task, map_in_workers
from layoutopt.spark.session.read import segment_numbers

SEGMENT_NUMBER: Final = "_w_segment"
"""Of a row with its place: the number of its segment among those that are read."""
_FOUND: Final = "segment int, rows bigint, places binary, sums array<bigint>"


@dataclass(frozen=True, eq=False)
class FoundIn:
    """The rows found in one segment.

    Attributes:
        source: the blocks of its plan.
        entry: what the snapshot has of its partition.
        read: what was read of it.
        rows: how many were found.
        places: where, a bitmap.
        sums: the checksums of their columns.
    """

    source: PlanBlocks
    entry: PartitionEntry
    read: SegmentRead
    rows: int
    places: bytes
    sums: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class _Place:
    """A segment to look through, and where it is from."""

    source: PlanBlocks
    entry: PartitionEntry
    read: SegmentRead


@dataclass(frozen=True, eq=False)
class Placed:
    """Rows of a table with their places.

    Attributes:
        read: what was read of the table.
        places: the segments that were.
        numbered: the rows' columns, the number of each row's segment and its place there.
    """

    read: TableRead
    places: Sequence[_Place]
    numbered: DataFrame

    @property
    def rows(self) -> DataFrame:
        """The rows without their places."""
        return self.numbered.select(*map(quoted, self.read.table.schema.names))

    def narrowed(self, by: Callable[[DataFrame], DataFrame]) -> Placed:
        """Some of the rows: what a function leaves of them, their places among the columns."""
        return replace(self, numbered=by(self.numbered).select(*map(quoted, self.numbered.columns)))

    def kept(self) -> Placed:
        """The same rows, computed now, and the same ones however often they are read.

        Raises:
            DataFileError: a data file is missing or damaged.
        """
        with translate_spark_errors(repr(self.read.table.catalog.files.root)):
            return replace(self, numbered=self.numbered.localCheckpoint())

    def found(self) -> list[FoundIn]:
        """Where the rows are, one item for each segment that has any.

        Raises:
            DataFileError: a data file is missing or damaged.
        """
        names = self.read.table.schema.names
        fields = [of for of in self.numbered.schema.fields if of.name in names]
        hashes = [hash_column(of.name, of.dataType).alias(f"_w_hash_{n}") for n, of in enumerate(fields)]
        collected = map_in_workers(self.numbered.select(SEGMENT_NUMBER, PLACE, *hashes), _collect, _FOUND)
        with translate_spark_errors(repr(self.read.table.catalog.files.root)):
            found = collected.toArrow()
        numbers = sorted(set(found["segment"].to_pylist()))
        return [_found_in(self.places[number], found, number, names) for number in numbers]


def rows_with_places(spark: SparkSession, read: TableRead) -> Placed:
    """The rows of a read of all columns, and others that share their blocks, each with its place."""
    places = [place for pruned in read.pruned for place in _places(pruned)]
    return Placed(read, places, _numbered(spark, read, places))


def _places(pruned: PrunedPlan) -> Iterator[_Place]:
    blocks, source = pruned.source.blocks, pruned.source
    entry_of = dict(zip(blocks.file.tolist(), source.entry_of.tolist(), strict=True))
    number = {path: i for i, path in enumerate(blocks.files)}
    for read in segments_to_read(pruned):
        path = read.layouts[0].files[0].path
        yield _Place(source, source.entries[entry_of[number[path]]], read)


def _found_in(place: _Place, found: pa.Table, number: int, names: Sequence[str]) -> FoundIn:
    """What all tasks found in a segment."""
    mine = found.filter(pa.compute.equal(found["segment"], number))
    sums = np.array(mine["sums"].to_pylist(), dtype=np.int64).reshape(mine.num_rows, -1).sum(axis=0)
    return FoundIn(
        place.source,
        place.entry,
        place.read,
        int(pa.compute.sum(mine["rows"]).as_py()),
        united(mine["places"].to_pylist()),
        dict(zip(names, sums.tolist(), strict=True)),
    )


def _numbered(spark: SparkSession, read: TableRead, places: Sequence[_Place]) -> DataFrame:
    """The rows of some segments, each with the number of its segment and its place there."""
    segments = [place.read for place in places]
    of_tids = [place.source.plan.scheme.has_tids for place in places]
    columns = list(read.columns)
    files = read.table.catalog.files.for_tasks()
    schema = schema_ddl([*columns, Column(PLACE, "bigint"), Column(SEGMENT_NUMBER, "int")])
    if not places:
        return spark.createDataFrame([], schema)
    reader = _reader(files, segments, of_tids, columns, read.scan.filter.root)
    return map_in_workers(segment_numbers(spark, segments), reader, schema)


def _reader(
    files: TableFiles, segments: list[SegmentRead], of_tids: list[bool], columns: list[Column], condition: Node
) -> Task:
    checked = switch.is_on()  # executors have an environment of their own

    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        names = [*(column.name for column in columns), PLACE, SEGMENT_NUMBER]
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            wanted = [*columns, Column(TID if of_tids[number] else PLACE, "bigint")]
            for rows in read_segments(files, [segments[number]], wanted, condition=condition, checked=checked):
                of_segment = pa.array(np.full(rows.num_rows, number, dtype=np.int32))
                yield pa.RecordBatch.from_arrays([*rows.columns, of_segment], names=names)

    return read


def _collect(batches: Batches) -> Iterator[pa.RecordBatch]:
    """The task: of each segment how many rows came, their places, and the sums of their hashes."""
    rows: dict[int, int] = {}
    places: dict[int, bytes] = {}
    sums: dict[int, np.ndarray] = {}
    for batch in batches:
        segments = batch.column(0).to_numpy()
        hashes = np.array([column.to_numpy() for column in batch.columns[2:]], dtype=np.int64)
        for number in np.unique(segments).tolist():
            here = segments == number
            rows[number] = rows.get(number, 0) + int(here.sum())
            new = packed(batch.column(1).to_numpy()[here])
            places[number] = united([places[number], new]) if number in places else new
            sums[number] = sums.get(number, 0) + hashes[:, here].sum(axis=1)
    if rows:
        yield pa.RecordBatch.from_pydict(
            {
                "segment": pa.array(list(rows), pa.int32()),
                "rows": pa.array(list(rows.values()), pa.int64()),
                "places": pa.array([places[number] for number in rows], pa.binary()),
                "sums": pa.array([sums[number].tolist() for number in rows], pa.list_(pa.int64())),
            }
        )
