"""The row groups, files and columns that a scan reads of each segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.deletion_vectors import unpack_positions
from layoutopt.catalog.storage.footers import ChunkSizes
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.types import nested_parts
from layoutopt.scan.prune import LayoutChoice, PrunedPlan

# Decoding the footer of a file with so many chunks takes some milliseconds.
_MANY_CHUNKS: Final = 4_000
# With fewer row groups, looking up the sizes of all columns' chunks takes longer than decoding the footer.
_MANY_ROW_GROUPS: Final = 50
# Chunk sizes are passed to readers only if at most one chunk in so many is read.
_FEW: Final = 4


@dataclass(frozen=True)
class FileRead:
    """The row groups of one file to read, ascending.

    Attributes:
        rows: the rows of each row group, by the catalog.
        footer: the digest of the file's footer, None if the catalog has none.
        deleted: for each row group a bitmap of the places of its deleted rows, None if it has none; empty if no row
            group has any.
        chunks: the sizes of the row groups' column chunks, if readers use these instead of the file's footer.
    """

    path: str
    row_groups: tuple[int, ...]
    rows: tuple[int, ...]
    footer: str | None = None
    deleted: tuple[bytes | None, ...] = ()
    chunks: ChunkSizes | None = field(default=None, compare=False)

    @cached_property
    def places(self) -> tuple[Ints, ...]:
        """The places of the deleted rows of each row group, ascending."""
        if not self.deleted:
            return tuple(np.zeros(0, dtype=np.int64) for _ in self.rows)
        return tuple(
            np.zeros(0, dtype=np.int64) if bitmap is None else unpack_positions(bitmap) for bitmap in self.deleted
        )

    @property
    def live_rows(self) -> tuple[int, ...]:
        """The number of rows of each row group that are not deleted."""
        if not self.deleted:
            return self.rows
        return tuple(rows - len(places) for rows, places in zip(self.rows, self.places, strict=True))

    def alive(self) -> Bits | None:
        """Return which rows of the row groups are not deleted, concatenated; None if all are live."""
        if not self.deleted:
            return None
        mask = np.ones(sum(self.rows), dtype=np.bool_)
        starts = np.cumsum((0, *self.rows))
        for start, places in zip(starts.tolist(), self.places, strict=False):
            mask[start + places] = False
        return mask

    def only(self, places: Sequence[int]) -> FileRead:
        """Return the same read for some of its row groups, by their places in it."""
        groups, rows = (tuple(values[i] for i in places) for values in (self.row_groups, self.rows))
        deleted = tuple(self.deleted[i] for i in places if self.deleted)
        chunks = None if self.chunks is None else self.chunks.only(np.array(places, dtype=np.int64))
        return replace(self, row_groups=groups, rows=rows, deleted=deleted, chunks=chunks)


@dataclass(frozen=True)
class LayoutRead:
    """The columns and row groups that are read of one layout in one segment."""

    layout: int
    columns: tuple[str, ...]
    files: tuple[FileRead, ...]


@dataclass(frozen=True)
class SegmentRead:
    """One segment's part of a scan; with more than one layout, rows are combined by tid."""

    partition: str
    segment: int
    layouts: tuple[LayoutRead, ...]

    @property
    def live_rows(self) -> int:
        """The number of rows to be read of the layout with most, without deleted ones."""
        return max(sum(sum(file.live_rows) for file in layout.files) for layout in self.layouts)

    @property
    def has_deletes(self) -> bool:
        """Whether a row group to be read has a deleted row."""
        return any(file.deleted for layout in self.layouts for file in layout.files)


def segments_to_read(pruned: PrunedPlan) -> list[SegmentRead]:
    """Return the surviving row groups of a plan's blocks, by segment, layout and file."""
    source, blocks = pruned.source, pruned.source.blocks
    chosen = np.flatnonzero(pruned.read)
    order = chosen[np.lexsort((blocks.row_group[chosen], blocks.file[chosen], source.segment_of[chosen]))]
    segments = []
    for block_ids in _split_runs(order, source.segment_of[order]):
        first = block_ids[0]
        layouts = [_plan_layout_read(pruned, block_ids, choice) for choice in pruned.choice]
        partition = source.entries[source.entry_of[first]].key
        segments.append(SegmentRead(partition, int(blocks.segment[first]), tuple(layouts)))
    return segments


def split_by_file(segments: Sequence[SegmentRead]) -> list[SegmentRead]:
    """Return one item per file for segments that are each read from one layout; others unchanged."""
    if any(len(segment.layouts) > 1 for segment in segments):
        return list(segments)
    return [
        replace(segment, layouts=(replace(segment.layouts[0], files=(file,)),))
        for segment in segments
        for file in segment.layouts[0].files
    ]


def _plan_layout_read(pruned: PrunedPlan, block_ids: Any, choice: LayoutChoice) -> LayoutRead:
    blocks = pruned.source.blocks
    block_ids = block_ids[blocks.layout[block_ids] == choice.layout]
    reads = plan_file_reads(blocks, block_ids)
    columns = [blocks.schema.get(name) for name in choice.columns]
    if len(block_ids) and not any(column is not None and nested_parts(column.type)[1] for column in columns):
        stored = len(pruned.source.plan.scheme.layouts[choice.layout].columns)
        reads = tuple(_add_chunk_sizes(reads, blocks, block_ids, len(choice.columns) / stored, stored))
    return LayoutRead(choice.layout, choice.columns, reads)


def plan_file_reads(blocks: BlockTable, block_ids: Ints) -> tuple[FileRead, ...]:
    """Return the reads of some blocks, by their indices, in the order of files and row groups."""
    reads = []
    for run in _split_runs(block_ids, blocks.file[block_ids]):
        file = int(blocks.file[run[0]])
        rows, groups = tuple(blocks.rows[run].tolist()), tuple(blocks.row_group[run].tolist())
        reads.append(FileRead(blocks.files[file], groups, rows, blocks.footers[file], blocks.vectors_of_blocks(run)))
    return tuple(reads)


def _add_chunk_sizes(
    reads: Sequence[FileRead], blocks: BlockTable, block_ids: Ints, share: float, stored: int
) -> list[FileRead]:
    """Return the reads, with chunk sizes for files with many chunks of which few are read.

    Args:
        share: the share of the files' columns that is read.
        stored: the number of columns of the files.
    """
    ends = np.cumsum([len(read.rows) for read in reads], dtype=np.int64)
    in_file = blocks.row_groups_of[blocks.file[block_ids[ends - 1]]]
    counts = np.diff(ends, prepend=0)
    many = (in_file * stored >= _MANY_CHUNKS) & (in_file >= _MANY_ROW_GROUPS)
    few = many & (share * counts * _FEW <= in_file)
    if not few.any():
        return list(reads)
    sizes = blocks.chunk_sizes(block_ids)
    sized_reads = []
    for read, is_few, count, end in zip(reads, few.tolist(), counts.tolist(), ends.tolist(), strict=True):
        chunks = sizes.only(slice(end - count, end))
        sized_reads.append(replace(read, chunks=chunks) if is_few and (chunks.starts >= 0).all() else read)
    return sized_reads


def _split_runs(values: Any, labels: Any) -> list[Any]:
    """Return ``values`` split where ``labels`` (equally long) change."""
    if not len(values):
        return []
    return np.split(values, np.flatnonzero(labels[1:] != labels[:-1]) + 1)
