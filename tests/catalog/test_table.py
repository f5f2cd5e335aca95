"""Opening a table: which snapshot, what damage is noticed, and what is no table."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from layoutopt.catalog import snapshot as snapshot_json
from layoutopt.catalog.commit import ensure_table_root
from layoutopt.catalog.history import history
from layoutopt.catalog.paths import snapshot_path
from layoutopt.catalog.snapshot import Snapshot, snapshot_numbers
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.errors import CatalogError, NotATableError, SettingError
from layoutopt.model.values import to_key
from tests.catalog.loads import SmallLoad


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A table with three snapshots: 1994, then 1995 under another plan, then 1994 again."""
    files = TableFiles(str(tmp_path / "t"))
    base: Snapshot | None = ensure_table_root(files)
    for load in (SmallLoad("l0"), SmallLoad("l1", (1995, None)).with_seed(1), SmallLoad("l2")):
        base = load.commit(files, base)
    return tmp_path / "t"


def loads(catalog: Catalog) -> dict[str, str]:
    return {entry.key: entry.load_id for entry in catalog.partitions}


def test_the_newest_snapshot_is_opened(root: Path) -> None:
    catalog = Catalog.open(str(root))
    assert catalog.snapshot.number == 2
    assert loads(catalog) == {"1994": "l2", "1995": "l1", "__null__": "l1"}
    assert catalog.schema == SmallLoad().plan.schema
    assert {plan.seed for plan in catalog.plans.values()} == {0, 1}


def test_blocks_come_by_partition_and_by_plan(root: Path) -> None:
    catalog = Catalog.open(str(root))
    assert [(entry.key, table.n, table.partitions) for entry, table in catalog.block_tables()] == [
        ("1994", 2, ("1994",)),
        ("1995", 2, ("1995",)),
        ("__null__", 2, ("__null__",)),
    ]
    by_plan = catalog.blocks_by_plan()
    assert {catalog.plans[digest].seed: table.partitions for digest, (table, _) in by_plan.items()} == {
        0: ("1994",),
        1: ("1995", "__null__"),
    }
    assert catalog.blocks(catalog.partitions[0]) is catalog.blocks(catalog.partitions[0])


def test_partitions_have_facts_of_their_own(root: Path) -> None:
    statistics = Catalog.open(str(root)).partition_statistics()
    assert statistics.rows.tolist() == [4, 4, 4]
    assert statistics.bits is None
    assert statistics.bounds["x"].high.tolist() == [to_key(2.5, "double")] * 3
    assert statistics.bounds["s"].low.tolist() == ["a"] * 3


def test_a_reader_keeps_its_snapshot_while_writers_commit(root: Path) -> None:
    catalog = Catalog.open(str(root))
    SmallLoad("l3", (1994, 1995)).commit(TableFiles(str(root)), catalog.snapshot)
    assert [table.rows.sum() for _, table in catalog.block_tables()] == [4, 4, 4]
    assert loads(catalog)["1995"] == "l1"
    assert loads(Catalog.open(str(root)))["1995"] == "l3"


def test_older_snapshots_open_by_number_and_by_time(root: Path) -> None:
    assert loads(Catalog.open(str(root), snapshot=0)) == {"1994": "l0"}
    times = [entry.created_at for entry in history(TableFiles(str(root)))]
    for number, time in enumerate(times):
        assert Catalog.open(str(root), as_of=time).snapshot.number == number
    assert Catalog.open(str(root), as_of="2999-01-01").snapshot.number == 2
    assert Catalog.open(str(root), as_of="2999-01-01T00:00:00+02:00").snapshot.number == 2


