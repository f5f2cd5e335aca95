"""Which rows a copy must hold: features such that every row that its queries need has one of them (Sun 2017, 5.4.1).

A query may read a layout of some rows only where the OR of the layout's features subsumes it (5.6.1), which is where
all members of one of the query's skip sets are among them. What is to hold for queries not seen yet is cross-validated:
the features found for one half of the queries must serve the other half too. That rules out copies for the very
constants of the log, and leaves general features and sets that have every constant.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.search.problem import Problem

_LEAST_SERVED = 0.95
"""Of the weight of the queries held back."""


class Covers:
    """Finds covers for sets of queries of one problem."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._members: Bits = problem.members > 0
        self._weights: Floats = problem.weights.sum(axis=0)

    def find(self, served: Bits) -> tuple[int, ...]:
        """Few rows' features, by which all these queries and, by cross-validation, others like them are served.

        Of the queries ``bool[queries]``; feature numbers, ascending, none where there is no such set.
        """
        numbers = np.flatnonzero(served)
        if not self._hold_for_others(numbers):
            return ()
        return self._cover(numbers)

    def share(self, features: tuple[int, ...]) -> float:
        """The share of the sampled rows that have one of these features, weighed by what the samples stand for."""
        rows = self._problem.rows
        return min(1.0, self._problem.rows_with_any(features) / rows) if rows else 1.0

    def serves(self, features: tuple[int, ...], queries: Ints) -> Bits:
        """Which of the queries these features serve, ``bool[len(queries)]``."""
        inside = np.zeros(len(self._members), dtype=np.bool_)
        inside[list(features)] = True
        whole: Bits = ~np.asarray(self._members[~inside].any(axis=0), dtype=np.bool_)
        return np.asarray((self._problem.skips[queries] & whole).any(axis=1), dtype=np.bool_)

    def _hold_for_others(self, queries: Ints) -> bool:
        if len(queries) < 2:
            return bool(len(queries))
        for half, other in ((queries[::2], queries[1::2]), (queries[1::2], queries[::2])):
            weights = self._weights[other]
            features = self._cover(half)
            if not features or weights @ self.serves(features, other) < _LEAST_SERVED * weights.sum():
                return False
        return True

    def _cover(self, queries: Ints) -> tuple[int, ...]:
        """The features of skip sets that serve all queries: one skip set for all, or several chosen greedily."""
        skips = self._problem.skips[queries]
        found = [features for features in (self._common(skips), self._greedy(skips, queries)) if features]
        return min(found, key=lambda features: (self.share(features), features), default=())

    def _common(self, skips: Bits) -> tuple[int, ...]:
        common = np.flatnonzero(skips.all(axis=0))
        if not len(common):
            return ()
        return self._features(common[[int(np.argmin(self._shares[common]))]])

    def _greedy(self, skips: Bits, queries: Ints) -> tuple[int, ...]:
        """By most weight of queries newly served for the rows of a skip set."""
        weights = self._weights[queries] + 1e-9
        open_, chosen = np.ones(len(queries), dtype=np.bool_), []
        while open_.any():
            worth = (weights[open_] @ skips[open_]) / np.maximum(self._shares, 1e-6)
            best = int(np.argmax(worth))
            if worth[best] <= 0:
                return ()
            chosen.append(best)
            open_ &= ~skips[:, best]
        return self._features(np.array(chosen))

    def _features(self, skip_sets: Ints) -> tuple[int, ...]:
        return tuple(np.flatnonzero(self._members[:, skip_sets].any(axis=1)).tolist())

    @cached_property
    def _shares(self) -> Floats:
        """The share of rows with a member of each skip set, ``float64[skip_sets]``."""
        return self._problem.rows_with_sets() / max(1, self._problem.rows)
