"""Load a source's partitions into a table's blocks, verify what was written, and commit it.

:func:`load` counts the partitions, unless they are known, and cuts them into segments. One Spark job sums the source
and routes each segment to one task, which evaluates its features and writes it. The sums are compared with what was
written; the commit makes it visible. Large sources of plain files are read by Arrow in the tasks, and summed by Spark
in a job of its own (:mod:`layoutopt.spark.loading.job`).

:func:`run_load` loads each partition exactly once however often it is retried. A partition is *loaded* if the table has
it from the same files (:mod:`layoutopt.spark.loading.source_files`), or from other files with the same rows. One with
other rows, or by another plan than the one named, is refused unless the settings say to replace it.
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
from layoutopt.catalog.commit import CommitHook, commit_load, ensure_table_root
from layoutopt.catalog.entries import written_content, written_positions
from layoutopt.catalog.load_check import Content, check_content, check_partitions, check_positions
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
    find_interrupt,
)
from layoutopt.events import NO_EVENTS, EventLog, Progress, Stages, silent
from layoutopt.external.external_tables import pin_version
from layoutopt.external.snapshot import SourcePartition, parse_source_name
from layoutopt.inspect.status import current_plan
from layoutopt.local.segments import Chunk, Cutter, Segment, chunks_from_counts, cut_in_input_order, cut_segments
from layoutopt.local.splits import LEAST_ROWS, CutJob
from layoutopt.model.layout import Plan
from layoutopt.publish.publishing import parse_publications, publish_all
from layoutopt.scan.segments import LayoutRead, SegmentRead, plan_file_reads
from layoutopt.scan.table import Table
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.functions import check_plan
from layoutopt.spark.core.partition_values import filter_partitions, match_partition_texts, parse_partition_values
from layoutopt.spark.core.segments import count_chunks, with_positions
from layoutopt.spark.core.source import (
    check_partition_column,
    checksum_column,
    conform_columns,
    escape_pattern,
    measure_content,
    open_source,
    rename_columns,
)
from layoutopt.spark.loading.job import Basis, LoadRun, cut_job, discard_files_after, run_write_job, written_entries
from layoutopt.spark.loading.source_files import between, check_reachable, read_partition, source_partitions
from layoutopt.spark.loading.verify import holds_same_rows
from layoutopt.spark.session.readers import PARQUET_OPTIONS, read_in_workers
from layoutopt.writer.checksum import is_hashable
from layoutopt.writer.load_ids import ANY_FAILURE, COMMIT_REFUSALS, fresh_load_id
from layoutopt.writer.task_result import LoadReport, WriteResult, load_report

# Sums of 32-bit hashes stay within 64 bits below this.
_MOST_ROWS = 1 << 31
_SUMMED = ("rows", "segments", "blocks", "files", "bytes")


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
    cutter: Cutter = cut_in_input_order,
    at: CommitHook = lambda point: None,
    in_task: Callable[[str], None] | None = None,
) -> LoadReport:
    """Rewrite a source's partitions into blocks, and commit them as the table's next snapshot.

    Args:
        spark: the session, whose settings must be the plan's.
        source: rows, or a path to Parquet.
        table_path: the table's folder, created where missing.
        plan: the layout to load by.
        partitions: those to load, as texts of ``--partition`` (``o_year=1994``) or values; all of the source when
            None. One that has no rows there becomes empty.
        progress: called with a short sentence as each stage begins.
        basis: what the caller knows of table and source; by default the table is read now.
        stages: times and logs the stages, instead of ``progress``.
        whole_table: whether other partitions are removed from the table.
        encrypt: the reference to the key that encrypts a new table; an existing table must use the same.
        cutter: cuts partitions above ``segment_rows``.
        at: called at the commit's points, see ``CRASH_POINTS``; for tests.
        in_task: called in every task after its files are written; for tests.

    Raises:
        SourceError: the source is missing, truncated or no Parquet.
        SchemaError: the source's schema is not the plan's, or has a type that can't be stored.
        SettingError: the session's settings are not the plan's, or a partition is no value of its column.
        NotATableError: the table's path holds something else.
        ContentMismatchError: what was written is not what the source has.
        CommitConflictError: another commit changed one of the partitions meanwhile.
        BoundError: a segment has more rows than ``segment_rows``, or memory ran out.
        TableError: the table can't be written.
        EncryptionKeyError: the key of an encrypted table is missing, or another one.
    """
    watch = stages or Stages(progress or silent)
    check_plan(spark, plan, "the plan")
    rows = conform_columns(open_source(spark, source), plan.schema)
    check_partition_column(rows, plan.partition_by)
    values = None if partitions is None else parse_partition_values(rows, plan.partition_by, partitions)
    files = TableFiles(str(table_path), key=encrypt)
    base = ensure_table_root(files)
    if basis is None:
        name = "DataFrame" if isinstance(source, DataFrame) else repr(str(source))
        is_plain = not isinstance(source, DataFrame) and parse_source_name(source) is None
        basis = Basis(base, name, values, whole=partitions is None, plain=is_plain)
        if not isinstance(source, DataFrame):
            source_partitions(rows, str(source), None)  # proves that Spark reads whole files
    base, name = basis.snapshot, basis.source
    if partitions is not None:  # parsed by Spark: the checks then notice rows of other values than those parsed here
        rows = rows.where(match_partition_texts(rows, str(plan.partition_by), partitions))
    elif plan.partition_by is not None and not basis.whole:
        rows = filter_partitions(rows, plan.partition_by, basis.values or ())
    names = PartitionNames.of(plan.schema, plan.partition_by, base)
    cut: CutJob | None = None
    with watch.stage("count", "counting partitions") as counts:
        segments = _cut(rows, plan, basis, names, cutter)
        n_rows = sum(segment.rows for segment in segments)
        counts |= {"segments": len(segments), "rows": n_rows}
        if basis.plain and n_rows >= LEAST_ROWS:
            try:
                with translate_spark_errors(name):
                    cut = cut_job(rows, plan, segments)
            except NeedsSparkError as error:
                counts["read_by_spark"] = str(error)
    values_by_key = _name_partitions(names, basis, segments)
    run = LoadRun(spark, rows, name, plan, files, fresh_load_id(base), segments, values_by_key, names, basis)
    try:
        written = _write(run, watch, in_task, cut)
    except (NeedsSparkError, ContentMismatchError) as error:
        if cut is None:
            raise
        watch.say("reading all by Spark")
        watch.log.write("read_by_spark", why=str(error))
        run = replace(run, load_id=fresh_load_id(base))
        written = _write(run, watch, in_task)
    removal = discard_files_after(COMMIT_REFUSALS, spark, run.files, run.load_id, run.values)
    with removal, watch.stage("commit", "committing") as counts:
        snapshot = _commit(run, base, written, whole_table, at)
        counts["snapshot"] = snapshot.number
    return load_report(run.load_id, snapshot, plan, tuple(run.values), len(segments), written, watch.seconds)


def _cut(rows: DataFrame, plan: Plan, basis: Basis, names: PartitionNames, cutter: Cutter) -> tuple[Segment, ...]:
    """Cut the partitions into segments; rows are counted unless the caller of the load counted them."""
    chunks: Sequence[Chunk] | None = None
    if cutter is cut_in_input_order:
        known: dict[PlainValue, int | None] = {None: None}
        if plan.partition_by is None or basis.values is not None:
            known = {value: basis.rows.get(names.key(value)) for value in basis.values or (None,)}
        chunks = chunks_from_counts(known, plan.segment_rows)
    if chunks is None:
        with translate_spark_errors(basis.source):
            chunks = count_chunks(with_positions(rows), plan.partition_by, plan.segment_rows)
    total = sum(chunk.rows for chunk in chunks)
    if total >= _MOST_ROWS:
        raise BoundError(f"one load takes fewer than {_MOST_ROWS} rows, not {total}; load fewer partitions at a time")
    return cut_segments(chunks, plan.segment_rows, cutter)


def _name_partitions(names: PartitionNames, basis: Basis, segments: Sequence[Segment]) -> dict[str, PlainValue]:
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
    run: LoadRun, watch: Stages, in_task: Callable[[str], None] | None, cut: CutJob | None = None
) -> WriteResult:
    """Write the segments and compare them with the source; remove the files where that fails."""
    with discard_files_after(ANY_FAILURE, run.spark, run.files, run.load_id, run.values):
        say = f"writing {len(run.segments)} segments"
        with watch.stage("write", say, load_id=run.load_id, read_by="spark" if cut is None else "arrow") as counts:
            written = run_write_job(run, in_task, cut)
            counts["blocks"] = written.blocks.num_rows
        with watch.stage("check", "comparing with the source"):
            _check_written(run, written)
            entries = written_entries(run, written.blocks)
            check_partitions(entries, run.names, run.values, run.basis.rows, run.source_name)
    return written


def _check_written(run: LoadRun, written: WriteResult) -> None:
    """Raise ContentMismatchError for blocks that do not have the source's rows, in total.

    A task that ran twice may be observed twice, so the source is summed again before the load fails.
    """
    table = BlockTable.from_arrow(written.blocks, run.plan)
    measured = written_content(table)
    content = Content(measured.rows, {**dict(measured.sums), **_read_back(run, written.blocks)})
    if run.basis.content is not None:
        known = {name: sum for name, sum in content.sums.items() if name in run.basis.content.sums}
        check_content(run.basis.content, Content(content.rows, known), run.source_name)
    try:
        check_content(written.observed, content, run.source_name)
    except ContentMismatchError:
        check_content(measure_content(run.source, run.source_name), content, run.source_name)
    if run.plan.scheme.has_tids:
        check_positions(written.positions, written_positions(table), run.source_name)


def _read_back(run: LoadRun, blocks: pa.Table) -> dict[str, int]:
    """Read the checksums of the columns that only Spark can hash (nested, collated) from the written files."""
    unhashed = {c.name for c in run.plan.schema.columns if not is_hashable(c.type)}
    sums: dict[str, int] = {}
    for index, layout in enumerate(run.plan.scheme.layouts):
        fields = [f for f in run.source.schema.fields if f.name in unhashed and f.name in layout.master]
        unhashed -= {field.name for field in fields}
        if not fields:
            continue
        layout_blocks = blocks.filter(pa.compute.equal(blocks["layout"], index))
        if not layout_blocks.num_rows:
            sums |= dict.fromkeys((field.name for field in fields), 0)
            continue
        columns = [checksum_column(field.name, field.dataType).alias(field.name) for field in fields]
        with translate_spark_errors("the files just written"):
            row = _open_written(run, layout_blocks, StructType(fields)).agg(*columns).first()
        sums |= {} if row is None else {field.name: int(row[field.name]) for field in fields}
    return sums


def _open_written(run: LoadRun, blocks: pa.Table, fields: StructType) -> DataFrame:
    """Open some columns of all blocks of a layout, by Spark's own reader where it can read the files."""
    if run.files.is_plain:
        paths = [run.files.full_path(path) for path in dict.fromkeys(blocks["file"].to_pylist())]
        return run.spark.read.schema(fields).options(**PARQUET_OPTIONS).parquet(*map(escape_pattern, paths))
    table = BlockTable.from_arrow(blocks, run.plan)
    files = plan_file_reads(table, np.lexsort((table.row_group, table.file)))
    segments = [SegmentRead("", 0, (LayoutRead(0, tuple(fields.names), (file,)),)) for file in files]
    return read_in_workers(run.spark, run.files, segments, run.plan.schema.select(fields.names).columns)


