"""The table of blocks: the schema that load tasks return and ``blocks/<load-id>.parquet`` holds, and its reader."""

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
    check_expansion,
    checked_block_index,
    damaged,
    plain_texts,
)
from layoutopt.catalog.bounds import LazyBounds
from layoutopt.catalog.keys import one_chunk
from layoutopt.catalog.statistics import statistics_type
from layoutopt.catalog.storage.footers import ChunkSizes
from layoutopt.catalog.storage.index_files import IndexFile, named_indexes, plain_lists
from layoutopt.model.arrays import Bits, Ints, Words
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import Plan
from layoutopt.model.schema import BLOCK, TID, Schema
from layoutopt.model.vectors import words_for
from layoutopt.skipping.cannot_match import BlockStatistics, FeatureBits

__all__ = ["BlockTable", "block_schema", "concatenated", "encode_blocks"]

ALL_ONES = np.uint64(2**64 - 1)

DELETED = "deleted"
"""In the block index of an opened table: the places of the block's deleted rows, a bitmap; null where none is."""
DELETED_ROWS = "deleted_rows"
"""How many they are."""


Vector = bytes
"""A bitmap of a block's deleted rows. It has a name since `bytes` is a property within :class:`BlockTable`."""

ReadIndex = Callable[[IndexFile, int], pa.Array | None]


def _without_index(spec: IndexSpec) -> None:
    """No block has the index."""


def encode_blocks(blocks: pa.Table) -> bytes:
    """The content of a blocks file."""
    sink = io.BytesIO()
    pq.write_table(blocks, sink, compression="zstd", use_dictionary=REPEATING, write_statistics=False)
    return sink.getvalue()


def _integers(name: str, meaning: str) -> cached_property[Ints]:
    """A column of the block index as a property, int64[n]."""
    column = cached_property[Ints](lambda table: np.asarray(one_chunk(table.block_index[name]), dtype=np.int64))
    column.__doc__ = meaning
    return column


