"""Rows deleted by vectors: their places in the blocks of every layout, written beside these, which stay as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.checks import Content
from layoutopt.catalog.deletion_vectors import Marks, commit_deletes, packed, places_in, united, vectors_of
from layoutopt.catalog.paths import new_load_id
from layoutopt.catalog.snapshot import EntryName, PartitionEntry
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.errors import ContentMismatchError
from layoutopt.events import Stages
from layoutopt.model.arrays import Ints
from layoutopt.model.schema import TID
from layoutopt.scan.files import BATCH_ROWS, read_files
from layoutopt.scan.prune import PlanBlocks
from layoutopt.scan.segments import FileRead, file_reads
from layoutopt.spark.changes.affected_rows import FoundIn, Place
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.workers import Batches, map_in_workers
from layoutopt.spark.loading.job import Basis
from layoutopt.spark.loading.load import load
from layoutopt.writer.task_result import LoadReport

_MARKED = "work int, layout int, block bigint, rows bigint, places binary"


@dataclass(frozen=True)
class MarkReport:
    """What a delete by vectors wrote.

    Attributes:
        load_id: of the change.
        snapshot: that it committed.
        partitions: their keys.
        blocks: how many have a deleted row now.
        bytes: of the vectors, which is all that was written beside the snapshot.
    """

    load_id: str
    snapshot: int
    partitions: tuple[str, ...]
    blocks: int
    bytes: int

    @classmethod
    def of(cls, load_id: str, snapshot: int, marks: Marks) -> MarkReport:
        """The report of rows that were deleted in a commit."""
        keys = tuple(sorted({key for key, _ in marks.deleted}))
        return cls(load_id, snapshot, keys, len(marks.vectors), len(marks.data))

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class _OfLayout:
    """A layout of a segment: all its row groups, deleted rows included, and the blocks' numbers in that order."""

    layout: int
    files: tuple[FileRead, ...]
    blocks: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Work:
    """Rows of a segment, by their tids (a bitmap), to be looked up in its layouts."""

    tids: bytes
    layouts: tuple[_OfLayout, ...]


def mark_deleted(place: Place, operation: str, found: Sequence[FoundIn], watch: Stages) -> MarkReport:
    """Delete rows by vectors, in one commit; no data file is written.

    Args:
        place: the table in which the rows were found.
        operation: what the history calls it.
        found: the rows.
        watch: times the stages.

    Raises:
        CommitConflictError: somebody else changed one of the partitions meanwhile.
        LayoutoptError: as :func:`marks_of`.
    """
    catalog, load_id = place.table.catalog, new_load_id()
    marks = marks_of(place, found, watch)
    with watch.stage("commit", "committing") as counts:
        snapshot = commit_deletes(catalog.files, catalog.snapshot, load_id, marks, operation=operation)
        counts["snapshot"] = snapshot.number
    return MarkReport.of(load_id, snapshot.number, marks)


def marks_of(place: Place, found: Sequence[FoundIn], watch: Stages, *, alone: bool = False) -> Marks:
    """The vectors of rows, in every layout, and what is deleted once they count.

    Args:
        place: the table in which the rows were found.
        found: the rows.
        watch: times the stage.
        alone: see :class:`~layoutopt.catalog.deletion_vectors.Marks`.

    Raises:
        ContentMismatchError: a layout lacks one of the rows, or two blocks have one number.
        DataFileError: a data file is missing or damaged.
    """
    if not found:
        return Marks({}, {}, alone)
    catalog = place.table.catalog
    of_entry: dict[EntryName, list[FoundIn]] = {}
    for one in found:
        of_entry.setdefault(one.entry.name, []).append(one)
    with watch.stage("mark", "finding the rows in every layout") as counts:
        _check_numbers([catalog.blocks(mine[0].entry) for mine in of_entry.values()])
        before = (vectors_of(catalog.blocks(mine[0].entry)) for mine in of_entry.values())
        vectors = _all_of([*before, *_new_vectors(place.spark, catalog, found)])
        counts["blocks"] = len(vectors)
    deleted = {name: _deleted_then(mine[0].entry, mine) for name, mine in of_entry.items()}
    return Marks(deleted, vectors, alone)


