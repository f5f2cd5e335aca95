"""The rows of plain Parquet files on this machine, and the jobs that read them in processes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from typing import Final, Protocol, TypeVar

from layoutopt.catalog.partition_names import PlainValue, null_first_key
from layoutopt.errors import NeedsSparkError
from layoutopt.model.arrays import spread
from layoutopt.model.schema import Schema
from layoutopt.sources.executor import Executor
from layoutopt.sources.profile import CHUNK, KEY, ROWS, ChunkCountJob
from layoutopt.sources.segments import Chunk, chunk_bits, chunks_from_counts
from layoutopt.sources.splits import NO_RANGES, CutJob, Split, SplitCounts, group_splits

# At most this many tasks a core, since the driver receives the result of each.
_TASKS_A_CORE: Final = 8
# Rows of a partition, in whole row groups, that a sample is drawn from: neighbours are more alike than rows of a block.
SAMPLED_ROWS: Final = 160_000
# Splits of a partition, at least, that a sample is drawn from: as many as fit into so many of all partitions.
_FEWEST_SPLITS, _MOST_SPLITS, _SPLITS_OF_ALL = 2, 8, 96

T = TypeVar("T", covariant=True)


class TaskJob(Protocol[T]):
    """A job that runs as one task for each group of splits."""

    @property
    def job(self) -> CutJob:
        """The rows and columns that the tasks read."""
        ...

    def run_task(self, number: int) -> T | None:
        """Return the result of one task; None where it reads no rows."""
        ...


@dataclass(eq=False)
class LocalRows:
    """Rows of plain Parquet files on this machine.

    Methods raise NeedsSparkError where Arrow might read a file otherwise than Spark.

    Attributes:
        splits: of the files in the order of their names, each with its rows by value of the partition column.
        partition_rows: the rows of each partition by its value, NULL first.
    """

    tasks: Executor
    schema: Schema
    partition_by: str | None
    splits: SplitCounts
    partition_rows: Mapping[PlainValue, int]
    _chunks: dict[int, list[Chunk]] = field(default_factory=dict)

    def chunks(self, segment_rows: int) -> list[Chunk]:
        """Return chunks of neighbouring rows, in file order; a partition that fits into one segment is one chunk."""
        if segment_rows not in self._chunks:
            self._chunks[segment_rows] = self._count_chunks(segment_rows)
        return self._chunks[segment_rows]

    def _count_chunks(self, segment_rows: int) -> list[Chunk]:
        chunks = chunks_from_counts(self.partition_rows, segment_rows)
        if chunks is not None:
            return chunks
        shift = chunk_bits(segment_rows)
        job = ChunkCountJob(self.cut_job(self.splits_with(self.partition_rows), ()), shift)
        counts = job.merge(self.run(job))
        columns = zip(*(counts[name].to_pylist() for name in (KEY, CHUNK, ROWS)), strict=True)
        chunks = [Chunk(value, chunk << shift, rows) for value, chunk, rows in columns if value in self.partition_rows]
        return sorted(chunks, key=lambda chunk: chunk.low)

    def run(self, job: TaskJob[T]) -> list[T]:
        """Return the results of a job's tasks that read rows."""
        results = [result for result in self.tasks.map(len(job.job.tasks), job.run_task) if result is not None]
        if not results:
            raise NeedsSparkError("the source has no rows any more")
        return results

    def splits_with(self, values: Collection[PlainValue]) -> list[Split]:
        """Return the splits that have rows of some partitions."""
        return [split for split, counts in self.splits if not counts.keys().isdisjoint(values)]

    def sample_splits(self, value: PlainValue) -> tuple[list[Split], int]:
        """Return some splits that have rows of a partition, spread evenly, and the number of these rows.

        There are at least :data:`SAMPLED_ROWS` rows in at least some splits, or all. So the work does not follow the
        table's rows.
        """
        having = self._splits_by_value.get(value, [])
        rows = sum(count for _, count in having)
        fewest = max(_FEWEST_SPLITS, min(_MOST_SPLITS, _SPLITS_OF_ALL // max(1, len(self.partition_rows))))
        some = spread(having, max(fewest, ceil(SAMPLED_ROWS * len(having) / max(1, rows))))
        return [split for split, _ in some], sum(count for _, count in some)

    @cached_property
    def _splits_by_value(self) -> Mapping[PlainValue, list[tuple[Split, int]]]:
        splits: dict[PlainValue, list[tuple[Split, int]]] = {}
        for split, counts in self.splits:
            for value, count in counts.items():
                splits.setdefault(value, []).append((split, count))
        return splits

    def cut_job(self, splits: Sequence[Split], columns: Collection[str]) -> CutJob:
        """Return the job of reading some columns of splits, and the partition column."""
        wanted = {*columns, *([] if self.partition_by is None else [self.partition_by])}
        names = tuple(name for name in self.schema.names if name in wanted) or self.schema.names[:1]
        tasks = group_splits(splits, _TASKS_A_CORE * self.tasks.cores)
        return CutJob(self.schema, self.partition_by, NO_RANGES, tasks, columns=names)


def count_partition_rows(splits: SplitCounts) -> dict[PlainValue, int]:
    """Return the rows of each partition by its value, NULL first."""
    rows: dict[PlainValue, int] = {}
    for _, counts in splits:
        for value, count in counts.items():
            rows[value] = rows.get(value, 0) + count
    return {value: rows[value] for value in sorted(rows, key=null_first_key)}
