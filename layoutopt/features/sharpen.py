"""Add stricter features for the same queries: ``day < 9 AND kind = 'x'`` where all queries have both conditions.

The ranking prefers features of one predicate, which serve new queries and parts of lists. But they keep rows that
match only this part of the queries' filters. For the blocking the stricter feature is better: it frees these rows and
makes fewer distinct vectors. Both are kept and measured.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np

from layoutopt.features.augment import predicate_subject
from layoutopt.features.implications import find_subsumed
from layoutopt.model.arrays import Bits
from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.predicates import Predicate
from layoutopt.model.query import Query


def add_stricter_features(features: FeatureSet, queries: Sequence[Query], max_set: int = 3) -> FeatureSet:
    """Return the features, followed by a stricter one for each group that subsumes the same queries.

    It has the predicates of the group, the first ones first, then of features that subsume all of their queries and
    more, those that subsume the most first; one for each expression, at most ``max_set``. Its weight is the largest of
    the group. Features are given the best first.
    """
    subsumes = find_subsumed(features, queries)
    common = np.argsort(-(np.array([query.weight for query in queries]) @ subsumes), kind="stable").tolist()
    known_predicates = {feature.predicates for feature in features}
    stricter_features: list[Feature] = []
    for group in _group_by_queries(subsumes):
        is_subsumed = subsumes[:, group[0]]
        general = [i for i in common if subsumes[is_subsumed, i].all() and not is_subsumed[subsumes[:, i]].all()]
        predicates = _combine_predicates([features[i] for i in (*group, *general)], max_set)
        sharp = Feature(predicates, max(features[i].weight for i in group))
        if sharp.predicates not in known_predicates:
            stricter_features.append(sharp)
    return replace(features, features=features.features + tuple(stricter_features))


def _group_by_queries(subsumes: Bits) -> list[list[int]]:
    groups: dict[bytes, list[int]] = {}
    for i, column in enumerate(subsumes.T):
        if column.any():
            groups.setdefault(column.tobytes(), []).append(i)
    return list(groups.values())


def _combine_predicates(features: Sequence[Feature], max_set: int) -> tuple[Predicate, ...]:
    members: list[Predicate] = []
    subjects: set[Hashable] = set()
    for feature in features:
        new = [predicate for predicate in feature.predicates if predicate_subject(predicate) not in subjects]
        if not members or len(members) + len(new) <= max_set:
            members += new
            subjects |= {predicate_subject(predicate) for predicate in new}
    return tuple(members)


def sharpest(features: FeatureSet, queries: Sequence[Query]) -> list[int]:
    """Return of each group with the same queries the feature with the most predicates; unused features stay."""
    matrix = find_subsumed(features, queries)
    kept = [max(group, key=lambda i: (len(features[i].predicates), -i)) for group in _group_by_queries(matrix)]
    return sorted(kept + np.flatnonzero(~matrix.any(axis=0)).tolist())


def drop_stricter_features(features: FeatureSet, queries: Sequence[Query]) -> list[int]:
    """Return the features without those that :func:`add_stricter_features` adds.

    These are the ones for which no other feature subsumes the same queries with fewer of its predicates.
    """
    stricter: set[int] = set()
    for group in _group_by_queries(find_subsumed(features, queries)):
        sets = {i: frozenset(features[i].predicates) for i in group}
        stricter.update(i for i in group if any(sets[j] < sets[i] for j in group))
    return [i for i in range(len(features)) if i not in stricter]
