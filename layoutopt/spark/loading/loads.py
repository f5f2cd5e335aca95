"""Loads as they are asked for: which partitions, by which plan, and only what the table does not have yet.

Every partition is loaded exactly once however often a load is retried. A partition is *there* if the table has it from
the same files of the source (``source_files``), or from other files with the same rows. One that is
there with other rows, or by another plan than the one given, is refused unless the caller says to replace it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession

from layoutopt.catalog.partition_names import PartitionNames
from layoutopt.catalog.snapshot import PartitionEntry
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.config.documents import DEFAULT_PLAN, read_plan
from layoutopt.config.settings import LoadSettings
from layoutopt.errors import (
    AlreadyLoadedError,
    CommitConflictError,
    LayoutoptError,
    MissingPartitionError,
    NotATableError,
    PlanError,
    SettingError,
    interrupt_behind,
)
from layoutopt.events import NO_EVENTS, EventLog, Progress, Stages, silent
from layoutopt.inspect.status import current_plan
from layoutopt.model.layout import Plan
from layoutopt.publish.publishing import publications_of, publish_all
from layoutopt.scan.table import Table
from layoutopt.sources.opening import pinned
from layoutopt.sources.partitions import SourcePartition
from layoutopt.sources.snapshot import source_name
from layoutopt.spark.core.functions import check_plan
from layoutopt.spark.core.partition_values import asked_for, partition_values
from layoutopt.spark.core.source import check_partition_column, conformed, open_source, rename_columns
from layoutopt.spark.loading.encrypting import check_encryption
from layoutopt.spark.loading.job import Basis
from layoutopt.spark.loading.load import load
from layoutopt.spark.loading.same_rows import holds_same_rows
from layoutopt.spark.loading.source_files import (
    between,
    check_reachable,
    read_partition,
    source_partitions,
)
from layoutopt.writer.load_report import LoadReport


@dataclass(frozen=True)
class LoadsReport:
    """What was asked for, done or found done.

    Attributes:
        table: its path.
        plan: the digest of the plan that was loaded by.
        source: what was loaded; of a table of another format with its version.
        loads: one a commit, in their order.
        already: the keys of the partitions that the table had already, sorted.
        seconds: in all.
    """

    table: str
    plan: str
    loads: tuple[LoadReport, ...] = ()
    already: tuple[str, ...] = ()
    seconds: float = 0.0
    source: str = ""

    @property
    def partitions(self) -> tuple[str, ...]:
        """The keys of the partitions that were loaded."""
        return tuple(key for one in self.loads for key in one.partitions)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know of the loads."""
        return tuple(note for one in self.loads for note in one.notes)

    def to_json(self) -> dict[str, object]:
        """The report as JSON: the sums over the loads, then each."""
        sums = {name: sum(getattr(one, name) for one in self.loads) for name in _SUMMED}
        last = self.loads[-1] if self.loads else None
        return {
            "table": self.table,
            "source": self.source,
            "plan": self.plan,
            "snapshot": None if last is None else last.snapshot,
            "partitions": list(self.partitions),
            "already": list(self.already),
            **sums,
            "seconds": self.seconds,
            "notes": list(self.notes),
            "loads": [one.to_json() for one in self.loads],
        }


_SUMMED = ("rows", "segments", "blocks", "files", "bytes")


@dataclass(frozen=True)
class _Asked:
    """What is asked for, seen against the source and the table's newest snapshot."""

    spark: SparkSession
    settings: LoadSettings
    plan: Plan
    table: Table | None
    rows: DataFrame
    log: EventLog = NO_EVENTS
    say: Progress = silent
    partitions: tuple[SourcePartition, ...] = field(default=())

    @cached_property
    def names(self) -> PartitionNames:
        snapshot = None if self.table is None else self.table.catalog.snapshot
        return PartitionNames.of(self.plan.schema, self.plan.partition_by, snapshot)

    @property
    def some(self) -> bool:
        """Whether only some of the source's partitions are asked for."""
        settings = self.settings
        return bool(settings.partition) or settings.first is not None or settings.last is not None

    def key(self, partition: SourcePartition) -> str:
        return self.names.key(partition.value)

    def entries(self, partition: SourcePartition) -> tuple[PartitionEntry, ...]:
        return () if self.table is None else self.table.catalog.snapshot.by_key.get(self.key(partition), ())


