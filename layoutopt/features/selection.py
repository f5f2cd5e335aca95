"""Find the features of a workload (Sun 2017, 3.3): mine candidates, rank them, choose how many.

Candidates are frequent predicate sets (3.3.2), by mlxtend's FP-growth. They are ranked by what each adds to the
skipping of those before it. A log is worth as many features as still help queries that they were
not chosen for: features cost bits while a table is loaded, and nothing when it is read.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heapify, heappop, heapreplace
from typing import Final

import numpy as np

from layoutopt.features.augment import (
    Augmented,
    Exclusion,
    augment,
    literal_subject,
    predicate_subject,
    weights_by_filter,
)
from layoutopt.features.cross_validation import MIN_HELD_OUT, hold_out
from layoutopt.features.implications import single_parts
from layoutopt.features.sharpen import add_stricter_features, drop_stricter_features
from layoutopt.features.weights import Units, assumed_selectivity, predicate_share
from layoutopt.model.arrays import Bits, Floats, Places
from layoutopt.model.feature import Feature, FeatureSet, SessionSettings
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.predicates import Filter, Literal, Predicate, columns_of
from layoutopt.model.query import Query
from layoutopt.model.schema import Schema

# FP-growth gets about this many transactions at most; larger logs are scaled down, and results checked exactly.
MOST_TRANSACTIONS = 10_000

# Sets of several predicates are made of at most this many predicates, the most frequent ones.
MOST_COMBINED = 64

# A predicate that more rows match (``x <> 'a'``) adds nothing to a set, and such predicates are many.
_MAX_NARROWING_SHARE = 0.75

Members = tuple[int, ...]

# The candidates' places with the gain of each, the best first.
Ranked = tuple[tuple[int, float], ...]
_EPSILON = 1e-9
# Features are enough when all further ones would take no larger share off what queries still read.
NEGLIGIBLE: Final = 0.005
# The default for the most features.
MAX_FEATURES: Final = 256
# The default for the most predicates of a feature.
MAX_SET = 3
_THRESHOLD_SHARE = 0.005
_MIN_THRESHOLD = 2


@dataclass(frozen=True, eq=False)
class Candidates:
    """Predicate sets that could be features, over a workload.

    Attributes:
        sets: the predicate sets (conjunctions).
        weights: how many queries each distinct filter has, ``float64[filters]``.
        shares: how much of a filter a set covers, ``float64[filters, sets]``; 1 where the set subsumes it, less where
            it is a part of a disjunction that is skipped when all parts are.
        selectivity: the guessed (or measured) share of rows that each literal matches.
        stricter: ``stricter[i, j]`` where set i is subsumed by set j (3.3.1), ``bool[sets, sets]``.
        units: the filters part by part, over the sets.
    """

    sets: tuple[tuple[Predicate, ...], ...]
    weights: Floats
    shares: Floats
    selectivity: Mapping[Literal, float]
    stricter: Bits
    units: Units

    @cached_property
    def subsumes(self) -> Bits:
        """Return which set subsumes which filter, ``bool[filters, sets]``."""
        return np.equal(self.shares, 1.0)

    @cached_property
    def support(self) -> Floats:
        """Return how many queries each set subsumes, ``float64[sets]``."""
        return np.asarray(self.weights @ self.subsumes)


def find_candidates(
    queries: Sequence[Query], *, threshold: float, exclusion: Exclusion | None = None, max_set: int = 3
) -> Candidates:
    """Return the predicate sets that subsume at least T queries (3.3.2), and single literals that could help as many.

    A set has at most one predicate for each expression. Of sets that subsume the same queries the strictest is kept.
    ``threshold`` is T, in queries (the sum of their weights); ``max_set`` limits the predicates of a set.
    """
    workload = augment(queries, threshold, exclusion)
    selectivity = assumed_selectivity(workload.predicates)
    frequent = _find_frequent_sets(workload, selectivity, threshold, max_set)
    members = _keep_strictest([*frequent, *_find_partial_sets(workload, threshold)], workload)
    no_shares = np.zeros((len(workload.weights), 0))
    shares = np.stack([_shares_of_set(m, workload) for m in members], axis=1) if members else no_shares
    return Candidates(
        sets=tuple(tuple(workload.predicates[i] for i in m) for m in members),
        weights=workload.weights,
        shares=shares,
        selectivity=selectivity,
        stricter=_compare_sets(members, workload),
        units=_combine_units(members, workload),
    )


def _find_frequent_sets(
    workload: Augmented, selectivity: Mapping[Literal, float], threshold: float, max_set: int
) -> Iterator[Members]:
    """Yield every single predicate and every larger set that subsumes at least ``threshold`` queries."""
    support = workload.weights @ workload.subsumes
    frequent = np.flatnonzero(support >= threshold)
    yield from ((int(i),) for i in frequent)
    narrowing = _keep_strictest(
        [(int(i),) for i in frequent if _is_narrowing(workload.predicates[i], selectivity)], workload
    )
    combined = sorted((m[0] for m in narrowing), key=lambda i: (-support[i], i))[:MOST_COMBINED]
    subjects = [predicate_subject(predicate) for predicate in workload.predicates]
    for members in _run_fpgrowth(workload, sorted(combined), threshold, max_set):
        if 1 < len(members) == len({subjects[i] for i in members}):  # one predicate an expression
            count = workload.weights @ workload.subsumes[:, list(members)].all(axis=1)
            if count >= threshold:
                yield members


def _is_narrowing(predicate: Predicate, selectivity: Mapping[Literal, float]) -> bool:
    """Return whether a predicate is worth combining: it restricts one expression, to less than most of the rows."""
    return len(predicate.literals) == 1 and predicate_share(predicate, selectivity) <= _MAX_NARROWING_SHARE


def _run_fpgrowth(workload: Augmented, items: Sequence[int], threshold: float, max_set: int) -> list[Members]:
    """Run FP-growth over items in order of their numbers, so the result is deterministic."""
    if len(items) < 2 or max_set < 2:
        return []
    # Imported here, since importing pandas and mlxtend takes longer than analysing a small log.
    import pandas as pd
    from mlxtend.frequent_patterns import fpgrowth

    scale = min(1.0, MOST_TRANSACTIONS / workload.weights.sum())
    repeats = np.maximum(1, np.rint(workload.weights * scale)).astype(np.int64)
    transactions = pd.DataFrame(np.repeat(workload.subsumes[:, items], repeats, axis=0), columns=list(items))
    # A little below T, because repeats are rounded; the caller counts exactly.
    min_support = max(1.0, 0.9 * threshold * scale) / len(transactions)
    frame = fpgrowth(transactions, min_support=min_support, use_colnames=True, max_len=max_set)
    return sorted(tuple(sorted(int(i) for i in itemset)) for itemset in frame["itemsets"])


def _find_partial_sets(workload: Augmented, threshold: float) -> Iterator[Members]:
    """Yield literals that subsume too few queries, but are a part of at least ``threshold`` filters."""
    helped = workload.weights @ (workload.shares > 0)
    support = workload.weights @ workload.subsumes
    for i in np.flatnonzero((helped >= threshold) & (support < threshold)):
        literals = workload.predicates[i].literals
        if len(literals) == 1 and not single_parts(literals[0]):
            yield (int(i),)


def _shares_of_set(members: Members, workload: Augmented) -> Floats:
    """Return a single predicate's shares; a larger set counts only where it subsumes the whole filter."""
    if len(members) == 1:
        return workload.shares[:, members[0]]
    return np.where(workload.subsumes[:, list(members)].all(axis=1), 1.0, 0.0)


