"""Load a source's partitions into a table's blocks, verify what was written, and commit it.

:func:`load` counts the partitions, unless they are known, and cuts them into segments. Tasks of the source's executor
write a segment each, in Spark or in processes of this machine, and another reader sums the source. The sums are
compared with what was written; the commit makes it visible.

:func:`run_load` loads each partition exactly once however often it is retried. A partition is *loaded* if the table has
it from the same files, or from other files with the same rows. One with other rows, or by another plan than the one
named, is refused unless the settings say to replace it. Of several partitions one that fails does not stop the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from threading import Lock
from typing import Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.commit import Basis, CommitHook, Load, Piece, commit_load, ensure_table_root, write_piece
from layoutopt.catalog.entries import partition_entries, written_content, written_positions
from layoutopt.catalog.file_sizes import sum_sizes
from layoutopt.catalog.load_check import Content, add_contents, check_content, check_partitions, check_positions
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.partition_names import (
    PartitionNames,
    PlainValue,
    check_requests,
    parse_plain_value,
    parse_selection,
)
from layoutopt.catalog.paths import MARKER, is_of_catalog
from layoutopt.catalog.source_lists import LoadedFile, SourceLists
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.catalog.table_root import check_table_root
from layoutopt.config.documents import DEFAULT_PLAN, read_plan
from layoutopt.encryption.references import KEY_VARIABLE, given_reference, key_of
from layoutopt.errors import (
    AlreadyLoadedError,
    BoundError,
    CommitConflictError,
    ContentMismatchError,
    EncryptedTableError,
    LayoutoptError,
    MissingPartitionError,
    NotATableError,
    PartitionsFailedError,
    PlanError,
    SettingError,
    find_interrupt,
)
from layoutopt.evaluation.checksum import is_hashable
from layoutopt.events import NO_EVENTS, EventLog, Progress, Stages, silent
from layoutopt.external.external_tables import pin_version
from layoutopt.external.snapshot import SourcePartition
from layoutopt.inspect.status import current_plan
from layoutopt.loading.write import make_job, read_results, write_segments
from layoutopt.model.layout import Plan
from layoutopt.model.requests import LoadRequest
from layoutopt.model.schema import Schema
from layoutopt.model.summary import Summarised
from layoutopt.publish.publishing import parse_publications, publish_all
from layoutopt.scan.table import Table
from layoutopt.sources.door import Door
from layoutopt.sources.segments import Chunk, Segment, chunks_from_counts, cut_segments
from layoutopt.sources.source import IsNeeded, Source
from layoutopt.writer.load_ids import (
    ANY_FAILURE,
    COMMIT_REFUSALS,
    fresh_load_id,
    remove_on_failure,
)
from layoutopt.writer.task_result import (
    LoadReport,
    StoredResult,
    TaskResult,
    WriteResult,
    combine_task_results,
    load_report,
    results_folder,
)

Item = TypeVar("Item")

# The statistics of so many columns of blocks are held at once: some 70 bytes each.
_MOST_HELD = 300_000
# Sums of 32-bit hashes stay within 64 bits below this.
_MOST_ROWS = 1 << 31
_SUMMED = ("rows", "segments", "blocks", "files", "bytes")
# A message names at most so many partitions.
_MOST_NAMED = 5
# The most days of a range of which those without rows are listed.
_MOST_DAYS = 3_660


@dataclass(frozen=True, kw_only=True)
class LoadBasis(Basis):
    """What the caller of a load knows of table and source.

    Attributes:
        source: names the source in messages.
        values: the partitions to load; None where texts select them, or all are loaded.
        fingerprints: by partition key, the digest of the source's files; recorded, so that a retry knows its own work.
        files: by partition key, the source's files, which the table lists; a DataFrame has none.
        rows: by partition key, the rows counted in the source.
        content: the expected content of all rows, where it is known better than from the source.
    """

    source: str
    values: tuple[PlainValue, ...] | None = None
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    files: SourceLists = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    content: Content | None = None


@dataclass(frozen=True)
class _Run:
    """One load: its source, its target, its segments, and the partitions' values by key.

    Attributes:
        paths: the catalog files that it has written so far.
    """

    rows: Source
    plan: Plan
    files: TableFiles
    load_id: str
    segments: tuple[Segment, ...]
    values: Mapping[str, PlainValue]
    names: PartitionNames
    basis: LoadBasis
    paths: list[str] = field(default_factory=list)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The key of each segment's partition."""
        return tuple(self.names.key(segment.value) for segment in self.segments)

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """The number of each segment in its partition."""
        return tuple(segment.number for segment in self.segments)

    @property
    def is_large(self) -> bool:
        """Whether tasks store their results."""
        rows = sum(segment.rows for segment in self.segments)
        columns = sum(len(layout.columns) for layout in self.plan.scheme.layouts)
        return rows * columns > _MOST_HELD * self.plan.block_rows

    def entries(self, blocks: pa.Table, keys: Iterable[str]) -> tuple[PartitionEntry, ...]:
        """Return the entries of some partitions that were written, with their files' fingerprints."""
        values = {key: self.names.scalar(self.values[key]) for key in keys}
        entries = partition_entries(blocks, self.plan, self.load_id, values)
        return tuple(replace(entry, source=self.basis.fingerprints.get(entry.key)) for entry in entries)

    def load(self, result: WriteResult, keys: Sequence[str], pieces: Sequence[Piece]) -> Load:
        """Return the load of some partitions beside pieces that are written."""
        entries = self.entries(result.blocks, keys)
        sources = {key: self.basis.files.get(key, ()) for key in keys} if self.basis.files else None
        return Load(self.basis, self.plan, self.load_id, entries, result.blocks, result.indexes, sources, pieces)


