"""Append few rows without Spark, which takes longer to start, and to plan a job, than they take to be written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.checks import Content, check_content, check_partitions, check_positions
from layoutopt.catalog.commit import APPEND, comes_beside, commit_load
from layoutopt.catalog.deletion_vectors import Marks
from layoutopt.catalog.entries import content_of_entries, partition_entries, written_content, written_positions
from layoutopt.catalog.partition_names import PartitionNames, PlainValue
from layoutopt.catalog.snapshot import PartitionEntry
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.config.settings import AppendSettings
from layoutopt.errors import AlreadyLoadedError, CommitConflictError, NeedsSparkError, TableError
from layoutopt.events import NO_EVENTS, EventLog, Progress, Stages, silent
from layoutopt.features.weights import feature_shares
from layoutopt.indexes.expressions import left_to_spark
from layoutopt.inspect.status import current_plan
from layoutopt.local.parquet_files import (
    arrow_schema,
    check_columns,
    check_path,
    coded_partitions,
    local_root,
    open_plain,
    shown_in,
    typed,
)
from layoutopt.local.vectors import vectors_of
from layoutopt.maintenance.compaction import JOIN, has_small_entries, in_place_of, small_entries
from layoutopt.model.arrays import Ints, Words
from layoutopt.model.feature import Settings
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import TRUE, Filter
from layoutopt.model.schema import Schema
from layoutopt.publish.publishing import published_after
from layoutopt.scan.arrow_types import any_arrow_type
from layoutopt.scan.read import read_segments
from layoutopt.scan.table import Table, open_own_table
from layoutopt.scan.table_read import TableRead
from layoutopt.sources.snapshot import SourceFile, SourcePartition, batch_of
from layoutopt.sql.scans import TableScan
from layoutopt.writer.checksum import value_hashes
from layoutopt.writer.load_ids import ANY, REFUSED, check_block_numbers, first_block, fresh_load_id, removed_after
from layoutopt.writer.segment import POOL, GatheredSegment
from layoutopt.writer.task import WriteJob, answer_of
from layoutopt.writer.task_result import LoadReport, Written, collected, load_report

# ----------------------------------------------------------------------------------------------------
# The few rows of a source of plain Parquet, read in this process just as Spark would read them, or not at all.
#
# What is not surely read alike, folders of partitions too, raises :class:`~layoutopt.errors.NeedsSparkError` before
# anything is written.

MOST_ROWS: Final = 100_000
"""Of more rows a Spark job is no longer what takes longest."""

MOST_BYTES: Final = 1 << 28
"""Of rows in memory, as Arrow has them."""

MOST_PARTITIONS: Final = 32
"""Of more partitions Spark writes several at once."""

_ROWS_AT_ONCE: Final = 1024


@dataclass(frozen=True, eq=False)
class FewRows:
    """Rows that were read.

    Attributes:
        rows: under the schema's columns, in the order of files' paths and of their rows.
        counted: how many the footers say that there are.
        partitions: those that the rows lie in, each with the files that have rows of it, NULL first.
        places: of each partition the places of its rows, ``int64[k]``, by its value.
    """

    rows: pa.Table
    counted: int
    partitions: tuple[SourcePartition, ...]
    places: Mapping[PlainValue, Ints]


def read_few_rows(source: str, schema: Schema, partition_by: str | None) -> FewRows:
    """Read a source.

    Args:
        source: a path.
        schema: the columns that it has to have.
        partition_by: the partition column, None for none.

    Raises:
        NeedsSparkError: it has no rows, too many, or Spark might read it otherwise.
    """
    try:
        files = [(path, _source_file(path)) for path in _paths(source)]
    except OSError as error:
        raise NeedsSparkError(f"{source!r} can't be looked at without it ({error})") from error
    tables: list[pa.Table] = []
    counted = taken = 0
    for path, file in files:
        tables.append(_read(path, schema, MOST_ROWS - counted, MOST_BYTES - taken))
        try:
            changed = _source_file(path) != file
        except OSError as error:
            raise NeedsSparkError(f"{str(path)!r} can't be looked at without it ({error})") from error
        counted += tables[-1].num_rows
        taken += tables[-1].nbytes
        if changed:
            raise NeedsSparkError(f"{str(path)!r} is being changed")
    if not counted:
        raise NeedsSparkError(f"{source!r} has no rows")
    rows = pa.concat_tables(tables)
    file_of = np.repeat(np.arange(len(files)), [table.num_rows for table in tables])
    places = dict(_places(rows, partition_by))
    partitions = tuple(
        SourcePartition(value, tuple(files[number][1] for number in np.unique(file_of[at]).tolist()), len(at))
        for value, at in places.items()
    )
    return FewRows(rows, counted, partitions, places)


def _paths(source: str) -> list[Path]:
    """The files of a source, sorted: one, or those of a folder that has no folders."""
    shown = shown_in(local_root(source))
    for path in shown:
        check_path(path)
    return shown


def _source_file(path: Path) -> SourceFile:
    """The file as Spark tells of it: to the millisecond."""
    status = path.stat()
    return SourceFile(f"file:{path}", status.st_size, status.st_mtime_ns // 1_000_000 * 1_000)


def _read(path: Path, schema: Schema, most: int, room: int) -> pa.Table:
    """All rows of a file, with its footer's word for how many they are."""
    columns = arrow_schema(schema)
    with open_plain(path, schema) as file:
        if file.metadata.num_rows > most:
            raise NeedsSparkError(f"there are more than {MOST_ROWS} rows")
        parts, taken = [], 0
        # Few at a time: what a dictionary has once takes a thousand times more where it is spelled out.
        for batch in file.iter_batches(_ROWS_AT_ONCE):
            parts.append(typed(pa.Table.from_batches([batch]), columns))
            taken += parts[-1].nbytes
            if taken > room:
                raise NeedsSparkError(f"the rows of {str(path)!r} and those before take more than {MOST_BYTES} bytes")
        rows = pa.concat_tables([columns.empty_table(), *parts]).combine_chunks()
        if rows.num_rows != file.metadata.num_rows:
            raise NeedsSparkError(f"{str(path)!r} has other rows than its footer says")
        return rows