def _combine_units(sets: Sequence[Members], workload: Augmented) -> Units:
    """Return units over sets; a set of several predicates counts only where it subsumes the whole filter."""
    units = workload.units
    factors = np.zeros((len(units.filter_of_unit), len(sets)), dtype=np.uint8)
    for place, members in enumerate(sets):
        if len(members) == 1:
            factors[:, place] = units.factors[:, members[0]]
        else:
            is_subsumed: Bits = np.all(workload.subsumes[:, list(members)], axis=1)
            factors[:, place] = is_subsumed[units.filter_of_unit]
    return replace(units, factors=factors)


def _keep_strictest(sets: Sequence[Members], workload: Augmented) -> list[Members]:
    """Return, of sets that help the same queries equally, those without a stricter one."""
    groups: dict[bytes, list[Members]] = {}
    for members in sets:
        groups.setdefault(_shares_of_set(members, workload).tobytes(), []).append(members)
    kept: list[Members] = []
    for group in groups.values():
        stricter = _compare_sets(group, workload)
        # Of two equivalent sets the first stays.
        dominates = np.tril(stricter & stricter.T, -1).T | (stricter & ~stricter.T)
        kept += [group[i] for i in np.flatnonzero(~dominates.any(axis=0))]
    return kept


def _compare_sets(sets: Sequence[Members], workload: Augmented) -> Bits:
    """Return which set is subsumed by which: every predicate of F_j subsumes one of F_i (3.3.1)."""
    implied = np.array([workload.stricter[list(m)].any(axis=0) for m in sets], dtype=np.bool_)
    implied = implied.reshape(len(sets), len(workload.predicates))
    columns = [implied[:, list(m)].all(axis=1) for m in sets]
    return np.stack(columns, axis=1) if columns else np.zeros((0, 0), dtype=np.bool_)


