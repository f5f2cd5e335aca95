"""What a scan reads of each segment: which row groups of which files, and which columns of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.deletion_vectors import places_in
from layoutopt.catalog.storage.footers import ChunkSizes
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.types import nested_parts
from layoutopt.scan.prune import PrunedPlan

_MANY_CHUNKS: Final = 4_000
"""Whose footer takes some milliseconds to decode."""
_MANY_ROW_GROUPS: Final = 50
"""Of fewer, it takes longer to look up the sizes of all columns' chunks than to decode the footer."""
_FEW: Final = 4
"""Of the chunks a fourth at most, or fewer still, are told one by one."""


@dataclass(frozen=True)
class FileRead:
    """The row groups of one file to read, ascending, with the rows that the catalog says each holds.

    ``footer`` is the digest of the file's footer, None where the catalog has none. ``deleted`` has of each row group
    the places of its deleted rows, a bitmap, None where none is; it is empty where no row group has any. ``chunks`` are
    the sizes of the row groups' column chunks where they, and not the file's footer, tell readers where these are.
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
        return tuple(np.zeros(0, dtype=np.int64) if one is None else places_in(one) for one in self.deleted)

    @property
    def live_rows(self) -> tuple[int, ...]:
        """How many rows of each row group are not deleted."""
        if not self.deleted:
            return self.rows
        return tuple(rows - len(gone) for rows, gone in zip(self.rows, self.places, strict=True))

    def alive(self) -> Bits | None:
        """Which of the row groups' rows are not deleted, one after the other; None where all are."""
        if not self.deleted:
            return None
        found = np.ones(sum(self.rows), dtype=np.bool_)
        starts = np.cumsum((0, *self.rows))
        for start, gone in zip(starts.tolist(), self.places, strict=False):
            found[start + gone] = False
        return found

    def only(self, kept: Sequence[int]) -> FileRead:
        """The same of some of the row groups, by their places here."""
        groups, rows = (tuple(values[i] for i in kept) for values in (self.row_groups, self.rows))
        deleted = tuple(self.deleted[i] for i in kept if self.deleted)
        chunks = None if self.chunks is None else self.chunks.only(np.array(kept, dtype=np.int64))
        return replace(self, row_groups=groups, rows=rows, deleted=deleted, chunks=chunks)


@dataclass(frozen=True)
class LayoutRead:
    """What is read of one layout in one segment: these columns of these row groups."""

    layout: int
    columns: tuple[str, ...]
    files: tuple[FileRead, ...]


@dataclass(frozen=True)
class SegmentRead:
    """One segment's part of a scan; more than one layout means that rows are put together by tid."""

    partition: str
    segment: int
    layouts: tuple[LayoutRead, ...]

    @property
    def has_deletes(self) -> bool:
        """Whether a row group to be read has a deleted row."""
        return any(file.deleted for layout in self.layouts for file in layout.files)


def segments_to_read(pruned: PrunedPlan) -> list[SegmentRead]:
    """The surviving row groups of a plan's blocks, by segment, layout and file."""
    source, blocks = pruned.source, pruned.source.blocks
    chosen = np.flatnonzero(pruned.read)
    order = chosen[np.lexsort((blocks.row_group[chosen], blocks.file[chosen], source.segment_of[chosen]))]
    segments = []
    for members in _runs(order, source.segment_of[order]):
        first = members[0]
        layouts = [_layout_read(pruned, members, index) for index in range(len(pruned.choice))]
        partition = source.entries[source.entry_of[first]].key
        segments.append(SegmentRead(partition, int(blocks.segment[first]), tuple(layouts)))
    return segments


def by_file(segments: Sequence[SegmentRead]) -> list[SegmentRead]:
    """Segments of which each is read from one layout, cut into one for each file; others as they are."""
    if any(len(segment.layouts) > 1 for segment in segments):
        return list(segments)
    return [
        replace(segment, layouts=(replace(segment.layouts[0], files=(file,)),))
        for segment in segments
        for file in segment.layouts[0].files
    ]


def _layout_read(pruned: PrunedPlan, members: Any, index: int) -> LayoutRead:
    blocks, choice = pruned.source.blocks, pruned.choice[index]
    mine = members[blocks.layout[members] == choice.layout]
    reads = file_reads(blocks, mine)
    columns = [blocks.schema.get(name) for name in choice.columns]
    if len(mine) and not any(column is not None and nested_parts(column.type)[1] for column in columns):
        stored = len(pruned.source.plan.scheme.layouts[choice.layout].columns)
        reads = tuple(_with_chunks(reads, blocks, mine, len(choice.columns) / stored, stored))
    return LayoutRead(choice.layout, choice.columns, reads)


def file_reads(blocks: BlockTable, chosen: Ints) -> tuple[FileRead, ...]:
    """The reads of some blocks, by their indices, in the order of files and row groups."""
    reads = []
    for run in _runs(chosen, blocks.file[chosen]):
        file = int(blocks.file[run[0]])
        rows, groups = tuple(blocks.rows[run].tolist()), tuple(blocks.row_group[run].tolist())
        reads.append(FileRead(blocks.files[file], groups, rows, blocks.footers[file], blocks.deleted_in(run)))
    return tuple(reads)


def _with_chunks(
    reads: Sequence[FileRead], blocks: BlockTable, chosen: Ints, share: float, stored: int
) -> list[FileRead]:
    """The reads of some blocks, those of files with many chunks of which few are read with their sizes.

    Args:
        reads: of the blocks.
        blocks: all blocks.
        chosen: the indices of those that are read, in the reads' order.
        share: of the files' columns, that is read.
        stored: how many columns the files have.
    """
    ends = np.cumsum([len(read.rows) for read in reads], dtype=np.int64)
    in_file = blocks.row_groups_of[blocks.file[chosen[ends - 1]]]
    read_of = np.diff(ends, prepend=0)
    many = (in_file * stored >= _MANY_CHUNKS) & (in_file >= _MANY_ROW_GROUPS)
    few = many & (share * read_of * _FEW <= in_file)
    if not few.any():
        return list(reads)
    sizes = blocks.chunk_sizes(chosen)
    found = []
    for read, is_few, count, end in zip(reads, few.tolist(), read_of.tolist(), ends.tolist(), strict=True):
        of = sizes.only(slice(end - count, end))
        found.append(replace(read, chunks=of) if is_few and (of.starts >= 0).all() else read)
    return found


def _runs(values: Any, labels: Any) -> list[Any]:
    """``values`` cut where ``labels`` (equally long) change."""
    if not len(values):
        return []
    return np.split(values, np.flatnonzero(labels[1:] != labels[:-1]) + 1)
