"""From a workload to its features (Sun 2017, 3.3): mine, remove redundancy, take the best."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Literal

from layoutopt.features.augment import Exclusion
from layoutopt.features.coverage import Ranked, eliminate_redundant, rank_by_coverage
from layoutopt.features.mine import Candidates, find_candidates
from layoutopt.features.number import MOST, number_that_pays
from layoutopt.features.sharpen import sharpened
from layoutopt.model.feature import Feature, FeatureSet, Settings
from layoutopt.model.predicates import Predicate, columns_of
from layoutopt.model.query import Query
from layoutopt.model.schema import Schema

Selection = Literal["coverage", "text"]
"""``coverage``: :func:`rank_by_coverage`. ``text``: :func:`eliminate_redundant`, as the thesis has it."""

MAX_SET = 3
"""The most predicates of a feature, unless asked for others."""

_THRESHOLD_SHARE = 0.005
_LEAST_THRESHOLD = 2


def mine_features(
    queries: Sequence[Query],
    *,
    threshold: int | None = None,
    num_features: int | None = None,
    exclude_columns: Collection[str] = (),
    exclude_comparisons: bool = True,
    max_set: int = MAX_SET,
    selection: Selection = "coverage",
    settings: Settings | None = None,
) -> FeatureSet:
    """The features of a workload, the most useful first.

    A feature's weight is what it adds to those before it, I(F) in 3.3.3: queries that it additionally subsumes, or by
    coverage queries' worth of rows that it additionally skips. So the lightest are the first to do without. What a
    blocking should weigh by is counted for each segment; see :mod:`layoutopt.features.weights`.

    Args:
        queries: the analysed queries of one table.
        threshold: T, in queries; :func:`default_threshold` when None. Where no predicate set reaches it, none is found.
        num_features: numFeat, the most features; as many as pay (:mod:`layoutopt.features.number`) when None.
        exclude_columns: columns that make no features, in any case (see :func:`default_excluded`).
        exclude_comparisons: whether comparisons of such columns with each other make none either.
        max_set: the most predicates of a feature.
        selection: how candidates are ranked.
        settings: what the features' meaning depends on; the defaults when None.
    """
    least = default_threshold(queries) if threshold is None else threshold
    exclusion = Exclusion.of(exclude_columns, comparisons=exclude_comparisons)
    candidates = find_candidates(queries, threshold=least, exclusion=exclusion, max_set=max_set)
    if num_features is None:
        num_features = MOST if selection == "text" else number_that_pays(candidates, queries)
    ranked = rank(candidates, num_features, least, selection)
    return FeatureSet(tuple(Feature(candidates.sets[i], gain) for i, gain in ranked), settings or Settings())


def mine_ranges(
    queries: Sequence[Query],
    columns: Collection[str],
    schema: Schema,
    *,
    threshold: int,
    num_features: int,
    settings: Settings | None = None,
) -> FeatureSet:
    """Features about single ``columns`` that :func:`mine_features` left out, the most useful first.

    Partitions serve filters on dates, but not all: a year's partition has orders of each month, shipped in two years.
    Other column groups than the one that has the date can skip for it only by features.
    """
    others = set(schema.names) - set(columns)
    candidates = find_candidates(queries, threshold=threshold, exclusion=Exclusion.of(others), max_set=1)
    compared = [len(set().union(*(columns_of(predicate) for predicate in one))) > 1 for one in candidates.sets]
    ranked = [(i, gain) for i, gain in rank(candidates, 2 * num_features, threshold, "coverage") if not compared[i]]
    found = tuple(Feature(candidates.sets[i], gain) for i, gain in ranked[:num_features])
    return FeatureSet(found, settings or Settings())


def mine_all(
    queries: Sequence[Query],
    schema: Schema,
    *,
    threshold: int | None = None,
    num_features: int | None = None,
    date_features: int | None = None,
    exclude_columns: Collection[str] | None = None,
    max_set: int = MAX_SET,
    selection: Selection = "coverage",
    settings: Settings | None = None,
) -> FeatureSet:
    """All features of a workload: :func:`mine_features`, then those about dates, then stricter ones of both.

    Args:
        queries, threshold, num_features, max_set, selection, settings: as for :func:`mine_features`.
        schema: the table's.
        date_features: the most features of :func:`mine_ranges`, about columns that are excluded by default; a third of
            ``num_features``, or of those found, when None.
        exclude_columns: columns that make no features at all; when None :func:`default_excluded`, but for the ranges.
    """
    least = default_threshold(queries) if threshold is None else threshold
    dates = default_excluded(schema)
    features = mine_features(
        queries,
        threshold=least,
        num_features=num_features,
        exclude_columns=dates if exclude_columns is None else exclude_columns,
        # Dates are excluded because partition pruning serves filters on them; it does not serve `shipped < due`.
        exclude_comparisons=exclude_columns is not None,
        max_set=max_set,
        selection=selection,
        settings=settings,
    )
    # A single layout is guided by none that is about dates: it needs stricter ones without them.
    unsharpened = [features]
    if date_features is None:
        date_features = (len(features) if num_features is None else num_features) // 3
    if exclude_columns is None and date_features and dates:
        ranges = mine_ranges(
            queries, dates, schema, threshold=least, num_features=date_features, settings=features.settings
        )
        features = _with_new(features, ranges.features)
        unsharpened.append(features)
    if selection == "text":
        return features
    return _with_new(features, [sharp for each in unsharpened for sharp in sharpened(each, queries, max_set)])


def _with_new(features: FeatureSet, others: Sequence[Feature]) -> FeatureSet:
    """The features, and those of the others that are not among them."""
    known: dict[tuple[Predicate, ...], Feature] = {}
    for feature in (*features, *others):
        known.setdefault(feature.predicates, feature)
    return replace(features, features=tuple(known.values()))


def rank(candidates: Candidates, num_features: int, threshold: float, selection: Selection) -> Ranked:
    """The best candidates by one of the two orders, at most `num_features`."""
    if selection == "text":
        return eliminate_redundant(candidates, threshold)[:num_features]
    return rank_by_coverage(candidates, num_features)


def default_threshold(queries: Sequence[Query]) -> int:
    """T when none is given: one query in two hundred, at least 2 (a filter used once is no pattern)."""
    return max(_LEAST_THRESHOLD, math.ceil(_THRESHOLD_SHARE * sum(query.weight for query in queries)))


def default_excluded(schema: Schema) -> tuple[str, ...]:
    """The columns that make no features unless asked for: dates and timestamps, which partition pruning serves."""
    return tuple(column.name for column in schema.columns if column.type.startswith(("date", "timestamp")))