@dataclass(frozen=True)
class _Written:
    """What was written.

    Attributes:
        load: to be committed.
        sizes: of all blocks, as :func:`~layoutopt.catalog.file_sizes.sum_sizes` has them.
        joined: joined vectors by partition key.
    """

    load: Load
    sizes: tuple[pa.Table, ...]
    joined: Mapping[str, int]


def load(
    rows: Source,
    table_path: str,
    plan: Plan,
    basis: LoadBasis,
    stages: Stages,
    *,
    encrypt: str | None = None,
    at: CommitHook = lambda point: None,
    in_task: Callable[[str], None] | None = None,
) -> LoadReport:
    """Rewrite rows into blocks, and commit them as the table's next snapshot.

    Args:
        rows: the source; it is closed.
        table_path: the table's folder, which exists.
        plan: the layout to load by.
        basis: what the caller knows of table and source.
        stages: times and logs the stages.
        encrypt: the reference to the key that encrypts a new table; an existing table must use the same.
        at: called at the commit's points, see ``CRASH_POINTS``; for tests.
        in_task: called in every task after its files are written; for tests.

    Raises:
        ContentMismatchError: what was written is not what the source has.
        CommitConflictError: another commit changed one of the partitions meanwhile.
        BoundError: a segment has more rows than ``segment_rows``, or memory ran out.
        TableError: the table can't be written.
        EncryptionKeyError: the key of an encrypted table is missing, or another one.
        NeedsSparkError: Arrow might read a file otherwise than Spark.
        LayoutoptError: of the source, as its methods raise.
    """
    files = TableFiles(table_path, key=encrypt)
    with closing(rows):
        run, written = _write(files, plan, basis, stages, in_task, rows)
    removal = remove_on_failure(COMMIT_REFUSALS, files, run.load_id, run.values, rows.executor.wait, run.paths)
    with removal, stages.stage("commit", "committing") as counts:
        snapshot = commit_load(files, written.load, at)
        counts["snapshot"] = snapshot.number
    sizes, joined = written.sizes, written.joined
    return load_report(run.load_id, snapshot, plan, tuple(run.values), len(run.segments), sizes, joined, stages.seconds)


def list_files(source: str, partition: SourcePartition) -> tuple[LoadedFile, ...]:
    """Return the files of a partition of a source as a table lists them."""
    return tuple(LoadedFile(source, file.uri, file.size, file.modified) for file in partition.files)


def _cut(rows: Source, plan: Plan, basis: LoadBasis, names: PartitionNames) -> tuple[Segment, ...]:
    """Cut the partitions into segments; rows are counted unless the caller of the load counted them."""
    known: dict[PlainValue, int | None] = {None: None}
    if plan.partition_by is None or basis.values is not None:
        known = {value: basis.rows.get(names.key(value)) for value in basis.values or (None,)}
    chunks: Sequence[Chunk] | None = chunks_from_counts(known, plan.segment_rows)
    if chunks is None:
        chunks = rows.chunks(plan.segment_rows) if rows.partition_rows else []
    total = sum(chunk.rows for chunk in chunks)
    if total >= _MOST_ROWS:
        raise BoundError(f"one load takes fewer than {_MOST_ROWS} rows, not {total}; load fewer partitions at a time")
    return cut_segments(chunks, plan.segment_rows)