def load_by(
    spark: SparkSession, settings: LoadSettings, say: Progress = silent, log: EventLog = NO_EVENTS
) -> LoadsReport:
    """Load what the settings ask for and the table does not have; one commit a partition where some are named.

    Args:
        spark: the session.
        settings: of the verb.
        say: called with a short sentence as each stage begins.
        log: gets an event for each stage, and one ``load`` at the end that sums up.

    Raises:
        AlreadyLoadedError: a partition has other rows, or another plan's, and ``replace`` is not given.
        MissingPartitionError: the source has no rows for a named partition, or none in the range.
        LayoutoptError: as :func:`layoutopt.spark.loading.load.load`.
        KeyboardInterrupt: somebody pressed Ctrl-C; says what had been committed by then.
    """
    watch = Stages(say)
    publications_of(settings.table_path, settings.publish)  # what could not be published is said first
    check_encryption(settings)
    done: list[LoadReport] = []
    already: list[str] = []
    before: Table | None = None
    try:
        with watch.stage("all", "looking at the source"):
            settings = settings.model_copy(update={"source": pinned(settings.source)})
            before = _newest(settings)
            asked = _look(spark, settings, say, log)
            for group in _groups(asked):
                report = _load_group(asked, group, already)
                done += [] if report is None else [report]
                asked = replace(asked, table=_newest(settings))
                if report is not None:
                    publish_all(settings.table_path, settings.publish, say, log)
            if not done and asked.table is not None:  # a crash may have left the last commit unpublished
                publish_all(settings.table_path, settings.publish, say, log)
    except LayoutoptError as error:
        _sum_up(log, settings, LoadsReport(settings.table_path, "", tuple(done), tuple(already)), watch, error)
        raise
    except (Exception, KeyboardInterrupt) as error:
        if interrupt_behind(error) is None:
            raise
        raise KeyboardInterrupt(_committed_since(before, settings)) from error
    result = LoadsReport(
        settings.table_path,
        asked.plan.digest,
        tuple(done),
        tuple(sorted(already)),
        watch.seconds["all"],
        settings.source,
    )
    _sum_up(log, settings, result, watch)
    return result


def _committed_since(before: Table | None, settings: LoadSettings) -> str:
    """What an interrupted load leaves, in a few words."""
    now = _newest(settings)
    if now is None or (before is not None and before.catalog.snapshot.number == now.catalog.snapshot.number):
        return "nothing was committed"
    return f"`layoutopt history {settings.table_path}` lists what was committed; the same command loads the rest"


def _sum_up(
    log: EventLog, settings: LoadSettings, report: LoadsReport, watch: Stages, error: LayoutoptError | None = None
) -> None:
    """The one line that an operator looks for: what came of a load."""
    said = report.to_json()
    said |= {
        "source": settings.source,
        "seconds": watch.seconds["all"],
        "exit": 0 if error is None else error.exit_code,
    }
    said |= {"outcome": "failed", "error": str(error)} if error is not None else {"outcome": "done"}
    log.write("load", **{name: value for name, value in said.items() if name != "loads"})


def _look(spark: SparkSession, settings: LoadSettings, say: Progress, log: EventLog) -> _Asked:
    table = _newest(settings)
    plan = _plan(settings, table)
    check_plan(spark, plan, "the plan")
    rows = open_source(spark, settings.source, merged=False)
    if plan.partition_by is not None and plan.partition_by.lower() not in {c.lower() for c in rows.columns}:
        rows = open_source(spark, settings.source)
    rows = rename_columns(rows, plan.schema)
    check_partition_column(rows, plan.partition_by)
    asked = _Asked(spark, settings, plan, table, rows, log, say)
    found = _partitions(asked)
    if plan.partition_by is not None:
        check_reachable(rows, settings.source, plan.partition_by, found)
    return replace(asked, partitions=found)


def _newest(settings: LoadSettings) -> Table | None:
    """The table at its newest snapshot, None where nothing was loaded yet."""
    try:
        return Table(Catalog.open(settings.table_path, key=settings.encrypt))
    except NotATableError:
        if TableFiles(settings.table_path).is_file(""):
            raise
        return None  # a folder that holds something else is refused by the load


def _plan(settings: LoadSettings, table: Table | None) -> Plan:
    if settings.plan is None and table is not None and table.catalog.plans:
        return current_plan(table.catalog)
    plan = read_plan(settings.plan or DEFAULT_PLAN)
    if table is not None:
        _check_plan(plan, table)
    return plan


def _check_plan(plan: Plan, table: Table) -> None:
    """Refuse what queries over partitions of several plans could not cope with; the commit looks at the columns."""
    if table.catalog.partitions and plan.table != table.name:
        raise PlanError(
            f"the plan calls the table {plan.table!r} but its partitions were loaded as {table.name!r}; "
            f"analyse the log with --table {table.name} and plan again"
        )
    if table.catalog.partitions and plan.settings != table.settings:
        raise PlanError(
            f"the plan was made under {plan.settings} but the table's under {table.settings}; plan again under these"
        )


def _partitions(asked: _Asked) -> tuple[SourcePartition, ...]:
    """The partitions asked for, those that have no rows too where that is allowed."""
    settings, rows, by = asked.settings, asked.rows, asked.plan.partition_by
    ranged = settings.first is not None or settings.last is not None
    if ranged and settings.partition:
        raise SettingError(f"--partition {settings.partition[0]} and a range are both given; leave one of them out")
    if ranged:
        condition = between(rows, by, settings.first, settings.last)
        found = source_partitions(rows, settings.source, by, condition)
        if not found and not settings.allow_empty:
            raise MissingPartitionError(
                f"{settings.source!r} has no rows from {settings.first} to {settings.last}; load when they have come"
            )
        return found
    if not settings.partition:
        return source_partitions(rows, settings.source, by)
    return _named(asked)


