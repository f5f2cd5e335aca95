"""What one task of a load does: gather a segment, route its rows, write each layout's Parquet files, measure them.

It runs in Spark's Python workers (``mapInArrow``), possibly several times for one segment: a retry, or speculation.
Every attempt writes files of its own names, and only files named by the rows of the attempt whose result Spark kept are
committed. Memory follows ``segment_rows``: the segment in Arrow, and one copy of it in the order of its blocks.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import IO, TYPE_CHECKING, Any, Final

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.block_index import INDEXES
from layoutopt.catalog.paths import data_path
from layoutopt.catalog.statistics import block_statistics, with_bytes
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.footers import FooterKeeper, footer_digest
from layoutopt.errors import TableError, carrying
from layoutopt.indexes.expressions import is_stored
from layoutopt.indexes.measuring import blocks_with_indexes, measure_indexes
from layoutopt.model.arrays import Floats, Ints
from layoutopt.model.layout import MIN_ROWS, ByVectors, Plan, Scheme
from layoutopt.model.predicates import Call, Col, Const, Expr
from layoutopt.model.schema import BLOCK, TID, Column
from layoutopt.writer.checksum import Positions, is_hashable, position_sums, scrambled, sums_by_block, value_hashes
from layoutopt.writer.encodings import (
    Encodings,
    blocks_encoded,
    choose_encodings,
    chunks_of,
    column_bytes,
    estimate_sizes,
    row_group_starts,
)
from layoutopt.writer.routing import (
    CellRows,
    Routing,
    blocked_alike,
    cell_bytes,
    guides_of,
    in_equal_blocks,
    present_rows,
    queries_reaching,
    route,
    union_words,
)
from layoutopt.writer.row_order import in_row_order
from layoutopt.writer.segment import POOL, GatheredSegment, OfLeft, gather_segment
from layoutopt.writer.task_result import Answer

if TYPE_CHECKING:
    from layoutopt.encryption.table_keys import TableKeys


# ----------------------------------------------------------------------------------------------------
# Parquet's own indexes in data files, for engines that read the files as they are; readers of ours need none.
#
# A page index has minima and maxima of each page, so that engines skip pages within a block; a chunk of a block's
# rows is
# a single page unless pages are made small. A Bloom filter has a block's values of one column, for equality.

PAGE_ROWS: Final = 1_000
"""Rows of a page where pages are indexed."""
FALSE_POSITIVES: Final = 0.01
_OF_EQUALITY: Final = frozenset({"bloom", "hybrid", "value-list"})


def parquet_index_options(plan: Plan, schema: pa.Schema, offsets: Ints) -> dict[str, Any]:
    """The arguments of ``pyarrow.parquet.ParquetWriter`` for the indexes that a plan wants in its files.

    Args:
        plan: says which; Bloom filters are of the columns of its indexes that serve equality.
        schema: the file's.
        offsets: where its blocks begin, ``int64[n_blocks + 1]``.
    """
    options: dict[str, Any] = {}
    if "page" in plan.parquet_indexes:
        options |= {"write_page_index": True, "max_rows_per_page": PAGE_ROWS}
    if "bloom" in plan.parquet_indexes:
        most = int(np.diff(offsets).max(initial=1))  # the filter is folded to what a block's values need
        filters = {path: {"ndv": most, "fpp": FALSE_POSITIVES} for path in _looked_up(plan, schema)}
        options |= {"bloom_filter_options": filters} if filters else {}
    return options


def _looked_up(plan: Plan, schema: pa.Schema) -> Iterator[str]:
    """The file's columns that indexes for equality are of, as Parquet has their paths."""
    for spec in plan.indexes:
        names = _path(spec.subject)
        if spec.kind in _OF_EQUALITY and names and names[0] in schema.names and _is_hashed(schema, names):
            yield ".".join(names)


