"""Load: rewrite partitions of a source into a table's blocks, check them, commit them.

The way: count the partitions, where nobody has, and cut them into segments; one Spark job sums what the source holds
and routes each segment to one task, which finds its features and writes it; the sums are compared; the commit makes it
visible. Of many rows in plain files tasks read the files by Arrow, and Spark sums them in a job of its own
(:mod:`layoutopt.spark.loading.job`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.checks import Content, check_content, check_partitions, check_positions
from layoutopt.catalog.commit import CommitHook, commit_load, ensure_table_root
from layoutopt.catalog.entries import written_content, written_positions
from layoutopt.catalog.partition_names import PartitionNames, PlainValue
from layoutopt.catalog.paths import MARKER
from layoutopt.catalog.snapshot import PartitionEntry, Snapshot
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.config.documents import DEFAULT_PLAN, read_plan
from layoutopt.config.settings import LoadSettings
from layoutopt.encryption.references import KEY_VARIABLE, given_reference, key_of
from layoutopt.errors import (
    AlreadyLoadedError,
    BoundError,
    CommitConflictError,
    ContentMismatchError,
    EncryptedTableError,
    LayoutoptError,
    MissingPartitionError,
    NeedsSparkError,
    NotATableError,
    PlanError,
    SettingError,
    interrupt_behind,
)
from layoutopt.events import NO_EVENTS, EventLog, Progress, Stages, silent
from layoutopt.inspect.status import current_plan
from layoutopt.local.splits import CutJob
from layoutopt.model.layout import Plan
from layoutopt.publish.publishing import publications_of, publish_all
from layoutopt.scan.segments import LayoutRead, SegmentRead, file_reads
from layoutopt.scan.table import Table
from layoutopt.sources.external_tables import pinned
from layoutopt.sources.snapshot import SourcePartition, source_name
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.functions import check_plan
from layoutopt.spark.core.partition_values import asked_for, of_partitions, partition_values
from layoutopt.spark.core.segments import (
    Chunk,
    Cutter,
    Segment,
    count_chunks,
    cut_segments,
    in_input_order,
    known_chunks,
    with_positions,
)
from layoutopt.spark.core.source import (
    as_no_pattern,
    check_partition_column,
    checksum_column,
    conformed,
    measure_content,
    open_source,
    rename_columns,
)
from layoutopt.spark.loading.job import LEAST_ROWS, Basis, Loading, cut_job, discarded_after, entries_of, write
from layoutopt.spark.loading.source_files import between, check_reachable, read_partition, source_partitions
from layoutopt.spark.loading.verify import holds_same_rows
from layoutopt.spark.session.readers import STRICT, in_workers
from layoutopt.writer.checksum import is_hashable
from layoutopt.writer.load_ids import ANY, REFUSED, fresh_load_id
from layoutopt.writer.task_result import LoadReport, Written, load_report

# ----------------------------------------------------------------------------------------------------
# What was written is what the source has: rows and checksums in total, and every partition by itself.


def check_written(one: Loading, written: Written) -> None:
    """Refuse blocks that are not the source's rows; a task that ran twice may be observed twice, so sum again first."""
    table = BlockTable.from_arrow(written.blocks, one.plan)
    measured = written_content(table)
    content = Content(measured.rows, {**dict(measured.sums), **_read_back(one, written.blocks)})
    if one.basis.content is not None:
        known = {name: sum for name, sum in content.sums.items() if name in one.basis.content.sums}
        check_content(one.basis.content, Content(content.rows, known), one.source_name)
    try:
        check_content(written.observed, content, one.source_name)
    except ContentMismatchError:
        check_content(measure_content(one.source, one.source_name), content, one.source_name)
    if one.plan.scheme.has_tids:
        check_positions(written.positions, written_positions(table), one.source_name)


def _read_back(one: Loading, blocks: pa.Table) -> dict[str, int]:
    """Checksums of the columns that only Spark can hash (nested, collated), from the files written."""
    unhashed = {c.name for c in one.plan.schema.columns if not is_hashable(c.type)}
    sums: dict[str, int] = {}
    for index, layout in enumerate(one.plan.scheme.layouts):
        fields = [f for f in one.source.schema.fields if f.name in unhashed and f.name in layout.master]
        unhashed -= {field.name for field in fields}
        if fields:
            sums |= _read_back_layout(one, blocks, index, StructType(fields))
    return sums


def _read_back_layout(one: Loading, blocks: pa.Table, layout: int, fields: StructType) -> dict[str, int]:
    of_layout = blocks.filter(pa.compute.equal(blocks["layout"], layout))
    if not of_layout.num_rows:
        return dict.fromkeys(fields.names, 0)
    columns = [checksum_column(field.name, field.dataType).alias(field.name) for field in fields]
    with translate_spark_errors("the files just written"):
        row = _rows_written(one, of_layout, fields).agg(*columns).first()
    return {} if row is None else {name: int(row[name]) for name in fields.names}


