"""Load: rewrite partitions of a source into a table's blocks, check them, commit them.

The way: count the partitions and cut them into segments; one Spark job featurises the rows, sums what the source holds,
routes each segment to one task and writes it there; the sums are compared; the commit makes it visible.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import fsspec
import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.types import StructType

from layoutopt.catalog.blocks import BlockTable, block_schema
from layoutopt.catalog.checks import Content, TidSums, check_content, check_positions
from layoutopt.catalog.commit import CommitHook, commit_load, ensure_table_root, partition_entries
from layoutopt.catalog.entries import written_content, written_positions
from layoutopt.catalog.partition_names import PartitionNames, PlainValue
from layoutopt.catalog.paths import DATA, new_load_id
from layoutopt.catalog.snapshot import PartitionEntry, Snapshot
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import BoundError, CommitConflictError, ContentMismatchError, PlanError, SchemaError
from layoutopt.features.weights import feature_shares
from layoutopt.model.layout import Plan
from layoutopt.model.vectors import words_for
from layoutopt.spark.core.failures import clear_failures
from layoutopt.spark.core.featurize import feature_words
from layoutopt.spark.core.partition_values import asked_for, of_partitions, partition_values
from layoutopt.spark.core.segments import (
    Cutter,
    Segment,
    count_chunks,
    cut_segments,
    in_input_order,
    with_positions,
    with_segments,
)
from layoutopt.spark.core.sessions import check_settings, compiled_in_parts
from layoutopt.spark.core.source import (
    check_partition_column,
    checksum_column,
    conformed,
    content_columns,
    content_of,
    measure_content,
    open_source,
)
from layoutopt.spark.core.stages import Progress, Stages, silent
from layoutopt.spark.core.tasks import map_segments
from layoutopt.spark.session.read import STRICT
from layoutopt.writer.checksum import is_hashable
from layoutopt.writer.task import RESULT_SCHEMA, WriteJob, write_segment

# A block's number is the load's mark, 23 bits, and a number in the load, 40 bits: positive, and unique in the table.
_NUMBER_BITS = 40
_MARKS = 1 << 23
# Sums of 32-bit hashes stay within 64 bits below this.
_MOST_ROWS = 1 << 31


@dataclass(frozen=True)
class LoadReport:
    """What a load did.

    Attributes:
        load_id: its name in the table's files.
        snapshot: the snapshot that it made.
        partitions: the keys of the partitions that it replaced, sorted.
        rows, segments, blocks, files: how many.
        bytes: the compressed column chunks written, over all layouts.
        notes: sentences on what a user should know, such as vectors beyond ``max_vectors``.
        seconds: by stage.
    """

    load_id: str
    snapshot: int
    partitions: tuple[str, ...]
    rows: int
    segments: int
    blocks: int
    files: int
    bytes: int
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return asdict(self)


@dataclass(frozen=True)
class _Written:
    """What the job left: the blocks, what they are to hold, and joined vectors by partition key.

    ``observed`` is the source's content as the scan saw it, ``positions`` the sums of its values at their tids.
    """

    blocks: pa.Table
    observed: Content
    joined: Mapping[str, int]
    positions: TidSums


@dataclass(frozen=True)
class _Load:
    """One load: where from, where to, and the segments between."""

    spark: SparkSession
    source: DataFrame
    source_name: str
    plan: Plan
    files: TableFiles
    load_id: str
    segments: tuple[Segment, ...]
    values: Mapping[str, PlainValue]
    names: PartitionNames
    basis: Basis


@dataclass(frozen=True)
class Basis:
    """What a load is based on, where its caller has looked before.

    Attributes:
        snapshot: the table's newest then, None for a table that was not there: what is refused as a conflict is what
            changed since.
        source: names the source in messages.
        values: of the partitions to load; None where the caller's texts say which, or nobody does.
        whole: whether these are all that the source has, so that no row of it may be left out.
        origins: of partition keys, the digest of the source's files; recorded, so that a retry knows its own work.
        rows: of partition keys, the rows that the caller counted in the source.
    """

    snapshot: Snapshot | None
    source: str
    values: tuple[PlainValue, ...] | None = None
    whole: bool = False
    origins: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)


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
    """
    watch = stages or Stages(progress or silent)
    check_settings(spark, plan.settings, "the plan")
    rows = conformed(open_source(spark, source), plan.schema)
    check_partition_column(rows, plan.partition_by)
    values = None if partitions is None else partition_values(rows, plan.partition_by, partitions)
    files = TableFiles(str(table_path))
    base = ensure_table_root(files)
    if basis is None:
        name = "DataFrame" if isinstance(source, DataFrame) else repr(str(source))
        basis = Basis(base, name, values, whole=partitions is None)
    base, name = basis.snapshot, basis.source
    if partitions is not None:  # as Spark reads the texts: rows of other values than ours would be noticed
        rows = rows.where(asked_for(rows, str(plan.partition_by), partitions))
    elif plan.partition_by is not None and not basis.whole:
        rows = of_partitions(rows, plan.partition_by, basis.values or ())
    with watch.stage("count", "counting partitions") as counts:
        segments = _count_segments(rows, name, plan, cutter)
        counts |= {"segments": len(segments), "rows": sum(segment.rows for segment in segments)}
    names = PartitionNames.of(plan.schema, plan.partition_by, base)
    by_key = _by_key(names, basis, segments)
    one = _Load(spark, rows, name, plan, files, _fresh_load_id(base), segments, by_key, names, basis)
    try:
        with watch.stage("write", f"writing {len(segments)} segments", load_id=one.load_id) as counts:
            written = _write(one, in_task)
            counts["blocks"] = written.blocks.num_rows
        with watch.stage("check", "comparing with the source"):
            _check(one, written)
            _check_partitions(one, _entries(one, written.blocks))
    except BaseException:
        _delete_written(one)
        raise
    try:
        with watch.stage("commit", "committing") as counts:
            snapshot = _commit(one, base, written.blocks, whole_table, at)
            counts["snapshot"] = snapshot.number
    except (CommitConflictError, PlanError, SchemaError):
        # Refused for certain. After any other failure the snapshot may exist, and name these files.
        _delete_written(one)
        raise
    return replace(_report(one, snapshot, written), seconds=dict(watch.seconds))