def _commit(run: LoadRun, base: Snapshot | None, written: WriteResult, whole_table: bool, at: CommitHook) -> Snapshot:
    entries = written_entries(run, written.blocks)
    return commit_load(
        run.files,
        base,
        run.plan,
        run.load_id,
        [replace(entry, source=run.basis.fingerprints.get(entry.key)) for entry in entries],
        written.blocks,
        indexes=written.indexes,
        whole_table=whole_table,
        operation=run.basis.operation,
        batch=run.basis.batch,
        marks=run.basis.marks,
        at=at,
    )


@dataclass(frozen=True)
class LoadsReport:
    """The result of :func:`run_load`.

    Attributes:
        table: its path.
        plan: the digest of the plan.
        loads: one a commit, in order.
        already: the keys of the partitions that the table had already, sorted.
        seconds: in all.
        source: what was loaded; a table of another format with its version.
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
        return tuple(key for load in self.loads for key in load.partitions)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know of the loads."""
        return tuple(note for load in self.loads for note in load.notes)

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON: the sums over the loads, then each load."""
        sums = {name: sum(getattr(load, name) for load in self.loads) for name in _SUMMED}
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
            "loads": [load.to_json() for load in self.loads],
        }


@dataclass(frozen=True)
class _Request:
    """The partitions to load, and the source and the table's newest snapshot when they were looked at."""

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
    def is_partial(self) -> bool:
        """Whether only some of the source's partitions are requested."""
        settings = self.settings
        return bool(settings.partition) or settings.first is not None or settings.last is not None

    def key(self, partition: SourcePartition) -> str:
        return self.names.key(partition.value)

    def entries(self, partition: SourcePartition) -> tuple[PartitionEntry, ...]:
        return () if self.table is None else self.table.catalog.snapshot.by_key.get(self.key(partition), ())