def _path(expr: Expr) -> tuple[str, ...]:
    if isinstance(expr, Col):
        return (expr.name,)
    if isinstance(expr, Call) and is_stored(expr) and isinstance(expr.args[1], Const):
        return (*_path(expr.args[0]), str(expr.args[1].value))
    return ()


def _is_hashed(schema: pa.Schema, names: tuple[str, ...]) -> bool:
    """Whether Parquet has Bloom filters of the column: not of booleans, nor of what has parts."""
    type = schema.field(names[0]).type
    for name in names[1:]:
        type = type.field(name).type
    type = type.value_type if pa.types.is_dictionary(type) else type
    return not (pa.types.is_boolean(type) or pa.types.is_nested(type) or pa.types.is_null(type))


# ----------------------------------------------------------------------------------------------------
# Smaller blocks than a plan asks for: where rows are too few to fill blocks of its size with rows that are alike.

FEWEST_BLOCKS: Final = 12
"""Into so many blocks few rows are cut, as long as blocks do not become too small."""

SMALLEST: Final = 250
"""Rows of a block, below which what a block costs by itself is more than it saves."""


def scaled(plan: Plan, scale: float) -> Plan:
    """The plan with blocks of so many times fewer rows."""
    layouts = []
    for layout in plan.scheme.layouts:
        params = dict(layout.blocking.params)
        if isinstance(layout.blocking, ByVectors) and MIN_ROWS in params:
            params[MIN_ROWS] = max(1, round(float(params[MIN_ROWS]) / scale))
            layout = replace(layout, blocking=replace(layout.blocking, params=tuple(params.items())))
        layouts.append(layout)
    return replace(plan, block_rows=max(1, round(plan.block_rows / scale)), scheme=Scheme(tuple(layouts)))