def rank_by_coverage(candidates: Candidates, limit: int) -> Ranked:
    """Choose at most ``limit`` candidates greedily, by what each adds to those before it (:class:`ReadEstimate`).

    A set that is redundant for a filter adds nothing, however frequent; ``x <> 'a'`` adds little to any set; and a
    general set is chosen where it serves filters that no specific one does, so it also serves new constants.

    A candidate gains no more the more are chosen, so an earlier gain is a bound: only candidates whose bound is the
    highest are looked at again (Minoux 1978).

    Returns:
        ``(place, gain)`` in the order of choice, the gain in queries' worth of all rows.
    """
    reading = ReadEstimate(candidates)
    # Rounded, so that machines that add in another order break ties alike.
    bounds = [(-round(reading.gain(place), 9), place) for place in range(len(candidates.sets))]
    heapify(bounds)
    chosen: list[tuple[int, float]] = []
    while bounds and len(chosen) < limit:
        bound, place = bounds[0]
        gain = reading.gain(place)
        if -round(gain, 9) > bound:
            heapreplace(bounds, (-round(gain, 9), place))
            continue
        if gain <= _EPSILON:
            break
        heappop(bounds)
        chosen.append((place, gain))
        reading.choose(place)
    return tuple(chosen)


@dataclass(frozen=True)
class _Restriction:
    """A predicate of a candidate: the expression it restricts, and its literals with their expressions."""

    subject: Hashable
    selectivity: float
    literals: tuple[tuple[Hashable, float], ...]

    @classmethod
    def of(cls, predicate: Predicate, selectivity: Mapping[Literal, float]) -> _Restriction:
        literals = tuple((literal_subject(literal), selectivity[literal]) for literal in predicate.literals)
        return cls(predicate_subject(predicate), predicate_share(predicate, selectivity), literals)


class ReadEstimate:
    """What queries still read with the candidates chosen so far, unit by unit of their filters.

    A unit ``u`` (:class:`layoutopt.features.weights.Units`) of a filter of weight ``w`` reads, in scans of all rows::

        reads(u)   = w * shares(u) * product of left(u, e) over all expressions e
        left(u, e) = min of 1 and factors(u, c) * selectivity(c, e) over the chosen candidates c that restrict e

    So of several candidates about one expression the strictest counts, and a candidate gains what it takes off the
    sum. Here two queries have ``x IN (1, 2)``. Each value is guessed to match 0.3 of the rows, so ``x = 1`` leaves 2 x
    0.3 of a unit that reads 1, and gains 0.4. The other value gains 0.4 too, and then the list gains nothing:

    >>> from layoutopt.features.selection import find_candidates
    >>> from layoutopt.model.predicates import Col, Filter, InSet
    >>> from layoutopt.model.query import Query
    >>> from layoutopt.model.values import ValueSet
    >>> literals = [InSet(Col("x", "int"), ValueSet.of(values)) for values in ([1, 2], [1], [2])]
    >>> query = Query(0, "t", ("x",), Filter.of(literals[0]), weight=2.0)
    >>> candidates = find_candidates([query], threshold=1)
    >>> place = {predicate.literals[0]: i for i, (predicate,) in enumerate(candidates.sets)}
    >>> listed, first, second = (place[literal] for literal in literals)
    >>> reading = ReadEstimate(candidates)
    >>> [round(reading.gain(i), 9) for i in (listed, first, second)]
    [0.8, 0.4, 0.4]
    >>> reading.choose(first)
    >>> [round(reading.gain(i), 9) for i in (listed, first, second)]
    [0.4, 0.0, 0.4]
    >>> reading.choose(second)
    >>> round(reading.gain(listed), 9)
    0.0
    """

    def __init__(self, candidates: Candidates) -> None:
        units = candidates.units
        self._factors = units.factors
        self._restrictions = [
            [_Restriction.of(predicate, candidates.selectivity) for predicate in members] for members in candidates.sets
        ]
        # A candidate is compared only with the units it helps: most help few.
        self._helped_units = [np.flatnonzero(column) for column in units.factors.T]
        self._read_weights = candidates.weights[units.filter_of_unit] * units.shares
        self._remaining: dict[Hashable, Floats] = defaultdict(lambda: np.ones(len(units.shares)))

    @property
    def total(self) -> float:
        """Return what all queries read, in queries' worth of all rows."""
        return float(self._read_weights.sum())

    def gain(self, place: int) -> float:
        """Return how much less is read if a candidate is chosen, in queries' worth of all rows."""
        helped = self._helped_units[place]
        stays = np.ones(len(helped))
        for restriction in self._restrictions[place]:
            before, after = self._remaining_shares(place, restriction)
            stays *= after / before
        return float(self._read_weights[helped] @ (1.0 - stays))

    def choose(self, place: int) -> None:
        """Choose a candidate."""
        helped = self._helped_units[place]
        for restriction in self._restrictions[place]:
            before, after = self._remaining_shares(place, restriction)
            self._read_weights[helped] *= after / before
            self._remaining[restriction.subject][helped] = after

    def _remaining_shares(self, place: int, restriction: _Restriction) -> tuple[Floats, Floats]:
        """Return ``left(u, e)`` of the units that the candidate helps, before and after choosing it."""
        helped = self._helped_units[place]
        before = self._remaining[restriction.subject][helped]
        read = self._matching_share(helped, restriction) * self._factors[helped, place]
        return before, np.minimum(before, read)

    def _matching_share(self, helped: Places, restriction: _Restriction) -> Floats:
        """Return the share of rows that match a predicate; for several expressions, of the rows still read.

        A literal about ``e`` matches a larger share of the rows that choices about ``e`` leave; the literals together
        match at most the sum of their shares.
        """
        if len(restriction.literals) == 1:
            return np.full(len(helped), restriction.selectivity)
        shares_of_read = [
            np.minimum(1.0, share / self._remaining[subject][helped]) for subject, share in restriction.literals
        ]
        return np.asarray(np.minimum(1.0, np.sum(shares_of_read, axis=0)))


