"""``prefix`` and ``suffix``: with what the texts of a block begin or end, for LIKE 'word%' and LIKE '%word'."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.indexes.bloom import points_of
from layoutopt.indexes.lists import contents, list_array, list_storage, of_each, without_any
from layoutopt.indexes.membership import flags, key_bytes
from layoutopt.indexes.protocol import BlockColumn, Keys, Parameter
from layoutopt.indexes.value_list import MOST_BYTES
from layoutopt.model.arrays import Bits
from layoutopt.model.predicates import InSet, Like, literal_prefix
from layoutopt.model.values import ValueSet, key_kind


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
