"""Random rows, plans, blockings and filters: a scan returns exactly the rows that match."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.sql.scans import find_scans
from layoutopt.writer.evaluation import matching_rows
from tests.effort import examples
from tests.scan.builder import Building, build, holds
from tests.scan.generated import buildings, conditions
from tests.scan.tables import SCHEMA, expected, same, some_rows


@settings(max_examples=examples(40))
@given(buildings(), conditions, st.integers(0, 3), st.sampled_from(["id", "id, price, kind", "count(*) AS n", "*"]))
def test_a_scan_returns_exactly_the_rows_that_match(plan: Building, condition: str, seed: int, what: str) -> None:
    rows = some_rows(60, seed)
    sql = f"SELECT {what} FROM t WHERE {condition}"
    with tempfile.TemporaryDirectory() as folder:
        table = build(Path(folder), rows, plan)
        assert same(table.sql(sql).to_pylist(), expected(sql, rows))


@settings(max_examples=examples(150))
@given(conditions, st.integers(0, 5))
def test_matching_rows_agrees_with_an_engine(condition: str, seed: int) -> None:
    rows = some_rows(40, seed)
    (scan,) = find_scans(f"SELECT id FROM t WHERE {condition}", {"t": SCHEMA})
    assert not scan.unusable
    found = matching_rows(scan.filter.root, rows)
    assert found is not None
    assert found.tolist() == holds(rows, [condition])[:, 0].tolist()
