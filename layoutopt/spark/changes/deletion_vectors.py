"""Delete rows by deletion vectors: the positions of deleted rows in the blocks of every layout; no block is rewritten.

Rows may be added in the same commit, in entries of their own (merge-on-read).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

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
from layoutopt.errors import ContentMismatchError
from layoutopt.events import Stages
from layoutopt.model.arrays import Ints
from layoutopt.model.schema import TID
from layoutopt.scan.files import BATCH_ROWS, read_files
from layoutopt.scan.segments import FileRead, plan_file_reads
from layoutopt.sources.executor import Batches
from layoutopt.spark.changes.affected_rows import SegmentRows, TableChange
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.versions import to_arrow
from layoutopt.spark.core.workers import map_in_workers

_TASK_RESULT = "work int, layout int, block bigint, rows bigint, places binary"


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


def make_marks(change: TableChange, matches: Sequence[SegmentRows], watch: Stages, *, exclusive: bool = False) -> Marks:
    """Return the deletion vectors of rows in every layout, and the content that is deleted afterwards.

    Args:
        exclusive: see ``alone`` of :class:`~layoutopt.catalog.deletion_vectors.Marks`.

    Raises:
        ContentMismatchError: a layout lacks one of the rows, or two blocks share an id.
        DataFileError: a data file is missing or damaged.
    """
    if not matches:
        return Marks({}, {}, exclusive)
    catalog = change.table.catalog
    by_entry: dict[EntryName, list[SegmentRows]] = {}
    for match in matches:
        by_entry.setdefault(match.entry.name, []).append(match)
    with watch.stage("mark", "finding the rows in every layout") as counts:
        tables = [catalog.blocks(group[0].entry) for group in by_entry.values()]
        _check_block_ids(tables)
        old = map(vectors_of, tables)
        vectors = _unite_by_block([*old, *_make_vectors(change.spark, catalog, matches)])
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


def _make_vectors(spark: SparkSession, catalog: Catalog, matches: Sequence[SegmentRows]) -> Iterator[dict[int, bytes]]:
    for match in matches:
        if not match.source.plan.scheme.has_tids:
            yield _vectors_from_positions(match)
    with_tids = [match for match in matches if match.source.plan.scheme.has_tids]
    if with_tids:
        yield _vectors_from_tids(spark, catalog, with_tids)


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


def _vectors_from_tids(spark: SparkSession, catalog: Catalog, matches: Sequence[SegmentRows]) -> dict[int, bytes]:
    """Return the vectors of rows with tids, by reading the tids of every layout of their segments.

    Raises:
        ContentMismatchError: a layout with master columns lacks one of the rows.
    """
    tasks = [_SegmentTask(match.places, _list_layouts(match)) for match in matches]
    files = catalog.files.for_tasks()
    numbers = spark.range(0, len(tasks), 1, min(len(tasks), 4 * spark.sparkContext.defaultParallelism))
    with translate_spark_errors(repr(catalog.files.root)):
        results = to_arrow(map_in_workers(numbers, partial(_find_tids, files, tasks), _TASK_RESULT))
    rows: dict[tuple[int, int], int] = {}
    for task, layout, count in zip(*(results[name].to_pylist() for name in ("work", "layout", "rows")), strict=True):
        rows[task, layout] = rows.get((task, layout), 0) + count
    for number, match in enumerate(matches):
        for index, layout in enumerate(match.source.plan.scheme.layouts):
            count = rows.get((number, index), 0)
            if count > match.rows or (layout.master and count != match.rows):
                raise ContentMismatchError(
                    f"layout {index} has {count} of {match.rows} rows to be deleted in segment {match.read.segment} "
                    f"of partition {match.entry.key!r}; nothing was deleted, run `layoutopt verify`"
                )
    return dict(zip(results["block"].to_pylist(), results["places"].to_pylist(), strict=True))


def _list_layouts(match: SegmentRows) -> tuple[_SegmentLayout, ...]:
    blocks, indexes = match.source.blocks, _find_segment_blocks(match)
    indexes = indexes[np.lexsort((blocks.row_group[indexes], blocks.file[indexes]))]
    layouts = []
    for layout in np.unique(blocks.layout[indexes]).tolist():
        members = indexes[blocks.layout[indexes] == layout]
        files = tuple(replace(file, deleted=()) for file in plan_file_reads(blocks, members))
        layouts.append(_SegmentLayout(layout, files, tuple(blocks.block_id[members].tolist())))
    return tuple(layouts)


def _find_tids(files: TableFiles, tasks: Sequence[_SegmentTask], batches: Batches) -> Iterator[pa.RecordBatch]:
    """Find the tids of segments in the blocks of each layout; runs in tasks."""
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        tids = unpack_positions(tasks[number].tids)
        for layout in tasks[number].layouts:
            yield _find_in_layout(files, number, tids, layout)


def _find_in_layout(files: TableFiles, number: int, wanted: Ints, layout: _SegmentLayout) -> pa.RecordBatch:
    """Return the positions of some tids (ascending) in the blocks of a layout; blocks without any are left out."""
    batches = read_files(files, layout.files, [TID], BATCH_ROWS)
    tids = np.concatenate([np.zeros(0, np.int64), *(batch.column(0).to_numpy().astype(np.int64) for batch in batches)])
    positions = _split_by_block(np.flatnonzero(np.isin(tids, wanted)), layout.blocks, layout.files)
    return pa.RecordBatch.from_pydict(
        {
            "work": pa.array([number] * len(positions), pa.int32()),
            "layout": pa.array([layout.layout] * len(positions), pa.int32()),
            "block": pa.array(list(positions), pa.int64()),
            "rows": pa.array([len(places) for places in positions.values()], pa.int64()),
            "places": pa.array([pack_positions(places) for places in positions.values()], pa.binary()),
        }
    )
