"""Replaying a log on the catalog gives one JSON object, with numbers that a careful reader can check by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.errors import DataFileError
from layoutopt.inspect.audit import audit
from layoutopt.inspect.evaluate import GreedyPaths, PathCosts, evaluate, greedy_paths
from layoutopt.model.query import Query
from layoutopt.model.schema import Column, Schema
from layoutopt.scan.table import Table
from layoutopt.sql.scans import find_scans
from tests.inspect.replayed import LOG, query
from tests.scan.builder import build, building
from tests.scan.layouts import GROUPS, OVERLAPPING
from tests.scan.tables import CONDITIONS, SCHEMA, expected, some_rows

FIELDS = {
    "id", "columns", "rows_total", "rows_scanned", "cells_scanned", "tids_scanned", "bytes_scanned", "blocks_total",
    "blocks_scanned", "rows_scanned_by_statistics", "footer_bytes", "skipped_by", "layouts", "subsumed_by",
    "indicators", "filtered", "full_scan",
}  # fmt: skip


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return some_rows()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory, rows: pa.Table) -> Table:
    return build(tmp_path_factory.mktemp("sop"), rows, building(SCHEMA, CONDITIONS, partition_by="year"))


def test_the_object_has_exactly_these_fields(table: Table) -> None:
    found = evaluate(table, LOG).to_json()
    assert set(found) == {"table", "snapshot", "queries", "totals"}
    assert all(set(one) == FIELDS for one in found["queries"])
    assert set(found["totals"]) == (FIELDS | {"queries", "greedy_paths"}) - {
        "id",
        "columns",
        "filtered",
        "full_scan",
        "layouts",
        "subsumed_by",
    }
    counted = evaluate(table, LOG, actual=True).to_json()
    assert all("rows_matching" in one for one in [*counted["queries"], counted["totals"]])
    assert "rows_matching" not in evaluate(table, [], actual=True).to_json()["totals"]
    assert json.loads(json.dumps(found)) == found
    assert [one["id"] for one in found["queries"]] == [0, 1, 4, 5]


def test_numbers_add_up(table: Table) -> None:
    for one in evaluate(table, LOG).queries:
        skipped = sum(amount.rows for amount in one.skipped_by.values())
        assert one.rows_scanned + skipped == one.rows_total == 300
        blocks = sum(amount.blocks for amount in one.skipped_by.values())
        assert one.blocks_scanned + blocks == one.blocks_total
        assert one.cells_scanned == one.rows_scanned * len(one.columns)
        assert one.tids_scanned == 0


def test_skipping_is_counted_by_mechanism(table: Table, rows: pa.Table) -> None:
    first, count, *_ = evaluate(table, LOG).queries
    assert first.columns == ("id", "kind", "price", "year")
    assert first.skipped_by["partition"].rows == 200
    assert first.rows_scanned == len(expected("SELECT id FROM t WHERE kind IN ('air', 'rail') AND year = 1995", rows))
    assert first.rows_scanned_by_statistics > first.rows_scanned
    assert len(first.subsumed_by) == 1
    assert (count.rows_scanned, count.cells_scanned, count.bytes_scanned) == (300, 0, 0)
    assert count.footer_bytes == 0


def test_bytes_and_footers_are_those_of_the_files(table: Table) -> None:
    (one,) = evaluate(table, [query(0, "SELECT id FROM t")]).queries
    metadata = [pq.read_metadata(path) for path in table.files()]
    assert one.footer_bytes == sum(each.serialized_size + 8 for each in metadata)
    chunks = [each.row_group(group).column(0) for each in metadata for group in range(each.num_row_groups)]
    assert one.bytes_scanned == sum(chunk.total_compressed_size for chunk in chunks)


def test_actual_counts_matching_rows(table: Table, rows: pa.Table) -> None:
    found = evaluate(table, LOG, actual=True)
    counts = [one.rows_matching for one in found.queries]
    assert counts[:3] == [len(expected(one.sql.replace("count(*)", "id"), rows)) for one in LOG[:3]]
    assert counts[3] is None
    assert found.totals.rows_matching is None
    assert all((one.rows_matching or 0) <= one.rows_scanned for one in found.queries)


def test_totals_are_sums(table: Table) -> None:
    found = evaluate(table, LOG)
    for name in ("rows_total", "rows_scanned", "cells_scanned", "bytes_scanned", "blocks_scanned", "footer_bytes"):
        assert getattr(found.totals, name) == sum(getattr(one, name) for one in found.queries)
    assert found.totals.queries == 4
    assert found.totals.skipped_by["partition"].rows == 200


def test_several_layouts_count_cells_and_tids(tmp_path: Path, rows: pa.Table) -> None:
    table = build(tmp_path, rows, building(SCHEMA, CONDITIONS, layouts=GROUPS))
    (one,) = evaluate(table, [query(0, "SELECT id, price FROM t WHERE kind = 'air' AND price > 60")]).queries
    (plan,) = table.scan("SELECT id, price FROM t WHERE kind = 'air' AND price > 60").reads[0].pruned
    by_layout = plan.rows_by_layout(plan.read)
    assert one.rows_scanned == max(by_layout.values())
    assert one.cells_scanned == 2 * by_layout[0] + by_layout[1]
    assert one.tids_scanned == sum(by_layout.values())
    assert one.layouts[0].columns == {"0": ["id", "kind"], "1": ["price"]}


def test_progress_is_told(table: Table) -> None:
    told: list[tuple[int, int]] = []
    evaluate(table, LOG, progress=lambda done, all_: told.append((done, all_)))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_missing_file_is_named(tmp_path: Path, rows: pa.Table) -> None:
    table = build(tmp_path, rows, building(SCHEMA, CONDITIONS))
    path = Path(table.files()[0])
    path.unlink()
    with pytest.raises(DataFileError, match=path.name):
        evaluate(table, LOG)


def test_the_greedy_path_is_compared_with_all_others(tmp_path: Path, rows: pa.Table) -> None:
    table = build(tmp_path, rows, building(SCHEMA, CONDITIONS, layouts=OVERLAPPING))
    found = evaluate(table, [query(0, "SELECT id, price FROM t WHERE kind = 'air'"), *LOG[2:]])
    (paths,) = (layout.paths for layout in found.queries[0].layouts)
    # id is in both layouts for these rows, price in one: two paths, of which one reads a single layout.
    assert (paths.compared, paths.exhaustive) == (2, True)
    assert paths.cells_and_tids <= paths.greedy <= 2 * paths.cells_and_tids
    only = found.queries[1].layouts[0].paths
    assert (only.compared, only.greedy) == (1, only.cells_and_tids)
    assert found.totals.greedy_paths == GreedyPaths(queries=1, cheapest=1, worst_ratio=1.0)


def test_a_worse_greedy_path_is_told() -> None:
    def path(greedy: int, compared: int = 2, exhaustive: bool = True) -> list[PathCosts]:
        return [PathCosts(compared, exhaustive, cells_and_tids=20, greedy=greedy)]

    found = greedy_paths([path(20), path(25), path(20, compared=1), path(90, exhaustive=False)])
    assert found == GreedyPaths(queries=2, cheapest=1, worst_ratio=1.25)


def test_a_condition_that_overflows_in_duckdb_alone_has_no_actual_rows(tmp_path: Path) -> None:
    schema = Schema((Column("id", "bigint"), Column("n", "decimal(18,0)")))
    rows = pa.table({"id": range(20), "n": pa.array([999_999_999_999_999_999] * 20, pa.decimal128(18))})
    table = build(tmp_path, rows, building(schema, ["id < 5"]))
    texts = [f"SELECT id FROM t WHERE {condition}" for condition in ("id < 3", "n * 2 > 5", "id < 7")]
    scans = [find_scans(text, {"t": schema})[0] for text in texts]
    queries = [
        Query(i, "t", scan.columns, scan.filter, sql=text, exact=scan.exact)
        for i, (text, scan) in enumerate(zip(texts, scans, strict=True))
    ]
    assert [one.rows_matching for one in evaluate(table, queries, actual=True).queries] == [3, None, 7]
    report = audit(table, queries)
    assert (report.by_text, [number for number, _ in report.unaudited], report.losses) == (2, [1], ())
