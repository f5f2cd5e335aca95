"""The values of a column in consecutive blocks, with equal values of a block put together where that is cheap.

Most columns have few distinct values in a block: statistics, checksums and filters are worked out on those, and counted
or spread to the rows that have them. How much is put together is a matter of speed alone: all answers are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.keys import FLOATS, is_wide_decimal, one_chunk
from layoutopt.catalog.statistics import Measured, measure, reduce_blocks
from layoutopt.model.arrays import Bits, Ints, Places
from layoutopt.model.types import decimal_digits

Number = TypeVar("Number", bound=np.generic)
# Values are put together by comparing them where a probe of so many has at most a quarter as many distinct ones.
_PROBE = 1_000


@dataclass(frozen=True, eq=False)
class BlockValues:
    """One column of n blocks.

    Attributes:
        values: those that occur, block by block, [m]; NULL is one of them.
        offsets: where each block's begin, and the end, int64[n + 1].
        counts: how many rows have each, int64[m]; None: ``values`` are the rows.
        codes: a number for each row, [rows]; rows of a block with equal numbers have equal values.
        entries: the number of each of ``values``, rising, [m].
        n_codes: above all numbers.
    """

    values: pa.Array
    offsets: Ints
    counts: Ints | None = None
    codes: Places | None = None
    entries: Places | None = None
    n_codes: int = 0

    def sums(self, of_values: npt.NDArray[np.integer] | Bits) -> Ints:
        """The sum over each block's rows of a number (or truth) that each of ``values`` has, int64[n]."""
        if self.counts is not None:
            of_values = of_values * self.counts
        return reduce_blocks(np.add, of_values, self.offsets)

    def spread(self, of_values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """What each of ``values`` has, [m], for each row, [rows]."""
        if self.codes is None or self.entries is None:
            return of_values
        of_codes = np.zeros(self.n_codes, of_values.dtype)
        of_codes[self.entries] = of_values
        return of_codes[self.codes]

    def measured(self, type: str) -> Measured:
        """The statistics of the blocks, as of their rows.

        Raises:
            SchemaError: the values are not of that Spark type.
        """
        found = measure(self.values, self.offsets, type)
        if self.counts is None:
            return found
        nans = None
        if found.nans is not None:
            nans = self.sums(np.asarray(pc.is_nan(self.values).fill_null(False))) if found.nans.any() else found.nans
        nulls = self.sums(np.asarray(self.values.is_null())) if self.values.null_count else found.nulls
        return Measured(nulls, nans, found.low, found.high)


def block_values(column: pa.ChunkedArray, offsets: Ints, type: str) -> BlockValues:
    """A column of blocks; block i has the rows ``offsets[i] .. offsets[i + 1] - 1``, and the last ends with the column.

    Args:
        column: its values, or dictionaries of them.
        offsets: int64[n + 1].
        type: its Spark type.

    Raises:
        pyarrow.ArrowInvalid: a code is in no dictionary.
    """
    if pa.types.is_dictionary(column.type):
        return _by_dictionaries(column, offsets)
    array = one_chunk(column)
    raw = _integers(array, type)
    found = None
    if raw is not None:
        found = _by_range(array, raw, offsets)
    elif _may_repeat(array, type):
        blocks = [array.slice(start, stop - start).dictionary_encode() for start, stop in pairwise(offsets.tolist())]
        found = _by_dictionaries(pa.chunked_array(blocks, pa.dictionary(pa.int32(), array.type)), offsets)
    return BlockValues(array, offsets) if found is None else found


def _may_repeat(array: pa.Array, type: str) -> bool:
    if pa.types.is_boolean(array.type):
        return True
    if type not in FLOATS and not pa.types.is_string(array.type) and not pa.types.is_large_string(array.type):
        return False
    return len(array) > _PROBE and 4 * pc.count_distinct(array.slice(0, _PROBE)).as_py() <= _PROBE


def _by_dictionaries(column: pa.ChunkedArray, offsets: Ints) -> BlockValues:
    codes = np.empty(len(column), np.intp)
    dictionaries, n_codes = [pa.array([], column.type.value_type)], 0
    ends = np.zeros(len(offsets), np.int64)
    for block, first, piece in _pieces(column, offsets):
        dictionary, indices = piece.dictionary, piece.indices
        size = len(dictionary)
        dictionaries.append(dictionary)
        if piece.null_count:
            dictionaries.append(pa.nulls(1, dictionary.type))
            indices = indices.fill_null(size)
            size += 1
        mine = np.asarray(indices)
        # Arrow's readers hand codes on without a look at the dictionary.
        if mine.min() < 0 or mine.max() >= size:
            raise pa.ArrowInvalid("a code is not in its dictionary")
        np.add(mine, n_codes, out=codes[first : first + len(mine)])
        n_codes += size
        ends[block + 1] = n_codes
    return _counted(pa.concat_arrays(dictionaries), codes, np.maximum.accumulate(ends))


def _pieces(column: pa.ChunkedArray, offsets: Ints) -> Iterator[tuple[int, int, pa.DictionaryArray]]:
    """A column cut at the ends of chunks and blocks: of each piece its block, its first row, and the values."""
    first = 0
    for chunk in column.chunks:
        stop = first + len(chunk)
        block = int(np.searchsorted(offsets, first, side="right")) - 1
        while first < stop:
            end = min(stop, int(offsets[block + 1]))
            if end > first:
                yield block, first, chunk.slice(first - stop + len(chunk), end - first)
            first, block = end, block + 1


def _counted(values: pa.Array, codes: Places, ends: Ints) -> BlockValues:
    """From the value of each code, and the codes of each block: ``ends[i] .. ends[i + 1] - 1``."""
    counts = np.bincount(codes, minlength=len(values))
    entries = np.flatnonzero(counts)
    if len(entries) < len(values):
        values = values.take(pa.array(entries))
    return BlockValues(values, np.searchsorted(entries, ends), counts[entries], codes, entries, len(counts))


def _integers(array: pa.Array, type: str) -> Ints | None:
    """Integers, one to one with the values of a fixed-width type, int64[rows]; None for another type, or with NULLs."""
    width = array.type
    if array.null_count or not len(array):
        return None
    if pa.types.is_signed_integer(width) or pa.types.is_date32(width) or pa.types.is_timestamp(width):
        view = np.dtype(f"i{width.bit_width // 8}")
        start = array.offset * view.itemsize
        return np.frombuffer(array.buffers()[1], view, count=len(array), offset=start).astype(np.int64, copy=False)
    if pa.types.is_decimal128(width) and decimal_digits(type) and not is_wide_decimal(type):
        halves = np.frombuffer(array.buffers()[1], "<i8", count=2 * len(array), offset=16 * array.offset)
        return halves[0::2].astype(np.int64)
    return None


def _by_range(array: pa.Array, raw: Ints, offsets: Ints) -> BlockValues | None:
    """Values numbered from their block's lowest on; None where that would take more numbers than there are rows."""
    filled = np.diff(offsets) > 0
    starts = offsets[:-1][filled]
    low, high = np.minimum.reduceat(raw, starts), np.maximum.reduceat(raw, starts)
    if (high.astype(np.float64) - low).sum() + len(low) > len(raw):
        return None
    ends = np.concatenate(([0], np.cumsum(high - low + 1)))
    shift = ends[:-1] - low
    codes: Places = raw + np.repeat(shift, np.diff(offsets)[filled])
    counts = np.bincount(codes, minlength=int(ends[-1]))
    entries = np.flatnonzero(counts)
    of_filled = np.searchsorted(entries, ends)
    values = _from_integers(entries - np.repeat(shift, np.diff(of_filled)), array.type)
    of_blocks = of_filled[np.concatenate(([0], np.cumsum(filled)))]
    return BlockValues(values, of_blocks, counts[entries], codes, entries, len(counts))


def _from_integers(raw: Ints, type: pa.DataType) -> pa.Array:
    """The values that :func:`_integers` gave these for."""
    if pa.types.is_decimal128(type):
        cells = np.stack([raw, raw >> 63], axis=1)
    else:
        cells = raw.astype(f"i{type.bit_width // 8}")
    return pa.Array.from_buffers(type, len(raw), [None, pa.py_buffer(cells)])