def _name_partitions(names: PartitionNames, basis: LoadBasis, segments: Sequence[Segment]) -> dict[str, PlainValue]:
    """Return the values of a load's partitions by their keys: those requested, and those that the source has.

    Raises:
        ContentMismatchError: the source has other partitions than before, or two have one key.
    """
    requested = dict.fromkeys(basis.values or ())
    values = requested | {segment.value: None for segment in segments}
    if basis.values is not None and len(values) > len(requested):
        raise ContentMismatchError(
            f"{basis.source} has a new partition {names.shown(list(values)[-1])}: the source was changed during the "
            "load; nothing was committed, load again once it no longer changes"
        )
    by_key = {names.key(value): value for value in values}
    if len(by_key) < len(values):
        raise ContentMismatchError(
            f"two partitions of {basis.source} would have one name in the table; nothing was committed, "
            "load them one at a time into tables of their own"
        )
    return by_key


def _write(
    files: TableFiles,
    plan: Plan,
    basis: LoadBasis,
    stages: Stages,
    in_task: Callable[[str], None] | None,
    rows: Source,
) -> tuple[_Run, _Written]:
    """Cut and write the segments, and compare them with the source; remove the files where that fails."""
    names = PartitionNames.of(plan.schema, plan.partition_by, basis.snapshot)
    with stages.stage("count", "counting partitions") as counts:
        segments = _cut(rows, plan, basis, names)
        counts |= {"segments": len(segments), "rows": sum(segment.rows for segment in segments)}
    values = _name_partitions(names, basis, segments)
    run = _Run(rows, plan, files, fresh_load_id(basis.snapshot), segments, values, names, basis)
    removal = remove_on_failure(ANY_FAILURE, files, run.load_id, run.values, rows.executor.wait, run.paths)
    with _remove_results(run), removal:
        say = f"writing {len(run.segments)} segments"
        with stages.stage("write", say, load_id=run.load_id, read_by=rows.reader) as counts:
            results = _write_segments(run, in_task)
            content = rows.sum() if segments else Content(0, dict.fromkeys(plan.schema.names, 0))
            counts["blocks"] = sum(result.count for result in results)
        with stages.stage("check", "comparing with the source"):
            written = _check_results(run, results, content)
    return run, written


def _write_segments(run: _Run, in_task: Callable[[str], None] | None) -> Sequence[TaskResult | StoredResult]:
    job = make_job(run.files, run.plan, run.load_id, run.keys, run.numbers)
    if not run.segments:
        return ()
    job = replace(job, at=in_task, small_segment=run.basis.adds_rows)
    return write_segments(run.rows, job, run.segments, run.files.for_tasks() if run.is_large else None)


@contextmanager
def _remove_results(run: _Run) -> Iterator[None]:
    try:
        yield
    finally:
        if run.is_large:
            with suppress(LayoutoptError, OSError):  # else a vacuum removes them
                run.files.delete_folder(results_folder(run.load_id))


def _check_results(run: _Run, results: Sequence[TaskResult | StoredResult], content: Content) -> _Written:
    """Compare what was written with the source, and write the pieces of the catalog but the last."""
    groups = _cut_pieces(run, results)
    pieces: list[Piece] = []
    sizes: list[pa.Table] = []
    contents: list[Content] = []
    joined: dict[str, int] = {}
    for number, (keys, members) in enumerate(groups):
        result = combine_task_results(run.plan, run.keys, run.numbers, read_results(run.files, members))
        load = run.load(result, keys, tuple(pieces))
        contents.append(_check_piece(run, result))
        check_partitions(load.entries, run.names, run.values, run.basis.rows, run.basis.source)
        sizes.append(sum_sizes(result.blocks))
        joined |= result.joined
        if number + 1 < len(groups):
            pieces.append(piece := write_piece(run.files, load))
            run.paths.extend([piece.path, *filter(is_of_catalog, piece.paths)])
            del result, load  # before the next are read
    _check_content(run, add_contents(contents), content)
    return _Written(load, tuple(sizes), joined)


def _cut_pieces(
    run: _Run, results: Sequence[TaskResult | StoredResult]
) -> list[tuple[tuple[str, ...], list[TaskResult | StoredResult]]]:
    """Return the partitions of each piece of the catalog, and their results.

    A load that changes rows of the table is one piece, since the source lists of its partitions are found at its end.
    """
    by_key: dict[str, list[TaskResult | StoredResult]] = {key: [] for key in run.values}
    for result in results:
        by_key[run.keys[result.segment]].append(result)
    columns = max(len(layout.columns) for layout in run.plan.scheme.layouts)
    pieces: list[tuple[list[str], list[TaskResult | StoredResult]]] = [([], [])]
    held = 0
    for key, members in by_key.items():
        size = columns * sum(result.count for result in members)
        if held and held + size > _MOST_HELD and run.basis.operation is None and run.basis.marks is None:
            pieces.append(([], []))
            held = 0
        pieces[-1][0].append(key)
        pieces[-1][1].extend(members)
        held += size
    return [(tuple(keys), sorted(members, key=lambda result: result.segment)) for keys, members in pieces]


