"""Orders of candidate features, the best first: by what each adds to the skipping of others, or as the text has it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from layoutopt.features.augment import literal_subject, subject_of
from layoutopt.features.mine import Candidates
from layoutopt.features.selectivity import share_of
from layoutopt.model.arrays import Floats, Places
from layoutopt.model.predicates import Literal, Predicate

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
        candidates: from :func:`layoutopt.features.mine.find_candidates`.
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

    A unit ``u`` (:class:`layoutopt.features.units.Units`) of a filter of weight ``w`` reads, in scans of all rows::

        reads(u)   = w * shares(u) * product of left(u, e) over all expressions e
        left(u, e) = min of 1 and factors(u, c) * selectivity(c, e) over the chosen candidates c that restrict e

    so of several candidates about one expression the strictest counts, and a candidate gains what it takes off the sum.
    Two queries ask for ``x IN (1, 2)``. Each value is guessed to match 0.3 of the rows, so ``x = 1`` leaves 2 x 0.3 of
    a unit that reads 1, and gains 0.4. The other value gains 0.4 too, and what is left for the list to skip is nothing:

    >>> from layoutopt.features.mine import find_candidates
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
