"""Load: rewrite partitions of a source into a table's blocks, check them, commit them.

The way: count the partitions, where nobody has, and cut them into segments; one Spark job sums what the source holds
and routes each segment to one task, which finds its features and writes it; the sums are compared; the commit makes it
visible. Of many rows in plain files tasks read the files by Arrow, and Spark sums them in a job of its own
(:mod:`layoutopt.spark.loading.by_arrow`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from layoutopt.catalog.checks import check_partitions
from layoutopt.catalog.commit import CommitHook, commit_load, ensure_table_root
from layoutopt.catalog.partition_names import PartitionNames, PlainValue
from layoutopt.catalog.snapshot import Snapshot
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.direct.cut_rows import CutJob
from layoutopt.errors import BoundError, ContentMismatchError, NeedsSparkError
from layoutopt.events import Progress, Stages, silent
from layoutopt.model.layout import Plan
from layoutopt.sources.snapshot import source_name
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
    check_partition_column,
    conformed,
    open_source,
)
from layoutopt.spark.loading.by_arrow import cut_job
from layoutopt.spark.loading.check import check_written
from layoutopt.spark.loading.job import Basis, Loading, discarded_after, entries_of, write
from layoutopt.spark.loading.plain_files import LEAST_ROWS
from layoutopt.spark.loading.source_files import source_partitions
from layoutopt.writer.load_ids import ANY, REFUSED, fresh_load_id
from layoutopt.writer.load_report import LoadReport, load_report
from layoutopt.writer.written import Written

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