def _check_piece(run: _Run, written: WriteResult) -> Content:
    """Return the content of blocks; raise ContentMismatchError for rows at other positions than the source's."""
    table = BlockTable.from_arrow(written.blocks, run.plan)
    if run.plan.scheme.has_tids:
        check_positions(written.positions, written_positions(table), run.basis.source)
    measured = written_content(table)
    return Content(measured.rows, {**dict(measured.sums), **_read_back(run, written.blocks)})


def _check_content(run: _Run, content: Content, observed: Content) -> None:
    """Raise ContentMismatchError for blocks that do not have the source's rows, in total."""
    source = run.basis.source
    if run.basis.content is not None:
        known = {name: sum for name, sum in content.sums.items() if name in run.basis.content.sums}
        check_content(run.basis.content, Content(content.rows, known), source)
    try:
        check_content(observed, content, source)
    except ContentMismatchError:
        check_content(run.rows.sum_again(), content, source)


def _read_back(run: _Run, blocks: pa.Table) -> dict[str, int]:
    """Read the checksums of unhashed columns, each from the files of the first layout that has all of its rows."""
    unhashed = {column.name: column for column in run.plan.schema.columns if not is_hashable(column.type)}
    sums = dict.fromkeys(unhashed, 0)
    for number, layout in enumerate(run.plan.scheme.layouts):
        columns = Schema(tuple(unhashed.pop(name) for name in layout.master if name in unhashed))
        written = blocks.filter(pc.equal(blocks["layout"], number))
        if columns.columns and written.num_rows:
            sums |= run.rows.sum_written(run.files, run.plan, columns, written)
    return sums


class LoadSource(Protocol):
    """The source that a verb names: a :class:`~layoutopt.sources.source.Source`, or one that only Spark reads."""

    @property
    def partitions(self) -> tuple[SourcePartition, ...]:
        """All partitions that have rows, by value, NULL first."""
        ...

    def select_partitions(self, texts: Sequence[object]) -> tuple[SourcePartition, ...]:
        """Return the partitions that texts of ``--partition`` name, in their order; without files where rows lack.

        Raises:
            SettingError: a text is no value of the partition column.
        """
        ...

    def select_range(self, first: str | None, last: str | None) -> tuple[SourcePartition, ...]:
        """Return the partitions that have rows from one value to another; None leaves an end open.

        Raises:
            SettingError: a text is no value of the partition column.
        """
        ...

    def check_reachable(self, partitions: Sequence[SourcePartition]) -> None:
        """Raise SourceError if the partitions' values select other rows than were counted."""
        ...

    def check_rows(self, partitions: Sequence[SourcePartition] | None) -> None:
        """Raise the error by which :meth:`open_rows` would refuse some partitions; SchemaError for other columns."""
        ...

    def open_rows(self, partitions: Sequence[SourcePartition] | None, beside: TableFiles) -> Source:
        """Open the rows of some partitions, or of all with None, to be written to a table, whose load closes them.

        Raises:
            SchemaError: they have other columns than the plan.
        """
        ...

    def holds_same_rows(self, partition: SourcePartition, table: Table, entries: Sequence[PartitionEntry]) -> bool:
        """Return whether a partition's entries, in a table at one snapshot, hold its rows, in any order."""
        ...


# Returns the door of a load's source, for a plan, which counts the rows of partitions that are needed.
OpenSource = Callable[[str, Plan, IsNeeded], Door[LoadSource]]


@dataclass(frozen=True)
class Failure:
    """A partition that was not loaded, by its key, and why."""

    partition: str
    error: Exception

    @property
    def exit_code(self) -> int:
        """The exit code of a load of this partition alone."""
        return self.error.exit_code if isinstance(self.error, LayoutoptError) else LayoutoptError.exit_code

    def to_json(self) -> dict[str, object]:
        """Return the failure as a JSON object."""
        return {"partition": self.partition, "error": str(self.error), "exit": self.exit_code}


def _make_error(report: LoadsReport) -> PartitionsFailedError:
    first, count = report.failed[0], len(report.failed)
    names = ", ".join(failure.partition for failure in report.failed[:_MOST_NAMED])
    return PartitionsFailedError(
        f"{count} partition(s) were not loaded ({names}{', ...' if count > _MOST_NAMED else ''}), the first because "
        f"{first.error}; the same command loads the rest",
        report,
        # Failures that a retry may mend come first: after it the others are left.
        min(failure.exit_code for failure in report.failed),
    )


