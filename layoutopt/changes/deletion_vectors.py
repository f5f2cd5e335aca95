"""Delete rows by deletion vectors: the positions of deleted rows in the blocks of every layout; no block is rewritten.

Rows may be added in the same commit, in entries of their own (merge-on-read).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.deletion_vectors import (
    Marks,
    pack_positions,
    unite_vectors,
    unpack_positions,
    vectors_of,
)
from layoutopt.catalog.load_check import Content
from layoutopt.catalog.partition_entry import EntryName, PartitionEntry
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.changes.affected_rows import SegmentRows
from layoutopt.errors import ContentMismatchError
from layoutopt.events import Stages
from layoutopt.model.arrays import Ints
from layoutopt.model.schema import TID
from layoutopt.scan.files import BATCH_ROWS, read_files
from layoutopt.scan.segments import FileRead, plan_file_reads
from layoutopt.sources.executor import Executor, map_in_groups


@dataclass(frozen=True, eq=False)
class _SegmentLayout:
    """The row groups of a segment's layout, deleted rows included, and the ids of their blocks in the same order."""

    layout: int
    files: tuple[FileRead, ...]
    blocks: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _SegmentTask:
    """The tids of deleted rows of a segment (a bitmap), and the layouts to find them in."""

    tids: bytes
    layouts: tuple[_SegmentLayout, ...]


def make_marks(
    catalog: Catalog, matches: Sequence[SegmentRows], executor: Executor, watch: Stages, *, exclusive: bool = False
) -> Marks:
    """Return the deletion vectors of rows in every layout, and the content that is deleted afterwards.

    Args:
        catalog: the table's, at the snapshot in which the rows were found.
        matches: the rows.
        executor: its tasks look for rows with tids in every layout of their segments.
        watch: times the stage.
        exclusive: see ``alone`` of :class:`~layoutopt.catalog.deletion_vectors.Marks`.

    Raises:
        ContentMismatchError: a layout lacks one of the rows, or two blocks share an id.
        DataFileError: a data file is missing or damaged.
    """
    if not matches:
        return Marks({}, {}, exclusive)
    by_entry: dict[EntryName, list[SegmentRows]] = {}
    for match in matches:
        by_entry.setdefault(match.entry.name, []).append(match)
    with watch.stage("mark", "finding the rows in every layout") as counts:
        tables = [catalog.blocks(group[0].entry) for group in by_entry.values()]
        _check_block_ids(tables)
        old = map(vectors_of, tables)
        vectors = _unite_by_block([*old, *_make_vectors(catalog, matches, executor)])
        counts["blocks"] = len(vectors)
    deleted = {name: _measure_deleted(group[0].entry, group) for name, group in by_entry.items()}
    return Marks(deleted, vectors, exclusive)


def _check_block_ids(tables: Sequence[BlockTable]) -> None:
    ids = np.concatenate([blocks.block_id for blocks in tables])
    if len(np.unique(ids)) < len(ids):
        raise ContentMismatchError(
            "two blocks of the table share an id, so deletion vectors can't be used; set --rewrite-share 0"
        )


def _measure_deleted(entry: PartitionEntry, matches: Sequence[SegmentRows]) -> Content:
    """Return the deleted content of an entry once these rows are deleted too."""
    old = dict.fromkeys(entry.checksums, 0) if entry.deletes is None else entry.deletes.checksums
    sums = {name: total + sum(match.sums[name] for match in matches) for name, total in old.items()}
    return Content(entry.rows - entry.live_rows + sum(match.rows for match in matches), sums)


def _unite_by_block(parts: Iterable[Mapping[int, bytes]]) -> dict[int, bytes]:
    vectors: dict[int, bytes] = {}
    for part in parts:
        for block, places in part.items():
            vectors[block] = unite_vectors([vectors[block], places]) if block in vectors else places
    return vectors


def _make_vectors(catalog: Catalog, matches: Sequence[SegmentRows], executor: Executor) -> Iterator[dict[int, bytes]]:
    for match in matches:
        if not match.source.plan.scheme.has_tids:
            yield _vectors_from_positions(match)
    with_tids = [match for match in matches if match.source.plan.scheme.has_tids]
    if with_tids:
        yield _vectors_from_tids(catalog, with_tids, executor)


