"""What a vacuum keeps, what it removes, and that nothing that is committed meanwhile can miss a file."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from layoutopt.catalog import manifest_writing
from layoutopt.catalog import vacuum as vacuums
from layoutopt.catalog.commit import Basis, CommitHook, Load, commit_load, ensure_table_root, partition_entries, restore
from layoutopt.catalog.deletion_vectors import Marks, commit_deletes, pack_positions
from layoutopt.catalog.history import history
from layoutopt.catalog.load_check import Content
from layoutopt.catalog.manifest_writing import MOST_BOUNDS
from layoutopt.catalog.paths import snapshot_path
from layoutopt.catalog.snapshot import Snapshot, dumps, latest_snapshot, read_snapshot, snapshot_numbers
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.index_files import pack_index
from layoutopt.catalog.table import Catalog
from layoutopt.catalog.vacuum import VACUUM_POINTS, vacuum
from layoutopt.errors import CatalogError, CommitConflictError, NotATableError, SettingError, TableError
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import Col
from tests.catalog.crash import MANIFESTS_ALWAYS, ROWS, check_contents, commit, read
from tests.catalog.loads import PLAN, Killed, SmallLoad, kill_at

NOTHING = timedelta(0)
WEEK = timedelta(days=7)


@pytest.fixture
def files(empty: TableFiles) -> TableFiles:
    """Three snapshots: a in 1994 and 1995, then b in 1995, then c in 1995 and 1996."""
    base = None
    for load_id, years in [("a", (1994, 1995)), ("b", (1995,)), ("c", (1995, 1996))]:
        base = commit(empty, base, load_id, years)
    return empty


def age(files: TableFiles, which: Callable[[str], bool], days: float) -> None:
    """Make files look as if they had been written some days ago."""
    then = time.time() - days * 86400
    for file in files.walk(""):
        if which(file.path):
            os.utime(files.full_path(file.path), (then, then))


def data_of(files: TableFiles) -> set[tuple[str, str]]:
    """The partitions and loads that have data files."""
    return {(file.path.split("/")[1], file.path.split("/")[2]) for file in files.walk("data")}


def test_a_full_disk_is_told(files: TableFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = {file.path for file in files.walk("")}
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TableError, match=r"table' is full; free a few kilobytes"):
        vacuum(files, 1, NOTHING)
    with pytest.raises(OSError, match="No space left") as caught:
        files.write_new("_layoutopt/x", b"")
    assert caught.value.filename == files.full_path("_layoutopt/x")
    assert {file.path for file in files.walk("")} == before


def test_what_only_old_snapshots_need_goes(files: TableFiles) -> None:
    report = vacuum(files, 1, NOTHING)
    assert (report.snapshots, report.snapshot, report.young) == ((0, 1), 3, 0)
    assert data_of(files) == {("1994", "a"), ("1995", "c"), ("1996", "c")}
    assert files.list("_layoutopt/blocks") == ("a_0.parquet", "c_2.parquet")
    assert not any(Path(files.full_path(f"data/1995/{load}")).exists() for load in "ab")
    assert read(files.root) == {1994: "a", 1995: "c", 1996: "c"}
    check_contents(files.root)
    assert [(entry.number, entry.operation) for entry in history(files)] == [(2, "reload"), (3, "vacuum")]


def test_the_oldest_snapshot_left_changed_what_it_wrote(files: TableFiles) -> None:
    vacuum(files, 1, NOTHING)
    found = [(entry.operation, entry.changed, entry.changed_rows) for entry in history(files)]
    assert found == [("reload", ("1995", "1996"), 2 * ROWS), ("vacuum", (), 0)]
    assert history(files, last=1) == history(files)[1:]


def test_what_a_restore_changed_is_unknown_without_the_snapshot_before(files: TableFiles) -> None:
    restored = restore(files, 0)
    age(files, lambda path: True, days=30)
    vacuum(files, 1, NOTHING)
    oldest = history(files)[0]
    assert (oldest.number, oldest.operation, oldest.changed, oldest.changed_rows) == (
        restored.number,
        "restore",
        None,
        None,
    )


def test_a_file_that_a_disk_lists_in_another_case_stays(tmp_path: Path) -> None:
    """As a disk does that does not tell `a` from `A`, where both are partitions."""
    files = TableFiles(str(tmp_path / "table"))
    SmallLoad("d", (None,)).commit(files, ensure_table_root(files))
    listed = tmp_path / "table" / "data/__NULL__/d/layout-0/0-a.parquet"
    listed.parent.mkdir(parents=True)
    listed.touch()
    listed.with_name("0-b.parquet").touch()
    assert vacuum(files, 1, NOTHING).files == ("data/__NULL__/d/layout-0/0-b.parquet",)
    assert listed.exists()


def test_a_dry_run_says_the_same_and_removes_nothing(files: TableFiles) -> None:
    before = {file.path for file in files.walk("")}
    foreseen = vacuum(files, 1, NOTHING, dry_run=True)
    assert {file.path for file in files.walk("")} == before
    done = vacuum(files, 1, NOTHING)
    assert (foreseen.files, foreseen.bytes) == (done.files, done.bytes)
    assert len(done.files) == 3
    assert foreseen.snapshots == done.snapshots


def test_kept_snapshots_stay_readable_and_loads_go_by_partition(files: TableFiles) -> None:
    report = vacuum(files, 2, NOTHING)
    assert report.snapshots == (0,)
    # Snapshots 1 and 2 still have a in 1994; only snapshot 0 had a in 1995.
    assert data_of(files) == {("1994", "a"), ("1995", "b"), ("1995", "c"), ("1996", "c")}
    for number, content in {1: {1994: "a", 1995: "b"}, 2: {1994: "a", 1995: "c", 1996: "c"}}.items():
        assert read(files.root, number) == content
        check_contents(files.root, number)


def test_snapshots_that_were_newest_lately_are_kept(files: TableFiles) -> None:
    age(files, lambda path: True, days=30)
    age(files, lambda path: path == snapshot_path(2), days=2)
    # Snapshot 1 was the newest until two days ago, snapshot 0 until thirty days ago.
    assert vacuum(files, 1, WEEK).snapshots == (0,)
    assert vacuum(files, 1, timedelta(days=1)).snapshots == (1,)


def test_snapshots_of_vacuums_are_not_counted(files: TableFiles) -> None:
    vacuum(files, 3, NOTHING)
    orphan(files, "gone")
    assert vacuum(files, 3, NOTHING).snapshots == ()
    assert vacuum(files, 3, NOTHING).snapshots == ()
    assert snapshot_numbers(files) == (0, 1, 2, 3)


def test_clocks_of_machines_do_not_count(files: TableFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    age(files, lambda path: True, days=3)
    monkeypatch.setattr(time, "time", lambda: 4e9)
    assert vacuum(files, 1, WEEK).snapshots == ()


def orphan(files: TableFiles, load_id: str) -> str:
    """A data file of a load that never committed."""
    path = f"data/1995/{load_id}/layout-0/0-x.parquet"
    files.write_new(path, b"rows")
    return path


def test_files_of_loads_that_may_still_run_are_left_alone(files: TableFiles) -> None:
    old, young = orphan(files, "crashed"), orphan(files, "running")
    slow = [orphan(files, "slow"), "data/1996/slow/layout-0/1-x.parquet"]
    files.write_new(slow[1], b"rows")
    age(files, lambda path: path in (old, slow[0]), days=8)
    report = vacuum(files, 10, WEEK)
    assert (report.files, report.young) == ((old,), 3)  # one file of the slow load is new: it still writes
    assert files.exists(young)
    assert files.exists(slow[0])


def test_files_that_no_load_writes_are_left_alone(files: TableFiles) -> None:
    mine = ["notes.txt", "data/1995/notes.txt", "data/mine.parquet", "_layoutopt/mine.json", "_layoutopt/plans/x.json"]
    for path in mine:
        files.write_new(path, b"mine")
    vacuum(files, 1, NOTHING)
    assert all(files.exists(path) for path in mine)


def test_unfinished_files_go_when_they_are_old(files: TableFiles) -> None:
    unfinished = Path(files.full_path("_layoutopt/snapshots/.tmp-1234"))
    unfinished.write_bytes(b"half")
    assert vacuum(files, 1, WEEK).files == ()
    age(files, lambda path: "tmp-1234" in path, days=8)
    assert vacuum(files, 1, WEEK).files == ("_layoutopt/snapshots/.tmp-1234",)
    assert not unfinished.exists()


def test_a_vacuum_with_nothing_to_do_makes_no_snapshot(files: TableFiles) -> None:
    newest = vacuum(files, 1, NOTHING).snapshot
    assert vacuum(files, 1, NOTHING).snapshot == newest


@pytest.mark.parametrize("point", ["planned", "before-snapshot"])
def test_what_is_committed_while_it_works_is_kept(files: TableFiles, point: str) -> None:
    """A load and a restore come between what the vacuum saw and what it commits."""
    done: list[Snapshot] = []

    def at(reached: str) -> None:
        if reached == point and not done:
            done.append(restore(files, 1))
            done.append(commit(files, latest_snapshot(files), "d", (1996,)))

    vacuum(files, 1, NOTHING, at=at)
    assert read(files.root) == {1994: "a", 1995: "b", 1996: "d"}
    check_contents(files.root)


def test_a_load_slower_than_the_retention_is_refused_not_broken(files: TableFiles) -> None:
    base = latest_snapshot(files)
    orphan(files, "l1")
    load = SmallLoad("l1", (1995,))
    # The load had written its data before the vacuum, and comes to commit after it.
    path = load.blocks["file"][0].as_py()
    files.write_new(path, b"rows")
    vacuum(files, 3, NOTHING)
    assert not files.exists(path)
    entries = partition_entries(load.blocks, load.plan, "l1", {"1995": 1995})
    with pytest.raises(CommitConflictError, match=r"vacuum removed 'data/1995/l1'"):
        commit_load(files, Load(Basis(snapshot=base, whole_table=True), load.plan, "l1", entries, load.blocks))
    assert read(files.root) == {1994: "a", 1995: "c", 1996: "c"}


def check_files(files: TableFiles) -> None:
    """Every file that the newest snapshot names is there."""
    newest = latest_snapshot(files)
    assert newest is not None
    indexes = {
        index.path for blocks, _ in Catalog.open(files.root).blocks_by_plan().values() for index in blocks.index_files
    }
    assert not [path for path in (*newest.files, *indexes) if not files.exists(path)]


def delete_one(files: TableFiles, load_id: str, at: CommitHook = lambda point: None) -> Snapshot:
    """Delete a row of 1994."""
    base = latest_snapshot(files)
    assert base is not None
    (entry,) = base.by_key["1994"]
    marks = Marks({entry.name: Content(1, dict.fromkeys(("x", "s"), 3))}, {0: pack_positions(np.array([0]))})
    return commit_deletes(files, base, load_id, marks, at=at)


INDEXED = replace(PLAN, indexes=(IndexSpec(Col("s", "string"), "value-list"),))


def load_one(files: TableFiles, load_id: str, at: CommitHook = lambda point: None) -> Snapshot:
    """Load 1996."""
    return SmallLoad(load_id, (1996,)).commit(files, latest_snapshot(files), at=at)


def index_one(files: TableFiles, load_id: str, at: CommitHook = lambda point: None) -> Snapshot:
    """Load 1996 with an index."""
    load = SmallLoad(load_id, (1996,), INDEXED)
    values = pa.array([[b"a", b"b"], [b"c"]], pa.large_list(pa.large_binary()))
    return load.commit(files, latest_snapshot(files), indexes=[[pack_index(values)]], at=at)


@pytest.mark.parametrize("most", [-1, MOST_BOUNDS], ids=["manifests", "one-file"])
@pytest.mark.parametrize("change", [load_one, index_one, delete_one])
@pytest.mark.parametrize("then", [0, 1])
def test_a_retry_on_a_later_snapshot_names_no_file_that_a_vacuum_gave_up(
    empty: TableFiles, change: Callable[..., Snapshot], then: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt is killed; the vacuum has committed, not yet removed, when ``then`` others and a retry come."""
    monkeypatch.setattr(manifest_writing, "MOST_BOUNDS", most)
    SmallLoad("l1", (1994, 1995)).commit(empty, None)
    with pytest.raises(Killed):
        change(empty, "l2", kill_at("before-snapshot"))
    before = {file.path for file in empty.walk("_layoutopt") if "/l2" in file.path}
    retried: list[Snapshot] = []

    def meanwhile(point: str) -> None:
        if point == "snapshot-created":
            for number in range(then):
                SmallLoad(f"other{number}", (1997,)).commit(empty, latest_snapshot(empty))
            retried.append(change(empty, "l2"))

    report = vacuum(empty, 1, NOTHING, at=meanwhile)
    assert before <= set(report.files)
    assert len(before) == 1 + (change is index_one) + (most < 0)
    newest = latest_snapshot(empty)
    assert newest is not None
    assert [snapshot.number for snapshot in retried] == [newest.number]
    check_files(empty)