@dataclass(frozen=True, repr=False)
class LoadsReport(Summarised):
    """The result of :func:`run_load`.

    Attributes:
        table: its path.
        plan: the digest of the plan.
        loads: one a commit, in order.
        already: the keys of the partitions that the table had already, sorted.
        seconds: in all.
        source: what was loaded; a table of another format with its version.
        empty: the days of the requested range that have no rows in the source.
        failed: the partitions that were not loaded, where several were requested.
    """

    table: str
    plan: str
    loads: tuple[LoadReport, ...] = ()
    already: tuple[str, ...] = ()
    seconds: float = 0.0
    source: str = ""
    empty: tuple[str, ...] = ()
    failed: tuple[Failure, ...] = ()

    def summarise(self) -> dict[str, object]:
        """Return the summary of a notebook."""
        snapshot = self.loads[-1].snapshot if self.loads else None
        sums = self._sum_loads("rows", "blocks", "bytes")
        partitions = {"partitions": len(self.partitions), "partitions_there_before": len(self.already)}
        return {"table": self.table, "snapshot": snapshot, **partitions, **sums}

    def _sum_loads(self, *names: str) -> dict[str, int]:
        return {name: sum(getattr(load, name) for load in self.loads) for name in names}

    @property
    def partitions(self) -> tuple[str, ...]:
        """The keys of the partitions that were loaded."""
        return tuple(key for load in self.loads for key in load.partitions)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know of the loads."""
        return tuple(note for load in self.loads for note in load.notes)

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON: the sums over the loads, then each load."""
        sums = self._sum_loads(*_SUMMED)
        last = self.loads[-1] if self.loads else None
        return {
            "table": self.table,
            "source": self.source,
            "plan": self.plan,
            "snapshot": None if last is None else last.snapshot,
            "partitions": list(self.partitions),
            "already": list(self.already),
            "empty": list(self.empty),
            "failed": [failure.to_json() for failure in self.failed],
            **sums,
            "seconds": self.seconds,
            "notes": list(self.notes),
            "loads": [load.to_json() for load in self.loads],
        }


@dataclass(frozen=True)
class _Loading:
    """The partitions to load, and the source and the table's newest snapshot when they were looked at."""

    door: Door[LoadSource]
    request: LoadRequest
    plan: Plan
    table: Table | None
    log: EventLog = NO_EVENTS
    say: Progress = silent
    partitions: tuple[SourcePartition, ...] = ()

    @cached_property
    def names(self) -> PartitionNames:
        snapshot = None if self.table is None else self.table.catalog.snapshot
        return PartitionNames.of(self.plan.schema, self.plan.partition_by, snapshot)

    def key(self, partition: SourcePartition) -> str:
        return self.names.key(partition.value)

    def entries(self, partition: SourcePartition) -> tuple[PartitionEntry, ...]:
        return () if self.table is None else self.table.catalog.snapshot.by_key.get(self.key(partition), ())

    def may_have(self, partition: SourcePartition) -> bool:
        """Return whether the table has a partition that is not to be replaced."""
        entries = self.entries(partition)
        has_rows = any(entry.live_rows for entry in entries) or not partition.files
        return bool(entries) and has_rows and not self.request.replace

    def has_files(self, partition: SourcePartition) -> bool:
        """Return whether the table has a partition from these files by this plan (by any, where none was named)."""
        entries = self.entries(partition)
        return bool(entries) and _has_plan(self, entries[0]) and entries[0].source == partition.fingerprint


@dataclass
class _Outcome:
    """What a load has done so far; groups of partitions add to it, perhaps from several threads.

    Attributes:
        goes_on: whether a partition that fails is noted, and does not stop the others.
    """

    goes_on: bool
    loads: list[LoadReport] = field(default_factory=list)
    already: list[str] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def fail(self, loading: _Loading, partitions: Iterable[SourcePartition], error: Exception) -> None:
        """Note the failure of partitions; raise it where it stops the load."""
        if not self.goes_on:
            raise error
        self.failed += [Failure(loading.key(partition), error) for partition in partitions]


