"""Append few rows without Spark, whose start and jobs take longer than writing the rows.

The source's plain Parquet files are read in this process. Whatever Spark might read otherwise, folders of partitions
included, raises NeedsSparkError before anything is written. Segments are written one after the other by the code of a
load task, verified, and committed; small entries of the partitions concerned are then joined (compacted).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from layoutopt.catalog.arrow_types import any_arrow_type
from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.commit import APPEND, adds_rows, commit_load
from layoutopt.catalog.deletion_vectors import Marks
from layoutopt.catalog.entries import content_of_entries, partition_entries, written_content, written_positions
from layoutopt.catalog.load_check import Content, check_content, check_partitions, check_positions
from layoutopt.catalog.partition_names import PartitionNames, PlainValue
from layoutopt.catalog.snapshot import PartitionEntry, Snapshot
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.config.settings import AppendSettings
from layoutopt.errors import AlreadyLoadedError, CommitConflictError, NeedsSparkError, TableError
from layoutopt.events import NO_EVENTS, EventLog, Progress, Stages, silent
from layoutopt.external.snapshot import SourceFile, SourcePartition, name_batch
from layoutopt.features.weights import feature_shares
from layoutopt.indexes.expressions import select_for_spark
from layoutopt.inspect.status import current_plan
from layoutopt.local.parquet_files import (
    arrow_schema,
    cast_columns,
    check_columns,
    check_path,
    encode_partitions,
    list_visible,
    open_plain,
    resolve_local_path,
)
from layoutopt.local.vectors import evaluate_exact_vectors
from layoutopt.maintenance.compaction import COMPACTION, find_small_entries, has_small_entries, mark_replaced
from layoutopt.model.arrays import Ints, Words
from layoutopt.model.feature import SessionSettings
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import TRUE, Filter
from layoutopt.model.schema import Schema
from layoutopt.publish.publishing import publish_after
from layoutopt.scan.read import read_segments
from layoutopt.scan.table import Table, open_own_table
from layoutopt.scan.table_read import TableRead
from layoutopt.sql.scans import TableScan
from layoutopt.writer.checksum import value_hashes
from layoutopt.writer.load_ids import (
    ANY_FAILURE,
    COMMIT_REFUSALS,
    check_block_numbers,
    first_block,
    fresh_load_id,
    remove_on_failure,
)
from layoutopt.writer.segment import POOL, GatheredSegment
from layoutopt.writer.task import WriteJob, write_and_measure
from layoutopt.writer.task_result import LoadReport, WriteResult, combine_task_results, load_report

# With more rows, writing takes longer than a Spark job's overhead.
MOST_ROWS: Final = 100_000
# Of rows in memory, as Arrow stores them.
MOST_BYTES: Final = 1 << 28
# Spark writes more partitions in parallel.
MOST_PARTITIONS: Final = 32

_ROWS_AT_ONCE: Final = 1024


@dataclass(frozen=True)
class AppendReport:
    """The result of an append.

    Attributes:
        table: its path.
        batch: what was appended.
        load: the commit; None where the batch was in the table already.
        joined: the commit that joined small entries of the partitions concerned; None where there was none.
        not_joined: why they could not be joined, though the batch is in the table; None where they could.
    """

    table: str
    batch: str
    load: LoadReport | None
    joined: LoadReport | None = None
    not_joined: str | None = None

    def to_json(self) -> dict[str, object]:
        """Return the report as a JSON object."""
        return asdict(self)


# Joins small entries of some partitions of a table, as :func:`join_few_rows` does.
Join = Callable[[str, Collection[str], Stages], LoadReport | None]


def append_few_rows(
    settings: AppendSettings, join_many: Join, say: Progress = silent, log: EventLog = NO_EVENTS
) -> AppendReport:
    """Append a source's rows as :func:`layoutopt.spark.changes.append.append_rows` does, if they are few.

    ``join_many`` joins entries that have too many rows for this process.

    Raises:
        NeedsSparkError: there are many rows, or table or source need Spark; nothing was written.
        NotATableError: there is no table to append to.
        LayoutoptError: as :func:`write_few_rows`, and of publishing.
    """
    with publish_after(settings.table_path, settings.publish, say, log):
        return _append(settings, join_many, Stages(say, log))


def _append(settings: AppendSettings, join_many: Join, watch: Stages) -> AppendReport:
    with watch.stage("all", "looking at the source"):
        catalog = open_own_table(settings.table_path).catalog
        if not catalog.partitions or not catalog.files.is_plain:
            raise NeedsSparkError("the table is empty, or encrypted")
        plan = current_plan(catalog)
        _check_plan(plan)
        source = read_few_rows(settings.source, plan.schema, plan.partition_by)
        names = PartitionNames.of(plan.schema, plan.partition_by, catalog.snapshot)
        batch = settings.batch_id or name_batch(source.partitions)
        rows = RowsToWrite(
            source=repr(settings.source),
            rows=source.rows,
            places=source.places,
            operation=APPEND,
            fingerprints={names.key(partition.value): partition.fingerprint for partition in source.partitions},
            batch=batch,
        )
    write = partial(write_few_rows, catalog, plan, rows, watch)
    return append_batch(settings, batch, catalog.snapshot, write, partial(_join, join_many), watch)


def _join(join_many: Join, path: str, keys: Collection[str], watch: Stages) -> LoadReport | None:
    try:
        return join_few_rows(path, keys, watch)
    except NeedsSparkError:
        return join_many(path, keys, Stages(watch.say, watch.log))


def append_batch(
    settings: AppendSettings,
    batch: str,
    snapshot: Snapshot,
    write: Callable[[], LoadReport],
    join: Join,
    watch: Stages,
) -> AppendReport:
    """Write a batch that the table lacks, then join small entries of the partitions that it changed.

    An error of joining is reported, not raised: a caller that took it for a failed append might append the rows again.

    Args:
        snapshot: the table's newest when the source was read.
        write: commits the batch's rows.
    """
    report = AppendReport(settings.table_path, batch, None)
    if batch in snapshot.batches:
        return report
    try:
        load = write()
    except AlreadyLoadedError:  # another process appended it meanwhile
        return report
    report = replace(report, load=load)
    if settings.keep_apart:
        return report
    try:
        if has_small_entries(report.table, load.partitions):
            report = replace(report, joined=join(report.table, load.partitions, Stages(watch.say, watch.log)))
        return report
    except CommitConflictError:  # another commit changed one of the entries
        return report
    except Exception as error:
        return replace(report, not_joined=str(error) or type(error).__name__)


def _check_plan(plan: Plan) -> None:
    """Raise NeedsSparkError for a plan whose settings, indexes or columns need Spark."""
    if plan.settings != SessionSettings():
        raise NeedsSparkError(f"the table is for sessions with {plan.settings}")
    if select_for_spark(spec.subject for spec in plan.indexes):
        raise NeedsSparkError("the table has an index of an expression that only Spark computes")
    check_columns(plan.schema, plan.partition_by)


@dataclass(frozen=True, eq=False)
class SourceRows:
    """Rows read from a source.

    Attributes:
        rows: under the schema's columns, in the order of files' paths and of their rows.
        partitions: each with the files that have rows of it, NULL first.
        places: by partition value, the places of its rows, ``int64[k]``.
    """

    rows: pa.Table
    partitions: tuple[SourcePartition, ...]
    places: Mapping[PlainValue, Ints]


def read_few_rows(source: str, schema: Schema, partition_by: str | None) -> SourceRows:
    """Read the file at a path, or those of a folder without folders, under a schema's columns.

    Raises:
        NeedsSparkError: there are no rows, too many, or Spark might read them otherwise.
    """
    try:
        paths = list_visible(resolve_local_path(source))
        for path in paths:
            check_path(path)
        files = [(path, _stat_file(path)) for path in paths]
    except OSError as error:
        raise NeedsSparkError(f"{source!r} can't be looked at without it ({error})") from error
    tables: list[pa.Table] = []
    counted = size = 0
    for path, file in files:
        tables.append(_read(path, schema, MOST_ROWS - counted, MOST_BYTES - size))
        try:
            is_changed = _stat_file(path) != file
        except OSError as error:
            raise NeedsSparkError(f"{str(path)!r} can't be looked at without it ({error})") from error
        counted += tables[-1].num_rows
        size += tables[-1].nbytes
        if is_changed:
            raise NeedsSparkError(f"{str(path)!r} is being changed")
    if not counted:
        raise NeedsSparkError(f"{source!r} has no rows")
    rows = pa.concat_tables(tables)
    file_of_row = np.repeat(np.arange(len(files)), [table.num_rows for table in tables])
    places = dict(_locate_partitions(rows, partition_by))
    partitions = tuple(
        SourcePartition(
            value,
            tuple(files[number][1] for number in np.unique(file_of_row[rows_of_value]).tolist()),
            len(rows_of_value),
        )
        for value, rows_of_value in places.items()
    )
    return SourceRows(rows, partitions, places)


def _stat_file(path: Path) -> SourceFile:
    """Return the file's size and time of change as Spark reports them, to the millisecond."""
    status = path.stat()
    return SourceFile(f"file:{path}", status.st_size, status.st_mtime_ns // 1_000_000 * 1_000)


def _read(path: Path, schema: Schema, most_rows: int, most_bytes: int) -> pa.Table:
    columns = arrow_schema(schema)
    with open_plain(path, schema) as file:
        if file.metadata.num_rows > most_rows:
            raise NeedsSparkError(f"there are more than {MOST_ROWS} rows")
        parts, size = [], 0
        # Few rows at a time: decoding a dictionary column can expand it 1000 times.
        for batch in file.iter_batches(_ROWS_AT_ONCE):
            parts.append(cast_columns(pa.Table.from_batches([batch]), columns))
            size += parts[-1].nbytes
            if size > most_bytes:
                raise NeedsSparkError(f"the rows of {str(path)!r} and those before take more than {MOST_BYTES} bytes")
        rows = pa.concat_tables([columns.empty_table(), *parts]).combine_chunks()
        if rows.num_rows != file.metadata.num_rows:
            raise NeedsSparkError(f"{str(path)!r} has other rows than its footer says")
        return rows


def _locate_partitions(rows: pa.Table, partition_by: str | None) -> Iterator[tuple[PlainValue, Ints]]:
    """Yield the partitions' plain values, NULL first and then in order, with the places of their rows."""
    if partition_by is None:
        yield None, np.arange(rows.num_rows)
        return
    coded = encode_partitions(rows, partition_by)
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


@dataclass(frozen=True, eq=False)
class RowsToWrite:
    """Rows to write in one commit, by an ``operation`` of the history.

    Attributes:
        source: names the rows' source in messages.
        places: by partition value, the places of its rows, ``int64[k]``.
        fingerprints: by partition key, the digest of the source's files.
        content: the expected content where it is known from elsewhere than the rows.
        marks: entries that the rows replace.
    """

    source: str
    rows: pa.Table
    places: Mapping[PlainValue, Ints]
    operation: str
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    content: Content | None = None
    batch: str | None = None
    marks: Marks | None = None


def write_few_rows(catalog: Catalog, plan: Plan, rows: RowsToWrite, watch: Stages) -> LoadReport:
    """Write rows by a plan and commit them to the table, whose catalog is at its newest snapshot.

    Raises:
        NeedsSparkError: a feature needs Spark, or a partition is too large; nothing was written.
        ContentMismatchError: what was written is not what was read; nothing was committed.
        CommitConflictError, AlreadyLoadedError, TableError: as :func:`~layoutopt.catalog.commit.commit_load`.
    """
    snapshot, files = catalog.snapshot, catalog.files
    names = PartitionNames.of(plan.schema, plan.partition_by, snapshot)
    values = {names.key(value): value for value in rows.places}
    if len(values) < len(rows.places) or max(map(len, rows.places.values())) > plan.segment_rows:
        raise NeedsSparkError("a partition has more rows than a segment")
    check_block_numbers(plan, len(rows.places))
    with watch.stage("features", "evaluating features"):
        words = evaluate_exact_vectors(plan.features.features, rows.rows, plan.schema)
    load_id = fresh_load_id(snapshot)
    with remove_on_failure(ANY_FAILURE, files, load_id, values):
        with watch.stage("write", f"writing {len(values)} segments", load_id=load_id) as counts:
            written = _write(_write_job(files, plan, rows, tuple(values), load_id), rows, words)
            counts["blocks"] = written.blocks.num_rows
        scalars = {key: names.scalar(value) for key, value in values.items()}
        with watch.stage("check", "comparing with the source"):
            entries = partition_entries(written.blocks, plan, load_id, scalars)
            _check_written(plan, rows, written)
            counted = {names.key(value): len(places) for value, places in rows.places.items()}
            check_partitions(entries, names, values, counted, rows.source)
    entries = tuple(replace(entry, source=rows.fingerprints.get(entry.key)) for entry in entries)
    with remove_on_failure(COMMIT_REFUSALS, files, load_id, values), watch.stage("commit", "committing") as counts:
        committed = commit_load(
            files, snapshot, plan, load_id, entries, written.blocks, indexes=written.indexes,
            operation=rows.operation, batch=rows.batch, marks=rows.marks,
        )  # fmt: skip
        counts["snapshot"] = committed.number
    return load_report(load_id, committed, plan, tuple(values), len(values), written, watch.seconds)


def _write_job(files: TableFiles, plan: Plan, rows: RowsToWrite, keys: tuple[str, ...], load_id: str) -> WriteJob:
    return WriteJob(
        plan=plan,
        shares=feature_shares(plan.features, plan.queries),
        root=files.full_path(""),
        load_id=load_id,
        first_block=first_block(load_id),
        keys=keys,
        numbers=(0,) * len(keys),
        late=adds_rows(rows.operation, rows.marks),
        lent=files.for_tasks().lent,
    )


def _write(job: WriteJob, rows: RowsToWrite, words: Words) -> WriteResult:
    observed = Content(rows.rows.num_rows, _sum_checksums(rows.rows, job.plan.schema))
    results = []
    try:
        for number, places in enumerate(rows.places.values()):
            table = rows.rows.take(pa.array(places)).combine_chunks(POOL)
            results.append(write_and_measure(job, GatheredSegment(number, table, words[places])).split())
    except OSError as error:
        raise TableError(
            f"the table {job.root!r} can't be written ({error.strerror or error}), nothing was committed; mend that "
            "and retry"
        ) from error
    return combine_task_results(job.plan, job.keys, job.numbers, results, observed)


def _sum_checksums(rows: pa.Table, schema: Schema) -> dict[str, int]:
    sums = {}
    for column in schema.columns:
        hashes = value_hashes(rows[column.name], column.type)
        assert hashes is not None, "tables with other columns are refused"
        sums[column.name] = int(hashes.sum(dtype=np.int64))
    return sums


def _check_written(plan: Plan, rows: RowsToWrite, written: WriteResult) -> None:
    table = BlockTable.from_arrow(written.blocks, plan)
    content = written_content(table)
    if rows.content is not None:
        expected = {name: sum for name, sum in content.sums.items() if name in rows.content.sums}
        check_content(rows.content, Content(content.rows, expected), rows.source)
    check_content(written.observed, content, rows.source)
    if plan.scheme.has_tids:
        check_positions(written.positions, written_positions(table), rows.source)


def join_few_rows(path: str, keys: Collection[str], watch: Stages) -> LoadReport | None:
    """Join small entries of the partitions with some keys, in one commit, by the table's newest plan.

    Returns:
        The commit; None where there is nothing to join.

    Raises:
        NeedsSparkError: the entries have too many rows, or need Spark; nothing was written.
        ContentMismatchError: what was written is not what the entries have.
        LayoutoptError: as :func:`write_few_rows`.
    """
    table = open_own_table(path)
    catalog = table.catalog
    entries = find_small_entries(catalog.snapshot, keys)
    if not entries:
        return None
    plan = current_plan(catalog)
    _check_plan(plan)
    if set(catalog.snapshot.schema.names) != set(plan.schema.names):  # rows of other plans may have values there
        raise NeedsSparkError("the table has columns that its newest plan lacks")
    live = [entry for entry in entries if entry.live_rows]
    counted = sum(entry.live_rows for entry in live)
    if not catalog.files.is_plain:
        raise NeedsSparkError("the table is encrypted")
    if not 0 < counted <= MOST_ROWS:
        raise NeedsSparkError(f"{counted} rows are to be joined")
    rows, places = _read_live_rows(table, plan, live)
    to_write = RowsToWrite(
        f"the table {path!r}",
        rows,
        places,
        COMPACTION,
        content=content_of_entries(entries),
        marks=mark_replaced(entries),
    )
    return write_few_rows(catalog, plan, to_write, watch)


def _read_live_rows(
    table: Table, plan: Plan, entries: Collection[PartitionEntry]
) -> tuple[pa.Table, dict[PlainValue, Ints]]:
    names = PartitionNames.of(plan.schema, plan.partition_by, table.catalog.snapshot)
    by_value: dict[PlainValue, list[PartitionEntry]] = {}
    for entry in entries:
        known = names.value_of(entry)
        if not known:
            raise NeedsSparkError(f"the catalog does not tell the value of partition {entry.key!r}")
        by_value.setdefault(known[0], []).append(entry)
    tables: list[pa.Table] = []
    places: dict[PlainValue, Ints] = {}
    start = size = 0
    for value, entries_of_value in by_value.items():
        rows = _read_entries(table, plan, entries_of_value, MOST_BYTES - size)
        places[value] = np.arange(start, start + rows.num_rows)
        tables.append(rows)
        start += rows.num_rows
        size += rows.nbytes
    return pa.concat_tables(tables), places


def _read_entries(table: Table, plan: Plan, entries: Collection[PartitionEntry], most_bytes: int) -> pa.Table:
    scan = TableScan(table.name, table.name, table.schema.names, Filter.of(TRUE))
    read = TableRead(table, scan, table.all_rows_of(list(entries), scan.columns))
    schema = pa.schema([(column.name, any_arrow_type(column.type)) for column in read.columns])
    batches, size = [], 0
    for batch in read_segments(table.catalog.files, read.segments, read.columns):
        batches.append(batch.cast(schema))
        size += batches[-1].nbytes
        if size > most_bytes:
            raise NeedsSparkError(f"the rows to be joined take more than {MOST_BYTES} bytes")
    return pa.Table.from_batches(batches, schema).select(list(plan.schema.names))