@dataclass(frozen=True, eq=False)
class BlockTable:
    """Blocks of one plan, one row each, as whole columns. Made by :meth:`from_arrow` or :meth:`from_parquet`.

    ``block_index`` has every column of :func:`block_schema` but ``stats``; ``statistics_of(i)`` gives the stats of the
    schema's i-th column when they are first asked for (a query touches few of them). ``stored_index(spec)`` gives an
    index of the plan, one value a block, or None where no block has it; NULL is unknown. ``index_files`` are those of
    the blocks files that the blocks come from.
    """

    schema: Schema
    n_features: int
    block_index: pa.Table
    statistics_of: Callable[[int], pa.StructArray]
    stored_index: Callable[[IndexSpec], pa.Array | None] = _without_index
    index_files: tuple[IndexFile, ...] = ()

    @classmethod
    def from_arrow(cls, table: pa.Table, plan: Plan, where: str = "the table of blocks") -> BlockTable:
        """The blocks of a table with the schema of :func:`block_schema`.

        Raises:
            CatalogError: a column is missing, of another type, or has impossible values.
        """
        stats = pa.chunked_array([], statistics_type(plan.schema))
        if "stats" in table.column_names and pa.types.is_struct(table["stats"].type):
            stats = table["stats"]

        # All at once: Arrow looks at every field of every chunk for each field that it is asked for.
        children = cache(lambda: one_chunk(stats).flatten())

        def child(i: int) -> pa.StructArray:
            found = stats.type.get_field_index(f"c{i}")
            return children()[found] if found >= 0 else _unknown(table.num_rows)

        def index(spec: IndexSpec) -> pa.Array | None:
            if INDEXES not in table.column_names or spec not in plan.indexes:
                return None
            return one_chunk(pc.struct_field(table[INDEXES], [plan.indexes.index(spec)]))

        return cls._checked(table, plan, child, index, (), where)

    @classmethod
    def from_parquet(
        cls, data: bytes, plan: Plan, where: str, read_index: ReadIndex = lambda named, rows: None
    ) -> BlockTable:
        """The blocks of a blocks file's content; statistics and indexes are decoded when they are first asked for.

        Args:
            data: the content.
            plan: the blocks'.
            where: names the file in messages.
            read_index: gives what an index file that the content names holds of so many blocks, or None.

        Raises:
            CatalogError: the content is no Parquet, or as for :meth:`from_arrow`.
        """
        expected = [field.name for field in block_schema(plan.schema, 1) if field.name != "stats"]
        try:
            metadata = pq.read_metadata(pa.BufferReader(data))
            check_expansion(metadata, len(data), where)
            repeating = [name for name in REPEATING if name in metadata.schema.names]
            file = pq.ParquetFile(pa.BufferReader(data), metadata=metadata, read_dictionary=repeating)
            table = plain_texts(file.read(columns=expected), where)
        except (pa.ArrowException, OSError) as error:
            raise damaged(where, str(error)) from error

        reading = Lock()  # Arrow's reader takes one read at a time, and may crash at two

        def child(i: int) -> pa.StructArray:
            try:
                with reading:
                    read = file.read(columns=[f"stats.c{i}"])
            except (pa.ArrowException, OSError) as error:
                raise damaged(where, str(error)) from error
            return one_chunk(pc.struct_field(read["stats"], f"c{i}")) if read.num_columns else _unknown(table.num_rows)

        named = named_indexes(metadata.metadata, where)
        of_spec = {index.index: index for index in named}

        def index(spec: IndexSpec) -> pa.Array | None:
            return read_index(of_spec[spec], table.num_rows) if spec in of_spec else None

        return cls._checked(table, plan, child, index, named, where)

    @classmethod
    def _checked(
        cls,
        table: pa.Table,
        plan: Plan,
        statistics_of: Callable[[int], pa.StructArray],
        stored_index: Callable[[IndexSpec], pa.Array | None],
        index_files: tuple[IndexFile, ...],
        where: str,
    ) -> BlockTable:
        block_index = checked_block_index(table, plan, where)
        features = len(plan.features)
        return cls(plan.schema, features, block_index, cache(statistics_of), cache(stored_index), index_files)

    @property
    def n(self) -> int:
        """How many blocks there are."""
        return int(self.block_index.num_rows)

    def __len__(self) -> int:
        return self.n

    def _coded(self, name: str) -> tuple[tuple[str, ...], Ints]:
        """A text column as its distinct values and each block's index in them."""
        coded = one_chunk(self.block_index[name]).dictionary_encode()
        return tuple(coded.dictionary.to_pylist()), np.asarray(coded.indices, dtype=np.int64)

    @cached_property
    def _files(self) -> tuple[tuple[str, ...], Ints]:
        return self._coded("file")

    @cached_property
    def _partitions(self) -> tuple[tuple[str, ...], Ints]:
        return self._coded("partition")

    @property
    def files(self) -> tuple[str, ...]:
        """The data files, relative to the table's root."""
        return self._files[0]

    @property
    def file(self) -> Ints:
        """Each block's index in ``files``, int64[n]."""
        return self._files[1]

    @cached_property
    def footers(self) -> tuple[str | None, ...]:
        """The digest of each of ``files``' footer, None where it is unknown."""
        first = np.unique(self.file, return_index=True)[1]
        return tuple(self.block_index["footer"].take(pa.array(first)).to_pylist())

    @cached_property
    def row_groups_of(self) -> Ints:
        """How many blocks each of ``files`` has, int64[files]."""
        return np.bincount(self.file, minlength=len(self.files))

    def chunk_sizes(self, chosen: Ints) -> ChunkSizes:
        """The sizes of all column chunks of some blocks, by their indices; of columns that any of them has."""
        sizes = self._chunk_sizes[chosen]
        stored = np.flatnonzero(sizes.any(axis=0))
        names = (*self.schema.names, TID, BLOCK)
        return ChunkSizes(tuple(names[i] for i in stored.tolist()), self._starts[chosen], sizes[:, stored])

    @cached_property
    def _chunk_sizes(self) -> Ints:
        """The bytes of each block's chunks: of the schema's columns, tids and blocks, int64[n, columns + 2]."""
        sizes = [*map(self.column_bytes, self.schema.names), self.tid_bytes]
        return np.stack([*sizes, self.bytes - np.sum(sizes, axis=0)], axis=1)

    @cached_property
    def _starts(self) -> Ints:
        """Where each block's column chunks begin in its file, int64[n]; -1 where unknown."""
        return np.asarray(one_chunk(self.block_index["start"].fill_null(-1)), dtype=np.int64)

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partition keys."""
        return self._partitions[0]

    @property
    def partition(self) -> Ints:
        """Each block's index in ``partitions``, int64[n]."""
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
        """The blocks with the places of their deleted rows, as bitmaps (null where none is), and how many these are."""
        index = self.block_index.append_column(DELETED, places).append_column(DELETED_ROWS, rows)
        return replace(self, block_index=index)

    @cached_property
    def deleted_rows(self) -> Ints:
        """How many rows of each block are deleted, int64[n]."""
        if DELETED_ROWS not in self.block_index.column_names:
            return np.zeros(self.n, dtype=np.int64)
        return np.asarray(one_chunk(self.block_index[DELETED_ROWS].fill_null(0)), dtype=np.int64)

    @property
    def live_rows(self) -> Ints:
        """How many rows of each block are not deleted, int64[n]."""
        return self.rows - self.deleted_rows

    def deleted_in(self, chosen: Ints) -> tuple[Vector | None, ...]:
        """The places of the deleted rows of some blocks (their indices), each a bitmap, None where none is."""
        if not self.deleted_rows[chosen].any():
            return ()
        return tuple(self.block_index[DELETED].take(pa.array(chosen)).to_pylist())

    @cached_property
    def words(self) -> Words:
        """The union vectors, uint64[n, w]; all ones where unknown."""
        width = words_for(self.n_features)
        lists = one_chunk(self.block_index["words"])
        words = np.full((self.n, width), ALL_ONES, dtype=np.uint64)
        words[np.asarray(lists.is_valid())] = (
            np.asarray(lists.flatten(), dtype=np.int64).view(np.uint64).reshape(-1, width)
        )
        return words

    def statistics(self, name: str) -> pa.StructArray:
        """The stored statistics of a column, one struct a block; null where the block does not hold the column.

        Raises:
            SchemaError: no column has that name.
            CatalogError: the blocks file is damaged.
        """
        return self.statistics_of(self._places[self.schema.find(name).name])

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.schema.names)}

    def has_column(self, name: str) -> Bits:
        """Which blocks hold the column, bool[n]."""
        return self._present(name)

    @cached_property
    def _present(self) -> Callable[[str], Bits]:
        return cache(lambda name: np.asarray(self.statistics(name).is_valid()))

    def column_bytes(self, name: str) -> Ints:
        """The column's compressed chunk in each block, in bytes, int64[n]; 0 where it is absent or unknown."""
        return self._known_bytes(name)

    @cached_property
    def _known_bytes(self) -> Callable[[str], Ints]:
        return cache(lambda name: np.maximum(self._numbers(name, "bytes"), 0))

    def column_sums(self, name: str) -> Ints:
        """The column's checksum in each block, int64[n]; -1 where it is absent or unknown."""
        return self._numbers(name, "sum")

    def column_tid_sums(self, name: str) -> Ints:
        """The column's sum of hash(tid, value) in each block, int64[n]; -1 where it is absent or unknown."""
        return self._numbers(name, "tid_sum")

    def column_nans(self, name: str) -> Ints:
        """How many NaN values of a float column each block has, int64[n]; -1 where that is unknown."""
        return self._numbers(name, "nans")

    @cached_property
    def _numbers(self) -> Callable[[str, str], Ints]:
        return cache(self._read_numbers)

    def _read_numbers(self, name: str, member: str) -> Ints:
        """A member of a column's statistics, int64[n]; -1 where it is absent or unknown."""
        stats = self.statistics(name)
        index = stats.type.get_field_index(member)
        if index < 0:
            return np.full(self.n, -1, dtype=np.int64)
        return np.asarray(pc.fill_null(pc.struct_field(stats, [index]), -1), dtype=np.int64)

    @cached_property
    def _block_statistics(self) -> BlockStatistics:
        bounds = LazyBounds(self.schema, self.statistics, self.rows)
        return BlockStatistics(rows=self.rows, bits=FeatureBits(self.words), bounds=bounds)

    def block_statistics(self) -> BlockStatistics:
        """What skipping may ask of these blocks; bounds are made for the columns that are asked for."""
        return self._block_statistics

    def take(self, which: npt.NDArray[np.generic]) -> BlockTable:
        """Some of the blocks: by a mask bool[n] or by indices int64[k], in that order."""
        indices = pa.array(np.flatnonzero(which) if which.dtype == np.bool_ else which)
        return BlockTable(
            self.schema,
            self.n_features,
            self.block_index.take(indices),
            cache(lambda i: self.statistics_of(i).take(indices)),
            cache(lambda spec: None if (all := self.stored_index(spec)) is None else all.take(indices)),
            self.index_files,
        )


