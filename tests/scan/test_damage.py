"""Whatever happens to a table's files, `verify` names each damaged one, and no query answers from it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from layoutopt.catalog import snapshot as snapshot_json
from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.snapshot import read_snapshot
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.cli.app import main
from layoutopt.cli.console import DONE, FAILED
from layoutopt.errors import CatalogError, DataFileError, TableError
from layoutopt.inspect.status import verify_path
from layoutopt.scan.table import open_table
from tests.catalog import crash

YEARS = (1994, 1995, 1996)

pytestmark = pytest.mark.usefixtures("has_manifests")


@pytest.fixture(scope="module")
def made(has_manifests: bool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three partitions by three loads, so that each has files of its own."""
    root = tmp_path_factory.mktemp("damage") / "table"
    for number, year in enumerate(YEARS):
        crash.Load(f"load-{year}", (year,), number - 1 if number else None)(str(root))
    return root


@pytest.fixture
def table(made: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(made, tmp_path / "table"))


def flip(file: Path, place: int = -30) -> Path:
    data = bytearray(file.read_bytes())
    data[place] ^= 0x04
    file.write_bytes(data)
    return file


def cut(file: Path) -> Path:
    file.write_bytes(file.read_bytes()[:-10])
    return file


def data_file(table: Path, year: int) -> Path:
    (file,) = (table / "data" / str(year)).rglob("*.parquet")
    return file


def found(table: Path) -> set[tuple[str, str]]:
    return {(problem.check, Path(problem.file).name) for problem in verify_path(str(table)).problems}


def test_a_whole_table_has_no_problem(table: Path) -> None:
    report = verify_path(str(table))
    assert report.ok
    assert report.files == len(YEARS)
    assert main(["verify", str(table)]) == DONE


def test_verify_reads_each_blocks_file_once(table: Path) -> None:
    with patch.object(BlockTable, "from_parquet", side_effect=BlockTable.from_parquet) as decode:
        assert verify_path(str(table)).ok
    assert decode.call_count == len(YEARS)


