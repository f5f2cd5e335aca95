"""verify finds what was changed behind the catalog's back, and nothing where nothing was."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.errors import SettingError
from layoutopt.inspect.verify import FileVerdict, check_files, verify
from layoutopt.model.layout import Layout
from layoutopt.scan.table import Table
from tests.scan import builder
from tests.scan.builder import Piece, build, building
from tests.scan.layouts import GROUPS, OVERLAPPING
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows


@pytest.fixture
def rows() -> pa.Table:
    return some_rows(120)


@pytest.fixture
def table(tmp_path: Path, rows: pa.Table) -> Table:
    return build(tmp_path, rows, building(SCHEMA, CONDITIONS, partition_by="year"))


def rewrite(path: Path, content: pa.Table) -> None:
    """Writes a changed content with the row groups as they were."""
    metadata = pq.read_metadata(path)
    sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    with pq.ParquetWriter(path, content.schema) as writer:
        for start, size in zip(np.cumsum([0, *sizes[:-1]]).tolist(), sizes, strict=True):
            writer.write_table(content.slice(start, size))


def checks(table: Table) -> set[str]:
    return {problem.check for problem in verify(table).problems}


def with_column(content: pa.Table, name: str, values: pa.ChunkedArray | pa.Array) -> pa.Table:
    return content.set_column(content.schema.get_field_index(name), name, values)


def test_an_untouched_table_is_as_it_should_be(table: Table) -> None:
    report = verify(table)
    assert report.ok, report.problems
    assert (report.files, report.rows, report.unchecked) == (3, 120, ())
    assert json.loads(json.dumps(report.to_json()))["ok"] is True


@pytest.mark.parametrize("layouts", [GROUPS, OVERLAPPING], ids=["gsop", "gsop-r"])
def test_several_layouts_are_verified(layouts: list[Layout], tmp_path: Path, rows: pa.Table) -> None:
    assert verify(build(tmp_path, rows, building(SCHEMA, CONDITIONS, layouts=layouts, segment_rows=50))).problems == ()


@pytest.mark.parametrize("layouts", [None, OVERLAPPING], ids=["sop", "gsop-r"])
def test_a_partition_is_checked_alone_as_among_others(
    layouts: list[Layout] | None, tmp_path: Path, rows: pa.Table
) -> None:
    """What a task of many does: it opens its own partitions and no others."""
    table = build(tmp_path, rows, building(SCHEMA, CONDITIONS, layouts=layouts, partition_by="year"))
    path = Path(table.files()[0])
    rewrite(path, pq.read_table(path).drop_columns(["score"]))
    paths = [path for source in table.sources for path in source.blocks.files]
    whole = list(check_files(table, paths))
    assert any(verdict.findings for verdict in whole)
    alone: list[FileVerdict] = []
    for entry in table.catalog.partitions:
        part = Table(Catalog.of_snapshot(TableFiles(str(tmp_path)), table.catalog.snapshot.select({entry.key})))
        alone += check_files(part, [path for source in part.sources for path in source.blocks.files], workers=1)
    assert sorted(alone, key=lambda verdict: verdict.path) == sorted(whole, key=lambda verdict: verdict.path)


def test_a_changed_value_is_found(table: Table) -> None:
    path = Path(table.files()[0])
    content = pq.read_table(path)
    rewrite(path, with_column(content, "kind", pc.replace_substring(content["kind"], "mail", "mall")))
    assert "checksum" in checks(table)


def test_rows_of_a_feature_whose_bit_is_0_are_found(table: Table) -> None:
    path = Path(table.files()[0])
    content = pq.read_table(path)
    rewrite(path, with_column(content, "price", pa.array([Decimal(99)] * content.num_rows, pa.decimal128(15, 2))))
    assert {"union-vector", "statistics", "checksum"} <= checks(table)


def test_swapped_blocks_are_found(table: Table) -> None:
    path = Path(table.files()[0])
    content = pq.read_table(path)
    rewrite(path, with_column(content, "_block", pa.array(list(reversed(content["_block"].to_pylist())))))
    assert checks(table) == {"block-column"}


@pytest.mark.parametrize("layouts", [GROUPS, OVERLAPPING], ids=["gsop", "gsop-r"])
def test_two_swapped_tids_are_found(layouts: list[Layout], tmp_path: Path, rows: pa.Table) -> None:
    table = build(tmp_path, rows, building(SCHEMA, CONDITIONS, layouts=layouts, segment_rows=50))
    path = Path(table.files(layout=0)[0])
    content = pq.read_table(path)
    tids = content["_tid"].to_pylist()
    tids[0], tids[-1] = tids[-1], tids[0]
    rewrite(path, with_column(content, "_tid", pa.array(tids, content["_tid"].type)))
    report = verify(table)
    # Nothing else can tell: the values, and the set of tids, are what they were.
    assert {problem.check for problem in report.problems} == {"tid-checksum"}
    assert {str(tmp_path / problem.file) for problem in report.problems} == {str(path)}
    assert any("'id'" in problem.message for problem in report.problems)


def without_rest(pieces: list[Piece]) -> list[Piece]:
    return [piece for piece in pieces if piece.part == 0]


def less_a_row(pieces: list[Piece]) -> list[Piece]:
    return [piece if piece.part == 0 else replace(piece, chosen=piece.chosen[1:]) for piece in pieces]


def a_local_row_twice(pieces: list[Piece]) -> list[Piece]:
    """In the place of a row of the rest, which is lost: the number of rows is right, and sums are of what is there."""
    local = next(piece.chosen for piece in pieces if piece.layout == 1 and piece.part == 0)
    return [
        piece if piece.part == 0 else replace(piece, chosen=np.sort(np.r_[piece.chosen[1:], local[:1]]))
        for piece in pieces
    ]


@pytest.mark.parametrize("loss", [without_rest, less_a_row, a_local_row_twice])
def test_a_cell_that_is_not_in_its_master_layout_is_found(
    loss: Callable[[list[Piece]], list[Piece]], tmp_path: Path, rows: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = builder._pieces
    monkeypatch.setattr(builder, "_pieces", lambda plan, bits: loss(pieces(plan, bits)))
    # A load refuses to commit such a table; this one never compared with its source.
    table = build(tmp_path, rows, building(SCHEMA, CONDITIONS, layouts=OVERLAPPING, segment_rows=50))
    found = verify(table).problems
    assert {problem.check for problem in found} == ({"master", "rest"} if loss is a_local_row_twice else {"master"})
    # Each of the segments is found by the tids read, whatever the catalog says.
    lacking = [problem for problem in found if problem.check == "master" and problem.file.startswith("data/")]
    assert len(lacking) == 3
    assert all("layout 1" in problem.message for problem in lacking)


def test_another_number_of_rows_is_found(table: Table) -> None:
    path = Path(table.files()[0])
    pq.write_table(pq.read_table(path), path)
    assert checks(table) == {"row-groups"}


def test_a_lost_column_is_found(table: Table) -> None:
    path = Path(table.files()[0])
    rewrite(path, pq.read_table(path).drop_columns(["score"]))
    assert checks(table) == {"column"}


def test_missing_and_cut_files_are_found(table: Table) -> None:
    gone, cut = (Path(path) for path in table.files()[:2])
    gone.unlink()
    cut.write_bytes(cut.read_bytes()[:-30])
    problems = verify(table).problems
    assert [problem.check for problem in problems] == ["file", "file"]
    assert {Path(problem.file).name for problem in problems} == {gone.name, cut.name}


def test_wrong_union_vectors_are_found(tmp_path: Path, rows: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "pack", lambda bits: np.zeros((len(bits), 1), dtype=np.uint64))
    table = build(tmp_path, rows, building(SCHEMA, CONDITIONS))
    assert checks(table) == {"union-vector"}


def test_features_that_only_spark_can_evaluate_are_named(tmp_path: Path, rows: pa.Table) -> None:
    plain = building(SCHEMA, ["kind = 'air'"])
    called = replace(plain, plan=building(SCHEMA, ["month(day) = 3"]).plan, conditions=("month(day) = 3",))
    report = verify(build(tmp_path, rows, called))
    assert report.ok
    assert len(report.unchecked) == 1
    assert "Spark" in report.unchecked[0]


def test_a_sample_reads_some_files(table: Table) -> None:
    report = verify(table, sample=0.3, seed=5)
    assert report.files == 1
    assert "30%" in report.unchecked[0]
    assert verify(table, sample=0.3, seed=5) == report
    with pytest.raises(SettingError, match=r"1\.5"):
        verify(table, sample=1.5)