def _vectors_from_positions(match: SegmentRows) -> dict[int, bytes]:
    """Return the vectors of rows whose positions count the rows of the files read."""
    blocks, indexes, files = match.source.blocks, _find_segment_blocks(match), match.read.layouts[0].files
    number = match.source.file_numbers
    groups = zip(blocks.file[indexes].tolist(), blocks.row_group[indexes].tolist(), strict=True)
    ids = dict(zip(groups, blocks.block_id[indexes].tolist(), strict=True))
    read = [ids[number[file.path], group] for file in files for group in file.row_groups]
    by_block = _split_by_block(unpack_positions(match.places), read, files)
    return {block: pack_positions(positions) for block, positions in by_block.items()}


def _split_by_block(positions: Ints, blocks: Sequence[int], files: Sequence[FileRead]) -> dict[int, Ints]:
    """Return ascending positions among the rows of files as positions in their blocks, for each block with any."""
    ends = np.cumsum([rows for file in files for rows in file.rows])
    parts = zip(blocks, np.split(positions, np.searchsorted(positions, ends[:-1])), (0, *ends[:-1]), strict=True)
    return {block: part - start for block, part, start in parts if len(part)}


def _find_segment_blocks(match: SegmentRows) -> Ints:
    return match.source.blocks_of_segment(match.read.layouts[0].files[0].path)


def _vectors_from_tids(catalog: Catalog, matches: Sequence[SegmentRows], executor: Executor) -> dict[int, bytes]:
    """Return the vectors of rows with tids, by reading the tids of every layout of their segments.

    Raises:
        ContentMismatchError: a layout with master columns lacks one of the rows.
    """
    tasks = [_SegmentTask(match.places, _list_layouts(match)) for match in matches]
    results = map_in_groups(executor, tasks, partial(_find_tids, catalog.files.for_tasks()))
    vectors: dict[int, bytes] = {}
    for match, by_layout in zip(matches, results, strict=True):
        for index, layout in enumerate(match.source.plan.scheme.layouts):
            blocks = by_layout.get(index, {})
            count = sum(rows for rows, _ in blocks.values())
            if count > match.rows or (layout.master and count != match.rows):
                raise ContentMismatchError(
                    f"layout {index} has {count} of {match.rows} rows to be deleted in segment {match.read.segment} "
                    f"of partition {match.entry.key!r}; nothing was deleted, run `layoutopt verify`"
                )
            vectors |= {block: places for block, (_, places) in blocks.items()}
    return vectors


def _list_layouts(match: SegmentRows) -> tuple[_SegmentLayout, ...]:
    blocks, indexes = match.source.blocks, _find_segment_blocks(match)
    indexes = indexes[np.lexsort((blocks.row_group[indexes], blocks.file[indexes]))]
    layouts = []
    for layout in np.unique(blocks.layout[indexes]).tolist():
        members = indexes[blocks.layout[indexes] == layout]
        files = tuple(replace(file, deleted=()) for file in plan_file_reads(blocks, members))
        layouts.append(_SegmentLayout(layout, files, tuple(blocks.block_id[members].tolist())))
    return tuple(layouts)


def _find_tids(files: TableFiles, task: _SegmentTask) -> dict[int, dict[int, tuple[int, bytes]]]:
    """Return how many of a segment's tids each block of its layouts has, and their positions; runs in tasks."""
    tids = unpack_positions(task.tids)
    return {layout.layout: _find_in_layout(files, tids, layout) for layout in task.layouts}


def _find_in_layout(files: TableFiles, wanted: Ints, layout: _SegmentLayout) -> dict[int, tuple[int, bytes]]:
    """Return the number and positions of some tids (ascending) in the blocks of a layout that have any."""
    batches = read_files(files, layout.files, [TID], BATCH_ROWS)
    tids = np.concatenate([np.zeros(0, np.int64), *(batch.column(0).to_numpy().astype(np.int64) for batch in batches)])
    by_block = _split_by_block(np.flatnonzero(np.isin(tids, wanted)), layout.blocks, layout.files)
    return {block: (len(positions), pack_positions(positions)) for block, positions in by_block.items()}
