"""``ngrams``, ``prefix`` and ``suffix``: parts of a block's strings, for LIKE, = and IN (Ta-Shma 2020, table I).

An n-gram bitmap has a bit for the hash of each run of three bytes. A block that lacks a run of a word has no string
with that word. Folding the halves of a bitmap onto each other gives the bitmap of half the size, so each is folded
while at most a share of its bits is set.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.evaluation.matching import flags, key_bytes
from layoutopt.indexes.bloom import list_single_keys
from layoutopt.indexes.lists import (
    find_blocks_without,
    flatten_lists,
    list_array,
    list_storage,
    map_dictionary,
)
from layoutopt.indexes.protocol import BlockColumn, BlockKeys, Parameter
from layoutopt.indexes.value_list import MOST_BYTES
from layoutopt.model.arrays import Bits, Bytes, Hashes, Ints
from layoutopt.model.predicates import InSet, Like, literal_prefix
from layoutopt.model.values import ValueSet, key_kind

_RUN = 3
# The sizes of bitmaps, as powers of two bits.
_LARGEST, _SMALLEST = 18, 8
_FACTOR = np.uint32(0x9E3779B1)  # Knuth's, by the golden ratio: its upper bits are mixed well
_MOST_ALTERNATIVES = 64


class NGrams:
    """The three-byte runs of a block's strings: LIKE '%word%', =, IN and prefixes."""

    parameter = Parameter(0.25, 0.01, 0.75, "the largest share of a bitmap's bits that is set")

    def storage(self, type: str) -> pa.DataType | None:
        """Return the type of the bitmap's bytes, for strings."""
        return pa.large_binary() if key_kind(type) == "str" else None

    def measure(self, column: BlockColumn, parameter: float) -> pa.Array:
        """Return each block's bitmap; NULL if the largest has too many bits set, or a string is not UTF-8."""
        offsets, data = _split_bytes(column.keys.keys)
        bitmaps = []
        for (start, stop), bad in zip(
            pairwise(column.keys.offsets.tolist()), column.has_bad_text.tolist(), strict=True
        ):
            ends = offsets[start : stop + 1]
            places = _run_places(data[ends[0] : ends[-1]], ends - ends[0])
            bitmaps.append(None if bad else _fold_bitmap(places, parameter))
        return pa.array(bitmaps, pa.large_binary())

    def serves(self, literal: InSet | Like) -> bool:
        """Return whether three consecutive bytes of the literal are known."""
        return bool(_find_words(literal))

    def cannot_match(self, literal: InSet | Like, stored: pa.Array, parameter: float) -> Bits:
        """Return the blocks that lack a run of every string of the literal."""
        alternatives = _find_words(literal)
        proved: Bits = np.full(len(stored), bool(alternatives)) & np.asarray(stored.is_valid())
        offsets, data = _split_bytes(stored)
        sizes = np.diff(offsets)
        proved &= (sizes > 0) & (sizes & (sizes - 1) == 0)  # foreign bytes prove nothing
        for words in alternatives:
            blocks = np.flatnonzero(proved)
            is_missing = np.zeros(len(blocks), np.bool_)
            ends = np.cumsum([0, *map(len, words)])
            for place in np.unique(_run_places(np.frombuffer(b"".join(words), np.uint8), ends)).tolist():
                bit = place & (8 * sizes[blocks] - 1)
                is_missing |= (data[offsets[blocks] + (bit >> 3)] >> (bit & 7).astype(np.uint8)) & 1 == 0
            proved[blocks] = is_missing
        return proved


def _find_words(literal: InSet | Like) -> list[list[bytes]]:
    """Return alternatives, each of words that a value must contain; empty if some value may lack three-byte runs."""
    if isinstance(literal, Like):
        alternatives = [] if literal.negated else [[token for token in literal.pattern if isinstance(token, str)]]
    else:
        alternatives = _list_texts(literal)
    encoded = [[text.encode("utf-8", "surrogatepass") for text in texts] for texts in alternatives]
    words = [[word for word in texts if len(word) >= _RUN] for texts in encoded]
    return words if all(words) else []


def _list_texts(literal: InSet) -> list[list[str]]:
    points = list_single_keys(literal)
    if points is not None:
        return [[str(point)] for point in points] if len(points) <= _MOST_ALTERNATIVES else []
    ((low, _), *rest) = literal.values.intervals
    is_prefix = isinstance(low, str) and not rest and literal.values == ValueSet.prefix(low)
    return [[str(low)]] if is_prefix else []


def _split_bytes(texts: pa.Array) -> tuple[Ints, Bytes]:
    """Return the offsets of strings in their bytes, from 0, ``int64[n + 1]``, and these bytes."""
    offsets = np.frombuffer(texts.buffers()[1], np.int64, count=len(texts) + 1, offset=8 * texts.offset)
    data = texts.buffers()[2]
    every = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return offsets - offsets[0], every[offsets[0] : offsets[-1]]


def _run_places(data: Bytes, ends: Ints) -> Hashes:
    """Return the bits in the largest bitmap of all runs within strings, cut at ``ends``."""
    if len(data) < _RUN:
        return np.zeros(0, np.uint32)
    run = data[2:].astype(np.uint32)
    for back in (1, 0):
        run <<= np.uint32(8)
        run |= data[back : back + len(run)]
    run *= _FACTOR
    run >>= np.uint32(32 - _LARGEST)
    within = np.ones(len(run), np.bool_)
    for back in (1, 2):  # the last two bytes of a text begin no run
        last = ends[1:] - back
        within[last[(last >= 0) & (last < len(run))]] = False
    return run[within]