def run_load(
    open_source: OpenSource,
    request: LoadRequest,
    say: Progress = silent,
    log: EventLog = NO_EVENTS,
    make_plan: Callable[[], Plan] | None = None,
    at_once: int = 1,
) -> LoadsReport:
    """Load what the request names and the table lacks, with a commit for each group of partitions.

    A group is one partition where some are named, else the whole source, unless the request gives a size. Where several
    partitions are loaded in groups, one that fails is noted, and the others are loaded: those of its group one by one.

    Args:
        open_source: returns the door of the source.
        request: of the verb.
        say: called with a short sentence as each stage begins.
        log: gets an event for each stage, and one ``load`` at the end that sums up.
        make_plan: makes the plan of a table that has none; by default it is read from the file that the request names.
        at_once: how many groups are loaded at once, from threads. That is for Spark, whose tasks share the executors'
            cores, so the memory of the tasks stays the same. Processes of this machine take one group after another.

    Raises:
        AlreadyLoadedError: a partition has other rows, or another plan's, and ``replace`` is not set.
        MissingPartitionError: the source has no rows for a named partition, or none in the range.
        PartitionsFailedError: some of several partitions failed; the others are loaded.
        SettingError: only Spark can read the source, and another executor was chosen.
        LayoutoptError: as :func:`load`.
        KeyboardInterrupt: Ctrl-C was pressed; says what was committed before.
    """
    watch = Stages(say)
    _check_target(request)
    outcome, before = _Outcome(goes_on=False), None
    try:
        with watch.stage("all", "looking at the source"):
            request = replace(request, source=pin_version(request.source))
            before = _open_newest(request)
            loading = _open_request(open_source, request, say, log, make_plan)
            # Each group is committed by itself, so that a retry resumes.
            groups = _cut_groups(loading)
            outcome.goes_on = len(groups) > 1 or (request.group is not None and len(loading.partitions) > 1)
            _load_groups(loading, groups, outcome, at_once)
            if not outcome.loads and not outcome.failed and _open_newest(request) is not None:
                publish_all(request.table_path, request.publish, say, log)  # a crash may have left it undone
        result = LoadsReport(
            request.table_path,
            loading.plan.digest,
            tuple(sorted(outcome.loads, key=lambda load: load.snapshot)),
            tuple(sorted(outcome.already)),
            watch.seconds["all"],
            request.source,
            _find_empty_days(loading),
            tuple(sorted(outcome.failed, key=lambda failure: failure.partition)),
        )
        if result.failed:
            raise _make_error(result)
    except LayoutoptError as error:
        done = LoadsReport(request.table_path, "", tuple(outcome.loads), tuple(outcome.already))
        _log_result(log, request, getattr(error, "report", done), watch, error)
        raise
    except (Exception, KeyboardInterrupt) as error:
        if find_interrupt(error) is None:
            raise
        raise KeyboardInterrupt(_describe_commits(before, request)) from error
    _log_result(log, request, result, watch)
    return result


def _cut_groups(loading: _Loading) -> list[tuple[SourcePartition, ...]]:
    """Return the partitions of each commit: as many as the request says, but no more rows than a load may have."""
    partitions, size = loading.partitions, loading.request.group or (1 if loading.request.is_partial else None)
    if not partitions:
        return [] if loading.request.is_partial else [()]  # a source without a row still makes a table
    groups: list[list[SourcePartition]] = []
    rows = 0
    for partition in partitions:
        rows += partition.rows
        if not groups or len(groups[-1]) == size or rows >= _MOST_ROWS:
            groups.append([])
            rows = partition.rows
        groups[-1].append(partition)
    return list(map(tuple, groups))


def _load_groups(
    loading: _Loading, groups: Sequence[tuple[SourcePartition, ...]], outcome: _Outcome, at_once: int
) -> None:
    def run(group: tuple[SourcePartition, ...]) -> None:
        _load_group(replace(loading, table=_open_newest(loading.request)), group, outcome)

    run_at_once(groups, run, at_once)


def run_at_once(items: Sequence[Item], run: Callable[[Item], None], at_once: int) -> None:
    """Call a function with each item, in so many threads; after an error no further calls begin."""
    if min(at_once, len(items)) <= 1:
        for item in items:
            run(item)
        return
    with ThreadPoolExecutor(at_once) as pool:
        futures = [pool.submit(copy_context().run, run, item) for item in items]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _find_empty_days(loading: _Loading) -> tuple[str, ...]:
    """Return the days without rows of a range with two ends; of other types no value need exist."""
    request, names = loading.request, loading.names
    if request.first is None or request.last is None or names.type != "date":
        return ()
    first, last = (parse_plain_value(text, "date", "") for text in (request.first, request.last))
    if not (isinstance(first, int) and isinstance(last, int)) or last - first >= _MOST_DAYS:
        return ()
    known = {partition.value for partition in loading.partitions}
    return tuple(names.key(day) for day in range(first, last + 1) if day not in known)


def _check_target(request: LoadRequest) -> None:
    """Check what needs neither source nor plan; raises as :func:`run_load`."""
    if request.partition and (request.first is not None or request.last is not None):
        raise SettingError(f"--partition {request.partition[0]} and --from or --to are both given; leave one out")
    parse_publications(request.table_path, request.publish)
    _check_encryption(request)
    files = TableFiles(request.table_path, key=request.encrypt)
    check_table_root(files)
    files.check_can_create()


