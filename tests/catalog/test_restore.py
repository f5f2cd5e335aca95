"""Restoring a snapshot: a commit like any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from layoutopt.catalog.commit import RESTORE_POINTS, restore
from layoutopt.catalog.history import history
from layoutopt.catalog.optimistic_commit import names_of
from layoutopt.catalog.snapshot import latest_snapshot, snapshot_numbers
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import CatalogError, CommitConflictError
from tests.catalog.crash import check_contents, commit, read


@pytest.fixture
def files(empty: TableFiles) -> TableFiles:
    commit(empty, commit(empty, None, "a", (1994, 1995)), "b", (1995, 1996))
    return empty


def test_the_old_content_is_a_new_snapshot(files: TableFiles) -> None:
    restored = restore(files, 0)
    assert (restored.number, restored.parent, restored.operation) == (2, 1, "restore")
    assert read(files.root) == {1994: "a", 1995: "a"}
    assert read(files.root, 1) == {1994: "a", 1995: "b", 1996: "b"}
    assert [(entry.operation, entry.changed) for entry in history(files)][2] == ("restore", ("1995", "1996"))
    check_contents(files.root)


def test_a_restore_can_be_restored(files: TableFiles) -> None:
    restore(files, 0)
    restore(files, 1)
    assert read(files.root) == {1994: "a", 1995: "b", 1996: "b"}
    commit(files, latest_snapshot(files), "c", (1996,))
    assert read(files.root) == {1994: "a", 1995: "b", 1996: "c"}


def test_what_is_there_already_is_not_restored_again(files: TableFiles) -> None:
    assert restore(files, 1).number == 1
    assert restore(files, 0).number == restore(files, 0).number == 2
    assert snapshot_numbers(files) == (0, 1, 2)


def test_a_load_that_comes_between_is_a_conflict(files: TableFiles) -> None:
    def at(point: str) -> None:
        if point == "before-snapshot" and len(snapshot_numbers(files)) == 2:
            commit(files, latest_snapshot(files), "c", (1997,))

    with pytest.raises(CommitConflictError, match="snapshot 2 while snapshot 0"):
        restore(files, 0, at=at)
    assert read(files.root) == {1994: "a", 1995: "b", 1996: "b", 1997: "c"}


def test_a_load_planned_before_a_restore_conflicts_where_it_changed_the_partition(files: TableFiles) -> None:
    base = latest_snapshot(files)
    restore(files, 0)
    with pytest.raises(CommitConflictError, match="1995"):
        commit(files, base, "c", (1995,))
    commit(files, base, "d", (1994,))
    assert read(files.root) == {1994: "d", 1995: "a"}


def test_a_snapshot_that_can_not_be_read_is_not_restored(files: TableFiles) -> None:
    gone = next(file.path for file in files.walk("data/1995/a"))
    files.delete(gone)
    with pytest.raises(CatalogError, match=gone):
        restore(files, 0)
    with pytest.raises(CatalogError, match="no snapshot 7"):
        restore(files, 7)
    Path(files.full_path("_layoutopt/blocks/a_0.parquet")).write_bytes(b"")
    with pytest.raises(CatalogError, match=r"a_0\.parquet"):
        restore(files, 0)
    assert snapshot_numbers(files) == (0, 1)


def test_every_point_is_reached_in_order(files: TableFiles) -> None:
    reached: list[str] = []
    restore(files, 0, at=reached.append)
    assert tuple(reached) == RESTORE_POINTS


def test_what_names_a_file_needs_its_folder_whoever_wrote_it() -> None:
    # Where a layout was written alone, the entry's other files are of an older load, whose folder may be given up.
    assert {"data/1994/a", "data/1994/a/layout-0/0-x.parquet"} <= names_of([], ["data/1994/a/layout-0/0-x.parquet"])
