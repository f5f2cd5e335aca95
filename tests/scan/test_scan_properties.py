"""Random rows, plans, blockings and filters: a scan returns exactly the rows that match."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.evaluation.predicates import matching_rows
from layoutopt.model.predicates import And, Node, columns_of
from layoutopt.scan.table_read import read_rows
from layoutopt.sql.scans import find_scans
from tests.effort import examples
from tests.scan.builder import Building, build, holds
from tests.scan.generated import buildings, conditions
from tests.scan.tables import SCHEMA, expected, same, some_rows

pytestmark = pytest.mark.checks_texts


@settings(max_examples=examples(60))
@given(buildings(), conditions, st.integers(0, 3), st.sampled_from(["id", "id, price, kind", "score, seen, day", "*"]))
def test_every_way_of_reading_gives_the_rows_that_match(plan: Building, condition: str, seed: int, what: str) -> None:
    """By SQL, all at once, and in batches, where late reading leaves out what a layout excludes."""
    rows = some_rows(60, seed)
    sql = f"SELECT {what} FROM t WHERE {condition}"
    with tempfile.TemporaryDirectory() as folder:
        table = build(Path(folder), rows, replace(plan, footers=True))
        for text in (sql, f"SELECT count(*) AS n FROM t WHERE {condition}"):
            assert same(table.sql(text).to_pylist(), expected(text, rows))
        (read,) = table.scan(sql).reads
        at_once = read_rows(read, 1 << 20)
        assert at_once is not None
        assert same(expected(sql, at_once), expected(sql, rows))
        assert at_once.num_rows <= read.rows
        (whole,) = table.scan(f"SELECT * FROM t WHERE {condition}").reads
        found = pa.Table.from_batches(whole.batches(), whole.arrow_schema())
    root = whole.scan.filter.root
    assert same(matching(root, found).to_pylist(), matching(root, rows).to_pylist())
    (pruned,) = whole.pruned
    for part in root.children if isinstance(root, And) else (root,):
        if len(pruned.choice) > 1 and any(columns_of(part) <= set(choice.columns) for choice in pruned.choice):
            assert matching(part, found).num_rows == found.num_rows


def matching(condition: Node, rows: pa.Table) -> pa.Table:
    found = matching_rows(condition, rows)
    assert found is not None
    return rows.filter(pa.array(found))


@settings(max_examples=examples(150))
@given(conditions, st.integers(0, 5))
def test_matching_rows_agrees_with_an_engine(condition: str, seed: int) -> None:
    rows = some_rows(40, seed)
    (scan,) = find_scans(f"SELECT id FROM t WHERE {condition}", {"t": SCHEMA})
    assert not scan.unusable
    found = matching_rows(scan.filter.root, rows)
    assert found is not None
    assert found.tolist() == holds(rows, [condition])[:, 0].tolist()
