"""Feature vectors of few rows without Spark: exactly those that Spark would compute, or none.

Features of stored columns are found as a task finds them (:mod:`layoutopt.writer.features`). Of a literal of a function
each row is a block of its own, and what bounds prove of functions (:mod:`layoutopt.skipping.derived`) is its value,
where both bounds of every row are the same. What is known in neither way is left to Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from layoutopt.errors import NeedsSparkError
from layoutopt.model.arrays import Bits, Ints, Words
from layoutopt.model.feature import Feature
from layoutopt.model.predicates import InSet, Literal, Node, describe
from layoutopt.model.schema import Schema
from layoutopt.model.vectors import pack
from layoutopt.skipping.block_statistics import BlockStatistics
from layoutopt.skipping.derived.bounds import bounds_of
from layoutopt.skipping.zone_maps import ZoneMapEvaluator
from layoutopt.writer.features import segment_words
from layoutopt.writer.matching import KeyedRows, matching_rows
from layoutopt.writer.slices import statistics_of_ranges


def vectors_of(features: Sequence[Feature], rows: pa.Table, schema: Schema) -> Words:
    """The rows' feature vectors, ``uint64[n, w]``.

    Args:
        features: bit ``i`` is feature ``i``.
        rows: in the Arrow forms of their types.
        schema: theirs.

    Raises:
        NeedsSparkError: a feature asks for something that is not known here; names it.
    """
    known = _Known(rows, schema)

    def of_left(left: Sequence[int]) -> Words:
        bits = np.zeros((rows.num_rows, len(left)), dtype=np.bool_)
        for place, feature in enumerate(left):
            bits[:, place] = known.of_feature(features[feature])
        return pack(bits)

    return segment_words(features, rows, of_left)


class _Known:
    """What is known of rows, each predicate and literal once."""

    def __init__(self, rows: pa.Table, schema: Schema) -> None:
        self._keyed = KeyedRows(rows)
        self._rows, self._schema = rows, schema
        self._of_nodes: dict[Node, Bits] = {}
        self._points: dict[frozenset[str], BlockStatistics] = {}

    def of_feature(self, feature: Feature) -> Bits:
        """The rows for which all predicates of a feature are TRUE, ``bool[n]``."""
        held = np.ones(self._keyed.num_rows, dtype=np.bool_)
        for predicate in feature.predicates:
            if predicate.node not in self._of_nodes:
                self._of_nodes[predicate.node] = self._any_of(predicate.literals)
            held &= self._of_nodes[predicate.node]
        return held

    def _any_of(self, literals: Iterable[Literal]) -> Bits:
        found = np.zeros(self._keyed.num_rows, dtype=np.bool_)
        for literal in literals:
            if literal not in self._of_nodes:
                by_keys = matching_rows(literal, self._keyed)
                self._of_nodes[literal] = self._by_bounds(literal) if by_keys is None else by_keys
            found |= self._of_nodes[literal]
        return found

    def _by_bounds(self, literal: Literal) -> Bits:
        points = self._points_of(literal.columns)
        bounds = bounds_of(literal.subject, points) if isinstance(literal, InSet) else None
        if bounds is None or not (bounds.nulls >= 0).all():
            raise NeedsSparkError(f"only Spark can tell which rows have {describe(literal)}")
        null, known = bounds.nulls == 1, bounds.known
        if not (null | (known & np.equal(bounds.low, bounds.high).astype(np.bool_))).all():
            raise NeedsSparkError(f"only Spark can tell which rows have {describe(literal)}")
        return ~ZoneMapEvaluator(points).cannot(literal)

    def _points_of(self, columns: frozenset[str]) -> BlockStatistics:
        """The rows as blocks of one row each, with the bounds of some columns."""
        if columns not in self._points:
            names = [name for name in self._schema.names if name in columns]
            ends: Ints = np.arange(self._rows.num_rows + 1)
            self._points[columns] = statistics_of_ranges(self._schema.select(names), self._rows.select(names), ends)
        return self._points[columns]
