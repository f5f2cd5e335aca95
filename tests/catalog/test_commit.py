"""The commit protocol: killed anywhere, interleaved with others, retried, and on a store that fails."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from layoutopt.catalog import snapshot as snapshot_json
from layoutopt.catalog.commit import CRASH_POINTS, Load, commit_load, ensure_table_root
from layoutopt.catalog.history import history
from layoutopt.catalog.paths import snapshot_path
from layoutopt.catalog.snapshot import Snapshot, latest_snapshot, snapshot_numbers
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.index_files import PackedIndexes, pack_index
from layoutopt.catalog.table import Catalog
from layoutopt.errors import CatalogError, CommitConflictError, NotATableError, PlanError, SchemaError
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import Col
from layoutopt.model.schema import Column, Schema
from tests.catalog.loads import NEW, SCHEMA, Killed, SmallLoad, kill_at, plan_of, run_threads


@pytest.fixture
def files(empty: TableFiles) -> TableFiles:
    return empty


def state(files: TableFiles) -> dict[str, str]:
    """Which load each partition holds, all of it readable."""
    catalog = Catalog.open(files.root)
    assert all(table.rows.sum() == entry.rows for entry, table in catalog.block_tables())
    return {entry.key: entry.load_id for entry in catalog.partitions}


def test_a_first_load_is_snapshot_0_and_readable(files: TableFiles) -> None:
    snapshot = SmallLoad(years=(1994, None)).commit(files, None)
    assert (snapshot.number, snapshot.parent, snapshot.rows) == (0, None, 8)
    assert state(files) == {"1994": "l1", "__null__": "l1"}


def test_a_second_load_replaces_its_partitions_only(files: TableFiles) -> None:
    base = SmallLoad(years=(1994, 1995)).commit(files, None)
    snapshot = SmallLoad("l2", (1995, 1996)).commit(files, base)
    assert state(files) == {"1994": "l1", "1995": "l2", "1996": "l2"}
    assert (snapshot.number, snapshot.parent) == (1, 0)
    assert [(entry.load_id, entry.changed) for entry in history(files)] == [
        ("l1", ("1994", "1995")),
        ("l2", ("1995", "1996")),
    ]


def test_a_load_of_the_whole_table_drops_the_rest_and_may_change_the_schema(files: TableFiles) -> None:
    base = SmallLoad(years=(1994, 1995)).commit(files, None)
    plan = plan_of(Schema((*SCHEMA.columns, Column("new", "int"))), partition_by=None)
    snapshot = SmallLoad("l2", (1996,), plan).commit(files, base, whole_table=True)
    assert state(files) == {"1996": "l2"}
    assert snapshot.schema == plan.schema
    assert not [path for path in snapshot.files if "l1" in path]


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_killed_at_any_point_the_table_is_as_before_or_after_and_a_retry_commits_once(
    files: TableFiles, point: str
) -> None:
    base = SmallLoad(years=(1994, 1995)).commit(files, None)
    load = SmallLoad("l2", (1995,)).with_seed(7)
    with pytest.raises(Killed):
        load.commit(files, base, at=kill_at(point))
    committed = point == "snapshot-created"
    assert state(files) == {"1994": "l1", "1995": "l2" if committed else "l1"}
    load.commit(files, base)
    assert state(files) == {"1994": "l1", "1995": "l2"}
    assert snapshot_numbers(files) == (0, 1)


def test_a_retry_with_other_blocks_leaves_the_first_attempts_file_alone(files: TableFiles) -> None:
    load = SmallLoad(years=(1994,))
    with pytest.raises(Killed):
        load.commit(files, None, at=kill_at("blocks-written"))
    before = files.read_bytes("_layoutopt/blocks/l1_0.parquet")
    other = SmallLoad(years=(1994, 1995))
    snapshot = other.commit(files, None)
    assert files.read_bytes("_layoutopt/blocks/l1_0.parquet") == before
    assert {entry.blocks_file for entry in snapshot.partitions} == {"_layoutopt/blocks/l1_0-2.parquet"}
    assert state(files) == {"1994": "l1", "1995": "l1"}


def test_every_crash_point_is_reached_in_order(files: TableFiles) -> None:
    reached: list[str] = []
    SmallLoad().commit(files, None, at=reached.append)
    assert tuple(reached) == CRASH_POINTS


def test_a_retry_after_somebody_replaced_the_load_does_not_bring_it_back(files: TableFiles) -> None:
    first = SmallLoad("l1").commit(files, None)
    SmallLoad("l2").commit(files, first)
    assert SmallLoad("l1").commit(files, None) == first
    assert state(files) == {"1994": "l2"}


def interleaved(files: TableFiles, late: SmallLoad, early: SmallLoad, whole_table: bool = False) -> None:
    """Commit ``early`` whole while ``late`` stands just before its snapshot."""
    base = latest_snapshot(files)
    done: list[Snapshot] = []

    def at(point: str) -> None:
        if point == "before-snapshot" and not done:
            done.append(early.commit(files, base))

    late.commit(files, base, at=at, whole_table=whole_table)
    assert done


def test_loaders_of_different_partitions_both_succeed(files: TableFiles) -> None:
    SmallLoad("l0", (1993,)).commit(files, None)
    interleaved(files, SmallLoad("late", (1994,)), SmallLoad("early", (1995,)))
    assert state(files) == {"1993": "l0", "1994": "late", "1995": "early"}
    assert snapshot_numbers(files) == (0, 1, 2)


@pytest.mark.parametrize(
    ("before", "late", "whole_table", "expected"),
    [
        ((1994,), (1994,), False, {"1994": "early"}),
        ((1994,), (1994, 1995), False, {"1994": "early"}),
        ((), (1994,), False, {"1994": "early"}),
        ((1995,), (1995,), True, {"1994": "early", "1995": "l0"}),
    ],
    ids=["same", "overlapping", "first loads", "whole table"],
)
def test_of_loaders_of_one_partition_the_later_is_refused(
    files: TableFiles, before: tuple[int, ...], late: tuple[int, ...], whole_table: bool, expected: dict[str, str]
) -> None:
    if before:
        SmallLoad("l0", before).commit(files, None)
    with pytest.raises(CommitConflictError, match=r"1994.*early"):
        interleaved(files, SmallLoad("late", late), SmallLoad("early", (1994,)), whole_table=whole_table)
    assert state(files) == expected


@pytest.mark.parametrize("replaced", ["removed", "older", "remade"])
def test_nothing_is_committed_into_a_table_that_was_replaced_meanwhile(files: TableFiles, replaced: str) -> None:
    root = Path(files.root)
    SmallLoad("l0", (1993,)).commit(files, None)
    shutil.copytree(root, root.with_name("copy"))
    base = SmallLoad("l1", (1994,)).commit(files, latest_snapshot(files))

    def at(point: str) -> None:
        if point == "blocks-written":
            shutil.rmtree(root)
            if replaced != "removed":
                shutil.copytree(root.with_name("copy"), root)
            if replaced == "remade":
                SmallLoad("other", (1996,)).commit(files, latest_snapshot(files))

    with pytest.raises(CatalogError, match="removed or replaced meanwhile"):
        SmallLoad("l2", (1995,)).commit(files, base, at=at)
    if replaced != "removed":
        assert state(files) == {"1993": "l0"} | ({"1996": "other"} if replaced == "remade" else {})


def test_what_counts_is_the_snapshot_planned_on_not_the_latest(files: TableFiles) -> None:
    planned_on = SmallLoad("l0", (1994,)).commit(files, None)
    SmallLoad("l1", (1994,)).commit(files, planned_on)
    with pytest.raises(CommitConflictError, match="l1"):
        SmallLoad("l2", (1994,)).commit(files, planned_on)


def test_many_loaders_at_once_lose_nothing(files: TableFiles) -> None:
    loads = [SmallLoad(f"l{year}", (year,)) for year in range(1990, 1996)]
    run_threads(lambda load: load.commit(files, None), [(load,) for load in loads])
    assert state(files) == {str(year): f"l{year}" for year in range(1990, 1996)}
    assert snapshot_numbers(files) == tuple(range(6))


@dataclass(frozen=True)
class FailingFiles(TableFiles):
    """A store whose snapshot writes fail, before or after they did their work."""

    after: bool = False

    def write_new(self, path: str, data: bytes) -> None:
        if not path.startswith("_layoutopt/snapshots/"):
            return super().write_new(path, data)
        if self.after:
            super().write_new(path, data)
        raise TimeoutError("no answer")


@pytest.mark.parametrize("after", [False, True])
def test_a_store_that_fails_has_committed_only_if_the_snapshot_is_there(files: TableFiles, after: bool) -> None:
    base = SmallLoad("l0").commit(files, None)
    with nullcontext() if after else pytest.raises(TimeoutError):
        SmallLoad("l1").commit(FailingFiles(files.root, after=after), base)
    assert state(files) == {"1994": "l1" if after else "l0"}


def test_another_schema_or_partition_column_is_refused_before_anything_is_written(files: TableFiles) -> None:
    base = SmallLoad("l0").commit(files, None)
    schema = Schema((SCHEMA.columns[0], Column("x", "float"), SCHEMA.columns[2]))
    with pytest.raises(SchemaError, match="'x' is x double in the table but x float in the plan"):
        SmallLoad("l1", plan=plan_of(schema)).commit(files, base)
    with pytest.raises(PlanError, match="'s'"):
        SmallLoad("l1", plan=plan_of(partition_by="s")).commit(files, base)
    assert files.list("_layoutopt/blocks") == ("l0_0.parquet",)


def test_entries_that_are_not_the_blocks_own_are_refused(files: TableFiles) -> None:
    load = SmallLoad(years=(1994, 1995))
    wrong_rows = [replace(load.entries[0], rows=3), load.entries[1]]
    wrong_sums = [replace(load.entries[0], checksums={"x": 1}), load.entries[1]]
    for entries in (wrong_rows, wrong_sums, load.entries[:1], [*load.entries, load.entries[0]]):
        with pytest.raises(CatalogError, match=r"199[45]|twice"):
            commit_load(files, Load(NEW, load.plan, "l1", entries, load.blocks))
    assert snapshot_numbers(files) == ()


def test_indexes_of_other_blocks_are_refused(files: TableFiles) -> None:
    plan = replace(SmallLoad().plan, indexes=(IndexSpec(Col("x", "double"), "value-list", 10),))
    load = SmallLoad(plan=plan)
    first = pack_index(pa.nulls(load.blocks.num_rows - 1, pa.large_list(pa.float64())))
    cases: tuple[list[PackedIndexes], ...] = ([], [[]], [[first]])
    for indexes in cases:
        with pytest.raises(CatalogError, match="index x:value-list:10 was measured for"):
            commit_load(files, Load(NEW, plan, "l1", load.entries, load.blocks, indexes))
    assert snapshot_numbers(files) == ()


def test_a_partition_without_rows_is_committed(files: TableFiles) -> None:
    load = SmallLoad()
    empty = replace(load.entries[0], key="1995", value=1995, rows=0, checksums=dict.fromkeys(SCHEMA.names, 0))
    commit_load(files, Load(NEW, load.plan, "l1", [*load.entries, empty], load.blocks))
    catalog = Catalog.open(files.root)
    assert [(entry.key, table.n) for entry, table in catalog.block_tables()] == [("1994", 2), ("1995", 0)]


def test_a_damaged_plan_file_is_noticed(files: TableFiles) -> None:
    load = SmallLoad()
    path = f"_layoutopt/plans/{load.plan.digest}.json"
    files.write_new(path, b"{}")
    with pytest.raises(CatalogError, match=load.plan.digest):
        load.commit(files, None)


def test_time_never_runs_backwards(files: TableFiles) -> None:
    base = SmallLoad("l0").commit(files, None)
    future = replace(base, number=1, parent=0, created_at="2999-01-01T00:00:00+00:00")
    files.write_new(snapshot_path(1), snapshot_json.dumps(future))
    assert SmallLoad("l2").commit(files, future).created_at == future.created_at


class TestClaimingAFolder:
    def test_a_new_or_empty_folder_is_fine(self, tmp_path: Path) -> None:
        assert ensure_table_root(TableFiles(str(tmp_path))) is None
        assert ensure_table_root(TableFiles(str(tmp_path / "deep" / "new"))) is None

    def test_twice_is_fine_and_gives_the_newest_snapshot(self, files: TableFiles) -> None:
        snapshot = SmallLoad().commit(files, None)
        assert ensure_table_root(files) == snapshot

    @pytest.mark.parametrize("name", ["notes.txt", "data/part-0.parquet", "_layoutopt.bak/x"])
    def test_a_folder_with_other_files_is_refused_and_left_alone(self, tmp_path: Path, name: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
        with pytest.raises(NotATableError, match="holds other files"):
            ensure_table_root(TableFiles(str(tmp_path)))
        assert not (tmp_path / "_layoutopt").exists()

    def test_a_file_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        path.write_text("mine")
        with pytest.raises(NotATableError):
            ensure_table_root(TableFiles(str(path)))
