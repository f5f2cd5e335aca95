"""Some layouts of a partition written alone, beside those that stay: rows keep their positions in their segments.

Rows of several layouts are put together by their positions, and nothing else ties layouts to each other. So the rows of
a segment are read with theirs, and put into the blocks of the new layouts; the files of the layouts that stay are named
by the next blocks file as they were by the one before, and the new plan's features are measured of their blocks, by the
positions in these. What was written is proved by the catalog alone: a column has at its positions what it had before,
by the sums of hash(tid, value), in each segment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from layoutopt.catalog.blocks import BlockTable, block_schema
from layoutopt.catalog.checks import Content, TidSums, check_content, check_positions
from layoutopt.catalog.commit import CommitHook, commit_load
from layoutopt.catalog.entries import partition_entries, written_positions
from layoutopt.catalog.snapshot import PartitionEntry, Snapshot
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.errors import CatalogError, CommitConflictError, ContentMismatchError
from layoutopt.events import Stages
from layoutopt.features.cross_validation import family_of
from layoutopt.features.weights import feature_shares
from layoutopt.inspect.cost import EntryBytes, entry_bytes
from layoutopt.maintenance.candidates import Candidate, Layouts, Part, steps
from layoutopt.maintenance.partial_rewrite import (
    as_rows,
    can_be_mixed,
    carried,
    in_layouts,
    lacked,
    listed,
    mixed,
    of_columns,
    under,
)
from layoutopt.model.arrays import Floats, Ints, Words, spread
from layoutopt.model.feature import FeatureSet
from layoutopt.model.layout import Plan, Scheme
from layoutopt.model.predicates import TRUE, Filter, columns_of
from layoutopt.model.query import Query
from layoutopt.model.schema import PLACE, POSITION, SEGMENT, TID
from layoutopt.model.vectors import words_for
from layoutopt.scan.files import BATCH_ROWS, read_files
from layoutopt.scan.segments import FileRead, SegmentRead, file_reads
from layoutopt.scan.table import Table
from layoutopt.scan.table_read import TableRead, without
from layoutopt.spark.changes.affected_rows import SEGMENT_NUMBER, Place, rows_with_places
from layoutopt.spark.changes.replan import Target
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.featurize import with_feature_words
from layoutopt.spark.core.functions import check_plan
from layoutopt.spark.core.sessions import compiled_in_parts
from layoutopt.spark.core.workers import map_segments
from layoutopt.spark.loading.dry_run import needed_columns, rehearse_together
from layoutopt.spark.loading.job import discarded_after
from layoutopt.spark.session.readers import read_to_dataframe
from layoutopt.sql.scans import TableScan
from layoutopt.writer.load_ids import ANY, REFUSED, check_block_numbers, first_block, fresh_load_id
from layoutopt.writer.segment import GatheredSegment
from layoutopt.writer.task import WriteJob, write_segment
from layoutopt.writer.task_result import RESULT_SCHEMA, Answer, LoadReport, answers_of


@dataclass(frozen=True)
class Alone:
    """What is to be made of a partition.

    Attributes:
        entry: all that the table has of it, without deleted rows.
        plan: whose first layouts stay, and whose others are written.
        kept: the places in the entry's plan of those that stay, in their order.

    Raises:
        ValueError: the plan has one layout, whose files have no positions.
    """

    entry: PartitionEntry
    plan: Plan
    kept: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.plan.scheme.has_tids:
            raise ValueError("a plan of one layout has none that could be written alone; write the partition anew")

    @property
    def written(self) -> tuple[int, ...]:
        """The places of the layouts that are written."""
        return tuple(range(len(self.kept), len(self.plan.scheme.layouts)))

    @property
    def columns(self) -> tuple[str, ...]:
        """What has to be read for it, in the schema's order: what is stored, evaluated, and what guides blocks."""
        wanted = set().union(*(feature.columns for feature in self.plan.features))
        for query in self.plan.queries:
            wanted |= columns_of(query.filter.root)
        for place in self.written:
            layout = self.plan.scheme.layouts[place]
            wanted |= {*layout.columns, *layout.looked_at}
        return tuple(name for name in self.plan.schema.names if name in wanted)


