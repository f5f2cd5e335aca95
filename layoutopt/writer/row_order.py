"""Choose and apply the order of rows within blocks, so that equal values stand together and compress.

The order changes the bytes of a block, but not what is read, skipped and answered (Hall et al., "Processing a Trillion
Cells per Mouse Click", VLDB 2012, section 3). Columns become numbers of few bits, which are packed into one word with
the block and the row, so one sort of words does it all and equal rows keep their order.

Orders are searched greedily, column by column, with a beam. A few blocks are encoded as a load would encode them.
Orders to encode are chosen by the differences between neighbouring rows, which cost about their logarithm. Finding the
best order is as hard as the travelling salesman problem (Lemire and Kaser, "Reordering Columns for Smaller Indexes",
2011).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.evaluation.keys import dense_ranks, stored_keys
from layoutopt.model.arrays import Floats, Ints, Places
from layoutopt.model.schema import Schema
from layoutopt.model.values import key_kind
from layoutopt.writer.encodings import Encodings, encoded_bytes, smallest_encodings
from layoutopt.writer.routing import Routing

# Bits of a packed word, without the sign.
_WORD_BITS = 63

# Columns of an order at most: after so many, rows are nearly unique, or nearly constant in between.
MOST_COLUMNS: Final = 8
# Orders that are extended in each step.
_BEAM_WIDTH: Final = 4
# Cells that four steps may encode; bounds the orders encoded in a step, together with the next two.
_MAX_CELLS: Final = 40_000_000
_MIN_ENCODED, _MAX_ENCODED = 6, 40
# Columns beyond this share of the bytes read are not encoded again and again.
_SHARE_ENCODED: Final = 0.98
# The least gain of one more column, as a share of the unsorted bytes.
_MIN_GAIN: Final = 0.002
# Blocks by whose differences the orders to encode are chosen.
_PROBED_BLOCKS: Final = 2


class Codes(NamedTuple):
    """Numbers from 0 in the order of the values that they stand for, below ``2 ** bits``, ``int64[n]``."""

    values: Ints
    bits: int


def sort_block_rows(routing: Routing, columns: Sequence[str], schema: Schema, table: pa.Table) -> Routing:
    """Return the same blocks with the rows of each sorted by some columns; equal rows keep their order.

    The order is Spark's: NULL first and NaN last.

    Raises:
        SchemaError: a column is unknown, or of a type without an order.
    """
    if not columns or not len(routing.rows):
        return routing
    n_blocks = len(routing.offsets) - 1
    block = np.repeat(np.arange(n_blocks, dtype=np.int64), np.diff(routing.offsets))
    codes = [Codes(block, _count_bits(n_blocks))]
    for name in columns:
        values, bits = order_codes(table[name], schema.find(name).type)
        codes.append(Codes(values[routing.rows], bits))
    return replace(routing, rows=routing.rows[sort_places(codes)])


def order_codes(column: pa.ChunkedArray, type: str) -> Codes:
    """Return a column as numbers in Spark's order of the values, NULL first and NaN last.

    Raises:
        SchemaError: the type has no order.
    """
    keys = stored_keys(column, type)
    most_bits = _count_bits(len(keys))
    if keys.type == pa.int64() and keys.null_count < len(keys):
        least, greatest = (int(value.as_py()) for value in pc.min_max(keys).values())
        bits = _count_bits(greatest - least + 1 + bool(keys.null_count))
        if bits <= most_bits:
            shift = 1 - least if keys.null_count else -least
            numbers = np.asarray(pc.fill_null(keys, least - 1) if keys.null_count else keys, dtype=np.int64)
            return Codes(numbers + shift, bits)
    return _rank_distinct(keys)


def _rank_distinct(keys: pa.Array) -> Codes:
    coded = keys.dictionary_encode()
    _, ranks = dense_ranks(coded.dictionary)
    if not keys.null_count:
        return Codes(ranks[np.asarray(coded.indices)], _count_bits(len(ranks)))
    with_null = np.append(ranks + 1, 0)
    return Codes(with_null[np.asarray(pc.fill_null(coded.indices, len(ranks)))], _count_bits(len(with_null)))


def sort_places(codes: Sequence[Codes]) -> Places:
    """Return the rows in the order of their codes, the first codes first; the sort is stable."""
    n = len(codes[0].values)
    place_bits = _count_bits(n)
    if 3 * max(place_bits, *(bits for _, bits in codes)) > _WORD_BITS:  # block, column and place may not fit together
        return np.lexsort([values for values, _ in reversed(codes)])
    word, used = codes[0]
    for values, bits in codes[1:]:
        if used + bits + place_bits > _WORD_BITS:
            word = np.unique(word, return_inverse=True)[1].astype(np.int64).reshape(-1)
            used = place_bits
        word, used = (word << bits) | values, used + bits
    return np.sort((word << place_bits) | np.arange(n)) & ((1 << place_bits) - 1)


def _count_bits(count: int) -> int:
    return max(0, count - 1).bit_length()


@dataclass(frozen=True, eq=False)
class ReadBlock:
    """A block, and how often each of its columns is read.

    Attributes:
        rows: its columns in the order that the blocking leaves, with ``_tid`` where that is read.
        weights: how often each column is read; columns that are left out are not read.
    """

    rows: pa.Table
    weights: Mapping[str, float]


class RowOrder(NamedTuple):
    """An order of rows, and its blocks' share of the unsorted bytes, by their weights."""

    columns: tuple[str, ...]
    share: float


