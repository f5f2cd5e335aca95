"""A column's values as 64-bit numbers in Spark's order, so that a tree can cut columns of every type alike."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from layoutopt.catalog.keys import FLOATS, ArrowValues, dense_ranks, filled, stored_keys
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.values import NAN_KEY, Interval, Key
from layoutopt.partitioning.cuts.dimensions import LARGEST, QUANTILES, Codes, Span, Thresholds, choose_thresholds


@dataclass(frozen=True, eq=False)
class Numbers:
    """A column as numbers: its keys where these have 64 bits, else their places among the distinct ones.

    Attributes:
        values: of each row, ``int64[n]``; what stands for NULL means nothing.
        nulls: which are NULL, ``bool[n]``; None where none is.
        distinct: the distinct keys in order, where ``values`` are places among them.
    """

    values: Ints
    nulls: Bits | None
    distinct: pa.Array | None

    @classmethod
    def of(cls, column: ArrowValues, type: str) -> Numbers:
        """The numbers of a column of an ordered type."""
        stored = stored_keys(column, type)
        nulls = np.asarray(stored.is_null()) if stored.null_count else None
        if stored.type == pa.int64():
            return cls(np.asarray(filled(stored, 0)), nulls, None)
        encoded = stored.dictionary_encode()
        in_order, rank = dense_ranks(encoded.dictionary)
        indices = np.asarray(filled(encoded.indices, 0))
        values = rank[indices] if len(rank) else np.zeros(len(indices), dtype=np.int64)
        return cls(values, nulls, in_order)

    def number(self, key: Key) -> int:
        """The number from which on values are at least the key."""
        if self.distinct is None:
            return max(-LARGEST - 1, min(int(key), LARGEST))
        return bisect_left(_Values(self.distinct), key.encode() if isinstance(key, str) else key)

    def at(self, rows: Ints) -> tuple[Ints, Bits | None]:
        """The values of some rows, and which of them are NULL."""
        return self.values[rows], None if self.nulls is None else self.nulls[rows]


class _Values(Sequence[int | bytes]):
    def __init__(self, array: pa.Array) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, place: int) -> int | bytes:  # type: ignore[override]
        value = self._array[place].as_py()
        return value if isinstance(value, bytes) else int(value)


@dataclass(frozen=True, eq=False)
class CutColumn:
    """A column that a tree may cut: its numbers, and where."""

    numbers: Numbers
    thresholds: Thresholds

    @classmethod
    def of(
        cls, column: ArrowValues, type: str, intervals: Iterable[Interval], places: Ints, quantiles: int = QUANTILES
    ) -> CutColumn:
        """A column cut at quantiles of the rows at ``places`` and where the intervals of the log begin and end."""
        numbers = Numbers.of(column, type)
        sampled, nulls = numbers.at(places)
        present = numbers.values if numbers.nulls is None else numbers.values[~numbers.nulls]
        if not len(present):
            return cls(numbers, Thresholds(np.zeros(0, dtype=np.int64)))
        keys = {key for interval in intervals for key in interval if key is not None}
        constants = {numbers.number(key) for key in keys} | ({NAN_KEY} if type in FLOATS else set())
        some = sampled if nulls is None else sampled[~nulls]
        return cls(numbers, choose_thresholds(some, constants, int(present.min()), int(present.max()), quantiles))

    def sampled(self, places: Ints) -> Codes:
        """The codes of some rows, ``int16[k]``."""
        return self.thresholds.codes(*self.numbers.at(places))

    def is_low(self, code: int, rows: Ints) -> Bits:
        """Which of some rows have at most that code, ``bool[k]``."""
        return self.thresholds.is_low(code, *self.numbers.at(rows))

    def covered(self, intervals: Iterable[Interval]) -> tuple[Span, ...]:
        """The codes that hold values of any of the intervals."""
        number = self.numbers.number
        return tuple(
            self.thresholds.covered(None if low is None else number(low), None if high is None else number(high))
            for low, high in intervals
        )
