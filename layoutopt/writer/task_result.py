"""The results of a load's tasks: encoded by tasks, combined on the driver, and reported when the load is done."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.file_sizes import describe_sizes
from layoutopt.catalog.load_check import TidSums
from layoutopt.catalog.paths import BLOCKS
from layoutopt.catalog.snapshot import Snapshot
from layoutopt.catalog.storage.exclusive import TEMPORARY
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.index_files import PackedIndexes, split_indexes
from layoutopt.indexes.measuring import blocks_with_indexes
from layoutopt.model.layout import Plan
from layoutopt.model.summary import Report
from layoutopt.writer.segment import to_arrow_stream

_VALUES: Final = b"layoutopt.result"


@dataclass(frozen=True, eq=False)
class TaskResult:
    """What a task measured of a segment.

    Attributes:
        segment: its number among the load's.
        joined_vectors: the most feature vectors that were joined in a layout.
        blocks: one row a block, as :func:`~layoutopt.catalog.block_index.block_schema`; in a task also with the column
            of measured indexes.
        tid_sums: by layout and column of the schema, from the segment's rows before they were put into blocks.
        also: the result of :attr:`WriteJob.also <layoutopt.writer.task.WriteJob>`.
        indexes: the encoded indexes of the blocks; empty in a task, or where the plan has none.
    """

    segment: int
    rows: int
    joined_vectors: int
    blocks: pa.Table
    tid_sums: list[list[int | None]]
    also: bytes | None = None
    indexes: PackedIndexes = ()

    @property
    def count(self) -> int:
        """How many blocks there are."""
        return int(self.blocks.num_rows)

    def read(self, files: TableFiles) -> TaskResult:
        """Return the result, as one that is stored in a table's files."""
        return self

    def split(self) -> TaskResult:
        """Return the result with encoded indexes, separate from the blocks."""
        blocks, indexes = split_indexes(self.blocks)
        return replace(self, blocks=blocks, indexes=indexes)


def results_folder(load_id: str) -> str:
    """Return the folder of a load's stored results; the load removes it."""
    return f"{BLOCKS}/{TEMPORARY}{load_id}"


@dataclass(frozen=True)
class StoredResult:
    """A result that its task has stored, since the driver can't hold all those of a large load.

    Attributes:
        count: how many blocks there are.
        path: of a temporary file of the table.
    """

    segment: int
    count: int
    path: str

    @classmethod
    def write(cls, files: TableFiles, load_id: str, result: TaskResult) -> StoredResult:
        """Store a result of a load in its :func:`results_folder`."""
        path = f"{results_folder(load_id)}/{TEMPORARY}{uuid.uuid4().hex}"
        values = {"rows": result.rows, "joined_vectors": result.joined_vectors, "tid_sums": result.tid_sums}
        blocks = result.blocks.replace_schema_metadata({_VALUES: json.dumps(values)})
        files.write_new(path, to_arrow_stream(blocks, "zstd"))
        return cls(result.segment, blocks.num_rows, path)

    def read(self, files: TableFiles) -> TaskResult:
        """Read the result."""
        blocks = pa.ipc.open_stream(files.read_bytes(self.path)).read_all()
        values = json.loads(blocks.schema.metadata[_VALUES])
        return TaskResult(self.segment, blocks=blocks.replace_schema_metadata(), **values).split()


class PackedResults(Sequence[TaskResult | None]):
    """Results of many tasks, with their blocks in one table: a table of its own takes about 100 KB for each."""

    def __init__(self, results: Sequence[TaskResult | None]) -> None:
        counts = [0 if result is None else result.count for result in results]
        self._starts = np.append(0, np.cumsum(counts)).tolist()
        tables = [result.blocks for result in results if result is not None]
        self._blocks = pa.concat_tables(tables).combine_chunks() if tables else None
        empty = None if self._blocks is None else self._blocks.schema.empty_table()  # one object for all
        self._results = [result and replace(result, blocks=empty) for result in results]

    def __len__(self) -> int:
        return len(self._results)

    @overload
    def __getitem__(self, place: int) -> TaskResult | None: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[TaskResult | None]: ...
    def __getitem__(self, place: int | slice) -> TaskResult | Sequence[TaskResult | None] | None:
        if isinstance(place, slice):
            return [self[number] for number in range(len(self))[place]]
        result = self._results[place]
        if result is None or self._blocks is None:
            return None
        start, stop = self._starts[place], self._starts[place + 1]
        return replace(result, blocks=self._blocks.slice(start, stop - start))


