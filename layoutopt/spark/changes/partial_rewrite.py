"""Rewrite some layouts of a partition and keep the files of the others.

Only row positions tie the layouts of a segment to each other, and rows keep their positions. The rows of a segment are
read with their positions and written into the blocks of the new layouts. The next blocks file names the kept files
again. The new plan's features are measured for the kept blocks, by the positions that their rows have.

Before the commit, the catalog's sums of hash(tid, value) prove for each segment that every column still has its values
at their positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from layoutopt.catalog.blocks import BlockTable, block_schema
from layoutopt.catalog.commit import Basis, CommitHook, Load, commit_load
from layoutopt.catalog.entries import partition_entries, written_positions
from layoutopt.catalog.load_check import Content, TidSums, check_content, check_positions
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.errors import CatalogError, CommitConflictError, ContentMismatchError
from layoutopt.events import Stages
from layoutopt.features.cross_validation import query_family
from layoutopt.features.weights import feature_shares
from layoutopt.inspect.cost import EntryBytes, measure_entry_bytes
from layoutopt.maintenance.candidates import Candidate, Layouts, Part, plan_steps
from layoutopt.maintenance.partial_rewrite import (
    can_mix,
    carry_words,
    missing_layouts,
    mix_plans,
    renumber_features,
    restrict_to_columns,
    select_layout_blocks,
    to_block_rows,
    to_word_lists,
)
from layoutopt.model.arrays import Floats, Ints, Words, spread
from layoutopt.model.feature import FeatureSet
from layoutopt.model.layout import Plan, Scheme
from layoutopt.model.predicates import columns_of
from layoutopt.model.query import Query
from layoutopt.model.schema import PLACE, POSITION, SEGMENT, TID
from layoutopt.model.vectors import words_for
from layoutopt.scan.files import BATCH_ROWS, read_files
from layoutopt.scan.segments import FileRead, SegmentRead, plan_file_reads
from layoutopt.scan.table import Table, plan_entries_read
from layoutopt.scan.table_read import TableRead, exclude_blocks
from layoutopt.spark.changes.located_rows import SEGMENT_NUMBER, locate_rows
from layoutopt.spark.changes.replan import Target
from layoutopt.spark.changes.spark_change import SparkChange
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.featurize import with_feature_words
from layoutopt.spark.core.functions import check_plan
from layoutopt.spark.core.sessions import limit_method_size
from layoutopt.spark.core.versions import to_arrow
from layoutopt.spark.core.workers import map_segments
from layoutopt.spark.loading.dry_run import dry_run_loads
from layoutopt.spark.loading.job import discard_files_after
from layoutopt.spark.session.readers import read_to_dataframe
from layoutopt.writer.dry_run import needed_columns
from layoutopt.writer.load_ids import ANY_FAILURE, COMMIT_REFUSALS, check_block_numbers, first_block, fresh_load_id
from layoutopt.writer.segment import GatheredSegment
from layoutopt.writer.task import WriteJob, write_segment
from layoutopt.writer.task_result import RESULT_SCHEMA, LoadReport, TaskResult, read_task_results


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


def write_layouts(
    change: SparkChange,
    work: PartialRewrite,
    watch: Stages,
    at: CommitHook = lambda point: None,
) -> LoadReport:
    """Write some layouts of a partition and commit them together with the kept ones.

    Args:
        work: the layouts to write and to keep.
        at: called at the commit's points, see :data:`layoutopt.catalog.commit.CRASH_POINTS`; for tests.

    Returns:
        The commit; blocks, files and bytes count only what was written.

    Raises:
        ContentMismatchError: the written values differ from the table's.
        CommitConflictError: another commit changed the partition.
        LayoutoptError: as :func:`layoutopt.spark.loading.load.load`.
    """
    check_plan(change.spark, work.plan, "the plan")
    catalog, entry = change.table.catalog, work.entry
    before = catalog.blocks(entry)
    load_id = fresh_load_id(catalog.snapshot, np.unique(before.block_id).tolist())
    kept = select_layout_blocks(before, work.kept)
    discarded = partial(discard_files_after, spark=change.spark, files=catalog.files, load_id=load_id, keys=[entry.key])
    with discarded(ANY_FAILURE):
        with watch.stage("write", f"writing {len(work.written)} layouts", load_id=load_id) as counts:
            written, words, segments = _write_blocks(change, work, kept, load_id)
            counts["blocks"] = written.num_rows
        blocks = pa.concat_tables([to_block_rows(kept, words, work.plan), written])
        (measured,) = partition_entries(blocks, work.plan, load_id, {entry.key: entry.value})
        sums = {name: measured.checksums[name] for name in entry.checksums if name in measured.checksums}
        name = f"partition {entry.key!r} of the table {change.path!r}"
        check_content(Content(entry.rows, dict(entry.checksums)), Content(measured.rows, sums), name)
        entry = replace(measured, source=entry.source)
    with discarded(COMMIT_REFUSALS), watch.stage("commit", "committing") as counts:
        basis = Basis(snapshot=catalog.snapshot, operation="optimize")
        snapshot = commit_load(catalog.files, Load(basis, work.plan, load_id, [entry], blocks), at)
        counts["snapshot"] = snapshot.number
    files, size = len(written["file"].unique()), int(pa.compute.sum(written["bytes"]).as_py() or 0)
    return LoadReport(
        load_id, snapshot.number, (entry.key,), entry.rows, segments, written.num_rows, files, size,
        seconds=dict(watch.seconds),
    )  # fmt: skip


def _write_blocks(
    change: SparkChange, work: PartialRewrite, kept: BlockTable, load_id: str
) -> tuple[pa.Table, Words, int]:
    """Return the written blocks, checked against the table's sums, the kept blocks' union vectors, and the segments."""
    entry, plan = work.entry, work.plan
    located = locate_rows(change.spark, _read_partition(change.table, work))
    reads = [segment.read for segment in located.segments]
    kept_blocks = [_find_kept_blocks(kept, read.segment) for read in reads]
    check_block_numbers(plan, len(reads))
    files = change.table.catalog.files.for_tasks()
    job = WriteJob(
        plan=plan,
        shares=feature_shares(plan.features, plan.queries),
        root=change.table.catalog.files.full_path(""),
        load_id=load_id,
        first_block=first_block(load_id),
        keys=(entry.key,) * len(reads),
        numbers=tuple(read.segment for read in reads),
        lent=files.lent,
        only=work.written,
        also=partial(_measure_kept_blocks, files, [plan_file_reads(kept, blocks) for blocks in kept_blocks]),
    )
    rows = located.numbered.withColumnsRenamed({PLACE: POSITION, SEGMENT_NUMBER: SEGMENT})
    with translate_spark_errors(repr(change.path)), limit_method_size(change.spark):
        featurised = with_feature_words(rows, plan.features.features)
        table = to_arrow(map_segments(featurised, len(reads), partial(write_segment, job), RESULT_SCHEMA))
    results = list(read_task_results(table))
    words = carry_words(kept.words, change.table.catalog.plans[entry.plan].features, plan.features)
    for result in results:
        if result.also is None:
            raise CatalogError(
                f"the task of segment {result.segment} returned no feature bits for kept blocks; nothing was "
                "committed, run the command again"
            )
        block_ids = kept_blocks[result.segment]
        measured = np.frombuffer(result.also, dtype=np.uint64).reshape(words[block_ids].shape)
        if (measured & ~words[block_ids]).any():
            raise ContentMismatchError(
                f"blocks of partition {entry.key!r} have rows with features that their union vectors lack; nothing "
                "was committed, run `layoutopt verify`"
            )
        words[block_ids] = measured
    return _collect_blocks(change, work, reads, results), words, len(reads)


def _find_kept_blocks(kept: BlockTable, segment: int) -> Ints:
    """Return the kept blocks of a segment in the order of files and row groups."""
    blocks = np.flatnonzero(kept.segment == segment)
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


def _read_partition(table: Table, work: PartialRewrite) -> TableRead:
    read = plan_entries_read(table, [work.entry], work.columns)
    return replace(read, pruned=tuple(plan for plan in read.pruned if plan.source.plan.digest == work.entry.plan))


def _collect_blocks(
    change: SparkChange, work: PartialRewrite, reads: Sequence[SegmentRead], results: Sequence[TaskResult]
) -> pa.Table:
    """Return the blocks of all task results, in their order.

    Raises:
        ContentMismatchError: a value was not read or not written at its position.
    """
    entry, names = work.entry, work.plan.schema.names
    tables = [block_schema(work.plan.schema, words_for(len(work.plan.features))).empty_table()]
    known = _get_known_sums(change.table, entry)
    expected: dict[tuple[str, int, int], dict[str, int]] = {}
    read: dict[tuple[str, int, int], dict[str, int]] = {}
    for result in results:
        tables.append(result.blocks)
        number = reads[result.segment].segment
        *layouts, whole = (
            {n: s for n, s in zip(names, sums, strict=True) if s is not None} for sums in result.tid_sums
        )
        read[entry.key, number, 0] = whole
        for layout in work.written:
            expected[entry.key, number, layout] = layouts[layout]
    stored = {key: {name: sums[name] for name in work.columns} for key, sums in known.items()}
    table_name = f"the table {change.path!r}"
    check_positions(stored, read, table_name)
    blocks = pa.concat_tables(tables)
    check_positions(expected, written_positions(BlockTable.from_arrow(blocks, work.plan)), table_name)
    return blocks


def _get_known_sums(table: Table, entry: PartitionEntry) -> TidSums:
    """Return each segment's position sums by column, under layout 0; a column's sums come from its master layout."""
    masters = [set(layout.master) for layout in table.catalog.plans[entry.plan].scheme.layouts]
    known: dict[tuple[str, int, int], dict[str, int]] = {}
    for (key, segment, layout), sums in written_positions(table.catalog.blocks(entry)).items():
        by_column = known.setdefault((key, segment, 0), {})
        by_column.update({name: sum for name, sum in sums.items() if name in masters[layout]})
    return known


def restrict_to_layouts(table: Table, layouts: Sequence[int]) -> Table:
    """Return a dry-run table of one plan with only some of its layouts, in the given order; they hold every column."""
    (source,) = table.sources
    kept = tuple(replace(source.plan.scheme.layouts[layout], serves=None) for layout in layouts)
    plan = replace(source.plan, scheme=Scheme(kept), queries=(), reads=())
    return _with_plan(table, plan, select_layout_blocks(source.blocks, layouts))


def with_features(table: Table, features: FeatureSet) -> Table:
    """Return a dry-run table of one plan with other measured features, which include its guiding features."""
    (source,) = table.sources
    plan, blocks = source.plan, source.blocks
    index = blocks.block_index
    words = to_word_lists(carry_words(blocks.words, plan.features, features))
    index = index.set_column(index.schema.get_field_index("words"), "words", words)
    layouts = tuple(renumber_features(layout, plan.features, features) for layout in plan.scheme.layouts)
    plan = replace(plan, scheme=Scheme(layouts), features=features)
    return _with_plan(table, plan, replace(blocks, n_features=len(features), block_index=index))


def _with_plan(table: Table, plan: Plan, blocks: BlockTable) -> Table:
    entries = tuple(replace(entry, plan=plan.digest) for entry in table.catalog.partitions)
    return Table(Catalog.rehearsed(replace(table.catalog.snapshot, partitions=entries), plan, blocks))


class LayoutReads:
    """Estimates of what queries read from a dry-run table with some layouts of two plans, cached.

    Args:
        table: has all layouts of both plans.
        old: the number of layouts of the older plan; they come first and are always present.
        queries: a sample of each family is evaluated.
        most: the sample size.
    """

    def __init__(self, table: Table, old: int, queries: Sequence[Query], most: int = 12) -> None:
        self._table, self.old = table, old
        self._layouts = table.sources[0].plan.scheme.layouts
        families: dict[object, list[Query]] = {}
        for query in queries:
            families.setdefault(query_family(query), []).append(query)
        self._families = [
            (spread(members, most), sum(query.weight for query in members)) for members in families.values()
        ]
        self._reads: dict[tuple[int, frozenset[int]], float] = {}
        self._tables: dict[frozenset[int], Table] = {}

    def sets(self) -> list[frozenset[int]]:
        """Return the sets of layouts to try: each layout alone, and the fresh layouts with a column of a family."""
        fresh = range(self.old, len(self._layouts))
        sets = [frozenset((layout,)) for layout in fresh]
        for queries, _ in self._families:
            columns = set(queries[0].columns)
            sets.append(frozenset(i for i in fresh if columns & set(self._layouts[i].columns)))
        return [layouts for layouts in dict.fromkeys(sets) if layouts]

    def read(self, taken: frozenset[int]) -> float:
        """Return about how many bytes all queries read with these layouts of the fresh plan."""
        return sum(self._read_family(family, taken) for family in range(len(self._families)))

    def _read_family(self, family: int, taken: frozenset[int]) -> float:
        columns = set(self._families[family][0][0].columns)
        useful = frozenset(i for i in taken if columns & set(self._layouts[i].columns))
        if (family, useful) not in self._reads:
            self._reads[family, useful] = self._estimate_read(self.table(useful), family)
        return self._reads[family, useful]

    def _estimate_read(self, table: Table, family: int) -> float:
        queries, weight = self._families[family]
        read = measure_entry_bytes(table, queries)
        return weight * float(read.weights @ read.read.sum(axis=1)) / float(read.weights.sum())

    def table(self, taken: frozenset[int]) -> Table:
        """Return the table with the old layouts and some of the fresh plan."""
        if taken not in self._tables:
            self._tables[taken] = restrict_to_layouts(self._table, [*range(self.old), *sorted(taken)])
        return self._tables[taken]

    def find_unread(self, taken: frozenset[int], candidates: Sequence[int]) -> list[int]:
        """Return the old layouts among the candidates that can go, one after the other, without costing any family."""
        removed: list[int] = []
        for candidate in candidates:
            layouts = [i for i in (*range(self.old), *sorted(taken)) if i not in (*removed, candidate)]
            table = restrict_to_layouts(self._table, layouts)
            columns = set(self._layouts[candidate].columns)
            readers = [i for i, (queries, _) in enumerate(self._families) if columns & set(queries[0].columns)]
            if all(self._estimate_read(table, family) <= self._read_family(family, taken) for family in readers):
                removed.append(candidate)
        return removed

    def bytes_of(self, layout: int) -> float:
        """Return the bytes of a layout."""
        blocks = self._table.sources[0].blocks
        return float(blocks.bytes[blocks.layout == layout].sum())


# Partial rewrites are chosen by one dry run of all layouts of both plans on some segments. The blocks of a layout don't
# depend on other layouts, so this dry run gives what queries read with any set of them. The smallest rewrite writes no
# layout: it only measures the fresh plan's features for the blocks that exist.

# Rows of the dry run, over all its segments.
_ENOUGH_ROWS: Final = 400_000


@dataclass(frozen=True, eq=False)
class Level:
    """A set of layouts of a fresh plan to write, and the old layouts to keep beside them.

    Attributes:
        old: the digest of the older plan.
        plan: the plan of both.
        kept: the kept layouts as indexes into the older plan; they come first in ``plan``.
        bytes_a_row: bytes of the written layouts per row.
        saved: what each query saves, as a share of a full scan of what it reaches, ``float64[n_queries]``.
    """

    old: str
    plan: Plan
    kept: tuple[int, ...]
    bytes_a_row: float
    saved: Floats

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        """Return the columns of each written layout."""
        return tuple(layout.columns for layout in self.plan.scheme.layouts[len(self.kept) :])

    def rewrite(self, entries: Sequence[PartitionEntry]) -> PartialRewrite:
        """Return the rewrite of a partition that still has one entry, of the older plan, without deleted rows.

        Raises:
            CommitConflictError: another commit changed the partition.
        """
        if len(entries) != 1 or entries[0].plan != self.old or entries[0].deletes is not None:
            raise CommitConflictError(f"another commit changed partition {entries[0].key!r}; run `optimize` again")
        return PartialRewrite(entries[0], self.plan, self.kept)


@dataclass(frozen=True, eq=False)
class Parts:
    """Possible partial rewrites by partition key: the levels, and what each costs and gains."""

    levels: Mapping[str, Sequence[Level]] = field(default_factory=dict)
    parts: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)

    def add_to(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates with their parts."""
        return [replace(candidate, parts=self.parts.get(candidate.key, ())) for candidate in candidates]


