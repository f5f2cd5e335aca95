"""Feature vectors of few rows without Spark: exactly those that Spark would compute, or none.

Features of stored columns are evaluated as a load task does (:mod:`layoutopt.writer.evaluation`). For a literal of a
function, each row is a block of its own: where both bounds of the function are equal
(:mod:`layoutopt.skipping.derived_bounds`), they are its value. Spark evaluates whatever remains.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from layoutopt.catalog.keys import has_key, key_array, one_chunk
from layoutopt.errors import NeedsSparkError
from layoutopt.model.arrays import Bits, Ints, Words
from layoutopt.model.feature import Feature
from layoutopt.model.predicates import InSet, Literal, Node, describe
from layoutopt.model.schema import Schema
from layoutopt.model.values import key_kind
from layoutopt.model.vectors import pack
from layoutopt.skipping.block_statistics import BlockStatistics, ColumnBounds
from layoutopt.skipping.derived_bounds import bounds_of
from layoutopt.skipping.zone_maps import ZoneMapEvaluator
from layoutopt.writer.evaluation import KeyedRows, matching_rows, segment_words


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


def evaluate_words(features: Sequence[Feature], rows: pa.Table, schema: Schema) -> Words:
    """The rows' vectors over features of functions and LIKE, ``uint64[n, w]``; a bit that is not known is set.

    A set bit never lets a query skip, so what only Spark could tell of few values (texts that are no UTF-8, too) costs
    skipping, not rows. Features of one column are found once for each distinct value.

    Args:
        features: bit ``i`` is feature ``i``.
        rows: in the Arrow forms of their types.
        schema: theirs.

    Raises:
        NeedsSparkError: of most values that are not NULL a feature is not known here; names it.
    """
    bits = np.ones((rows.num_rows, len(features)), dtype=np.bool_)
    of_columns: dict[frozenset[str], list[int]] = {}
    for place, feature in enumerate(features):
        of_columns.setdefault(feature.columns, []).append(place)
    for columns, places in of_columns.items():
        held, code_of = _distinct(rows.select([name for name in rows.column_names if name in columns]))
        told = _are_told(held, schema)
        known = _Known(held.filter(pa.array(told)), schema, strict=False)
        found = np.ones((held.num_rows, len(places)), dtype=np.bool_)
        for k, place in enumerate(places):
            found[told, k] = known.of_feature(features[place])
        bits[:, places] = found if code_of is None else found[code_of]
    return pack(bits)


def _distinct(rows: pa.Table) -> tuple[pa.Table, Ints | None]:
    """The distinct rows of a table of one column with each row's place among them; of several all rows."""
    if rows.num_columns != 1 or pa.types.is_nested(rows.schema.field(0).type):
        return rows, None
    coded = one_chunk(rows.column(0)).dictionary_encode("encode")
    return pa.table({rows.column_names[0]: coded.dictionary}), np.asarray(coded.indices)


def _are_told(rows: pa.Table, schema: Schema) -> Bits:
    """The rows whose texts are all UTF-8, or NULL."""
    told = np.ones(rows.num_rows, dtype=np.bool_)
    for name in rows.column_names:
        if key_kind(type := schema.find(name).type) == "str":
            told &= has_key(rows[name], type) | np.asarray(rows[name].is_null())
    return told


class _Known:
    """What is known of rows, each predicate and literal once.

    If not ``strict``, what is not known counts as TRUE, and only where it is most of what is not NULL is that too much.
    """

    def __init__(self, rows: pa.Table, schema: Schema, strict: bool = True) -> None:
        self._strict = strict
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
        told: Bits = np.zeros(self._keyed.num_rows, dtype=np.bool_)
        if bounds is not None:
            told = (bounds.nulls == 1) | (bounds.known & np.equal(bounds.low, bounds.high).astype(np.bool_))
            told &= bounds.nulls >= 0
        if not self._is_enough(told, bounds):
            raise NeedsSparkError(f"only Spark can tell which rows have {describe(literal)}")
        return ~(told & ZoneMapEvaluator(points).cannot(literal))

    def _is_enough(self, told: Bits, bounds: ColumnBounds | None) -> bool:
        """Whether as many rows are told as have to be."""
        if self._strict or bounds is None:
            return bool(told.all())
        asked = bounds.nulls != 1
        return bool(2 * np.count_nonzero(told & asked) >= np.count_nonzero(asked))

    def _points_of(self, columns: frozenset[str]) -> BlockStatistics:
        """The rows as blocks of one row each, with the bounds of some columns."""
        if columns not in self._points:
            bounds = {
                column.name: _bounds_of_points(self._rows[column.name], column.type)
                for column in self._schema.columns
                if column.name in columns
            }
            self._points[columns] = BlockStatistics(np.ones(self._rows.num_rows, dtype=np.int64), bounds=bounds)
        return self._points[columns]


def _bounds_of_points(values: pa.ChunkedArray, type: str) -> ColumnBounds:
    """Each value as the bounds of a block that has no other."""
    nulls = np.asarray(values.is_null(), dtype=np.int64)
    if key_kind(type) is None:
        none = np.zeros(len(values), dtype=np.int64)
        return ColumnBounds(none, none, none.astype(np.bool_), nulls, type)
    keys = key_array(values, type)
    return ColumnBounds(keys, keys, has_key(values, type), nulls, type)