@pytest.mark.parametrize(
    ("chosen", "error", "message"),
    [
        ({"snapshot": 7}, CatalogError, "no snapshot 7"),
        ({"as_of": "1999-01-01"}, CatalogError, "1999-01-01"),
        ({"as_of": "tomorrow"}, SettingError, "tomorrow"),
        ({"snapshot": 1, "as_of": "1999-01-01"}, SettingError, "both"),
    ],
)
def test_what_was_not_there_is_said(root: Path, chosen: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Catalog.open(str(root), **chosen)


def test_gaps_and_other_names_among_the_snapshots_are_ignored(root: Path) -> None:
    snapshots = root / "_layoutopt" / "snapshots"
    (snapshots / "1.json").unlink()
    for name in ("10.json.bak", ".tmp-77", "077.json", "x.json", "-5.json"):
        (snapshots / name).write_text("{}")
    assert snapshot_numbers(TableFiles(str(root))) == (0, 2)
    assert Catalog.open(str(root)).snapshot.number == 2


def test_a_renamed_snapshot_is_noticed(root: Path) -> None:
    snapshots = root / "_layoutopt" / "snapshots"
    (snapshots / "2.json").rename(snapshots / "5.json")
    with pytest.raises(CatalogError, match="holds snapshot 2"):
        Catalog.open(str(root))


def read_everything(root: Path) -> None:
    for _, table in Catalog.open(str(root)).block_tables():
        for name in table.schema.names:
            table.block_statistics().bounds[name]


NAMED = ("blocks/l1_1.parquet", "plans")
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "flip": lambda data: bytes([*data[: len(data) // 2], data[len(data) // 2] ^ 4, *data[len(data) // 2 + 1 :]]),
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "grow": lambda data: data + b"x",
}


@pytest.mark.parametrize(
    ("path", "damage"),
    [*product(("snapshots/2.json", "table.json", *NAMED), DAMAGES), *product(NAMED, ["missing"])],
)
def test_a_damaged_or_missing_catalog_file_is_named(root: Path, path: str, damage: str) -> None:
    file = root / "_layoutopt" / path
    file = sorted(file.iterdir())[0] if file.is_dir() else file
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(DAMAGES[damage](file.read_bytes()))
    named = re.escape(file.name) + (" is missing" if damage == "missing" else "")
    with pytest.raises((CatalogError, NotATableError), match=named):
        read_everything(root)


def test_a_snapshot_that_promises_other_rows_than_its_blocks_have_is_noticed(root: Path) -> None:
    files = TableFiles(str(root))
    snapshot = Catalog.open(str(root)).snapshot
    wrong = tuple(replace(entry, rows=5) for entry in snapshot.partitions)
    files.write_new(snapshot_path(3), snapshot_json.dumps(replace(snapshot, number=3, parent=2, partitions=wrong)))
    with pytest.raises(CatalogError, match="5 rows of partition '1994'"):
        read_everything(root)


def test_garbage_is_never_seen(root: Path) -> None:
    before = loads(Catalog.open(str(root)))
    (root / "_layoutopt" / "blocks" / "l9.parquet").write_bytes(b"half a load")
    (root / "data" / "1994" / "l9").mkdir(parents=True)
    read_everything(root)
    assert loads(Catalog.open(str(root))) == before


def test_paths_that_hold_no_table_are_refused(tmp_path: Path) -> None:
    ensure_table_root(TableFiles(str(tmp_path / "claimed")))
    (tmp_path / "part-0.parquet").write_bytes(b"PAR1")
    for path, message in (
        ("nothing", "nothing"), ("", "is not a layoutopt table"), ("part-0.parquet", "is a file"),
        ("claimed", "never loaded"),
    ):  # fmt: skip
        with pytest.raises(NotATableError, match=message):
            Catalog.open(str(tmp_path / path))


def test_a_newer_table_asks_for_a_newer_program(tmp_path: Path) -> None:
    (tmp_path / "_layoutopt").mkdir()
    (tmp_path / "_layoutopt" / "table.json").write_text('{"format": "layoutopt-table", "version": 4}')
    with pytest.raises(CatalogError, match="newer"):
        Catalog.open(str(tmp_path))
    with pytest.raises(CatalogError, match="newer"):
        ensure_table_root(TableFiles(str(tmp_path)))


def test_a_table_lives_on_other_stores_too() -> None:
    files = TableFiles("memory://bucket/table")
    base = ensure_table_root(files)
    base = SmallLoad("l0").commit(files, base)
    SmallLoad("l1", (1995,)).commit(files, base)
    catalog = Catalog.open("memory://bucket/table")
    assert loads(catalog) == {"1994": "l0", "1995": "l1"}
    assert [table.n for _, table in catalog.block_tables()] == [2, 2]
    with pytest.raises(NotATableError):
        Catalog.open("memory://bucket/other")