def test_a_folder_given_up_once_is_given_up_again_for_a_later_attempt(
    files: TableFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second vacuum reads the newest snapshot, then come a restore and a retry's data file, then it lists files."""
    load = SmallLoad("l1", (1995,))
    orphan(files, "l1")
    vacuum(files, 3, NOTHING)
    bases: list[Snapshot | None] = []

    def meanwhile(*given: Any) -> float:
        if not bases:
            bases.append(restore(files, 1))
            files.write_new(load.blocks["file"][0].as_py(), b"rows")
        return read_clock(*given)

    read_clock = vacuums._read_clock
    monkeypatch.setattr(vacuums, "_read_clock", meanwhile)
    vacuum(files, 3, NOTHING)
    assert not files.exists(load.blocks["file"][0].as_py())
    with pytest.raises(CommitConflictError, match=r"vacuum removed 'data/1995/l1'"):
        load.commit(files, bases[0], whole_table=True)


def overtake(files: TableFiles, base: Snapshot, year: int) -> CommitHook:
    """At a commit's first point before its snapshot, commit twice and remove what that commit began with."""

    def at(point: str) -> None:
        if point == "before-snapshot" and len(snapshot_numbers(files)) == 1:
            commit(files, commit(files, base, "b", (1995,)), "c", (year,))
            age(files, lambda path: "snapshots" in path, 1)
            vacuum(files, 1, NOTHING)

    return at


@pytest.mark.parametrize("bounds", [MOST_BOUNDS, MANIFESTS_ALWAYS])
def test_the_number_of_a_removed_snapshot_is_not_taken_again(
    empty: TableFiles, monkeypatch: pytest.MonkeyPatch, bounds: int
) -> None:
    """A load pauses before it writes its snapshot, while others commit and a vacuum removes what they began with."""
    monkeypatch.setattr(manifest_writing, "MOST_BOUNDS", bounds)
    base = commit(empty, None, "a", (1994, 1995))
    with pytest.raises(CatalogError, match="no longer has every snapshot from 1 to 3"):
        commit(empty, base, "late", (2000,), at=overtake(empty, base, 1994))
    assert list(snapshot_numbers(empty)) == [2, 3]
    assert read(empty.root) == {1994: "c", 1995: "b"}
    with pytest.raises(CatalogError):  # nor is a retry taken for committed
        commit(empty, base, "late", (2000,))
    commit(empty, latest_snapshot(empty), "again", (2000,))
    assert read(empty.root) == {1994: "c", 1995: "b", 2000: "again"}


def test_a_vacuum_that_takes_the_number_of_a_removed_snapshot_removes_no_file(empty: TableFiles) -> None:
    base = commit(empty, None, "a", (1994, 1995))
    (Path(empty.full_path("_layoutopt/blocks")) / "junk_1.parquet").write_bytes(b"")
    with pytest.raises(CatalogError, match="no longer has every snapshot"):
        vacuum(empty, 2, NOTHING, at=overtake(empty, base, 1996))
    assert read(empty.root) == {1994: "a", 1995: "b", 1996: "c"}
    check_contents(empty.root)


def test_a_snapshot_that_follows_another_one_of_the_same_number_is_told_apart(files: TableFiles) -> None:
    """A writer died that had taken the number of a removed snapshot: what it wrote is no commit."""
    base = latest_snapshot(files)
    assert base is not None
    commit(files, base, "d", (1997,))
    newest = commit(files, latest_snapshot(files), "e", (1998,))
    path = Path(files.full_path(snapshot_path(newest.number - 1)))
    stale = replace(read_snapshot(files, newest.number - 1), load_id="late")
    path.write_bytes(dumps(stale))
    with pytest.raises(CatalogError, match="no longer has every snapshot from 3 to 4"):
        commit(files, base, "late", (1997,))


def test_a_load_planned_on_a_removed_past_is_refused(files: TableFiles) -> None:
    vacuum(files, 1, NOTHING)
    with pytest.raises(CatalogError, match="no longer has every snapshot from 0 to 3"):
        commit(files, None, "e", (1997,))


def test_a_restore_of_what_is_being_removed_is_refused(files: TableFiles) -> None:
    tried: list[str] = []

    def at(reached: str) -> None:
        if reached == "snapshot-created":
            with pytest.raises(CommitConflictError, match="vacuum removed") as refused:
                restore(files, 1)
            tried.append(str(refused.value))

    vacuum(files, 1, NOTHING, at=at)
    assert len(tried) == 1
    assert read(files.root) == {1994: "a", 1995: "c", 1996: "c"}


def test_every_point_is_reached(files: TableFiles) -> None:
    reached: list[str] = []
    vacuum(files, 1, NOTHING, at=reached.append)
    assert tuple(dict.fromkeys(reached)) == VACUUM_POINTS


def test_with_a_damaged_catalog_nothing_is_removed(files: TableFiles) -> None:
    before = {file.path for file in files.walk("data")}
    path = Path(files.full_path("_layoutopt/blocks/c_2.parquet"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CatalogError, match=r"c_2\.parquet"):
        vacuum(files, 1, NOTHING)
    assert {file.path for file in files.walk("data")} == before


def test_bad_numbers_and_places_are_refused(files: TableFiles, tmp_path: Path) -> None:
    for retain, older_than in [(0, WEEK), (1, -WEEK)]:
        with pytest.raises(SettingError, match="can't retain"):
            vacuum(files, retain, older_than)
    with pytest.raises(NotATableError):
        vacuum(TableFiles(str(tmp_path)), 1, WEEK)


def test_a_store_without_folders_is_vacuumed_too(tmp_path: Path) -> None:
    files = TableFiles(f"memory://{tmp_path.name}/t")
    base: Any = ensure_table_root(files)
    for number in range(3):
        base = SmallLoad(f"l{number}", (1994,)).commit(files, base)
        files.write_new(f"data/1994/l{number}/layout-0/0-a.parquet", b"rows")
    try:
        assert len(vacuum(files, 1, NOTHING).files) == 4
        assert [file.path for file in files.walk("data")] == ["data/1994/l2/layout-0/0-a.parquet"]
    finally:
        MemoryFileSystem.store.clear()