def _places(rows: pa.Table, partition_by: str | None) -> Iterator[tuple[PlainValue, Ints]]:
    """The partitions' values, plain, with the places of their rows; NULL first, then in order."""
    if partition_by is None:
        yield None, np.arange(rows.num_rows)
        return
    coded = coded_partitions(rows, partition_by)
    try:
        values: list[Any] = coded.dictionary.to_pylist()
    except UnicodeDecodeError as error:
        raise NeedsSparkError("a partition's value is no UTF-8") from error
    if len(values) > MOST_PARTITIONS:
        raise NeedsSparkError(f"there are more than {MOST_PARTITIONS} partitions")
    codes = np.asarray(coded.indices)
    null = [code for code, value in enumerate(values) if value is None]
    known = [code for code, value in enumerate(values) if value is not None]
    for code in (*null, *sorted(known, key=values.__getitem__)):
        yield values[code], np.flatnonzero(codes == code)


# ----------------------------------------------------------------------------------------------------
# One load in this process: few rows are written beside those that a table has, proved, and committed.
#
# What a task of a Spark job does with a segment is done here, by the same code, one segment after the other.


@dataclass(frozen=True, eq=False)
class FewToWrite:
    """What is to be written.

    Attributes:
        source: names where the rows are from, in messages.
        rows: under the plan's columns.
        counted: how many there have to be, as who stored them says.
        places: of each partition the places of its rows, ``int64[k]``, by its value.
        fingerprints: of partition keys, the digest of the source's files.
        content: what all rows together must have, where that is known better than by the rows.
        operation: what the history calls it.
        batch: what is appended.
        marks: entries that the rows take the place of.
    """

    source: str
    rows: pa.Table
    counted: int
    places: Mapping[PlainValue, Ints]
    operation: str
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    content: Content | None = None
    batch: str | None = None
    marks: Marks | None = None


