"""The block table: the schema of load tasks' results and of ``blocks/<load-id>.parquet``, and its reader."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from layoutopt.catalog.block_index import (
    INDEXES,
    REPEATING,
    block_schema,
    check_block_index,
    check_expansion,
    damage_error,
    plain_texts,
)
from layoutopt.catalog.bounds import LazyBounds, column_bounds
from layoutopt.catalog.statistics import statistics_type
from layoutopt.catalog.storage.footers import ChunkSizes
from layoutopt.catalog.storage.index_files import IndexFile, list_index_files, plain_lists
from layoutopt.evaluation.keys import one_chunk
from layoutopt.model.arrays import Bits, Ints, Words
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import Plan
from layoutopt.model.schema import BLOCK, TID, Schema
from layoutopt.model.vectors import words_for
from layoutopt.skipping.cannot_match import BlockStatistics, FeatureBits

__all__ = ["BlockTable", "block_schema", "concat_blocks", "encode_blocks"]

ALL_ONES = np.uint64(2**64 - 1)

# Columns of an opened table's block index: the positions of a block's deleted rows, a bitmap or null, and their number.
DELETED = "deleted"
DELETED_ROWS = "deleted_rows"

# So many columns of statistics are read one by one, and then at most so many ahead.
_SINGLE_READS = 8
_MOST_AHEAD = 256


# A bitmap of a block's deleted rows. It has a name because `bytes` is a property within :class:`BlockTable`.
Vector = bytes

ReadIndex = Callable[[IndexFile, int], pa.Array | None]


def encode_blocks(blocks: pa.Table) -> bytes:
    """Return the content of a blocks file."""
    sink = io.BytesIO()
    pq.write_table(blocks, sink, compression="zstd", use_dictionary=REPEATING, write_statistics=False)
    return sink.getvalue()


def _integers(name: str, meaning: str) -> cached_property[Ints]:
    """Return a property with a column of the block index, int64[n]."""
    column = cached_property[Ints](lambda table: np.asarray(one_chunk(table.block_index[name]), dtype=np.int64))
    column.__doc__ = meaning
    return column


@dataclass(frozen=True, eq=False)
class BlockTable:
    """The blocks of one plan, one row each, in whole columns; made by :meth:`from_arrow` or :meth:`from_parquet`.

    ``block_index`` has every column of :func:`block_schema` but ``stats``. ``statistics_of(i)`` decodes the stats of
    the schema's i-th column on first use (a query needs few of them). ``stored_index(spec)`` returns an index of the
    plan, one value a block, or None where no block has it; NULL is unknown. ``index_files`` are those of the blocks
    files.
    """

    schema: Schema
    n_features: int
    block_index: pa.Table
    statistics_of: Callable[[int], pa.StructArray]
    stored_index: Callable[[IndexSpec], pa.Array | None] = lambda spec: None
    index_files: tuple[IndexFile, ...] = ()

    @classmethod
    def from_arrow(cls, table: pa.Table, plan: Plan, where: str = "the table of blocks") -> BlockTable:
        """Return the blocks of a table with :func:`block_schema`; raise CatalogError where a column is invalid."""
        stats = pa.chunked_array([], statistics_type(plan.schema))
        if "stats" in table.column_names and pa.types.is_struct(table["stats"].type):
            stats = table["stats"]

        # Flatten once: for each single field Arrow looks at every field of every chunk.
        children = cache(lambda: one_chunk(stats).flatten())

        def child(i: int) -> pa.StructArray:
            field = stats.type.get_field_index(f"c{i}")
            return children()[field] if field >= 0 else _make_unknown_statistics(table.num_rows)

        def index(spec: IndexSpec) -> pa.Array | None:
            if INDEXES not in table.column_names or spec not in plan.indexes:
                return None
            return one_chunk(pc.struct_field(table[INDEXES], [plan.indexes.index(spec)]))

        return cls(plan.schema, len(plan.features), check_block_index(table, plan, where), cache(child), cache(index))

    @classmethod
    def from_parquet(
        cls, data: bytes, plan: Plan, where: str, read_index: ReadIndex = lambda index_files, rows: None
    ) -> BlockTable:
        """Return the blocks of a blocks file; statistics and indexes are decoded on first use.

        ``read_index`` returns the values of an index file for a number of blocks, or None. Raises as
        :meth:`from_arrow`, and where the content is no Parquet.
        """
        expected = [field.name for field in block_schema(plan.schema, 1) if field.name != "stats"]
        try:
            metadata = pq.read_metadata(pa.BufferReader(data))
            check_expansion(metadata, len(data), where)
            repeating = [name for name in REPEATING if name in metadata.schema.names]
            file = pq.ParquetFile(pa.BufferReader(data), metadata=metadata, read_dictionary=repeating)
            table = plain_texts(file.read(columns=expected), where)
        except (pa.ArrowException, OSError) as error:
            raise damage_error(where, str(error)) from error

        read = _StatisticsReader(file, plan.schema, where)

        index_files = list_index_files(metadata.metadata, where)
        by_spec = {index.index: index for index in index_files}

        def index(spec: IndexSpec) -> pa.Array | None:
            return read_index(by_spec[spec], table.num_rows) if spec in by_spec else None

        block_index = check_block_index(table, plan, where)
        return cls(plan.schema, len(plan.features), block_index, read.child, cache(index), index_files)

    @property
    def n(self) -> int:
        """Return the number of blocks."""
        return int(self.block_index.num_rows)

    def __len__(self) -> int:
        return self.n

    def _encode_column(self, name: str) -> tuple[tuple[str, ...], Ints]:
        """Return a text column's distinct values and each block's index in them."""
        coded = one_chunk(self.block_index[name]).dictionary_encode()
        return tuple(coded.dictionary.to_pylist()), np.asarray(coded.indices, dtype=np.int64)

    @cached_property
    def _files(self) -> tuple[tuple[str, ...], Ints]:
        return self._encode_column("file")

    @cached_property
    def _partitions(self) -> tuple[tuple[str, ...], Ints]:
        return self._encode_column("partition")

    @property
    def files(self) -> tuple[str, ...]:
        """Return the data files, relative to the table's root."""
        return self._files[0]

    @property
    def file(self) -> Ints:
        """Return each block's index in ``files``, int64[n]."""
        return self._files[1]

    @cached_property
    def footers(self) -> tuple[str | None, ...]:
        """Return the digest of each file's footer; None where unknown."""
        first = np.unique(self.file, return_index=True)[1]
        return tuple(self.block_index["footer"].take(pa.array(first)).to_pylist())

    @cached_property
    def row_groups_of(self) -> Ints:
        """Return the number of blocks in each of ``files``, int64[files]."""
        return np.bincount(self.file, minlength=len(self.files))

    def chunk_sizes(self, block_ids: Ints) -> ChunkSizes:
        """Return the sizes of all column chunks of some blocks (their indices), for the columns that any has."""
        sizes = self._chunk_sizes[block_ids]
        stored = np.flatnonzero(sizes.any(axis=0))
        names = (*self.schema.names, TID, BLOCK)
        return ChunkSizes(tuple(names[i] for i in stored.tolist()), self._starts[block_ids], sizes[:, stored])

    @cached_property
    def _chunk_sizes(self) -> Ints:
        """Return the bytes of each block's chunks: the schema's columns, tids and blocks, int64[n, columns + 2]."""
        sizes = [*map(self.column_bytes, self.schema.names), self.tid_bytes]
        return np.stack([*sizes, self.bytes - np.sum(sizes, axis=0)], axis=1)

    @cached_property
    def _starts(self) -> Ints:
        """Return the offset of each block's column chunks in its file, int64[n]; -1 where unknown."""
        return np.asarray(one_chunk(self.block_index["start"].fill_null(-1)), dtype=np.int64)

    @property
    def partitions(self) -> tuple[str, ...]:
        """Return the partition keys."""
        return self._partitions[0]

    @property
    def partition(self) -> Ints:
        """Return each block's index in ``partitions``, int64[n]."""
        return self._partitions[1]

    row_group = _integers("row_group", "Each block's row group in its file, int64[n].")
    block_id = _integers("block", "Each block's ``_block`` value, int64[n].")
    segment = _integers("segment", "Each block's segment within its partition, int64[n].")
    layout = _integers("layout", "Each block's layout in the plan's scheme, int64[n].")
    part = _integers("part", "0 for whole rows of the layout, 1 for the rest rows' master columns, int64[n].")
    rows = _integers("rows", "Each block's rows, int64[n].")
    bytes = _integers("bytes", "Each block's compressed column chunks in bytes, int64[n].")
    tid_bytes = _integers("tid_bytes", "The compressed ``_tid`` chunk in bytes, 0 where there is none, int64[n].")

    def marked(self, places: pa.Array, rows: pa.Array) -> BlockTable:
        """Return the blocks with the positions (bitmaps, null for none) and numbers of their deleted rows."""
        index = self.block_index.append_column(DELETED, places).append_column(DELETED_ROWS, rows)
        return replace(self, block_index=index)

    @cached_property
    def deleted_rows(self) -> Ints:
        """Return the number of deleted rows of each block, int64[n]."""
        if DELETED_ROWS not in self.block_index.column_names:
            return np.zeros(self.n, dtype=np.int64)
        return np.asarray(one_chunk(self.block_index[DELETED_ROWS].fill_null(0)), dtype=np.int64)

    @property
    def live_rows(self) -> Ints:
        """Return the number of rows of each block that are not deleted, int64[n]."""
        return self.rows - self.deleted_rows

    def vectors_of_blocks(self, block_ids: Ints) -> tuple[Vector | None, ...]:
        """Return bitmaps of the deleted rows of some blocks (their indices); None where a block has none."""
        if not self.deleted_rows[block_ids].any():
            return ()
        return tuple(self.block_index[DELETED].take(pa.array(block_ids)).to_pylist())

    @cached_property
    def words(self) -> Words:
        """Return the union vectors, uint64[n, w]; all ones where unknown."""
        width = words_for(self.n_features)
        lists = one_chunk(self.block_index["words"])
        words = np.full((self.n, width), ALL_ONES, dtype=np.uint64)
        words[np.asarray(lists.is_valid())] = (
            np.asarray(lists.flatten(), dtype=np.int64).view(np.uint64).reshape(-1, width)
        )
        return words

    def statistics(self, name: str) -> pa.StructArray:
        """Return a column's stored statistics, one struct a block; null where the block does not hold the column."""
        return self.statistics_of(self._places[self.schema.find(name).name])

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.schema.names)}

    @cached_property
    def has_column(self) -> Callable[[str], Bits]:
        """Return which blocks hold the column of a name, bool[n]."""
        return cache(lambda name: np.asarray(self.statistics(name).is_valid()))

    @cached_property
    def column_bytes(self) -> Callable[[str], Ints]:
        """Return the bytes of a column's compressed chunk in each block, int64[n]; 0 where absent or unknown."""
        return cache(lambda name: np.maximum(self._numbers(name, "bytes"), 0))

    def column_sums(self, name: str) -> Ints:
        """Return the column's checksum in each block, int64[n]; -1 where absent or unknown."""
        return self._numbers(name, "sum")

    def column_tid_sums(self, name: str) -> Ints:
        """Return the column's sum of hash(tid, value) in each block, int64[n]; -1 where absent or unknown."""
        return self._numbers(name, "tid_sum")

    def column_nans(self, name: str) -> Ints:
        """Return the number of a float column's NaN values in each block, int64[n]; -1 where unknown."""
        return self._numbers(name, "nans")

    @cached_property
    def _numbers(self) -> Callable[[str, str], Ints]:
        return cache(self._read_numbers)

    def _read_numbers(self, name: str, member: str) -> Ints:
        """Return a member of a column's statistics, int64[n]; -1 where absent or unknown."""
        stats = self.statistics(name)
        index = stats.type.get_field_index(member)
        if index < 0:
            return np.full(self.n, -1, dtype=np.int64)
        return np.asarray(pc.fill_null(pc.struct_field(stats, [index]), -1), dtype=np.int64)

    @cached_property
    def _block_statistics(self) -> BlockStatistics:
        bounds = LazyBounds(self.schema, lambda c: column_bounds(self.statistics(c.name), self.rows, c.type))
        return BlockStatistics(rows=self.rows, bits=FeatureBits(self.words), bounds=bounds)

    def block_statistics(self) -> BlockStatistics:
        """Return what skipping needs of these blocks; bounds are decoded by column on first use."""
        return self._block_statistics

    def take(self, selection: npt.NDArray[np.generic]) -> BlockTable:
        """Return some of the blocks: by a mask bool[n], or by indices int64[k] in that order."""
        indices = pa.array(np.flatnonzero(selection) if selection.dtype == np.bool_ else selection)
        return BlockTable(
            self.schema,
            self.n_features,
            self.block_index.take(indices),
            cache(lambda i: self.statistics_of(i).take(indices)),
            cache(lambda spec: None if (values := self.stored_index(spec)) is None else values.take(indices)),
            self.index_files,
        )