def count_useful_features(candidates: Candidates, queries: Sequence[Query]) -> int:
    """Return how many of the candidates to choose, at most :data:`MAX_FEATURES`.

    The candidates are ranked by the earlier queries alone. The later ones read less with each candidate in that order;
    once all further candidates take off less than :data:`NEGLIGIBLE` of what is read with all, no more pay. A log with
    fewer than :data:`MIN_HELD_OUT` later statements is too short to tell; its recurring patterns are few, so all may be
    useful.
    """
    earlier, later = hold_out(queries)
    if sum(query.weight for query in later) < MIN_HELD_OUT:
        return MAX_FEATURES
    filters = tuple(weights_by_filter(queries))
    reading = ReadEstimate(replace(candidates, weights=_weigh_filters(filters, later)))
    gains = []
    for place, _ in rank_by_coverage(replace(candidates, weights=_weigh_filters(filters, earlier)), MAX_FEATURES):
        gains.append(reading.gain(place))
        reading.choose(place)
    if not any(gains):
        return MAX_FEATURES
    gains_to_come = sum(gains) - np.cumsum(gains)
    return 1 + int(np.argmax(gains_to_come <= NEGLIGIBLE * reading.total))


def _weigh_filters(filters: Sequence[Filter], queries: Sequence[Query]) -> Floats:
    weights = weights_by_filter(queries)
    return np.array([weights.get(filter, 0.0) for filter in filters])


def mine_features(
    queries: Sequence[Query],
    *,
    threshold: int | None = None,
    num_features: int | None = None,
    exclude_columns: Collection[str] = (),
    exclude_comparisons: bool = True,
    max_set: int = MAX_SET,
    settings: SessionSettings | None = None,
) -> FeatureSet:
    """Return the features of a workload, the most useful first.

    A feature's weight is what it adds to those before it, in queries' worth of rows that it additionally skips. The
    weights of a blocking are computed for each segment (:mod:`layoutopt.features.weights`).

    Args:
        queries: the analysed queries of one table.
        threshold: T, in queries; by default :func:`default_threshold`.
        num_features: numFeat, the most features; by default as many as pay.
        exclude_columns: columns that make no features, in any case (see :func:`default_excluded`).
        exclude_comparisons: whether comparisons of such columns with each other make none either.
        max_set: the most predicates of a feature.
        settings: the session settings that the features depend on.
    """
    min_queries = default_threshold(queries) if threshold is None else threshold
    exclusion = Exclusion.of(exclude_columns, comparisons=exclude_comparisons)
    candidates = find_candidates(queries, threshold=min_queries, exclusion=exclusion, max_set=max_set)
    if num_features is None:
        num_features = count_useful_features(candidates, queries)
    ranked = rank_by_coverage(candidates, num_features)
    return FeatureSet(tuple(Feature(candidates.sets[i], gain) for i, gain in ranked), settings or SessionSettings())


