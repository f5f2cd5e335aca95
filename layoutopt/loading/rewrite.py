"""Rewrite some layouts of a partition and keep the files of the others.

Only row positions tie the layouts of a segment to each other, and rows keep their positions. The rows of a segment are
read in the order of their positions and written into the blocks of the new layouts. The next blocks file names the kept
files again. The new plan's features are measured for the kept blocks, by the positions that their rows have.

Before the commit, the catalog's sums of hash(tid, value) prove for each segment that every column still has its values
at their positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.commit import Basis, CommitHook, Load, commit_load
from layoutopt.catalog.entries import partition_entries, written_positions
from layoutopt.catalog.file_sizes import sum_sizes
from layoutopt.catalog.load_check import Content, TidSums, check_content, check_positions
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import CatalogError, ContentMismatchError
from layoutopt.evaluation.predicates import features_left_to_spark
from layoutopt.events import Stages
from layoutopt.loading.write import make_job, read_results, write_segments
from layoutopt.maintenance.partial_rewrite import carry_words, select_layout_blocks, to_block_rows
from layoutopt.model.arrays import Ints, Words
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import columns_of
from layoutopt.model.schema import TID
from layoutopt.model.vectors import pack
from layoutopt.scan.files import BATCH_ROWS, read_files
from layoutopt.scan.segments import FileRead, plan_file_reads
from layoutopt.scan.table import Table, plan_entries_read
from layoutopt.scan.table_read import TableRead
from layoutopt.sources.segments import Segment
from layoutopt.sources.source import Source
from layoutopt.writer.load_ids import (
    ANY_FAILURE,
    COMMIT_REFUSALS,
    fresh_load_id,
    remove_on_failure,
)
from layoutopt.writer.segment import GatheredSegment
from layoutopt.writer.task_result import LoadReport, TaskResult, WriteResult, combine_task_results, load_report

# Opens the segments that are read of a table, to be written by a plan: a source, and the segments in it.
OpenSegments: TypeAlias = Callable[[Table, Plan, TableRead], tuple[Source, tuple[Segment, ...]]]


@dataclass(frozen=True)
class PartialRewrite:
    """The layouts of one partition to write and to keep.

    Attributes:
        entry: the partition's only entry, without deleted rows.
        plan: the plan afterwards; the kept layouts come first.
        kept: the kept layouts as indexes into the entry's plan, in that order.

    Raises:
        ValueError: the plan has one layout, whose files have no positions.
    """

    entry: PartitionEntry
    plan: Plan
    kept: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.plan.scheme.has_tids:
            raise ValueError("the plan has one layout, so no layout can be written alone; rewrite the whole partition")

    @property
    def written(self) -> tuple[int, ...]:
        """Return the layouts to write, as indexes into the plan."""
        return tuple(range(len(self.kept), len(self.plan.scheme.layouts)))

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns to read, in the schema's order: stored, evaluated by features or queries, or sorted by."""
        wanted = set().union(*(feature.columns for feature in self.plan.features))
        for query in self.plan.queries:
            wanted |= columns_of(query.filter.root)
        for index in self.written:
            layout = self.plan.scheme.layouts[index]
            wanted |= {*layout.columns, *layout.ordering_columns}
        return tuple(name for name in self.plan.schema.names if name in wanted)


def can_rewrite_partially(table: Table, entry: PartitionEntry) -> bool:
    """Return whether the catalog can prove that writing layouts of this entry alone loses no value."""
    if entry.deletes is not None or not entry.rows:
        return False
    sums = _get_known_sums(table, entry)
    return all(set(table.schema.names) <= set(columns) for columns in sums.values())


def rewrite_layouts(
    table: Table,
    work: PartialRewrite,
    open_rows: OpenSegments,
    watch: Stages,
    at: CommitHook = lambda point: None,
) -> LoadReport:
    """Write some layouts of a partition and commit them together with the kept ones.

    Args:
        table: at one snapshot.
        work: the layouts to write and to keep.
        open_rows: opens the partition's segments.
        watch: times and logs the stages.
        at: called at the commit's points, see :data:`layoutopt.catalog.commit.CRASH_POINTS`; for tests.

    Returns:
        The commit; blocks, files and bytes count only what was written.

    Raises:
        ContentMismatchError: the written values differ from the table's.
        CommitConflictError: another commit changed the partition.
        LayoutoptError: as :func:`layoutopt.loading.load.load`, and of ``open_rows``.
    """
    catalog, entry, plan = table.catalog, work.entry, work.plan
    before = catalog.blocks(entry)
    kept = select_layout_blocks(before, work.kept)
    load_id = fresh_load_id(catalog.snapshot, np.unique(before.block_id).tolist())
    read = plan_entries_read(table, [entry], work.columns)
    rows, segments = open_rows(table, plan, read)
    remove = partial(
        remove_on_failure, files=catalog.files, load_id=load_id, keys=[entry.key], first=rows.executor.wait
    )
    with closing(rows), remove(ANY_FAILURE):
        say = f"writing {len(work.written)} layouts"
        with watch.stage("write", say, load_id=load_id, read_by=rows.reader) as counts:
            results = _write(table, work, kept, load_id, rows, segments)
            keys, numbers = [entry.key] * len(segments), [segment.number for segment in segments]
            written = combine_task_results(plan, keys, numbers, results)
            counts["blocks"] = written.blocks.num_rows
        _check_positions(table, work, written)
        words = _unite_words(table, work, kept, rows, segments, results)
        blocks = pa.concat_tables([to_block_rows(kept, words, plan), written.blocks])
        (measured,) = partition_entries(blocks, plan, load_id, {entry.key: entry.value})
        sums = {name: measured.checksums[name] for name in entry.checksums if name in measured.checksums}
        name = f"partition {entry.key!r} of {rows.name}"
        check_content(Content(entry.rows, dict(entry.checksums)), Content(measured.rows, sums), name)
    with remove(COMMIT_REFUSALS), watch.stage("commit", "committing") as counts:
        entries = [replace(measured, source=entry.source)]
        basis = Basis(snapshot=catalog.snapshot, operation="optimize")
        snapshot = commit_load(catalog.files, Load(basis, plan, load_id, entries, blocks), at)
        counts["snapshot"] = snapshot.number
    sizes = [sum_sizes(written.blocks)]
    return load_report(load_id, snapshot, plan, [entry.key], len(segments), sizes, written.joined, watch.seconds)


