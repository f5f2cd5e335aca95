"""Dry runs of loads: every block is made and measured, nothing is written.

What queries would scan (rows, cells, tids, blocks) equals that of the loaded table: the tasks are those of a load up to
the point where it writes. Bytes are estimated from an encoded sample of each file. Plans that cut the source into the
same segments share one pass, which may be limited to the columns that queries read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from layoutopt.catalog.partition_names import PartitionNames
from layoutopt.catalog.paths import new_load_id
from layoutopt.features.weights import feature_shares
from layoutopt.indexes.measuring import blocks_with_indexes
from layoutopt.model.layout import Plan
from layoutopt.scan.table import Table
from layoutopt.sources.segments import Segment, cut_segments
from layoutopt.sources.source import Source
from layoutopt.writer.dry_run import dry_run_catalog, narrow_plan, needed_columns
from layoutopt.writer.segment import FindWords, gather_segment
from layoutopt.writer.task import WriteJob, write_layouts


def dry_run_loads(
    source: Source,
    plans: Sequence[Plan],
    columns: Iterable[str] | None = None,
    segments: Sequence[Segment] | None = None,
    keys: Sequence[str] | None = None,
) -> list[Table]:
    """Return the tables that loads by several plans would make, to be evaluated; they have no files to read.

    Args:
        source: of the plans; it is closed.
        plans: of the same source, partitions and ``segment_rows``; their features are the same, or none.
        columns: of the tables, beside those that the plans need; all when None. A query of these columns scans what it
            would scan in a table of all columns.
        segments: of the source; None cuts all of it as a load does.
        keys: the partition key of each segment; by default that of its value.

    Raises:
        ValueError: the plans cut the source into different segments, or have different features.
        LayoutoptError: as :meth:`~layoutopt.sources.source.Source.map_segments`.
    """
    first = _check_plans(plans)
    names = first.schema.names if columns is None else needed_columns(plans, columns)
    if columns is not None:
        plans = [narrow_plan(plan, names) for plan in plans]
    with closing(source):
        if segments is None:
            segments = cut_segments(source.chunks(first.segment_rows), first.segment_rows)
        if keys is None:
            partitions = PartitionNames.of(first.schema, first.partition_by)
            keys = [partitions.key(segment.value) for segment in segments]
        jobs = [_make_job(plan, keys, segments) for plan in plans]
        task = partial(_measure_segment, jobs, source.make_rest_evaluator(first.settings))
        results = source.map_segments(segments, task, columns=None if source.carries_words else names)
    tables = [[blocks_with_indexes(plan).empty_table()] for plan in plans]
    for result in results:
        for blocks, measured in zip(tables, result or (), strict=False):
            blocks.append(measured)
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


def _make_job(plan: Plan, keys: Sequence[str], segments: Sequence[Segment]) -> WriteJob:
    shares, numbers = feature_shares(plan.features, plan.queries), tuple(segment.number for segment in segments)
    return WriteJob(plan, shares, "rehearsed", new_load_id(), 0, tuple(keys), numbers, rehearsal=True)


def _measure_segment(
    jobs: Sequence[WriteJob], evaluate_rest: FindWords | None, number: int, batches: Iterable[pa.RecordBatch]
) -> list[pa.Table] | None:
    """Return a segment's blocks by each plan; None without rows."""
    widest = max((job.plan for job in jobs), key=lambda plan: len(plan.features))
    segment = gather_segment(widest, batches, evaluate_rest=evaluate_rest)
    if segment is None:
        return None
    # A plan without features has vectors of zeros.
    nothing = replace(segment, words=np.zeros((len(segment.words), 1), dtype=np.uint64))
    return [write_layouts(job, segment if len(job.plan.features) else nothing)[0] for job in jobs]
