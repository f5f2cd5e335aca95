"""From a workload to its features (Sun 2017, 3.3): mine, remove redundancy, take the best."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final
from typing import Literal as Choice

import numpy as np

from layoutopt.features.augment import Augmented, Exclusion, augment, literal_subject, subject_of, weights_by_filter
from layoutopt.features.cross_validation import ENOUGH, hold_back
from layoutopt.features.implications import single_parts
from layoutopt.features.sharpen import bluntest, sharpened
from layoutopt.features.weights import Units, assumed_selectivity, share_of
from layoutopt.model.arrays import Bits, Floats, Places
from layoutopt.model.documents import FeaturesDocument
from layoutopt.model.feature import Feature, FeatureSet, Settings
from layoutopt.model.predicates import Filter, Literal, Predicate, columns_of
from layoutopt.model.query import Query
from layoutopt.model.schema import Schema

# ----------------------------------------------------------------------------------------------------
# Frequent predicate sets (Sun 2017, 3.3.2): the candidates for features, by mlxtend's FP-growth.

MOST_TRANSACTIONS = 10_000
"""FP-growth sees about this many transactions at most; heavier logs are scaled down and checked exactly afterwards."""

MOST_COMBINED = 64
"""Sets of several predicates are made of the most frequent predicates up to this many."""

_MOST_NARROWING = 0.75
"""A predicate that most rows match (``x <> 'a'``) adds nothing to a set, and such predicates come by the dozen."""

Members = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Candidates:
    """Predicate sets that could be features, over a workload.

    Attributes:
        sets: the predicate sets (conjunctions).
        weights: how many queries each distinct filter has, float64, shape (filters,).
        shares: float64, shape (filters, sets): how much of a filter a set covers; 1 where the set subsumes it, less
            where it is one part of a disjunction that is skipped when all parts are.
        selectivity: the share of rows that each literal is guessed (or measured) to match.
        stricter: bool, shape (sets, sets): ``stricter[i, j]`` where set i is subsumed by set j (3.3.1).
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
        """Which set subsumes which filter: bool, shape (filters, sets)."""
        return np.equal(self.shares, 1.0)

    @cached_property
    def support(self) -> Floats:
        """How many queries each set subsumes: float64, shape (sets,)."""
        return np.asarray(self.weights @ self.subsumes)


def find_candidates(
    queries: Sequence[Query], *, threshold: float, exclusion: Exclusion | None = None, max_set: int = 3
) -> Candidates:
    """The predicate sets that subsume at least T queries (3.3.2), and single literals that could help as many.

    A set has at most one predicate an expression, since of two about the same expression either one follows from the
    other or both together are better written as one. Of sets that subsume the same queries the strictest is kept.

    The threshold is T, in queries (the sum of their weights); what is excluded makes no features, and no set has more
    than ``max_set`` predicates.
    """
    workload = augment(queries, threshold, exclusion)
    selectivity = assumed_selectivity(workload.predicates)
    found = [*_frequent(workload, selectivity, threshold, max_set), *_partial(workload, threshold)]
    members = _strictest(found, workload)
    no_shares = np.zeros((len(workload.weights), 0))
    shares = np.stack([_set_shares(m, workload) for m in members], axis=1) if members else no_shares
    return Candidates(
        sets=tuple(tuple(workload.predicates[i] for i in m) for m in members),
        weights=workload.weights,
        shares=shares,
        selectivity=selectivity,
        stricter=_stricter_sets(members, workload),
        units=_units_of_sets(members, workload),
    )


def _frequent(
    workload: Augmented, selectivity: Mapping[Literal, float], threshold: float, max_set: int
) -> Iterator[Members]:
    """Every single predicate and every larger set that subsumes at least `threshold` queries."""
    support = workload.weights @ workload.subsumes
    frequent = np.flatnonzero(support >= threshold)
    yield from ((int(i),) for i in frequent)
    narrowing = _strictest([(int(i),) for i in frequent if _narrows(workload.predicates[i], selectivity)], workload)
    combined = sorted((m[0] for m in narrowing), key=lambda i: (-support[i], i))[:MOST_COMBINED]
    subjects = [subject_of(predicate) for predicate in workload.predicates]
    for members in _grow(workload, sorted(combined), threshold, max_set):
        if 1 < len(members) == len({subjects[i] for i in members}):  # one predicate an expression
            count = workload.weights @ workload.subsumes[:, list(members)].all(axis=1)
            if count >= threshold:
                yield members


