"""Dry runs of loads: every block is made and measured, nothing is written.

What queries would scan (rows, cells, tids, blocks) equals that of the loaded table: the tasks are those of a load up to
the point where it writes. Bytes are estimated from an encoded sample of each file. Plans that cut the source into the
same segments share one pass, which may be limited to the columns that queries read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.entries import partition_entries
from layoutopt.catalog.partition_names import PartitionNames
from layoutopt.catalog.paths import new_load_id
from layoutopt.catalog.snapshot import Snapshot
from layoutopt.catalog.table import Catalog
from layoutopt.features.weights import feature_shares
from layoutopt.indexes.measuring import blocks_with_indexes
from layoutopt.model.layout import Layout, Plan, Scheme
from layoutopt.model.schema import POSITION, SEGMENT
from layoutopt.scan.table import Table
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.featurize import with_feature_words
from layoutopt.spark.core.segments import count_chunks, cut_segments, with_positions, with_segments
from layoutopt.spark.core.sessions import check_settings, limit_method_size
from layoutopt.spark.core.source import check_partition_column, conform_columns, open_source
from layoutopt.spark.core.workers import map_segments
from layoutopt.writer.segment import gather_segment
from layoutopt.writer.task import WriteJob, write_layouts
from layoutopt.writer.task_result import to_arrow_stream

_RESULT_SCHEMA = "plan int, blocks binary"
_RESULT = pa.schema([("plan", pa.int32()), ("blocks", pa.binary())])


def dry_run_load(spark: SparkSession, source: DataFrame | str | Path, plan: Plan) -> Table:
    """Return the table that a load of the whole source would make, to be evaluated; it has no files to read.

    Raises:
        SourceError, SchemaError, SettingError, BoundError: as :func:`layoutopt.spark.loading.load.load`.
    """
    (table,) = dry_run_loads(spark, source, [plan])
    return table


def dry_run_loads(
    spark: SparkSession, source: DataFrame | str | Path, plans: Sequence[Plan], columns: Iterable[str] | None = None
) -> list[Table]:
    """Return the tables that loads by several plans would make, gathering each segment once for all plans.

    Args:
        spark: the session.
        source: rows, or a path to Parquet.
        plans: of the same source, partitions and ``segment_rows``; their features are the same, or none.
        columns: of the tables, beside those that the plans need; all when None. A query of these columns scans what it
            would scan in a table of all columns.

    Raises:
        ValueError: the plans cut the source into different segments, or have different features.
        SourceError, SchemaError, SettingError, BoundError: as :func:`layoutopt.spark.loading.load.load`.
    """
    first = _check_plans(plans)
    check_settings(spark, first.settings, "the plan")
    rows = conform_columns(open_source(spark, source), first.schema)
    check_partition_column(rows, first.partition_by)
    names = first.schema.names if columns is None else needed_columns(plans, columns)
    if columns is not None:
        plans = [narrow_plan(plan, names) for plan in plans]
    positioned = with_positions(rows)
    source_name = "DataFrame" if isinstance(source, DataFrame) else repr(str(source))
    with translate_spark_errors(source_name), limit_method_size(spark):
        chunks = count_chunks(positioned, first.partition_by, first.segment_rows)
        segments = cut_segments(chunks, first.segment_rows)
        partition_names = PartitionNames.of(first.schema, first.partition_by)
        keys = tuple(partition_names.key(segment.value) for segment in segments)
        jobs = [_write_job(plan, keys, tuple(segment.number for segment in segments)) for plan in plans]
        routed = with_segments(spark, positioned, segments, first.partition_by)
        featurised = with_feature_words(routed, first.features.features, (*names, POSITION, SEGMENT))
        result = map_segments(featurised, len(segments), partial(_measure_segment, jobs), _RESULT_SCHEMA).toArrow()
    tables = [[blocks_with_indexes(plan).empty_table()] for plan in plans]
    for number, stream in zip(result["plan"].to_pylist(), result["blocks"].to_pylist(), strict=True):
        tables[number].append(pa.ipc.open_stream(stream).read_all())
    return [
        Table(dry_run_catalog(job.plan, job, pa.concat_tables(blocks)))
        for job, blocks in zip(jobs, tables, strict=True)
    ]


def _check_plans(plans: Sequence[Plan]) -> Plan:
    """Return the plan with the features of all; raises ValueError where plans can't share one pass."""
    widest = max(plans, key=lambda plan: len(plan.features))
    cut = (widest.schema, widest.partition_by, widest.segment_rows)
    for plan in plans:
        if (plan.schema, plan.partition_by, plan.segment_rows) != cut:
            raise ValueError("plans of different sources or segments can't share one dry run; run each alone")
        if len(plan.features) and plan.features != widest.features:
            raise ValueError("plans with different features can't share one dry run; run each alone")
    return widest


