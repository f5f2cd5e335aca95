"""Which families of queries are new, gone, grown or shrunk between two logs.

A family is the queries that read the same columns and filter by the same ones, as those of one report do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from layoutopt.features.cross_validation import Family, family_of
from layoutopt.maintenance.sampling_error import CONFIDENCE, Interval, share_interval
from layoutopt.model.query import Query

NEW: Final = "new"
GONE: Final = "gone"
GROWN: Final = "grown"
SHRUNK: Final = "shrunk"
SAME: Final = "same"


@dataclass(frozen=True)
class FamilyChange:
    """One family, and what became of it.

    Attributes:
        columns: what its queries read.
        filtered: what they filter by.
        then: its share of the older log's statements, 0 to 1.
        now: its share of the newer log's.
        interval: in which its share lies of all that is asked now, of which the newer log is a sample.
        change: ``new`` or ``gone`` where one log has none of it; ``grown`` or ``shrunk`` where its shares differ by
            more than two samples of one workload would; ``same`` otherwise. A family that is gone or new, but so small
            that chance explains it, is the ``same``.
        example: a text of one of its statements.
    """

    columns: tuple[str, ...]
    filtered: tuple[str, ...]
    then: float
    now: float
    interval: Interval
    change: str
    example: str


@dataclass(frozen=True)
class FamilyChanges:
    """All families of two logs, the largest change first.

    Attributes:
        families: with what became of each.
        unknown: the share of the newer log's statements that are of no family of the older one.
        unknown_interval: in which that share lies of all that is asked now. The upper bound holds for families too
            that the newer log, being a sample, has not seen.
    """

    families: tuple[FamilyChange, ...]
    unknown: float
    unknown_interval: Interval


def family_changes(then: Sequence[Query], now: Sequence[Query]) -> FamilyChanges:
    """Compare the families of two logs; all intervals hold together as surely as :data:`CONFIDENCE` says.

    Args:
        then: the analysed older log, not empty.
        now: the newer one, not empty.
    """
    before, after = _weights(then), _weights(now)
    examples = {family_of(query): query.sql for query in (*then, *now)}
    n_then, n_now = sum(before.values()), sum(after.values())
    # Of many families one would seem to have changed by chance; each interval is that much wider (Bonferroni).
    each = 1 - (1 - CONFIDENCE) / len(examples)
    found = []
    for family, example in examples.items():
        old = share_interval(before.get(family, 0.0), n_then, each)
        new = share_interval(after.get(family, 0.0), n_now, each)
        shares = before.get(family, 0.0) / n_then, after.get(family, 0.0) / n_now
        found.append(
            FamilyChange(family[0], tuple(sorted(family[1])), *shares, new, _change(old, new, *shares), example)
        )
    found.sort(key=lambda one: (-abs(one.now - one.then), one.columns, one.filtered))
    unknown = sum(weight for family, weight in after.items() if family not in before)
    return FamilyChanges(tuple(found), unknown / n_now, share_interval(unknown, n_now))


def _weights(queries: Sequence[Query]) -> dict[Family, float]:
    weights: dict[Family, float] = {}
    for query in queries:
        family = family_of(query)
        weights[family] = weights.get(family, 0.0) + query.weight
    return weights


def _change(old: Interval, new: Interval, then: float, now: float) -> str:
    if new.low > old.high:
        return GROWN if then else NEW
    if new.high < old.low:
        return SHRUNK if now else GONE
    return SAME