def _check_encryption(request: LoadRequest) -> None:
    """Check that the key is available, and that no new table is left clear, or published, by mistake.

    Raises:
        SettingError, EncryptionKeyError: the key is missing; or one is given for a new table, but not to encrypt it.
        EncryptedTableError: the table is to be published too.
    """
    if request.encrypt is None:
        if given_reference() is not None and not TableFiles(request.table_path).exists(MARKER):
            raise SettingError(
                f"a key is given (--key, [encryption] key or {KEY_VARIABLE}), but the table {request.table_path!r} is "
                "new and not to be encrypted; name the key by --encrypt, or leave it out"
            )
        return
    key_of(request.encrypt)
    if request.publish:
        raise EncryptedTableError(
            f"an encrypted table can't be published ({request.publish[0]!r}): other engines have no key; leave "
            "--publish or --encrypt out"
        )


def _describe_commits(before: Table | None, request: LoadRequest) -> str:
    now = _open_newest(request)
    if now is None or (before is not None and before.catalog.snapshot.number == now.catalog.snapshot.number):
        return "nothing was committed"
    return f"`layoutopt history {request.table_path}` lists what was committed; the same command loads the rest"


def _log_result(
    log: EventLog, request: LoadRequest, report: LoadsReport, watch: Stages, error: LayoutoptError | None = None
) -> None:
    event = report.to_json() | {
        "source": request.source,
        "seconds": watch.seconds["all"],
        "exit": 0 if error is None else error.exit_code,
    }
    event |= {"outcome": "failed", "error": str(error)} if error is not None else {"outcome": "done"}
    log.write("load", **{name: value for name, value in event.items() if name != "loads"})


def _open_request(
    open_source: OpenSource,
    request: LoadRequest,
    say: Progress,
    log: EventLog,
    make_plan: Callable[[], Plan] | None,
) -> _Loading:
    table = _open_newest(request)
    new_plan = None
    if make_plan is not None and (table is None or not table.catalog.plans):
        new_plan = make_plan()
        table = _open_newest(request)  # another load may have begun it meanwhile
    plan = _choose_plan(request, table, new_plan)
    check_requests(PartitionNames.of(plan.schema, plan.partition_by), request.partition, request.first, request.last)
    is_chosen = parse_selection(
        PartitionNames.of(plan.schema, plan.partition_by), request.partition, request.first, request.last
    )

    def is_needed(partition: SourcePartition) -> bool:
        return is_chosen(partition.value) and not (loading.may_have(partition) and loading.has_files(partition))

    door = open_source(request.source, plan, is_needed)
    loading = _Loading(door, request, plan, table, log, say)
    return replace(loading, partitions=door.read(partial(_find_partitions, loading)))


def _open_newest(request: LoadRequest) -> Table | None:
    """Open the table at its newest snapshot; None where nothing was loaded yet."""
    try:
        return Table(Catalog.open(request.table_path, key=request.encrypt))
    except NotATableError:
        if TableFiles(request.table_path).is_file(""):
            raise
        return None  # the load refuses a folder that holds something else


def _choose_plan(request: LoadRequest, table: Table | None, new_plan: Plan | None) -> Plan:
    """Choose the plan named, or else the table's, or else the new one; the commit checks its columns."""
    if request.plan is None and table is not None and table.catalog.plans:
        return current_plan(table.catalog)
    plan = new_plan or (request.plan if isinstance(request.plan, Plan) else read_plan(request.plan or DEFAULT_PLAN))
    if table is None or not table.catalog.partitions:
        return plan
    if plan.table != table.name:
        raise PlanError(
            f"the plan calls the table {plan.table!r} but its partitions were loaded as {table.name!r}; "
            f"analyse the log with --table {table.name} and plan again"
        )
    if plan.settings != table.settings:
        raise PlanError(
            f"the plan was made under {plan.settings} but the table's under {table.settings}; plan again under these"
        )
    return plan


def _find_partitions(loading: _Loading, source: LoadSource) -> tuple[SourcePartition, ...]:
    """Find the requested partitions, including those without rows that are named."""
    request = loading.request
    is_range = request.first is not None or request.last is not None
    if request.partition:
        partitions = source.select_partitions(request.partition)
    elif is_range:
        partitions = source.select_range(request.first, request.last)
    else:
        partitions = source.partitions
    if loading.plan.partition_by is not None:
        source.check_reachable(partitions)
    if is_range and not partitions and not request.allow_empty:
        raise MissingPartitionError(
            f"{request.source!r} has no rows from {request.first} to {request.last}; load when they have come"
        )
    return partitions


def _check_readable(loading: _Loading, partition: SourcePartition) -> None:
    """Raise the error of a partition that can't be read, or MissingPartitionError for one without rows."""
    if partition.problem is not None:
        raise partition.problem
    request = loading.request
    if request.partition and not partition.files and not request.allow_empty:
        null = f" (NULL is {loading.plan.partition_by}=__null__)" if partition.value == "null" else ""
        raise MissingPartitionError(
            f"{request.source!r} has no rows for {loading.names.shown(partition.value)}{null}; load when they have "
            "come, or give --allow-empty"
        )


