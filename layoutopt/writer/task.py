"""Run one task of a load: gather a segment, route its rows, write and measure the files of each layout.

Tasks run in Spark's Python workers (``mapInArrow``), possibly several times for one segment (retry, speculation). Each
attempt writes files under its own names; a commit names only the files of the attempt that Spark kept. Memory follows
``segment_rows``: the segment in Arrow, and one copy of it in the order of its blocks.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.block_index import INDEXES
from layoutopt.catalog.paths import data_path
from layoutopt.catalog.statistics import block_statistics, with_bytes
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.footers import FooterKeeper, footer_digest
from layoutopt.errors import TableError
from layoutopt.evaluation.checksum import (
    Positions,
    is_hashable,
    scramble_words,
    sum_with_positions,
    sums_by_block,
    value_hashes,
)
from layoutopt.evaluation.expressions import is_stored
from layoutopt.indexes.measuring import blocks_with_indexes, measure_indexes
from layoutopt.model.arrays import Floats, Ints
from layoutopt.model.layout import MIN_ROWS, ByVectors, Plan, Scheme
from layoutopt.model.predicates import Call, Col, Const, Expr
from layoutopt.model.schema import BLOCK, TID, Column
from layoutopt.writer.encodings import (
    Encodings,
    blocks_to_encode,
    choose_encodings,
    column_bytes,
    estimate_sizes,
    list_chunks,
    row_group_starts,
)
from layoutopt.writer.routing import (
    CellRows,
    Routing,
    blocking_key,
    cut_equally,
    feature_guides,
    find_guides,
    is_guided_by_queries,
    measure_cell_bytes,
    present_rows,
    route,
    route_to_one_block,
    union_words,
    weigh_reaching_queries,
)
from layoutopt.writer.row_order import sort_block_rows
from layoutopt.writer.segment import POOL, FindWords, GatheredSegment, gather_segment
from layoutopt.writer.task_result import TaskResult

if TYPE_CHECKING:
    from layoutopt.encryption.table_keys import TableKeys


# Rows of a page where pages are indexed; otherwise a chunk of a block is a single page.
PAGE_ROWS: Final = 1_000
# The share of false positives of a Bloom filter.
FALSE_POSITIVES: Final = 0.01
_EQUALITY_KINDS: Final = frozenset({"bloom", "hybrid", "value-list"})

# Few rows are cut into this many blocks, unless blocks become smaller than :data:`SMALLEST`.
FEWEST_BLOCKS: Final = 12
# Rows of a block below which its own overhead exceeds what it saves.
SMALLEST: Final = 250
WHOLE, REST = 0, 1


def parquet_index_options(plan: Plan, schema: pa.Schema, offsets: Ints) -> dict[str, Any]:
    """Return the arguments of ``pyarrow.parquet.ParquetWriter`` for Parquet's own indexes, for other engines.

    ``offsets`` are where the blocks of the file begin, ``int64[n_blocks + 1]``. Bloom filters are on columns of the
    plan's indexes that serve equality.
    """
    options: dict[str, Any] = {}
    if "page" in plan.parquet_indexes:
        options |= {"write_page_index": True, "max_rows_per_page": PAGE_ROWS}
    if "bloom" in plan.parquet_indexes:
        max_block_rows = int(np.diff(offsets).max(initial=1))  # the filter is folded to what a block's values need
        filters = {path: {"ndv": max_block_rows, "fpp": FALSE_POSITIVES} for path in _find_bloom_columns(plan, schema)}
        options |= {"bloom_filter_options": filters} if filters else {}
    return options


def _find_bloom_columns(plan: Plan, schema: pa.Schema) -> Iterator[str]:
    for spec in plan.indexes:
        names = _column_path(spec.subject)
        if spec.kind in _EQUALITY_KINDS and names and names[0] in schema.names and _can_have_bloom(schema, names):
            yield ".".join(names)


def _column_path(expr: Expr) -> tuple[str, ...]:
    if isinstance(expr, Col):
        return (expr.name,)
    if isinstance(expr, Call) and is_stored(expr) and isinstance(expr.args[1], Const):
        return (*_column_path(expr.args[0]), str(expr.args[1].value))
    return ()


def _can_have_bloom(schema: pa.Schema, names: tuple[str, ...]) -> bool:
    # Parquet has no Bloom filters of booleans and nested values.
    type = schema.field(names[0]).type
    for name in names[1:]:
        type = type.field(name).type
    type = type.value_type if pa.types.is_dictionary(type) else type
    return not (pa.types.is_boolean(type) or pa.types.is_nested(type) or pa.types.is_null(type))


def shrink_blocks(plan: Plan, scale: float) -> Plan:
    """Return the plan with blocks of ``scale`` times fewer rows."""
    layouts = []
    for layout in plan.scheme.layouts:
        params = dict(layout.blocking.params)
        if isinstance(layout.blocking, ByVectors) and MIN_ROWS in params:
            params[MIN_ROWS] = max(1, round(float(params[MIN_ROWS]) / scale))
            layout = replace(layout, blocking=replace(layout.blocking, params=tuple(params.items())))
        layouts.append(layout)
    return replace(plan, block_rows=max(1, round(plan.block_rows / scale)), scheme=Scheme(tuple(layouts)))


def adapt_to_rows(plan: Plan, rows: int) -> Plan:
    """Return the plan with smaller blocks where ``rows`` are few.

    A single block of a small segment would hold rows of every kind, so every query would read it.
    """
    block_rows = max(min(plan.block_rows, SMALLEST), rows // FEWEST_BLOCKS)
    return plan if block_rows >= plan.block_rows else shrink_blocks(plan, plan.block_rows / block_rows)


@dataclass(frozen=True, eq=False)
class WriteJob:
    """The job that all tasks of a load share; pickled to the executors.

    Attributes:
        shares: how much of each query each feature covers, ``float64[n_queries, f]``.
        root: the table's path or URL.
        first_block: ``_block`` of the load's first block; a segment takes ``blocks_a_segment`` numbers from there.
        keys: each segment's partition key.
        numbers: each segment's number in its partition.
        at: called with ``"segment-written"`` after a segment's files are written; for tests of retries.
        small_segment: whether segments have few rows beside those of others, and get smaller blocks.
        rehearsal: dry run: measure the blocks and estimate bytes, but write no files and no checksums.
        sized: whether a dry run estimates bytes.
        bounded: the columns whose nulls and bounds a dry run measures, besides those of indexes; None for all.
        lent: the table's keys, as :class:`TableFiles` has them.
        only: the layouts to write, by their places; None for all. Rows then need only the columns of these layouts,
            and what guides them.
        also: measures more of a segment; its result is returned as it is.
        evaluate_rest: finds the features that keys don't decide, where the rows don't carry Spark's words for them.
    """

    plan: Plan
    shares: Floats
    root: str
    load_id: str
    first_block: int
    keys: tuple[str, ...]
    numbers: tuple[int, ...]
    at: Callable[[str], None] | None = None
    rehearsal: bool = False
    sized: bool = True
    bounded: frozenset[str] | None = None
    small_segment: bool = False
    lent: tuple[TableKeys, ...] | None = None
    only: tuple[int, ...] | None = None
    also: Callable[[GatheredSegment], bytes] | None = None
    evaluate_rest: FindWords | None = None

    @property
    def blocks_a_segment(self) -> int:
        """Return the most blocks of a segment: one for each row in each layout."""
        return self.plan.segment_rows * len(self.plan.scheme.layouts)


def gather_and_write(job: WriteJob, batches: Iterable[pa.RecordBatch]) -> TaskResult | None:
    """Write the segment that the batches hold and return its result; None without rows.

    Raises:
        TableError: a file can't be written.
        LayoutoptError: the segment is too large, or its rows can't be read.
    """
    segment = gather_segment(job.plan, batches, whole=job.only is None, evaluate_rest=job.evaluate_rest)
    return None if segment is None else write_gathered(job, segment)


def write_gathered(job: WriteJob, segment: GatheredSegment) -> TaskResult:
    """Write a segment's files and return what was measured; raises TableError where a file can't be written."""
    try:
        return write_and_measure(job, segment)
    except OSError as error:
        reason = error.strerror or str(error)
        raise TableError(
            f"the table {job.root!r} can't be written ({reason}); nothing was committed; fix this and retry"
        ) from error


@dataclass(frozen=True, eq=False)
class RoutedFile:
    """A file of a segment before it is written.

    Attributes:
        layout: the place of its layout in the scheme.
        part: 0 for the rows that the layout holds whole, 1 for the rest, of which it stores the master columns.
        columns: the columns that it stores.
        routing: its rows in the order of writing, and their blocks.
        first_block: the number of its first block.
    """

    layout: int
    part: int
    columns: tuple[str, ...]
    routing: Routing
    first_block: int


def route_segment(job: WriteJob, segment: GatheredSegment) -> Iterator[RoutedFile]:
    """Yield the files of a segment, layout by layout, before they are written."""
    plan = adapt_to_rows(job.plan, segment.table.num_rows) if job.small_segment else job.plan

    @cache
    def weigh() -> tuple[Floats, Mapping[str, float] | None]:  # once, where a layout has several blocks
        reached = weigh_reaching_queries(plan.queries, plan.schema, segment.table)
        return reached, None if job.small_segment else measure_cell_bytes(plan, segment.table)

    layouts = [(i, layout) for i, layout in enumerate(plan.scheme.layouts) if job.only is None or i in job.only]
    uses_left = Counter(blocking_key(plan, layout) for _, layout in layouts)
    routed: dict[Hashable, Routing] = {}  # routings that later layouts share
    cells: dict[str, CellRows] = {}
    for index, layout in layouts:
        key = blocking_key(plan, layout)
        routing = routed.pop(key, None) or route_to_one_block(plan, layout, segment.words)
        if routing is None:
            if is_guided_by_queries(plan, layout):
                guides = find_guides(plan, layout, segment.table, segment.words, job.shares, *weigh(), cells)
            else:
                guides = feature_guides(layout, segment.words, plan.features.weights)
            routing = route(plan, layout, segment.table, segment.words, guides)
        uses_left[key] -= 1
        if uses_left[key]:
            routed[key] = routing
        first = job.first_block + segment.id * job.blocks_a_segment + index * plan.segment_rows
        sorted_by = layout.row_order, plan.schema, segment.table
        yield RoutedFile(index, WHOLE, layout.columns, sort_block_rows(routing, *sorted_by), first)
        rest = np.flatnonzero(~present_rows(layout, segment.words))
        if len(rest) and layout.master:
            first += len(routing.offsets) - 1
            routing_of_rest = sort_block_rows(cut_equally(rest, plan.block_rows), *sorted_by)
            yield RoutedFile(index, REST, layout.master, routing_of_rest, first)


def write_layouts(job: WriteJob, segment: GatheredSegment) -> tuple[pa.Table, int]:
    """Write a segment's files; return the table of its blocks, and the most joined vectors of a layout."""
    tables, n_joined = [blocks_with_indexes(job.plan).empty_table()], 0
    for file in route_segment(job, segment):
        tables.append(write_file(job, segment, file))
        n_joined = max(n_joined, file.routing.joined_vectors)
    return pa.concat_tables(tables), n_joined