class _StatisticsReader:
    """Reads columns of ``stats`` from a blocks file, each once.

    Each read takes time by the columns of the file, so after several reads further ones are read ahead.
    """

    def __init__(self, file: pq.ParquetFile, schema: Schema, where: str) -> None:
        self._file, self._where = file, where
        self._columns, self._rows = len(schema.columns), file.metadata.num_rows
        self._decoded: dict[int, pa.StructArray] = {}
        self._reads = 0
        self._lock = Lock()  # Arrow's reader may crash at two reads at once

    def child(self, i: int) -> pa.StructArray:
        """Return the statistics of the schema's i-th column; raise CatalogError if the file is damaged."""
        with self._lock:
            if i not in self._decoded:
                self._read(i)
            return self._decoded[i]

    def _read(self, i: int) -> None:
        ahead = min(_MOST_AHEAD, 1 << max(0, self._reads - _SINGLE_READS))
        self._reads += 1
        wanted = [place for place in range(i, min(i + ahead, self._columns)) if place not in self._decoded]
        try:
            read = self._file.read(columns=[f"stats.c{place}" for place in wanted])
        except (pa.ArrowException, OSError) as error:
            if len(wanted) > 1:  # another column may be the damaged one
                self._reads = 0
                self._read(i)
                return
            raise damage_error(self._where, str(error)) from error
        stored = one_chunk(read["stats"]) if read.num_columns else None
        children = {} if stored is None else dict(zip([f.name for f in stored.type], stored.flatten(), strict=True))
        for place in wanted:
            child = children.get(f"c{place}")
            self._decoded[place] = _make_unknown_statistics(self._rows) if child is None else child


