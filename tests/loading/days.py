"""A source of several days, of which a test loads some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from layoutopt.catalog.history import history
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.cli.app import main
from layoutopt.loading.load import LoadsReport, run_load
from layoutopt.loading.local_source import open_door
from layoutopt.model.requests import LoadRequest
from layoutopt.scan.table import open_table
from tests.scan.builder import building
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

DAYS = ("2026-11-18", "2026-11-19", "2026-11-20", "2026-11-22")


class Days:
    """A source with a folder for each of some days, a plan for it, and a table."""

    def __init__(self, root: Path) -> None:
        self.root, self.table, self.source = root, str(root / "table"), root / "source"
        self.source.mkdir()
        (root / "plan.json").write_bytes(building(SCHEMA, CONDITIONS, partition_by="day").plan.dumps())
        for number, day in enumerate(DAYS):
            self.write_day(day, 20 + number)

    def write_day(self, day: str, rows: int) -> Path:
        folder = self.source / f"day={day}"
        folder.mkdir(exist_ok=True)
        pq.write_table(some_rows(rows).drop_columns(["day"]), folder / "a.parquet")
        return folder / "a.parquet"

    def load(self, **given: Any) -> LoadsReport:
        values: dict[str, Any] = {"source": str(self.source), "table_path": self.table, "plan": self.root / "plan.json"}
        return run_load(open_door, LoadRequest(**(values | given)))

    def run(self, *words: str) -> int:
        flags = ["--plan", str(self.root / "plan.json"), "--executor", "local"]
        return main(["load", str(self.source), self.table, *flags, *words])

    @property
    def loaded(self) -> dict[str, int]:
        return {entry.key: entry.rows for entry in open_table(self.table).catalog.partitions}

    @property
    def commits(self) -> list[tuple[str, ...] | None]:
        return [entry.changed for entry in history(TableFiles(self.table))]
