"""Whether one plan reads less than another, or whether the queries held back can't tell.

Both are replayed with the same queries, so what counts is the difference of each query. Statements are drawn anew with
replacement, the same ones for both (the paired bootstrap): where one plan reads less in nearly all draws, it does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from layoutopt.model.arrays import Floats
from layoutopt.model.query import Query
from layoutopt.spark.planning.hold_out import EvaluatedPlan, resampled

_DRAWS: Final = 1_000
_SURE: Final = 0.95
"""The share of draws in which a plan has to read less."""
_DEVIATIONS: Final = 1.645
"""So many standard deviations are in 95 % of the draws on one side."""
_MOST_STATEMENTS: Final = 100_000


def spread(trial: EvaluatedPlan, held: Sequence[Query]) -> float:
    """The standard deviation of what a plan reads, as a share of full scans, if other queries like these came."""
    return float(resampled(trial.read, held, _DRAWS, seed=0).std())


def clearly_less(less: EvaluatedPlan, more: EvaluatedPlan, held: Sequence[Query]) -> bool:
    """Whether the first plan reads less than the second in nearly all draws of queries like those held back."""
    return float((_difference(less, more, held) > 0).mean()) >= _SURE


def statements_to_tell(one: EvaluatedPlan, other: EvaluatedPlan, held: Sequence[Query]) -> int | None:
    """About how many more statements like those held back would tell which of two plans reads less.

    The deviation of a mean falls with the square root of the number of statements. None where these tell already, or
    where no log of sensible size would.
    """
    difference = _difference(one, other, held)
    mean, deviation = abs(float(difference.mean())), float(difference.std())
    statements = sum(query.weight for query in held)
    if not mean:
        return None
    needed = math.ceil(statements * (_DEVIATIONS * deviation / mean) ** 2) - round(statements)
    return needed if 0 < needed <= _MOST_STATEMENTS else None


def _difference(less: EvaluatedPlan, more: EvaluatedPlan, held: Sequence[Query]) -> Floats:
    """By how much less of full scans the first plan reads in each draw, ``float64[draws]``."""
    return resampled(more.read, held, _DRAWS, seed=0) - resampled(less.read, held, _DRAWS, seed=0)
