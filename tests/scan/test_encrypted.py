"""Encrypted tables without Spark: the same answers, nothing in the clear, and no file that was changed or moved."""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from layoutopt.catalog.commit import restore
from layoutopt.catalog.optimistic_commit import Change, check_no_tombstone
from layoutopt.catalog.paths import blocks_path, load_folder
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table_root import ensure_table_root
from layoutopt.catalog.vacuum import vacuum
from layoutopt.cli.app import main
from layoutopt.cli.console import BAD_USAGE, DONE, FAILED
from layoutopt.errors import CommitConflictError, EncryptedTableError, EncryptionKeyError, SettingError, TableError
from layoutopt.inspect.evaluate import evaluate
from layoutopt.inspect.status import verify_path
from layoutopt.inspect.verify import verify
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import Layout
from layoutopt.model.predicates import Col
from layoutopt.publish.publishing import publication, publish
from layoutopt.scan.table import open_table
from layoutopt.serve.tables import Tables
from tests.scan.builder import Building, build, building, by_position
from tests.scan.deleting import delete_ids, kept
from tests.scan.encrypting import found_in
from tests.scan.layouts import OVERLAPPING
from tests.scan.stores import noting_store, put
from tests.scan.tables import CONDITIONS, SCHEMA, expected, same, some_rows

__all__ = ["noting_store"]

SQL = [
    "SELECT * FROM t",
    "SELECT id, price FROM t WHERE kind = 'air' AND price > 60",
    "SELECT count(*) AS n FROM t WHERE year = 1995",
    "SELECT day, seen FROM t WHERE score < 0.5 OR id = 17",
]
KINDS = {"air": "zq-airborne", "rail": "zq-on-rails", "ship": "zq-by-ship", "truck": "zq-trucked", "mail": "zq-mailed"}
ROWS = some_rows(240)
MANIFESTS = ("manifests",)
KINDS_OF_FILES = ["snapshots", "plans", "blocks", "deletes", "indexes", "data", *MANIFESTS]
GONE = [*range(0, 90, 7), 5]


def marked_rows() -> pa.Table:
    """The rows with texts that can be searched for."""
    kinds = [KINDS.get(kind, kind) for kind in ROWS["kind"].to_pylist()]
    return ROWS.set_column(2, ROWS.schema.field("kind"), pa.array(kinds))


def made(root: Path, layouts: Sequence[Layout] | None = None, key: str | None = "env:TABLE_KEY", **how: bool) -> Path:
    """A table that knows everything a table can: partitions, indexes, footers, deleted rows."""
    index = IndexSpec(Col("kind", "string"), "value-list")
    whole: Building = building(
        SCHEMA, CONDITIONS, layouts=layouts, partition_by="year", footers=True, blocking=by_position(8), indexes=[index]
    )
    build(root, marked_rows() if how.get("marked") else ROWS, replace(whole, key=key))
    delete_ids(str(root), GONE)
    return root


pytestmark = [pytest.mark.usefixtures("has_manifests"), pytest.mark.checks_texts]


@pytest.fixture(autouse=True)
def table_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLE_KEY", "5a" * 32)
    monkeypatch.setenv("WRONG_KEY", "5b" * 32)
    monkeypatch.delenv("LAYOUTOPT_KEY", raising=False)


