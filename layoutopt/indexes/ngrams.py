"""``ngrams``: which runs of three bytes occur in the texts of a block, for LIKE '%word%'.

A bitmap has a bit for the hash of each run. A text with a word has all runs of the word, so a block that lacks one of
them has no such text. A bitmap of two halves folded onto each other is that of half the size, so each block's is folded
while no more than a share of its bits is set.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.indexes.bloom import points_of
from layoutopt.indexes.lists import contents, flags, key_bytes, list_array, list_storage, of_each, without_any
from layoutopt.indexes.protocol import BlockColumn, Keys, Parameter
from layoutopt.indexes.value_list import MOST_BYTES
from layoutopt.model.arrays import Bits, Bytes, Hashes, Ints
from layoutopt.model.predicates import InSet, Like, literal_prefix
from layoutopt.model.values import ValueSet, key_kind

_RUN = 3
_LARGEST, _SMALLEST = 18, 8
"""The sizes of bitmaps, as powers of two bits."""
_FACTOR = np.uint32(0x9E3779B1)  # Knuth's, by the golden ratio: its upper bits are mixed well
_MOST_ALTERNATIVES = 64


class NGrams:
    """The runs of three bytes of a block's texts: LIKE with words anywhere, and with =, IN and a beginning."""

    parameter = Parameter(0.25, 0.01, 0.75, "the largest share of a bitmap's bits that is set")

    def storage(self, type: str) -> pa.DataType | None:
        """The bitmap's bytes, of types that are texts."""
        return pa.large_binary() if key_kind(type) == "str" else None

    def measure(self, column: BlockColumn, parameter: float) -> pa.Array:
        """Each block's bitmap; NULL where even the largest has more bits set, or a text is no UTF-8."""
        offsets, data = _texts_of(column.keys.keys)
        bitmaps = []
        for (start, stop), bad in zip(
            pairwise(column.keys.offsets.tolist()), column.has_bad_text.tolist(), strict=True
        ):
            ends = offsets[start : stop + 1]
            places = _run_places(data[ends[0] : ends[-1]], ends - ends[0])
            bitmaps.append(None if bad else _folded(places, parameter))
        return pa.array(bitmaps, pa.large_binary())

    def serves(self, literal: InSet | Like) -> bool:
        """Texts of which three bytes in a row are known."""
        return bool(_words(literal))

    def cannot_match(self, literal: InSet | Like, stored: pa.Array, parameter: float) -> Bits:
        """The blocks that lack a run of every text of the literal."""
        alternatives = _words(literal)
        proved: Bits = np.full(len(stored), bool(alternatives)) & np.asarray(stored.is_valid())
        offsets, data = _texts_of(stored)
        sizes = np.diff(offsets)
        proved &= (sizes > 0) & (sizes & (sizes - 1) == 0)  # what is no bitmap of ours proves nothing
        for words in alternatives:
            left = np.flatnonzero(proved)
            lacking = np.zeros(len(left), np.bool_)
            for place in _places_of(words):
                bit = place & (8 * sizes[left] - 1)
                lacking |= (data[offsets[left] + (bit >> 3)] >> (bit & 7).astype(np.uint8)) & 1 == 0
            proved[left] = lacking
        return proved


def _words(literal: InSet | Like) -> list[list[bytes]]:
    """The texts of which a value must have all of one list; no list where some value may have none of three bytes."""
    if isinstance(literal, Like):
        runs = [] if literal.negated else [[token for token in literal.pattern if isinstance(token, str)]]
    else:
        runs = _texts_of_values(literal)
    found = [[w for w in (run.encode("utf-8", "surrogatepass") for run in of) if len(w) >= _RUN] for of in runs]
    return found if all(found) else []


def _texts_of_values(literal: InSet) -> list[list[str]]:
    """The single values of a set, or the beginning that its only interval stands for."""
    points = points_of(literal)
    if points is not None:
        return [[str(point)] for point in points] if len(points) <= _MOST_ALTERNATIVES else []
    ((low, _), *others) = literal.values.intervals
    begins = isinstance(low, str) and not others and literal.values == ValueSet.prefix(low)
    return [[str(low)]] if begins else []


def _texts_of(texts: pa.Array) -> tuple[Ints, Bytes]:
    """The offsets of texts in their bytes, from 0, ``int64[n + 1]``, and these bytes."""
    offsets = np.frombuffer(texts.buffers()[1], np.int64, count=len(texts) + 1, offset=8 * texts.offset)
    data = texts.buffers()[2]
    every = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return offsets - offsets[0], every[offsets[0] : offsets[-1]]


def _places_of(words: list[bytes]) -> list[int]:
    """The bits in the largest bitmap of all runs of these words, each once."""
    ends = np.cumsum([0, *map(len, words)])
    found: list[int] = np.unique(_run_places(np.frombuffer(b"".join(words), np.uint8), ends)).tolist()
    return found


def _run_places(data: Bytes, ends: Ints) -> Hashes:
    """The bits in the largest bitmap of all runs within texts, which lie from each of ``ends`` to before the next."""
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


def _folded(places: Hashes, share: float) -> bytes | None:
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


# ----------------------------------------------------------------------------------------------------
# ``prefix`` and ``suffix``: with what the texts of a block begin or end, for LIKE 'word%' and LIKE '%word'.