def _count_segments(rows: DataFrame, name: str, plan: Plan, cutter: Cutter) -> tuple[Segment, ...]:
    with clear_failures(name):
        chunks = count_chunks(with_positions(rows), plan.partition_by, plan.segment_rows)
    total = sum(chunk.rows for chunk in chunks)
    if total >= _MOST_ROWS:
        raise BoundError(f"one load takes fewer than {_MOST_ROWS} rows, not {total}; load fewer partitions at a time")
    return cut_segments(chunks, plan.segment_rows, cutter)


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


def _fresh_load_id(base: Snapshot | None) -> str:
    """A new load id whose blocks' numbers no load of the snapshot has."""
    taken = set() if base is None else {_mark(entry.load_id) for entry in base.partitions}
    while True:
        load_id = new_load_id()
        if _mark(load_id) not in taken:
            return load_id


def _check_block_numbers(one: _Load) -> None:
    """Refuse a load whose blocks might take the numbers of another load's."""
    most = (1 << _NUMBER_BITS) // (max(1, len(one.segments)) * len(one.plan.scheme.layouts))
    if one.plan.segment_rows > most:
        raise BoundError(
            f"with segment_rows {one.plan.segment_rows} the blocks of {len(one.segments)} segments can't be numbered; "
            f"plan with at most {most}"
        )


def _mark(load_id: str) -> int:
    return int.from_bytes(hashlib.sha256(load_id.encode()).digest()[:4], "big") % _MARKS


def _write(one: _Load, in_task: Callable[[str], None] | None) -> _Written:
    """Run the job."""
    plan = one.plan
    _check_block_numbers(one)
    empty = block_schema(plan.schema, words_for(len(plan.features))).empty_table()
    if not one.segments:
        return _Written(empty, Content(0, dict.fromkeys(plan.schema.names, 0)), {}, {})
    job = WriteJob(
        plan=plan,
        shares=feature_shares(plan.features, plan.queries),
        root=one.files.root,
        load_id=one.load_id,
        first_block=_mark(one.load_id) << _NUMBER_BITS,
        keys=tuple(one.names.key(segment.value) for segment in one.segments),
        numbers=tuple(segment.number for segment in one.segments),
        at=in_task,
    )
    observation = Observation(f"layoutopt {one.load_id}")
    with clear_failures(one.source_name), compiled_in_parts(one.spark):
        result = _job(one, job, observation).toArrow()
        observed = content_of(observation.get, plan.schema.names)
    return _collected(one, result, empty, observed)


def _job(one: _Load, job: WriteJob, observation: Observation) -> DataFrame:
    """The one job of a load: scan, positions, sums, words, segments, shuffle, write."""
    positioned = with_positions(one.source)
    observed = positioned.observe(observation, *content_columns(one.source))
    routed = with_segments(one.spark, observed, one.segments, one.plan.partition_by)
    featurised = feature_words(routed, one.plan.features.features)
    return map_segments(featurised, len(one.segments), partial(write_segment, job), RESULT_SCHEMA)


def _collected(one: _Load, result: pa.Table, empty: pa.Table, observed: Content) -> _Written:
    """The tasks' rows put together, in the order of the segments."""
    tables, joined = [empty], dict.fromkeys(one.values, 0)
    positions: dict[tuple[str, int, int], Mapping[str, int]] = {}
    for row in sorted(result.to_pylist(), key=lambda row: int(row["segment"])):
        tables.append(pa.ipc.open_stream(row["blocks"]).read_all())
        segment = one.segments[row["segment"]]
        key = one.names.key(segment.value)
        joined[key] = max(joined[key], row["joined_vectors"])
        for layout, sums in enumerate(row["tid_sums"]):
            by_name = zip(one.plan.schema.names, sums, strict=True)
            positions[key, segment.number, layout] = {name: sum for name, sum in by_name if sum is not None}
    return _Written(pa.concat_tables(tables), observed, joined, positions)