def deleted_share(place: Place, found: Sequence[FoundIn]) -> float:
    """Of the rows of the partitions concerned, as they were written, the share that is deleted once these rows are."""
    keys = {one.entry.key for one in found}
    entries = [entry for entry in place.table.catalog.partitions if entry.key in keys]
    gone = _rows_of(found) + sum(entry.rows - entry.live_rows for entry in entries)
    return gone / max(1, sum(entry.rows for entry in entries))


def _check_numbers(tables: Sequence[BlockTable]) -> None:
    """Refuse blocks that share a number, by which vectors are told apart.

    Raises:
        ContentMismatchError: some do.
    """
    numbers = np.concatenate([blocks.block_id for blocks in tables])
    if len(np.unique(numbers)) < len(numbers):
        raise ContentMismatchError(
            "two blocks of the table have one number, so vectors can't tell them apart; give --rewrite-share 0"
        )


def _deleted_then(entry: PartitionEntry, found: Sequence[FoundIn]) -> Content:
    """What of an entry is deleted once more rows are."""
    before = dict.fromkeys(entry.checksums, 0) if entry.deletes is None else entry.deletes.checksums
    sums = {name: sum + _sum_of(found, name) for name, sum in before.items()}
    return Content(entry.rows - entry.live_rows + _rows_of(found), sums)


def _rows_of(found: Iterable[FoundIn]) -> int:
    return sum(one.rows for one in found)


def _sum_of(found: Iterable[FoundIn], name: str) -> int:
    return sum(one.sums[name] for one in found)


def _all_of(parts: Iterable[Mapping[int, bytes]]) -> dict[int, bytes]:
    """Vectors of several origins, by the blocks' numbers; a row is deleted once."""
    vectors: dict[int, bytes] = {}
    for part in parts:
        for block, places in part.items():
            vectors[block] = united([vectors[block], places]) if block in vectors else places
    return vectors


def _new_vectors(spark: SparkSession, catalog: Catalog, found: Sequence[FoundIn]) -> Iterator[dict[int, bytes]]:
    """The vectors of the rows found, in every layout."""
    with_tids = [one for one in found if one.source.plan.scheme.has_tids]
    for one in found:
        if not one.source.plan.scheme.has_tids:
            yield _of_places(one)
    if with_tids:
        yield _of_tids(spark, catalog, with_tids)


def _of_places(one: FoundIn) -> dict[int, bytes]:
    """The vectors of rows whose places are those in the files read."""
    places, files = places_in(one.places), one.read.layouts[0].files
    ends = np.cumsum([rows for file in files for rows in file.rows])
    cuts = np.searchsorted(places, ends)
    starts = np.r_[0, ends[:-1]]
    parts = zip(_numbers(one.source, files), np.split(places, cuts[:-1]), starts.tolist(), strict=True)
    return {block: packed(part - start) for block, part, start in parts if len(part)}


def _numbers(source: PlanBlocks, files: Sequence[FileRead]) -> list[int]:
    """The blocks of the row groups of some files of one segment."""
    blocks = source.blocks
    number = {path: index for index, path in enumerate(blocks.files)}
    first = np.flatnonzero(blocks.file == number[files[0].path])[0]
    here = np.flatnonzero(source.segment_of == source.segment_of[first])
    pairs = zip(blocks.file[here].tolist(), blocks.row_group[here].tolist(), strict=True)
    of_pair = dict(zip(pairs, blocks.block_id[here].tolist(), strict=True))
    return [of_pair[number[file.path], group] for file in files for group in file.row_groups]


def _of_tids(spark: SparkSession, catalog: Catalog, found: Sequence[FoundIn]) -> dict[int, bytes]:
    """The vectors of rows that are known by their tids, by reading the tids of every layout of their segments.

    Raises:
        ContentMismatchError: a layout that has every row lacks one of them.
    """
    works = [_Work(one.places, _layouts_of(one)) for one in found]
    files = catalog.files.for_tasks()
    numbers = spark.range(0, len(works), 1, min(len(works), 4 * spark.sparkContext.defaultParallelism))
    with translate_spark_errors(repr(catalog.files.root)):
        marked = map_in_workers(numbers, partial(_look_up, files, works), _MARKED).toArrow()
    rows: dict[tuple[int, int], int] = {}
    for work, layout, count in zip(*(marked[name].to_pylist() for name in ("work", "layout", "rows")), strict=True):
        rows[work, layout] = rows.get((work, layout), 0) + count
    for number, one in enumerate(found):
        for index, layout in enumerate(one.source.plan.scheme.layouts):
            there = rows.get((number, index), 0)
            if there > one.rows or (layout.master and there != one.rows):
                raise ContentMismatchError(
                    f"layout {index} has {there} of {one.rows} rows to be deleted in segment {one.read.segment} of "
                    f"partition {one.entry.key!r}; nothing was deleted, run `layoutopt verify`"
                )
    return dict(zip(marked["block"].to_pylist(), marked["places"].to_pylist(), strict=True))


