"""Features as the thesis finds them (3.3.3): redundant sets are dropped, and there are no stricter forms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from layoutopt.features.augment import Exclusion
from layoutopt.features.selection import (
    MAX_FEATURES,
    Candidates,
    Ranked,
    default_excluded,
    default_threshold,
    find_candidates,
    mine_ranges,
)
from layoutopt.model.feature import Feature, FeatureSet, SessionSettings
from layoutopt.model.query import Query
from layoutopt.model.schema import Schema


def mine_by_thesis(queries: Sequence[Query], schema: Schema, settings: SessionSettings) -> FeatureSet:
    """Return the features of a workload by the text's procedure, and those about dates as `analyze` has them."""
    threshold, dates = default_threshold(queries), default_excluded(schema)
    exclusion = Exclusion.of(dates, comparisons=False)
    candidates = find_candidates(queries, threshold=threshold, exclusion=exclusion)
    ranked = eliminate_redundant(candidates, threshold)[:MAX_FEATURES]
    features = FeatureSet(tuple(Feature(candidates.sets[i], gain) for i, gain in ranked), settings)
    ranges = mine_ranges(
        queries, dates, schema, threshold=threshold, num_features=len(features) // 3, settings=settings
    )
    known = {feature.predicates for feature in features}
    return replace(features, features=(*features, *(feature for feature in ranges if feature.predicates not in known)))


def eliminate_redundant(candidates: Candidates, threshold: float) -> Ranked:
    """Rank by the text's procedure (3.3.3): keep a set that subsumes T or more queries that no stricter kept set does.

    Sets are taken from strict to general, so general ones are dropped once specific ones cover the training queries;
    queries with other constants then find no feature.

    Returns:
        ``(place, I(F))`` by decreasing I(F), the queries that the set additionally subsumes.
    """
    # What a stricter set subsumes the more general one does too, so both keys grow from strict to general.
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