def can_stand_alone(table: Table, entry: PartitionEntry) -> bool:
    """Whether layouts of an entry can be written alone, so that it can be proved that no value was lost or moved."""
    if entry.deletes is not None or not entry.rows:
        return False
    sums = _known_sums(table, entry)
    return all(set(table.schema.names) <= set(of) for of in sums.values())


def write_alone(
    place: Place,
    alone: Alone,
    watch: Stages,
    at: CommitHook = lambda point: None,
    in_task: Callable[[str], None] | None = None,
) -> LoadReport:
    """Write some layouts of a partition, and commit them with those that stay.

    Args:
        place: the table.
        alone: what is to be written.
        watch: times the stages.
        at: called at the commit's points, see :data:`layoutopt.catalog.commit.CRASH_POINTS`; for tests.
        in_task: called in every task after its files are written; for tests.

    Returns:
        The commit; its blocks, files and bytes are those that were written.

    Raises:
        ContentMismatchError: what was written is not what the table has.
        CommitConflictError: somebody else changed the partition meanwhile.
        LayoutoptError: as :func:`layoutopt.spark.loading.load.load`.
    """
    check_plan(place.spark, alone.plan, "the plan")
    catalog, entry = place.table.catalog, alone.entry
    before = catalog.blocks(entry)
    load_id = fresh_load_id(catalog.snapshot, np.unique(before.block_id).tolist())
    kept = in_layouts(before, alone.kept)
    discarded = partial(discarded_after, spark=place.spark, files=catalog.files, load_id=load_id, keys=[entry.key])
    with discarded(ANY):
        with watch.stage("write", f"writing {len(alone.written)} layouts", load_id=load_id) as counts:
            written, words, segments = _written(place, alone, kept, load_id, in_task)
            counts["blocks"] = written.num_rows
        blocks = pa.concat_tables([as_rows(kept, words, alone.plan), written])
        (measured,) = partition_entries(blocks, alone.plan, load_id, {entry.key: entry.value})
        said = f"partition {entry.key!r} of the table {place.path!r}"
        check_content(_content(entry), _content(measured, of=entry), said)
        made = replace(measured, source=entry.source)
    with discarded(REFUSED), watch.stage("commit", "committing") as counts:
        snapshot = _commit(place, alone, made, blocks, at)
        counts["snapshot"] = snapshot.number
    files, size = len(written["file"].unique()), int(pa.compute.sum(written["bytes"]).as_py() or 0)
    return LoadReport(
        load_id, snapshot.number, (entry.key,), entry.rows, segments, written.num_rows, files, size,
        seconds=dict(watch.seconds),
    )  # fmt: skip


def _commit(place: Place, alone: Alone, made: PartitionEntry, blocks: pa.Table, at: CommitHook) -> Snapshot:
    catalog = place.table.catalog
    return commit_load(
        catalog.files, catalog.snapshot, alone.plan, made.load_id, [made], blocks, operation="optimize", at=at
    )


def _written(
    place: Place, alone: Alone, kept: BlockTable, load_id: str, in_task: Callable[[str], None] | None
) -> tuple[pa.Table, Words, int]:
    """The blocks that were written, proved to have the table's values at their positions; the union vectors of those
    that stay; and how many segments there are."""
    entry, plan = alone.entry, alone.plan
    placed = rows_with_places(place.spark, _read(place.table, alone))
    reads = [found.read for found in placed.places]
    staying = [_staying(kept, read.segment) for read in reads]
    check_block_numbers(plan, len(reads))
    files = place.table.catalog.files.for_tasks()
    job = WriteJob(
        plan=plan,
        shares=feature_shares(plan.features, plan.queries),
        root=place.table.catalog.files.full_path(""),
        load_id=load_id,
        first_block=first_block(load_id),
        keys=(entry.key,) * len(reads),
        numbers=tuple(read.segment for read in reads),
        at=in_task,
        lent=files.lent,
        only=alone.written,
        also=partial(_measured, files, [file_reads(kept, blocks) for blocks in staying]),
    )
    rows = placed.numbered.withColumnsRenamed({PLACE: POSITION, SEGMENT_NUMBER: SEGMENT})
    with translate_spark_errors(repr(place.path)), compiled_in_parts(place.spark):
        featurised = with_feature_words(rows, plan.features.features)
        result = map_segments(featurised, len(reads), partial(write_segment, job), RESULT_SCHEMA).toArrow()
    answers = list(answers_of(result))
    words = carried(kept.words, place.table.catalog.plans[entry.plan].features, plan.features)
    for answer in answers:
        here = staying[answer.segment]
        measured = np.frombuffer(_of_task(answer), dtype=np.uint64).reshape(words[here].shape)
        if (measured & ~words[here]).any():
            raise ContentMismatchError(
                f"blocks of partition {entry.key!r} have rows with features that they were measured without; nothing "
                "was committed, run `layoutopt verify`"
            )
        words[here] = measured
    return _collected(place, alone, reads, answers), words, len(reads)


