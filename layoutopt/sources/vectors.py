"""Evaluate feature vectors without Spark: exactly those that Spark would compute, or none.

Features of stored columns are evaluated as in a load task (:mod:`layoutopt.evaluation.predicates`). For a literal of a
function each row is treated as a block: where both bounds of the function are equal
(:mod:`layoutopt.skipping.derived_bounds`), they are its value. DuckDB evaluates other literals that mean the same there
(:mod:`layoutopt.sql.duckdb`). Only Spark can evaluate the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa

from layoutopt.errors import NeedsSparkError, QueryError
from layoutopt.evaluation.conditions import evaluate_conditions
from layoutopt.evaluation.keys import has_key, key_array, one_chunk
from layoutopt.evaluation.predicates import KeyedRows, features_left_to_spark, matching_rows, segment_words
from layoutopt.model.arrays import Bits, Ints, Words
from layoutopt.model.feature import Feature, FeatureSet, SessionSettings
from layoutopt.model.predicates import InSet, Literal, Node, describe, to_sql
from layoutopt.model.predicates.nodes import user_calls
from layoutopt.model.schema import Schema
from layoutopt.model.values import key_kind
from layoutopt.model.vectors import pack
from layoutopt.skipping.block_statistics import BlockStatistics, ColumnBounds
from layoutopt.skipping.derived_bounds import derive_bounds
from layoutopt.skipping.zone_maps import ZoneMapEvaluator
from layoutopt.sources.shuffle import CutJob, read_first_rows
from layoutopt.sources.split import Split


def evaluate_exact_vectors(features: FeatureSet, rows: pa.Table, schema: Schema) -> Words:
    """Return the rows' feature vectors, ``uint64[n, w]``, bit ``i`` for feature ``i``.

    Raises:
        NeedsSparkError: only Spark can evaluate a feature; names it.
    """
    evaluator = _Evaluator(rows, schema, features.settings)

    def evaluate(remaining: Sequence[int]) -> Words:
        bits = np.zeros((rows.num_rows, len(remaining)), dtype=np.bool_)
        for place, feature in enumerate(remaining):
            bits[:, place] = evaluator.evaluate(features.features[feature])
        return pack(bits)

    return segment_words(features.features, rows, evaluate)


def evaluate_words(features: Sequence[Feature], rows: pa.Table, schema: Schema, *, settings: SessionSettings) -> Words:
    """Return the rows' vectors over features of functions and LIKE, ``uint64[n, w]``; an unknown bit is set.

    A set bit never lets a query skip, so the few values that only Spark can evaluate (texts that are no UTF-8, too)
    reduce skipping and lose no rows. Features of one column are evaluated once for each distinct value.

    Raises:
        NeedsSparkError: only Spark can evaluate a feature for most values that are not NULL; names it.
    """
    bits = np.ones((rows.num_rows, len(features)), dtype=np.bool_)
    places_by_columns: dict[frozenset[str], list[int]] = {}
    for place, feature in enumerate(features):
        places_by_columns.setdefault(feature.columns, []).append(place)
    for columns, places in places_by_columns.items():
        distinct, codes = _distinct_rows(rows.select([name for name in rows.column_names if name in columns]))
        readable = _find_readable(distinct, schema)
        evaluator = _Evaluator(distinct.filter(pa.array(readable)), schema, settings, strict=False)
        distinct_bits = np.ones((distinct.num_rows, len(places)), dtype=np.bool_)
        for k, place in enumerate(places):
            distinct_bits[readable, k] = evaluator.evaluate(features[place])
        bits[:, places] = distinct_bits if codes is None else distinct_bits[codes]
    return pack(bits)


def _distinct_rows(rows: pa.Table) -> tuple[pa.Table, Ints | None]:
    """Return the distinct rows of a table of one column with each row's place among them; else all rows and None."""
    if rows.num_columns != 1 or pa.types.is_nested(rows.schema.field(0).type):
        return rows, None
    coded = one_chunk(rows.column(0)).dictionary_encode("encode")
    return pa.table({rows.column_names[0]: coded.dictionary}), np.asarray(coded.indices)


def _find_readable(rows: pa.Table, schema: Schema) -> Bits:
    readable = np.ones(rows.num_rows, dtype=np.bool_)
    for name in rows.column_names:
        if key_kind(type := schema.find(name).type) == "str":
            readable &= has_key(rows[name], type) | np.asarray(rows[name].is_null())
    return readable


