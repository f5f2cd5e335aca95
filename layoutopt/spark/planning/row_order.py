"""The order of rows within blocks (:mod:`layoutopt.writer.row_order`), chosen while planning.

Which order compresses best depends on how alike the rows of a block are, so none can be chosen on rows drawn at
random, nor on blocks of a sample, which are smaller than a load's, or wider in their values. So one segment of the
source, that which holds the table's middle row, is routed to blocks by the very code of a load, in a task as large as
one of a load. A few of its blocks, drawn by the bytes that the training queries read of them, are encoded in many
orders.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from layoutopt.catalog.paths import new_load_id
from layoutopt.errors import LayoutoptError, SchemaError, carried
from layoutopt.features.weights import feature_shares
from layoutopt.methods.proposals import PlanRequest
from layoutopt.methods.registry import is_peer
from layoutopt.model.arrays import Floats
from layoutopt.model.columns import BLOCK, POSITION, SEGMENT, TID, word_names
from layoutopt.model.layout import Plan, Scheme
from layoutopt.model.schema import Schema
from layoutopt.model.types import quoted
from layoutopt.model.values import key_kind
from layoutopt.scan.table import Table
from layoutopt.spark.core.featurize import feature_words
from layoutopt.spark.core.partition_values import of_partitions
from layoutopt.spark.core.segments import Segment, count_chunks, cut_segments, with_positions, with_segments
from layoutopt.spark.core.sessions import compiled_in_parts
from layoutopt.spark.core.tasks import map_segments
from layoutopt.spark.loading.rehearse import narrowed, needed_columns, rehearsed_catalog
from layoutopt.spark.planning.histograms import Progress
from layoutopt.writer.gather import GatheredSegment, gather_segment
from layoutopt.writer.order_search import FoundOrder, ReadBlock, find_row_order
from layoutopt.writer.routing import Routing
from layoutopt.writer.task import RoutedFile, WriteJob, content_of, route_segment, write_file

AUTO: Final = "auto"
NONE: Final = "none"

_ENCODED_BLOCKS: Final = 4
"""Blocks of a layout that are encoded: with two, orders were chosen that others did not gain by."""

_RESULT_SCHEMA = "layout int, columns array<string>, share double"
_RESULT = pa.schema([("layout", pa.int32()), ("columns", pa.list_(pa.string())), ("share", pa.float64())])


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


def with_row_order(rows: DataFrame, plan: Plan, request: PlanRequest, say: Progress) -> Plan:
    """The plan with the order of rows that is asked for.

    Args:
        rows: the source.
        plan: without one.
        request: ``row_order`` has columns, or ``auto`` or ``none`` alone; None is ``auto``, but for peers ``none``.
        say: told where an order is searched for.
    """
    asked = request.row_order or ((NONE,) if is_peer(request.method) else (AUTO,))
    if asked == (NONE,):
        return plan
    if asked != (AUTO,):
        layouts = plan.scheme.layouts
        return _ordered(plan, {i: [name for name in asked if name in each.columns] for i, each in enumerate(layouts)})
    say("choosing the order of rows within blocks")
    return _ordered(plan, {layout: order.columns for layout, order in find_row_orders(rows, plan).items()})


def find_row_orders(rows: DataFrame, plan: Plan) -> dict[int, FoundOrder]:
    """By layout the order that lets the training queries read the fewest bytes; none where nothing is read or gained.

    Args:
        rows: the source.
        plan: with its queries.
    """
    held = needed_columns([plan], ())
    kept = [i for i, layout in enumerate(plan.scheme.layouts) if not set(held).isdisjoint(layout.columns)]
    segment, of_segment = _middle_segment(rows, plan)
    if segment is None or not kept:
        return {}
    small = narrowed(plan, held)
    shares = feature_shares(plan.features, plan.queries)
    job = WriteJob(small, shares, "sampled", new_load_id(), 0, ("middle",), (0,), rehearsal=True)
    wanted = (*held, POSITION, SEGMENT, *word_names(len(plan.features)))
    with compiled_in_parts(rows.sparkSession):
        words = feature_words(of_segment, plan.features.features).select(*(quoted(name) for name in wanted))
        found = map_segments(words, 1, partial(_search_segment, job), _RESULT_SCHEMA).toArrow().to_pylist()
    return {kept[row["layout"]]: FoundOrder(tuple(row["columns"]), row["share"]) for row in found}


def _ordered(plan: Plan, orders: dict[int, Sequence[str]]) -> Plan:
    layouts = [replace(each, row_order=tuple(orders.get(i, ()))) for i, each in enumerate(plan.scheme.layouts)]
    return replace(plan, scheme=Scheme(tuple(layouts)))


def _middle_segment(rows: DataFrame, plan: Plan) -> tuple[Segment | None, DataFrame]:
    """The segment that holds the table's middle row, by partition and then the source's order, and its rows."""
    positioned = with_positions(rows)
    segments = cut_segments(count_chunks(positioned, plan.partition_by, plan.segment_rows), plan.segment_rows)
    if not segments:
        return None, positioned
    up_to = np.cumsum([segment.rows for segment in segments])
    middle = segments[int(np.searchsorted(up_to, (int(up_to[-1]) + 1) // 2))]
    alone = replace(middle, id=0)
    if plan.partition_by is not None and sum(each.value == middle.value for each in segments) == 1:
        # Asked of the files themselves, so that others are not read; its rows then have other positions.
        positioned = with_positions(of_partitions(rows, plan.partition_by, [middle.value]))
    return middle, with_segments(rows.sparkSession, positioned, [alone], plan.partition_by)


def _search_segment(job: WriteJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The body of ``mapInArrow``: all rows of the segment in, a row with the order of each layout that is read out."""
    try:
        segment = gather_segment(job.plan, batches)
        if segment is not None:
            found = row_orders_of(job, segment)
            orders = list(found.values())
            values = [list(found), [list(order.columns) for order in orders], [order.share for order in orders]]
            arrays = [pa.array(value, field.type) for value, field in zip(values, _RESULT, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=_RESULT)
    except LayoutoptError as error:
        raise carried(error) from error


def row_orders_of(job: WriteJob, segment: GatheredSegment) -> dict[int, FoundOrder]:
    """By layout that is read the order of rows found for it, on one segment.

    Args:
        job: of a rehearsal; its plan has no order of rows yet.
        segment: its rows.
    """
    files = list(route_segment(job, segment))
    measured = pa.concat_tables([write_file(job, segment, file) for file in files])
    table = Table(rehearsed_catalog(job.plan, job, measured))
    reads, sizes = reads_of(table, job.plan), _chunk_bytes(table, job.plan)
    found = {}
    for index in range(len(job.plan.scheme.layouts)):
        mine = np.asarray(measured["layout"]) == index
        of_layout = [file for file in files if file.layout == index]
        if read := _read_blocks(job, segment, of_layout, reads[mine], sizes[mine]):
            found[index] = find_row_order(read, job.plan.schema, job.plan.codec)
    return found


def _chunk_bytes(table: Table, plan: Plan) -> Floats:
    """The bytes of each block's chunks, ``float64[n_blocks, columns + 1]``, the last of tids; 0 where it has none."""
    blocks = table.sources[0].blocks
    columns = [np.asarray(blocks.column_bytes(name), dtype=np.float64) for name in plan.schema.names]
    return np.maximum(np.column_stack([*columns, blocks.tid_bytes]), 0.0)


def reads_of(table: Table, plan: Plan) -> Floats:
    """How often the training queries read each block's chunks, ``float64[n_blocks, columns + 1]``, the last of tids."""
    place = {name: i for i, name in enumerate((*plan.schema.names, TID))}
    (source,) = table.sources
    reads = np.zeros((source.blocks.n, len(place)))
    for query in plan.queries:
        (pruned,) = table.prune(query.filter.root, query.columns)
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
        rows = content_of(job.plan, segment.table, _alone(*blocks[number])).drop_columns([BLOCK])
        weights = reads[number] * (count / read_bytes[number])
        found.append(ReadBlock(rows, {name: float(weights[i]) for i, name in enumerate(names) if weights[i]}))
    return found


def _alone(file: RoutedFile, block: int) -> RoutedFile:
    """A file of one of its blocks."""
    start, stop = file.routing.offsets[block : block + 2].tolist()
    rows = file.routing.rows[start:stop]
    return replace(file, routing=Routing(rows, np.array([0, len(rows)], dtype=np.int64)))