def write_and_measure(job: WriteJob, segment: GatheredSegment) -> TaskResult:
    """Write a segment's files and return what was measured."""
    blocks, n_joined = write_layouts(job, segment)
    if job.at is not None:
        job.at("segment-written")
    tid_sums = [] if job.rehearsal else _tid_sums(job, segment)
    extra_result = None if job.also is None else job.also(segment)
    return TaskResult(segment.id, segment.table.num_rows, n_joined, blocks, tid_sums, extra_result)


def _tid_sums(job: WriteJob, segment: GatheredSegment) -> list[list[int | None]]:
    """Return the expected sums of hash(tid, value), by layout and column of the schema.

    They are computed from the rows as received, whose positions are the tids. A sum is None where a layout stores no
    row of the column, or is not written. The result is empty without tids. Where only some layouts are written, a last
    item has the sums over all received rows.
    """
    plan = job.plan
    if not plan.scheme.has_tids:
        return []
    # Each column is hashed once for all layouts. None means all rows, which need no selection.
    present = [None if layout.is_undivided else present_rows(layout, segment.words) for layout in plan.scheme.layouts]
    positions = Positions(np.arange(segment.table.num_rows))
    sums: list[list[int | None]] = [[] for _ in plan.scheme.layouts]
    all_rows_sums: list[int | None] = []
    names = frozenset(segment.table.column_names)
    for column in plan.schema.columns:
        has_column = column.name in names
        hashes = value_hashes(segment.table[column.name], column.type) if has_column else None
        tid_hashes = None if hashes is None else positions.hashes(scramble_words(hashes))
        all_rows_sums.append(None if tid_hashes is None else int(tid_hashes.sum(dtype=np.int64)))
        for number, (layout, present_rows_mask) in enumerate(zip(plan.scheme.layouts, present, strict=True)):
            rows = None if column.name in layout.master else present_rows_mask
            # without rows there is no block to compare with
            is_written = job.only is None or number in job.only
            stored = is_written and column.name in layout.columns and (rows is None or rows.any())
            summed = tid_hashes if tid_hashes is None or rows is None else tid_hashes[rows]
            sums[number].append(int(summed.sum(dtype=np.int64)) if summed is not None and stored else None)
    return sums if job.only is None else [*sums, all_rows_sums]