@dataclass(frozen=True)
class WriteResult:
    """The combined results of tasks.

    Attributes:
        indexes: the indexes of the blocks, in consecutive parts.
        joined: joined vectors by partition key.
        positions: the sums of the source's values with their tids.
    """

    blocks: pa.Table
    indexes: tuple[PackedIndexes, ...]
    joined: Mapping[str, int]
    positions: TidSums


def combine_task_results(
    plan: Plan, keys: Sequence[str], numbers: Sequence[int], answers: Iterable[TaskResult]
) -> WriteResult:
    """Combine the results of tasks, in the order of the segments.

    ``keys`` are each segment's partition key and ``numbers`` its number in that partition.
    """
    no_blocks, no_indexes = split_indexes(blocks_with_indexes(plan).empty_table())
    tables, indexes = [no_blocks], [no_indexes]
    joined: dict[str, int] = {}
    positions: dict[tuple[str, int, int], Mapping[str, int]] = {}
    for answer in answers:
        tables.append(answer.blocks)
        indexes.append(answer.indexes)
        key, number = keys[answer.segment], numbers[answer.segment]
        joined[key] = max(joined.get(key, 0), answer.joined_vectors)
        for layout, sums in enumerate(answer.tid_sums):
            by_name = zip(plan.schema.names, sums, strict=True)
            positions[key, number, layout] = {name: sum for name, sum in by_name if sum is not None}
    return WriteResult(pa.concat_tables(tables).combine_chunks(), tuple(indexes), joined, positions)


@dataclass(frozen=True)
class LoadReport(Report):
    """What a load did.

    Attributes:
        load_id: its name in the table's files.
        snapshot: the snapshot that it made.
        partitions: the keys of the replaced partitions, sorted.
        bytes: the compressed column chunks written, over all layouts.
        notes: sentences that a user should read, such as on vectors beyond ``max_vectors``.
        seconds: by stage.
    """

    load_id: str
    snapshot: int
    partitions: tuple[str, ...]
    rows: int
    segments: int
    blocks: int
    files: int
    bytes: int
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)


def load_report(
    load_id: str,
    snapshot: Snapshot,
    plan: Plan,
    keys: Sequence[str],
    segments: int,
    sizes: Sequence[pa.Table],
    joined: Mapping[str, int],
    seconds: Mapping[str, float],
) -> LoadReport:
    """Return the report of a committed load.

    Args:
        keys: its partitions.
        sizes: of its blocks, as :func:`~layoutopt.catalog.file_sizes.sum_sizes` has them.
        joined: joined vectors by partition key.
        seconds: by stage.
    """
    notes = [
        f"partition {key} has {count} feature vectors beyond max_vectors={plan.max_vectors}; their rows were put "
        "with the nearest vectors'"
        for key, count in sorted(joined.items())
        if count
    ]
    advice = describe_sizes(sizes)

    def total(name: str) -> int:
        return sum(pc.sum(table[name]).as_py() or 0 for table in sizes)

    return LoadReport(
        load_id=load_id,
        snapshot=snapshot.number,
        partitions=tuple(sorted(keys)),
        rows=sum(entry.rows for entry in snapshot.partitions if entry.load_id == load_id),
        segments=segments,
        blocks=total("bytes_count"),
        files=total("file_count_distinct"),
        bytes=total("bytes_sum"),
        notes=(*notes, *([] if advice is None else [advice])),
        seconds=dict(seconds),
    )