def check_plan_needs_no_spark(plan: Plan) -> None:
    """Refuse a plan with indexes of expressions that only Spark computes, or made for sessions with other settings.

    Raises:
        NeedsSparkError: it is one.
    """
    if plan.settings != Settings():
        raise NeedsSparkError(f"the table is for sessions with {plan.settings}")
    if left_to_spark(spec.subject for spec in plan.indexes):
        raise NeedsSparkError("the table has an index of an expression that only Spark computes")


def write_few(catalog: Catalog, plan: Plan, few: FewToWrite, watch: Stages) -> LoadReport:
    """Write rows and commit them.

    Args:
        catalog: the table's, at its newest snapshot.
        plan: what the rows are laid out by.
        few: the rows.
        watch: times the stages.

    Raises:
        NeedsSparkError: a feature, or a partition's size, is none for this process; nothing was written.
        ContentMismatchError: what was written is not what was read; nothing was committed.
        CommitConflictError, AlreadyLoadedError, TableError: as :func:`~layoutopt.catalog.commit.commit_load`.
    """
    snapshot, files = catalog.snapshot, catalog.files
    names = PartitionNames.of(plan.schema, plan.partition_by, snapshot)
    values = {names.key(value): value for value in few.places}
    if len(values) < len(few.places) or max(map(len, few.places.values())) > plan.segment_rows:
        raise NeedsSparkError("a partition has more rows than a segment")
    check_block_numbers(plan, len(few.places))
    with watch.stage("features", "evaluating features"):
        words = vectors_of(plan.features.features, few.rows, plan.schema)
    load_id = fresh_load_id(snapshot)
    with removed_after(ANY, files, load_id, values):
        with watch.stage("write", f"writing {len(values)} segments", load_id=load_id) as counts:
            written = _written(_job(files, plan, few, tuple(values), load_id), few, words)
            counts["blocks"] = written.blocks.num_rows
        scalars = {key: names.scalar(value) for key, value in values.items()}
        with watch.stage("check", "comparing with the source"):
            entries = partition_entries(written.blocks, plan, load_id, scalars)
            _check(plan, few, written)
            counted = {names.key(value): len(places) for value, places in few.places.items()}
            check_partitions(entries, names, values, counted, few.source)
    entries = tuple(replace(entry, source=few.fingerprints.get(entry.key)) for entry in entries)
    with removed_after(REFUSED, files, load_id, values), watch.stage("commit", "committing") as counts:
        made = commit_load(
            files, snapshot, plan, load_id, entries, written.blocks, indexes=written.indexes,
            operation=few.operation, batch=few.batch, marks=few.marks,
        )  # fmt: skip
        counts["snapshot"] = made.number
    return load_report(load_id, made, plan, tuple(values), len(values), written, watch.seconds)


def _job(files: TableFiles, plan: Plan, few: FewToWrite, keys: tuple[str, ...], load_id: str) -> WriteJob:
    return WriteJob(
        plan=plan,
        shares=feature_shares(plan.features, plan.queries),
        root=files.full_path(""),
        load_id=load_id,
        first_block=first_block(load_id),
        keys=keys,
        numbers=(0,) * len(keys),
        late=comes_beside(few.operation, few.marks),
        lent=files.for_tasks().lent,
    )


def _written(job: WriteJob, few: FewToWrite, words: Words) -> Written:
    """Every segment written, in the order of the partitions."""
    observed = Content(few.counted, _sums(few.rows, job.plan.schema))
    answers = []
    try:
        for number, places in enumerate(few.places.values()):
            rows = few.rows.take(pa.array(places)).combine_chunks(POOL)
            answers.append(answer_of(job, GatheredSegment(number, rows, words[places])).split())
    except OSError as error:
        raise TableError(
            f"the table {job.root!r} can't be written ({error.strerror or error}), nothing was committed; mend that "
            "and retry"
        ) from error
    return collected(job.plan, job.keys, job.numbers, answers, observed)


def _sums(rows: pa.Table, schema: Schema) -> dict[str, int]:
    """The checksum of each column, of rows as they were read."""
    found = {}
    for column in schema.columns:
        hashes = value_hashes(rows[column.name], column.type)
        assert hashes is not None, "tables with other columns are refused"
        found[column.name] = int(hashes.sum(dtype=np.int64))
    return found