def find_parts(
    spark: SparkSession, table: Table, target: Target, candidates: Sequence[Candidate], least: float
) -> Parts:
    """Find the possible partial rewrites of some partitions.

    Args:
        table: at one snapshot.
        target: the wanted layout.
        candidates: partitions worth considering.
        least: parts that gain at most this share of the partition's bytes read are left out.
    """
    by_plan: dict[str, list[PartitionEntry]] = {}
    for candidate in candidates:
        entries = table.catalog.snapshot.by_key[candidate.key]
        if len(entries) == 1 and can_rewrite_partially(table, entries[0]):
            by_plan.setdefault(entries[0].plan, []).append(entries[0])
    levels: dict[str, Sequence[Level]] = {}
    parts: dict[str, tuple[Part, ...]] = {}
    read = {candidate.key: candidate.read for candidate in candidates}
    for plan_entries in by_plan.values():
        plan_levels = find_levels(spark, table, plan_entries, target.plan, target.reads.queries)
        gains = [target.reads.weights @ target.reads.expected(level.saved) for level in plan_levels]
        for entry in plan_entries:
            index = table.catalog.snapshot.places[entry.name]
            costs = [
                Part(number, round(level.bytes_a_row * entry.rows), float(gain[index]))
                for number, (level, gain) in enumerate(zip(plan_levels, gains, strict=True))
            ]
            levels[entry.key] = plan_levels
            parts[entry.key] = tuple(part for part in costs if part.gain > least * read[entry.key])
    return Parts(levels, parts)