def concat_blocks(tables: Sequence[BlockTable]) -> BlockTable:
    """Return the blocks of several tables of one plan, in order; at least one table."""
    first = tables[0]
    if len(tables) == 1:
        return first
    return BlockTable(
        first.schema,
        first.n_features,
        pa.concat_tables([table.block_index for table in tables], promote_options="default").combine_chunks(),
        cache(lambda i: pa.concat_arrays([table.statistics_of(i) for table in tables])),
        cache(lambda spec: _concat_indexes([(table.stored_index(spec), table.n) for table in tables])),
        tuple(dict.fromkeys(index for table in tables for index in table.index_files)),
    )


def _concat_indexes(parts: Sequence[tuple[pa.Array | None, int]]) -> pa.Array | None:
    """Return one index of several blocks files, each with its number of blocks; NULL where a file lacks it."""
    types = {part.type for part, _ in parts if part is not None}
    if len(types) > 1:
        parts = [(None if part is None else plain_lists(part), n) for part, n in parts]
        types = {part.type for part, _ in parts if part is not None}
    if len(types) != 1:
        return None  # no file has it, or another version of its package wrote another type
    (type,) = types
    return pa.concat_arrays([pa.nulls(n, type) if part is None else part for part, n in parts])


def _make_unknown_statistics(n: int) -> pa.StructArray:
    """Return statistics without information, for n blocks that hold the column."""
    return pa.StructArray.from_arrays([pa.nulls(n, pa.int64())], names=["nulls"])