def mine_ranges(
    queries: Sequence[Query],
    columns: Collection[str],
    schema: Schema,
    *,
    threshold: int,
    num_features: int,
    settings: SessionSettings | None = None,
) -> FeatureSet:
    """Return features about single ``columns`` that :func:`mine_features` leaves out, the most useful first.

    Partitions serve filters on dates only in part: a year's partition has orders of each month, shipped in two years.
    Column groups without the date skip for it only by features.
    """
    exclusion = Exclusion.of(set(schema.names) - set(columns))
    candidates = find_candidates(queries, threshold=threshold, exclusion=exclusion, max_set=1)
    ranked = [
        (candidates.sets[i], gain)
        for i, gain in rank_by_coverage(candidates, 2 * num_features)
        if len(frozenset().union(*map(columns_of, candidates.sets[i]))) <= 1
    ]
    return FeatureSet(
        tuple(Feature(members, gain) for members, gain in ranked[:num_features]), settings or SessionSettings()
    )


def mine_all(
    queries: Sequence[Query],
    schema: Schema,
    *,
    threshold: int | None = None,
    num_features: int | None = None,
    date_features: int | None = None,
    exclude_columns: Collection[str] | None = None,
    max_set: int = MAX_SET,
    settings: SessionSettings | None = None,
) -> FeatureSet:
    """Return all features of a workload: :func:`mine_features`, then those about dates, then stricter ones of both.

    Args:
        queries, threshold, num_features, max_set, settings: as for :func:`mine_features`.
        schema: the table's.
        date_features: the most features of :func:`mine_ranges`, about columns excluded by default; by default a third
            of ``num_features``, or of those found; where none is found, of :data:`MAX_FEATURES`.
        exclude_columns: columns that make no features at all; by default :func:`default_excluded`, but for the ranges.
    """
    min_queries = default_threshold(queries) if threshold is None else threshold
    dates = default_excluded(schema)
    features = mine_features(
        queries,
        threshold=min_queries,
        num_features=num_features,
        exclude_columns=dates if exclude_columns is None else exclude_columns,
        # Dates are excluded because partition pruning serves filters on them; it does not serve `shipped < due`.
        exclude_comparisons=exclude_columns is not None,
        max_set=max_set,
        settings=settings,
    )
    # Features about dates don't guide a single layout, so it needs stricter ones without dates.
    unsharpened = [features]
    if date_features is None:
        date_features = (len(features) or MAX_FEATURES if num_features is None else num_features) // 3
    if exclude_columns is None and date_features and dates:
        ranges = mine_ranges(
            queries, dates, schema, threshold=min_queries, num_features=date_features, settings=features.settings
        )
        features = _add_new(features, ranges.features)
        unsharpened.append(features)
    return _add_new(
        features,
        [sharp for feature_set in unsharpened for sharp in add_stricter_features(feature_set, queries, max_set)],
    )


def _add_new(features: FeatureSet, further_features: Sequence[Feature]) -> FeatureSet:
    by_predicates: dict[tuple[Predicate, ...], Feature] = {}
    for feature in (*features, *further_features):
        by_predicates.setdefault(feature.predicates, feature)
    return replace(features, features=tuple(by_predicates.values()))


def default_threshold(queries: Sequence[Query]) -> int:
    """Return the default T: one query in two hundred, at least 2 (a filter used once is no pattern)."""
    return max(_MIN_THRESHOLD, math.ceil(_THRESHOLD_SHARE * sum(query.weight for query in queries)))


def default_excluded(schema: Schema) -> tuple[str, ...]:
    """Return the columns that make no features by default: dates and timestamps, which partition pruning serves."""
    return tuple(column.name for column in schema.columns if column.type.startswith(("date", "timestamp")))


def mine_subset(
    document: FeaturesDocument,
    queries: Sequence[Query],
    *,
    threshold: int | None = None,
    num_features: int | None = None,
) -> FeaturesDocument:
    """Return the document that an analysis of some of a document's queries would have made.

    By default T is that of `analyze`, and there are as many features as in the document, besides those about dates and
    stricter ones.
    """
    mined = [document.features[i] for i in drop_stricter_features(document.features, document.queries)]
    dates = default_excluded(document.schema)
    by_default = set(document.exclude_columns) == set(dates)
    about_dates = sum(feature.columns <= set(dates) for feature in mined) if by_default else 0
    features = mine_all(
        queries,
        document.schema,
        threshold=threshold,
        num_features=max(1, len(mined) - about_dates if num_features is None else num_features),
        date_features=about_dates,
        exclude_columns=None if by_default else document.exclude_columns,
        settings=document.features.settings,
    )
    return replace(document, features=features, queries=tuple(queries))