class _Evaluator:
    """Evaluates features on rows, each predicate and literal once.

    Unless ``strict``, an unknown value counts as TRUE as long as most of the values that are not NULL are known.
    """

    def __init__(self, rows: pa.Table, schema: Schema, settings: SessionSettings, strict: bool = True) -> None:
        self._strict, self._settings = strict, settings
        self._keyed = KeyedRows(rows)
        self._rows, self._schema = rows, schema
        self._results: dict[Node, Bits] = {}
        self._points: dict[frozenset[str], BlockStatistics] = {}

    def evaluate(self, feature: Feature) -> Bits:
        """Return the rows for which all predicates of a feature are TRUE, ``bool[n]``."""
        matches = np.ones(self._keyed.num_rows, dtype=np.bool_)
        for predicate in feature.predicates:
            if predicate.node not in self._results:
                any_literal = np.zeros(self._keyed.num_rows, dtype=np.bool_)
                for literal in predicate.literals:
                    any_literal |= self._evaluate_literal(literal)
                self._results[predicate.node] = any_literal
            matches &= self._results[predicate.node]
        return matches

    def _evaluate_literal(self, literal: Literal) -> Bits:
        if literal not in self._results:
            by_keys = matching_rows(literal, self._keyed)
            self._results[literal] = self._evaluate_by_bounds(literal) if by_keys is None else by_keys
        return self._results[literal]

    def _evaluate_by_bounds(self, literal: Literal) -> Bits:
        points = self._point_statistics(literal.columns)
        bounds = derive_bounds(literal.subject, points) if isinstance(literal, InSet) else None
        known: Bits = np.zeros(self._keyed.num_rows, dtype=np.bool_)
        if bounds is not None:
            known = (bounds.nulls == 1) | (bounds.known & np.equal(bounds.low, bounds.high).astype(np.bool_))
            known &= bounds.nulls >= 0
        if not self._is_enough(known, bounds):
            return self._evaluate_by_engine(literal)
        return ~(known & ZoneMapEvaluator(points).cannot(literal))

    def _evaluate_by_engine(self, literal: Literal) -> Bits:
        columns = tuple(column for column in self._schema.columns if column.name in literal.columns)
        has_usual_settings = self._settings.ansi and not self._settings.case_sensitive
        if has_usual_settings and not any(user_calls(literal)):
            rows = self._rows.select([column.name for column in columns])
            with suppress(QueryError, pa.ArrowInvalid):
                rows.validate(full=True)  # DuckDB counts the letters of bytes that are no UTF-8 in its own way
                return evaluate_conditions(Schema(columns), [to_sql(literal)], rows, self._settings.time_zone)[0]
        raise NeedsSparkError(f"only Spark can tell which rows have {describe(literal)}")

    def _is_enough(self, known: Bits, bounds: ColumnBounds | None) -> bool:
        if self._strict or bounds is None:
            return bool(known.all())
        is_set = bounds.nulls != 1
        return bool(2 * np.count_nonzero(known & is_set) >= np.count_nonzero(is_set))

    def _point_statistics(self, columns: frozenset[str]) -> BlockStatistics:
        if columns not in self._points:
            bounds = {
                column.name: _point_bounds(self._rows[column.name], column.type)
                for column in self._schema.columns
                if column.name in columns
            }
            self._points[columns] = BlockStatistics(np.ones(self._rows.num_rows, dtype=np.int64), bounds=bounds)
        return self._points[columns]


def _point_bounds(values: pa.ChunkedArray, type: str) -> ColumnBounds:
    """Return each value as the bounds of a block that has no other value."""
    nulls = np.asarray(values.is_null(), dtype=np.int64)
    if key_kind(type) is None:
        zeros = np.zeros(len(values), dtype=np.int64)
        return ColumnBounds(zeros, zeros, zeros.astype(np.bool_), nulls, type)
    keys = key_array(values, type)
    return ColumnBounds(keys, keys, has_key(values, type), nulls, type)


def check_features_by_arrow(job: CutJob, split: Split, features: FeatureSet) -> None:
    """Raise NeedsSparkError where some rows of a split show that only Spark can read the file or evaluate a feature."""
    if features_left_to_spark(features.features, job.schema.names):
        evaluate_exact_vectors(features, read_first_rows(job, split), job.schema)
