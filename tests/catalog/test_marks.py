"""Rows that come in the place of others, marked as deleted in the same commit: all or nothing, and who may meet."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from layoutopt.catalog.commit import APPEND, CRASH_POINTS
from layoutopt.catalog.deletion_vectors import Marks, pack_positions
from layoutopt.catalog.history import history
from layoutopt.catalog.load_check import Content
from layoutopt.catalog.snapshot import Snapshot, latest_snapshot
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.vacuum import vacuum
from layoutopt.errors import CommitConflictError
from tests.catalog.loads import SmallLoad

POINTS = (*CRASH_POINTS[:-2], "vectors-written", *CRASH_POINTS[-2:])


def beside(
    files: TableFiles,
    load_id: str,
    years: tuple[int, ...],
    marked: tuple[str, ...],
    *,
    base: Snapshot | None = None,
    alone: bool = False,
    **options: Any,
) -> Snapshot:
    """One more row of each of some partitions' first entries is deleted, and rows of others come."""
    base = base or latest_snapshot(files)
    assert base is not None
    first = [base.by_key[key][0] for key in marked]
    gone = {
        (entry.key, entry.load_id): Content(entry.rows - entry.live_rows + 1, dict.fromkeys(entry.checksums, 0))
        for entry in first
    }
    marks = Marks(gone, {1: pack_positions(np.array([0]))} if gone else {}, alone)
    return SmallLoad(load_id, years).commit(files, base, operation="update", marks=marks, **options)


def rows_of(snapshot: Snapshot) -> dict[str, list[tuple[str, int]]]:
    """Of each partition the loads, and how many of their rows live."""
    return {key: [(entry.load_id, entry.live_rows) for entry in of] for key, of in snapshot.by_key.items()}


def test_rows_go_and_come_in_one_commit(files: TableFiles) -> None:
    before = latest_snapshot(files)
    assert before is not None
    rows = before.by_key["1994"][0].rows
    after = beside(files, "l2", (1995, 1996), ("1994",))
    assert (after.number, after.operation) == (1, "update")
    assert rows_of(after) == {"1994": [("l1", rows - 1)], "1995": [("l1", rows), ("l2", rows)], "1996": [("l2", rows)]}
    assert after.by_key["1994"][0].source is None
    again = beside(files, "l3", (1994,), ("1994",))
    assert rows_of(again)["1994"] == [("l1", rows - 2), ("l3", rows)]
    named = {entry.deletes.file for entry in again.partitions if entry.deletes is not None}
    assert named == {"_layoutopt/deletes/l3_2.parquet"}
    assert [path for path in again.files if "/deletes/" in path] == sorted(named)


def test_the_partitions_of_deletes_are_known_after_a_vacuum(files: TableFiles) -> None:
    beside(files, "l2", (1996,), ("1994",))
    assert [entry.changed for entry in history(files)] == [("1994", "1995"), ("1994", "1996")]
    vacuum(files, 1, timedelta(0))
    assert [(entry.number, entry.changed) for entry in history(files)] == [(1, ("1994", "1996"))]


def test_entries_are_joined_while_others_come(files: TableFiles) -> None:
    for load_id in ("l2", "l3"):
        SmallLoad(load_id, (1995,)).commit(files, latest_snapshot(files), operation=APPEND)
    base = latest_snapshot(files)
    beside(files, "l4", (1995,), ("1994",))

    def joined(load_id: str) -> Snapshot:
        marks = Marks({}, {}, replaced=frozenset({("1995", "l2"), ("1995", "l3")}))
        return SmallLoad(load_id, (1995,)).commit(files, base, operation="join", marks=marks)

    assert [load_id for load_id, _ in rows_of(joined("l5"))["1995"]] == ["l1", "l4", "l5"]
    with pytest.raises(CommitConflictError, match="'1995' was changed by another commit"):
        joined("l6")


def test_rows_that_only_come_leave_no_vectors(files: TableFiles) -> None:
    after = beside(files, "l2", (1995,), (), alone=True)
    assert [load_id for load_id, _ in rows_of(after)["1995"]] == ["l1", "l2"]
    assert files.list("_layoutopt/deletes") == ()


def test_who_changed_what_was_marked_is_met_and_who_appended_only_where_that_matters(files: TableFiles) -> None:
    base = latest_snapshot(files)
    SmallLoad("l2", (1994,)).commit(files, base, operation=APPEND)
    after = beside(files, "l3", (1994,), ("1994",), base=base)
    assert [load_id for load_id, _ in rows_of(after)["1994"]] == ["l1", "l2", "l3"]
    for years, marked, alone, what in (
        ((1994,), (), True, "loaded"),
        ((1996,), ("1994",), True, "loaded"),
        ((1995,), ("1994",), False, "changed"),
    ):
        with pytest.raises(CommitConflictError, match=f"'1994' was {what} by another commit"):
            beside(files, "l4", years, marked, base=base, alone=alone)
    assert files.list("_layoutopt/deletes") == ("l3_1.parquet",)
    newest = latest_snapshot(files)
    assert newest is not None
    assert newest.number == after.number


@pytest.mark.parametrize("point", POINTS)
def test_a_change_that_dies_is_made_once(files: TableFiles, point: str) -> None:
    reached = []

    def die(at: str) -> None:
        reached.append(at)
        if at == point:
            raise KeyboardInterrupt

    before = latest_snapshot(files)
    with pytest.raises(KeyboardInterrupt):
        beside(files, "l2", (1994,), ("1994",), at=die)
    assert tuple(reached) == POINTS[: POINTS.index(point) + 1]
    assert (latest_snapshot(files) == before) == (point != "snapshot-created")
    done = beside(files, "l2", (1994,), ("1994",), base=before)  # the same change, tried again
    assert done.number == 1
    assert len(done.by_key["1994"]) == 2