@dataclass(frozen=True)
class Prefix:
    """The distinct beginnings of a block's texts: LIKE with a beginning, ranges, = and IN (Ta-Shma 2020, table I)."""

    parameter = Parameter(8, 1, 64, "the characters of a beginning")
    reads_dictionaries = True

    def storage(self, type: str) -> pa.DataType | None:
        """A list of texts, of types that are texts."""
        return list_storage(type) if key_kind(type) == "str" else None

    def measure(self, column: BlockColumn, parameter: float) -> pa.Array:
        """Each block's beginnings, ascending; NULL where they would take more than 512 KiB."""
        return _distinct_slices(column, 0, int(parameter))

    def serves(self, literal: InSet | Like) -> bool:
        """Texts that begin somehow, or lie somewhere in their order."""
        if isinstance(literal, Like):
            return not literal.negated and bool(literal_prefix(literal.pattern))
        return not literal.values.is_all

    def cannot_match(self, literal: InSet | Like, stored: pa.Array, parameter: float) -> Bits:
        """The blocks of which no beginning is that of a text of the literal."""
        if isinstance(literal, Like) and literal.negated:
            return np.zeros(len(stored), np.bool_)
        wanted = literal.values if isinstance(literal, InSet) else ValueSet.prefix(literal_prefix(literal.pattern))
        beginnings, offsets = contents(stored)
        return without_any(
            of_each(beginnings, lambda each: _begins_some(each, wanted, int(parameter))), offsets, stored
        )


@dataclass(frozen=True)
class Suffix:
    """The distinct ends of a block's texts: LIKE with an end, = and IN (Ta-Shma 2020, table I)."""

    parameter = Parameter(8, 1, 64, "the characters of an end")
    reads_dictionaries = True

    def storage(self, type: str) -> pa.DataType | None:
        """A list of texts, of types that are texts."""
        return list_storage(type) if key_kind(type) == "str" else None

    def measure(self, column: BlockColumn, parameter: float) -> pa.Array:
        """Each block's ends, ascending; NULL where they would take more than 512 KiB."""
        return _distinct_slices(column, -int(parameter), None)

    def serves(self, literal: InSet | Like) -> bool:
        """Texts that end somehow, and single texts."""
        if isinstance(literal, Like):
            return not literal.negated and _end_of(literal) is not None
        return points_of(literal) is not None

    def cannot_match(self, literal: InSet | Like, stored: pa.Array, parameter: float) -> Bits:
        """The blocks of which no end is that of a text of the literal."""
        ends, offsets = contents(stored)
        if isinstance(literal, Like):
            last = _end_of(literal)
            if literal.negated or last is None:
                return np.zeros(len(stored), np.bool_)
            # A text that ends so has an end as long as what is stored, or is shorter than that.
            shorter = (last[start:] for start in range(len(last) + 1))
            listed = list(shorter)
            met = of_each(
                ends,
                lambda each: flags(pc.ends_with(each, last.encode("utf-8", "surrogatepass"))) | _among(each, listed),
            )
        else:
            points = points_of(literal)
            if points is None:
                return np.zeros(len(stored), np.bool_)
            wanted = [str(point)[-int(parameter) :] for point in points]
            met = of_each(ends, lambda each: _among(each, wanted))
        return without_any(met, offsets, stored)


def _end_of(literal: Like) -> str | None:
    """The text that every text of a pattern ends with; None where there is none."""
    last = literal.pattern[-1] if literal.pattern else None
    return last if isinstance(last, str) else None


def _distinct_slices(column: BlockColumn, start: int, stop: int | None) -> pa.Array:
    """The distinct parts of each block's texts between two places, counted in characters."""
    bad = column.has_bad_text
    keys = column.keys.keys
    if bad.any():
        # How characters are counted in what is no text is nobody's business: such blocks get nothing.
        rows = np.repeat(bad, np.diff(column.keys.offsets))
        keys = pc.if_else(pa.array(rows), pa.scalar(b"", keys.type), keys)
    parts = pc.utf8_slice_codeunits(keys.cast(pa.large_string()), start, stop).cast(pa.large_binary())
    lists: list[pa.Array | None] = [
        None if is_bad or each.nbytes > MOST_BYTES else each
        for each, is_bad in zip(Keys(parts, column.keys.offsets).sorted_by_block(), bad.tolist(), strict=True)
    ]
    return list_array(lists, pa.large_binary())


def _begins_some(beginnings: pa.Array, wanted: ValueSet, characters: int) -> Bits:
    """Whether some text of the set may begin so: that is, all texts with that beginning meet one of its intervals."""
    met = np.zeros(len(beginnings), np.bool_)
    for low, high in wanted.intervals:
        start, end = key_bytes(low), key_bytes(high)
        above = np.ones(len(beginnings), np.bool_)
        if isinstance(low, str) and start is not None:
            # A beginning below the interval's start has texts within it only where the start itself begins so.
            above = flags(pc.greater_equal(beginnings, pa.scalar(start, beginnings.type)))
            above |= _among(beginnings, (low[:stop] for stop in range(min(len(low), characters) + 1)))
        met |= above & (True if end is None else flags(pc.less(beginnings, pa.scalar(end, beginnings.type))))
    return met


def _among(texts: pa.Array, wanted: Iterable[str]) -> Bits:
    listed = pa.array([text.encode("utf-8", "surrogatepass") for text in wanted], texts.type)
    return flags(pc.is_in(texts, listed))
