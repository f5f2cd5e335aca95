"""What trials say in money: months, shares of the table as it is, and the best statement of each engine."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from layoutopt.advice import (
    MOST_TOLD,
    REHEARSED_ERROR,
    SAMPLED_ERROR,
    CurrentCosts,
    Period,
    Reading,
    Trial,
    period_of,
    profile_filters,
    statements_of,
)
from tests.advised import advice, layout
from tests.inspect.logs import logged
from tests.scan.tables import SCHEMA

TRIED = Trial("gsop", (), 3, ("auto",), 0.25, 0.05, rehearsed=True, stored=7.0)
MONTH = Period("month", 2_000, "")


def test_a_month_is_as_long_as_somebody_says() -> None:
    assert period_of(logged(), 500).runs == 500


def test_a_month_is_as_long_as_the_log_tells() -> None:
    queries = [
        replace(q, timestamp=f"2026-11-{day:02}T00:00:00") for q, day in zip(logged()[:3], (1, 4, 11), strict=True)
    ]
    found = period_of(queries, None)
    assert (found.name, found.by) == ("month", "by the 10.0 days of the log")
    assert found.runs == pytest.approx(3 / 10 * 365.25 / 12)


@pytest.mark.parametrize("times", [(None, "2026-11-20"), ("2026-11-20T10:00", "2026-11-20T18:00"), ("today", "now")])
def test_without_times_savings_are_for_a_thousand_queries(times: tuple[str | None, str]) -> None:
    queries = [replace(query, timestamp=time) for query, time in zip(logged()[:2], times, strict=True)]
    found = period_of(queries, None)
    assert (found.name, found.runs) == ("1,000 queries", 1_000)
    assert "--queries-per-month" in found.by


def test_what_is_asked_for_is_told_by_the_bytes_that_it_reads() -> None:
    queries = [replace(query, weight=2.0) for query in logged()]
    read = np.arange(len(queries), dtype=np.float64)
    found = profile_filters(queries, read, SCHEMA)
    assert len(found) <= MOST_TOLD
    assert [one.bytes for one in found] == sorted((one.bytes for one in found), reverse=True)
    assert sum(one.runs for one in found) == 2.0 * len(queries)
    assert sum(one.bytes for one in found) == pytest.approx(2 * read.sum())
    alike = next(one for one in found if one.columns == ("kind", "price"))
    assert alike.example == "SELECT id FROM t WHERE kind = 'air' AND price > 60"


def test_shares_are_of_the_table_as_it_is_and_cost_what_the_period_reads() -> None:
    as_it_is = CurrentCosts(full=8e12, now=4e12, runs=1_000, period=MONTH, price=5.0)
    found = as_it_is.advice_of(TRIED)
    assert found.reads.bytes == 2e12
    assert found.costs == pytest.approx(2 * 2 * 5)
    assert found.saves == pytest.approx(4 * 2 * 5 - found.costs)
    assert found.reads.relative_error == pytest.approx(math.hypot(0.05, REHEARSED_ERROR))
    assert as_it_is.advice_of(replace(TRIED, rehearsed=False)).reads.error == SAMPLED_ERROR
    assert as_it_is.is_worth_writing(found)
    assert not as_it_is.is_worth_writing(as_it_is.advice_of(replace(TRIED, share=0.49)))


def test_each_engine_is_told_the_best_order_that_it_can_keep() -> None:
    orders = [layout("hilbert", 0.2, columns=("day", "id")), layout("sort", 0.4, columns=("score",))]
    engines = ["databricks", "ducklake", "bigquery"]
    found = statements_of(orders, 0.05, engines, "t", SCHEMA, partitioned=False)
    assert [said.engine for said in found] == ["databricks", "ducklake"]  # BigQuery clusters by no double
    assert found[0].gives_away == pytest.approx(0.05)
    assert statements_of(orders, 0.05, ["databricks"], "t", SCHEMA, partitioned=True) == ()


def test_advice_is_json_and_says_when_it_has_paid() -> None:
    found = json.loads(json.dumps(advice().to_json()))
    assert found["recommended"]["method"] == "gsop"
    assert found["pays_after"] == pytest.approx(0.05 / 0.35)
    assert advice(recommends=False).pays_after is None
    assert Reading(0.0, 0.0, 0.03, 0.04).relative_error == pytest.approx(0.05)
