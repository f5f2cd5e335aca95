"""Features made stricter for the same queries: ``day < 9`` becomes ``day < 9 AND kind = 'x'`` where all ask for both.

A feature for one predicate serves queries not seen yet and parts of lists, and so the ranking prefers it. But rows
that match it and nothing else of its queries' filters are read for nobody: for the blocking the stricter one is better,
which leaves these rows free to lie anywhere and makes fewer distinct vectors. Both are kept, and both are measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from layoutopt.features.augment import subject_of
from layoutopt.features.implications import Bools
from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.predicate import Predicate
from layoutopt.model.query import Query


def sharpened(features: FeatureSet, queries: Sequence[Query], max_set: int = 3) -> FeatureSet:
    """The features, followed by a stricter one for each that has one.

    A feature takes in the predicates of others that subsume all of its queries, those that subsume the most first, one
    an expression. Of features that subsume the same queries each takes from the earlier ones alone, so that they don't
    all become the same.

    Args:
        features: the features.
        queries: the training queries.
        max_set: the most predicates of a feature.
    """
    subsumes = features.matrix(queries)
    common = np.argsort(-(np.array([query.weight for query in queries]) @ subsumes), kind="stable")
    known = {feature.predicates for feature in features}
    new: dict[tuple[Predicate, ...], Feature] = {}
    for i, feature in enumerate(features):
        helpers = [features[j] for j in common.tolist() if _helps(subsumes, j, i)]
        sharp = Feature(_joined(feature.predicates, helpers, max_set), feature.weight)
        if sharp.predicates not in known:
            new.setdefault(sharp.predicates, sharp)
    return replace(features, features=features.features + tuple(new.values()))


def _helps(subsumes: Bools, other: int, feature: int) -> bool:
    """Whether the other feature subsumes all queries of the feature; of two with equal queries only the first does."""
    asked, also = subsumes[:, feature], subsumes[:, other]
    if other == feature or not asked.any() or not also[asked].all():
        return False
    return other < feature or not asked[also].all()


def _joined(predicates: tuple[Predicate, ...], helpers: Sequence[Feature], max_set: int) -> tuple[Predicate, ...]:
    members, subjects = list(predicates), {subject_of(predicate) for predicate in predicates}
    for helper in helpers:
        new = [predicate for predicate in helper.predicates if subject_of(predicate) not in subjects]
        if len(members) + len(new) <= max_set:
            members += new
            subjects |= {subject_of(predicate) for predicate in new}
    return tuple(members)


def sharpest(features: FeatureSet, queries: Sequence[Query]) -> list[int]:
    """The features that none of the others is a stricter one of, for the same queries."""
    return np.flatnonzero(~_sharpens(features, queries).any(axis=0)).tolist()


def bluntest(features: FeatureSet, queries: Sequence[Query]) -> list[int]:
    """The features that are no stricter one of another, for the same queries: :func:`sharpened` made none of these."""
    return np.flatnonzero(~_sharpens(features, queries).any(axis=1)).tolist()


def _sharpens(features: FeatureSet, queries: Sequence[Query]) -> Bools:
    """``sharpens[i, j]`` where i has all predicates of j and more, and subsumes the same queries, some at least."""
    by_queries: dict[bytes, list[int]] = {}
    for i, column in enumerate(features.matrix(queries).T):
        if column.any():
            by_queries.setdefault(column.tobytes(), []).append(i)
    sharpens = np.zeros((len(features), len(features)), dtype=np.bool_)
    sets = [frozenset(feature.predicates) for feature in features]
    for alike in by_queries.values():
        for i in alike:
            sharpens[i, [j for j in alike if sets[j] < sets[i]]] = True
    return sharpens