def _check(one: _Load, written: _Written) -> None:
    """Refuse blocks that are not the source's rows; a task that ran twice may be observed twice, so sum again first."""
    table = BlockTable.from_arrow(written.blocks, one.plan)
    measured = written_content(table)
    content = Content(measured.rows, {**dict(measured.sums), **_read_back(one, written.blocks)})
    try:
        check_content(written.observed, content, one.source_name)
    except ContentMismatchError:
        check_content(measure_content(one.source, one.source_name), content, one.source_name)
    if one.plan.scheme.has_tids:
        check_positions(written.positions, written_positions(table), one.source_name)


def _read_back(one: _Load, blocks: pa.Table) -> dict[str, int]:
    """Checksums of the columns that only Spark can hash (nested, collated), from the files written."""
    unhashed = {c.name for c in one.plan.schema.columns if not is_hashable(c.type)}
    sums: dict[str, int] = {}
    for index, layout in enumerate(one.plan.scheme.layouts):
        fields = [f for f in one.source.schema.fields if f.name in unhashed and f.name in layout.master]
        unhashed -= {field.name for field in fields}
        if fields:
            sums |= _read_back_layout(one, blocks, index, StructType(fields))
    return sums


def _read_back_layout(one: _Load, blocks: pa.Table, layout: int, fields: StructType) -> dict[str, int]:
    of_layout = blocks.filter(pa.compute.equal(blocks["layout"], layout))
    paths = [one.files.full_path(path) for path in dict.fromkeys(of_layout["file"].to_pylist())]
    if not paths:
        return dict.fromkeys(fields.names, 0)
    columns = [checksum_column(field.name, field.dataType).alias(field.name) for field in fields]
    with clear_failures("the files just written"):
        row = one.spark.read.schema(fields).options(**STRICT).parquet(*paths).agg(*columns).first()
    return {} if row is None else {name: int(row[name]) for name in fields.names}


def _commit(one: _Load, base: Snapshot | None, blocks: pa.Table, whole_table: bool, at: CommitHook) -> Snapshot:
    entries = [replace(entry, source=one.basis.origins.get(entry.key)) for entry in _entries(one, blocks)]
    return commit_load(one.files, base, one.plan, one.load_id, entries, blocks, whole_table=whole_table, at=at)


def _entries(one: _Load, blocks: pa.Table) -> tuple[PartitionEntry, ...]:
    """The partitions as they were measured while they were written."""
    values = {key: one.names.scalar(value) for key, value in one.values.items()}
    return partition_entries(blocks, one.plan, one.load_id, values)


def _check_partitions(one: _Load, entries: Sequence[PartitionEntry]) -> None:
    """Refuse partitions that have other rows than the caller counted, or rows of another value than they stand for.

    What stands in the rows is taken from them as they were written, not from how partitions were named.

    Raises:
        ContentMismatchError: names the partition.
    """
    for entry in entries:
        said = f"partition {one.names.shown(one.values[entry.key])} of {one.source_name}"
        counted = one.basis.rows.get(entry.key, entry.rows)
        if counted != entry.rows:
            raise ContentMismatchError(
                f"{said} has {counted} rows but {entry.rows} were written; nothing was committed, "
                "load again, from a source that nobody changes meanwhile"
            )
        if not one.names.is_of(entry, one.values[entry.key]):
            raise ContentMismatchError(
                f"{said} got rows of other partitions; nothing was committed, load again and report it if it happens "
                "twice"
            )


def _delete_written(one: _Load) -> None:
    """Remove what this load wrote; nothing names it, so what can't be removed is garbage that readers never see."""
    for key in one.values:
        folder = one.files.full_path(f"{DATA}/{key}/{one.load_id}")
        with suppress(OSError):
            filesystem, path = fsspec.core.url_to_fs(folder)
            filesystem.rm(path, recursive=True)


def _report(one: _Load, snapshot: Snapshot, written: _Written) -> LoadReport:
    blocks = written.blocks
    rows = sum(entry.rows for entry in snapshot.partitions if entry.load_id == one.load_id)
    notes = [
        f"partition {key} has {count} feature vectors beyond max_vectors={one.plan.max_vectors}; their rows were put "
        "with the nearest vectors'"
        for key, count in sorted(written.joined.items())
        if count
    ]
    return LoadReport(
        load_id=one.load_id,
        snapshot=snapshot.number,
        partitions=tuple(sorted(one.values)),
        rows=rows,
        segments=len(one.segments),
        blocks=blocks.num_rows,
        files=len(blocks["file"].unique()),
        bytes=int(pa.compute.sum(blocks["bytes"]).as_py() or 0),
        notes=tuple(notes),
    )