def find_levels(
    spark: SparkSession, table: Table, entries: Sequence[PartitionEntry], fresh: Plan, queries: Sequence[Query]
) -> list[Level]:
    """Return levels for entries of one plan, by falling gain per byte; each level contains the one before.

    Args:
        table: at one snapshot.
        entries: of one plan, without deleted rows.
        fresh: the wanted plan.
        queries: one for each class.
    """
    old = table.catalog.plans[entries[0].plan]
    read = {name for query in queries for name in query.columns}
    fresh = restrict_to_columns(fresh, read)
    missing = missing_layouts(old, fresh) if can_mix(old, fresh) else ()
    if not missing:
        return []
    before = len(old.scheme.layouts)
    both = mix_plans(old, fresh, range(before), missing)
    held = needed_columns([both], read)
    # The dry-run table lacks layouts that would hold none of these columns.
    present = [i for i, layout in enumerate(both.scheme.layouts) if set(held) & set(layout.columns)]
    (tried,) = dry_run_loads(spark, _sample_segments(spark, table, entries, held), [both], held)
    reads = LayoutReads(tried, sum(i < before for i in present), queries)
    sizes = {layout: reads.bytes_of(layout) for layout in range(reads.old, len(present))}
    first = measure_entry_bytes(with_features(reads.table(frozenset()), old.features), queries)
    levels = []
    for step in plan_steps(reads.sets(), sizes, reads.read):
        taken = [missing[present[layout] - before] for layout in step.layouts]
        kept = _choose_kept(old, fresh, taken, reads, step.layouts, present)
        then = measure_entry_bytes(reads.table(step.layouts), queries)
        read_then, full = (float((then.weights @ figures).sum()) for figures in (then.read, then.full))
        predicted = {**fresh.predicted, "bytes_fraction": round(read_then / full, 6) if full else 0.0}
        plan = replace(mix_plans(old, fresh, kept, taken), predicted=predicted)
        levels.append(Level(old.digest, plan, kept, step.bytes / max(1, tried.rows), _measure_savings(first, then)))
    return levels


