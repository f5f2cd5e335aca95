"""What partitions lost since they were written, and what is expected of the days to come."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from layoutopt.inspect.cost import measure_entry_bytes
from layoutopt.inspect.drift import DatedLog, estimate_prospects
from layoutopt.model.query import Query
from layoutopt.scan.table import Table
from layoutopt.workload.log import query_times
from tests.inspect.logs import logged
from tests.scan.builder import build, building
from tests.scan.deleting import delete_ids
from tests.scan.layouts import GROUPS
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

WEEK, DAY = dt.timedelta(days=7), dt.timedelta(days=1)
TEXT = "SELECT id, price FROM t WHERE price > 50 AND kind IS NOT NULL"


def asked(*days: str) -> DatedLog:
    """The query once at noon of each day."""
    (query,) = logged([TEXT])
    queries = tuple(replace(query, id=i, timestamp=f"{day}T12:00:00+00:00") for i, day in enumerate(days))
    return DatedLog(queries, query_times(queries))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Three years, loaded when the second of January 2026 began."""
    made = building(SCHEMA, ["kind = 'air'"], partition_by="year")
    return build(tmp_path_factory.mktemp("losses"), some_rows(), made, "20260102t000000z-a")


def test_only_what_was_asked_since_a_partition_was_written_is_lost(table: Table) -> None:
    log = asked("2026-01-01", "2026-01-02", "2026-01-03", "2026-01-03")
    assert (log.days, log.day.tolist()) == (3, [0, 1, 2, 2])
    reads = measure_entry_bytes(table, log.queries)
    costs = dict.fromkeys(table.catalog.snapshot.by_key, 1e9)
    found = estimate_prospects(table, log, reads, np.zeros(1), WEEK, 2 * DAY, costs)
    for place, entry in enumerate(table.catalog.partitions):
        read = float(reads.read[0, place])
        assert read > 0
        assert found[entry.key].loss.counted == pytest.approx(3 * read)
        counts = 0.5 ** (np.array([2, 1, 0]) / 7)
        assert found[entry.key].expected == pytest.approx(2 * read * float(counts @ [1, 1, 2]) / counts.sum())


def test_an_excluded_partition_is_reached_in_no_layout(tmp_path: Path) -> None:
    table = build(tmp_path, some_rows(), building(SCHEMA, CONDITIONS, layouts=GROUPS, partition_by="year"))
    reads = measure_entry_bytes(table, logged(["SELECT id FROM t WHERE year = 1995", "SELECT price FROM t"]))
    by_year = [entry.key == "1995" for entry in table.catalog.partitions]
    assert reads.reached.tolist() == [by_year, [True] * len(by_year)]


def test_a_plan_that_reads_more_is_no_loss(table: Table) -> None:
    log = asked("2026-01-03")
    reads = measure_entry_bytes(table, log.queries)
    (key, *_) = table.catalog.snapshot.by_key
    found = estimate_prospects(table, log, reads, np.full(1, 5.0), WEEK, WEEK, {key: 1e9})
    assert found[key].loss.counted < 0
    assert found[key].expected < 0


def test_queries_that_are_forgotten_do_not_count(table: Table) -> None:
    log = asked("2026-01-03")
    other = measure_entry_bytes(table, logged(["SELECT id FROM t WHERE kind = 'air'"]))
    (key, *_) = table.catalog.snapshot.by_key
    found = estimate_prospects(table, log, other, np.zeros(1), WEEK, WEEK, {key: 1.0})
    assert (found[key].loss.counted, found[key].expected) == (0.0, 0.0)


def test_the_half_life_of_a_log_is_found(table: Table) -> None:
    days = [f"2026-01-{day:02}" for day in range(1, 29)]
    assert asked(*days).half_life() == dt.timedelta(days=64)
    moved = [*logged([TEXT]), *logged(["SELECT id FROM t WHERE kind = 'air'"])]
    queries: tuple[Query, ...] = tuple(
        replace(moved[place >= 14], id=place, timestamp=f"{day}T12:00:00") for place, day in enumerate(days)
    )
    assert DatedLog(queries, query_times(queries)).half_life() == dt.timedelta(days=0.5)


def test_deleted_rows_are_a_loss_from_when_they_were_deleted(tmp_path: Path) -> None:
    made = building(SCHEMA, ["kind = 'air'"], partition_by="year")
    rows = some_rows()
    table = build(tmp_path, rows, made, "20260102t000000z-a")
    table = delete_ids(str(tmp_path), rows["id"].to_pylist()[::2])
    (query,) = logged([TEXT])
    tomorrow = dt.datetime.now(dt.UTC) + DAY
    queries = tuple(
        replace(query, id=i, timestamp=day.isoformat()) for i, day in enumerate((tomorrow - 9 * DAY, tomorrow))
    )
    log = DatedLog(queries, query_times(queries))
    reads = measure_entry_bytes(table, queries)
    costs = dict.fromkeys(table.catalog.snapshot.by_key, 1e9)
    found = estimate_prospects(
        table, log, reads, np.array(reads.read.sum(axis=1) / reads.full.sum(axis=1)), WEEK, WEEK, costs
    )
    read, marked = reads.read[0].sum(), 1 - reads.live.mean()
    assert 0.4 < marked < 0.6
    assert sum(one.loss.counted for one in found.values()) == pytest.approx(read * marked, rel=0.2)  # of one day alone
