"""Blocks by cuts: a segment's columns and feature bits as codes, a plan's queries as clauses over them, and the tree.

The tree is computed anew for each segment, from its own rows and the ranges of the plan's queries: a plan holds none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from layoutopt.catalog.keys import FLOATS, ArrowValues, dense_ranks, filled, stored_keys
from layoutopt.errors import PlanError
from layoutopt.features.stability import unseen_shares
from layoutopt.model.arrays import Bits, Floats, Ints, Words
from layoutopt.model.feature import FeatureSet
from layoutopt.model.layout import QUANTILES, ByCuts, Layout, Plan
from layoutopt.model.predicates import FALSE, Col, InSet, Like, Literal, literal_prefix, literals_of
from layoutopt.model.query import Query
from layoutopt.model.values import NAN_KEY, Interval, Key, ValueSet
from layoutopt.model.vectors import feature_bit, project, unpack
from layoutopt.partitioning.objective import integer_weights
from layoutopt.partitioning.value_cuts import (
    DEFAULT_QUANTILES,
    LARGEST,
    MEAN_OVER_MIN,
    OF_FEATURE,
    CodeFilters,
    Codes,
    CodeSet,
    Rows,
    Span,
    Thresholds,
    choose_thresholds,
    cut_rows,
    number_of_copies,
    with_shifts,
)
from layoutopt.skipping.skip_sets import skip_set_table

# ----------------------------------------------------------------------------------------------------
# A column's values as 64-bit numbers in Spark's order, so that a tree can cut columns of every type alike.


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
        cls,
        column: ArrowValues,
        type: str,
        intervals: Iterable[Interval],
        places: Ints,
        quantiles: int = DEFAULT_QUANTILES,
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


# A tree is chosen by so many codes of sampled rows at most, but by so many rows at least.
_SAMPLED_CODES = 2_000_000
_SAMPLED_ROWS = 50_000

_MOST_QUANTILES = 10_000

_CELLS_BY_QUANTILES = 64


def cut_blocks(plan: Plan, layout: Layout, table: pa.Table, words: Words, weights: Floats) -> Ints:
    """The block of each row, ``int64[n]``, numbered from 0 without gaps in the order of the tree's leaves.

    Args:
        plan: with its queries and seed.
        layout: one of the plan's, blocked by cuts.
        table: the rows.
        words: their feature vectors, ``uint64[n, w]``.
        weights: of each query, 0 where the layout is not for it, ``float64[n_queries]``.
    """
    assert isinstance(layout.blocking, ByCuts)
    names, local = layout.blocking.columns, layout.guiding
    places = _sample(table.num_rows, len(names) + len(local), plan.seed)
    asked = _asked(plan.queries, names, plan.features.only(local))
    quantiles = _quantiles(layout.blocking)
    columns = [
        CutColumn.of(table[name], plan.schema.find(name).type, _intervals(asked, i), places, quantiles)
        for i, name in enumerate(names)
    ]
    bits = unpack(project(words[places], local), len(local)).astype(np.int16) + np.int16(1)
    sampled = np.column_stack([*(column.sampled(places) for column in columns), bits])
    n_codes = [*(column.thresholds.n_codes for column in columns), *(OF_FEATURE for _ in local)]
    queries = [[tuple(_coded(literal, columns) for literal in clause) for clause in query] for query in asked]
    most = max([OF_FEATURE, *n_codes])
    copies = number_of_copies(queries, most) if quantiles else 1
    scaled = integer_weights(np.tile(weights, copies), max(1, len(places)))
    chances = _chances(plan.queries, names, len(local))
    alike = with_shifts(queries, n_codes, chances, copies, plan.seed)
    filters = CodeFilters.of(alike, scaled, len(n_codes), most)
    rows = Rows(table.num_rows, sampled, _Sides(columns, local, words))
    return cut_rows(rows, filters, max(1, round(plan.block_rows / MEAN_OVER_MIN)))


def cells_of(plan: Plan, name: str, table: pa.Table) -> Ints:
    """Where a column may be cut: the cell of each row, ``int64[n]``, numbered in the order of values, NULL first.

    Cells begin and end where ranges of the plan's queries do, and at a few quantiles of the rows.
    """
    rows, type = np.arange(table.num_rows), plan.schema.find(name).type
    column = CutColumn.of(table[name], type, _ranges_of(plan.queries, name), rows, _CELLS_BY_QUANTILES)
    return column.sampled(rows).astype(np.int64)


def _quantiles(blocking: ByCuts) -> int:
    given = dict(blocking.params).get(QUANTILES, DEFAULT_QUANTILES)
    if not isinstance(given, int) or not 0 <= given <= _MOST_QUANTILES:
        raise PlanError(f"the plan's {QUANTILES} is {given!r:.80}; plan again, or give 0 to {_MOST_QUANTILES}")
    return given


def _sample(n: int, dimensions: int, seed: int) -> Ints:
    """Some of ``n`` rows, all of them where they are few; ``int64[m]``, ascending."""
    most = max(_SAMPLED_ROWS, _SAMPLED_CODES // max(1, dimensions))
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, most, replace=False, shuffle=False))


@lru_cache(maxsize=8)
def _chances(queries: tuple[Query, ...], columns: tuple[str, ...], features: int) -> tuple[float, ...]:
    """The chance that a range of each dimension is new."""
    unseen = unseen_shares(queries)
    return (*(unseen.get(name, 0.0) for name in columns), *(0.0,) * features)


@dataclass(frozen=True, eq=False)
class _Sides:
    """Takes cuts to the rows of a segment."""

    columns: list[CutColumn]
    features: tuple[int, ...]
    words: Words

    def __call__(self, dimension: int, code: int, rows: Ints) -> Bits:
        if dimension < len(self.columns):
            return self.columns[dimension].is_low(code, rows)
        return ~feature_bit(self.words[rows], self.features[dimension - len(self.columns)])


@dataclass(frozen=True)
class _Asked:
    """A literal: its dimension, and the values for which it is TRUE; a feature's bit, where there are none."""

    dimension: int
    values: ValueSet | None = None
    null: bool = False