def find_row_order(blocks: Sequence[ReadBlock], schema: Schema, codec: str) -> RowOrder:
    """Return the order of rows by which the columns that are read take the fewest bytes, by a bounded search.

    Deterministic. ``blocks`` are those of one layout, of their final size. Columns of the schema that have an order
    may be sorted by.
    """
    search = _Search.of(blocks, schema, codec)
    if search is None:
        return RowOrder((), 1.0)
    unsorted_bytes = search.bytes_of(())
    best: tuple[str, ...] = ()
    fewest = unsorted_bytes
    beam: list[tuple[str, ...]] = [()]
    for _ in range(min(MOST_COLUMNS, len(search.candidates))):
        orders = [(*order, name) for order in beam for name in search.candidates if name not in order]
        promising = sorted(orders, key=search.promise)[: search.encoded_at_once]
        bytes_by_order = {order: search.bytes_of(order) for order in promising}
        beam = sorted(bytes_by_order, key=lambda order: bytes_by_order[order])[:_BEAM_WIDTH]
        if not beam or bytes_by_order[beam[0]] > fewest - _MIN_GAIN * unsorted_bytes:
            break
        best, fewest = beam[0], bytes_by_order[beam[0]]
    return RowOrder(best, fewest / unsorted_bytes)


@dataclass(frozen=True, eq=False)
class _Search:
    """The data by which orders are compared.

    Attributes:
        blocks: the blocks with the columns to encode.
        candidates: the columns that rows may be sorted by.
        codes: the numbers of each ordered column, block by block.
        encodings: the smallest ones for the unsorted blocks.
    """

    blocks: tuple[ReadBlock, ...]
    codec: str
    candidates: tuple[str, ...]
    codes: tuple[Mapping[str, Codes], ...]
    encodings: Encodings

    @classmethod
    def of(cls, blocks: Sequence[ReadBlock], schema: Schema, codec: str) -> _Search | None:
        """Return the search; None where nothing is read, or no column can be sorted by."""
        types = {column.name: column.type for column in schema.columns if key_kind(column.type) is not None}
        codes = tuple(
            {name: order_codes(block.rows[name], types[name]) for name in block.rows.column_names if name in types}
            for block in blocks
        )
        names = sorted({name for block_codes in codes for name in block_codes}, key=schema.names.index)
        candidates = tuple(name for name in names if any(block_codes[name].bits for block_codes in codes))
        read_columns = sorted({name for block in blocks for name, weight in block.weights.items() if weight > 0})
        if not candidates or not read_columns:
            return None
        unsorted = [block.rows.select(read_columns) for block in blocks]
        encodings = smallest_encodings(unsorted, codec)
        bytes_by_column = _weigh_bytes(encoded_bytes(unsorted, encodings, codec), blocks)
        heaviest = sorted(bytes_by_column, key=lambda name: -bytes_by_column[name])
        enough = np.searchsorted(
            np.cumsum([bytes_by_column[name] for name in heaviest]), _SHARE_ENCODED * sum(bytes_by_column.values())
        )
        chosen = heaviest[: int(enough) + 1]
        read_blocks = tuple(ReadBlock(block.rows.select(chosen), block.weights) for block in blocks)
        return cls(read_blocks, codec, candidates, codes, encodings.only(chosen))

    @property
    def encoded_at_once(self) -> int:
        cells: int = sum(block.rows.num_rows * block.rows.num_columns for block in self.blocks)
        return min(_MAX_ENCODED, max(_MIN_ENCODED, _MAX_CELLS // (4 * max(1, cells))))

    def bytes_of(self, order: Sequence[str]) -> float:
        tables = [
            block.rows.take(pa.array(self._sort_block(codes, order))) if order else block.rows
            for block, codes in zip(self.blocks, self.codes, strict=True)
        ]
        bytes_by_column = _weigh_bytes(encoded_bytes(tables, self.encodings, self.codec), self.blocks)
        if self._dictionaries.names:
            unencoded = [table.select(self._dictionaries.names) for table in tables]
            with_dictionaries = _weigh_bytes(encoded_bytes(unencoded, self._dictionaries, self.codec), self.blocks)
            bytes_by_column |= {name: min(bytes_by_column[name], with_dictionaries[name]) for name in with_dictionaries}
        return sum(bytes_by_column.values())

    def promise(self, order: Sequence[str]) -> float:
        """Return about the bytes after sorting so: less is better."""
        return sum(
            float(scale @ _sum_log_differences(matrix[:, self._sort_block(codes, order)]))
            for (scale, matrix), codes in zip(self._probed, self.codes, strict=False)
        )

    @staticmethod
    def _sort_block(codes: Mapping[str, Codes], order: Sequence[str]) -> Places:
        return sort_places([codes[name] for name in order])

    @cached_property
    def _dictionaries(self) -> Encodings:
        """Return dictionaries for columns without one: sorted, their values may form runs."""
        return self.encodings.as_dictionaries

    @cached_property
    def _probed(self) -> tuple[tuple[Floats, Ints], ...]:
        """Return bytes by difference, ``float64[c]``, and dense ranks, ``int64[c, rows]``, for some blocks."""
        unsorted = [block.rows for block in self.blocks[:_PROBED_BLOCKS]]
        probes = []
        for place, (block, codes) in enumerate(zip(self.blocks[:_PROBED_BLOCKS], self.codes, strict=False)):
            bytes_by_column = _weigh_bytes(
                encoded_bytes(unsorted[place : place + 1], self.encodings, self.codec), [block]
            )
            names = [name for name in bytes_by_column if name in codes and codes[name].bits]
            matrix = np.zeros((len(names), block.rows.num_rows), dtype=np.int64)
            for row, name in zip(matrix, names, strict=True):
                row[:] = np.unique(codes[name].values, return_inverse=True)[1].reshape(-1)
            differences = np.maximum(_sum_log_differences(matrix), 1.0)
            probes.append((np.array([bytes_by_column[name] for name in names]) / differences, matrix))
        return tuple(probes)


def _sum_log_differences(ranks: Ints) -> Floats:
    """Return the sum of the logarithms of the differences of neighbours, ``float64[c]``, of ``int64[c, rows]``."""
    differences = np.abs(np.diff(ranks, axis=1))
    logarithms = np.log2(1.0 + np.arange(int(differences.max(initial=0)) + 1), dtype=np.float64)
    return np.asarray(logarithms[differences].sum(axis=1))


def _weigh_bytes(bytes_by_column: Mapping[str, Ints], blocks: Sequence[ReadBlock]) -> dict[str, float]:
    times = {name: np.array([block.weights.get(name, 0.0) for block in blocks]) for name in bytes_by_column}
    return {name: float(sizes @ times[name]) for name, sizes in bytes_by_column.items()}
