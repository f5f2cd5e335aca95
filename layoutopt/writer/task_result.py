"""The results of a load's tasks: encoded by tasks, combined on the driver, and reported when the load is done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.file_sizes import describe_sizes
from layoutopt.catalog.load_check import Content, TidSums
from layoutopt.catalog.snapshot import Snapshot
from layoutopt.catalog.storage.index_files import PackedIndexes, split_indexes
from layoutopt.indexes.measuring import blocks_with_indexes
from layoutopt.model.layout import Plan


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

    def split(self) -> TaskResult:
        """Return the result with encoded indexes, separate from the blocks."""
        blocks, indexes = split_indexes(self.blocks)
        return replace(self, blocks=blocks, indexes=indexes)


class PackedResults(Sequence[TaskResult | None]):
    """Results of many tasks, with their blocks in one table: a table of its own takes about 100 KB for each."""

    def __init__(self, results: Sequence[TaskResult | None]) -> None:
        counts = [0 if result is None else result.blocks.num_rows for result in results]
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
    """The combined results of a load's tasks.

    Attributes:
        indexes: the indexes of the blocks, in consecutive parts.
        observed: the source's content as read.
        joined: joined vectors by partition key.
        positions: the sums of the source's values with their tids.
    """

    blocks: pa.Table
    indexes: tuple[PackedIndexes, ...]
    observed: Content
    joined: Mapping[str, int]
    positions: TidSums


def combine_task_results(
    plan: Plan, keys: Sequence[str], numbers: Sequence[int], answers: Iterable[TaskResult], observed: Content
) -> WriteResult:
    """Combine the results of tasks, in the order of the segments.

    ``keys`` are each segment's partition key and ``numbers`` its number in that partition. ``observed`` is the
    source's content as read.
    """
    no_blocks, no_indexes = split_indexes(blocks_with_indexes(plan).empty_table())
    tables, indexes, joined = [no_blocks], [no_indexes], dict.fromkeys(keys, 0)
    positions: dict[tuple[str, int, int], Mapping[str, int]] = {}
    for answer in answers:
        tables.append(answer.blocks)
        indexes.append(answer.indexes)
        key, number = keys[answer.segment], numbers[answer.segment]
        joined[key] = max(joined[key], answer.joined_vectors)
        for layout, sums in enumerate(answer.tid_sums):
            by_name = zip(plan.schema.names, sums, strict=True)
            positions[key, number, layout] = {name: sum for name, sum in by_name if sum is not None}
    return WriteResult(pa.concat_tables(tables).combine_chunks(), tuple(indexes), observed, joined, positions)


@dataclass(frozen=True)
class LoadReport:
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

    def to_json(self) -> dict[str, object]:
        """Return the report as a JSON object."""
        return asdict(self)


def load_report(
    load_id: str,
    snapshot: Snapshot,
    plan: Plan,
    keys: Sequence[str],
    segments: int,
    written: WriteResult,
    seconds: Mapping[str, float],
) -> LoadReport:
    """Return the report of a committed load; ``keys`` are its partitions and ``seconds`` its stages."""
    blocks: pa.Table = written.blocks
    notes = [
        f"partition {key} has {count} feature vectors beyond max_vectors={plan.max_vectors}; their rows were put "
        "with the nearest vectors'"
        for key, count in sorted(written.joined.items())
        if count
    ]
    sizes = describe_sizes([blocks])
    return LoadReport(
        load_id=load_id,
        snapshot=snapshot.number,
        partitions=tuple(sorted(keys)),
        rows=sum(entry.rows for entry in snapshot.partitions if entry.load_id == load_id),
        segments=segments,
        blocks=blocks.num_rows,
        files=len(blocks["file"].unique()),
        bytes=int(pc.sum(blocks["bytes"]).as_py() or 0),
        notes=(*notes, *([] if sizes is None else [sizes])),
        seconds=dict(seconds),
    )
