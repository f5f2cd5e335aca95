"""What a type of index has to be: measured while blocks are written, stored as one Arrow value a block, and asked.

A new type is a class with the members of :class:`Index`, registered in :mod:`layoutopt.indexes.registry` or by another
package under the entry point ``layoutopt.indexes``; ``tests/indexes/test_soundness.py`` takes every type there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.keys import FLOATS, is_wide_decimal, one_chunk, stored_keys
from layoutopt.catalog.statistics import Measured, measure, reduce_blocks
from layoutopt.model.arrays import Bits, Ints, Places
from layoutopt.model.predicates import Expr, InSet, Like
from layoutopt.model.types import decimal_digits
from layoutopt.model.values import key_kind

# ----------------------------------------------------------------------------------------------------
# The values of a column in consecutive blocks, with equal values of a block put together where that is cheap.
#
# Most columns have few distinct values in a block: statistics, checksums and filters are worked out on those, and
# counted
# or spread to the rows that have them. How much is put together is a matter of speed alone: all answers are the same.

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


@dataclass(frozen=True)
class Parameter:
    """The one number by which a type of index may be tuned.

    Attributes:
        default: what it is where nobody says.
        least: the smallest that makes sense.
        most: the largest.
        meaning: what it counts, for messages.
    """

    default: float
    least: float
    most: float
    meaning: str


NO_PARAMETER = Parameter(0, 0, 0, "nothing")
"""Of a type that has nothing to be tuned."""


@dataclass(frozen=True, eq=False)
class Keys:
    """Keys of n blocks, none of them NULL, as :func:`~layoutopt.catalog.keys.stored_keys` has them.

    Attributes:
        keys: block by block; a block may have a key more than once.
        offsets: where each block's begin, and the end, ``int64[n + 1]``.
    """

    keys: pa.Array
    offsets: Ints

    def sorted_by_block(self) -> Iterator[pa.Array]:
        """Each block's distinct keys, ascending."""
        if self.keys.type == pa.int64():
            values = np.asarray(self.keys)
            for start, stop in pairwise(self.offsets.tolist()):
                yield pa.array(np.unique(values[start:stop]))
            return
        for start, stop in pairwise(self.offsets.tolist()):
            distinct = pc.unique(self.keys.slice(start, stop - start))
            yield distinct.take(pc.array_sort_indices(distinct))


@dataclass(frozen=True, eq=False)
class BlockColumn:
    """The values of one expression in n consecutive blocks: what an index is measured from.

    Attributes:
        values: of the rows, [rows], as Spark hands that type to Arrow.
        offsets: block i has the rows ``offsets[i] .. offsets[i + 1] - 1``; ``int64[n + 1]``.
        type: the Spark type.
    """

    values: pa.ChunkedArray
    offsets: Ints
    type: str

    @property
    def n(self) -> int:
        """How many blocks there are."""
        return len(self.offsets) - 1

    @cached_property
    def keys(self) -> Keys:
        """The keys of all values but NULL; equal ones of a block are put together where that is cheap.

        Raises:
            SchemaError: the type has no order.
        """
        found = block_values(self.values, self.offsets, self.type)
        stored = stored_keys(found.values, self.type)
        if not stored.null_count:
            return Keys(stored, found.offsets)
        valid = np.asarray(stored.is_valid())
        kept = np.concatenate(([0], np.cumsum(reduce_blocks(np.add, valid, found.offsets))))
        return Keys(stored.drop_null(), kept)

    @cached_property
    def has_bad_text(self) -> Bits:
        """The blocks with a text that is no UTF-8, whose order and letters nobody knows, ``bool[n]``."""
        bad = np.zeros(self.n, np.bool_)
        if key_kind(self.type) != "str" or _is_utf8(self.keys.keys):
            return bad
        for i, (start, stop) in enumerate(pairwise(self.keys.offsets.tolist())):
            bad[i] = not _is_utf8(self.keys.keys.slice(start, stop - start))
        return bad


def _is_utf8(texts: pa.Array) -> bool:
    try:
        texts.cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True


class Index(Protocol):
    """One type of index.

    A type may also have ``functions``, a frozenset of names (:func:`functions_of`), ``suits`` (:func:`suits`),
    ``reads_dictionaries`` (:func:`reads_dictionaries`), and be a :class:`JointIndex`.

    Soundness: where :meth:`cannot_match` is TRUE, none of the values that :meth:`measure` saw in the block makes the
    literal TRUE. So whatever the type can't tell (another kind of literal, a NULL in place of what is stored, bytes
    that it never wrote) is FALSE.

    What is measured depends on nothing but the block's values, not on their order: ``verify`` measures again and
    compares. A type that changes what it measures takes a new name.
    """

    @property
    def parameter(self) -> Parameter:
        """The number that it is tuned by."""

    def storage(self, type: str) -> pa.DataType | None:
        """The Arrow type of what is stored of a block; None where it has no use for values of a Spark type."""

    def measure(self, column: BlockColumn, parameter: float) -> pa.Array:
        """What is to be stored, one value a block, [n]; NULL where a block would take too much."""

    def serves(self, literal: InSet | Like) -> bool:
        """Whether it might deny the literal to any block; where it never does, what is stored is not read."""

    def cannot_match(self, literal: InSet | Like, stored: pa.Array, parameter: float) -> Bits:
        """The blocks of which the literal is TRUE for no value, ``bool[n]``.

        Args:
            literal: of a value of the type that was measured; NULL does not make it TRUE.
            stored: what :meth:`measure` gave, of blocks of several loads.
            parameter: as when it was measured.
        """


@runtime_checkable
class JointIndex(Protocol):
    """A type of index that is also asked of several expressions at once, whose values it has as structs.

    Soundness: where :meth:`cannot_match_all` is TRUE, no row of the block, with none of the expressions NULL, makes all
    of the literals TRUE.
    """

    def cannot_match_all(self, literals: Sequence[InSet], stored: pa.Array, parameter: float) -> Bits:
        """The blocks of which that is proved, ``bool[n]``.

        Args:
            literals: one of each field of the struct, in their order; NULL makes none of them TRUE.
            stored: what :meth:`Index.measure` gave, of blocks of several loads.
            parameter: as when it was measured.
        """


def functions_of(index: Index) -> frozenset[str]:
    """The functions whose literals a type is asked too: of the values that it measured and of constants."""
    found: frozenset[str] = getattr(index, "functions", frozenset())
    return found


def reads_dictionaries(index: Index) -> bool:
    """Whether a type that stores lists of texts is also asked of them as places in a dictionary of Arrow's."""
    return bool(getattr(index, "reads_dictionaries", False))


def suits(index: Index, subject: Expr) -> bool:
    """Whether a type has use for an expression: for values of its type and, if it is choosy, for just that one."""
    choosy: Callable[[Expr], bool] | None = getattr(index, "suits", None)
    return index.storage(subject.type) is not None and (choosy is None or choosy(subject))
