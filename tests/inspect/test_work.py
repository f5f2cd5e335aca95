"""The work of a query, counted on the catalog: what its files' row groups say when they are counted one by one."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from layoutopt.inspect.cost import find_costs, scan_work
from layoutopt.inspect.evaluate import evaluate
from layoutopt.model.engine_costs import BUILT_IN, Calibration, QueryWork
from layoutopt.model.layout import Layout
from layoutopt.scan.table import Table
from tests.inspect.logs import logged
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
    work = QueryWork(queries=1)
    for read in table.scan(sql).reads:
        for segment in read.segments if read.columns else ():
            joined = len(segment.layouts) > 1
            for layout in segment.layouts:
                for file in layout.files:
                    metadata = pq.read_metadata(table.catalog.files.full_path(file.path))
                    names = {*layout.columns, *(["_tid"] if joined else [])}
                    groups = [metadata.row_group(i) for i in file.row_groups]
                    chunks = [g.column(i) for g in groups for i in range(g.num_columns)]
                    read_chunks = [chunk for chunk in chunks if chunk.path_in_schema in names]
                    rows = sum(group.num_rows for group in groups)
                    stored = len([n for n in metadata.schema.names if n not in ("_block", "_tid")])
                    work += QueryWork(
                        files=1, footer_chunks=metadata.num_row_groups * stored, row_groups=len(groups),
                        chunks=len(read_chunks), bytes=sum(chunk.total_compressed_size for chunk in read_chunks),
                        rows=0 if joined else rows, values=0 if joined else rows * len(names),
                        joined_rows=rows if joined else 0, joined_values=rows * len(names) if joined else 0,
                    )  # fmt: skip
            work += QueryWork(joined_segments=int(joined))
    return work


@pytest.mark.parametrize("layouts", [None, GROUPS, OVERLAPPING], ids=["sop", "gsop", "gsop-r"])
def test_work_is_that_of_the_row_groups_read(layouts: list[Layout] | None, tmp_path: Path) -> None:
    made = building(SCHEMA, CONDITIONS, layouts=layouts, partition_by="year", blocking=by_position(10))
    table = build(tmp_path, some_rows(300), made)
    for sql in SQL:
        assert scan_work(table.scan(sql)) == counted(table, sql), sql


def test_a_text_that_reads_the_table_twice_is_one_query(tmp_path: Path) -> None:
    table = build(tmp_path, some_rows(60), building(SCHEMA, CONDITIONS))
    twice = scan_work(table.scan("SELECT sum(id) FROM t UNION ALL SELECT sum(id) FROM t"))
    once = scan_work(table.scan("SELECT sum(id) FROM t"))
    assert (twice.queries, twice.files, twice.bytes) == (1, 2 * once.files, 2 * once.bytes)


def test_evaluate_predicts_by_what_is_given_or_built_in(tmp_path: Path) -> None:
    table = build(tmp_path, some_rows(60), building(SCHEMA, CONDITIONS))
    queries = logged(SQL[:2])
    found = evaluate(table, queries)
    assert set(found.totals.predicted_seconds) == set(BUILT_IN.engines)
    own = Calibration({"spark": {"queries": 2.0}})
    assert evaluate(table, queries, calibration=own).totals.predicted_seconds == {"spark": 4.0}
    assert find_costs(table) == BUILT_IN
    assert find_costs(table, own) == own
