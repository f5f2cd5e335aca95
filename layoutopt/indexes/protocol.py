"""The protocol of index types: measured while blocks are written, stored as one Arrow value a block, and queried.

A new type is a class with the members of :class:`Index`, registered in :mod:`layoutopt.indexes.registry` or by another
package under the entry point ``layoutopt.indexes``. ``tests/indexes/test_soundness.py`` tests every installed type.
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

from layoutopt.catalog.statistics import Measured, measure
from layoutopt.evaluation.keys import FLOATS, is_wide_decimal, one_chunk, stored_keys
from layoutopt.model.arrays import Bits, Ints, Places, reduce_blocks
from layoutopt.model.predicates import Expr, InSet, Like
from layoutopt.model.types import decimal_digits
from layoutopt.model.values import key_kind

Number = TypeVar("Number", bound=np.generic)
# Values are merged by comparison if at most a quarter of a probe of this size is distinct.
_PROBE = 1_000


@dataclass(frozen=True, eq=False)
class BlockValues:
    """One column of n blocks, with a block's equal values merged where that is cheap.

    Statistics, checksums and filters are computed per distinct value, then counted or spread to rows. Merging affects
    only speed, never results.

    Attributes:
        values: the distinct values block by block, NULL included, [m].
        offsets: where each block's begin, and the end, int64[n + 1].
        counts: the rows of each, int64[m]; None: ``values`` are the rows.
        codes: a code for each row, [rows]; rows of a block with equal codes have equal values.
        entries: the code of each of ``values``, ascending, [m].
        n_codes: greater than all codes.
    """

    values: pa.Array
    offsets: Ints
    counts: Ints | None = None
    codes: Places | None = None
    entries: Places | None = None
    n_codes: int = 0

    def sums(self, of_values: npt.NDArray[np.integer] | Bits) -> Ints:
        """Return the sum over each block's rows of a number (or truth) of each value, int64[n]."""
        if self.counts is not None:
            of_values = of_values * self.counts
        return reduce_blocks(np.add, of_values, self.offsets)

    def spread(self, of_values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Return a property of each value, [m], for each row, [rows]."""
        if self.codes is None or self.entries is None:
            return of_values
        of_codes = np.zeros(self.n_codes, of_values.dtype)
        of_codes[self.entries] = of_values
        return of_codes[self.codes]

    def measured(self, type: str) -> Measured:
        """Return the statistics of the blocks; raises SchemaError if values are not of the Spark type."""
        measured = measure(self.values, self.offsets, type)
        if self.counts is None:
            return measured
        nulls, nans = measured.nulls, measured.nans
        if nans is not None and nans.any():
            nans = self.sums(np.asarray(pc.is_nan(self.values).fill_null(False)))
        if self.values.null_count:
            nulls = self.sums(np.asarray(self.values.is_null()))
        return Measured(nulls, nans, measured.low, measured.high)


def block_values(column: pa.ChunkedArray, offsets: Ints, type: str) -> BlockValues:
    """Return a column of blocks; block i has the rows ``offsets[i] .. offsets[i + 1] - 1``, up to the end.

    Args:
        column: values, or dictionaries of them.
        offsets: int64[n + 1].
        type: the Spark type.

    Raises:
        pyarrow.ArrowInvalid: a code is in no dictionary.
    """
    if pa.types.is_dictionary(column.type):
        return _encode_by_dictionaries(column, offsets)
    array = one_chunk(column)
    raw = _to_integers(array, type)
    values = None
    if raw is not None:
        values = _encode_by_range(array, raw, offsets)
    elif _may_repeat(array, type):
        blocks = [array.slice(start, stop - start).dictionary_encode() for start, stop in pairwise(offsets.tolist())]
        values = _encode_by_dictionaries(pa.chunked_array(blocks, pa.dictionary(pa.int32(), array.type)), offsets)
    return BlockValues(array, offsets) if values is None else values


def _may_repeat(array: pa.Array, type: str) -> bool:
    if pa.types.is_boolean(array.type):
        return True
    if type not in FLOATS and not pa.types.is_string(array.type) and not pa.types.is_large_string(array.type):
        return False
    return len(array) > _PROBE and 4 * pc.count_distinct(array.slice(0, _PROBE)).as_py() <= _PROBE


def _encode_by_dictionaries(column: pa.ChunkedArray, offsets: Ints) -> BlockValues:
    codes = np.empty(len(column), np.intp)
    dictionaries, n_codes = [pa.array([], column.type.value_type)], 0
    ends = np.zeros(len(offsets), np.int64)
    for block, first, piece in _cut_pieces(column, offsets):
        dictionary, indices = piece.dictionary, piece.indices
        size = len(dictionary)
        dictionaries.append(dictionary)
        if piece.null_count:
            dictionaries.append(pa.nulls(1, dictionary.type))
            indices = indices.fill_null(size)
            size += 1
        numbers = np.asarray(indices)
        # Arrow's readers do not check codes against the dictionary.
        if numbers.min() < 0 or numbers.max() >= size:
            raise pa.ArrowInvalid("a code is not in its dictionary")
        np.add(numbers, n_codes, out=codes[first : first + len(numbers)])
        n_codes += size
        ends[block + 1] = n_codes
    return _count_codes(pa.concat_arrays(dictionaries), codes, np.maximum.accumulate(ends))


def _cut_pieces(column: pa.ChunkedArray, offsets: Ints) -> Iterator[tuple[int, int, pa.DictionaryArray]]:
    """Cut a column at the ends of chunks and blocks; yield each piece's block, first row and values."""
    first = 0
    for chunk in column.chunks:
        stop = first + len(chunk)
        block = int(np.searchsorted(offsets, first, side="right")) - 1
        while first < stop:
            end = min(stop, int(offsets[block + 1]))
            if end > first:
                yield block, first, chunk.slice(first - stop + len(chunk), end - first)
            first, block = end, block + 1


def _count_codes(values: pa.Array, codes: Places, ends: Ints) -> BlockValues:
    """Build from the value of each code and the codes of each block, ``ends[i] .. ends[i + 1] - 1``."""
    counts = np.bincount(codes, minlength=len(values))
    entries = np.flatnonzero(counts)
    if len(entries) < len(values):
        values = values.take(pa.array(entries))
    return BlockValues(values, np.searchsorted(entries, ends), counts[entries], codes, entries, len(counts))


def _to_integers(array: pa.Array, type: str) -> Ints | None:
    """Return integers one to one with fixed-width values, int64[rows]; None for other types or with NULLs."""
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


def _encode_by_range(array: pa.Array, raw: Ints, offsets: Ints) -> BlockValues | None:
    """Encode values relative to their block's lowest; None if that takes more codes than rows."""
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
    if pa.types.is_decimal128(type):
        cells = np.stack([raw, raw >> 63], axis=1)
    else:
        cells = raw.astype(f"i{type.bit_width // 8}")
    return pa.Array.from_buffers(type, len(raw), [None, pa.py_buffer(cells)])


@dataclass(frozen=True)
class Parameter:
    """The number that tunes an index type: its default, its range, and what it counts, for messages."""

    default: float
    least: float
    most: float
    meaning: str


# The parameter of a type without one.
NO_PARAMETER = Parameter(0, 0, 0, "nothing")


@dataclass(frozen=True, eq=False)
class BlockKeys:
    """Keys of n blocks without NULL, in the form of :func:`~layoutopt.evaluation.keys.stored_keys`.

    ``keys`` follow block by block, with duplicates; block i has ``offsets[i] .. offsets[i + 1] - 1``, ``int64[n + 1]``.
    """

    keys: pa.Array
    offsets: Ints

    def sorted_by_block(self) -> Iterator[pa.Array]:
        """Yield each block's distinct keys, ascending."""
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
    """The values of one expression in n consecutive blocks, from which an index is measured.

    Attributes:
        values: of the rows, [rows], as Spark passes that type to Arrow.
        offsets: block i has the rows ``offsets[i] .. offsets[i + 1] - 1``; ``int64[n + 1]``.
        type: the Spark type.
    """

    values: pa.ChunkedArray
    offsets: Ints
    type: str

    @property
    def n(self) -> int:
        """The number of blocks."""
        return len(self.offsets) - 1

    @cached_property
    def keys(self) -> BlockKeys:
        """The keys of all values but NULL; raises SchemaError if the type has no order."""
        distinct = block_values(self.values, self.offsets, self.type)
        stored = stored_keys(distinct.values, self.type)
        if not stored.null_count:
            return BlockKeys(stored, distinct.offsets)
        valid = np.asarray(stored.is_valid())
        kept = np.concatenate(([0], np.cumsum(reduce_blocks(np.add, valid, distinct.offsets))))
        return BlockKeys(stored.drop_null(), kept)

    @cached_property
    def has_bad_text(self) -> Bits:
        """The blocks with a string that is not UTF-8, whose order is undefined, ``bool[n]``."""
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
    """One index type.

    A type may also have ``functions``, a frozenset of names (:func:`get_functions`), ``suits`` (:func:`suits`),
    ``reads_dictionaries`` (:func:`reads_dictionaries`), and be a :class:`JointIndex`.

    Soundness: where :meth:`cannot_match` is TRUE, none of the values that :meth:`measure` saw in the block makes the
    literal TRUE. Anything unknown (another kind of literal, NULL or foreign bytes as stored value) is FALSE.

    The measured value depends only on the block's set of values, not their order: ``verify`` measures again and
    compares. A type that changes what it measures takes a new name.
    """

    @property
    def parameter(self) -> Parameter:
        """The tuning parameter."""

    def storage(self, type: str) -> pa.DataType | None:
        """Return the Arrow type of a block's stored value; None if values of a Spark type can't be indexed."""

    def measure(self, column: BlockColumn, parameter: float) -> pa.Array:
        """Return one value a block, [n]; NULL if it would be too large."""

    def serves(self, literal: InSet | Like) -> bool:
        """Return whether the literal can be ruled out for some block; otherwise the index is not read."""

    def cannot_match(self, literal: InSet | Like, stored: pa.Array, parameter: float) -> Bits:
        """Return the blocks of which the literal is TRUE for no value, ``bool[n]``.

        Args:
            literal: of a value of the measured type; NULL does not make it TRUE.
            stored: the result of :meth:`measure`, of blocks of several loads.
            parameter: as when it was measured.
        """


@runtime_checkable
class JointIndex(Protocol):
    """An index type that also serves literals of several expressions at once, whose values are structs.

    Soundness: where :meth:`cannot_match_all` is TRUE, no row of the block, with none of the expressions NULL, makes all
    of the literals TRUE.
    """

    def cannot_match_all(self, literals: Sequence[InSet], stored: pa.Array, parameter: float) -> Bits:
        """Return the blocks for which that is proved, ``bool[n]``.

        Args:
            literals: one for each field of the struct, in order; NULL makes none of them TRUE.
            stored, parameter: as for :meth:`Index.cannot_match`.
        """


def get_functions(index: Index) -> frozenset[str]:
    """Return the functions of the measured values and constants whose literals a type also serves."""
    functions: frozenset[str] = getattr(index, "functions", frozenset())
    return functions


def reads_dictionaries(index: Index) -> bool:
    """Return whether a type that stores lists of strings can read them as Arrow dictionary codes."""
    return bool(getattr(index, "reads_dictionaries", False))


def suits(index: Index, subject: Expr) -> bool:
    """Return whether a type can index an expression, by its type and the index type's own check."""
    check: Callable[[Expr], bool] | None = getattr(index, "suits", None)
    return index.storage(subject.type) is not None and (check is None or check(subject))