def _of_task(answer: Answer) -> bytes:
    """The bits that a task measured of blocks that stay; every task of such a job measures them."""
    if answer.also is None:
        raise CatalogError(f"a task told no features of segment {answer.segment}; nothing was committed, run it again")
    return answer.also


def _staying(kept: BlockTable, segment: int) -> Ints:
    """The blocks of a segment that stay, in the order of files and row groups."""
    chosen = np.flatnonzero(kept.segment == segment)
    in_order: Ints = chosen[np.lexsort((kept.row_group[chosen], kept.file[chosen]))]
    return in_order


def _measured(files: TableFiles, staying: Sequence[Sequence[FileRead]], segment: GatheredSegment) -> bytes:
    """The union vectors of the blocks of a segment that stay, by the positions of their rows; in a task."""
    found = [np.zeros((0, segment.words.shape[1]), dtype=np.uint64)]
    for file in staying[segment.id]:
        tids = [batch.column(0).to_numpy() for batch in read_files(files, [file], [TID], BATCH_ROWS)]
        starts = np.cumsum((0, *file.rows))[:-1]
        found.append(np.bitwise_or.reduceat(segment.words[np.concatenate(tids)], starts, axis=0))
    return np.concatenate(found).tobytes()


def _read(table: Table, alone: Alone) -> TableRead:
    """All rows of the partition, of the columns that are needed."""
    scan = TableScan(table.name, table.name, alone.columns, Filter.of(TRUE))
    of_plans = table.all_rows_of([alone.entry], scan.columns)
    return TableRead(table, scan, tuple(each for each in of_plans if each.source.plan.digest == alone.entry.plan))


def _collected(place: Place, alone: Alone, reads: Sequence[SegmentRead], answers: Sequence[Answer]) -> pa.Table:
    """The blocks of the tasks' answers together, in their order.

    Raises:
        ContentMismatchError: a value of the table was not read at its position, or not written there.
    """
    entry, names = alone.entry, alone.plan.schema.names
    tables = [block_schema(alone.plan.schema, words_for(len(alone.plan.features))).empty_table()]
    known = _known_sums(place.table, entry)
    expected: dict[tuple[str, int, int], dict[str, int]] = {}
    came: dict[tuple[str, int, int], dict[str, int]] = {}
    for answer in answers:
        tables.append(answer.blocks)
        number = reads[answer.segment].segment
        *layouts, whole = (
            {n: s for n, s in zip(names, sums, strict=True) if s is not None} for sums in answer.tid_sums
        )
        came[entry.key, number, 0] = whole
        for layout in alone.written:
            expected[entry.key, number, layout] = layouts[layout]
    there = {where: {name: of[name] for name in alone.columns} for where, of in known.items()}
    said = f"the table {place.path!r}"
    check_positions(there, came, said)
    blocks = pa.concat_tables(tables)
    check_positions(expected, written_positions(BlockTable.from_arrow(blocks, alone.plan)), said)
    return blocks


def _known_sums(table: Table, entry: PartitionEntry) -> TidSums:
    """By segment, as of layout 0, what each column sums to at its positions: by a layout where it is master."""
    masters = [set(layout.master) for layout in table.catalog.plans[entry.plan].scheme.layouts]
    found: dict[tuple[str, int, int], dict[str, int]] = {}
    for (key, segment, layout), sums in written_positions(table.catalog.blocks(entry)).items():
        here = found.setdefault((key, segment, 0), {})
        here.update({name: sum for name, sum in sums.items() if name in masters[layout]})
    return found


