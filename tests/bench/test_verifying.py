"""Verifying a table and scanning all of it are measured on all of its files; how long they take is not for tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from layoutopt.bench.verifying import scan_everything, verify_ratio
from layoutopt.errors import TableError
from tests.scan.builder import build, building
from tests.scan.layouts import OVERLAPPING
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows


def test_every_value_of_every_file_is_scanned(tmp_path: Path) -> None:
    table = build(tmp_path, some_rows(50), building(SCHEMA, CONDITIONS, layouts=OVERLAPPING))
    blocks = table.sources[0].blocks
    stored = sum(int(blocks.rows[blocks.has_column(name)].sum()) for name in SCHEMA.names)
    assert scan_everything(tmp_path) == stored + 2 * int(blocks.rows.sum())  # _block and _tid
    assert verify_ratio(tmp_path) > 0


def test_what_a_damaged_table_costs_is_not_measured(tmp_path: Path) -> None:
    table = build(tmp_path, some_rows(50), building(SCHEMA, CONDITIONS))
    Path(table.files()[0]).unlink()
    with pytest.raises(TableError, match="missing"):
        verify_ratio(tmp_path)
