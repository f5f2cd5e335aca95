"""`layoutopt bench files`: its words lose no row, and what it counts is what readers read."""

from __future__ import annotations

import io
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from layoutopt.bench.files.asked import iceberg_filter
from layoutopt.bench.files.experiment import (
    DUCKDB,
    ICEBERG,
    OUR_FILES,
    OURS,
    OURS_ASKED,
    SERVED,
    by_ourselves,
    run_files,
)
from layoutopt.bench.files.many import multiply, planning_seconds
from layoutopt.bench.files.reading import (
    Reading,
    arrow_filter,
    by_delta,
    by_duckdb,
    by_iceberg,
    data_file,
    served_table,
    static_table,
    summed,
)
from layoutopt.bench.files.report import files_report, share_of_rows
from layoutopt.errors import SettingError
from layoutopt.model.query import Query
from layoutopt.publish.publishing import publication, publish
from layoutopt.scan.table import Table, open_table
from layoutopt.sql.scans import scans_of
from layoutopt.workload.served import said
from tests.scan.builder import build, building
from tests.scan.destroyed import destroy
from tests.scan.tables import CONDITIONS, SCHEMA, expected, some_rows

SAID = (
    "id BETWEEN 10 AND 20", "kind = 'air'", "kind IN ('air', 'rail') AND price > 50", "price <> 1.5 OR id < 3",
    "day >= DATE '1995-01-01' AND day < DATE '1996-01-01'", "kind LIKE 'a%'", "kind NOT IN ('air', 'mail')",
    "price IS NULL", "kind IS NOT NULL", "(id < 20 AND kind = 'ship') OR (id > 280 AND price < 90)",
    "seen < TIMESTAMP '2020-02-01 00:00:00'", "id > 1000",
)  # fmt: skip
UNSAID = ("kind LIKE '%p'", "id < year AND price > 50", "kind = 'air' OR id < price", "substring(kind, 1, 1) = 'a'")