def _rows_written(one: Loading, blocks: pa.Table, fields: StructType) -> DataFrame:
    """Some columns of all blocks of a layout, by Spark's own reader where it can read the files."""
    if one.files.is_plain:
        paths = [one.files.full_path(path) for path in dict.fromkeys(blocks["file"].to_pylist())]
        return one.spark.read.schema(fields).options(**STRICT).parquet(*map(as_no_pattern, paths))
    table = BlockTable.from_arrow(blocks, one.plan)
    files = file_reads(table, np.lexsort((table.row_group, table.file)))
    segments = [SegmentRead("", 0, (LayoutRead(0, tuple(fields.names), (file,)),)) for file in files]
    return in_workers(one.spark, one.files, segments, one.plan.schema.select(fields.names).columns)


# Sums of 32-bit hashes stay within 64 bits below this.
_MOST_ROWS = 1 << 31


def load(
    spark: SparkSession,
    source: DataFrame | str | Path,
    table_path: str | Path,
    plan: Plan,
    partitions: Sequence[object] | None = None,
    progress: Progress | None = None,
    *,
    basis: Basis | None = None,
    stages: Stages | None = None,
    whole_table: bool = False,
    encrypt: str | None = None,
    cutter: Cutter = in_input_order,
    at: CommitHook = lambda point: None,
    in_task: Callable[[str], None] | None = None,
) -> LoadReport:
    """Rewrite a source's partitions into blocks, and commit them as the table's next snapshot.

    Args:
        spark: the session; its settings must be the plan's.
        source: rows, or a path to Parquet.
        table_path: the table's folder, made where there is none.
        plan: what to load by.
        partitions: which ones, as ``--partition`` has them (``o_year=1994``, or what its text would be); None is all
            that the source has. One that has no rows there becomes empty.
        progress: called with a short sentence as each stage begins.
        basis: what the caller saw of table and source before; left out, the table is looked at now.
        stages: times and logs the stages, in place of ``progress``.
        whole_table: partitions that the load does not have disappear from the table.
        encrypt: the reference to the key by which a new table is encrypted; a table that is there must be so.
        cutter: how partitions above ``segment_rows`` are cut.
        at: called at the commit's points, see ``CRASH_POINTS``; for tests.
        in_task: called in every task after its files are written; for tests.

    Raises:
        SourceError: the source is missing, truncated or no Parquet.
        SchemaError: the source's schema is not the plan's, or has something that can't be stored.
        SettingError: the session's settings are not the plan's, or a partition is no value of its column.
        NotATableError: the table's path holds something else.
        ContentMismatchError: what was written is not what the source has.
        CommitConflictError: somebody else loaded one of the partitions meanwhile.
        BoundError: a segment has more rows than ``segment_rows``, or memory ran out.
        TableError: the table can't be written.
        EncryptionKeyError: the key of an encrypted table can't be had, or is another one.
    """
    watch = stages or Stages(progress or silent)
    check_plan(spark, plan, "the plan")
    rows = conformed(open_source(spark, source), plan.schema)
    check_partition_column(rows, plan.partition_by)
    values = None if partitions is None else partition_values(rows, plan.partition_by, partitions)
    files = TableFiles(str(table_path), key=encrypt)
    base = ensure_table_root(files)
    if basis is None:
        name = "DataFrame" if isinstance(source, DataFrame) else repr(str(source))
        plain = not isinstance(source, DataFrame) and source_name(source) is None
        basis = Basis(base, name, values, whole=partitions is None, plain=plain)
        if not isinstance(source, DataFrame):
            source_partitions(rows, str(source), None)  # proves that Spark reads whole files
    base, name = basis.snapshot, basis.source
    if partitions is not None:  # as Spark reads the texts: rows of other values than ours would be noticed
        rows = rows.where(asked_for(rows, str(plan.partition_by), partitions))
    elif plan.partition_by is not None and not basis.whole:
        rows = of_partitions(rows, plan.partition_by, basis.values or ())
    names = PartitionNames.of(plan.schema, plan.partition_by, base)
    cut: CutJob | None = None
    with watch.stage("count", "counting partitions") as counts:
        known = known_chunks(_counted(plan, basis, names), plan.segment_rows) if cutter is in_input_order else None
        segments = _cut(rows, name, plan, cutter, known)
        n_rows = sum(segment.rows for segment in segments)
        counts |= {"segments": len(segments), "rows": n_rows}
        if basis.plain and n_rows >= LEAST_ROWS:
            try:
                with translate_spark_errors(name):
                    cut = cut_job(rows, plan, segments)
            except NeedsSparkError as error:
                counts["read_by_spark"] = str(error)
    by_key = _by_key(names, basis, segments)
    one = Loading(spark, rows, name, plan, files, fresh_load_id(base), segments, by_key, names, basis)
    try:
        written = _written(one, watch, in_task, cut)
    except (NeedsSparkError, ContentMismatchError) as error:
        if cut is None:
            raise
        watch.say("reading all by Spark")
        watch.log.write("read_by_spark", why=str(error))
        one = replace(one, load_id=fresh_load_id(base))
        written = _written(one, watch, in_task)
    discarded = discarded_after(REFUSED, spark, one.files, one.load_id, one.values)
    with discarded, watch.stage("commit", "committing") as counts:
        snapshot = _commit(one, base, written, whole_table, at)
        counts["snapshot"] = snapshot.number
    return load_report(one.load_id, snapshot, plan, tuple(one.values), len(segments), written, watch.seconds)