def _sample_segments(
    spark: SparkSession, table: Table, entries: Sequence[PartitionEntry], columns: Sequence[str]
) -> DataFrame:
    """Return the rows of some evenly spread segments of the entries; other columns are NULL."""
    read = plan_entries_read(table, entries, columns)
    (pruned,) = (plan for plan in read.pruned if plan.source.plan.digest == entries[0].plan)
    segment_of = pruned.source.segment_of
    segments = np.unique(segment_of[pruned.read])
    rows = sum(entry.rows for entry in entries)
    sample = spread(segments.tolist(), max(1, round(len(segments) * _ENOUGH_ROWS / max(1, rows))))
    return read_to_dataframe(spark, replace(read, pruned=(exclude_blocks(pruned, ~np.isin(segment_of, sample)),)))


def _choose_kept(
    old: Plan, fresh: Plan, taken: Sequence[int], reads: LayoutReads, layouts: Layouts, present: Sequence[int]
) -> tuple[int, ...]:
    """Return the old layouts to keep: those with a column that no new layout has, or that queries read."""
    new_columns = {name for layout in taken for name in fresh.scheme.layouts[layout].master}
    covered = [i for i, layout in enumerate(old.scheme.layouts) if set(layout.columns) <= new_columns]
    removed = {layout for layout in covered if layout not in present}
    unread = reads.find_unread(layouts, [present.index(layout) for layout in covered if layout in present])
    removed |= {present[layout] for layout in unread}
    kept = tuple(layout for layout in range(len(old.scheme.layouts)) if layout not in removed)
    # A single layout would have no positions by which its values could be checked.
    return kept if len(kept) + len(taken) > 1 else (0,)


def _measure_savings(before: EntryBytes, after: EntryBytes) -> Floats:
    reached = (before.full * before.reached).sum(axis=1)
    less = before.read.sum(axis=1) - after.read.sum(axis=1)
    saved: Floats = np.divide(less, reached, out=np.zeros(len(less)), where=reached > 0)
    return saved