def run_load(
    spark: SparkSession, settings: LoadSettings, say: Progress = silent, log: EventLog = NO_EVENTS
) -> LoadsReport:
    """Load what the settings request and the table lacks, with a commit for each partition where some are named.

    Args:
        spark: the session.
        settings: of the verb.
        say: called with a short sentence as each stage begins.
        log: gets an event for each stage, and one ``load`` at the end that sums up.

    Raises:
        AlreadyLoadedError: a partition has other rows, or another plan's, and ``replace`` is not set.
        MissingPartitionError: the source has no rows for a named partition, or none in the range.
        LayoutoptError: as :func:`load`.
        KeyboardInterrupt: Ctrl-C was pressed; says what was committed before.
    """
    watch = Stages(say)
    parse_publications(settings.table_path, settings.publish)  # fails early if the table can't be published
    _check_encryption(settings)
    loads: list[LoadReport] = []
    already: list[str] = []
    before: Table | None = None
    try:
        with watch.stage("all", "looking at the source"):
            settings = settings.model_copy(update={"source": pin_version(settings.source)})
            before = _open_newest(settings)
            request = _open_request(spark, settings, say, log)
            # Each named partition is committed by itself, so that a retry resumes; a whole source at once.
            partitions = request.partitions
            for group in [(partition,) for partition in partitions] if request.is_partial else [partitions]:
                report = _load_group(request, group, already)
                request = replace(request, table=_open_newest(settings))
                if report is not None:
                    loads.append(report)
                    publish_all(settings.table_path, settings.publish, say, log)
            if not loads and request.table is not None:  # a crash may have left the last commit unpublished
                publish_all(settings.table_path, settings.publish, say, log)
    except LayoutoptError as error:
        _log_result(log, settings, LoadsReport(settings.table_path, "", tuple(loads), tuple(already)), watch, error)
        raise
    except (Exception, KeyboardInterrupt) as error:
        if find_interrupt(error) is None:
            raise
        raise KeyboardInterrupt(_describe_commits(before, settings)) from error
    result = LoadsReport(
        settings.table_path,
        request.plan.digest,
        tuple(loads),
        tuple(sorted(already)),
        watch.seconds["all"],
        settings.source,
    )
    _log_result(log, settings, result, watch)
    return result