def _narrows(predicate: Predicate, selectivity: Mapping[Literal, float]) -> bool:
    """Whether a predicate is worth combining: it restricts one expression, to less than most of the rows."""
    return len(predicate.literals) == 1 and share_of(predicate, selectivity) <= _MOST_NARROWING


def _grow(workload: Augmented, items: Sequence[int], threshold: float, max_set: int) -> list[Members]:
    """FP-growth over some items, in order of their numbers so that the result is the same everywhere."""
    if len(items) < 2 or max_set < 2:
        return []
    # Imported here: pandas and mlxtend take longer to import than a small log to analyse.
    import pandas as pd
    from mlxtend.frequent_patterns import fpgrowth

    scale = min(1.0, MOST_TRANSACTIONS / workload.weights.sum())
    repeats = np.maximum(1, np.rint(workload.weights * scale)).astype(np.int64)
    transactions = pd.DataFrame(np.repeat(workload.subsumes[:, items], repeats, axis=0), columns=list(items))
    # A little below T, because repeats are rounded; the caller counts exactly.
    least = max(1.0, 0.9 * threshold * scale) / len(transactions)
    frame = fpgrowth(transactions, min_support=least, use_colnames=True, max_len=max_set)
    return sorted(tuple(sorted(int(i) for i in itemset)) for itemset in frame["itemsets"])


def _partial(workload: Augmented, threshold: float) -> Iterator[Members]:
    """Single values and literals that subsume too few queries, but are a part of at least `threshold` filters."""
    helped = workload.weights @ (workload.shares > 0)
    support = workload.weights @ workload.subsumes
    for i in np.flatnonzero((helped >= threshold) & (support < threshold)):
        literals = workload.predicates[i].literals
        if len(literals) == 1 and not single_parts(literals[0]):
            yield (int(i),)


def _set_shares(members: Members, workload: Augmented) -> Floats:
    """A single predicate's shares; a larger set counts only where it subsumes the whole filter."""
    if len(members) == 1:
        return workload.shares[:, members[0]]
    return np.where(workload.subsumes[:, list(members)].all(axis=1), 1.0, 0.0)


def _units_of_sets(sets: Sequence[Members], workload: Augmented) -> Units:
    """Over sets: a single predicate's factors; a larger set counts only where it subsumes the whole filter."""
    units = workload.units
    factors = np.zeros((len(units.of_filter), len(sets)), dtype=np.uint8)
    for place, members in enumerate(sets):
        if len(members) == 1:
            factors[:, place] = units.factors[:, members[0]]
        else:
            whole: Bits = np.all(workload.subsumes[:, list(members)], axis=1)
            factors[:, place] = whole[units.of_filter]
    return replace(units, factors=factors)


def _strictest(found: Sequence[Members], workload: Augmented) -> list[Members]:
    """Of sets that help the same queries equally, those that no other is stricter than."""
    groups: dict[bytes, list[Members]] = {}
    for members in found:
        groups.setdefault(_set_shares(members, workload).tobytes(), []).append(members)
    kept: list[Members] = []
    for group in groups.values():
        stricter = _stricter_sets(group, workload)
        # Of two equivalent sets the first stays.
        dominates = np.tril(stricter & stricter.T, -1).T | (stricter & ~stricter.T)
        kept += [group[i] for i in np.flatnonzero(~dominates.any(axis=0))]
    return kept


def _stricter_sets(sets: Sequence[Members], workload: Augmented) -> Bits:
    """3.3.1 on whole sets: F_i is subsumed by F_j if every predicate of F_j subsumes one of F_i."""
    implied = np.array([workload.stricter[list(m)].any(axis=0) for m in sets], dtype=np.bool_)
    implied = implied.reshape(len(sets), len(workload.predicates))
    columns = [implied[:, list(m)].all(axis=1) for m in sets]
    return np.stack(columns, axis=1) if columns else np.zeros((0, 0), dtype=np.bool_)


# ----------------------------------------------------------------------------------------------------
# Orders of candidate features, the best first: by what each adds to the skipping of others, or as the text has it.

Ranked = tuple[tuple[int, float], ...]
"""Candidates' places with what each adds, the best first."""

_NOTHING = 1e-9


