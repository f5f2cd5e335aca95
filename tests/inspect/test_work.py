"""The work of a query, counted on the catalog: what its files' row groups say when they are counted one by one."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from layoutopt.inspect.cost import QueryWork, count_work
from layoutopt.model.layout import Layout
from layoutopt.scan.table import Table
from tests.scan.builder import build, building, by_position
from tests.scan.layouts import GROUPS, OVERLAPPING
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

SQL = [
    "SELECT id, price FROM t WHERE kind = 'air' AND price > 60",
    "SELECT * FROM t WHERE id < 100",
    "SELECT count(*) FROM t",
    "SELECT id FROM t WHERE id > 10000000",
    "SELECT sum(id) FROM t",
]


def counted(table: Table, sql: str) -> QueryWork:
    """The work by reading footers."""
    work = QueryWork()
    for read in table.scan(sql).reads:
        for segment in read.segments if read.columns else ():
            joined = len(segment.layouts) > 1
            for layout in segment.layouts:
                for file in layout.files:
                    metadata = pq.read_metadata(table.catalog.files.full_path(file.path))
                    names = {*layout.columns, *(["_tid"] if joined else [])}
                    groups = [metadata.row_group(i) for i in file.row_groups]
                    chunks = [g.column(i) for g in groups for i in range(g.num_columns)]
                    sizes = [chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema in names]
                    rows = sum(group.num_rows for group in groups)
                    stored = len([n for n in metadata.schema.names if n not in ("_block", "_tid")])
                    work += QueryWork(1, metadata.num_row_groups * stored, sum(sizes), rows * len(names))
    return work


@pytest.mark.parametrize("layouts", [None, GROUPS, OVERLAPPING], ids=["sop", "gsop", "gsop-r"])
def test_work_is_that_of_the_row_groups_read(layouts: list[Layout] | None, tmp_path: Path) -> None:
    made = building(SCHEMA, CONDITIONS, layouts=layouts, partition_by="year", blocking=by_position(10))
    table = build(tmp_path, some_rows(300), made)
    for sql in SQL:
        (read,) = table.scan(sql).reads
        assert count_work(read.pruned) == counted(table, sql), sql
