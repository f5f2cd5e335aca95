"""An order for features of our own: by what each adds to the skipping of those before it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from layoutopt.features.augment import literal_subject, subject_of
from layoutopt.features.mine import Candidates
from layoutopt.features.redundancy import Ranked
from layoutopt.features.selectivity import share_of
from layoutopt.model.arrays import Floats, Places
from layoutopt.model.predicates import Literal, Predicate

_NOTHING = 1e-9


def rank_by_coverage(candidates: Candidates, limit: int) -> Ranked:
    """The candidates whose skipping together is largest, chosen greedily: each adds the most to those before it.

    A filter of weight *w* skips rows by each expression that chosen features restrict. With well-clustered rows it
    reads the product over the expressions of the share that the strictest of them leaves; a candidate adds ``w`` times
    what it takes off that product. A disjunction or a list reads the sum of what its parts do, and so each part is
    looked at by itself (:mod:`layoutopt.features.units`): else features for the same part would seem to add up.
    So a set that says nothing new of a filter adds nothing, however often it occurs;
    ``x <> 'a'`` adds little to anything; and a general set is chosen where it serves filters that no specific one
    does, so that constants not seen yet find it too. (The text's order in 3.3.3 leaves those out.)

    Args:
        candidates: from :func:`layoutopt.features.mine.find_candidates`.
        limit: the most candidates chosen; fewer where no other adds anything.

    Returns:
        ``(place, gain)`` in the order of choice, the gain in queries' worth of all rows.
    """
    reading = _Reading(candidates)
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


class _Reading:
    """What each unit still reads, by the expressions that the chosen candidates restrict."""

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates
        self._restrictions = [
            tuple(_restriction(predicate, candidates.selectivity) for predicate in members)
            for members in candidates.sets
        ]
        units = candidates.units
        # A candidate is compared only with the units it helps: most help few.
        self._helped = [np.flatnonzero(column) for column in units.factors.T]
        self._reads = candidates.weights[units.of_filter] * units.shares
        self._left: dict[Hashable, Floats] = {}

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
            self._of(restriction.subject)[helped] = after

    def _change(self, place: int, restriction: _Restriction) -> tuple[Floats, Floats]:
        """What of an expression's rows is left to the units helped, before and after the choice.

        A part of a list that has *k* values reads *k* times its rows for a *k*-th of the filter's weight.
        """
        helped = self._helped[place]
        before = self._of(restriction.subject)[helped]
        read = self._selectivity(helped, restriction) * self._candidates.units.factors[helped, place]
        return before, np.minimum(before, read)

    def _selectivity(self, helped: Places, restriction: _Restriction) -> Floats:
        """A mixed disjunction's literals match more of the rows that other choices leave: those are no news."""
        if len(restriction.literals) == 1:
            return np.full(len(helped), restriction.selectivity)
        given = [np.minimum(1.0, share / self._of(subject)[helped]) for subject, share in restriction.literals]
        together: Floats = np.minimum(1.0, np.sum(given, axis=0))
        return together

    def _of(self, subject: Hashable) -> Floats:
        left = self._left.get(subject)
        if left is None:
            left = self._left[subject] = np.ones(len(self._reads))
        return left


def _restriction(predicate: Predicate, selectivity: Mapping[Literal, float]) -> _Restriction:
    literals = tuple((literal_subject(literal), selectivity[literal]) for literal in predicate.literals)
    return _Restriction(subject_of(predicate), share_of(predicate, selectivity), literals)