def eliminate_redundant(candidates: Candidates, threshold: float) -> Ranked:
    """The text's procedure (3.3.3): keep a set that subsumes T queries or more that no stricter set kept does.

    Sets are taken from strict to general, so general ones are left out once specific ones cover the training queries;
    queries with other constants then find no feature. :func:`rank_by_coverage` does not do that.

    Returns:
        ``(place, I(F))`` by decreasing I(F), the queries that the set additionally subsumes.
    """
    # Whatever a stricter set subsumes the more general one does too: both counts grow along "is subsumed by".
    stricter_sets = candidates.stricter.sum(axis=0)
    by_generality = sorted(range(len(candidates.sets)), key=lambda i: (candidates.support[i], stricter_sets[i], i))
    covered = np.zeros(len(candidates.weights), dtype=np.bool_)
    kept: list[tuple[int, float]] = []
    for i in by_generality:
        added = float(candidates.weights @ (candidates.subsumes[:, i] & ~covered))
        if added >= threshold and added > 0:
            kept.append((i, added))
            covered |= candidates.subsumes[:, i]
    return tuple(sorted(kept, key=lambda pair: (-pair[1], pair[0])))


def rank_by_coverage(candidates: Candidates, limit: int) -> Ranked:
    """The candidates whose skipping together is largest, chosen greedily: each adds the most to those before it.

    What queries read with some candidates chosen is told by :class:`Reading`. A set that says nothing new of a filter
    adds nothing, however often it occurs; ``x <> 'a'`` adds little to anything; and a general set is chosen where it
    serves filters that no specific one does, so that constants not seen yet find it too.

    Args:
        candidates: from :func:`layoutopt.features.selection.find_candidates`.
        limit: the most candidates chosen; fewer where no other adds anything.

    Returns:
        ``(place, gain)`` in the order of choice, the gain in queries' worth of all rows.
    """
    reading = Reading(candidates)
    open_places = list(range(len(candidates.sets)))
    chosen: list[tuple[int, float]] = []
    while open_places and len(chosen) < limit:
        gains = [reading.gain(place) for place in open_places]
        # Rounded, so that machines that add in another order break ties alike.
        best = int(np.argmax(np.round(gains, 9)))
        if gains[best] <= _NOTHING:
            break
        place = open_places.pop(best)
        chosen.append((place, gains[best]))
        reading.choose(place)
    return tuple(chosen)


@dataclass(frozen=True)
class _Restriction:
    """One predicate of a candidate: the expression it restricts, and its literals with theirs."""

    subject: Hashable
    selectivity: float
    literals: tuple[tuple[Hashable, float], ...]

    @classmethod
    def of(cls, predicate: Predicate, selectivity: Mapping[Literal, float]) -> _Restriction:
        literals = tuple((literal_subject(literal), selectivity[literal]) for literal in predicate.literals)
        return cls(subject_of(predicate), share_of(predicate, selectivity), literals)


class Reading:
    """What the queries still read with the candidates chosen so far, unit by unit of their filters.

    A unit ``u`` (:class:`layoutopt.features.weights.Units`) of a filter of weight ``w`` reads, in scans of all rows::

        reads(u)   = w * shares(u) * product of left(u, e) over all expressions e
        left(u, e) = min of 1 and factors(u, c) * selectivity(c, e) over the chosen candidates c that restrict e

    so of several candidates about one expression the strictest counts, and a candidate gains what it takes off the sum.
    Two queries ask for ``x IN (1, 2)``. Each value is guessed to match 0.3 of the rows, so ``x = 1`` leaves 2 x 0.3 of
    a unit that reads 1, and gains 0.4. The other value gains 0.4 too, and what is left for the list to skip is nothing:

    >>> from layoutopt.features.selection import find_candidates
    >>> from layoutopt.model.predicates import Col, Filter, InSet
    >>> from layoutopt.model.query import Query
    >>> from layoutopt.model.values import ValueSet
    >>> asked = [InSet(Col("x", "int"), ValueSet.of(values)) for values in ([1, 2], [1], [2])]
    >>> query = Query(0, "t", ("x",), Filter.of(asked[0]), weight=2.0)
    >>> candidates = find_candidates([query], threshold=1)
    >>> place = {one.literals[0]: i for i, (one,) in enumerate(candidates.sets)}
    >>> listed, first, second = (place[literal] for literal in asked)
    >>> reading = Reading(candidates)
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
        self._helped = [np.flatnonzero(column) for column in units.factors.T]
        self._reads = candidates.weights[units.of_filter] * units.shares
        self._left: dict[Hashable, Floats] = defaultdict(lambda: np.ones(len(units.shares)))

    @property
    def total(self) -> float:
        """What all queries read, in queries' worth of all rows."""
        return float(self._reads.sum())

    def gain(self, place: int) -> float:
        """How much less is read if a candidate is chosen, in queries' worth of all rows."""
        helped = self._helped[place]
        stays = np.ones(len(helped))
        for restriction in self._restrictions[place]:
            before, after = self._change(place, restriction)
            stays *= after / before
        return float(self._reads[helped] @ (1.0 - stays))

    def choose(self, place: int) -> None:
        """Choose a candidate."""
        helped = self._helped[place]
        for restriction in self._restrictions[place]:
            before, after = self._change(place, restriction)
            self._reads[helped] *= after / before
            self._left[restriction.subject][helped] = after

    def _change(self, place: int, restriction: _Restriction) -> tuple[Floats, Floats]:
        """``left(u, e)`` of the units that the candidate helps, before and after the choice, for the expression e."""
        helped = self._helped[place]
        before = self._left[restriction.subject][helped]
        read = self._selectivity(helped, restriction) * self._factors[helped, place]
        return before, np.minimum(before, read)

    def _selectivity(self, helped: Places, restriction: _Restriction) -> Floats:
        """The share of rows that match a predicate, of a disjunction over several expressions given what is read.

        Of the rows that choices about ``e`` leave, a literal about ``e`` matches a larger share than of all rows; the
        literals together match no more than the sum of their shares.
        """
        if len(restriction.literals) == 1:
            return np.full(len(helped), restriction.selectivity)
        given = [np.minimum(1.0, share / self._left[subject][helped]) for subject, share in restriction.literals]
        return np.asarray(np.minimum(1.0, np.sum(given, axis=0)))