def _content(entry: PartitionEntry, of: PartitionEntry | None = None) -> Content:
    """What an entry has, of the columns whose sums another has."""
    names = entry.checksums if of is None else of.checksums
    return Content(entry.rows, {name: entry.checksums[name] for name in names if name in entry.checksums})


# ----------------------------------------------------------------------------------------------------
# What queries read of a rehearsed table if it had only some of its layouts.


def of_layouts(table: Table, layouts: Sequence[int]) -> Table:
    """A rehearsed table of one plan as if it had only some of its layouts, which hold every column; in their order."""
    (source,) = table.sources
    chosen = tuple(replace(source.plan.scheme.layouts[place], serves=None) for place in layouts)
    plan = replace(source.plan, scheme=Scheme(chosen), queries=(), reads=())
    return _of(table, plan, in_layouts(source.blocks, layouts))


def with_features(table: Table, features: FeatureSet) -> Table:
    """A rehearsed table of one plan as if other features had been measured, those that guide its layouts among them."""
    (source,) = table.sources
    plan, blocks = source.plan, source.blocks
    index = blocks.block_index
    words = listed(carried(blocks.words, plan.features, features))
    index = index.set_column(index.schema.get_field_index("words"), "words", words)
    layouts = tuple(under(layout, plan.features, features) for layout in plan.scheme.layouts)
    plan = replace(plan, scheme=Scheme(layouts), features=features)
    return _of(table, plan, replace(blocks, n_features=len(features), block_index=index))


def _of(table: Table, plan: Plan, blocks: BlockTable) -> Table:
    entries = tuple(replace(entry, plan=plan.digest) for entry in table.catalog.partitions)
    return Table(Catalog.rehearsed(replace(table.catalog.snapshot, partitions=entries), plan, blocks))


class LayoutReads:
    """What queries read of a rehearsed table with some layouts of two plans, remembered by what it depends on.

    Args:
        table: with all layouts.
        old: how many are of the older plan, the first ones; all of them are there.
        queries: of which some of each family are looked at.
        most: of a family.
    """

    def __init__(self, table: Table, old: int, queries: Sequence[Query], most: int = 12) -> None:
        self._table, self.old = table, old
        self._layouts = table.sources[0].plan.scheme.layouts
        families: dict[object, list[Query]] = {}
        for query in queries:
            families.setdefault(family_of(query), []).append(query)
        self._families = [(spread(of, most), sum(query.weight for query in of)) for of in families.values()]
        self._known: dict[tuple[int, frozenset[int]], float] = {}
        self._tables: dict[frozenset[int], Table] = {}

    def sets(self) -> list[frozenset[int]]:
        """What may be taken at once: each layout alone, and those of the fresh plan that hold a family's columns."""
        taken = range(self.old, len(self._layouts))
        found = [frozenset((layout,)) for layout in taken]
        for queries, _ in self._families:
            wanted = set(queries[0].columns)
            found.append(frozenset(i for i in taken if wanted & set(self._layouts[i].columns)))
        return [one for one in dict.fromkeys(found) if one]

    def read(self, taken: frozenset[int]) -> float:
        """The bytes that all queries read with these layouts of the fresh plan, about."""
        return sum(self._of_family(number, taken) for number in range(len(self._families)))

    def _of_family(self, number: int, taken: frozenset[int]) -> float:
        columns = set(self._families[number][0][0].columns)
        helping = frozenset(i for i in taken if columns & set(self._layouts[i].columns))
        if (number, helping) not in self._known:
            self._known[number, helping] = self._read_by(self.table(helping), number)
        return self._known[number, helping]

    def _read_by(self, table: Table, number: int) -> float:
        queries, weight = self._families[number]
        read = entry_bytes(table, queries)
        return weight * float(read.weights @ read.read.sum(axis=1)) / float(read.weights.sum())

    def table(self, taken: frozenset[int]) -> Table:
        """The table with some layouts of the fresh plan."""
        if taken not in self._tables:
            self._tables[taken] = of_layouts(self._table, [*range(self.old), *sorted(taken)])
        return self._tables[taken]

    def unread(self, taken: frozenset[int], candidates: Sequence[int]) -> list[int]:
        """Those of some layouts of the older plan without which no family reads more, one after the other."""
        gone: list[int] = []
        for one in candidates:
            left = [place for place in (*range(self.old), *sorted(taken)) if place not in (*gone, one)]
            table = of_layouts(self._table, left)
            if all(self._read_by(table, number) <= self._of_family(number, taken) for number in self._numbers(one)):
                gone.append(one)
        return gone

    def _numbers(self, layout: int) -> list[int]:
        """The families that read a column of a layout."""
        columns = set(self._layouts[layout].columns)
        return [number for number, (queries, _) in enumerate(self._families) if columns & set(queries[0].columns)]

    def bytes_of(self, layout: int) -> float:
        """What a layout takes."""
        blocks = self._table.sources[0].blocks
        return float(blocks.bytes[blocks.layout == layout].sum())