def _written(one: Loading, watch: Stages, in_task: Callable[[str], None] | None, cut: CutJob | None = None) -> Written:
    """Write the segments, and compare them with the source; leaves no file where that fails."""
    with discarded_after(ANY, one.spark, one.files, one.load_id, one.values):
        say = f"writing {len(one.segments)} segments"
        with watch.stage("write", say, load_id=one.load_id, read_by="spark" if cut is None else "arrow") as counts:
            written = write(one, in_task, cut)
            counts["blocks"] = written.blocks.num_rows
        with watch.stage("check", "comparing with the source"):
            check_written(one, written)
            check_partitions(entries_of(one, written.blocks), one.names, one.values, one.basis.rows, one.source_name)
    return written


def _cut(rows: DataFrame, name: str, plan: Plan, cutter: Cutter, known: Sequence[Chunk] | None) -> tuple[Segment, ...]:
    """The segments, of chunks that are counted where they are not known."""
    chunks = known
    if chunks is None:
        with translate_spark_errors(name):
            chunks = count_chunks(with_positions(rows), plan.partition_by, plan.segment_rows)
    total = sum(chunk.rows for chunk in chunks)
    if total >= _MOST_ROWS:
        raise BoundError(f"one load takes fewer than {_MOST_ROWS} rows, not {total}; load fewer partitions at a time")
    return cut_segments(chunks, plan.segment_rows, cutter)


def _counted(plan: Plan, basis: Basis, names: PartitionNames) -> dict[PlainValue, int | None]:
    """The rows of each partition, as the caller counted them: what is written has to have as many."""
    if plan.partition_by is not None and basis.values is None:
        return {None: None}
    return {value: basis.rows.get(names.key(value)) for value in basis.values or (None,)}


def _by_key(names: PartitionNames, basis: Basis, segments: Sequence[Segment]) -> dict[str, PlainValue]:
    """The partitions of a load by their keys: those that were asked for, and those found where all are wanted.

    Raises:
        ContentMismatchError: the source has others than the caller saw, or two would have one key.
    """
    asked = dict.fromkeys(basis.values or ())
    values = asked | {segment.value: None for segment in segments}
    if basis.values is not None and len(values) > len(asked):
        raise ContentMismatchError(
            f"{basis.source} has the partition {names.shown(list(values)[-1])}, which it had not before; nothing was "
            "committed, load again, from a source that nobody changes meanwhile"
        )
    by_key = {names.key(value): value for value in values}
    if len(by_key) < len(values):
        raise ContentMismatchError(
            f"two partitions of {basis.source} would have one name in the table; nothing was committed, "
            "load them one at a time into tables of their own"
        )
    return by_key


def _commit(one: Loading, base: Snapshot | None, written: Written, whole_table: bool, at: CommitHook) -> Snapshot:
    entries = [
        replace(entry, source=one.basis.fingerprints.get(entry.key)) for entry in entries_of(one, written.blocks)
    ]
    return commit_load(
        one.files,
        base,
        one.plan,
        one.load_id,
        entries,
        written.blocks,
        indexes=written.indexes,
        whole_table=whole_table,
        operation=one.basis.operation,
        batch=one.basis.batch,
        marks=one.basis.marks,
        at=at,
    )


# ----------------------------------------------------------------------------------------------------
# What is looked at before a table is encrypted, or is not.


def check_encryption(settings: LoadSettings) -> None:
    """Before anything is done: the key can be had, nobody is shown what it hides, and no table is clear by mistake.

    Raises:
        SettingError, EncryptionKeyError: the key can't be had; or one is given for a new table, but not to encrypt it.
        EncryptedTableError: the table is to be published too.
    """
    if settings.encrypt is None:
        if given_reference() is not None and not TableFiles(settings.table_path).exists(MARKER):
            raise SettingError(
                f"a key is given (--key, [encryption] key or {KEY_VARIABLE}), but the table {settings.table_path!r} is "
                "new and nothing says that it is to be encrypted; name the key by --encrypt, or leave it out"
            )
        return
    key_of(settings.encrypt)
    if settings.publish:
        raise EncryptedTableError(
            f"an encrypted table can't be published ({settings.publish[0]!r}): other engines have no key; leave "
            "--publish or --encrypt out"
        )


# ----------------------------------------------------------------------------------------------------
# Loads as they are asked for: which partitions, by which plan, and only what the table does not have yet.
#
# Every partition is loaded exactly once however often a load is retried. A partition is *there* if the table has it
# from
# the same files of the source (``source_files``), or from other files with the same rows. One that is
# there with other rows, or by another plan than the one given, is refused unless the caller says to replace it.


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
