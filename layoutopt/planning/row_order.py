"""Choose the order of rows within blocks (:mod:`layoutopt.writer.row_order`): as requested, or found on a segment.

Which order compresses best depends on how alike the rows of a block are. Rows drawn at random can't show that, nor
blocks of a sample, which are smaller than a load's, or wider in their values. So whole segments of the source are
measured (:mod:`layoutopt.planning.segment_evaluation`), and a few of their blocks, drawn by the bytes that the
training queries read of them, are encoded in many orders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from layoutopt.catalog.statistics import with_bytes
from layoutopt.errors import SchemaError
from layoutopt.evaluation.keys import one_chunk
from layoutopt.methods.interface import PlanRequest
from layoutopt.methods.registry import is_peer
from layoutopt.model.arrays import Floats
from layoutopt.model.layout import Plan, Scheme
from layoutopt.model.methods import AUTO
from layoutopt.model.schema import BLOCK, TID, Schema
from layoutopt.model.values import key_kind
from layoutopt.scan.prune import PrunedPlan
from layoutopt.scan.table import Table
from layoutopt.writer.dry_run import dry_run_catalog
from layoutopt.writer.row_order import ReadBlock, RowOrder, find_row_order
from layoutopt.writer.segment import GatheredSegment
from layoutopt.writer.task import (
    WHOLE,
    RoutedFile,
    WriteJob,
    estimate_file_sizes,
    select_blocks,
    take_content,
    write_file,
)

NONE: Final = "none"

# Blocks of a layout that are encoded in every order that is tried.
_ENCODED_BLOCKS: Final = 4


def resolve_row_order(request: PlanRequest, schema: Schema) -> tuple[str, ...] | None:
    """Return the requested order of rows, with columns named as in the schema.

    Raises:
        SchemaError: there is no such column, or its type has no order.
    """
    order = request.row_order
    if order is None or order in ((AUTO,), (NONE,)):
        return order
    columns = [schema.find(name) for name in order]
    for column in columns:
        if key_kind(column.type) is None:
            raise SchemaError(f"rows can't be sorted by {column.name!r}, whose type is {column.type!r}; leave it out")
    return tuple(dict.fromkeys(column.name for column in columns))


def is_order_searched(request: PlanRequest) -> bool:
    """Whether the order of rows is to be found."""
    return (request.row_order or ((NONE,) if is_peer(request.method) else (AUTO,))) == (AUTO,)


def with_requested_order(plan: Plan, request: PlanRequest) -> Plan:
    """Return the plan with the columns that the request sorts rows by, in each layout those that it has."""
    order = request.row_order
    if order is None or order in ((AUTO,), (NONE,)):
        return plan
    return with_orders(plan, [[name for name in order if name in layout.columns] for layout in plan.scheme.layouts])


def with_orders(plan: Plan, orders: Sequence[Sequence[str]]) -> Plan:
    """Return the plan with an order of rows for each layout."""
    layouts = zip(plan.scheme.layouts, orders, strict=True)
    return replace(plan, scheme=Scheme(tuple(replace(layout, row_order=tuple(order)) for layout, order in layouts)))


def measure_files(job: WriteJob, segment: GatheredSegment, files: Sequence[RoutedFile]) -> list[pa.Table]:
    """Measure the blocks of each file of a dry run, as :func:`layoutopt.writer.task.write_file` does."""
    return [write_file(job, segment, file) for file in files]


def measure_reordered(
    job: WriteJob, segment: GatheredSegment, files: Sequence[RoutedFile], measured: Sequence[pa.Table]
) -> list[pa.Table]:
    """Measure the blocks of files after their rows were reordered, of which only the bytes differ."""
    tables = []
    for file, blocks in zip(files, measured, strict=True):
        if len(blocks):
            sizes = estimate_file_sizes(job, segment, file)
            tids = sizes.get(TID, np.zeros(len(blocks), dtype=np.int64))
            stats = with_bytes(one_chunk(blocks["stats"]), job.plan.schema, sizes)
            for name, values in (("bytes", sum(sizes.values())), ("tid_bytes", tids), ("stats", stats)):
                place = blocks.column_names.index(name)
                blocks = blocks.set_column(place, blocks.field(place), pa.array(values, blocks.field(place).type))
            tables.append(blocks)
    return tables


def dry_run_table(job: WriteJob, measured: Sequence[pa.Table]) -> Table:
    """Return the table that would have the measured files of one segment alone."""
    return Table(dry_run_catalog(job.plan, job, pa.concat_tables(measured)))


def find_row_orders(
    job: WriteJob, segment: GatheredSegment, files: Sequence[RoutedFile], table: Table, pruned: Sequence[PrunedPlan]
) -> Mapping[int, RowOrder]:
    """Find the order of rows of each layout that is read, on one segment of a dry run without orders.

    ``table`` would be made of the segment's ``files``; ``pruned`` is what each of the plan's queries reads of it.
    """
    reads, sizes = count_reads(table, job.plan, pruned), _chunk_bytes(table, job.plan)
    orders, blocks = {}, table.sources[0].blocks
    for index in range(len(job.plan.scheme.layouts)):
        # Other parts of a layout have rows for other layouts alone: fewer columns, and few rows.
        in_layout = (blocks.layout == index) & (blocks.part == WHOLE)
        layout_files = [file for file in files if file.layout == index and file.part == WHOLE]
        if drawn := _draw_blocks(job, segment, layout_files, reads[in_layout], sizes[in_layout]):
            orders[index] = find_row_order(drawn, job.plan.schema, job.plan.codec)
    return orders


def _chunk_bytes(table: Table, plan: Plan) -> Floats:
    """Return the bytes of each block's chunks, ``float64[n_blocks, columns + 1]``, the last of tids; 0 for none."""
    blocks = table.sources[0].blocks
    columns = [np.asarray(blocks.column_bytes(name), dtype=np.float64) for name in plan.schema.names]
    return np.maximum(np.column_stack([*columns, blocks.tid_bytes]), 0.0)