def test_verify_names_every_damaged_file_at_once(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = [
        flip(table / "_layoutopt/snapshots/0.json"),
        cut(table / "_layoutopt/blocks/load-1995_1.parquet"),
        flip(data_file(table, 1994)),
        cut(data_file(table, 1996)),
    ]
    checks = ["catalog", "catalog", "file", "file"]
    assert found(table) == set(zip(checks, [file.name for file in damaged], strict=True))
    assert main(["verify", str(table), "--json"]) == FAILED
    said = capsys.readouterr()
    assert len(json.loads(said.out)["problems"]) == 4
    assert said.err.count("\n") == 1


@pytest.mark.unshadowed("data files are damaged")
@pytest.mark.parametrize("place", range(4))
def test_verify_looks_at_the_bytes_that_no_reader_needs(table: Path, place: int) -> None:
    file = flip(data_file(table, 1995), place)
    assert sum(batch.num_rows for read in open_table(str(table)).scan(columns=["id"]).reads for batch in read.batches())
    assert found(table) == {("file", file.name)}


@pytest.mark.parametrize("damage", [flip, cut, Path.unlink])
def test_a_manifest_that_only_older_snapshots_need_is_named_once(
    table: Path, has_manifests: bool, damage: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    if not has_manifests:
        pytest.skip("entries stand in snapshots")
    files = TableFiles(str(table))
    older = {manifest.path for number in (0, 1) for manifest in read_snapshot(files, number).manifests}
    (name, *_) = older - {manifest.path for manifest in read_snapshot(files, 2).manifests}
    crash.commit(files, read_snapshot(files, 2), "later", [1997])
    damage(table / name)
    assert found(table) == {("catalog", Path(name).name)}
    assert crash.read(str(table))[1997] == "later"
    for verb in ("status", "history"):
        assert main([verb, str(table)]) == FAILED
        assert f"{name} is " in capsys.readouterr().err


def test_a_missing_file_of_each_kind_is_named(table: Path) -> None:
    (plan,) = (table / "_layoutopt/plans").iterdir()
    plan.unlink()
    # Without its plan nobody knows what a partition's blocks mean.
    assert found(table) == {("catalog", plan.name)}


def test_a_damaged_newest_snapshot_is_refused_not_replaced_by_an_older_one(table: Path) -> None:
    newest = flip(table / "_layoutopt/snapshots/2.json")
    for ask in (verify_path, open_table):
        with pytest.raises(CatalogError, match=r"2\.json is damaged"):
            ask(str(table))
    # Older ones can still be read by number, and one of them restored once the damaged one is out of the way.
    assert crash.read(str(table), 1) == {1994: "load-1994", 1995: "load-1995"}
    assert newest.exists()


@pytest.mark.unshadowed("data files are damaged")
@pytest.mark.parametrize("place", [4, -30])
def test_no_query_answers_from_a_flipped_bit(table: Path, place: int) -> None:
    file = flip(data_file(table, 1995), place)
    assert ("file", file.name) in found(table)
    with pytest.raises(DataFileError, match=file.name):
        crash.read(str(table))
    # What is whole can be read.
    (read,) = open_table(str(table)).scan(columns=["id"], where="year = 1994").reads
    assert sum(batch.num_rows for batch in read.batches()) == crash.ROWS


def test_a_snapshot_of_a_newer_format_stops_readers_and_writers(table: Path) -> None:
    file = table / "_layoutopt/snapshots/3.json"
    content = json.loads((table / "_layoutopt/snapshots/2.json").read_bytes())
    file.write_text(json.dumps({**content, "number": 3, "version": 5, "news": "what this program can't know"}))
    base = read_snapshot(TableFiles(str(table)), 2)
    for ask in (
        lambda: crash.read(str(table)),
        lambda: verify_path(str(table)),
        lambda: crash.commit(TableFiles(str(table)), base, "later", [1997]),
    ):
        with pytest.raises(CatalogError, match="version 5, newer than 4; install a newer layoutopt"):
            ask()
    assert not (table / "_layoutopt/snapshots/4.json").exists()


def test_clocks_that_differ_neither_lose_nor_reorder_loads(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A loader whose clock is years ahead commits, then one whose clock is right: the later commit is the newest."""
    files = TableFiles(str(table))
    before = read_snapshot(files, 2)
    ahead = snapshot_json.dumps
    monkeypatch.setattr("layoutopt.catalog.commit.next_time", lambda latest: "2099-01-01T00:00:00.000000+00:00")
    crash.commit(files, before, "ahead", [1994])
    monkeypatch.undo()
    assert snapshot_json.dumps is ahead
    crash.commit(files, read_snapshot(files, 3), "right", [1995])
    assert crash.read(str(table)) == {1994: "ahead", 1995: "right", 1996: "load-1996"}
    times = [read_snapshot(files, number).created_at for number in range(5)]
    assert times == sorted(times)
    assert open_table(str(table), as_of="2099-01-02").catalog.snapshot.number == 4
    assert open_table(str(table), as_of=before.created_at).catalog.snapshot.number == 2
    assert main(["history", str(table)]) == DONE
    assert "2099" in capsys.readouterr().out


def test_a_full_disk_at_any_write_leaves_the_table_and_a_retry_loads(
    table: Path, has_manifests: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ENOSPC at the first, second, ... file that a commit creates."""
    files = TableFiles(str(table))
    before, write, failures = crash.read(str(table)), TableFiles.write_new, 0
    for at in range(1, 10):
        calls = 0

        def full(self: TableFiles, path: str, data: bytes) -> None:
            nonlocal calls
            calls += 1
            if calls == at:  # noqa: B023 - called within this turn of the loop
                raise OSError(28, "No space left on device", path)
            write(self, path, data)

        monkeypatch.setattr(TableFiles, "write_new", full)
        try:
            crash.commit(files, read_snapshot(files, 2), f"full-{at}", [1994])
        except (OSError, TableError):
            failures += 1
            assert crash.read(str(table)) == before
            assert verify_path(str(table)).ok
        finally:
            monkeypatch.undo()
        if calls < at:
            break
    assert failures == 3 + has_manifests  # plan, blocks, manifest, snapshot
    assert crash.read(str(table)) == {**before, 1994: f"full-{failures + 1}"}
