"""What queries read of each partition, and what is lost by an older plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow.compute as pc
import pytest

from layoutopt.inspect.cost import measure_entry_bytes, shares
from layoutopt.inspect.drift import measure_regret
from layoutopt.inspect.evaluate import evaluate
from layoutopt.scan.table import Table
from tests.inspect.logs import logged
from tests.scan.builder import build, building
from tests.scan.tables import SCHEMA, some_rows

ROWS = some_rows()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Three years by one plan, the last one again by another that has no features."""
    root = tmp_path_factory.mktemp("regret")
    made = building(SCHEMA, ["kind = 'air'"], partition_by="year")
    build(root, ROWS, made, "20260101t000000z-a")
    poorer = replace(made, plan=replace(made.plan, seed=2))
    return build(root, ROWS.filter(pc.equal(ROWS["year"], 1996)), poorer, "20260102t000000z-a")


def test_bytes_add_up_to_what_evaluate_says(table: Table) -> None:
    queries = logged()
    reads = measure_entry_bytes(table, queries)
    scanned = {(query.filter.root, query.columns): 0 for query in queries}
    for query, result in zip(queries, evaluate(table, queries).queries, strict=True):
        scanned[query.filter.root, query.columns] = result.bytes_scanned
    assert [scanned[query.filter.root, query.columns] for query in reads.queries] == reads.read.sum(axis=1).tolist()
    assert float(reads.weights.sum()) == len(queries)
    assert (reads.read <= reads.full).all()
    assert not reads.read[~reads.reached].any()


def test_a_query_of_one_year_reaches_one_partition(table: Table) -> None:
    (only,) = measure_entry_bytes(table, logged(["SELECT id FROM t WHERE year = 1995 AND kind = 'air'"])).reached
    assert [entry.key for entry, reached in zip(table.catalog.partitions, only, strict=True) if reached] == ["1995"]


def test_what_a_plan_reads_of_its_partitions_is_expected_of_the_others(table: Table) -> None:
    reads = measure_entry_bytes(
        table, logged(["SELECT id FROM t WHERE kind = 'air'", "SELECT id FROM t WHERE year = 1996"])
    )
    found = reads.shares_of([0, 1])
    assert found is not None
    expected = reads.expected(found)
    assert expected[0, :2].sum() == pytest.approx(reads.read[0, :2].sum())
    assert 0 < expected[0, 2] < reads.full[0, 2]
    # The second query reaches none of the two, so it is taken to read what others do on the average.
    assert found[1] == found[0]
    assert expected[1].tolist() == [0, 0, found[0] * reads.full[1, 2]]
    assert reads.shares_of([]) is None


def test_shares_of_nothing_are_unknown() -> None:
    assert shares(np.zeros(2), np.zeros(2), np.ones(2)) is None


def test_regret_is_the_share_of_what_could_be_saved(table: Table) -> None:
    reads = measure_entry_bytes(table, logged(["SELECT id FROM t WHERE kind = 'air'"] * 3))
    full, read = reads.full.sum(), reads.read.sum()
    none = measure_regret(reads, reads.read.sum(axis=1) / full, "p")
    assert none.share == pytest.approx(0, abs=1e-9)
    assert (none.full, none.read) == (3 * full, 3 * read)
    some = measure_regret(reads, np.zeros(1), "p")
    assert some.share == pytest.approx(read / full)
    assert some.interval.low <= some.share <= some.interval.high
    assert measure_regret(reads, np.ones(1), "p").share == 0
