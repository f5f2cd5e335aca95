"""Which indexes a log asks for, from its texts alone: for the queries that no feature helps (Ta-Shma 2020, IV-B).

How much an index saves depends on the rows; ``plan --index-budget`` measures that. This only says where to look: =, IN,
LIKE and distances, which minima and maxima of blocks seldom deny, ranges of elements and of what is computed of several
columns, and places within two ranges. Ranges of one column they do deny, and these get no index here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from layoutopt.catalog.keys import FLOATS
from layoutopt.indexes.choosing import forms_of, points_asked, subjects_of
from layoutopt.indexes.expressions import is_computed_here, is_worth_indexing, parts_of
from layoutopt.indexes.protocol import functions_of, suits
from layoutopt.indexes.registry import find_index
from layoutopt.model.feature import FeatureSet
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import And, Call, Expr, InSet, Like, Node, Or, conjuncts, describe
from layoutopt.model.predicates.elements import array_of
from layoutopt.model.query import Query
from layoutopt.model.types import decimal_digits

_KINDS: Final = ("formatted", "bloom", "prefix", "suffix", "ngrams", "metric-distance", "gap-list", "geo-box")
"""In the order of what they cost: of equals the first is named."""
LEAST_SHARE: Final = 0.01
"""Of the log's weight: an index for less is not worth a line."""
_PLACES: Final = 4
"""Digits after the point of decimals that may be coordinates; prices have fewer."""


@dataclass(frozen=True)
class Suggestion:
    """An index, the weight of the queries that it could serve and no feature helps, and what one of them asks."""

    spec: IndexSpec
    weight: float
    asked: str = ""


def suggested_indexes(queries: Sequence[Query], features: FeatureSet) -> tuple[Suggestion, ...]:
    """The indexes that could help queries which no feature subsumes, one for each expression, the heaviest first."""
    helped = np.any(features.matrix(queries), axis=1)
    weights: dict[IndexSpec, float] = defaultdict(float)
    asked: dict[IndexSpec, str] = {}
    for query, by_feature in zip(queries, helped, strict=True):
        if not by_feature:
            for spec, condition in dict(_specs(query.filter.root)).items():
                weights[spec] += query.weight
                asked.setdefault(spec, describe(condition))
    least = LEAST_SHARE * sum(query.weight for query in queries)
    ranked = sorted(weights, key=lambda spec: (-weights[spec], _KINDS.index(spec.kind), str(spec)))
    best = {spec.subject: spec for spec in reversed(ranked)}
    return tuple(
        Suggestion(spec, weights[spec], asked[spec])
        for spec in ranked
        if best[spec.subject] == spec and weights[spec] >= least
    )


def _specs(root: Node) -> Iterator[tuple[IndexSpec, Node]]:
    """The indexes that could deny the filter to a block, each with the condition that it would deny.

    They serve every part of one of the filter's conditions, or two that are joined by AND.
    """
    for condition in conjuncts(root):
        parts = condition.children if isinstance(condition, Or) else (condition,)
        literals = [part for part in parts if isinstance(part, InSet | Like)]
        if len(literals) < len(parts):
            continue
        for alike in _of_one_subject([forms_of(literal) for literal in literals]):
            found = [
                IndexSpec(subject, kind)
                for kind in _KINDS
                for subject in subjects_of(alike[0], find_index(kind))
                if is_worth_indexing(subject) and all(_serves(kind, subject, literal) for literal in alike)
            ]
            yield from ((spec, condition) for spec in found)
            if any(is_computed_here(spec.subject) for spec in found):
                break  # its elements are more values than its own
    if isinstance(root, And):
        for point, kind in points_asked(root):
            if kind in _KINDS and all(_is_place(part) for part in parts_of(point)):
                ranges = [part for part in root.children if isinstance(part, InSet) and part.subject in parts_of(point)]
                yield IndexSpec(point, kind), And(tuple(ranges))


def _of_one_subject(forms: Sequence[tuple[InSet | Like, ...]]) -> Iterator[list[InSet | Like]]:
    """A form of each literal, of which all have the same subject; for every subject that there is."""
    for first in forms[0]:
        found = [[form for form in each if form.subject == first.subject] for each in forms]
        if all(found):
            yield [of_one[0] for of_one in found]


def _serves(kind: str, subject: Expr, literal: InSet | Like) -> bool:
    index = find_index(kind)
    if not suits(index, subject) or not index.serves(literal):
        return False
    if functions_of(index):
        return subject != literal.subject  # what is equal to a text others serve better
    is_range = isinstance(literal, InSet) and literal.values.points() is None
    if kind == "gap-list":
        return is_range and isinstance(subject, Call) and (len(subject.columns) > 1 or array_of(subject) is not None)
    return not is_range or kind == "prefix"


def _is_place(part: Expr) -> bool:
    digits = decimal_digits(part.type)
    return part.type in FLOATS or (digits is not None and digits[1] >= _PLACES)
