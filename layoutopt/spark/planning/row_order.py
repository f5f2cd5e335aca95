"""The order of rows within blocks (:mod:`layoutopt.writer.row_order`): asked for, or found on a segment of the source.

Which order compresses best depends on how alike the rows of a block are, so none can be chosen on rows drawn at
random, nor on blocks of a sample, which are smaller than a load's, or wider in their values. So whole segments of the
source are rehearsed (:mod:`layoutopt.spark.planning.segment_evaluation`), and a few of their blocks, drawn by the bytes
that the training queries read of them, are encoded in many orders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from layoutopt.catalog.keys import one_chunk
from layoutopt.catalog.statistics import with_bytes
from layoutopt.errors import SchemaError
from layoutopt.methods.interface import PlanRequest
from layoutopt.methods.registry import is_peer
from layoutopt.model.arrays import Floats, Ints
from layoutopt.model.layout import Plan, Scheme
from layoutopt.model.schema import BLOCK, TID, Schema
from layoutopt.model.values import key_kind
from layoutopt.scan.prune import PrunedPlan
from layoutopt.scan.table import Table
from layoutopt.spark.loading.dry_run import rehearsed_catalog
from layoutopt.writer.row_order import FoundOrder, ReadBlock, find_row_order
from layoutopt.writer.segment import GatheredSegment
from layoutopt.writer.task import WHOLE, RoutedFile, WriteJob, content_of, of_blocks, rehearsed_sizes, write_file

AUTO: Final = "auto"
NONE: Final = "none"

_ENCODED_BLOCKS: Final = 4
"""Blocks of a layout that are encoded in every order that is tried."""


def found_order(request: PlanRequest, schema: Schema) -> tuple[str, ...] | None:
    """The order of rows asked for, with columns named as the schema does.

    Raises:
        SchemaError: there is no such column, or its type has no order.
    """
    asked = request.row_order
    if asked is None or asked in ((AUTO,), (NONE,)):
        return asked
    columns = [schema.find(name) for name in asked]
    for column in columns:
        if key_kind(column.type) is None:
            raise SchemaError(f"rows can't be sorted by {column.name!r}, whose type is {column.type!r}; leave it out")
    return tuple(dict.fromkeys(column.name for column in columns))


def is_searched(request: PlanRequest) -> bool:
    """Whether the order of rows is to be found."""
    return (request.row_order or ((NONE,) if is_peer(request.method) else (AUTO,))) == (AUTO,)


def with_order_asked(plan: Plan, request: PlanRequest) -> Plan:
    """The plan with the columns that its request names for the order of rows, in each layout those that it has."""
    asked = request.row_order
    if asked is None or asked in ((AUTO,), (NONE,)):
        return plan
    return with_orders(plan, [[name for name in asked if name in each.columns] for each in plan.scheme.layouts])


def with_orders(plan: Plan, orders: Sequence[Sequence[str]]) -> Plan:
    """The plan with an order of rows for each layout."""
    layouts = zip(plan.scheme.layouts, orders, strict=True)
    return replace(plan, scheme=Scheme(tuple(replace(each, row_order=tuple(order)) for each, order in layouts)))


def measured_files(job: WriteJob, segment: GatheredSegment, files: Sequence[RoutedFile]) -> list[pa.Table]:
    """The blocks of each file of a segment that is rehearsed, as :func:`layoutopt.writer.task.write_file` has them."""
    return [write_file(job, segment, file) for file in files]


def measured_again(
    job: WriteJob, segment: GatheredSegment, files: Sequence[RoutedFile], measured: Sequence[pa.Table]
) -> list[pa.Table]:
    """The blocks of each file with the rows of each in another order: but for the bytes, all is as it was measured."""
    pairs = zip(files, measured, strict=True)
    return [_with_sizes(blocks, job, rehearsed_sizes(job, segment, file)) for file, blocks in pairs if len(blocks)]


def _with_sizes(blocks: pa.Table, job: WriteJob, sizes: Mapping[str, Ints]) -> pa.Table:
    tids = sizes.get(TID, np.zeros(len(blocks), dtype=np.int64))
    stats = with_bytes(one_chunk(blocks["stats"]), job.plan.schema, sizes)
    for name, values in (("bytes", sum(sizes.values())), ("tid_bytes", tids), ("stats", stats)):
        place = blocks.column_names.index(name)
        blocks = blocks.set_column(place, blocks.field(place), pa.array(values, blocks.field(place).type))
    return blocks


def rehearsed_table(job: WriteJob, measured: Sequence[pa.Table]) -> Table:
    """The table that would have the files of one segment alone, from what was measured of each."""
    return Table(rehearsed_catalog(job.plan, job, pa.concat_tables(measured)))


def row_orders_of(
    job: WriteJob, segment: GatheredSegment, files: Sequence[RoutedFile], table: Table, pruned: Sequence[PrunedPlan]
) -> Mapping[int, FoundOrder]:
    """By layout that is read the order of rows found for it, on one segment.

    Args:
        job: of a rehearsal; its plan has no order of rows yet.
        segment: its rows.
        files: the segment's, layout by layout.
        table: the one that they would make.
        pruned: what each of the plan's queries reads of it.
    """
    reads, sizes = reads_of(table, job.plan, pruned), _chunk_bytes(table, job.plan)
    found, blocks = {}, table.sources[0].blocks
    for index in range(len(job.plan.scheme.layouts)):
        # Blocks of the rows that a layout has for others alone hold fewer columns, and few rows.
        mine = (blocks.layout == index) & (blocks.part == WHOLE)
        of_layout = [file for file in files if file.layout == index and file.part == WHOLE]
        if read := _read_blocks(job, segment, of_layout, reads[mine], sizes[mine]):
            found[index] = find_row_order(read, job.plan.schema, job.plan.codec)
    return found


def _chunk_bytes(table: Table, plan: Plan) -> Floats:
    """The bytes of each block's chunks, ``float64[n_blocks, columns + 1]``, the last of tids; 0 where it has none."""
    blocks = table.sources[0].blocks
    columns = [np.asarray(blocks.column_bytes(name), dtype=np.float64) for name in plan.schema.names]
    return np.maximum(np.column_stack([*columns, blocks.tid_bytes]), 0.0)


