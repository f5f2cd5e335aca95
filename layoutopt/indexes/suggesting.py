"""Which indexes a log asks for, from its texts alone: for the queries that no feature helps (Ta-Shma 2020, IV-B).

How much an index saves depends on the rows; ``plan --index-budget`` measures that. This only says where to look: =, IN
and LIKE, which minima and maxima of blocks seldom deny. Ranges they do deny, and get no index here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from layoutopt.indexes.expressions import is_worth_indexing
from layoutopt.indexes.registry import find_index
from layoutopt.model.feature import FeatureSet
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import InSet, Like, Node, Or, conjuncts
from layoutopt.model.query import Query

_KINDS: Final = ("bloom", "prefix", "suffix", "ngrams")
"""In the order of what they cost: of equals the first is named."""
LEAST_SHARE: Final = 0.01
"""Of the log's weight: an index for less is not worth a line."""


@dataclass(frozen=True)
class Suggestion:
    """An index, and the weight of the queries that it could serve and no feature helps."""

    spec: IndexSpec
    weight: float


def suggested_indexes(queries: Sequence[Query], features: FeatureSet) -> tuple[Suggestion, ...]:
    """The indexes that could help queries which no feature subsumes, one for each expression, the heaviest first."""
    helped = np.any(features.matrix(queries), axis=1)
    weights: dict[IndexSpec, float] = defaultdict(float)
    for query, by_feature in zip(queries, helped, strict=True):
        if not by_feature:
            for spec in dict.fromkeys(_specs(query.filter.root)):
                weights[spec] += query.weight
    least = LEAST_SHARE * sum(query.weight for query in queries)
    ranked = sorted(weights, key=lambda spec: (-weights[spec], _KINDS.index(spec.kind), str(spec)))
    best = {spec.subject: spec for spec in reversed(ranked)}
    return tuple(
        Suggestion(spec, weights[spec]) for spec in ranked if best[spec.subject] == spec and weights[spec] >= least
    )


def _specs(root: Node) -> Iterator[IndexSpec]:
    """The indexes that could deny the filter to a block: those that serve every part of one of its conditions."""
    for condition in conjuncts(root):
        parts = condition.children if isinstance(condition, Or) else (condition,)
        literals = [part for part in parts if isinstance(part, InSet | Like)]
        if len(literals) < len(parts) or len({literal.subject for literal in literals}) > 1:
            continue
        subject = literals[0].subject
        for kind in _KINDS:
            if is_worth_indexing(subject) and all(_serves(kind, literal) for literal in literals):
                yield IndexSpec(subject, kind)


def _serves(kind: str, literal: InSet | Like) -> bool:
    index = find_index(kind)
    if index.storage(literal.subject.type) is None or not index.serves(literal):
        return False
    is_range = isinstance(literal, InSet) and literal.values.points() is None
    return not is_range or kind == "prefix"