def concatenated(tables: Sequence[BlockTable]) -> BlockTable:
    """The blocks of several tables of one plan, in order; at least one table."""
    first = tables[0]
    if len(tables) == 1:
        return first
    return BlockTable(
        first.schema,
        first.n_features,
        pa.concat_tables([table.block_index for table in tables], promote_options="default").combine_chunks(),
        cache(lambda i: pa.concat_arrays([table.statistics_of(i) for table in tables])),
        cache(lambda spec: _joined([(table.stored_index(spec), table.n) for table in tables])),
        tuple(dict.fromkeys(index for table in tables for index in table.index_files)),
    )


def _joined(parts: Sequence[tuple[pa.Array | None, int]]) -> pa.Array | None:
    """What several blocks files have of one index, each of so many blocks: unknown where one lacks it."""
    types = {part.type for part, _ in parts if part is not None}
    if len(types) > 1:
        parts = [(None if part is None else plain_lists(part), n) for part, n in parts]
        types = {part.type for part, _ in parts if part is not None}
    if len(types) != 1:
        return None  # nobody has it, or another version of its package wrote something else
    (type,) = types
    return pa.concat_arrays([pa.nulls(n, type) if part is None else part for part, n in parts])


def _unknown(n: int) -> pa.StructArray:
    """Statistics that say nothing, of blocks that hold the column."""
    return pa.StructArray.from_arrays([pa.nulls(n, pa.int64())], names=["nulls"])
