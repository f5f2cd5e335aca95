"""How selective predicates are, guessed from the workload alone, since the data need not be at hand."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np

from layoutopt.model.arrays import Bits, Floats
from layoutopt.model.predicates import Comparison, InSet, Like, Literal, Predicate
from layoutopt.model.values import Key, ValueSet

_NULL_SHARE = 0.1
_COMPARISON_SHARES = {"=": 0.1, "<>": 0.9, "<": 0.5, "<=": 0.5}


def assumed_selectivity(predicates: Iterable[Predicate]) -> dict[Literal, float]:
    """The share of rows for which each literal is guessed to be TRUE, in (0, 1].

    The constants that a workload compares an expression with cut its values into cells; a literal is as selective as
    the share of cells that it holds. So ``x = 'a'`` is one in as many as there are such constants, ``x <> 'a'`` is all
    but one, and a list as many as its values. Good enough to rank; a plan measures the rows themselves.
    """
    literals = list(dict.fromkeys(literal for predicate in predicates for literal in predicate.literals))
    return {**_set_shares(literals), **_other_shares(literals)}


def share_of(predicate: Predicate, selectivity: Mapping[Literal, float]) -> float:
    """The share of rows that a predicate matches at most: its literals' together."""
    return min(1.0, sum(selectivity[literal] for literal in predicate.literals))


def _set_shares(literals: Sequence[Literal]) -> dict[Literal, float]:
    by_subject: dict[Hashable, list[InSet]] = defaultdict(list)
    for literal in literals:
        if isinstance(literal, InSet):
            by_subject[literal.subject].append(literal)
    shares: dict[Literal, float] = {}
    for members in by_subject.values():
        cells = _cells([member.values for member in members])
        weights = _cell_weights(cells, [member.values for member in members])
        for member, held in zip(members, cells, strict=True):
            share = float(held @ weights) * (1.0 - _NULL_SHARE) + _NULL_SHARE * member.null
            shares[member] = min(1.0, max(share, 1e-6))
    return shares


def _cells(sets: Sequence[ValueSet]) -> Bits:
    """Which elementary intervals each set holds: bool, shape (sets, cells); cells lie between all sets' bounds."""
    bounds: list[Key] = sorted({key for values in sets for pair in values.intervals for key in pair if key is not None})
    cells = np.zeros((len(sets), len(bounds) + 1), dtype=np.bool_)
    for row, values in zip(cells, sets, strict=True):
        for low, high in values.intervals:
            first = 0 if low is None else bisect_left(bounds, low) + 1
            end = len(row) if high is None else bisect_left(bounds, high) + 1
            row[first:end] = True
    return cells


def _cell_weights(cells: Bits, sets: Sequence[ValueSet]) -> Floats:
    """The cells' shares of the rows. Those that no list or closed range holds are what is left: one cell together."""
    closed = [bool(v.intervals) and all(None not in pair for pair in v.intervals) for v in sets]
    named = cells[closed].any(axis=0) if any(closed) else np.ones(cells.shape[1], dtype=np.bool_)
    weights = np.where(named, 1.0, 1.0 / max(1, int((~named).sum())))
    return np.array(weights / weights.sum())


def _other_shares(literals: Sequence[Literal]) -> dict[Literal, float]:
    patterns: dict[Hashable, set[object]] = defaultdict(set)
    for literal in literals:
        if isinstance(literal, Like):
            patterns[literal.subject].add(literal.pattern)
    shares: dict[Literal, float] = {}
    for literal in literals:
        if isinstance(literal, Like):
            share = 1.0 / max(2, len(patterns[literal.subject]))
            shares[literal] = 1.0 - share if literal.negated else share
        elif isinstance(literal, Comparison):
            shares[literal] = _COMPARISON_SHARES.get(literal.op, 0.5)
    return shares