def _write(
    table: Table, work: PartialRewrite, kept: BlockTable, load_id: str, rows: Source, segments: Sequence[Segment]
) -> list[TaskResult]:
    files = table.catalog.files
    reads = [plan_file_reads(kept, _find_kept_blocks(kept, segment)) for segment in segments]
    keys, numbers = [work.entry.key] * len(segments), [segment.number for segment in segments]
    job = make_job(files, work.plan, load_id, keys, numbers)
    job = replace(job, only=work.written, also=partial(_measure_kept_blocks, files.for_tasks(), reads))
    return read_results(files, write_segments(rows, job, segments))


def _find_kept_blocks(kept: BlockTable, segment: Segment) -> Ints:
    """Return the kept blocks of a segment in the order of files and row groups."""
    blocks = np.flatnonzero(kept.segment == segment.number)
    ordered: Ints = blocks[np.lexsort((kept.row_group[blocks], kept.file[blocks]))]
    return ordered


def _measure_kept_blocks(files: TableFiles, reads: Sequence[Sequence[FileRead]], segment: GatheredSegment) -> bytes:
    """Return the union vectors of a segment's kept blocks, by the positions of their rows; runs in a task."""
    words = [np.zeros((0, segment.words.shape[1]), dtype=np.uint64)]
    for file in reads[segment.id]:
        tids = [batch.column(0).to_numpy() for batch in read_files(files, [file], [TID], BATCH_ROWS)]
        starts = np.cumsum((0, *file.rows))[:-1]
        words.append(np.bitwise_or.reduceat(segment.words[np.concatenate(tids)], starts, axis=0))
    return np.concatenate(words).tobytes()


def _unite_words(
    table: Table,
    work: PartialRewrite,
    kept: BlockTable,
    rows: Source,
    segments: Sequence[Segment],
    results: Sequence[TaskResult],
) -> Words:
    """Return the union vectors of the kept blocks under the plan's features: a bit is 0 where either source has 0.

    Raises:
        ContentMismatchError: rows have features that the vectors of their blocks lack.
    """
    features = work.plan.features
    words = carry_words(kept.words, table.catalog.plans[work.entry.plan].features, features)
    is_exact = np.ones((1, len(features)), dtype=np.bool_)
    if not rows.carries_words:  # a bit of other features may be set since a value is unknown
        is_exact[:, list(features_left_to_spark(features.features, work.columns))] = False
    exact = pack(is_exact)
    for result in results:
        if result.also is None:
            raise CatalogError(
                f"the task of segment {result.segment} returned no feature bits for kept blocks; nothing was "
                "committed, run the command again"
            )
        block_ids = _find_kept_blocks(kept, segments[result.segment])
        measured = np.frombuffer(result.also, dtype=np.uint64).reshape(words[block_ids].shape)
        if (measured & ~words[block_ids] & exact).any():
            raise ContentMismatchError(
                f"blocks of partition {work.entry.key!r} have rows with features that their union vectors lack; "
                "nothing was committed, run `layoutopt verify`"
            )
        words[block_ids] &= measured
    return words


def _check_positions(table: Table, work: PartialRewrite, written: WriteResult) -> None:
    """Raise ContentMismatchError for a value that was not read, or not written, at its position."""
    name, every = f"the table {table.catalog.files.root!r}", len(work.plan.scheme.layouts)
    known = _get_known_sums(table, work.entry)
    stored = {group: {name: sums[name] for name in work.columns} for group, sums in known.items()}
    read = {(key, number, 0): sums for (key, number, layout), sums in written.positions.items() if layout == every}
    check_positions(stored, read, name)
    expected = {group: sums for group, sums in written.positions.items() if group[-1] < every}
    check_positions(expected, written_positions(BlockTable.from_arrow(written.blocks, work.plan)), name)


def _get_known_sums(table: Table, entry: PartitionEntry) -> TidSums:
    """Return each segment's position sums by column, under layout 0; a column's sums come from its master layout."""
    masters = [set(layout.master) for layout in table.catalog.plans[entry.plan].scheme.layouts]
    known: dict[tuple[str, int, int], dict[str, int]] = {}
    for (key, segment, layout), sums in written_positions(table.catalog.blocks(entry)).items():
        by_column = known.setdefault((key, segment, 0), {})
        by_column.update({name: sum for name, sum in sums.items() if name in masters[layout]})
    return known
