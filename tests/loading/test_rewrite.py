"""Layouts written alone, without Spark: answers stay, files of other layouts stay, and moved values are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.catalog.table import Catalog
from layoutopt.errors import ContentMismatchError
from layoutopt.events import Stages
from layoutopt.inspect.verify import verify
from layoutopt.loading import partition_rows
from layoutopt.loading.load import run_load
from layoutopt.loading.local_source import open_door
from layoutopt.loading.partition_rows import open_segments
from layoutopt.loading.rewrite import PartialRewrite, rewrite_layouts
from layoutopt.maintenance.partial_rewrite import mix_plans
from layoutopt.model.layout import Layout, Plan
from layoutopt.model.requests import LoadRequest
from layoutopt.scan.table import Table, open_own_table, open_table
from layoutopt.scan.table_read import TableRead
from layoutopt.sources.executor import Processes
from layoutopt.sources.segments import Segment
from layoutopt.sources.source import Source
from layoutopt.writer.task_result import LoadReport
from tests.scan.builder import building
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

LEFT, RIGHT = ("id", "day", "kind"), ("price", "score", "seen", "year")
OLD: Plan = building(SCHEMA, CONDITIONS[:2], layouts=[Layout(LEFT, (0,), LEFT), Layout(RIGHT, (1,), RIGHT)]).plan


def fresh(columns: tuple[str, ...]) -> Plan:
    """A plan of a layout of some columns, by a feature by keys and one by LIKE, and one of the others."""
    rest = tuple(name for name in SCHEMA.names if name not in columns)
    return building(SCHEMA, CONDITIONS[2:4], layouts=[Layout(columns, (0, 1), columns), Layout(rest, (), rest)]).plan


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A table of two layouts and several segments."""
    pq.write_table(some_rows(2_500), tmp_path / "rows.parquet", row_group_size=400)
    request = LoadRequest(source=str(tmp_path / "rows.parquet"), table_path=str(tmp_path / "t"), plan=OLD)
    run_load(open_door, request)
    return request.table_path


def rewrite(path: str, columns: tuple[str, ...], kept: tuple[int, ...]) -> LoadReport:
    def open_rows(table: Table, plan: Plan, read: TableRead) -> tuple[Source, tuple[Segment, ...]]:
        return open_segments(table, plan, read, Processes(1))

    table = open_own_table(path)
    (entry,) = table.catalog.partitions
    work = PartialRewrite(entry, mix_plans(OLD, fresh(columns), kept, (0,)), kept)
    return rewrite_layouts(table, work, open_rows, Stages())


@pytest.mark.parametrize("kept", [(0, 1), (1,)], ids=["beside both", "in place of one"])
def test_the_rows_stay_and_files_of_kept_layouts_too(path: str, kept: tuple[int, ...]) -> None:
    before = {file for _, table in Catalog.open(path).block_tables() for file in table.files}
    report = rewrite(path, ("id", "day", "kind", "score"), kept)
    assert (report.rows, report.segments) == (2_500, 3)
    table = open_table(path)
    now = {file for _, blocks in table.catalog.block_tables() for file in blocks.files}
    assert len(before & now) * 2 == len(before) * len(kept)
    assert len(now - before) == report.files
    assert verify(table).ok
    rows = table.sql("SELECT * FROM t ORDER BY id").to_pylist()
    assert repr(rows) == repr(some_rows(2_500).sort_by("id").to_pylist())  # NaN differs from itself


def test_values_of_other_rows_are_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def swap_rows(*arguments: Any) -> pa.Table:
        rows = read(*arguments)
        return rows.take(pa.array(np.roll(np.arange(rows.num_rows), 1)))

    read = partition_rows._read_by_tid
    monkeypatch.setattr(partition_rows, "_read_by_tid", swap_rows)
    files = set(Path(path, "data").rglob("*.parquet"))
    with pytest.raises(ContentMismatchError, match="at other row positions"):
        rewrite(path, ("id", "day", "kind", "score"), (0, 1))
    assert Catalog.open(path).snapshot.number == 0
    assert set(Path(path, "data").rglob("*.parquet")) == files