def _fold_bitmap(places: Hashes, share: float) -> bytes | None:
    bitmap = np.zeros(1 << _LARGEST, np.bool_)
    bitmap[places] = True
    if bitmap.mean() > share:
        return None
    while len(bitmap) > 1 << _SMALLEST:
        half = bitmap[: len(bitmap) // 2] | bitmap[len(bitmap) // 2 :]
        if half.mean() > share:
            break
        bitmap = half
    return np.packbits(bitmap, bitorder="little").tobytes()


class Prefix:
    """The distinct prefixes of a block's strings: LIKE 'word%', ranges, = and IN."""

    parameter = Parameter(8, 1, 64, "the characters of a beginning")
    reads_dictionaries = True

    def storage(self, type: str) -> pa.DataType | None:
        """Return the type of a list of strings, for strings."""
        return list_storage(type) if key_kind(type) == "str" else None

    def measure(self, column: BlockColumn, parameter: float) -> pa.Array:
        """Return each block's sorted prefixes; NULL if they take more than 512 KiB."""
        return _distinct_slices(column, 0, int(parameter))

    def serves(self, literal: InSet | Like) -> bool:
        """Return whether the literal has a prefix or a range."""
        if isinstance(literal, Like):
            return not literal.negated and bool(literal_prefix(literal.pattern))
        return not literal.values.is_all

    def cannot_match(self, literal: InSet | Like, stored: pa.Array, parameter: float) -> Bits:
        """Return the blocks without a prefix of the literal's strings."""
        if isinstance(literal, Like) and literal.negated:
            return np.zeros(len(stored), np.bool_)
        wanted = literal.values if isinstance(literal, InSet) else ValueSet.prefix(literal_prefix(literal.pattern))
        beginnings, offsets = flatten_lists(stored)
        return find_blocks_without(
            map_dictionary(beginnings, lambda keys: _can_begin(keys, wanted, int(parameter))), offsets, stored
        )


class Suffix:
    """The distinct suffixes of a block's strings: LIKE '%word', = and IN."""

    parameter = Parameter(8, 1, 64, "the characters of an end")
    reads_dictionaries = True

    def storage(self, type: str) -> pa.DataType | None:
        """Return the type of a list of strings, for strings."""
        return list_storage(type) if key_kind(type) == "str" else None

    def measure(self, column: BlockColumn, parameter: float) -> pa.Array:
        """Return each block's sorted suffixes; NULL if they take more than 512 KiB."""
        return _distinct_slices(column, -int(parameter), None)

    def serves(self, literal: InSet | Like) -> bool:
        """Return whether the literal has a suffix or is a list of values."""
        if isinstance(literal, Like):
            return not literal.negated and _find_suffix(literal) is not None
        return list_single_keys(literal) is not None

    def cannot_match(self, literal: InSet | Like, stored: pa.Array, parameter: float) -> Bits:
        """Return the blocks without a suffix of the literal's strings."""
        ends, offsets = flatten_lists(stored)
        if isinstance(literal, Like):
            last = _find_suffix(literal)
            if literal.negated or last is None:
                return np.zeros(len(stored), np.bool_)
            # A stored suffix ends with the pattern's, or is shorter and equals its end.
            shorter = [last[start:] for start in range(len(last) + 1)]
            encoded = last.encode("utf-8", "surrogatepass")
            met = map_dictionary(ends, lambda keys: flags(pc.ends_with(keys, encoded)) | _is_in(keys, shorter))
        else:
            points = list_single_keys(literal)
            if points is None:
                return np.zeros(len(stored), np.bool_)
            wanted = [str(point)[-int(parameter) :] for point in points]
            met = map_dictionary(ends, lambda keys: _is_in(keys, wanted))
        return find_blocks_without(met, offsets, stored)


def _find_suffix(literal: Like) -> str | None:
    last = literal.pattern[-1] if literal.pattern else None
    return last if isinstance(last, str) else None


def _distinct_slices(column: BlockColumn, start: int, stop: int | None) -> pa.Array:
    """Return the distinct slices of each block's strings, by characters."""
    bad = column.has_bad_text
    keys = column.keys.keys
    if bad.any():
        # Characters of invalid UTF-8 are undefined, so these blocks get no index.
        rows = np.repeat(bad, np.diff(column.keys.offsets))
        keys = pc.if_else(pa.array(rows), pa.scalar(b"", keys.type), keys)
    parts = pc.utf8_slice_codeunits(keys.cast(pa.large_string()), start, stop).cast(pa.large_binary())
    lists: list[pa.Array | None] = [
        None if is_bad or keys.nbytes > MOST_BYTES else keys
        for keys, is_bad in zip(BlockKeys(parts, column.keys.offsets).sorted_by_block(), bad.tolist(), strict=True)
    ]
    return list_array(lists, pa.large_binary())


def _can_begin(beginnings: pa.Array, wanted: ValueSet, characters: int) -> Bits:
    """Return whether a prefix may start a string of the set, that is, whether its strings meet an interval."""
    met = np.zeros(len(beginnings), np.bool_)
    for low, high in wanted.intervals:
        start, end = key_bytes(low), key_bytes(high)
        above = np.ones(len(beginnings), np.bool_)
        if isinstance(low, str) and start is not None:
            # A prefix below the interval's start is within it only if the start begins with it.
            above = flags(pc.greater_equal(beginnings, pa.scalar(start, beginnings.type)))
            above |= _is_in(beginnings, (low[:stop] for stop in range(min(len(low), characters) + 1)))
        met |= above & (True if end is None else flags(pc.less(beginnings, pa.scalar(end, beginnings.type))))
    return met


def _is_in(texts: pa.Array, wanted: Iterable[str]) -> Bits:
    return flags(pc.is_in(texts, pa.array([text.encode("utf-8", "surrogatepass") for text in wanted], texts.type)))
