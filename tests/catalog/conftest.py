"""What tests of catalogs begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table_root import ensure_table_root
from tests.catalog.loads import SmallLoad


@pytest.fixture
def empty(tmp_path: Path) -> TableFiles:
    """A claimed folder without a load."""
    files = TableFiles(str(tmp_path / "table"))
    assert ensure_table_root(files) is None
    return files


@pytest.fixture
def files(empty: TableFiles) -> TableFiles:
    """A table with the partitions 1994 and 1995, of one load."""
    SmallLoad("l1", (1994, 1995)).commit(empty, None)
    return empty