# ----------------------------------------------------------------------------------------------------
# How far partitions of an older plan are brought to a fresh one by some of its layouts, written alone.
#
# All layouts of both plans are rehearsed on some segments of the table. Blocks of a layout don't depend on the
# others, so
# what queries would read with any of the fresh ones is known from this one rehearsal. Least is to write no layout, and
# to measure the fresh plan's features of the blocks that are there.

_ENOUGH_ROWS: Final = 400_000
"""Of all segments together that are rehearsed."""


@dataclass(frozen=True, eq=False)
class Level:
    """Some layouts of a fresh plan beside those of an older one.

    Attributes:
        old: the digest of the older plan.
        plan: that has both.
        kept: the places in the older plan of its layouts that stay, the first ones of ``plan``.
        bytes_a_row: what the new ones take for each row.
        saved: what each query saves of a full scan of what it reaches, ``float64[n_queries]``.
    """

    old: str
    plan: Plan
    kept: tuple[int, ...]
    bytes_a_row: float
    saved: Floats

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        """Of the layouts that are written."""
        return tuple(layout.columns for layout in self.plan.scheme.layouts[len(self.kept) :])

    def still_of(self, entries: Sequence[PartitionEntry]) -> tuple[PartitionEntry]:
        """The one entry of a partition, if it still has the older plan's layouts and no deleted row.

        Raises:
            CommitConflictError: somebody else changed the partition meanwhile.
        """
        if len(entries) != 1 or entries[0].plan != self.old or entries[0].deletes is not None:
            raise CommitConflictError(
                f"partition {entries[0].key!r} was changed by somebody else meanwhile; optimize again"
            )
        return (entries[0],)


