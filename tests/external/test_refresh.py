"""Refreshing indexes: what is measured again, what a crash or somebody else leaves, and what is refused."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table_root import source_of_index
from layoutopt.catalog.vacuum import vacuum
from layoutopt.errors import (
    CatalogError,
    CommitConflictError,
    DataFileError,
    NotATableError,
    SchemaError,
    SettingError,
    SourceError,
    SourceIndexError,
)
from layoutopt.external.refresh import RefreshReport, Trial, refresh
from layoutopt.indexes.choosing import parse_indexes
from layoutopt.inspect.verify import verify
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.schema import Schema
from layoutopt.scan.table import open_own_table, open_table
from tests.external.folders import blocks_read, index, opened, write
from tests.scan.builder import build, building
from tests.scan.stores import REQUESTS, NotingStore, noting_store, put
from tests.scan.tables import SCHEMA, some_rows

__all__ = ["noting_store"]


def numbers(first: int) -> pa.Table:
    return pa.table({"n": pa.array(range(first, first + 40), pa.int64())})


def plain(path: Path, rows: pa.Table) -> None:
    """A file whose size and footer tell nothing of its values."""
    write(path, rows, compression="none", use_dictionary=False, write_statistics=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, first in (("a", 0), ("b", 100)):
        plain(tmp_path / "rows" / f"{name}.parquet", numbers(first))
    return tmp_path / "rows"


def test_another_content_of_the_same_size_and_time_is_seen(folder: Path, tmp_path: Path) -> None:
    index(folder, tmp_path / "indexes", ["n:value-list"])
    file = folder / "a.parquet"
    before, footer = file.stat(), pq.read_metadata(file)
    with file.open("r+b") as rewritten:  # in place, as no writer of Parquet does it
        plain(folder / "c", numbers(1000))
        rewritten.write((folder / "c").read_bytes())
    (folder / "c").unlink()
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = file.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (before.st_size, before.st_mtime_ns, before.st_ino)
    assert pq.read_metadata(file).to_dict() == footer.to_dict()
    assert opened(tmp_path / "indexes").sql("SELECT n FROM t WHERE n = 1003").num_rows == 1
    assert index(folder, tmp_path / "indexes", None).measured == 1
    assert opened(tmp_path / "indexes").sql("SELECT n FROM t WHERE n = 1003").num_rows == 1


def test_a_folder_with_two_names_is_read_twice_and_one_with_itself_in_it_once(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "day=1").mkdir(parents=True)
    plain(source / "day=1" / "a.parquet", numbers(0))
    (source / "day=2").symlink_to("day=1")
    (source / "day=1" / "back=1").symlink_to(source)
    index(source, tmp_path / "indexes", ["n:value-list"])
    table = open_table(str(tmp_path / "indexes"))
    found = table.sql(f"SELECT day, count(*) AS n FROM {table.name} GROUP BY day ORDER BY day").to_pylist()
    assert [row["day"] for row in found] == [1, 2]


def test_a_second_indexing_measures_nothing(folder: Path, tmp_path: Path) -> None:
    first = index(folder, tmp_path / "indexes", ["n:bloom"])
    written = sorted((tmp_path / "indexes").rglob("*"))
    assert (first.measured, first.kept, first.row_groups, first.rows) == (2, 0, 8, 80)
    for again in (index(folder, tmp_path / "indexes", ["n:bloom"]), index(folder, tmp_path / "indexes", None)):
        assert (again.measured, again.kept, again.snapshot, again.bytes) == (0, 2, first.snapshot, 0)
    assert sorted((tmp_path / "indexes").rglob("*")) == written
    assert index(folder, tmp_path / "indexes", ["n:gap-list"]).measured == 2


def test_what_is_kept_is_what_was_measured(folder: Path, tmp_path: Path) -> None:
    index(folder, tmp_path / "indexes", ["n:bloom", "n:value-list"])
    plain(folder / "c.parquet", numbers(200))
    index(folder, tmp_path / "indexes", None)
    index(folder, tmp_path / "anew", ["n:bloom", "n:value-list"])
    kept, anew = (opened(tmp_path / name).sources[0].blocks for name in ("indexes", "anew"))
    for spec in opened(tmp_path / "anew").sources[0].plan.indexes:
        in_order = [
            sorted(zip(blocks.block_index["file"].to_pylist(), blocks.row_group.tolist(),
                       map(str, blocks.stored_index(spec).to_pylist()), strict=True))  # type: ignore[union-attr]
            for blocks in (kept, anew)
        ]  # fmt: skip
        assert in_order[0] == in_order[1]


@pytest.mark.parametrize("point", ["indexes-written", "blocks-written", "before-snapshot", "snapshot-created"])
def test_a_crash_harms_nothing(folder: Path, tmp_path: Path, point: str) -> None:
    into = tmp_path / "indexes"

    def crash(at: str) -> None:
        if at == point:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index(folder, into, ["n:bloom"], at=crash)
    if point != "snapshot-created":
        with pytest.raises(NotATableError, match="never finished"):
            opened(into)
    index(folder, into, ["n:bloom"])
    plain(folder / "c.parquet", numbers(200))
    with pytest.raises(KeyboardInterrupt):
        index(folder, into, None, at=crash)
    assert opened(into).sql("SELECT count(*) AS c FROM t WHERE n >= 0").to_pylist() == [{"c": 120}]
    assert index(folder, into, None).files == 3
    assert blocks_read(opened(into), "SELECT n FROM t WHERE n = 210") == (12, 1)


def test_of_two_refreshes_at_once_one_is_refused(folder: Path, tmp_path: Path) -> None:
    into = tmp_path / "indexes"
    others: list[RefreshReport] = []
    index(folder, into, ["n:bloom"])
    plain(folder / "c.parquet", numbers(200))

    def meanwhile(point: str) -> None:
        if point == "blocks-written" and not others:
            others.append(index(folder, into, None))

    with pytest.raises(CommitConflictError, match="meanwhile"):
        index(folder, into, None, at=meanwhile)
    assert others[0].measured == 1
    assert index(folder, into, None).measured == 0


def test_a_file_that_is_written_meanwhile_is_refused(folder: Path, tmp_path: Path) -> None:
    def meanwhile(done: int, total: int) -> None:
        plain(folder / "a.parquet", numbers(7))

    with pytest.raises(SourceError, match=r"a\.parquet' was written while"):
        index(folder, tmp_path / "indexes", ["n:bloom"], step=meanwhile)
    assert not (tmp_path / "indexes").exists()


def test_damaged_blocks_are_measured_again(folder: Path, tmp_path: Path) -> None:
    index(folder, tmp_path / "indexes", ["n:bloom"])
    (file,) = (tmp_path / "indexes" / "_layoutopt" / "blocks").iterdir()
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(CatalogError, match="damaged"):
        opened(tmp_path / "indexes")
    assert index(folder, tmp_path / "indexes", None).measured == 2
    assert blocks_read(opened(tmp_path / "indexes"), "SELECT n FROM t WHERE n = 7") == (8, 1)


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_damaged_index_proves_nothing_and_is_measured_again(folder: Path, tmp_path: Path, damage: str) -> None:
    index(folder, tmp_path / "indexes", ["n:bloom"])
    (file,) = (tmp_path / "indexes" / "_layoutopt" / "indexes").iterdir()
    file.unlink() if damage == "gone" else file.write_bytes(file.read_bytes()[:-3])
    assert blocks_read(opened(tmp_path / "indexes"), "SELECT n FROM t WHERE n = 7") == (8, 8)
    assert index(folder, tmp_path / "indexes", None).measured == 2
    assert blocks_read(opened(tmp_path / "indexes"), "SELECT n FROM t WHERE n = 7") == (8, 1)


def test_a_file_that_goes_while_it_is_read_is_named(folder: Path, tmp_path: Path) -> None:
    index(folder, tmp_path / "indexes", ["n:bloom"])
    table = opened(tmp_path / "indexes")
    (folder / "a.parquet").unlink()
    with pytest.raises(DataFileError, match=r"rows/a\.parquet'.*run the query again"):
        table.sql("SELECT n FROM t WHERE n = 7")
    assert opened(tmp_path / "indexes").sql("SELECT n FROM t WHERE n = 7").num_rows == 0
    table = opened(tmp_path / "indexes")
    plain(folder / "b.parquet", numbers(50).slice(0, 30))
    with pytest.raises(DataFileError, match=r"rows/b\.parquet'.*run the query again"):
        table.sql("SELECT n FROM t WHERE n = 107")


def test_nothing_is_written_into_the_source(folder: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in [folder, *folder.rglob("*")]}
    index(folder, tmp_path / "indexes", ["n:bloom"])
    assert {path: path.stat().st_mtime_ns for path in [folder, *folder.rglob("*")]} == before
    for into in (folder, folder / "indexes"):
        with pytest.raises(SettingError, match="nothing is written"):
            index(folder, into, ["n:bloom"])


def test_what_is_no_place_for_indexes_is_refused(folder: Path, tmp_path: Path) -> None:
    build(tmp_path / "table", some_rows(20), building(SCHEMA))
    with pytest.raises(NotATableError, match="is a table, not the indexes"):
        index(folder, tmp_path / "table", ["n:bloom"])
    with pytest.raises(NotATableError, match="is a table, not the indexes"):
        source_of_index(str(tmp_path / "table"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    with pytest.raises(NotATableError, match="holds other files"):
        index(folder, tmp_path / "other", ["n:bloom"])
    index(folder, tmp_path / "indexes", ["n:bloom"])
    write(tmp_path / "more" / "a.parquet", numbers(0))
    with pytest.raises(SourceIndexError, match="not of"):
        index(tmp_path / "more", tmp_path / "indexes", ["n:bloom"])
    with pytest.raises(SourceIndexError, match="needs a layoutopt table"):
        open_own_table(str(tmp_path / "indexes"))
    with pytest.raises(SourceIndexError, match="needs a layoutopt table"):
        verify(opened(tmp_path / "indexes"))


def test_a_folder_that_cannot_be_listed_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder / "p=1" / "inside=1" / "c.parquet", numbers(200))
    index(folder / "p=1", tmp_path / "indexes", ["n:bloom"])
    scandir = os.scandir

    def refusing(path: str) -> Any:
        if str(path).endswith("inside=1"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(SourceError, match=r"inside=1' can't be listed"):
        opened(tmp_path / "indexes")


def test_what_is_no_source_is_refused(tmp_path: Path) -> None:
    into = tmp_path / "indexes"
    with pytest.raises(SourceError, match="nothing at"):
        index(tmp_path / "nowhere", into)
    (tmp_path / "rows").mkdir()
    with pytest.raises(SourceError, match=r"has no \.parquet file"):
        index(tmp_path / "rows", into)
    for name in ("notes.txt", "_SUCCESS", ".a.crc"):
        (tmp_path / "rows" / name).touch()
    with pytest.raises(SourceError, match=r"has no \.parquet file"):
        index(tmp_path / "rows", into)
    (tmp_path / "rows" / "000000_0").touch()
    with pytest.raises(SourceError, match="can't tell whether"):
        index(tmp_path / "rows", into)
    (tmp_path / "rows" / "000000_0").unlink()
    (tmp_path / "rows" / "a.parquet").write_bytes(b"no Parquet at all")
    with pytest.raises(SourceError, match=r"a\.parquet' can't be read"):
        index(tmp_path / "rows", into)
    write(tmp_path / "rows" / "a.parquet", pa.table({"n": [1], "N": [2]}))
    with pytest.raises(SourceError, match="the same to Spark"):
        index(tmp_path / "rows", into, [])
    write(tmp_path / "rows" / "a.parquet", numbers(0))
    write(tmp_path / "rows" / "b.parquet", pa.table({"n": ["text"]}))
    with pytest.raises(SchemaError, match=r"'n' is bigint in other files.*string in .*b\.parquet"):
        index(tmp_path / "rows", into, ["n:bloom"])
    (tmp_path / "rows" / "b.parquet").unlink()
    with pytest.raises(SettingError, match="Spark computes"):
        index(tmp_path / "rows", into, ["n % 3:bloom"])
    assert not into.exists()


def test_a_vacuum_removes_what_refreshes_left(folder: Path, tmp_path: Path) -> None:
    into = tmp_path / "indexes"
    index(folder, into, ["n:bloom"])
    for number in range(3):
        plain(folder / f"later-{number}.parquet", numbers(200 + 40 * number))
        index(folder, into, None)
    report = vacuum(TableFiles(str(into)), 1, timedelta(0))
    assert (len(report.snapshots), len(report.files)) == (3, 6)
    assert blocks_read(opened(into), "SELECT n FROM t WHERE n = 210") == (20, 1)
    assert index(folder, into, None).measured == 0
    plain(folder / "more.parquet", numbers(1000))
    assert index(folder, into, None).measured == 1


@pytest.mark.usefixtures("noting_store")
@pytest.mark.unshadowed("it looks at what is read")
def test_a_source_in_an_object_store(folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.move(folder, tmp_path / "days" / "day=2024-01-01")).parent
    write(folder / "day=2024-01-02" / "c.parquet", numbers(200))
    source, into = put(folder, "noting://bucket/rows"), "noting://bucket/indexes"

    def choose(schema: Schema, trial: Trial) -> tuple[IndexSpec, ...]:
        return parse_indexes(["n:bloom"], schema)

    assert refresh(into, source, "t", choose).measured == 3
    table = open_table(into)
    REQUESTS.clear()
    assert table.sql("SELECT n, day FROM t WHERE n = 103").to_pylist() == [{"n": 103, "day": dt.date(2024, 1, 1)}]
    assert {path.rsplit("/", 1)[-1] for path, _, _ in REQUESTS if "/rows/" in path} == {"b.parquet"}
    plain(tmp_path / "later.parquet", numbers(1000))
    NotingStore().pipe_file("/bucket/rows/day=2024-01-01/a.parquet", (tmp_path / "later.parquet").read_bytes())
    assert open_table(into).sql("SELECT n FROM t WHERE n IN (3, 1003)")["n"].to_pylist() == [1003]
    assert refresh(into, source, None, None).measured == 1
    with pytest.raises(SettingError, match="nothing is written"):
        refresh(f"{source}/inside", source, "t", choose)
