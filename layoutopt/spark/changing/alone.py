"""Some layouts of a partition written alone, beside those that stay: rows keep their positions in their segments.

Rows of several layouts are put together by their positions, and nothing else ties layouts to each other. So the rows of
a segment are read with theirs, and put into the blocks of the new layouts; the files of the layouts that stay are named
by the next blocks file as they were by the one before, and the new plan's features are measured of their blocks, by the
positions in these. What was written is proved by the catalog alone: a column has at its positions what it had before,
by the sums of hash(tid, value), in each segment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from layoutopt.catalog.blocks import BlockTable, block_schema
from layoutopt.catalog.checks import Content, TidSums, check_content, check_positions
from layoutopt.catalog.commit import CommitHook, commit_load
from layoutopt.catalog.entries import partition_entries, written_positions
from layoutopt.catalog.snapshot import PartitionEntry, Snapshot
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import CatalogError, ContentMismatchError
from layoutopt.events import Stages
from layoutopt.evolve.carrying import as_rows, in_layouts
from layoutopt.evolve.mixed import carried
from layoutopt.features.weights import feature_shares
from layoutopt.model.arrays import Ints, Words
from layoutopt.model.columns import PLACE, POSITION, SEGMENT, TID
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import TRUE, Filter, columns_of
from layoutopt.model.vectors import words_for
from layoutopt.scan.files import BATCH_ROWS, read_files
from layoutopt.scan.reads import TableRead
from layoutopt.scan.segments import FileRead, SegmentRead, file_reads
from layoutopt.scan.table import Table
from layoutopt.spark.changing.found import SEGMENT_NUMBER, rows_with_places
from layoutopt.spark.changing.opened import Place
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.featurize import words_left
from layoutopt.spark.core.functions import check_plan
from layoutopt.spark.core.sessions import compiled_in_parts
from layoutopt.spark.core.tasks import map_segments
from layoutopt.spark.loading.job import discarded_after
from layoutopt.sql.scans import TableScan
from layoutopt.writer.answers import RESULT_SCHEMA, Answer, answers_of
from layoutopt.writer.gather import GatheredSegment
from layoutopt.writer.load_ids import ANY, REFUSED, check_block_numbers, first_block, fresh_load_id
from layoutopt.writer.load_report import LoadReport
from layoutopt.writer.task import WriteJob, write_segment


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
        featurised = words_left(rows, plan.features.features)
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
