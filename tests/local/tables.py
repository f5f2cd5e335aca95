"""A table that rows are appended to without Spark, and the rows that it has to have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from layoutopt.inspect.verify import verify
from layoutopt.scan.table import open_table
from tests.scan.builder import build, building
from tests.scan.queries import FEW_QUERIES
from tests.scan.tables import CONDITIONS, SCHEMA, expected, same, some_rows


class Table:
    """A table of 200 rows of three years, and the rows that it has to have."""

    def __init__(self, root: Path, layouts: Any, by: str | None) -> None:
        self.root = root
        self.path = str(root / "table")
        self.all_rows = some_rows(1000).sort_by("id")
        self.rows = 200
        made = building(SCHEMA, CONDITIONS, layouts=layouts, partition_by=by)
        build(root / "table", self.all_rows.slice(0, self.rows), made)

    def source(self, count: int) -> str:
        """The next rows, in two files."""
        folder = self.root / f"late-{self.rows}"
        folder.mkdir()
        pq.write_table(self.all_rows.slice(self.rows, count // 2), folder / "a.parquet")
        pq.write_table(self.all_rows.slice(self.rows + count // 2, count - count // 2), folder / "b.parquet")
        return str(folder)

    def check(self) -> None:
        table = open_table(self.path)
        assert table.rows == self.rows
        for sql in FEW_QUERIES:
            assert same(table.sql(sql).to_pylist(), expected(sql, self.all_rows.slice(0, self.rows))), sql
        assert verify(table).ok

    @property
    def files(self) -> set[Path]:
        return {path for path in (self.root / "table").rglob("*") if path.is_file()}