def _check_encryption(settings: LoadSettings) -> None:
    """Check that the key is available, and that no new table is left clear, or published, by mistake.

    Raises:
        SettingError, EncryptionKeyError: the key is missing; or one is given for a new table, but not to encrypt it.
        EncryptedTableError: the table is to be published too.
    """
    if settings.encrypt is None:
        if given_reference() is not None and not TableFiles(settings.table_path).exists(MARKER):
            raise SettingError(
                f"a key is given (--key, [encryption] key or {KEY_VARIABLE}), but the table {settings.table_path!r} is "
                "new and not to be encrypted; name the key by --encrypt, or leave it out"
            )
        return
    key_of(settings.encrypt)
    if settings.publish:
        raise EncryptedTableError(
            f"an encrypted table can't be published ({settings.publish[0]!r}): other engines have no key; leave "
            "--publish or --encrypt out"
        )


def _describe_commits(before: Table | None, settings: LoadSettings) -> str:
    now = _open_newest(settings)
    if now is None or (before is not None and before.catalog.snapshot.number == now.catalog.snapshot.number):
        return "nothing was committed"
    return f"`layoutopt history {settings.table_path}` lists what was committed; the same command loads the rest"


def _log_result(
    log: EventLog, settings: LoadSettings, report: LoadsReport, watch: Stages, error: LayoutoptError | None = None
) -> None:
    event = report.to_json() | {
        "source": settings.source,
        "seconds": watch.seconds["all"],
        "exit": 0 if error is None else error.exit_code,
    }
    event |= {"outcome": "failed", "error": str(error)} if error is not None else {"outcome": "done"}
    log.write("load", **{name: value for name, value in event.items() if name != "loads"})


