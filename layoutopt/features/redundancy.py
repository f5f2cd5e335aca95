"""Redundant predicate sets, removed as the text has it (Sun 2017, 3.3.3)."""

from __future__ import annotations

import numpy as np

from layoutopt.features.mine import Candidates

Ranked = tuple[tuple[int, float], ...]
"""Candidates' places with the queries that each adds, the best first."""


def eliminate_redundant(candidates: Candidates, threshold: float) -> Ranked:
    """The text's procedure: keep a set that subsumes at least T queries that no stricter one kept before it does.

    Sets are taken in order of increasing generality, so general ones are left out once specific ones cover the
    training queries; queries with other constants then find no feature.
    :func:`layoutopt.features.coverage.rank_by_coverage` does not do that.

    Returns:
        ``(place, I(F))`` by decreasing I(F), the queries that the set additionally subsumes.
    """
    covered = np.zeros(len(candidates.weights), dtype=np.bool_)
    kept: list[tuple[int, float]] = []
    for i in _by_generality(candidates):
        added = float(candidates.weights @ (candidates.subsumes[:, i] & ~covered))
        if added >= threshold and added > 0:
            kept.append((i, added))
            covered |= candidates.subsumes[:, i]
    return tuple(sorted(kept, key=lambda pair: (-pair[1], pair[0])))


def _by_generality(candidates: Candidates) -> list[int]:
    """A topological order of 'is subsumed by', the strictest first.

    Whatever subsumes F_j's stricter sets subsumes F_j's queries too: both counts grow along the order.
    """
    beneath = candidates.stricter.sum(axis=0)
    return sorted(range(len(candidates.sets)), key=lambda i: (candidates.support[i], beneath[i], i))
