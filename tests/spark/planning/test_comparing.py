"""What queries held back can tell of two plans, and what they can't."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layoutopt.methods.interface import PlanRequest
from layoutopt.model.arrays import Floats
from layoutopt.model.predicates import TRUE, Filter
from layoutopt.model.query import Query
from layoutopt.planning.hold_out import EvaluatedPlan, reads_clearly_less, score_deviation, statements_to_tell
from layoutopt.planning.sample_evaluation import BytesRead


def held(count: int) -> tuple[Query, ...]:
    return tuple(Query(i, "t", (f"c{i}",), Filter.of(TRUE)) for i in range(count))


def reading(shares: Sequence[float] | Floats) -> EvaluatedPlan:
    read = BytesRead(tuple(map(float, shares)), (1.0,) * len(shares))
    return EvaluatedPlan(PlanRequest(), 2, read.fraction, read)


def test_less_of_every_query_is_clear_however_much_queries_differ() -> None:
    shares = np.random.default_rng(1).random(40)
    assert reads_clearly_less(reading(0.95 * shares), reading(shares), held(40))
    assert statements_to_tell(reading(0.95 * shares), reading(shares), held(40)) is None


def test_less_by_a_query_of_forty_is_not_clear_and_more_would_tell() -> None:
    more = np.full(40, 0.5)
    less = more.copy()
    less[0] = 0.1
    assert not reads_clearly_less(reading(less), reading(more), held(40))
    needed = statements_to_tell(reading(less), reading(more), held(40))
    assert needed is not None
    assert 20 < needed < 200  # a query in forty: about 1.645 squared times as many


def test_equal_plans_are_never_told_apart() -> None:
    shares = np.random.default_rng(1).random(40)
    assert not reads_clearly_less(reading(shares), reading(shares), held(40))
    assert statements_to_tell(reading(shares), reading(shares), held(40)) is None


def test_the_spread_is_that_of_a_mean() -> None:
    shares = np.tile([0.2, 0.4], 50)
    assert abs(score_deviation(reading(shares), held(100)) - 0.1 / 10) < 0.002
    assert score_deviation(reading([0.3] * 9), held(9)) < 1e-12
