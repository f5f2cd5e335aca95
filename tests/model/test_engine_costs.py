"""What engines cost: seconds add up, and documents of them are read strictly."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.errors import PlanError
from layoutopt.model.engine_costs import BUILT_IN, KINDS, Calibration, EngineCosts, QueryWork

COUNTS = st.lists(st.integers(0, 10**6), min_size=len(KINDS), max_size=len(KINDS))


@given(COUNTS, COUNTS, st.lists(st.floats(0, 1), min_size=len(KINDS), max_size=len(KINDS)))
def test_seconds_of_two_queries_add_up(one: list[int], other: list[int], costs: list[float]) -> None:
    engine = EngineCosts(dict(zip(KINDS, costs, strict=True)))
    first, second = QueryWork(*one), QueryWork(*other)
    assert engine.seconds(first + second) == pytest.approx(engine.seconds(first) + engine.seconds(second))
    assert engine.seconds(first) == pytest.approx(sum(n * c for n, c in zip(one, costs, strict=True)))


def test_calibrations_are_documents() -> None:
    made = Calibration({"spark": {"queries": 0.1}})
    assert Calibration.loads(made.dumps()) == made
    assert made.costs("spark").seconds(QueryWork(queries=3)) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("seconds", "said"), [({"query": 0.1}, "'query'"), ({"files": -1.0}, "-1"), ({"files": "x"}, "'x'")]
)
def test_senseless_costs_are_refused(seconds: dict[str, object], said: str) -> None:
    text = json.dumps({"format": "layoutopt-calibration", "version": 1, "engines": {"spark": seconds}})
    with pytest.raises(PlanError, match=said):
        Calibration.loads(text)


def test_an_engine_that_was_not_calibrated_is_refused() -> None:
    with pytest.raises(PlanError, match="'trino' was not calibrated; give one of arrow, duckdb, spark"):
        BUILT_IN.costs("trino")


def test_the_built_in_costs_tell_hard_cases() -> None:
    """Footers of many small row groups and rows of several layouts cost Spark more than the bytes that they save."""
    spark = BUILT_IN.costs("spark")
    large = QueryWork(
        queries=1, files=84, row_groups=84, footer_chunks=84 * 63, chunks=84 * 5, bytes=2e7, rows=1e6, values=5e6
    )
    small = QueryWork(
        queries=1, files=84, row_groups=900, footer_chunks=84 * 5_900, chunks=4_500, bytes=6e6, rows=3e5, values=1e6
    )
    assert spark.seconds(small) > spark.seconds(large)
    one = QueryWork(
        queries=1, files=7, row_groups=50, footer_chunks=4_000, chunks=250, bytes=5e6, rows=5e5, values=2.5e6
    )
    joined = QueryWork(
        queries=1, files=21, row_groups=50, footer_chunks=4_000, chunks=250, bytes=5e6,
        joined_segments=7, joined_rows=1e6, joined_values=3.5e6,
    )  # fmt: skip
    assert spark.seconds(joined) > spark.seconds(one)