def _open_request(spark: SparkSession, settings: LoadSettings, say: Progress, log: EventLog) -> _Request:
    table = _open_newest(settings)
    plan = _choose_plan(settings, table)
    check_plan(spark, plan, "the plan")
    rows = open_source(spark, settings.source, merged=False)
    if plan.partition_by is not None and plan.partition_by.lower() not in {c.lower() for c in rows.columns}:
        rows = open_source(spark, settings.source)
    rows = rename_columns(rows, plan.schema)
    check_partition_column(rows, plan.partition_by)
    request = _Request(spark, settings, plan, table, rows, log, say)
    partitions = _find_partitions(request)
    if plan.partition_by is not None:
        check_reachable(rows, settings.source, plan.partition_by, partitions)
    return replace(request, partitions=partitions)


def _open_newest(settings: LoadSettings) -> Table | None:
    """Open the table at its newest snapshot; None where nothing was loaded yet."""
    try:
        return Table(Catalog.open(settings.table_path, key=settings.encrypt))
    except NotATableError:
        if TableFiles(settings.table_path).is_file(""):
            raise
        return None  # the load refuses a folder that holds something else


def _choose_plan(settings: LoadSettings, table: Table | None) -> Plan:
    """Choose the plan named, or else the table's; the commit checks its columns."""
    if settings.plan is None and table is not None and table.catalog.plans:
        return current_plan(table.catalog)
    plan = read_plan(settings.plan or DEFAULT_PLAN)
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


def _find_partitions(request: _Request) -> tuple[SourcePartition, ...]:
    """Find the requested partitions, including those without rows where that is allowed."""
    settings, rows, by = request.settings, request.rows, request.plan.partition_by
    is_range = settings.first is not None or settings.last is not None
    if is_range and settings.partition:
        raise SettingError(f"--partition {settings.partition[0]} and a range are both given; leave one of them out")
    if is_range:
        partitions = source_partitions(rows, settings.source, by, between(rows, by, settings.first, settings.last))
        if not partitions and not settings.allow_empty:
            raise MissingPartitionError(
                f"{settings.source!r} has no rows from {settings.first} to {settings.last}; load when they have come"
            )
        return partitions
    if not settings.partition:
        return source_partitions(rows, settings.source, by)
    values = parse_partition_values(rows, by, settings.partition)
    condition = match_partition_texts(rows, str(by), settings.partition)
    by_value = {partition.value: partition for partition in source_partitions(rows, settings.source, by, condition)}
    missing = [value for value in values if value not in by_value]
    if missing and not settings.allow_empty:
        null = f" (NULL is {by}=__null__)" if missing[0] == "null" else ""
        raise MissingPartitionError(
            f"{settings.source!r} has no rows for {request.names.shown(missing[0])}{null}; load when they have come, "
            "or give --allow-empty"
        )
    return tuple(by_value.get(value, SourcePartition(value, ())) for value in values)


