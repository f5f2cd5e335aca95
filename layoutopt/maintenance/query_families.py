"""Compare the query families of two logs: new, gone, grown or shrunk.

A family is the queries that read the same columns and filter by the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from layoutopt.features.cross_validation import Family, query_family
from layoutopt.maintenance.sampling_error import CONFIDENCE, Interval, share_interval
from layoutopt.model.query import Query

NEW: Final = "new"
GONE: Final = "gone"
GROWN: Final = "grown"
SHRUNK: Final = "shrunk"
SAME: Final = "same"


@dataclass(frozen=True)
class FamilyChange:
    """The change of a query family.

    Attributes:
        columns: the columns that its queries read.
        filtered: the columns that they filter by.
        then: its share of the older log's statements, 0 to 1.
        now: its share of the newer log's statements.
        interval: the confidence interval of its share of the current workload, of which the newer log is a sample.
        change: ``new`` or ``gone`` if one log lacks it, ``grown`` or ``shrunk`` if its shares differ; ``same`` if the
            difference is within that of two samples of one workload.
        example: one of its statements.
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
    """The changes of all families of two logs.

    Attributes:
        families: by falling change of the share.
        unknown: the share of the newer log's statements whose family the older log lacks.
        unknown_interval: the confidence interval of that share in the current workload; its upper bound includes
            families that the newer log has not seen.
    """

    families: tuple[FamilyChange, ...]
    unknown: float
    unknown_interval: Interval


def compare_families(then: Sequence[Query], now: Sequence[Query]) -> FamilyChanges:
    """Compare the families of two logs; the intervals hold jointly with probability :data:`CONFIDENCE`.

    Args:
        then: the analysed older log, not empty.
        now: the newer one, not empty.
    """
    before, after = _sum_weights(then), _sum_weights(now)
    examples = {query_family(query): query.sql for query in (*then, *now)}
    n_then, n_now = sum(before.values()), sum(after.values())
    # Bonferroni's correction: with many families, one would seem to have changed by chance.
    confidence = 1 - (1 - CONFIDENCE) / len(examples)
    changes = []
    for family, example in examples.items():
        old = share_interval(before.get(family, 0.0), n_then, confidence)
        new = share_interval(after.get(family, 0.0), n_now, confidence)
        shares = before.get(family, 0.0) / n_then, after.get(family, 0.0) / n_now
        kind = _classify_change(old, new, *shares)
        changes.append(FamilyChange(family[0], tuple(sorted(family[1])), *shares, new, kind, example))
    changes.sort(key=lambda change: (-abs(change.now - change.then), change.columns, change.filtered))
    unknown = sum(weight for family, weight in after.items() if family not in before)
    return FamilyChanges(tuple(changes), unknown / n_now, share_interval(unknown, n_now))


def _sum_weights(queries: Sequence[Query]) -> dict[Family, float]:
    weights: dict[Family, float] = {}
    for query in queries:
        family = query_family(query)
        weights[family] = weights.get(family, 0.0) + query.weight
    return weights


def _classify_change(old: Interval, new: Interval, then: float, now: float) -> str:
    if new.low > old.high:
        return GROWN if then else NEW
    if new.high < old.low:
        return SHRUNK if now else GONE
    return SAME