# ----------------------------------------------------------------------------------------------------
# How many features a log is worth: as many as still help queries that they were not chosen for.
#
# Features cost bits while a table is loaded, and nothing when it is read, so there may be many; but one that only a few
# queries of the past would have liked helps none to come.

NEGLIGIBLE: Final = 0.005
"""Features are enough where all others together would take no larger share off what queries still read."""

MOST: Final = 256
"""Features that are found at most where nobody says how many."""


def number_that_pays(candidates: Candidates, queries: Sequence[Query]) -> int:
    """How many of the candidates to choose, at most :data:`MOST`.

    The candidates are ranked by the earlier queries alone. The later ones read less with each candidate in that order
    (:class:`~layoutopt.features.selection.Reading`); once all that follow take off less than :data:`NEGLIGIBLE` of what
    is read with all of them, no more pay.

    Args:
        candidates: of all the queries.
        queries: the analysed log. One with fewer than :data:`ENOUGH` later statements can't tell: it has no more
            features than patterns that recur, which are few, so all of these may be worth having.
    """
    earlier, later = hold_back(queries)
    if sum(query.weight for query in later) < ENOUGH:
        return MOST
    filters = tuple(weights_by_filter(queries))
    reading = Reading(replace(candidates, weights=_weights(filters, later)))
    gains = []
    for place, _ in rank_by_coverage(replace(candidates, weights=_weights(filters, earlier)), MOST):
        gains.append(reading.gain(place))
        reading.choose(place)
    if not any(gains):
        return MOST
    to_come = sum(gains) - np.cumsum(gains)
    return 1 + int(np.argmax(to_come <= NEGLIGIBLE * reading.total))


def _weights(filters: Sequence[Filter], queries: Sequence[Query]) -> Floats:
    """How many of the queries have each filter."""
    weights = weights_by_filter(queries)
    return np.array([weights.get(filter, 0.0) for filter in filters])


Selection = Choice["coverage", "text"]
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
        num_features: numFeat, the most features; as many as pay (:mod:`layoutopt.features.selection`) when None.
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


# ----------------------------------------------------------------------------------------------------
# The features that some of a log's queries alone would have given.


def mined_from(
    document: FeaturesDocument,
    queries: Sequence[Query],
    *,
    threshold: int | None = None,
    num_features: int | None = None,
) -> FeaturesDocument:
    """The document that the analysis of some of its queries alone would have made.

    Args:
        document: of the whole log; it says what columns made no features, and how many features were found.
        queries: some of its.
        threshold: T, in queries; the default of `analyze` when None.
        num_features: the most features but those about dates and stricter ones; as many as the document has when None.
    """
    mined = [document.features[i] for i in bluntest(document.features, document.queries)]
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
