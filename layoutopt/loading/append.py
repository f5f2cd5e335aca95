"""Append rows to a table, by Spark or without it; retrying a batch adds it only once.

Few rows are appended without Spark, whose start and jobs take longer than writing them: plain Parquet files are loaded
in this process (:mod:`layoutopt.loading.local_source`), and small entries of the partitions concerned are compacted.
What Spark might read otherwise raises NeedsSparkError before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Final, NoReturn

from layoutopt.catalog.commit import APPEND
from layoutopt.catalog.entries import content_of_entries
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.partition_names import PartitionNames
from layoutopt.catalog.snapshot import Snapshot
from layoutopt.catalog.table import Catalog
from layoutopt.errors import (
    AlreadyLoadedError,
    CommitConflictError,
    MissingPartitionError,
    NeedsSparkError,
)
from layoutopt.events import NO_EVENTS, EventLog, Progress, Stages, silent
from layoutopt.external.external_tables import pin_version
from layoutopt.external.snapshot import SourcePartition, name_batch
from layoutopt.inspect.status import current_plan
from layoutopt.loading.load import Basis, LoadSource, list_files, load
from layoutopt.loading.local_source import check_plan, check_settings, open_local
from layoutopt.loading.partition_rows import live_rows
from layoutopt.maintenance.compaction import COMPACTION, find_small_entries, has_small_entries, mark_replaced
from layoutopt.model.layout import Plan
from layoutopt.model.requests import AppendRequest
from layoutopt.model.summary import Summarised
from layoutopt.publish.publishing import publish_after
from layoutopt.scan.table import Table, open_own_table
from layoutopt.sources.door import Door, Reason, refuse_spark
from layoutopt.sources.executor import Executor, Processes
from layoutopt.sources.listing import has_plain_name
from layoutopt.sources.source import Source
from layoutopt.writer.task_result import LoadReport

# With more rows, writing takes longer than a Spark job's overhead.
MOST_ROWS: Final = 100_000
# Of entries to compact, as they are stored.
MOST_BYTES: Final = 1 << 28
# Spark writes more partitions in parallel.
MOST_PARTITIONS: Final = 32


@dataclass(frozen=True, repr=False)
class AppendReport(Summarised):
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

    def summarise(self) -> dict[str, object]:
        """Return the summary of a notebook."""
        if self.load is None:
            return {"table": self.table, "batch": self.batch, "appended_before": True}
        return {"table": self.table, "batch": self.batch, "rows": self.load.rows, "snapshot": self.load.snapshot}


# Joins small entries of some partitions of a table, as :func:`compact_few_rows` does.
Join = Callable[[str, Collection[str], Stages], LoadReport | None]
# Opens the source of an append to a table; receives why the opener before does not suffice.
OpenToAppend = Callable[[str, Catalog, Reason | None], LoadSource]


def append_few_rows(
    request: AppendRequest,
    join_many: Join,
    further: Sequence[OpenToAppend] = (),
    say: Progress = silent,
    log: EventLog = NO_EVENTS,
) -> AppendReport:
    """Append a source's rows in this process, if they are few, else by Spark.

    Args:
        request: of the verb.
        join_many: compacts entries that have too many rows for this process.
        further: open sources that have many rows, or that only Spark reads; none refuse these.
        say: called with a short sentence as each stage begins.
        log: gets an event for each stage.

    Raises:
        NeedsSparkError: table or source need Spark, and there are no further openers; nothing was written.
        LayoutoptError: as :func:`append_rows`.
    """
    return append_rows((_open_few_rows, *further), request, partial(_compact, join_many), say, log)


def append_locally(request: AppendRequest, say: Progress = silent, log: EventLog = NO_EVENTS) -> AppendReport:
    """Append a source's rows without Spark, however many they are. Many small entries stay apart.

    Raises:
        SettingError: table or source need Spark; nothing was written.
        LayoutoptError: as :func:`append_rows`.
    """
    return append_rows((_open_plain, _refuse), request, partial(_compact, lambda *_: None), say, log)


def _refuse(source: str, catalog: Catalog, reason: Reason | None) -> NoReturn:
    refuse_spark(source, reason)


def _open_plain(source: str, catalog: Catalog, reason: Reason | None, most_rows: int | None = None) -> Source:
    if not catalog.partitions or not catalog.files.is_plain:
        raise NeedsSparkError("the table is empty, or encrypted")
    opened = open_local(source, current_plan(catalog), most_rows=most_rows)
    for file in (file for partition in opened.partitions for file in partition.files):
        # Spark would name the batch after another spelling of the URI.
        if not has_plain_name(file.uri.partition("#")[0]):
            raise NeedsSparkError(f"{file.uri!r} is no plain name")
    return opened


def _open_few_rows(source: str, catalog: Catalog, reason: Reason | None) -> Source:
    opened = _open_plain(source, catalog, reason, MOST_ROWS)
    if len(opened.partitions) > MOST_PARTITIONS:
        raise NeedsSparkError(f"there are more than {MOST_PARTITIONS} partitions")
    return opened


def append_rows(
    openers: Sequence[OpenToAppend],
    request: AppendRequest,
    join: Join,
    say: Progress = silent,
    log: EventLog = NO_EVENTS,
) -> AppendReport:
    """Append a source's rows in one commit, join small entries in another, and publish if the settings ask for it.

    Args:
        openers: of the source, first by Arrow, last by Spark.
        request: of the verb.
        join: joins small entries.
        say: called with a short sentence as each stage begins.
        log: gets an event for each stage.

    Raises:
        MissingPartitionError: the source has no rows.
        NotATableError: there is no table at the path.
        LayoutoptError: as :func:`layoutopt.loading.load.load`, and of publishing.
    """
    watch = Stages(say, log)
    with publish_after(request.table_path, request.publish, say, log):
        with watch.stage("all", "looking at the source"):
            request = replace(request, source=pin_version(request.source))
            catalog = open_own_table(request.table_path).catalog
            opened = (partial(opener, request.source, catalog) for opener in openers)
            door: Door[LoadSource] = Door(*opened, say=say, log=log)
            plan, snapshot = current_plan(catalog), catalog.snapshot
            partitions = door.read(partial(_list_partitions, plan))
            if not any(partition.rows for partition in partitions):
                raise MissingPartitionError(f"{request.source!r} has no rows to append; append again once it has rows")
            names = PartitionNames.of(plan.schema, plan.partition_by, snapshot)
            basis = Basis(
                snapshot,
                repr(request.source),
                values=None if plan.partition_by is None else tuple(partition.value for partition in partitions),
                fingerprints={names.key(partition.value): partition.fingerprint for partition in partitions},
                files={names.key(partition.value): list_files(request.source, partition) for partition in partitions},
                rows={names.key(partition.value): partition.rows for partition in partitions},
                operation=APPEND,
                batch=request.batch_id or name_batch(partitions),
            )
            door.read(lambda source: source.check_rows(None))

        def write(source: LoadSource) -> LoadReport:
            return load(source.open_rows(None, catalog.files), request.table_path, plan, basis, watch)

        return _append_batch(request, str(basis.batch), snapshot, lambda: door.read(write), join, watch)


def _list_partitions(plan: Plan, source: LoadSource) -> tuple[SourcePartition, ...]:
    partitions = source.partitions
    if plan.partition_by is not None and plan.schema.find(plan.partition_by).type == "string":
        source.check_reachable(partitions)  # values of other types lose no row in Python
    return partitions


def _compact(join_many: Join, path: str, keys: Collection[str], watch: Stages) -> LoadReport | None:
    def compact_many(path: str, keys: Collection[str], watch: Stages) -> LoadReport | None:
        return join_many(path, keys, Stages(watch.say, watch.log))

    door = Door[Join](lambda _: compact_few_rows, lambda _: compact_many)
    return door.read(lambda compact: compact(path, keys, watch))


def _append_batch(
    request: AppendRequest,
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
    report = AppendReport(request.table_path, batch, None)
    if batch in snapshot.batches:
        return report
    try:
        load = write()
    except AlreadyLoadedError:  # another process appended it meanwhile
        return report
    report = replace(report, load=load)
    if request.keep_apart:
        return report
    try:
        if has_small_entries(report.table, load.partitions):
            report = replace(report, joined=join(report.table, load.partitions, Stages(watch.say, watch.log)))
        return report
    except CommitConflictError:  # another commit changed one of the entries
        return report
    except Exception as error:
        return replace(report, not_joined=str(error) or type(error).__name__)


# Opens the live rows of some entries of a table, for a load by a plan.
OpenEntries = Callable[[Table, Plan, Sequence[PartitionEntry]], Source]


def compact_few_rows(path: str, keys: Collection[str], watch: Stages) -> LoadReport | None:
    """Compact small entries in this process, as :func:`compact_small_entries`.

    Raises:
        NeedsSparkError: the entries have too many rows, or need Spark; nothing was written.
    """
    return compact_small_entries(path, keys, _open_few_entries, watch)


def _open_few_entries(table: Table, plan: Plan, entries: Sequence[PartitionEntry]) -> Source:
    rows, size = sum(entry.live_rows for entry in entries), sum(entry.bytes for entry in entries)
    if not 0 < rows <= MOST_ROWS or size > MOST_BYTES:
        raise NeedsSparkError(f"{rows} rows of {size} bytes are to be compacted")
    return open_entries(table, plan, entries, Processes(1))


def open_entries(table: Table, plan: Plan, entries: Sequence[PartitionEntry], executor: Executor) -> Source:
    """Open the live rows of some entries as tasks of an executor read them by Arrow.

    Raises:
        NeedsSparkError: table or plan need Spark.
    """
    check_plan(plan)
    check_settings(plan)
    if set(table.schema.names) != set(plan.schema.names):  # rows of other plans may have values there
        raise NeedsSparkError("the table has columns that its newest plan lacks")
    if not table.catalog.files.is_plain:
        raise NeedsSparkError("the table is encrypted")
    return live_rows(table, plan, entries, executor)


def compact_small_entries(path: str, keys: Collection[str], open_rows: OpenEntries, watch: Stages) -> LoadReport | None:
    """Compact small entries of the partitions with some keys, in one commit, by the table's newest plan.

    Returns:
        The commit; None where there is nothing to compact.

    Raises:
        ContentMismatchError: what was written is not what the entries have.
        CommitConflictError: another commit changed one of the entries.
        LayoutoptError: as :func:`layoutopt.loading.load.load`, and of ``open_rows``.
    """
    table = open_own_table(path)
    catalog = table.catalog
    entries = find_small_entries(catalog.snapshot, keys)
    if not entries:
        return None
    plan = current_plan(catalog)
    live = [entry for entry in entries if entry.live_rows]
    values = PartitionNames.of(plan.schema, plan.partition_by, catalog.snapshot).values_of(live)
    basis = Basis(
        catalog.snapshot,
        f"the table {path!r}",
        values=None if plan.partition_by is None or values is None else tuple(values.values()),
        rows={key: sum(entry.live_rows for entry in live if entry.key == key) for key in {entry.key for entry in live}},
        content=content_of_entries(entries),
        operation=COMPACTION,
        marks=mark_replaced(entries),
    )
    return load(open_rows(table, plan, live), path, plan, basis, watch)
