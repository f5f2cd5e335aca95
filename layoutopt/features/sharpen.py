"""Features made stricter for the same queries: ``day < 9`` becomes ``day < 9 AND kind = 'x'`` where all ask for both.

A feature for one predicate serves queries not seen yet and parts of lists, and so the ranking prefers it. But rows
that match it and nothing else of its queries' filters are read for nobody: for the blocking the stricter one is better,
which leaves these rows free to lie anywhere and makes fewer distinct vectors. Both are kept, and both are measured.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np

from layoutopt.features.augment import subject_of
from layoutopt.model.arrays import Bits
from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.predicates import Predicate
from layoutopt.model.query import Query


def sharpened(features: FeatureSet, queries: Sequence[Query], max_set: int = 3) -> FeatureSet:
    """The features, followed by stricter ones: one for all features that subsume the same queries.

    It has the predicates of these, the first ones first, then of others that subsume all of their queries and more,
    those that subsume the most first; one an expression. Its weight is the largest of those that it makes stricter.

    Features are given the best first. None made here has more than ``max_set`` predicates.
    """
    subsumes = features.matrix(queries)
    common = np.argsort(-(np.array([query.weight for query in queries]) @ subsumes), kind="stable").tolist()
    known = {feature.predicates for feature in features}
    new: list[Feature] = []
    for alike in _by_queries(subsumes):
        asked = subsumes[:, alike[0]]
        general = [i for i in common if subsumes[asked, i].all() and not asked[subsumes[:, i]].all()]
        predicates = _predicates_of([features[i] for i in (*alike, *general)], max_set)
        sharp = Feature(predicates, max(features[i].weight for i in alike))
        if sharp.predicates not in known:
            new.append(sharp)
    return replace(features, features=features.features + tuple(new))


def _by_queries(subsumes: Bits) -> list[list[int]]:
    """The features that subsume the same queries, some at least, together."""
    together: dict[bytes, list[int]] = {}
    for i, column in enumerate(subsumes.T):
        if column.any():
            together.setdefault(column.tobytes(), []).append(i)
    return list(together.values())


def _predicates_of(features: Sequence[Feature], max_set: int) -> tuple[Predicate, ...]:
    members: list[Predicate] = []
    subjects: set[Hashable] = set()
    for feature in features:
        new = [predicate for predicate in feature.predicates if subject_of(predicate) not in subjects]
        if not members or len(members) + len(new) <= max_set:
            members += new
            subjects |= {subject_of(predicate) for predicate in new}
    return tuple(members)


def sharpest(features: FeatureSet, queries: Sequence[Query]) -> list[int]:
    """Of features that subsume the same queries the one with the most predicates; those that subsume none stay."""
    matrix = features.matrix(queries)
    kept = [max(alike, key=lambda i: (len(features[i].predicates), -i)) for alike in _by_queries(matrix)]
    return sorted(kept + np.flatnonzero(~matrix.any(axis=0)).tolist())


def bluntest(features: FeatureSet, queries: Sequence[Query]) -> list[int]:
    """The features that were mined: those of which no other subsumes the same queries with fewer of its predicates.

    What is left out is what :func:`sharpened` adds.
    """
    stricter: set[int] = set()
    for alike in _by_queries(features.matrix(queries)):
        sets = {i: frozenset(features[i].predicates) for i in alike}
        stricter.update(i for i in alike if any(sets[j] < sets[i] for j in alike))
    return [i for i in range(len(features)) if i not in stricter]