def _check(plan: Plan, few: FewToWrite, written: Written) -> None:
    """Refuse blocks that are not the rows that were read, or rows that are not what is known of them."""
    table = BlockTable.from_arrow(written.blocks, plan)
    content = written_content(table)
    if few.content is not None:
        known = {name: sum for name, sum in content.sums.items() if name in few.content.sums}
        check_content(few.content, Content(content.rows, known), few.source)
    check_content(written.observed, content, few.source)
    if plan.scheme.has_tids:
        check_positions(written.positions, written_positions(table), few.source)


# ----------------------------------------------------------------------------------------------------
# What appends left of a partition joined, without Spark where that is few rows.


def join_few(path: str, keys: Collection[str], watch: Stages) -> LoadReport | None:
    """Join small entries of some partitions, in one commit, by the table's newest plan.

    Args:
        path: of the table.
        keys: of the partitions.
        watch: times the stages.

    Returns:
        The commit; None where none is to be joined, or somebody else changed one meanwhile: theirs counts.

    Raises:
        NeedsSparkError: they have too many rows, or something that only Spark knows; nothing was written.
        ContentMismatchError: what was written is not what the entries have.
        LayoutoptError: as :func:`~layoutopt.local.append.write_few`.
    """
    if not has_small_entries(path, keys):
        return None
    table = open_own_table(path)
    catalog = table.catalog
    entries = small_entries(catalog.snapshot, keys)
    if not entries:
        return None
    plan = current_plan(catalog)
    check_plan_needs_no_spark(plan)
    check_columns(plan.schema, plan.partition_by)
    if set(catalog.snapshot.schema.names) != set(plan.schema.names):  # rows of other plans may have values of it
        raise NeedsSparkError("the table has columns that its newest plan lacks")
    live = [entry for entry in entries if entry.live_rows]
    counted = sum(entry.live_rows for entry in live)
    if not catalog.files.is_plain:
        raise NeedsSparkError("the table is encrypted")
    if not 0 < counted <= MOST_ROWS:
        raise NeedsSparkError(f"{counted} rows are to be joined")
    rows, places = _rows_of(table, plan, live)
    few = FewToWrite(
        f"the table {path!r}",
        rows,
        counted,
        places,
        JOIN,
        content=content_of_entries(entries),
        marks=in_place_of(entries),
    )
    try:
        return write_few(catalog, plan, few, watch)
    except CommitConflictError:
        return None


def _rows_of(table: Table, plan: Plan, entries: Collection[PartitionEntry]) -> tuple[pa.Table, dict[PlainValue, Ints]]:
    """The rows of entries, and the places of each partition's among them."""
    names = PartitionNames.of(plan.schema, plan.partition_by, table.catalog.snapshot)
    of_value: dict[PlainValue, list[PartitionEntry]] = {}
    for entry in entries:
        told = names.value_of(entry)
        if not told:
            raise NeedsSparkError(f"the catalog does not tell the value of partition {entry.key!r}")
        of_value.setdefault(told[0], []).append(entry)
    tables: list[pa.Table] = []
    places: dict[PlainValue, Ints] = {}
    before = 0
    for value, chosen in of_value.items():
        tables.append(_read_entries(table, plan, chosen))
        if sum(each.nbytes for each in tables) > MOST_BYTES:
            raise NeedsSparkError(f"the rows to be joined take more than {MOST_BYTES} bytes")
        places[value] = np.arange(before, before + tables[-1].num_rows)
        before += tables[-1].num_rows
    return pa.concat_tables(tables), places