def needed_columns(plans: Sequence[Plan], columns: Iterable[str]) -> tuple[str, ...]:
    """Return these columns and all that the plans use, in the schema's order."""
    wanted = set(columns)
    for plan in plans:
        wanted.update(*(query.columns for query in plan.queries), *(f.columns for f in plan.features.features))
        wanted.update(*(layout.ordering_columns for layout in plan.scheme.layouts))
        wanted.update([] if plan.partition_by is None else [plan.partition_by])
    return tuple(name for name in plans[0].schema.names if name in wanted)


def narrow_plan(plan: Plan, names: Sequence[str]) -> Plan:
    """Return the plan of a table of these columns, without layouts that would have none."""
    layouts = [
        Layout(
            tuple(name for name in layout.columns if name in names),
            layout.features,
            tuple(name for name in layout.master if name in names),
            layout.blocking,
            layout.guides,
            layout.serves,
            tuple(name for name in layout.row_order if name in names),
        )
        for layout in plan.scheme.layouts
    ]
    scheme = Scheme(tuple(layout for layout in layouts if layout.columns))
    indexes = tuple(index for index in plan.indexes if index.subject.columns <= set(names))
    return replace(plan, schema=plan.schema.select(names), scheme=scheme, indexes=indexes)


def _write_job(plan: Plan, keys: tuple[str, ...], numbers: tuple[int, ...]) -> WriteJob:
    return WriteJob(
        plan=plan,
        shares=feature_shares(plan.features, plan.queries),
        root="rehearsed",
        load_id=new_load_id(),
        first_block=0,
        keys=keys,
        numbers=numbers,
        rehearsal=True,
    )


def _measure_segment(jobs: Sequence[WriteJob], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield a row with a segment's blocks for each plan, from all of its rows; the body of ``mapInArrow``."""
    widest = max((job.plan for job in jobs), key=lambda plan: len(plan.features))
    segment = gather_segment(widest, batches)
    if segment is None:
        return
    for number, job in enumerate(jobs):
        # A plan without features has vectors of zeros.
        words = segment.words if len(job.plan.features) else np.zeros((len(segment.words), 1), dtype=np.uint64)
        blocks, _ = write_layouts(job, replace(segment, words=words))
        yield pa.RecordBatch.from_arrays(
            [pa.array([number], pa.int32()), pa.array([to_arrow_stream(blocks)])], schema=_RESULT
        )


def dry_run_catalog(plan: Plan, job: WriteJob, blocks: pa.Table) -> Catalog:
    """Return the catalog that a commit of these blocks would leave, without partition values."""
    snapshot = Snapshot(
        number=0,
        parent=None,
        created_at="1970-01-01T00:00:00.000000+00:00",
        operation="rehearsal",
        load_id=job.load_id,
        schema=plan.schema,
        partition_by=plan.partition_by,
        partitions=partition_entries(blocks, plan, job.load_id, dict.fromkeys(job.keys)),
    )
    return Catalog.rehearsed(snapshot, plan, BlockTable.from_arrow(blocks, plan))