_Clauses = tuple[tuple[_Asked, ...], ...]


@lru_cache(maxsize=8)
def _asked(queries: tuple[Query, ...], columns: tuple[str, ...], features: FeatureSet) -> tuple[_Clauses, ...]:
    """What each query asks for: predicates about these columns alone, and skip sets of these features.

    A query skips a block where it can't meet one of the predicates, or where all features of a skip set have bit 0.
    """
    place = {name: i for i, name in enumerate(columns)}
    skip_sets, has_skip_set = skip_set_table(queries, features)
    by_features = [tuple(_Asked(len(columns) + feature) for feature in sorted(one)) for one in skip_sets]
    found = []
    for query, has in zip(queries, has_skip_set, strict=True):
        never: _Clauses = ((),) if query.filter.root == FALSE else ()
        found.append((*never, *_by_values(query, place), *(by_features[i] for i in np.flatnonzero(has))))
    return tuple(found)


def _by_values(query: Query, place: dict[str, int]) -> Iterator[tuple[_Asked, ...]]:
    for predicate in query.filter.predicates:
        literals = [_of_column(literal, place) for literal in predicate.literals]
        if None not in literals:
            yield tuple(literal for literal in literals if literal is not None)


def _of_column(literal: Literal, place: dict[str, int]) -> _Asked | None:
    """The literal as values of a column; None where bounds of columns prove nothing of it."""
    if not isinstance(literal, InSet | Like) or not isinstance(literal.subject, Col):
        return None
    if literal.subject.name not in place:
        return None
    if isinstance(literal, InSet):
        return _Asked(place[literal.subject.name], literal.values, literal.null)
    every = literal.negated or not literal_prefix(literal.pattern)
    values = ValueSet.all() if every else ValueSet.prefix(literal_prefix(literal.pattern))
    return _Asked(place[literal.subject.name], values)


def _intervals(asked: tuple[_Clauses, ...], dimension: int) -> Iterator[Interval]:
    for query in asked:
        for clause in query:
            for literal in clause:
                if literal.dimension == dimension and literal.values is not None:
                    yield from literal.values.intervals


def _ranges_of(queries: Iterable[Query], name: str) -> Iterator[Interval]:
    """Ranges of the column that are asked for anywhere in the queries' filters, whatever else is asked beside them."""
    for query in queries:
        for literal in literals_of(query.filter.root):
            asked = _of_column(literal, {name: 0})
            if asked is not None and asked.values is not None:
                yield from asked.values.intervals


def _coded(literal: _Asked, columns: list[CutColumn]) -> CodeSet:
    if literal.values is None:
        return CodeSet(literal.dimension, ((OF_FEATURE - 1, OF_FEATURE),))
    spans = columns[literal.dimension].covered(literal.values.intervals)
    return CodeSet(literal.dimension, spans, literal.null, literal.values.is_range)