def _named(asked: _Asked) -> tuple[SourcePartition, ...]:
    settings, rows, by = asked.settings, asked.rows, asked.plan.partition_by
    values = partition_values(rows, by, settings.partition)
    found = source_partitions(rows, settings.source, by, asked_for(rows, str(by), settings.partition))
    by_value = {partition.value: partition for partition in found}
    missing = [value for value in values if value not in by_value]
    if missing and not settings.allow_empty:
        null = f" (NULL is {by}=__null__)" if missing[0] == "null" else ""
        raise MissingPartitionError(
            f"{settings.source!r} has no rows for {asked.names.shown(missing[0])}{null}; load when they have come, "
            "or give --allow-empty"
        )
    return tuple(by_value.get(value, SourcePartition(value, ())) for value in values)


def _groups(asked: _Asked) -> list[tuple[SourcePartition, ...]]:
    """What is committed together: each named partition by itself, so that a retry resumes; a whole source at once."""
    return [(partition,) for partition in asked.partitions] if asked.some else [asked.partitions]


def _load_group(asked: _Asked, group: tuple[SourcePartition, ...], already: list[str]) -> LoadReport | None:
    """Load what is missing of a group; None where nothing is."""
    todo = [partition for partition in group if not _is_there(asked, partition)]
    already += [asked.key(partition) for partition in group if partition not in todo]
    for key in already[len(already) - len(group) + len(todo) :]:
        asked.say(f"partition {key} is there")
    if group and not todo:
        return None
    try:
        return _load(asked, group, todo)
    except CommitConflictError:
        # Perhaps this very work was done by another process meanwhile: a task that was given up, but still ran.
        again = replace(asked, table=_newest(asked.settings), settings=_without_replace(asked.settings))
        if again.table is None or not all(_is_same(again, partition) for partition in todo):
            raise
        already += [asked.key(partition) for partition in todo]
        return None


def _without_replace(settings: LoadSettings) -> LoadSettings:
    return settings.model_copy(update={"replace": False})


def _load(asked: _Asked, group: Sequence[SourcePartition], todo: Sequence[SourcePartition]) -> LoadReport:
    settings, plan = asked.settings, asked.plan
    # A source without a row still makes a table.
    values = None if plan.partition_by is None or not todo else tuple(partition.value for partition in todo)
    whole = not asked.some and len(todo) == len(asked.partitions)
    basis = Basis(
        snapshot=None if asked.table is None else asked.table.catalog.snapshot,
        source=repr(settings.source),
        values=values,
        whole=whole or plan.partition_by is None,
        fingerprints={asked.key(partition): partition.fingerprint for partition in todo},
        rows={asked.key(partition): partition.rows for partition in todo},
        plain=source_name(settings.source) is None,
    )
    rows = open_source(asked.spark, settings.source) if whole else _rows(asked, todo)
    watch = Stages(asked.say, asked.log)
    return load(asked.spark, rows, settings.table_path, plan, basis=basis, stages=watch, encrypt=settings.encrypt)


def _rows(asked: _Asked, todo: Sequence[SourcePartition]) -> DataFrame:
    spark, source, by = asked.spark, asked.settings.source, asked.plan.partition_by
    if by is None or len(todo) != 1 or not todo[0].files:
        return open_source(spark, source)
    return read_partition(spark, source, asked.rows, by, todo[0], asked.plan.schema)


def _is_there(asked: _Asked, partition: SourcePartition) -> bool:
    """Whether the table has the partition already.

    Raises:
        AlreadyLoadedError: it has other rows in its place, or another plan's.
    """
    entries = asked.entries(partition)
    rows = sum(entry.live_rows for entry in entries)
    if asked.settings.replace or not entries or (rows == 0 and partition.files):
        return False
    if _is_same(asked, partition):
        return True
    conformed(_rows(asked, [partition]), asked.plan.schema)  # what could not be loaded anyway is said first
    other = "from other content" if _plan_fits(asked, entries[0]) else f"by the plan {entries[0].plan[:12]}"
    raise AlreadyLoadedError(
        f"partition {entries[0].key!r} was loaded {other} ({rows} rows); give --replace to load it again, or use "
        "`layoutopt append` to add rows to it"
    )


def _plan_fits(asked: _Asked, entry: PartitionEntry) -> bool:
    return asked.settings.plan is None or entry.plan == asked.plan.digest


def _is_same(asked: _Asked, partition: SourcePartition) -> bool:
    """Whether the table has these rows by this plan (by any, where none was given)."""
    entries = asked.entries(partition)
    if not entries or asked.table is None or not _plan_fits(asked, entries[0]):
        return False
    if entries[0].source == partition.fingerprint:  # what was appended since is no reason to load the rest again
        return True
    if not partition.files:
        return not any(entry.live_rows for entry in entries)
    asked.say(f"comparing partition {entries[0].key} with the table")
    return holds_same_rows(asked.spark, _rows(asked, [partition]), asked.table, entries)