@dataclass(frozen=True, eq=False)
class Parts:
    """What could be written alone, by partition key: levels, and what each costs and gains."""

    levels: Mapping[str, Sequence[Level]] = field(default_factory=dict)
    parts: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)

    def of(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates with their parts."""
        return [replace(one, parts=self.parts.get(one.key, ())) for one in candidates]


def parts_of(spark: SparkSession, table: Table, target: Target, candidates: Sequence[Candidate], least: float) -> Parts:
    """What could be written alone of some partitions.

    Args:
        spark: the session.
        table: at one snapshot.
        target: what they are to be laid out by.
        candidates: those that could be written anew.
        least: a gain below this share of what is read of a partition is none.
    """
    by_plan: dict[str, list[PartitionEntry]] = {}
    for one in candidates:
        (*others, entry) = table.catalog.snapshot.by_key[one.key]
        if not others and can_stand_alone(table, entry):
            by_plan.setdefault(entry.plan, []).append(entry)
    found: dict[str, Sequence[Level]] = {}
    parts: dict[str, tuple[Part, ...]] = {}
    read = {one.key: one.read for one in candidates}
    for entries in by_plan.values():
        of_plan = levels(spark, table, entries, target.plan, target.reads.queries)
        gains = [target.reads.weights @ target.reads.expected(level.saved) for level in of_plan]
        for entry in entries:
            place = table.catalog.partitions.index(entry)
            costs = [
                Part(number, round(level.bytes_a_row * entry.rows), float(gain[place]))
                for number, (level, gain) in enumerate(zip(of_plan, gains, strict=True))
            ]
            found[entry.key] = of_plan
            parts[entry.key] = tuple(part for part in costs if part.gain > least * read[entry.key])
    return Parts(found, parts)


def levels(
    spark: SparkSession, table: Table, entries: Sequence[PartitionEntry], fresh: Plan, queries: Sequence[Query]
) -> list[Level]:
    """What could be written alone of entries of one plan, the best gain a byte first, each with the one before in it.

    Args:
        spark: the session.
        table: at one snapshot.
        entries: of one plan, without deleted rows.
        fresh: the plan that they are to be brought to.
        queries: one for each class.
    """
    old = table.catalog.plans[entries[0].plan]
    read = {name for query in queries for name in query.columns}
    fresh = of_columns(fresh, read)
    missing = lacked(old, fresh) if can_be_mixed(old, fresh) else ()
    if not missing:
        return []
    before = len(old.scheme.layouts)
    both = mixed(old, fresh, range(before), missing)
    held = needed_columns([both], read)
    # A rehearsal knows nothing of layouts that would hold none of these.
    present = [place for place, layout in enumerate(both.scheme.layouts) if set(held) & set(layout.columns)]
    (rehearsed,) = rehearse_together(spark, _some_rows(spark, table, entries, held), [both], held)
    reads = LayoutReads(rehearsed, sum(place < before for place in present), queries)
    chain = steps(reads.sets(), {place: reads.bytes_of(place) for place in range(reads.old, len(present))}, reads.read)
    first = entry_bytes(with_features(reads.table(frozenset()), old.features), queries)
    found = []
    for step in chain:  # the first writes no layout: features are measured of the blocks that are there
        taken = [missing[present[place] - before] for place in step.layouts]
        kept = _kept(old, fresh, taken, reads, step.layouts, present)
        then = entry_bytes(reads.table(step.layouts), queries)
        read_then, full = (float((then.weights @ of).sum()) for of in (then.read, then.full))
        foretold = {**fresh.predicted, "bytes_fraction": round(read_then / full, 6) if full else 0.0}
        plan = replace(mixed(old, fresh, kept, taken), predicted=foretold)
        found.append(Level(old.digest, plan, kept, step.bytes / max(1, rehearsed.rows), _saved(first, then)))
    return found


def _some_rows(
    spark: SparkSession, table: Table, entries: Sequence[PartitionEntry], columns: Sequence[str]
) -> DataFrame:
    """The rows of some segments of the entries, spread evenly, with these columns; others are NULL."""
    scan = TableScan(table.name, table.name, tuple(columns), Filter.of(TRUE))
    of_plans = table.all_rows_of(entries, scan.columns)
    (pruned,) = (found for found in of_plans if found.source.plan.digest == entries[0].plan)
    segment_of = pruned.source.segment_of
    there = np.unique(segment_of[pruned.read])
    rows = sum(entry.rows for entry in entries)
    few = spread(there.tolist(), max(1, round(len(there) * _ENOUGH_ROWS / max(1, rows))))
    return read_to_dataframe(spark, TableRead(table, scan, (without(pruned, ~np.isin(segment_of, few)),)))


def _kept(
    old: Plan, fresh: Plan, taken: Sequence[int], reads: LayoutReads, layouts: Layouts, present: Sequence[int]
) -> tuple[int, ...]:
    """The older plan's layouts that stay: all but those of which every column is elsewhere, and that nobody reads."""
    elsewhere = {name for place in taken for name in fresh.scheme.layouts[place].master}
    covered = [place for place, layout in enumerate(old.scheme.layouts) if set(layout.columns) <= elsewhere]
    gone = {place for place in covered if place not in present}
    unread = reads.unread(layouts, [present.index(place) for place in covered if place in present])
    gone |= {present[place] for place in unread}
    kept = tuple(place for place in range(len(old.scheme.layouts)) if place not in gone)
    # A single layout would have no positions, and could not be told to hold what others held.
    return kept if len(kept) + len(taken) > 1 else (0,)


def _saved(before: EntryBytes, after: EntryBytes) -> Floats:
    reached = (before.full * before.reached).sum(axis=1)
    less = before.read.sum(axis=1) - after.read.sum(axis=1)
    saved: Floats = np.divide(less, reached, out=np.zeros(len(less)), where=reached > 0)
    return saved