@dataclass(frozen=True)
class FilePlace:
    """A written Parquet file.

    Attributes:
        blocks: how many blocks it has, one row group each.
        footer: the digest of its footer.
        starts: where each block's column chunks begin; None where unknown.
    """

    path: str
    blocks: int
    footer: str | None
    starts: Sequence[int | None]


def write_file(job: WriteJob, segment: GatheredSegment, file: RoutedFile) -> pa.Table:
    """Write one file, split where it would get too large; return its blocks as :func:`blocks_with_indexes` has them."""
    plan, routing, first_block = job.plan, file.routing, file.first_block
    n_blocks = len(routing.offsets) - 1
    if n_blocks == 0:
        return blocks_with_indexes(plan).empty_table()
    key, number = job.keys[segment.id], job.numbers[segment.id]

    def new_path() -> str:
        return data_path(key, job.load_id, file.layout, number, secrets.token_hex(4), file.part)

    if job.rehearsal:
        content = take_content(plan, segment.table, replace(file, columns=_measured_columns(job, file.columns)))
        sizes = estimate_file_sizes(job, segment, file)
        sums, tid_sums = None, None
        places = [FilePlace(new_path(), n_blocks, None, [None] * n_blocks)]
    else:
        content = take_content(plan, segment.table, file)
        sizes, places = _write_parquet(job, new_path, content, routing.offsets)
        wanted = [column for column in plan.schema.columns if column.name in file.columns]
        sums, tid_sums = _sum_blocks(content, wanted, routing.offsets)
    stats = block_statistics(content, routing.offsets, plan.schema, sizes, sums, tid_sums)
    if job.rehearsal:  # the content may lack columns of the file
        stats = with_bytes(stats, plan.schema, {name: sizes[name] for name in file.columns})
    values: dict[str, Any] = {
        "file": [place.path for place in places for _ in range(place.blocks)],
        "row_group": np.concatenate([np.arange(place.blocks) for place in places]),
        "block": first_block + np.arange(n_blocks),
        "partition": [key] * n_blocks,
        "segment": [number] * n_blocks,
        "layout": [file.layout] * n_blocks,
        "part": [file.part] * n_blocks,
        "rows": np.diff(routing.offsets),
        "bytes": sum(sizes.values()),
        "tid_bytes": sizes.get(TID, np.zeros(n_blocks, dtype=np.int64)),
        "words": list(union_words(segment.words, routing).view(np.int64)),
        "footer": [place.footer for place in places for _ in range(place.blocks)],
        "start": [start for place in places for start in place.starts],
        "stats": stats,
    }
    if plan.indexes:
        row_indices = pa.array(routing.rows)
        computed = {expr: column.take(row_indices) for expr, column in segment.computed.items()}
        values[INDEXES] = measure_indexes(plan.indexes, content, routing.offsets, computed)
    schema = blocks_with_indexes(plan)
    arrays = [v if isinstance(v := values[f.name], pa.Array) else pa.array(v, f.type) for f in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _measured_columns(job: WriteJob, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns whose values a dry run measures; at least one, since a table needs one."""
    if job.bounded is None:
        return columns
    wanted = job.bounded.union(*(spec.subject.columns for spec in job.plan.indexes))
    return tuple(name for name in columns if name in wanted) or columns[:1]


def estimate_file_sizes(job: WriteJob, segment: GatheredSegment, file: RoutedFile) -> dict[str, Ints]:
    """Return about the bytes of each column's chunks in a file that is not written, ``int64[n_blocks]``."""
    offsets = file.routing.offsets
    if not job.sized:
        return dict.fromkeys(file.columns, np.zeros(len(offsets) - 1, dtype=np.int64))
    sample = select_blocks(file, blocks_to_encode(offsets).tolist())
    return estimate_sizes(take_content(job.plan, segment.table, sample), offsets, job.plan.codec)


def select_blocks(file: RoutedFile, blocks: Sequence[int]) -> RoutedFile:
    """Return the file with some of its blocks only, numbered from the first."""
    bounds = [file.routing.offsets[block : block + 2].tolist() for block in blocks]
    rows = np.concatenate([file.routing.rows[start:stop] for start, stop in bounds])
    offsets = np.cumsum([0, *(stop - start for start, stop in bounds)])
    return replace(file, routing=Routing(rows, offsets))


def _sum_blocks(content: pa.Table, columns: Sequence[Column], offsets: Ints) -> tuple[dict[str, Ints], dict[str, Ints]]:
    sums: dict[str, Ints] = {}
    tid_sums: dict[str, Ints] = {}
    positions = Positions(np.asarray(content[TID])) if TID in content.column_names else None
    for column in columns:
        if positions is None and not is_hashable(column.type):
            continue
        hashes = value_hashes(content[column.name], column.type)
        if hashes is None:
            continue
        if is_hashable(column.type):
            sums[column.name] = sums_by_block(hashes, offsets)
        if positions is not None:
            tid_sums[column.name] = sum_with_positions(hashes, positions, offsets)
    return sums, tid_sums


def take_content(plan: Plan, table: pa.Table, file: RoutedFile) -> pa.Table:
    """Return the rows of a file in the order of its blocks, with ``_block``, and ``_tid`` for several layouts."""
    routing = file.routing
    content = pa.compute.take(table.select(list(file.columns)), pa.array(routing.rows), memory_pool=POOL)
    blocks = np.repeat(file.first_block + np.arange(len(routing.offsets) - 1), np.diff(routing.offsets))
    content = content.append_column(pa.field(BLOCK, pa.int64(), nullable=False), pa.array(blocks))
    if plan.scheme.has_tids:
        # Parquet stores all smaller integers in 32 bits too; the encoding makes them small.
        type = pa.int32() if plan.segment_rows <= 2**31 else pa.int64()
        content = content.append_column(pa.field(TID, type, nullable=False), pa.array(routing.rows, type))
    return content


def _write_parquet(
    job: WriteJob, new_path: Callable[[], str], content: pa.Table, offsets: Ints
) -> tuple[dict[str, Ints], list[FilePlace]]:
    """Write the blocks as row groups, in files that are closed at the plan's size, and sync each file.

    Returns:
        The compressed bytes of each column's chunks by block, and the files in the order of their blocks.
    """
    encodings: Encodings = choose_encodings(content, offsets, job.plan.codec)
    # Encrypted files have none: other engines have no key, and pyarrow can't encrypt Bloom filters.
    index_options = {} if job.lent else parquet_index_options(job.plan, content.schema, offsets)
    blocks = [content.slice(start, stop - start) for start, stop in pairwise(offsets.tolist())]
    sizes: list[dict[str, Ints]] = []
    places: list[FilePlace] = []
    files = TableFiles(job.root, lent=job.lent)
    while blocks:
        path = new_path()
        with files.create(path) as file:
            keeper = FooterKeeper(file)
            with pq.ParquetWriter(
                keeper, content.schema, encryption_properties=files.encryption(path),
                **encodings.options(job.plan.codec), **index_options,
            ) as writer:  # fmt: skip
                n_written = _write_until_full(writer, keeper, blocks, job.plan.file_bytes)
                keeper.keep()
            metadata = writer.writer.metadata
            _sync(file)
        blocks = blocks[n_written:]
        chunks = list_chunks(metadata)
        sizes.append(column_bytes(chunks, content.schema))
        places.append(FilePlace(path, n_written, footer_digest(keeper.footer), row_group_starts(chunks)))
    return {name: np.concatenate([chunk[name] for chunk in sizes]) for name in sizes[0]}, places


def _write_until_full(
    writer: pq.ParquetWriter, keeper: FooterKeeper, blocks: Sequence[pa.Table], max_bytes: int | None
) -> int:
    """Write at least one block, and more until the file has ``max_bytes``; return how many."""
    for number, block in enumerate(blocks, 1):
        writer.write_table(block, row_group_size=block.num_rows)
        if max_bytes is not None and keeper.tell() >= max_bytes:
            return number
    return len(blocks)


def _sync(file: IO[bytes]) -> None:
    """Make a local file durable before a snapshot names it; other stores do so on close."""
    file.flush()
    try:
        descriptor = file.fileno()
    except (AttributeError, OSError):
        return
    os.fsync(descriptor)
