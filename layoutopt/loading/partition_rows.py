"""Rows of partitions that tasks read by a function: those in memory, or live rows of a table's own entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from layoutopt.catalog.load_check import Content
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.partition_names import PartitionNames, PlainValue
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import NeedsSparkError
from layoutopt.evaluation.arrow_types import any_arrow_type
from layoutopt.loading.load import RowSource
from layoutopt.model.arrays import Ints
from layoutopt.model.layout import Plan
from layoutopt.model.schema import Column, Schema
from layoutopt.scan.read import read_segments
from layoutopt.scan.segments import SegmentRead
from layoutopt.scan.table import Table, plan_entries_read
from layoutopt.sources.executor import Executor, Processes
from layoutopt.sources.second_reader import sum_rows
from layoutopt.sources.segments import Chunk, Segment, chunk_bits
from layoutopt.sources.split import encode_partitions
from layoutopt.sources.vectors import evaluate_exact_vectors
from layoutopt.writer.segment import POOL, GatheredSegment
from layoutopt.writer.task import WriteJob, write_gathered
from layoutopt.writer.task_result import TaskResult

# Returns the rows at places [low, high) of a partition, under the plan's columns.
ReadRows: TypeAlias = Callable[[PlainValue, int, int], pa.Table]


@dataclass(frozen=True, eq=False)
class PartitionRows(RowSource):
    """Rows of partitions, whose segments tasks read and write.

    Attributes:
        counts: the rows of each partition, by its value.
        read: reads them; pickled to the executor's tasks.
        schema: the plan's.
        executor: runs the tasks.
        wait: waits until tasks of a failed job write no more files.
    """

    counts: Mapping[PlainValue, int]
    read: ReadRows
    schema: Schema
    executor: Executor
    wait: Callable[[], None] = lambda: None

    def count_chunks(self, segment_rows: int) -> Sequence[Chunk]:
        """Return chunks of neighbouring rows of each partition."""
        size = 1 << chunk_bits(segment_rows)
        return [
            Chunk(value, low, min(size, rows - low))
            for value, rows in self.counts.items()
            for low in range(0, rows, size)
        ]

    def write(self, job: WriteJob, segments: Sequence[Segment]) -> tuple[Sequence[TaskResult], Content]:
        """Write each segment in a task, which also sums its rows.

        Raises:
            NeedsSparkError: a feature needs Spark.
        """
        results = self.executor.map(len(segments), partial(_write_segment, job, self.read, self.schema, segments))
        return [result for result, _ in results], self._sum(content for _, content in results)

    def measure(self) -> Content:
        """Sum the rows once more."""
        return self._sum(sum_rows([self.read(value, 0, rows)], self.schema) for value, rows in self.counts.items())

    def wait_for_tasks(self) -> None:
        """Wait until tasks of a failed job write no more files."""
        self.wait()

    def _sum(self, contents: Iterable[Content]) -> Content:
        parts = list(contents)
        sums = {name: sum(part.sums[name] for part in parts) for name in self.schema.names}
        return Content(sum(part.rows for part in parts), sums)


def _write_segment(
    job: WriteJob, read: ReadRows, schema: Schema, segments: Sequence[Segment], number: int
) -> tuple[TaskResult, Content]:
    segment, plan = segments[number], job.plan
    rows = read(segment.value, segment.low, segment.high).combine_chunks(POOL)
    words = evaluate_exact_vectors(plan.features, rows, plan.schema)
    result = write_gathered(job, GatheredSegment(segment.id, rows, words)).split()
    return result, sum_rows([rows], schema)


def rows_in_memory(rows: pa.Table, plan: Plan) -> PartitionRows:
    """Return rows in memory, under the plan's columns, as the rows of its partitions."""
    if plan.partition_by is None:
        places: dict[PlainValue, Ints] = {None: np.arange(rows.num_rows)}
    else:
        coded = encode_partitions(rows, plan.partition_by)
        codes, values = np.asarray(coded.indices), coded.dictionary.to_pylist()
        places = {value: np.flatnonzero(codes == code) for code, value in enumerate(values)}
    counts = {value: len(rows_of_value) for value, rows_of_value in places.items() if len(rows_of_value)}
    return PartitionRows(counts, partial(_take_rows, rows, places), plan.schema, Processes(1))


def _take_rows(rows: pa.Table, places: Mapping[PlainValue, Ints], value: PlainValue, low: int, high: int) -> pa.Table:
    return rows.take(pa.array(places[value][low:high]))


def live_rows(table: Table, plan: Plan, entries: Sequence[PartitionEntry], executor: Executor) -> PartitionRows:
    """Return the live rows of some entries of a table as the rows of its partitions, by a plan.

    Raises:
        NeedsSparkError: the catalog does not tell a partition's value.
    """
    values = PartitionNames.of(plan.schema, plan.partition_by, table.catalog.snapshot).values_of(entries)
    if values is None:
        raise NeedsSparkError("the catalog does not tell the value of a partition")
    by_value: dict[PlainValue, list[PartitionEntry]] = {}
    for entry in entries:
        by_value.setdefault(values[entry.key], []).append(entry)
    segments = {value: plan_entries_read(table, of_value).segments for value, of_value in by_value.items()}
    counts = {value: sum(entry.live_rows for entry in of_value) for value, of_value in by_value.items()}
    read = partial(_read_live_rows, table.catalog.files.for_tasks(), segments, plan.schema.columns)
    return PartitionRows({value: rows for value, rows in counts.items() if rows}, read, plan.schema, executor)


def _read_live_rows(
    files: TableFiles,
    segments: Mapping[PlainValue, Sequence[SegmentRead]],
    columns: Sequence[Column],
    value: PlainValue,
    low: int,
    high: int,
) -> pa.Table:
    schema = pa.schema([(column.name, any_arrow_type(column.type)) for column in columns])
    parts, start = [], 0
    for segment in segments[value]:
        rows = segment.live_rows
        if start < high and start + rows > low:
            read = pa.Table.from_batches(
                [batch.cast(schema) for batch in read_segments(files, [segment], columns)], schema
            )
            parts.append(read.slice(max(0, low - start), high - max(low, start)))
            rows = read.num_rows
        start += rows
    return pa.concat_tables([schema.empty_table(), *parts])