def reads_of(table: Table, plan: Plan, of_queries: Sequence[PrunedPlan]) -> Floats:
    """How often the plan's queries read each block's chunks, ``float64[n_blocks, columns + 1]``, the last of tids."""
    place = {name: i for i, name in enumerate((*plan.schema.names, TID))}
    (source,) = table.sources
    reads = np.zeros((source.blocks.n, len(place)))
    for query, pruned in zip(plan.queries, of_queries, strict=True):
        tids = [TID] if len(pruned.choice) > 1 else []
        for choice in pruned.choice:
            blocks = np.flatnonzero(pruned.read & (source.blocks.layout == choice.layout))
            chunks = np.array([place[name] for name in (*choice.columns, *tids)], dtype=np.int64)
            reads[np.ix_(blocks, chunks)] += query.weight
    return reads


def _read_blocks(
    job: WriteJob, segment: GatheredSegment, files: Sequence[RoutedFile], reads: Floats, sizes: Floats
) -> list[ReadBlock]:
    """Some blocks of a layout, drawn evenly along the bytes that are read of its blocks; each counts for as many.

    Args:
        job: the rehearsal.
        segment: its rows.
        files: the layout's.
        reads: of its blocks, file by file, how often each chunk is read, ``float64[n, columns + 1]``.
        sizes: the chunks' bytes, ``float64[n, columns + 1]``.
    """
    read_bytes = (reads * sizes).sum(axis=1)
    up_to = np.cumsum(read_bytes)
    if not len(up_to) or not up_to[-1]:
        return []
    at = (np.arange(_ENCODED_BLOCKS) + 0.5) / _ENCODED_BLOCKS * up_to[-1]
    drawn, times = np.unique(np.searchsorted(up_to, at), return_counts=True)
    blocks = [(file, i) for file in files for i in range(len(file.routing.offsets) - 1)]
    names = (*job.plan.schema.names, TID)
    found = []
    for number, count in zip(drawn.tolist(), times.tolist(), strict=True):
        file, block = blocks[number]
        rows = content_of(job.plan, segment.table, of_blocks(file, [block])).drop_columns([BLOCK])
        weights = reads[number] * (count / read_bytes[number])
        found.append(ReadBlock(rows, {name: float(weights[i]) for i, name in enumerate(names) if weights[i]}))
    return found