@pytest.fixture(scope="module")
def whole(has_manifests: bool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TABLE_KEY", "5a" * 32)
        return made(tmp_path_factory.mktemp("encrypted") / "table")


@pytest.fixture(scope="module")
def others(has_manifests: bool, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Tables of the same rows, one by the same key of the user's, and one that is not encrypted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TABLE_KEY", "5a" * 32)
        folder = tmp_path_factory.mktemp("others")
        return [made(folder / "encrypted"), made(folder / "clear", key=None)]


@pytest.fixture
def table(whole: Path, tmp_path: Path) -> Path:
    """A copy to be harmed."""
    return Path(shutil.copytree(whole, tmp_path / "copy"))


@pytest.mark.usefixtures("noting_store")
@pytest.mark.parametrize("layouts", [None, OVERLAPPING], ids=["sop", "gsop-r"])
def test_answers_are_those_of_the_rows(tmp_path: Path, layouts: list[Layout] | None) -> None:
    local = made(tmp_path / "table", layouts)
    for root in (str(local), put(local, f"noting://{tmp_path.name}")):
        table = open_table(root)
        for _ in range(2):  # the second time by footers that are known
            for sql in SQL:
                assert same(table.sql(sql).to_pylist(), expected(sql, kept(ROWS, GONE))), sql
        assert verify(table).ok
        skipped = table.explain(SQL[1]).to_json()
        assert skipped == open_table(root, key="env:TABLE_KEY").explain(SQL[1]).to_json()
        assert sorted(table.scan("SELECT id FROM t").to_dataset().to_table()["id"].to_pylist()) == sorted(
            kept(ROWS, GONE)["id"].to_pylist()
        )
        assert evaluate(table, table.catalog.plans[next(iter(table.catalog.plans))].queries).queries == ()


@pytest.mark.usefixtures("noting_store")
def test_datasets_have_the_files_and_their_keys(whole: Path, tmp_path: Path) -> None:
    for root in (str(whole), put(whole, f"noting://{tmp_path.name}")):
        dataset = open_table(root, snapshot=0).scan("SELECT id, kind FROM t WHERE id >= 100").to_dataset()
        assert isinstance(dataset, ds.FileSystemDataset)
        found = dataset.to_table(filter=ds.field("id") >= 200)
        assert sorted(found["id"].to_pylist()) == list(range(200, 240))
        assert (
            dataset.count_rows() >= pl.scan_pyarrow_dataset(dataset).filter(pl.col("id") >= 100).collect().height == 140
        )


@pytest.mark.parametrize("layouts", [None, OVERLAPPING], ids=["sop", "gsop-r"])
def test_nothing_of_it_stands_in_the_clear(has_manifests: bool, tmp_path: Path, layouts: list[Layout] | None) -> None:
    numbers = [struct.pack("<q", each) for each in ROWS["seen"].cast(pa.int64()).drop_null().to_pylist()]
    names = [b"price", b"score", b"_block", b"value-list", b"data/1995"]
    markers = [*(text.encode() for text in KINDS.values()), *numbers, *names]
    clear = made(tmp_path / "clear", layouts, key=None, marked=True)
    # The search can find: each kind of marker, in each kind of file that holds it.
    found = found_in(clear, markers)
    assert {marker for marker, _ in found} == set(markers)
    kinds = {kind for _, kind in found}
    assert kinds == {
        "data",
        *(f"_layoutopt/{name}" for name in ("blocks", "indexes", "plans", "snapshots", *MANIFESTS[:has_manifests])),
    }
    assert found_in(made(tmp_path / "encrypted", layouts, marked=True), markers) == set()


def test_names_say_nothing_and_files_of_each_kind_are_there(has_manifests: bool, whole: Path) -> None:
    paths = [file.relative_to(whole).as_posix() for file in whole.rglob("*") if file.is_file()]
    assert {path.rpartition("/")[0].split("/")[-1] for path in paths if path.startswith("_layoutopt/")} == {
        "_layoutopt", "blocks", "deletes", "indexes", "plans", "snapshots", *MANIFESTS[:has_manifests],
    }  # fmt: skip
    plan = open_table(str(whole)).catalog.partitions[0].plan
    assert not [path for path in paths if plan in path]
    in_data = [path.split("/")[1] for path in paths if path.startswith("data/")]
    assert all(re.fullmatch("__[0-9a-f]{32}", name) for name in in_data)
    begin = {path: (whole / path).read_bytes()[:4] for path in paths if not path.endswith("table.json")}
    assert {(path.startswith("data/"), magic) for path, magic in begin.items()} == {(True, b"PARE"), (False, b"LOE1")}


def files_by_kind(table: Path) -> dict[str, list[Path]]:
    found = {
        path.name: sorted(path.iterdir())
        for path in (table / "_layoutopt").iterdir()
        if path.name in ("blocks", "deletes", "indexes", "plans", *MANIFESTS)
    }
    snapshots = sorted((table / "_layoutopt/snapshots").iterdir())
    return found | {"snapshots": snapshots[-1:], "data": sorted((table / "data").rglob("*.parquet"))}


def first_file(table: Path, kind: str) -> Path:
    files = files_by_kind(table)
    if kind not in files:
        pytest.skip("entries stand in snapshots")
    return files[kind][0]


def refused(table: Path) -> None:
    """Nobody answers from the table, and who looks sees it; an index that can't be opened proves nothing."""
    assert not _is_intact(table)
    answer = said = None
    try:
        answer = open_table(str(table)).sql(SQL[0]).to_pylist()
    except TableError as error:
        said = str(error)
    if answer is None:
        assert re.fullmatch(r".*(copy|load).*", said or "")
    else:
        assert same(answer, expected(SQL[0], kept(ROWS, GONE)))


def _is_intact(table: Path) -> bool:
    try:
        return verify_path(str(table)).ok
    except TableError:
        return False


@pytest.mark.parametrize("kind", KINDS_OF_FILES)
def test_a_changed_byte_is_seen(table: Path, kind: str) -> None:
    file = first_file(table, kind)
    whole = file.read_bytes()
    for place in (6, len(whole) // 2, len(whole) - 1):
        file.write_bytes(bytes([*whole[:place], whole[place] ^ 0x10, *whole[place + 1 :]]))
        refused(table)


@pytest.mark.parametrize("kind", KINDS_OF_FILES)
def test_a_file_of_another_table_or_in_the_clear_is_refused(table: Path, others: list[Path], kind: str) -> None:
    file = first_file(table, kind)
    for other in others:
        file.write_bytes(first_file(other, kind).read_bytes())
        refused(table)


def test_files_that_are_swapped_are_refused(table: Path, tmp_path: Path) -> None:
    def swapped(number: int, first: Path, second: Path) -> None:
        copy = Path(shutil.copytree(table, tmp_path / f"copy-{number}"))
        one, two = copy / first.relative_to(table), copy / second.relative_to(table)
        one.write_bytes(second.read_bytes())
        two.write_bytes(first.read_bytes())
        refused(copy)

    files = files_by_kind(table)
    swapped(0, files["data"][0], files["data"][1])
    swapped(1, *sorted((table / "_layoutopt/snapshots").iterdir())[:2])
    swapped(2, files["blocks"][0], files["deletes"][0])
    swapped(3, files["plans"][0], files["snapshots"][0])


def test_who_has_no_key_or_another_one_is_told_so(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EncryptionKeyError, match=r"not the one that .*table\.json was encrypted with"):
        open_table(str(table), key="env:WRONG_KEY")
    monkeypatch.setenv("LAYOUTOPT_KEY", "env:WRONG_KEY")
    with pytest.raises(EncryptionKeyError, match="not the one"):
        open_table(str(table))
    assert open_table(str(table), key="env:TABLE_KEY").rows == 240 - len(GONE)
    monkeypatch.delenv("LAYOUTOPT_KEY")
    monkeypatch.delenv("TABLE_KEY")
    before = sorted(table.rglob("*"))
    for act in (
        lambda: open_table(str(table)),
        lambda: vacuum(TableFiles(str(table)), 1, timedelta(0)),
        lambda: restore(TableFiles(str(table)), 0),
        lambda: ensure_table_root(TableFiles(str(table))),
        lambda: TableFiles(str(table)).write_new("_layoutopt/plans/a.json", b"x"),
    ):
        with pytest.raises(EncryptionKeyError, match="'TABLE_KEY' is not set"):
            act()
    assert sorted(table.rglob("*")) == before


def test_a_key_for_a_table_that_is_not_encrypted_is_refused(tmp_path: Path) -> None:
    clear = made(tmp_path / "clear", key=None)
    for act in (
        lambda: open_table(str(clear), key="env:TABLE_KEY"),
        lambda: ensure_table_root(TableFiles(str(clear), key="env:TABLE_KEY")),
    ):
        with pytest.raises(EncryptionKeyError, match="is not encrypted, but a key is given"):
            act()
    with pytest.raises(SettingError, match="key reference is invalid"):
        ensure_table_root(TableFiles(str(tmp_path / "new"), key="5a" * 32))
    with pytest.raises(EncryptionKeyError, match="NOBODYS"):
        ensure_table_root(TableFiles(str(tmp_path / "new"), key="env:NOBODYS"))
    assert not (tmp_path / "new").exists()


def test_the_command_line_takes_a_key(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_KEY", "5a" * 32)
    monkeypatch.delenv("TABLE_KEY")
    conf = tmp_path / "layoutopt.toml"
    conf.write_text('[encryption]\nkey = "env:MY_KEY"\n')
    query = ["query", str(table), SQL[2], "--json"]
    assert main(query) == BAD_USAGE
    assert "'TABLE_KEY' is not set" in capsys.readouterr().err
    for given in (["--key", "env:MY_KEY"], ["--conf", str(conf)]):
        assert main([*query, *given]) == DONE
        assert '"n"' in capsys.readouterr().out
    assert main([*query, "--conf", str(conf), "--key", "env:WRONG_KEY"]) == BAD_USAGE
    conf.write_text("[encryption]\nkeys = 1\n")
    assert main([*query, "--conf", str(conf)]) == BAD_USAGE
    assert main(["verify", str(table), "--key", "env:MY_KEY"]) == DONE
    assert main(["status", str(table), "--key", "env:MY_KEY"]) == DONE
    assert ", encrypted" in capsys.readouterr().out
    (table / "_layoutopt/snapshots/1.json").write_bytes(b"LOE1 and so on")
    assert main(["history", str(table), "--key", "env:MY_KEY"]) == FAILED
    assert "can't be opened" in capsys.readouterr().err


def test_engines_without_a_key_get_no_files(table: Path, tmp_path: Path) -> None:
    opened = open_table(str(table))
    assert main(["explain", str(table), SQL[1], "--predicate"]) == BAD_USAGE
    for act in (
        lambda: opened.files(),
        lambda: publish(str(table), publication(str(table), "delta", str(tmp_path / "shown"))),
        lambda: Tables({(("a",), "b"): str(table)}).check(),
    ):
        with pytest.raises(EncryptedTableError, match="is encrypted"):
            act()
    assert not (tmp_path / "shown").exists()


def test_a_folder_is_served_without_its_encrypted_tables(
    others: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {path.name for path in others} == {"encrypted", "clear"}
    build(tmp_path / "plain", ROWS, building(SCHEMA, CONDITIONS, partition_by="year"))
    shutil.copytree(others[0], tmp_path / "encrypted")
    for key in ("5a" * 32, ""):
        monkeypatch.setenv("TABLE_KEY", key)
        tables = Tables({}, str(tmp_path))
        tables.check()
        assert [name for _, name in tables.names()] == ["plain"]
        with pytest.raises((EncryptedTableError, EncryptionKeyError), match=r"encrypted|TABLE_KEY"):
            tables.find(("default",), "encrypted")


def test_vacuums_and_restores_know_the_stored_names(table: Path) -> None:
    files = TableFiles(str(table))
    assert restore(files, 0).rows == 240
    assert open_table(str(table)).rows == 240
    again = building(SCHEMA, CONDITIONS, partition_by="year", footers=True, blocking=by_position(8))
    build(table, ROWS, replace(again, key="env:TABLE_KEY"), load_id="load-2")
    before = {path.as_posix() for path in table.rglob("*.parquet")}
    report = vacuum(TableFiles(str(table)), 1, timedelta(0))
    gone = before - {path.as_posix() for path in table.rglob("*.parquet")}
    assert len(gone) == len([path for path in report.files if path.endswith(".parquet")]) >= 6
    catalog = tuple(f"/{name}/" for name in ("deletes", "indexes", *MANIFESTS))
    assert all("load-1" in path or any(name in path for name in catalog) for path in gone)
    assert same(open_table(str(table)).sql(SQL[0]).to_pylist(), expected(SQL[0], ROWS))
    assert verify_path(str(table)).ok


def test_what_a_vacuum_gave_up_can_not_be_named_again(table: Path) -> None:
    again = building(SCHEMA, CONDITIONS, partition_by="year", footers=True, blocking=by_position(8))
    build(table, ROWS, replace(again, key="env:TABLE_KEY"), load_id="load-2")

    def killed(point: str) -> None:
        if point == "snapshot-created":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        vacuum(TableFiles(str(table)), 1, timedelta(0), at=killed)
    with pytest.raises(CommitConflictError, match="a vacuum removed"):
        restore(TableFiles(str(table)), 1)
    opened = open_table(str(table))
    for name in (load_folder("1995", "load-1"), blocks_path("load-1", 0)):
        change = Change("load-3", None, frozenset([name]), lambda latest: opened.catalog.snapshot)
        with pytest.raises(CommitConflictError, match="a vacuum removed"):
            check_no_tombstone(opened.catalog.files, [opened.catalog.snapshot], change)
    assert same(opened.sql(SQL[0]).to_pylist(), expected(SQL[0], ROWS))
