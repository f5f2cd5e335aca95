"""Frequent predicate sets (Sun 2017, 3.3.2): the candidates for features, by mlxtend's FP-growth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from layoutopt.features.augment import Augmented, Exclusion, augment, subject_of
from layoutopt.features.implications import single_parts
from layoutopt.features.selectivity import assumed_selectivity, share_of
from layoutopt.features.units import Units
from layoutopt.model.arrays import Bits, Floats
from layoutopt.model.predicates import Literal, Predicate
from layoutopt.model.query import Query

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
