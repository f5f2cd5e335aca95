"""Zone maps: proofs about single literals from counts and bounds of columns, over all blocks at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from layoutopt.model.arrays import Bits, Keys, Packed
from layoutopt.model.predicates import Comparison, Expr, InSet, Like, Node, literal_prefix, matches
from layoutopt.model.types import INTEGER_BITS
from layoutopt.model.values import Interval, Key, ValueSet
from layoutopt.skipping.block_statistics import BlockStatistics, ColumnBounds
from layoutopt.skipping.derived_bounds import derive_bounds, implied_prefix

# More intervals than these are compared by binary search.
_FEW_INTERVALS = 8
# Types whose keys are the numbers themselves, so that keys of different types compare as their values do.
_WHOLE_NUMBERS = frozenset(INTEGER_BITS)
# The cache of proofs is cleared beyond so many bytes.
_MAX_CACHED_BYTES = 1 << 26
# About what a cached proof takes besides its bits.
_NODE_BYTES = 700


class ZoneMapEvaluator:
    """The proofs of counts and bounds about single literals, ``bool[n]`` each."""

    def __init__(self, statistics: BlockStatistics) -> None:
        self.statistics = statistics

    def packed(self, literal: Node) -> Packed:
        """Return :meth:`cannot`, eight blocks a byte; cached, since the queries of a log share many literals."""
        return prove_cached(self.statistics.proved, literal, self.cannot)

    def cannot(self, literal: Node) -> Bits:
        """Return the blocks without a row that makes the literal TRUE."""
        match literal:
            case InSet(subject, values, null):
                proved = self._without_values(subject) | self._outside(subject, values)
                implied = implied_prefix(literal)
                if implied is not None:
                    proved |= self.cannot(implied)
                return proved & self.without_nulls(subject) if null else proved
            case Like(subject, pattern, negated):
                proved = self._without_values(subject) | self._differ(literal)
                return proved if negated else proved | self._outside(subject, ValueSet.prefix(literal_prefix(pattern)))
            case Comparison(left, op, right):
                return self._without_values(left) | self._without_values(right) | self._excluded(left, op, right)
        return self._none()

    def _none(self) -> Bits:
        return np.zeros(self.statistics.n, dtype=np.bool_)

    def _bounds(self, subject: Expr) -> ColumnBounds | None:
        return derive_bounds(subject, self.statistics)

    def without_nulls(self, subject: Expr) -> Bits:
        """Return the blocks where the expression is known to be NULL in no row, ``bool[n]``."""
        bounds = self._bounds(subject)
        return self._none() if bounds is None else bounds.nulls == 0

    def _without_values(self, subject: Expr) -> Bits:
        """Return the blocks where the expression is NULL in all rows (or that have no rows)."""
        bounds = self._bounds(subject)
        return self._none() if bounds is None else bounds.nulls == self.statistics.rows

    def _outside(self, subject: Expr, values: ValueSet) -> Bits:
        """Return the blocks whose bounds contain none of the values."""
        if values.is_empty:
            return ~self._none()
        bounds = self._bounds(subject)
        if bounds is None or values.is_all or not bounds.known.any():
            return self._none()  # where bounds are unknown, the ends may be of another kind than the values
        if bounds.low.dtype == np.int64 and bounds.high.dtype == np.int64:
            return bounds.known & ~overlaps(bounds.low, bounds.high, values.intervals)
        proved, known = self._none(), bounds.known  # objects compare only if they are keys
        proved[known] = ~overlaps(bounds.low[known], bounds.high[known], values.intervals)
        return proved

    def _differ(self, literal: Like) -> Bits:
        """Return the blocks with a single text that does not make the literal TRUE (Edara 2021, 5.3.11)."""
        bounds, proved = self._bounds(literal.subject), self._none()
        if bounds is None or bounds.low.dtype == np.int64:
            return proved
        single = np.flatnonzero(bounds.known & np.equal(bounds.low, bounds.high).astype(np.bool_))
        texts = bounds.low[single].tolist()
        differ = {text: matches(literal.pattern, text) == literal.negated for text in set(texts)}
        proved[single] = [differ[text] for text in texts]
        return proved

    def _excluded(self, left: Expr, op: str, right: Expr) -> Bits:
        """Return the blocks where the bounds of two expressions exclude the comparison."""
        a, b = self._bounds(left), self._bounds(right)
        proved = self._none()
        if a is None or b is None or not (a.type == b.type or {a.type, b.type} <= _WHOLE_NUMBERS):
            return proved
        known = a.known & b.known
        a_low, a_high, b_low, b_high = a.low[known], a.high[known], b.low[known], b.high[known]
        if op == "<":
            proved[known] = a_low >= b_high
        elif op == "<=":
            proved[known] = a_low > b_high
        elif op == "=":
            proved[known] = (a_low > b_high) | (b_low > a_high)
        elif op == "<>":
            proved[known] = (a_low == a_high) & (b_low == b_high) & (a_low == b_low)
        return proved


def prove_cached(proved: dict[Node, Packed], literal: Node, prove: Callable[[Node], Bits]) -> Packed:
    """Return the proof about a literal, eight blocks a byte, from the cache ``proved`` if it is there."""
    packed = proved.get(literal)
    if packed is None:
        packed = np.packbits(prove(literal))
        if (len(proved) + 1) * (packed.nbytes + _NODE_BYTES) > _MAX_CACHED_BYTES:
            proved.clear()
        proved[literal] = packed
    return packed


def overlaps(low: Keys, high: Keys, intervals: tuple[Interval, ...]) -> Bits:
    """Return whether any of the half-open intervals (sorted, disjoint) overlaps ``[low, high]``, ``bool[n]``."""
    if len(intervals) > _FEW_INTERVALS:
        return _overlaps_by_search(low, high, intervals)
    overlapping = np.zeros(len(low), dtype=np.bool_)
    for start, end in intervals:
        overlapping |= _starts_by(start, high) & _ends_above(end, low)
    return overlapping


def _overlaps_by_search(low: Keys, high: Keys, intervals: tuple[Interval, ...]) -> Bits:
    """Return :func:`overlaps` by binary search: only the first interval that ends above ``low`` matters."""
    ends = _as_keys([end for _, end in intervals[:-1]], low)
    starts = _as_keys([start for start, _ in intervals[1:]], low)
    interval = np.searchsorted(ends, low, side="right")
    overlapping = _starts_by(intervals[0][0], high)
    later = interval > 0
    overlapping[later] = starts[interval[later] - 1] <= high[later]
    return overlapping & _ends_above(intervals[-1][1], low)


def _starts_by(start: Key | None, high: Keys) -> Bits:
    """Return whether an interval's start is at or below ``high``; None is below everything."""
    return np.ones(len(high), dtype=np.bool_) if start is None else np.asarray(high >= _scalar(start), dtype=np.bool_)


def _ends_above(end: Key | None, low: Keys) -> Bits:
    """Return whether an interval's exclusive end is above ``low``; None is above everything."""
    return np.ones(len(low), dtype=np.bool_) if end is None else np.asarray(low < _scalar(end), dtype=np.bool_)


def _scalar(key: Key) -> Key | Keys:
    """Return a key to compare with an array; numpy drops NULs at the end of bare str and bytes."""
    return key if isinstance(key, int) else np.array(key, dtype=np.object_)


def _as_keys(keys: list[Key | None], like: Keys) -> Keys:
    """Return keys as an array that compares with ``like``; decimals may exceed int64."""
    array = np.empty(len(keys), dtype=np.object_)
    array[:] = keys
    fit = all(isinstance(key, int) and -(2**63) <= key < 2**63 for key in keys)
    return array.astype(np.int64) if like.dtype == np.int64 and fit else array