def _layouts_of(one: FoundIn) -> tuple[_OfLayout, ...]:
    """All layouts of the segment in which rows were found."""
    blocks, source = one.source.blocks, one.source
    path = one.read.layouts[0].files[0].path
    first = np.flatnonzero(blocks.file == blocks.files.index(path))[0]
    here = np.flatnonzero(source.segment_of == source.segment_of[first])
    here = here[np.lexsort((blocks.row_group[here], blocks.file[here]))]
    layouts = np.unique(blocks.layout[here]).tolist()
    return tuple(_of_layout(source, layout, here[blocks.layout[here] == layout]) for layout in layouts)


def _of_layout(source: PlanBlocks, layout: int, mine: Ints) -> _OfLayout:
    files = tuple(replace(file, deleted=()) for file in file_reads(source.blocks, mine))
    return _OfLayout(layout, files, tuple(source.blocks.block_id[mine].tolist()))


def _look_up(files: TableFiles, works: Sequence[_Work], batches: Batches) -> Iterator[pa.RecordBatch]:
    """The task: where in each layout's blocks the rows of a segment lie."""
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        wanted = places_in(works[number].tids)
        for of in works[number].layouts:
            yield _places_of_layout(files, number, wanted, of)


def _places_of_layout(files: TableFiles, number: int, wanted: Ints, of: _OfLayout) -> pa.RecordBatch:
    """The places of some tids (ascending) in the blocks of a layout, for those blocks that have any."""
    read = [batch.column(0).to_numpy().astype(np.int64) for batch in read_files(files, of.files, [TID], BATCH_ROWS)]
    tids = np.concatenate([np.zeros(0, np.int64), *read])
    hits = np.flatnonzero(np.isin(tids, wanted))
    ends = np.cumsum([rows for file in of.files for rows in file.rows])
    starts = np.r_[0, ends[:-1]]
    parts = np.split(hits, np.searchsorted(hits, ends[:-1]))
    placed = zip(of.blocks, parts, starts.tolist(), strict=True)
    found = [(block, part - start) for block, part, start in placed if len(part)]
    return pa.RecordBatch.from_pydict(
        {
            "work": pa.array([number] * len(found), pa.int32()),
            "layout": pa.array([of.layout] * len(found), pa.int32()),
            "block": pa.array([block for block, _ in found], pa.int64()),
            "rows": pa.array([len(places) for _, places in found], pa.int64()),
            "places": pa.array([packed(places) for _, places in found], pa.binary()),
        }
    )


# ----------------------------------------------------------------------------------------------------
# Rows put beside what a table has, in the place of others that are marked as deleted in the same commit.


def put_beside(
    place: Place,
    operation: str,
    found: Sequence[FoundIn],
    come: DataFrame,
    watch: Stages,
    content: Content | None = None,
    *,
    alone: bool = False,
) -> tuple[LoadReport, MarkReport | None]:
    """Delete rows by vectors, and add others in entries of their own, as one commit.

    Args:
        place: the table in which the rows were found.
        operation: what the history calls it.
        found: the rows that go; none, where all rows are new.
        come: the rows that come, the same ones however often they are read.
        watch: times the stages.
        content: what ``come`` must have, of the columns of which that is known without it.
        alone: whether rows that somebody else adds to the partitions meanwhile are a conflict.

    Raises:
        ContentMismatchError: the rows have something else.
        CommitConflictError: somebody else changed one of the partitions meanwhile.
        LayoutoptError: as :func:`layoutopt.spark.loading.load.load`.
    """
    marks = marks_of(place, found, watch, alone=alone)
    basis = Basis(
        place.table.catalog.snapshot,
        f"the table {place.path!r}",
        values=None if place.plan.partition_by is None else place.values_in(come),
        whole=True,
        content=content,
        operation=operation,
        marks=marks,
    )
    done = load(place.spark, come, place.path, place.plan, basis=basis, stages=watch)
    return done, MarkReport.of(done.load_id, done.snapshot, marks) if marks.deleted else None
