"""Rehearsing a load: every block is made and measured, nothing is written.

What queries would scan (rows, cells, tids, blocks) is exactly what the loaded table would give: the tasks are those of
a load up to the point where it writes. Bytes are estimated from an encoded sample of each file.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from layoutopt.catalog.blocks import BlockTable, block_schema
from layoutopt.catalog.entries import partition_entries
from layoutopt.catalog.paths import new_load_id, partition_key
from layoutopt.catalog.snapshot import Snapshot
from layoutopt.catalog.table import Catalog
from layoutopt.features.weights import feature_shares
from layoutopt.model.layout import Plan
from layoutopt.model.vectors import words_for
from layoutopt.scan.table import Table
from layoutopt.spark.failures import clear_failures
from layoutopt.spark.featurize import feature_words
from layoutopt.spark.segments import SEGMENT, count_chunks, cut_segments, in_input_order, with_positions, with_segments
from layoutopt.spark.session import check_settings, compiled_in_parts
from layoutopt.spark.source import check_partition_column, conformed, open_source
from layoutopt.spark.write_task import RESULT_SCHEMA, WriteJob, write_segment


def rehearse(spark: SparkSession, source: DataFrame | str | Path, plan: Plan) -> Table:
    """The table that a load of the whole source would make, to be evaluated; it has no files to read.

    Raises:
        SourceError, SchemaError, SettingError, BoundError: as :func:`layoutopt.spark.load.load`.
    """
    check_settings(spark, plan.settings, "the plan")
    rows = conformed(open_source(spark, source), plan.schema)
    check_partition_column(rows, plan.partition_by)
    positioned = with_positions(rows)
    name = "DataFrame" if isinstance(source, DataFrame) else repr(str(source))
    with clear_failures(name), compiled_in_parts(spark):
        chunks = count_chunks(positioned, plan.partition_by, plan.segment_rows)
        segments = cut_segments(chunks, plan.segment_rows, in_input_order)
        keys = tuple("all" if plan.partition_by is None else partition_key(segment.value) for segment in segments)
        job = WriteJob(
            plan=plan,
            shares=feature_shares(plan.features, plan.queries),
            root="rehearsed",
            load_id=new_load_id(),
            first_block=0,
            keys=keys,
            numbers=tuple(segment.number for segment in segments),
            rehearsal=True,
        )
        routed = with_segments(spark, positioned, segments, plan.partition_by)
        by_segment = feature_words(routed, plan.features.features).repartitionById(max(1, len(segments)), SEGMENT)
        result = by_segment.mapInArrow(partial(write_segment, job), RESULT_SCHEMA).toArrow()
    tables = [pa.ipc.open_stream(stream).read_all() for stream in result["blocks"].to_pylist()]
    empty = block_schema(plan.schema, words_for(len(plan.features))).empty_table()
    return Table(_catalog(plan, job, pa.concat_tables([empty, *tables])))


def _catalog(plan: Plan, job: WriteJob, blocks: pa.Table) -> Catalog:
    """The catalog that a commit of these blocks would leave. Partition values play no part in an evaluation."""
    entries = partition_entries(blocks, plan, job.load_id, dict.fromkeys(job.keys))
    snapshot = Snapshot(
        number=0,
        parent=None,
        created_at="1970-01-01T00:00:00.000000+00:00",
        operation="rehearsal",
        load_id=job.load_id,
        schema=plan.schema,
        partition_by=plan.partition_by,
        partitions=entries,
    )
    return Catalog.rehearsed(snapshot, plan, BlockTable.from_arrow(blocks, plan))
