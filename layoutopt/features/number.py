"""How many features a log is worth: as many as still help queries that they were not chosen for.

Features cost bits while a table is loaded, and nothing when it is read, so there may be many; but one that only a few
queries of the past would have liked helps none to come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from layoutopt.features.augment import weights_by_filter
from layoutopt.features.coverage import Reading, rank_by_coverage
from layoutopt.features.mine import Candidates
from layoutopt.features.splits import ENOUGH, hold_back
from layoutopt.model.arrays import Floats
from layoutopt.model.predicates import Filter
from layoutopt.model.query import Query

NEGLIGIBLE: Final = 0.005
"""Features are enough where all others together would take no larger share off what queries still read."""

MOST: Final = 256
"""Features that are found at most where nobody says how many."""


def number_that_pays(candidates: Candidates, queries: Sequence[Query]) -> int:
    """How many of the candidates to choose, at most :data:`MOST`.

    The candidates are ranked by the earlier queries alone. The later ones read less with each candidate in that order
    (:class:`~layoutopt.features.coverage.Reading`); once all that follow take off less than :data:`NEGLIGIBLE` of what
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
