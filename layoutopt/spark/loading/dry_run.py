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

from layoutopt.catalog.partition_names import PartitionNames
from layoutopt.catalog.paths import new_load_id
from layoutopt.features.weights import feature_shares
from layoutopt.indexes.measuring import blocks_with_indexes
from layoutopt.model.layout import Plan
from layoutopt.model.schema import POSITION, SEGMENT
from layoutopt.scan.table import Table
from layoutopt.sources.segments import cut_segments
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.featurize import with_feature_words
from layoutopt.spark.core.segments import count_chunks, with_positions, with_segments
from layoutopt.spark.core.sessions import check_settings, limit_method_size
from layoutopt.spark.core.source import check_partition_column, conform_columns, open_source
from layoutopt.spark.core.versions import to_arrow
from layoutopt.spark.core.workers import map_segments
from layoutopt.writer.dry_run import dry_run_catalog, narrow_plan, needed_columns
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
        result = to_arrow(map_segments(featurised, len(segments), partial(_measure_segment, jobs), _RESULT_SCHEMA))
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