def _load_group(loading: _Loading, group: tuple[SourcePartition, ...], outcome: _Outcome) -> None:
    """Load what the table lacks of a group in one commit, and publish it."""
    missing = []
    for partition in group:
        try:
            _check_readable(loading, partition)
            if not _is_loaded(loading, partition):
                missing.append(partition)
                continue
        except (LayoutoptError, OSError) as error:
            outcome.fail(loading, [partition], error)
        else:
            outcome.already.append(loading.key(partition))
            loading.say(f"partition {loading.key(partition)} is there")
    if group and not missing:
        return
    try:
        report = _load_missing(loading, missing, outcome)
    except (LayoutoptError, OSError) as error:
        if not outcome.goes_on or len(missing) == 1:
            outcome.fail(loading, missing, error)
            return
        loading.log.write("group_failed", partitions=list(map(loading.key, missing)), error=str(error))
        for partition in missing:
            _load_group(replace(loading, table=_open_newest(loading.request)), (partition,), outcome)
        return
    if report is None:
        return
    outcome.loads.append(report)
    try:
        with outcome.lock:
            publish_all(loading.request.table_path, loading.request.publish, loading.say, loading.log)
    except (LayoutoptError, OSError) as error:
        outcome.fail(loading, missing, error)


def _load_missing(loading: _Loading, missing: list[SourcePartition], outcome: _Outcome) -> LoadReport | None:
    try:
        return _load(loading, missing)
    except CommitConflictError:
        # Another process may have done the same work meanwhile: a task that was given up, but still ran.
        request = replace(loading.request, replace=False)
        again = replace(loading, table=_open_newest(loading.request), request=request)
        if again.table is None or not all(_is_same(again, partition) for partition in missing):
            raise
        outcome.already += map(loading.key, missing)
        return None


def _load(loading: _Loading, partitions: Sequence[SourcePartition]) -> LoadReport:
    request, plan = loading.request, loading.plan
    # A source without a row still makes a table.
    has_values = plan.partition_by is not None and partitions
    is_whole = not loading.request.is_partial and len(partitions) == len(loading.partitions)
    basis = LoadBasis(
        snapshot=None if loading.table is None else loading.table.catalog.snapshot,
        source=repr(request.source),
        values=tuple(partition.value for partition in partitions) if has_values else None,
        fingerprints={loading.key(partition): partition.fingerprint for partition in partitions},
        files={loading.key(partition): list_files(request.source, partition) for partition in partitions},
        rows={loading.key(partition): partition.rows for partition in partitions},
    )
    files = TableFiles(request.table_path, key=request.encrypt)

    def write(source: LoadSource) -> LoadReport:
        selected = None if is_whole else partitions
        source.check_rows(selected)
        ensure_table_root(files)
        stages = Stages(loading.say, loading.log)
        rows = source.open_rows(selected, files)
        return load(rows, request.table_path, plan, basis, stages, encrypt=request.encrypt)

    return loading.door.read(write)


def _is_loaded(loading: _Loading, partition: SourcePartition) -> bool:
    """Whether the table has the partition already.

    Raises:
        AlreadyLoadedError: it has other rows, or another plan's.
    """
    if not loading.may_have(partition):
        return False
    if _is_same(loading, partition):
        return True
    entries = loading.entries(partition)
    rows = sum(entry.live_rows for entry in entries)
    loading.door.read(lambda source: source.check_rows([partition]))  # errors that a load would raise come first
    difference = "from other content" if _has_plan(loading, entries[0]) else f"by the plan {entries[0].plan[:12]}"
    raise AlreadyLoadedError(
        f"partition {entries[0].key!r} was loaded {difference} ({rows} rows); give --replace to load it again, or use "
        "`layoutopt append` to add rows to it"
    )


def _has_plan(loading: _Loading, entry: PartitionEntry) -> bool:
    return loading.request.plan is None or entry.plan == loading.plan.digest


def _is_same(loading: _Loading, partition: SourcePartition) -> bool:
    """Whether the table has these rows by this plan (by any, where none was named)."""
    entries = loading.entries(partition)
    if not entries or loading.table is None or not _has_plan(loading, entries[0]):
        return False
    if loading.has_files(partition):  # rows appended since don't matter
        return True
    if not partition.files:
        return not any(entry.live_rows for entry in entries)
    loading.say(f"comparing partition {entries[0].key} with the table")
    table = loading.table
    return loading.door.read(lambda source: source.holds_same_rows(partition, table, entries))
