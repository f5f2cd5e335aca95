"""Rows beside those of a partition: entries of several loads, each batch once, and who may meet whom."""

from __future__ import annotations

import json
from typing import Any

import pytest

from layoutopt.catalog.commit import APPEND, CRASH_POINTS, restore
from layoutopt.catalog.history import history
from layoutopt.catalog.paths import snapshot_path
from layoutopt.catalog.snapshot import Snapshot, latest_snapshot, read_snapshot
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.errors import AlreadyLoadedError, CatalogError, CommitConflictError
from tests.catalog.loads import Killed, SmallLoad, kill_at


def append(
    files: TableFiles, load_id: str, years: tuple[int, ...], batch: str | None = None, base: Snapshot | None = None,
    **options: Any,
) -> Snapshot:  # fmt: skip
    base = base or latest_snapshot(files)
    return SmallLoad(load_id, years).commit(files, base, operation=APPEND, batch=batch, **options)


def loads(snapshot: Snapshot) -> dict[str, list[str]]:
    return {key: [entry.load_id for entry in entries] for key, entries in snapshot.by_key.items()}


def test_a_partition_then_has_the_rows_of_several_loads(files: TableFiles) -> None:
    append(files, "l2", (1995, 1996))
    snapshot = append(files, "l3", (1995,))
    assert loads(snapshot) == {"1994": ["l1"], "1995": ["l1", "l2", "l3"], "1996": ["l2"]}
    catalog = Catalog.open(files.root)
    assert catalog.snapshot == read_snapshot(files, 2)
    ((blocks, entry_of),) = catalog.blocks_by_plan().values()
    assert blocks.n == 10
    assert [catalog.partitions[place].load_id for place in entry_of] == ["l1"] * 4 + ["l2"] * 2 + ["l3"] * 2 + [
        "l2"
    ] * 2
    assert catalog.partition_statistics().rows.tolist() == [4] * 5
    last = history(files)[-1]
    assert (last.operation, last.changed, last.changed_rows, last.partitions) == (APPEND, ("1995",), 12, 3)


def test_a_load_id_is_appended_once(files: TableFiles) -> None:
    """Its rows twice would be a snapshot that nobody can read."""
    snapshot = append(files, "l2", (1995,))
    assert append(files, "l2", (1995,), base=read_snapshot(files, 0)).number == snapshot.number  # a retry finds itself
    with pytest.raises(CatalogError, match="'l2' was used before"):
        append(files, "l2", (1995,))
    assert loads(Catalog.open(files.root).snapshot) == {"1994": ["l1"], "1995": ["l1", "l2"]}


def test_a_batch_is_appended_once_whoever_else_commits(files: TableFiles) -> None:
    base = latest_snapshot(files)
    append(files, "l2", (1995,), "monday")
    SmallLoad("l3", (1994, 1995)).commit(files, latest_snapshot(files))
    for seen in (base, latest_snapshot(files)):
        with pytest.raises(AlreadyLoadedError, match="'monday' was appended before"):
            append(files, "l4", (1995,), "monday", base=seen)
    assert append(files, "l5", (1995,), "tuesday").batches == ("monday", "tuesday")
    for _, blocks in Catalog.open(files.root, snapshot=0).block_tables():
        for path in blocks.files:
            files.write_new(path, b"rows")
    restore(files, 0)
    assert append(files, "l6", (1995,), "monday").batches == ("monday",)


def test_appends_meet_nobody_and_who_replaces_a_partition_meets_them(files: TableFiles) -> None:
    base = latest_snapshot(files)
    append(files, "l2", (1995,), base=base)
    assert loads(append(files, "l3", (1995,), base=base))["1995"] == ["l1", "l2", "l3"]
    with pytest.raises(CommitConflictError, match="'1995' was loaded by another commit \\('l3'\\)"):
        SmallLoad("l4", (1995,)).commit(files, base)
    now = SmallLoad("l5", (1995,)).commit(files, latest_snapshot(files))
    assert loads(now)["1995"] == ["l5"]


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_a_retry_of_a_killed_append_adds_nothing_twice(files: TableFiles, point: str) -> None:
    with pytest.raises(Killed):
        append(files, "l2", (1995,), "monday", at=kill_at(point))
    try:
        append(files, "l3", (1995,), "monday")
    except AlreadyLoadedError:
        assert point == "snapshot-created"
    snapshot = latest_snapshot(files)
    assert snapshot is not None
    assert len(loads(snapshot)["1995"]) == 2
    assert snapshot.batches == ("monday",)


def test_older_programs_read_what_they_understand_and_refuse_the_rest(files: TableFiles) -> None:
    def version(number: int) -> object:
        return json.loads(files.read_bytes(snapshot_path(number)))["version"]

    append(files, "l2", (1995,))
    assert (version(0), version(1)) == (1, 2)
    now = SmallLoad("l3", (1995,)).commit(files, latest_snapshot(files))
    assert version(now.number) == 1


@pytest.mark.parametrize("change", [{"version": 1}, {"load_id": "l1"}])
def test_entries_that_can_not_be_are_damage(files: TableFiles, change: dict[str, object]) -> None:
    """A partition twice in a snapshot of the first version, and twice of the same load."""
    from layoutopt.catalog import snapshot as snapshot_json

    append(files, "l2", (1995,))
    content = json.loads(files.read_bytes(snapshot_path(1)))
    del content["checksum"]
    if "load_id" in change:
        content["partitions"][2]["load_id"] = change["load_id"]
    else:
        content |= change
    content["checksum"] = snapshot_json._checksum(content)
    with pytest.raises(CatalogError, match="it has a partition twice"):
        snapshot_json.loads(json.dumps(content).encode(), "1.json")
