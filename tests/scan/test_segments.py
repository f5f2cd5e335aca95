"""Of files with many chunks few are read by the catalog's word for where they are; the answers are the same."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.storage import footers
from layoutopt.catalog.storage.footers import ChunkSizes
from layoutopt.errors import DataFileError
from layoutopt.model.arrays import Ints
from layoutopt.scan import check_switch, files, segments
from layoutopt.scan.segments import FileRead
from layoutopt.scan.table import Table, open_table
from layoutopt.scan.table_read import TableRead
from tests.effort import examples, one_in
from tests.scan.builder import Building, build
from tests.scan.deleting import delete_ids, kept
from tests.scan.generated import buildings, conditions
from tests.scan.queries import QUERIES
from tests.scan.tables import expected, same, some_rows

SQL = "SELECT id, price FROM t WHERE kind = 'air' AND price > 20"


@contextmanager
def forced() -> Iterator[None]:
    """Every file has many chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "_MANY_CHUNKS", 0)
        patch.setattr(segments, "_MANY_ROW_GROUPS", 0)
        patch.setattr(segments, "_FEW", 0)
        yield


@pytest.fixture(autouse=True)
def every_file_has_many_chunks() -> Iterator[None]:
    with forced():
        yield


def files_of(read: TableRead) -> Iterator[FileRead]:
    return (file for segment in read.segments for layout in segment.layouts for file in layout.files)


@pytest.fixture
def undecoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file's own footer can be decoded."""

    def decode(*_: object) -> None:
        pytest.fail("a footer was decoded whole")

    monkeypatch.setattr(files, "metadata_of", decode)
    monkeypatch.setattr(footers.DecodedFooters, "put", decode)
    monkeypatch.setattr(check_switch, "is_on", lambda: False)  # which reads all blocks, by their whole footers


@pytest.mark.usefixtures("undecoded")
@pytest.mark.parametrize("sql", one_in(2, [sql for sql in QUERIES if sql != "SELECT count(*) FROM t"]))
def test_answers_are_right_and_no_footer_is_decoded(table: Table, sql: str) -> None:
    for _ in range(2):
        assert same(table.sql(sql).to_pylist(), expected(sql, some_rows()))


@pytest.mark.usefixtures("undecoded")
def test_deleted_rows_stay_deleted(table: Table) -> None:
    gone = set(range(0, 300, 7))
    changed = delete_ids(table.catalog.files.root, gone)
    assert same(changed.sql(SQL).to_pylist(), expected(SQL, kept(some_rows(), gone)))


@pytest.mark.long
@settings(max_examples=examples(40))
@given(buildings(), conditions, st.integers(0, 3), st.sampled_from(["id", "id, price, kind", "score, seen, day", "*"]))
def test_whatever_the_layouts_the_same_rows_are_read(plan: Building, condition: str, seed: int, what: str) -> None:
    rows = some_rows(60, seed)
    sql = f"SELECT {what} FROM t WHERE {condition}"
    with tempfile.TemporaryDirectory() as folder:
        table = build(Path(folder), rows, replace(plan, footers=True))
        with forced():
            told = [file.chunks is not None for read in table.scan(sql).reads for file in files_of(read)]
            assert any(told) or not told or plan.key is not None
            assert same(table.sql(sql).to_pylist(), expected(sql, rows))


def test_a_file_that_was_changed_is_not_read(table: Table) -> None:
    (first, *_) = (file for read in table.scan(SQL).reads for file in files_of(read))
    path = Path(table.catalog.files.root) / first.path
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataFileError, match="footer"):
        open_table(table.catalog.files.root).sql(SQL)
    path.unlink()
    with pytest.raises(DataFileError, match="missing"):
        open_table(table.catalog.files.root).sql(SQL)


def test_a_file_that_is_gone_is_missing_also_once_it_was_read(table: Table) -> None:
    table.sql(SQL)
    for file in (file for read in table.scan(SQL).reads for file in files_of(read)):
        (Path(table.catalog.files.root) / file.path).unlink(missing_ok=True)
    with pytest.raises(DataFileError, match="missing"):
        table.sql(SQL)


def test_a_page_that_was_damaged_is_not_read(table: Table) -> None:
    (first, *_) = (file for read in table.scan(SQL).reads for file in files_of(read))
    path = Path(table.catalog.files.root) / first.path
    chunk = pq.read_metadata(path).row_group(first.row_groups[0]).column(0)
    content = bytearray(path.read_bytes())
    content[(chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size - 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataFileError, match="damaged"):
        open_table(table.catalog.files.root).sql("SELECT * FROM t")


def test_a_catalog_that_says_other_places_gives_no_rows(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only pages that begin where they are said to have the checksums and the rows that are asked for."""
    right = BlockTable.chunk_sizes

    def shifted(blocks: BlockTable, chosen: Ints) -> ChunkSizes:
        found = right(blocks, chosen)
        return replace(found, starts=found.starts + 1)

    monkeypatch.setattr(BlockTable, "chunk_sizes", shifted)
    with pytest.raises(DataFileError):
        open_table(table.catalog.files.root).sql(SQL)


@pytest.mark.parametrize(
    ("many", "groups", "few", "known"),
    [(0, 0, 0, True), (10**6, 0, 0, False), (0, 10**6, 0, False), (0, 0, 10**6, False)],
)
def test_only_few_chunks_of_many_are_told_one_by_one(
    table: Table, monkeypatch: pytest.MonkeyPatch, many: int, groups: int, few: int, known: bool
) -> None:
    monkeypatch.setattr(segments, "_MANY_CHUNKS", many)
    monkeypatch.setattr(segments, "_MANY_ROW_GROUPS", groups)
    monkeypatch.setattr(segments, "_FEW", few)
    reads = [file for read in table.scan(SQL).reads for file in files_of(read)]
    assert {file.chunks is not None for file in reads} == {known}


def test_some_row_groups_keep_their_places(table: Table) -> None:
    (file, *_) = (file for read in table.scan("SELECT * FROM t").reads for file in files_of(read) if len(file.rows) > 2)
    some = file.only([0, 2])
    assert file.chunks is not None
    assert some.chunks is not None
    assert some.chunks.starts.tolist() == file.chunks.starts[[0, 2]].tolist()
    assert some.chunks.sizes.tolist() == file.chunks.sizes[[0, 2]].tolist()