def _load_group(request: _Request, group: tuple[SourcePartition, ...], already: list[str]) -> LoadReport | None:
    """Load what the table lacks of a group, and add the other keys to ``already``; None where it lacks nothing."""
    missing = [partition for partition in group if not _is_loaded(request, partition)]
    keys = [request.key(partition) for partition in group if partition not in missing]
    already += keys
    for key in keys:
        request.say(f"partition {key} is there")
    if group and not missing:
        return None
    try:
        return _load(request, missing)
    except CommitConflictError:
        # Another process may have done the same work meanwhile: a task that was given up, but still ran.
        settings = request.settings.model_copy(update={"replace": False})
        again = replace(request, table=_open_newest(request.settings), settings=settings)
        if again.table is None or not all(_is_same(again, partition) for partition in missing):
            raise
        already += [request.key(partition) for partition in missing]
        return None


def _load(request: _Request, partitions: Sequence[SourcePartition]) -> LoadReport:
    settings, plan = request.settings, request.plan
    # A source without a row still makes a table.
    has_values = plan.partition_by is not None and partitions
    is_whole = not request.is_partial and len(partitions) == len(request.partitions)
    basis = Basis(
        snapshot=None if request.table is None else request.table.catalog.snapshot,
        source=repr(settings.source),
        values=tuple(partition.value for partition in partitions) if has_values else None,
        whole=is_whole or plan.partition_by is None,
        fingerprints={request.key(partition): partition.fingerprint for partition in partitions},
        rows={request.key(partition): partition.rows for partition in partitions},
        plain=parse_source_name(settings.source) is None,
    )
    rows = open_source(request.spark, settings.source) if is_whole else _open_rows(request, partitions)
    watch = Stages(request.say, request.log)
    return load(request.spark, rows, settings.table_path, plan, basis=basis, stages=watch, encrypt=settings.encrypt)


def _open_rows(request: _Request, partitions: Sequence[SourcePartition]) -> DataFrame:
    spark, source, by = request.spark, request.settings.source, request.plan.partition_by
    if by is None or len(partitions) != 1 or not partitions[0].files:
        return open_source(spark, source)
    return read_partition(spark, source, request.rows, by, partitions[0], request.plan.schema)


def _is_loaded(request: _Request, partition: SourcePartition) -> bool:
    """Whether the table has the partition already.

    Raises:
        AlreadyLoadedError: it has other rows, or another plan's.
    """
    entries = request.entries(partition)
    rows = sum(entry.live_rows for entry in entries)
    if request.settings.replace or not entries or (rows == 0 and partition.files):
        return False
    if _is_same(request, partition):
        return True
    conform_columns(_open_rows(request, [partition]), request.plan.schema)  # errors that a load would raise come first
    difference = "from other content" if _has_plan(request, entries[0]) else f"by the plan {entries[0].plan[:12]}"
    raise AlreadyLoadedError(
        f"partition {entries[0].key!r} was loaded {difference} ({rows} rows); give --replace to load it again, or use "
        "`layoutopt append` to add rows to it"
    )


def _has_plan(request: _Request, entry: PartitionEntry) -> bool:
    return request.settings.plan is None or entry.plan == request.plan.digest


def _is_same(request: _Request, partition: SourcePartition) -> bool:
    """Whether the table has these rows by this plan (by any, where none was named)."""
    entries = request.entries(partition)
    if not entries or request.table is None or not _has_plan(request, entries[0]):
        return False
    if entries[0].source == partition.fingerprint:  # rows appended since don't matter
        return True
    if not partition.files:
        return not any(entry.live_rows for entry in entries)
    request.say(f"comparing partition {entries[0].key} with the table")
    return holds_same_rows(request.spark, _open_rows(request, [partition]), request.table, entries)
