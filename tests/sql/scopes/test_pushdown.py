"""Which filters a row of NULLs can satisfy: what may go below an outer join."""

from __future__ import annotations

import pytest

from layoutopt.sql.query_blocks import rejects_nulls
from layoutopt.sql.scans import find_scans
from tests.sql.schemas import SCHEMA


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("i = 1", True),
        ("i IS NOT NULL", True),
        ("i IS NULL", False),
        ("NOT (i <=> 1)", False),
        ("i = 1 OR s = 'a'", True),
        ("i = 1 OR s IS NULL", False),
        ("i IS NULL AND s LIKE '%a%'", True),
        ("lower(s) = 'a'", True),
        ("coalesce(s, 'a') = 'a'", False),
        ("i < b", True),
        ("1 = 0", True),
        ("1 = 1", False),
    ],
)
def test_what_a_row_of_nulls_can_satisfy(condition: str, expected: bool) -> None:
    (scan,) = find_scans(f"SELECT 1 FROM t WHERE {condition}", {"t": SCHEMA})
    assert rejects_nulls(scan.filter.root) == expected
