"""Blocks by cuts: a segment's columns and feature bits as codes, a plan's queries as clauses over them, and the tree.

The tree is computed anew for each segment, from its own rows and the ranges of the plan's queries: a plan holds none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from layoutopt.errors import PlanError
from layoutopt.features.recurrence import unseen_shares
from layoutopt.model.arrays import Bits, Floats, Ints, Words
from layoutopt.model.feature import FeatureSet
from layoutopt.model.layout import QUANTILES, ByCuts, Layout, Plan
from layoutopt.model.predicates import FALSE, Col, InSet, Like, Literal, literal_prefix, literals_of
from layoutopt.model.query import Query
from layoutopt.model.values import Interval, ValueSet
from layoutopt.model.vectors import feature_bit, project, unpack
from layoutopt.partitioning.cuts import dimensions
from layoutopt.partitioning.cuts.dimensions import OF_FEATURE
from layoutopt.partitioning.cuts.filters import CodeFilters, CodeSet
from layoutopt.partitioning.cuts.shifts import number_of_copies, with_shifts
from layoutopt.partitioning.cuts.tree import MEAN_OVER_MIN, Rows, cut_rows
from layoutopt.partitioning.weights import integer_weights
from layoutopt.skipping.skip_sets import skip_set_table
from layoutopt.writer.cut_columns import CutColumn

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
    given = dict(blocking.params).get(QUANTILES, dimensions.QUANTILES)
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