def query_of(condition: str) -> Query:
    (scan,) = scans_of(f"SELECT id, price FROM t WHERE {condition}", {"t": SCHEMA})
    return Query(0, "t", scan.columns, scan.filter)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A table of three partitions, a file for 15 rows, in which each feature vector is a row group."""
    root = tmp_path_factory.mktemp("files") / "t"
    made = build(root, some_rows(), building(SCHEMA, CONDITIONS, partition_by="year", segment_rows=15))
    for format in ("iceberg", "delta"):
        publish(str(root), publication(str(root), format))
    return made


QUERIES = tuple(query_of(condition) for condition in (*SAID, *UNSAID))


@pytest.mark.parametrize("condition", [*SAID, *UNSAID])
def test_no_row_is_lost_by_iceberg_words(condition: str, table: Table) -> None:
    root = query_of(condition).filter.root
    assert (said(root) == root) == (condition in SAID)
    wanted = {row["id"] for row in expected(f"SELECT id FROM t WHERE {condition}", some_rows())}
    scan = static_table(Path(table.catalog.files.root)).scan(
        row_filter=iceberg_filter(said(root)), selected_fields=("id",)
    )
    found = set(scan.to_arrow()["id"].to_pylist())
    assert found == wanted if condition in SAID else found >= wanted


def test_what_a_server_plans_is_what_our_reader_reads_by_the_same_words(table: Table) -> None:
    root = Path(table.catalog.files.root)
    ours = by_ourselves(table, QUERIES)
    with served_table(root) as served:
        through_serve = by_iceberg(served, QUERIES)
    alone, delta = by_iceberg(static_table(root), QUERIES), by_delta(root, static_table(root).schema(), QUERIES)
    for of_files, of_blocks, asked, planned, by_bounds, of_delta in zip(
        ours[OUR_FILES], ours[OURS], ours[OURS_ASKED], through_serve, alone, delta, strict=True
    ):
        assert of_blocks.rows <= asked.rows
        assert of_blocks.rows <= of_files.rows == of_blocks.file_rows
        # A file is opened for one block; of the others Arrow leaves out what their minima and maxima exclude.
        assert asked.files == planned.files
        assert asked.rows <= planned.rows <= planned.file_rows == asked.file_rows
        assert planned.rows <= by_bounds.rows
        assert of_delta.rows == by_bounds.rows
        if asked.files == 0:
            assert asked.bytes == planned.bytes == 0
    assert summed(through_serve).rows < summed(alone).rows < table.rows * len(QUERIES)
    assert summed(ours[OURS]).rows < summed(ours[OURS_ASKED]).rows


def test_bytes_are_those_of_the_footers(table: Table) -> None:
    (source,) = table.sources
    everything = [query_of("id >= 0")]
    (ours,), (others,) = by_ourselves(table, everything)[OURS], by_iceberg(static_table(_root(table)), everything)
    assert asdict(ours) == asdict(others)
    assert ours.rows == ours.file_rows == table.rows
    assert ours.bytes == sum(int(source.blocks.column_bytes(name).sum()) for name in ("id", "price"))


def test_row_groups_that_count_as_not_read_may_as_well_be_destroyed(tmp_path: Path) -> None:
    made = build(tmp_path / "t", some_rows(), building(SCHEMA, CONDITIONS, partition_by="year"))
    publish(str(tmp_path / "t"), publication(str(tmp_path / "t"), "iceberg"))
    table, root = static_table(_root(made)), query_of("id BETWEEN 10 AND 20 AND price > 50").filter.root
    scan = table.scan(row_filter=iceberg_filter(root), selected_fields=("id",))
    paths = [Path(task.file.file_path.removeprefix("file://")) for task in scan.plan_files()]
    wanted, destroyed = sorted(scan.to_arrow()["id"].to_pylist()), 0
    for path in paths:
        read = data_file(str(path)).groups(arrow_filter(iceberg_filter(root), table.schema()))
        for group in set(range(pq.read_metadata(path).num_row_groups)) - set(read):
            destroy(path, group)
            destroyed += 1
    assert destroyed > 0
    assert sorted(scan.to_arrow()["id"].to_pylist()) == wanted != []


@pytest.mark.long
def test_a_table_under_many_names_is_planned_as_it_is_itself(table: Table, tmp_path: Path) -> None:
    files = len(list((_root(table) / "data").rglob("*.parquet")))
    assert multiply(_root(table), tmp_path / "many", files + 1) == 2 * files
    many = open_table(str(tmp_path / "many"))
    assert many.rows == 2 * table.rows
    found = planning_seconds(tmp_path / "many", QUERIES[:3])
    assert found["files"] == 2 * files
    assert found["planned"] == [2 * read.files for read in by_ourselves(table, QUERIES[:3])[OURS_ASKED]]
    for kind in ("processor", "wall", "http"):
        assert len(found[kind]) == 3
        assert min(found[kind]) > 0


def test_duckdb_says_what_it_read(table: Table) -> None:
    paths = [str(path) for path in sorted((_root(table) / "data").rglob("*.parquet"))]
    groups = sum(pq.read_metadata(path).num_row_groups for path in paths)
    one, everything, none = by_duckdb(
        paths, ["SELECT id FROM t WHERE id = 7", "SELECT id FROM t", "SELECT id FROM t WHERE id > 1000"], "t"
    )
    assert everything["row_groups"] == everything["of"] == one["of"] == groups
    assert 0 <= none["row_groups"] <= one["row_groups"] < groups
    assert one["bytes"] < everything["bytes"]


def test_what_is_printed() -> None:
    rows = {OURS: 10, OURS_ASKED: 12, OUR_FILES: 16, SERVED: 14, ICEBERG: 30, "deltalake": 30}
    readings = {name: [asdict(Reading(1, read, 1_000_000, 40)) for read in (rows[name], 0)] for name in rows}
    of: dict[str, Any] = {
        "files": 3, "rows": 100, "said": [True, False], "templates": ["q3", "q3"], "readings": readings,
        DUCKDB: [{"row_groups": 1, "of": 4, "bytes": 2_000_000}] * 2,
    }  # fmt: skip
    sizes = {"file_bytes": 4_000_000, "files": 3, "alone": 10**6, "written": 10**6, "random": 10**7, "exchanged": 10**6}
    timed = {"files": 10_000, "opening": 0.5, "processor": [0.009, 0.002], "wall": [0.01] * 2, "http": [0.02] * 2}
    assert share_of_rows(of, readings[SERVED], [True, False]) == 0.14
    assert share_of_rows(of, readings[SERVED], [True, True]) == 0.07
    said = io.StringIO()
    Console(width=160, file=said).print(
        files_report({"sop": {**of, "shared": [sizes], "planning": timed}, "zorder": of}, "files")
    )
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in said.getvalue().splitlines()]
    assert ["sop", SERVED, "1.0 of 3", "7.0%", "40.0%", "2.0 MB", "14.0%", "0.0%"] in cells
    assert ["sop", "duckdb, of plain Parquet", "", "25.0% of groups", "", "4.0 MB", "", ""] in cells
    assert (
        "10,000 files, opened in 0.50 s, is planned in 2.0 ms of processor time (at most 2.0; of new columns 9.0)"
        in said.getvalue()
    )
    assert ["q3", "5.0%", "6.0%", "7.0%", "15.0%"] in cells
    assert ["4,000,000", "3", "1.0 MB", "1.0 MB", "10.0 MB", "1.0 MB"] in cells
    assert not any(row[:2] == ["zorder", OURS] for row in cells)


def _root(table: Table) -> Path:
    return Path(table.catalog.files.root)


def test_an_unknown_method_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no method 'nope'"):
        run_files(0.01, root=tmp_path, methods=["sop", "nope"])
    assert not list(tmp_path.iterdir())
