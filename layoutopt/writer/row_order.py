"""The order of rows within their blocks: sorted by a few columns, so that equal values stand together and compress.

What is read, skipped and answered does not depend on it, but the bytes of a block do (Hall et al., "Processing a
Trillion Cells per Mouse Click", VLDB 2012, section 3). Columns are turned into numbers of few bits that are packed into
one word with the block and the place, so that one sort of words does it all and equal rows keep their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.keys import dense_ranks, stored_keys
from layoutopt.model.arrays import Floats, Ints, Places
from layoutopt.model.schema import Schema
from layoutopt.model.values import key_kind
from layoutopt.writer.encodings import Encodings, encoded_bytes, smallest_encodings
from layoutopt.writer.routing import Routing

_WORD_BITS = 63


class Codes(NamedTuple):
    """Numbers in the order of the values that they stand for, from 0 and of so many bits, ``int64[n]``."""

    values: Ints
    bits: int


def in_row_order(routing: Routing, columns: Sequence[str], schema: Schema, table: pa.Table) -> Routing:
    """The same blocks, the rows of each sorted by some columns; equal rows stay as they stand.

    Args:
        routing: of some rows of the segment.
        columns: what is sorted by, the first one first: in Spark's order of values, NULL first and NaN last.
        schema: the table's, for the columns' types.
        table: the segment's rows.

    Raises:
        SchemaError: a column is unknown, or of a type without an order.
    """
    if not columns or not len(routing.rows):
        return routing
    n_blocks = len(routing.offsets) - 1
    block = np.repeat(np.arange(n_blocks, dtype=np.int64), np.diff(routing.offsets))
    codes = [Codes(block, _bits_below(n_blocks))]
    for name in columns:
        values, bits = order_codes(table[name], schema.find(name).type)
        codes.append(Codes(values[routing.rows], bits))
    return replace(routing, rows=routing.rows[sorted_places(codes)])


def order_codes(column: pa.ChunkedArray, type: str) -> Codes:
    """A column as numbers below its rows whose order is Spark's order of the values; NULL is the least, NaN the last.

    Raises:
        SchemaError: the type has no order.
    """
    keys = stored_keys(column, type)
    most_bits = _bits_below(len(keys))
    if keys.type == pa.int64() and keys.null_count < len(keys):
        least, greatest = (int(each.as_py()) for each in pc.min_max(keys).values())
        bits = _bits_below(greatest - least + 1 + bool(keys.null_count))
        if bits <= most_bits:
            shift = 1 - least if keys.null_count else -least
            found = np.asarray(pc.fill_null(keys, least - 1) if keys.null_count else keys, dtype=np.int64) + shift
            return Codes(found, bits)
    return _ranked(keys)


def _ranked(keys: pa.Array) -> Codes:
    """Dense ranks, by the distinct values alone."""
    coded = keys.dictionary_encode()
    _, ranks = dense_ranks(coded.dictionary)
    if not keys.null_count:
        return Codes(ranks[np.asarray(coded.indices)], _bits_below(len(ranks)))
    with_null = np.append(ranks + 1, 0)
    return Codes(with_null[np.asarray(pc.fill_null(coded.indices, len(ranks)))], _bits_below(len(with_null)))


def sorted_places(codes: Sequence[Codes]) -> Places:
    """The places of the rows in the order of their codes, the first codes first; of equal rows the first first."""
    n = len(codes[0].values)
    place_bits = _bits_below(n)
    if 3 * max(place_bits, *(bits for _, bits in codes)) > _WORD_BITS:  # block, column and place may not fit together
        return np.lexsort([values for values, _ in reversed(codes)])
    word, used = codes[0]
    for values, bits in codes[1:]:
        if used + bits + place_bits > _WORD_BITS:
            word = np.unique(word, return_inverse=True)[1].astype(np.int64).reshape(-1)
            used = place_bits
        word, used = (word << bits) | values, used + bits
    return np.sort((word << place_bits) | np.arange(n)) & ((1 << place_bits) - 1)


def _bits_below(count: int) -> int:
    """The bits of a number below ``count``."""
    return max(0, count - 1).bit_length()


# ----------------------------------------------------------------------------------------------------
# Which columns to sort the rows of blocks by: greedily, by the bytes that a few blocks take when they are encoded.
#
# No rule of thumb is right for all data: a column of few values makes runs of itself, one of many orders all that
# depend
# on it. So orders are grown column by column, several side by side, and encoded as a load would encode them. There are
# far more orders than can be encoded; those that are get chosen by how far a row's values then are from those of the
# row
# before, since such differences cost about their logarithm. (Lexicographic orders, and that finding the best is as hard
# as the travelling salesman: Hall et al., VLDB 2012, section 3; Lemire and Kaser, "Reordering Columns for Smaller
# Indexes", 2011.)

MOST_COLUMNS: Final = 8
"""Of an order: what is sorted by so many is nearly unique, or nearly constant in between."""

_SIDE_BY_SIDE: Final = 4
# Orders that a step encodes: as many as so many cells in four steps allow, within the bounds.
_MOST_CELLS: Final = 40_000_000
_FEWEST_ENCODED, _MOST_ENCODED = 6, 40
# What columns after these take together is no tenth of what is read, and not worth encoding again and again.
_SHARE_ENCODED: Final = 0.98
_LEAST_GAIN: Final = 0.002
# Blocks whose rows are looked at to choose what is encoded.
_LOOKED_AT: Final = 2


@dataclass(frozen=True, eq=False)
class ReadBlock:
    """A block, and how often each of its columns is read.

    Attributes:
        rows: its columns, with ``_tid`` where that is read, in the order that the blocking leaves.
        weights: by column, how often it is read; columns that are left out are not read.
    """

    rows: pa.Table
    weights: Mapping[str, float]


class FoundOrder(NamedTuple):
    """An order of rows, and what its blocks take of the bytes that they would take unsorted, by their weights."""

    columns: tuple[str, ...]
    share: float


def find_row_order(blocks: Sequence[ReadBlock], schema: Schema, codec: str) -> FoundOrder:
    """The order of rows by which the columns that are read take the fewest bytes, as far as a search finds it.

    Deterministic, and bounded by the cells that are encoded.

    Args:
        blocks: of one layout, of the size that they will have.
        schema: the table's; columns of the blocks that it has, and that have an order, may be sorted by.
        codec: the Parquet compression.
    """
    search = _Search.of(blocks, schema, codec)
    if search is None:
        return FoundOrder((), 1.0)
    before = search.bytes_of(())
    best: tuple[str, ...] = ()
    fewest = before
    beam: list[tuple[str, ...]] = [()]
    for _ in range(min(MOST_COLUMNS, len(search.candidates))):
        longer = [(*order, name) for order in beam for name in search.candidates if name not in order]
        promising = sorted(longer, key=search.promise)[: search.encoded_at_once]
        taken = {order: search.bytes_of(order) for order in promising}
        beam = sorted(taken, key=lambda order: taken[order])[:_SIDE_BY_SIDE]
        if not beam or taken[beam[0]] > fewest - _LEAST_GAIN * before:
            break
        best, fewest = beam[0], taken[beam[0]]
    return FoundOrder(best, fewest / before)


@dataclass(frozen=True, eq=False)
class _Search:
    """What orders are compared by.

    Attributes:
        blocks: the columns that are encoded.
        codec: the compression.
        candidates: the columns that rows may be sorted by.
        codes: of each block the numbers of each column that has an order.
        encodings: those by which the blocks are smallest as they come.
    """

    blocks: tuple[ReadBlock, ...]
    codec: str
    candidates: tuple[str, ...]
    codes: tuple[Mapping[str, Codes], ...]
    encodings: Encodings

    @classmethod
    def of(cls, blocks: Sequence[ReadBlock], schema: Schema, codec: str) -> _Search | None:
        """The search; None where nothing is read, or nothing can be sorted by."""
        types = {column.name: column.type for column in schema.columns if key_kind(column.type) is not None}
        codes = tuple(
            {name: order_codes(block.rows[name], types[name]) for name in block.rows.column_names if name in types}
            for block in blocks
        )
        names = sorted({name for each in codes for name in each}, key=schema.names.index)
        candidates = tuple(name for name in names if any(each[name].bits for each in codes))
        read = sorted({name for block in blocks for name, weight in block.weights.items() if weight > 0})
        if not candidates or not read:
            return None
        unsorted = [block.rows.select(read) for block in blocks]
        encodings = smallest_encodings(unsorted, codec)
        taken = _weighed(encoded_bytes(unsorted, encodings, codec), blocks)
        heaviest = sorted(taken, key=lambda name: -taken[name])
        enough = np.searchsorted(np.cumsum([taken[name] for name in heaviest]), _SHARE_ENCODED * sum(taken.values()))
        chosen = heaviest[: int(enough) + 1]
        kept = tuple(ReadBlock(block.rows.select(chosen), block.weights) for block in blocks)
        return cls(kept, codec, candidates, codes, encodings.only(chosen))

    @property
    def encoded_at_once(self) -> int:
        """How many orders a step encodes."""
        cells: int = sum(block.rows.num_rows * block.rows.num_columns for block in self.blocks)
        return min(_MOST_ENCODED, max(_FEWEST_ENCODED, _MOST_CELLS // (4 * max(1, cells))))

    def bytes_of(self, order: Sequence[str]) -> float:
        """What the blocks take when they are sorted so, by their weights."""
        tables = [
            block.rows.take(pa.array(self._places(codes, order))) if order else block.rows
            for block, codes in zip(self.blocks, self.codes, strict=True)
        ]
        taken = _weighed(encoded_bytes(tables, self.encodings, self.codec), self.blocks)
        if self._runs.names:
            few = [table.select(self._runs.names) for table in tables]
            again = _weighed(encoded_bytes(few, self._runs, self.codec), self.blocks)
            taken |= {name: min(taken[name], again[name]) for name in again}
        return sum(taken.values())

    def promise(self, order: Sequence[str]) -> float:
        """About what an order makes of the bytes: less is better."""
        return sum(
            float(scale @ _differences(matrix[:, self._places(codes, order)]))
            for (scale, matrix), codes in zip(self._looked_at, self.codes, strict=False)
        )

    @staticmethod
    def _places(codes: Mapping[str, Codes], order: Sequence[str]) -> Places:
        return sorted_places([codes[name] for name in order])

    @cached_property
    def _runs(self) -> Encodings:
        """Dictionaries for columns that have none as they come: sorted, their values may stand in runs."""
        return self.encodings.as_dictionaries

    @cached_property
    def _looked_at(self) -> tuple[tuple[Floats, Ints], ...]:
        """Of some blocks: bytes by difference, ``float64[c]``, and dense ranks, ``int64[c, rows]``, of columns read."""
        unsorted = [block.rows for block in self.blocks[:_LOOKED_AT]]
        found = []
        for place, (block, codes) in enumerate(zip(self.blocks[:_LOOKED_AT], self.codes, strict=False)):
            taken = _weighed(encoded_bytes(unsorted[place : place + 1], self.encodings, self.codec), [block])
            names = [name for name in taken if name in codes and codes[name].bits]
            matrix = np.zeros((len(names), block.rows.num_rows), dtype=np.int64)
            for row, name in zip(matrix, names, strict=True):
                row[:] = np.unique(codes[name].values, return_inverse=True)[1].reshape(-1)
            before = np.maximum(_differences(matrix), 1.0)
            found.append((np.array([taken[name] for name in names]) / before, matrix))
        return tuple(found)


def _differences(ranks: Ints) -> Floats:
    """The sum of the logarithms of the differences of neighbours, ``float64[c]``, of ``int64[c, rows]``."""
    apart = np.abs(np.diff(ranks, axis=1))
    logarithms = np.log2(1.0 + np.arange(int(apart.max(initial=0)) + 1), dtype=np.float64)
    return np.asarray(logarithms[apart].sum(axis=1))


def _weighed(taken: Mapping[str, Ints], blocks: Sequence[ReadBlock]) -> dict[str, float]:
    """The bytes of each column, ``int64[blocks]``, as often as they are read."""
    times = {name: np.array([block.weights.get(name, 0.0) for block in blocks]) for name in taken}
    return {name: float(sizes @ times[name]) for name, sizes in taken.items()}