def _read_entries(table: Table, plan: Plan, entries: Collection[PartitionEntry]) -> pa.Table:
    """All rows of some entries under the plan's columns."""
    scan = TableScan(table.name, table.name, table.schema.names, Filter.of(TRUE))
    read = TableRead(table, scan, table.all_rows_of(list(entries), scan.columns))
    form = pa.schema([(column.name, any_arrow_type(column.type)) for column in read.columns])
    batches, taken = [], 0
    for batch in read_segments(table.catalog.files, read.segments, read.columns):
        batches.append(batch.cast(form))
        taken += batches[-1].nbytes
        if taken > MOST_BYTES:
            raise NeedsSparkError(f"the rows to be joined take more than {MOST_BYTES} bytes")
    return pa.Table.from_batches(batches, form).select(list(plan.schema.names))


Join = Callable[[str, Collection[str], Stages], LoadReport | None]
"""Joins small entries of some partitions of a table, as :func:`~layoutopt.local.append.join_few`."""


@dataclass(frozen=True)
class AppendReport:
    """What an append did.

    Attributes:
        table: its path.
        batch: what was appended.
        load: the commit; None where the batch was there already.
        joined: the commit in which small entries of the partitions concerned were joined; None where none was.
        not_joined: why they could not be, though the batch is in the table; None where they could.
    """

    table: str
    batch: str
    load: LoadReport | None
    joined: LoadReport | None = None
    not_joined: str | None = None

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return asdict(self)


def append_few(
    settings: AppendSettings, join_many: Join, say: Progress = silent, log: EventLog = NO_EVENTS
) -> AppendReport:
    """Add a source's rows to a table as :func:`layoutopt.spark.changes.append.append_by` does, if they are few.

    Args:
        settings: of the verb.
        join_many: joins what are too many rows for this process.
        say: called with a short sentence as each stage begins.
        log: gets an event for each stage.

    Raises:
        NeedsSparkError: they are many, or table or source have something that only Spark knows; nothing was written.
        NotATableError: there is no table to append to.
        LayoutoptError: as :func:`~layoutopt.local.append.write_few`, and of publishing.
    """
    with published_after(settings.table_path, settings.publish, say, log):
        return _append(settings, join_many, Stages(say, log))


def _append(settings: AppendSettings, join_many: Join, watch: Stages) -> AppendReport:
    with watch.stage("all", "looking at the source"):
        catalog = open_own_table(settings.table_path).catalog
        if not catalog.partitions or not catalog.files.is_plain:
            raise NeedsSparkError("the table is empty, or encrypted")
        plan = current_plan(catalog)
        check_plan_needs_no_spark(plan)
        check_columns(plan.schema, plan.partition_by)
        found = read_few_rows(settings.source, plan.schema, plan.partition_by)
        names = PartitionNames.of(plan.schema, plan.partition_by, catalog.snapshot)
        batch = settings.batch_id or batch_of(found.partitions)
        few = FewToWrite(
            repr(settings.source),
            found.rows,
            found.counted,
            found.places,
            APPEND,
            {names.key(partition.value): partition.fingerprint for partition in found.partitions},
            batch=batch,
        )
    if batch in catalog.snapshot.batches:
        return AppendReport(settings.table_path, batch, None)
    try:
        report = write_few(catalog, plan, few, watch)
    except AlreadyLoadedError:  # by another process meanwhile, that was taken for dead
        return AppendReport(settings.table_path, batch, None)
    done = AppendReport(settings.table_path, batch, report)
    return done if settings.keep_apart else joined_after(done, partial(_join, join_many), watch)


def _join(join_many: Join, path: str, keys: Collection[str], watch: Stages) -> LoadReport | None:
    """Join small entries here if they are few rows."""
    try:
        return join_few(path, keys, watch)
    except NeedsSparkError:
        return join_many(path, keys, Stages(watch.say, watch.log))


def joined_after(done: AppendReport, join: Join, watch: Stages) -> AppendReport:
    """What an append did, and what was joined of the partitions concerned after it.

    Args:
        done: the append, which made a commit.
        join: joins.
        watch: what watched the append; the joining has stages of its own.
    """
    assert done.load is not None, "an append that did nothing joins nothing"
    try:
        joined = join(done.table, done.load.partitions, Stages(watch.say, watch.log))
    except Exception as error:  # the rows are there: whoever took this for their failure might append them again
        return replace(done, not_joined=str(error) or type(error).__name__)
    return replace(done, joined=joined)