def for_few_rows(plan: Plan, rows: int) -> Plan:
    """The plan as it is for so many rows, or with smaller blocks where these are few.

    A single block of late rows would hold some of every kind, so that every query would read it.
    """
    block_rows = max(min(plan.block_rows, SMALLEST), rows // FEWEST_BLOCKS)
    return plan if block_rows >= plan.block_rows else scaled(plan, plan.block_rows / block_rows)


WHOLE, REST = 0, 1


@dataclass(frozen=True, eq=False)
class WriteJob:
    """What every task of a load needs to know; pickled to the executors.

    Attributes:
        plan: the plan.
        shares: how much of each of its queries each of its features covers, ``float64[n_queries, f]``.
        root: the table's path or URL.
        load_id: the load's.
        first_block: ``_block`` of the load's first block; a segment takes ``blocks_a_segment`` numbers from there.
        keys: each segment's partition key.
        numbers: each segment's number in its partition.
        at: called with ``"segment-written"`` after a segment's files are written; for tests of retries.
        late: rows that come to others, which are few, get smaller blocks.
        rehearsal: measure the blocks, but write nothing and sum nothing up; bytes are estimated.
        sized: whether a rehearsal estimates bytes; without, its blocks have none.
        bounded: the columns of whose values a rehearsal learns nulls and bounds, with those of the plan's indexes; None
            for all.
        lent: the table's keys, as :class:`TableFiles` has them.
        only: the layouts that are written, by their places; None for all. The rows then need to have the columns of
            these alone, and what guides them.
        also: what else is measured of a segment's rows; its answer is given back as it is.
        of_left: finds the features that keys don't decide, where the rows don't carry Spark's words for them.
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
    late: bool = False
    lent: tuple[TableKeys, ...] | None = None
    only: tuple[int, ...] | None = None
    also: Callable[[GatheredSegment], bytes] | None = None
    of_left: OfLeft | None = None

    @property
    def blocks_a_segment(self) -> int:
        """How many blocks a segment can have at most: one for each row in each layout."""
        return self.plan.segment_rows * len(self.plan.scheme.layouts)


def write_segment(job: WriteJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The body of ``mapInArrow``: all rows of one segment in, one row with its blocks out; nothing for no rows.

    Raises:
        RuntimeError: carries a LayoutoptError's kind and message to the driver (:mod:`layoutopt.spark.core.failures`).
    """
    with carrying():
        try:
            segment = gather_segment(job.plan, batches, whole=job.only is None, of_left=job.of_left)
            if segment is not None:
                yield answer_of(job, segment).encoded()
        except OSError as error:
            reason = error.strerror or str(error)
            raise TableError(
                f"the table {job.root!r} can't be written ({reason}), nothing was committed; mend that and retry"
            ) from error


@dataclass(frozen=True, eq=False)
class RoutedFile:
    """One file of a segment before it is written: which rows of which columns go where.

    Attributes:
        layout: the place of its layout in the scheme.
        part: 0 for the rows that the layout holds whole, 1 for the others, of which it has the master columns.
        columns: those that it stores.
        routing: its rows in the order in which they are written, and their blocks.
        first_block: the number of its first block.
    """

    layout: int
    part: int
    columns: tuple[str, ...]
    routing: Routing
    first_block: int


def route_segment(job: WriteJob, segment: GatheredSegment) -> Iterator[RoutedFile]:
    """The files of a segment, layout by layout, before they are written."""
    plan = for_few_rows(job.plan, segment.table.num_rows) if job.late else job.plan
    reached, of_cell = queries_reaching(plan, segment.table), None if job.late else cell_bytes(plan, segment.table)
    written = [(i, each) for i, each in enumerate(plan.scheme.layouts) if job.only is None or i in job.only]
    left = Counter(blocked_alike(plan, layout) for _, layout in written)
    routed: dict[Hashable, Routing] = {}  # what a later layout has, too
    cells: dict[str, CellRows] = {}
    for index, layout in written:
        alike = blocked_alike(plan, layout)
        if (routing := routed.pop(alike, None)) is None:
            guides = guides_of(plan, layout, segment.table, segment.words, job.shares, reached, of_cell, cells)
            routing = route(plan, layout, segment.table, segment.words, guides)
        left[alike] -= 1
        if left[alike]:
            routed[alike] = routing
        first = job.first_block + segment.id * job.blocks_a_segment + index * plan.segment_rows
        sorted_by = layout.row_order, plan.schema, segment.table
        yield RoutedFile(index, WHOLE, layout.columns, in_row_order(routing, *sorted_by), first)
        rest = np.flatnonzero(~present_rows(layout, segment.words))
        if len(rest) and layout.master:
            first += len(routing.offsets) - 1
            equal = in_row_order(in_equal_blocks(rest, plan.block_rows), *sorted_by)
            yield RoutedFile(index, REST, layout.master, equal, first)


def write_layouts(job: WriteJob, segment: GatheredSegment) -> tuple[pa.Table, int]:
    """Write a segment's files: its blocks (see ``blocks_with_indexes``), and the most vectors joined in a layout."""
    written = [(write_file(job, segment, file), file.routing.joined_vectors) for file in route_segment(job, segment)]
    empty = blocks_with_indexes(job.plan).empty_table()
    return pa.concat_tables([empty, *(table for table, _ in written)]), max((count for _, count in written), default=0)


def answer_of(job: WriteJob, segment: GatheredSegment) -> Answer:
    """Write a segment's files, and say what was measured of them; raises what writing them does."""
    blocks, joined = write_layouts(job, segment)
    if job.at is not None:
        job.at("segment-written")
    tid_sums = [] if job.rehearsal else _tid_sums(job, segment)
    also = None if job.also is None else job.also(segment)
    return Answer(segment.id, segment.table.num_rows, joined, blocks, tid_sums, also)


def _tid_sums(job: WriteJob, segment: GatheredSegment) -> list[list[int | None]]:
    """What the layouts' columns must sum to as hash(tid, value): from the rows as they came, whose places are the tids.

    By layout and column of the schema; None where a layout stores no row of the column, or is not written. Empty where
    there are no tids. Where only some layouts are written, a last item has the sums over all rows of what came.
    """
    plan = job.plan
    if not plan.scheme.has_tids:
        return []
    # A column that stands in several layouts is hashed once; None is all rows, which need not be picked out.
    present = [None if layout.is_undivided else present_rows(layout, segment.words) for layout in plan.scheme.layouts]
    positions = Positions(np.arange(segment.table.num_rows))
    sums: list[list[int | None]] = [[] for _ in plan.scheme.layouts]
    whole: list[int | None] = []
    for column in plan.schema.columns:
        here = column.name in segment.table.column_names
        hashes = value_hashes(segment.table[column.name], column.type) if here else None
        at_tids = None if hashes is None else positions.hashes(scrambled(hashes))
        whole.append(None if at_tids is None else int(at_tids.sum(dtype=np.int64)))
        for number, (layout, held) in enumerate(zip(plan.scheme.layouts, present, strict=True)):
            rows = None if column.name in layout.master else held
            # of no rows there is no block to compare with
            written = job.only is None or number in job.only
            stored = written and column.name in layout.columns and (rows is None or rows.any())
            summed = at_tids if at_tids is None or rows is None else at_tids[rows]
            sums[number].append(int(summed.sum(dtype=np.int64)) if summed is not None and stored else None)
    return sums if job.only is None else [*sums, whole]


@dataclass(frozen=True)
class FilePlace:
    """A file of Parquet that was written: where, of how many blocks, one row group each, and its footer's digest.

    ``starts`` are where each block's column chunks begin, None where that is not known.
    """

    path: str
    blocks: int
    footer: str | None
    starts: Sequence[int | None]


def write_file(job: WriteJob, segment: GatheredSegment, file: RoutedFile) -> pa.Table:
    """Write one file, or several where it would get too large; gives its blocks as ``blocks_with_indexes`` has them."""
    plan, routing, first_block = job.plan, file.routing, file.first_block
    n_blocks = len(routing.offsets) - 1
    if n_blocks == 0:
        return blocks_with_indexes(plan).empty_table()
    key, number = job.keys[segment.id], job.numbers[segment.id]

    def new_path() -> str:
        return data_path(key, job.load_id, file.layout, number, secrets.token_hex(4), file.part)

    if job.rehearsal:
        content = content_of(plan, segment.table, replace(file, columns=_bounded(job, file.columns)))
        sizes = rehearsed_sizes(job, segment, file)
        sums, tid_sums = None, None
        places = [FilePlace(new_path(), n_blocks, None, [None] * n_blocks)]
    else:
        content = content_of(plan, segment.table, file)
        sizes, places = _write_parquet(job, new_path, content, routing.offsets)
        wanted = [column for column in plan.schema.columns if column.name in file.columns]
        sums, tid_sums = _checksums(content, wanted, routing.offsets)
    stats = block_statistics(content, routing.offsets, plan.schema, sizes, sums, tid_sums)
    if job.rehearsal:  # whose content may lack columns of the file
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
        taken = pa.array(routing.rows)
        computed = {expr: of_rows.take(taken) for expr, of_rows in segment.computed.items()}
        values[INDEXES] = measure_indexes(plan.indexes, content, routing.offsets, computed)
    schema = blocks_with_indexes(plan)
    arrays = [v if isinstance(v := values[f.name], pa.Array) else pa.array(v, f.type) for f in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _bounded(job: WriteJob, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Those of a file's columns of whose values a rehearsal learns anything; one at least, since a table needs one."""
    if job.bounded is None:
        return columns
    wanted = job.bounded.union(*(spec.subject.columns for spec in job.plan.indexes))
    return tuple(name for name in columns if name in wanted) or columns[:1]


def rehearsed_sizes(job: WriteJob, segment: GatheredSegment, file: RoutedFile) -> dict[str, Ints]:
    """About the bytes of each column's chunks in a file that is not written, ``int64[n_blocks]``.

    Only blocks that are encoded are put together for it.
    """
    offsets = file.routing.offsets
    if not job.sized:
        return dict.fromkeys(file.columns, np.zeros(len(offsets) - 1, dtype=np.int64))
    some = of_blocks(file, blocks_encoded(offsets).tolist())
    return estimate_sizes(content_of(job.plan, segment.table, some), offsets, job.plan.codec)


def of_blocks(file: RoutedFile, blocks: Sequence[int]) -> RoutedFile:
    """A file of some of its blocks, whose numbers then count from the first as if there were no others."""
    bounds = [file.routing.offsets[block : block + 2].tolist() for block in blocks]
    rows = np.concatenate([file.routing.rows[start:stop] for start, stop in bounds])
    offsets = np.cumsum([0, *(stop - start for start, stop in bounds)])
    return replace(file, routing=Routing(rows, offsets))


def _checksums(content: pa.Table, columns: Sequence[Column], offsets: Ints) -> tuple[dict[str, Ints], dict[str, Ints]]:
    """Each block's checksums by column name; and those at the rows' tids, where there are tids."""
    sums: dict[str, Ints] = {}
    tid_sums: dict[str, Ints] = {}
    positions = Positions(np.asarray(content[TID])) if TID in content.column_names else None
    for column in columns:
        hashes = (
            value_hashes(content[column.name], column.type)
            if positions is not None or is_hashable(column.type)
            else None
        )
        if hashes is not None and is_hashable(column.type):
            sums[column.name] = sums_by_block(hashes, offsets)
        if hashes is not None and positions is not None:
            tid_sums[column.name] = position_sums(hashes, positions, offsets)
    return sums, tid_sums


def content_of(plan: Plan, table: pa.Table, file: RoutedFile) -> pa.Table:
    """The rows of a file in the order of its blocks, with ``_block`` and, between several layouts, ``_tid``."""
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
    """Write the blocks as row groups, in files that are closed when they are large enough, and sync each file.

    Returns the compressed bytes of each column's chunks by block, and the files in the order of their blocks.
    """
    encodings: Encodings = choose_encodings(content, offsets, job.plan.codec)
    # Engines that would use them have no key; pyarrow encrypts no Bloom filters.
    of_parquet = {} if job.lent else parquet_index_options(job.plan, content.schema, offsets)
    blocks = [content.slice(start, stop - start) for start, stop in pairwise(offsets.tolist())]
    sizes: list[dict[str, Ints]] = []
    places: list[FilePlace] = []
    files = TableFiles(job.root, lent=job.lent)
    while blocks:
        path = new_path()
        with fsspec.open(files.full_path(path), "wb", auto_mkdir=True) as file:
            keeper = FooterKeeper(file)
            with pq.ParquetWriter(
                keeper, content.schema, encryption_properties=files.encryption(path),
                **encodings.options(job.plan.codec), **of_parquet,
            ) as writer:  # fmt: skip
                written = _write_until_full(writer, keeper, blocks, job.plan.file_bytes)
                keeper.keep()
            metadata = writer.writer.metadata
            _sync(file)
        blocks = blocks[written:]
        chunks = chunks_of(metadata)
        sizes.append(column_bytes(chunks, content.schema))
        places.append(FilePlace(path, written, footer_digest(keeper.footer), row_group_starts(chunks)))
    return {name: np.concatenate([each[name] for each in sizes]) for name in sizes[0]}, places


def _write_until_full(
    writer: pq.ParquetWriter, keeper: FooterKeeper, blocks: Sequence[pa.Table], most: int | None
) -> int:
    """Write blocks, one at least, until the file has so many bytes; how many."""
    for number, block in enumerate(blocks, 1):
        writer.write_table(block, row_group_size=block.num_rows)
        if most is not None and keeper.tell() >= most:
            return number
    return len(blocks)


def _sync(file: IO[bytes]) -> None:
    """Make a local file durable before anything names it; other stores do so on close."""
    file.flush()
    try:
        descriptor = file.fileno()
    except (AttributeError, OSError):
        return
    os.fsync(descriptor)