def count_reads(table: Table, plan: Plan, pruned_plans: Sequence[PrunedPlan]) -> Floats:
    """Count how often the plan's queries read each block's chunks, ``float64[n_blocks, columns + 1]``, tids last."""
    place = {name: i for i, name in enumerate((*plan.schema.names, TID))}
    (source,) = table.sources
    reads = np.zeros((source.blocks.n, len(place)))
    for query, pruned in zip(plan.queries, pruned_plans, strict=True):
        tids = [TID] if len(pruned.choice) > 1 else []
        for choice in pruned.choice:
            blocks = np.flatnonzero(pruned.read & (source.blocks.layout == choice.layout))
            chunks = np.array([place[name] for name in (*choice.columns, *tids)], dtype=np.int64)
            reads[np.ix_(blocks, chunks)] += query.weight
    return reads


def _draw_blocks(
    job: WriteJob, segment: GatheredSegment, files: Sequence[RoutedFile], reads: Floats, sizes: Floats
) -> list[ReadBlock]:
    """Draw some blocks of a layout evenly along the bytes that are read of its blocks; each is weighted accordingly.

    ``reads`` and ``sizes`` are how often each chunk is read and its bytes, ``float64[n, columns + 1]``.
    """
    read_bytes = (reads * sizes).sum(axis=1)
    up_to = np.cumsum(read_bytes)
    if not len(up_to) or not up_to[-1]:
        return []
    targets = (np.arange(_ENCODED_BLOCKS) + 0.5) / _ENCODED_BLOCKS * up_to[-1]
    numbers, counts = np.unique(np.searchsorted(up_to, targets), return_counts=True)
    blocks = [(file, i) for file in files for i in range(len(file.routing.offsets) - 1)]
    names = (*job.plan.schema.names, TID)
    drawn = []
    for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
        file, block = blocks[number]
        rows = take_content(job.plan, segment.table, select_blocks(file, [block])).drop_columns([BLOCK])
        weights = reads[number] * (count / read_bytes[number])
        drawn.append(ReadBlock(rows, {name: float(weights[i]) for i, name in enumerate(names) if weights[i]}))
    return drawn
